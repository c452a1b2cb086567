// Sends a request with a secret in a header, or reads the secret, and then looks through
// all of its memory for it. The item's parameter is the URL, the secret's name and the
// secret backwards, each followed by NUL. Built by: make -C host/sandbox/capability/offer/testdata/scan
#include "../../../../../sdk/c/wasmjob.h"

static char text[2048], head[4096], body[65536];

WASMJOB_EXPORT("job_abi_v1") void marker(void) {}

static int add(int at, const char *s) {
  while (*s) head[at++] = *s++;
  return at;
}

WASMJOB_EXPORT("job_execute") int32_t run(void) {
  int32_t n = job_ctx_str(JOB_CTX_ITEM_PARAMETER, text, sizeof text);
  if (n < 0 || n > (int32_t)sizeof text) return 64;
  const char *url = text, *name = url, *needle;
  while (*name) name++;
  name++;
  for (needle = name; *needle; needle++) {}
  int32_t name_len = needle - name, length = 0;
  needle++;
  while (needle[length]) length++;
  if (*url) {
    int at = add(0, "GET");
    head[at++] = 0;
    at = add(at, url);
    head[at++] = 0;
    at = add(at, "Authorization");
    head[at++] = 0;
    at = add(at, "Bearer {{secret:");
    at = add(at, name);
    at = add(at, "}}");
    head[at++] = 0;
    int32_t h = job_http_open(head, at), r;
    if (h < 0 || job_io_finish(h) < 0) return 65;
    while ((r = job_http_status(h)) == JOB_ERR_AGAIN) if (job_io_wait(-1) < 0) return 66;
    if (r != 200) return 67;
    if (job_http_headers(h, body, sizeof body) < 0) return 68;
    for (;;) {
      r = job_io_read(h, body, sizeof body);
      if (r == JOB_ERR_AGAIN) job_io_wait(-1);
      else if (r <= 0) break;
    }
  } else if (job_env_secret(name, name_len, body, sizeof body) < 0) {
    return 69;
  }
  const char *end = (const char *)(__builtin_wasm_memory_size(0) * 65536);
  for (const volatile char *p = 0; p + length <= end; p++) {
    int i = 0;
    while (i < length && p[i] == needle[length - 1 - i]) i++;
    if (i == length) return 70; // here it is
  }
  return JOB_OK;
}
