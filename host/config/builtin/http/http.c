/* The module of jobs of type HTTP: sends one request for each item, and judges the answer by its
   status. The plugin config is a list of texts, each ended by NUL: method, URL, type of the body,
   body, statuses that are expected ("200-299,304"), how many milliseconds a Retry-After may be ahead
   (0: it does not count), and headers, name and value in turn.

   {job}, {item}, {total}, {itemParameter}, {jobParameter}, {instant} and {run} stand for what
   the invocation has. In the URL they are escaped for a URL, in a body of JSON for a text of
   JSON. What is in braces twice, as {{secret:NAME}} in a header, is the host's. */
#include "../../../../sdk/c/wasmjob.h"

typedef uint32_t u32;

#define CONFIG (256 << 10)
#define HEAD (64 << 10)
#define BODY (512 << 10)

static char config[CONFIG], head[HEAD], body[BODY], value[16 << 10], answer[4096], message[1024];

/* out is a text that is being made. */
struct out {
  char *at, *end;
  int full;
};

static void put(struct out *o, char c) {
  if (o->at < o->end) *o->at++ = c;
  else o->full = 1;
}

static void puts_(struct out *o, const char *s) {
  while (*s) put(o, *s++);
}

static void number(struct out *o, int64_t v) {
  char b[24];
  int n = 0;
  uint64_t rest = v < 0 ? -(uint64_t)v : (uint64_t)v;
  if (v < 0) put(o, '-');
  do b[n++] = '0' + rest % 10; while (rest /= 10);
  while (n) put(o, b[--n]);
}

static void two(struct out *o, int64_t v) {
  if (v < 10) put(o, '0');
  number(o, v);
}

/* instant writes a time in Unix milliseconds as 2026-11-27T20:00:00Z. */
static void instant(struct out *o, int64_t ms) {
  int64_t s = ms / 1000, days = s / 86400, left = s % 86400;
  if (left < 0) left += 86400, days--;
  days += 719468; /* from the first of March of the year 0 */
  int64_t era = (days >= 0 ? days : days - 146096) / 146097, doe = days - era * 146097;
  int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
  int64_t mp = (5 * doy + 2) / 153, month = mp < 10 ? mp + 3 : mp - 9;
  number(o, yoe + era * 400 + (month <= 2));
  put(o, '-'), two(o, month), put(o, '-'), two(o, doy - (153 * mp + 2) / 5 + 1);
  put(o, 'T'), two(o, left / 3600), put(o, ':'), two(o, left / 60 % 60), put(o, ':'), two(o, left % 60), put(o, 'Z');
}

enum { PLAIN, URL, JSON };

static void escaped(struct out *o, const char *s, u32 n, int how) {
  static const char hex[] = "0123456789ABCDEF";
  for (u32 i = 0; i < n; i++) {
    unsigned char c = s[i];
    if (how == URL && !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~')) {
      put(o, '%'), put(o, hex[c >> 4]), put(o, hex[c & 15]);
    } else if (how == JSON && (c == '"' || c == '\\')) {
      put(o, '\\'), put(o, c);
    } else if (how == JSON && c < 32) {
      puts_(o, "\\u00"), put(o, hex[c >> 4]), put(o, hex[c & 15]);
    } else {
      put(o, c);
    }
  }
}

static int is(const char *s, u32 n, const char *word) {
  u32 i = 0;
  for (; i < n; i++)
    if (word[i] != s[i]) return 0;
  return word[i] == 0;
}

/* field writes what stands for a name in braces; 0 if there is no such name. */
static int field(struct out *o, const char *name, u32 n, int how) {
  struct out v = {value, value + sizeof value, 0};
  int text = is(name, n, "job") ? JOB_CTX_JOB_NAME : is(name, n, "itemParameter") ? JOB_CTX_ITEM_PARAMETER : is(name, n, "jobParameter") ? JOB_CTX_JOB_PARAMETER : is(name, n, "run") ? JOB_CTX_RUN_ID : 0;
  if (text) {
    int32_t size = job_ctx_str(text, value, sizeof value);
    if (size > (int32_t)sizeof value) o->full = 1;
    else if (size > 0) v.at = value + size;
  } else if (is(name, n, "item")) {
    number(&v, job_ctx_int(JOB_CTX_ITEM));
  } else if (is(name, n, "total")) {
    number(&v, job_ctx_int(JOB_CTX_TOTAL_COUNT));
  } else if (is(name, n, "instant")) {
    instant(&v, job_ctx_int(JOB_CTX_FIRE_TIME));
  } else {
    return 0;
  }
  escaped(o, value, v.at - value, how);
  return 1;
}

/* expand writes a template. */
static void expand(struct out *o, const char *s, int how) {
  while (*s) {
    if (*s == '{' && s[1] == '{') { /* the host's, up to its end */
      while (*s && !(*s == '}' && s[1] == '}')) put(o, *s++);
      continue;
    }
    if (*s == '{') {
      u32 n = 0;
      while ((s[1 + n] >= 'a' && s[1 + n] <= 'z') || (s[1 + n] >= 'A' && s[1 + n] <= 'Z')) n++;
      if (n && s[1 + n] == '}' && field(o, s + 1, n, how)) {
        s += n + 2;
        continue;
      }
    }
    put(o, *s++);
  }
}

static u32 length(const char *s) {
  u32 n = 0;
  while (s[n]) n++;
  return n;
}

/* json reports whether a type of bodies is JSON. */
static int json(const char *type) {
  for (; *type && *type != ';'; type++)
    if ((type[0] | 32) == 'j' && (type[1] | 32) == 's' && (type[2] | 32) == 'o' && (type[3] | 32) == 'n') return 1;
  return 0;
}

/* expected reports whether a list of statuses has one. */
static int expected(const char *list, int status) {
  for (;;) {
    int low = 0, high = 0;
    while (*list == ' ') list++;
    while (*list >= '0' && *list <= '9') low = low * 10 + *list++ - '0';
    high = low;
    if (*list == '-')
      for (high = 0, list++; *list >= '0' && *list <= '9';) high = high * 10 + *list++ - '0';
    if (low <= status && status <= high) return 1;
    if (*list != ',') return 0;
    list++;
  }
}

static struct out said;

static int failed(int status) {
  job_set_error(message, said.at - message);
  return status;
}

/* broken says what the host has against a request, and whether another try may help. */
static int broken(int32_t handle, int32_t code) {
  if (code == JOB_ERR_CANCELLED) return JOB_CANCELLED;
  int32_t n = job_io_error(handle, answer, sizeof answer - 1);
  puts_(&said, ": ");
  if (n > 0) escaped(&said, answer, n > (int32_t)sizeof answer ? sizeof answer : (u32)n, PLAIN);
  else puts_(&said, "the host answered "), number(&said, code);
  if (handle > 0) job_io_close(handle);
  return failed(code == JOB_ERR_UNAVAILABLE || code == JOB_ERR_TIMEOUT ? JOB_RETRY : JOB_FAIL);
}

WASMJOB_IMPORT("wasi_snapshot_preview1", "clock_time_get") int32_t clock_time_get(uint32_t clock, uint64_t precision, uint64_t *nanoseconds);

/* now is the time in Unix milliseconds. */
static int64_t now(void) {
  uint64_t ns = 0;
  return clock_time_get(0, 1000000, &ns) == 0 ? (int64_t)(ns / 1000000) : 0;
}

/* digits reads a number of at most twelve digits, and moves behind it; -1 if there is none. */
static int64_t digits(const char **s) {
  int64_t v = 0;
  int n = 0;
  for (; **s >= '0' && **s <= '9' && n < 12; n++) v = v * 10 + *(*s)++ - '0';
  return n && (**s < '0' || **s > '9') ? v : -1;
}

/* date reads a time such as "Wed, 21 Oct 2026 07:28:00 GMT" as Unix milliseconds; -1 if it is none. */
static int64_t date(const char *s) {
  static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
  for (int i = 0; i < 5; i++)
    if (!s[i]) return -1;
  s += 5; /* the day of the week */
  int64_t day = digits(&s), month = 0;
  if (day < 1 || day > 31 || *s++ != ' ') return -1;
  while (month < 12 && !(s[0] == months[3 * month] && s[1] == months[3 * month + 1] && s[2] == months[3 * month + 2])) month++;
  if (month == 12 || s[3] != ' ') return -1;
  s += 4;
  int64_t year = digits(&s), left = 0;
  if (year < 1970 || year > 9999) return -1;
  for (int i = 0; i < 3; i++) {
    if (*s++ != (i ? ':' : ' ')) return -1;
    int64_t v = digits(&s);
    if (v < 0 || v > (i ? 60 : 23)) return -1;
    left = left * 60 + v;
  }
  if (!is(s, length(s), " GMT")) return -1;
  int64_t y = year - (month < 2), yoe = y % 400, doy = (153 * (month + (month > 1 ? -2 : 10)) + 2) / 5 + day - 1;
  int64_t days = y / 400 * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
  return (days * 86400 + left) * 1000;
}

/* later asks for a run at the time of the header Retry-After of the answer, but at most so many
   milliseconds ahead. */
static void later(int32_t handle, int64_t most) {
  static const char name[] = "retry-after";
  int32_t size = job_http_headers(handle, head, sizeof head);
  if (most <= 0 || size <= 0 || size > (int32_t)sizeof head || head[size - 1] != 0) return;
  for (const char *at = head, *end = head + size; at < end;) {
    u32 n = 0;
    while (name[n] && (at[n] | 32) == name[n]) n++;
    int found = !name[n] && !at[n];
    at += length(at) + 1;
    if (at >= end) return;
    if (found) {
      const char *value = at;
      int64_t from = now(), seconds = digits(&value), to = seconds >= 0 && !*value ? from + seconds * 1000 : date(at);
      if (to >= 0 && from > 0) job_retry_at(to < from ? from : to > from + most ? from + most : to, 0);
      return;
    }
    at += length(at) + 1;
  }
}

WASMJOB_EXPORT("job_abi_v1") void job_abi_v1(void) {}

WASMJOB_EXPORT("job_execute") int job_execute(void) {
  said = (struct out){message, message + sizeof message, 0};
  int32_t size = job_ctx_str(JOB_CTX_PLUGIN_CONFIG, config, sizeof config);
  if (size <= 0 || size > (int32_t)sizeof config || config[size - 1] != 0) {
    puts_(&said, "there is no request: this module is for jobs of type HTTP");
    return failed(JOB_FAIL);
  }
  const char *at = config, *part[6];
  for (int i = 0; i < 6; i++) {
    if (at >= config + size) return JOB_FAIL;
    part[i] = at;
    at += length(at) + 1;
  }
  const char *method = part[0], *url = part[1], *type = part[2], *list = part[4], *most = part[5];
  struct out b = {body, body + sizeof body, 0}, h = {head, head + sizeof head, 0};
  expand(&b, part[3], json(type) ? JSON : PLAIN);
  puts_(&h, method), put(&h, 0);
  const char *shown = h.at;
  expand(&h, url, URL), put(&h, 0);
  if (*type) puts_(&h, "Content-Type"), put(&h, 0), puts_(&h, type), put(&h, 0);
  if (b.at > body) puts_(&h, "Content-Length"), put(&h, 0), number(&h, b.at - body), put(&h, 0);
  while (at < config + size) {
    puts_(&h, at), put(&h, 0);
    at += length(at) + 1;
    if (at >= config + size) break;
    expand(&h, at, PLAIN), put(&h, 0);
    at += length(at) + 1;
  }
  puts_(&said, method), put(&said, ' ');
  for (u32 n = 0; shown[n] && n < 300; n++) put(&said, shown[n]);
  if (b.full || h.full) {
    puts_(&said, ": the request is too large: at most 64 KiB of URL and headers, 512 KiB of body");
    return failed(JOB_FAIL);
  }

  int32_t handle = job_http_open(head, h.at - head);
  if (handle < 0) return broken(0, handle);
  int32_t code = b.at > body ? job_write(handle, body, b.at - body) : 0;
  if (code == 0) {
    do code = job_await(job_io_finish(handle)); while (code == JOB_ERR_AGAIN);
  }
  if (code == JOB_ERR_CANCELLED) return JOB_CANCELLED;
  int32_t status = job_status(handle); /* it may have answered without reading all */
  if (status < 0) return broken(handle, status);
  u32 got = 0;
  for (int32_t n = 1; got < sizeof answer && n > 0; got += n > 0 ? n : 0) {
    n = job_read(handle, answer + got, sizeof answer - got);
    if (n == JOB_ERR_CANCELLED) return JOB_CANCELLED;
  }
  if (!expected(list, status) && (status == 429 || status == 503)) later(handle, digits(&most));
  job_io_close(handle); /* the rest is of no interest, however long it is */
  puts_(&said, " answered "), number(&said, status);
  if (expected(list, status)) {
    job_log(0, message, said.at - message, 0, 0);
    if (got) job_log(-4, answer, got, 0, 0);
    return JOB_OK;
  }
  puts_(&said, ", expected "), puts_(&said, list);
  if (got) puts_(&said, ": "), escaped(&said, answer, got, PLAIN);
  return failed(status == 429 || status >= 500 ? JOB_RETRY : JOB_FAIL);
}
