// A job in freestanding C. The job's parameter says what to do: a word, and
// perhaps a number after a colon.
#define JOB(name) __attribute__((import_module("job_v1"), import_name(name)))
#define WASI(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef unsigned int u32;
typedef long long i64;

JOB("ctx_str") int ctx_str(u32 field, void *buf, u32 limit);
JOB("ctx_int") i64 ctx_int(u32 field);
JOB("log") void log_line(int level, const void *msg, u32 len, const void *kv, u32 kv_len);
JOB("log_enabled") int log_enabled(int level);
JOB("set_error") void set_error(const void *msg, u32 len);
JOB("progress") void progress(i64 done, i64 total);
JOB("metric") int metric(int kind, const void *name, u32 len, i64 value);
JOB("offset_get") int offset_get(void *buf, u32 limit);
JOB("offset_set") int offset_set(const void *p, u32 len);
JOB("offset_commit") int offset_commit(void);
JOB("cancelled") int cancelled(void);
JOB("retry_at") int retry_at(i64 at, int flags);
WASI("fd_write") int fd_write(int fd, const void *iov, u32 n, u32 *written);
WASI("proc_exit") _Noreturn void proc_exit(u32 code);
WASI("poll_oneoff") int poll_oneoff(const void *in, void *out, u32 n, u32 *events);
__attribute__((import_module("env"), import_name("abort"))) void as_abort(int msg, int file, int line, int column);

static char parameter[256];
static int calls; // of this instance

static u32 len(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}

static int is(const char *word) {
	u32 i = 0;
	for (; word[i]; i++)
		if (parameter[i] != word[i]) return 0;
	return parameter[i] == 0 || parameter[i] == ':';
}

static i64 number(void) {
	const char *p = parameter;
	while (*p && *p != ':') p++;
	if (!*p) return 0;
	i64 sign = 1, v = 0;
	if (*++p == '-') sign = -1, p++;
	for (; *p >= '0' && *p <= '9'; p++) v = v * 10 + (*p - '0');
	return v * sign;
}

static void say(const char *s) { log_line(0, s, len(s), 0, 0); }

static char *digits(char *p, i64 v) {
	char b[24];
	int n = 0;
	if (v < 0) *p++ = '-', v = -v;
	do b[n++] = '0' + v % 10; while (v /= 10);
	while (n) *p++ = b[--n];
	*p = 0;
	return p;
}

static i64 parse(const char *p, int n) {
	i64 v = 0;
	for (int i = 0; i < n; i++) v = v * 10 + (p[i] - '0');
	return v;
}

static void print(int fd, const char *s, u32 n) {
	struct { const void *p; u32 n; } iov = {s, n};
	u32 written;
	fd_write(fd, &iov, 1, &written);
}

static volatile int deep;
__attribute__((noinline)) static int recurse(int n) {
	deep += n;
	return recurse(n + 1) + deep;
}

static char big[64 * 1024];

static int nap(i64 ns) {
	static struct { i64 user, tag, clock, timeout, precision, flags; } in; // little-endian
	static char out[32];
	u32 n;
	in.tag = 0;
	in.clock = 1;
	in.timeout = ns;
	return poll_oneoff(&in, out, 1, &n);
}

EXPORT("job_abi_v1") void marker(void) {}

static void read_parameter(void) {
	int n = ctx_str(4, parameter, sizeof parameter - 1);
	parameter[n > 0 && n < (int)sizeof parameter ? n : 0] = 0;
}

// dump logs every field of the context as "field=value".
static void dump(void) {
	static char line[512];
	for (u32 f = 1; f <= 10; f++) {
		char *p = digits(line, f);
		*p++ = '=';
		int n = ctx_str(f, p, 256);
		if (n < 0) { *p++ = 'E'; p = digits(p, n); } else p += n;
		log_line(0, line, p - line, 0, 0);
	}
	for (u32 f = 32; f <= 41; f++) {
		char *p = digits(line, f);
		*p++ = '=';
		p = digits(p, ctx_int(f));
		log_line(0, line, p - line, 0, 0);
	}
}

EXPORT("job_execute") int execute(void) {
	static char buf[8192];
	calls++;
	read_parameter();
	if (is("ok")) return 0;
	if (is("status")) return (int)number();
	if (is("retry-at") || is("pause-key")) {
		int code = retry_at(number(), is("pause-key"));
		return code < 0 ? 64 - code : 2;
	}
	if (is("retry-flags")) return 64 - retry_at(1, (int)number());
	if (is("later-ok")) return retry_at(number(), 0);
	if (is("error")) { set_error("disk on fire", 12); return 1; }
	if (is("error-then-trap")) { set_error("last words", 10); __builtin_trap(); }
	if (is("trap")) __builtin_trap();
	if (is("oob")) return *(volatile int *)0x7ffffff0;
	if (is("div")) { volatile int zero = 0; return 1 / zero; }
	if (is("recurse")) return recurse(1);
	if (is("spin")) for (;;) deep++;
	if (is("spin-cancelled")) { while (!cancelled()) deep++; return 3; }
	if (is("spin-log")) for (;;) say("flood");
	if (is("nap")) { nap(number() * 1000000); return 0; }
	if (is("exit")) proc_exit((u32)number());
	if (is("abort")) { as_abort(0, 0, 12, 7); return 0; }
	if (is("poll-overflow")) { u32 n; return poll_oneoff(big, big, 0x10000000, &n); } // times 48 that is 0
	if (is("grow")) {
		u32 pages = 0;
		while (__builtin_wasm_memory_grow(0, 16) != -1ul) pages += 16;
		char *end = digits(buf, pages);
		log_line(0, buf, end - buf, 0, 0);
		return 0;
	}
	if (is("calls")) { char *e = digits(buf, calls); log_line(0, buf, e - buf, 0, 0); return 0; }
	if (is("dump")) { dump(); return 0; }
	if (is("flood")) { for (i64 i = number(); i; i--) say("line"); return 0; }
	if (is("long-line")) {
		for (int i = 0; i < (int)sizeof big; i++) big[i] = "\xc3\xa4"[i & 1];
		log_line(0, big + 1, sizeof big - 1, 0, 0);
		return 0;
	}
	if (is("attrs")) {
		log_line(4, "with", 4, "a\0" "1\0" "b\0" "\0", 7);
		log_line(8, "odd", 3, "a\0" "1\0" "b", 5);
		log_line(-4, "b\xff" "d", 3, 0, 0);
		return 0;
	}
	if (is("print")) { print(1, "out one\nout two\r\nrest", 21); print(2, "to err\n", 7); return 0; }
	if (is("print-flood")) {
		for (int i = 0; i < (int)sizeof big; i++) big[i] = i % 64 == 63 ? '\n' : 'x';
		for (int i = 0; i < 8; i++) print(1, big, sizeof big);
		return 0;
	}
	if (is("err-then-trap")) { print(2, "noise\npanic: told you\nmore\n", 27); __builtin_trap(); }
	if (is("bad-pointer")) return offset_set((void *)0x7fffffff, 16);
	if (is("huge-length")) return offset_set(buf, 0xfffffff0u) == -4 ? 0 : 64;
	if (is("probe")) { // the rules of reading, on a job name of 5 bytes
		buf[0] = '#';
		if (ctx_str(1, 0, 0) != 5) return 64;
		if (ctx_str(1, buf, 4) != 5 || buf[0] != '#') return 65;
		if (ctx_str(1, (void *)0x7fffffff, 4) != 5) return 66;
		if (ctx_str(1, buf, 5) != 5 || buf[0] != 'p' || buf[4] != 'e') return 67;
		if (ctx_str(6, (void *)0x7fffffff, 100) != 0) return 68; // empty, written nowhere
		if (ctx_str(99, buf, 1) != -2 || ctx_int(99) != -2) return 69;
		return 0;
	}
	if (is("stage")) {
		int n = offset_get(buf, sizeof buf);
		i64 v = n < 0 ? 0 : parse(buf, n);
		char *e = digits(buf, v + number());
		if (offset_set(buf, e - buf) != 0) return 64;
		if (offset_get(buf + 100, 100) != e - buf) return 65;
		return 0;
	}
	if (is("stage-fail")) { offset_set("9", 1); return 1; }
	if (is("stage-trap")) { offset_set("9", 1); __builtin_trap(); }
	if (is("stage-large")) return offset_set(buf, 4097) == -4 && offset_set(buf, 4096) == 0 ? 0 : 64;
	if (is("commit")) { // returns 64 minus the code
		offset_set("7", 1);
		int code = offset_commit();
		if (code) return 64 - code;
		if (offset_get(buf, 10) != 1 || buf[0] != '7') return 70;
		return offset_commit() == 0 ? 0 : 71;
	}
	if (is("commit-trap")) { offset_set("7", 1); offset_commit(); __builtin_trap(); }
	if (is("metric")) {
		if (metric(0, "rows", 4, 3) != 0) return 64;
		if (metric(1, "rows_2", 6, -5) != 0) return 65;
		if (metric(3, "rows", 4, 1) != -1) return 66;
		if (metric(0, "Rows", 4, 1) != -1 || metric(0, "", 0, 1) != -1 || metric(0, "_a", 2, 1) != -1) return 67;
		return 0;
	}
	if (is("metric-names")) {
		int ok = 0, quota = 0;
		for (int i = 0; i < 80; i++) {
			char *e = digits(buf + 1, i);
			buf[0] = 'm';
			switch (metric(0, buf, e - buf, 1)) { case 0: ok++; break; case -5: quota++; }
		}
		return ok == 64 && quota == 16 ? 0 : 64;
	}
	if (is("metric-code")) return 64 - metric(0, "rows", 4, 1);
	if (is("progress")) { progress(3, 10); progress(4, -1); return 0; }
	set_error(parameter, len(parameter));
	return 99;
}

// The DATAFLOW job counts from the offset to the number that the item's
// parameter names, in batches of fetchDataCount or 10. The job's parameter
// makes it misbehave at one record.
static i64 from, to;

EXPORT("job_fetch") int fetch(void) {
	static char buf[32];
	calls++;
	read_parameter();
	int n = ctx_str(3, buf, sizeof buf);
	i64 end = n < 0 ? 0 : parse(buf, n);
	n = offset_get(buf, sizeof buf);
	from = n < 0 ? 0 : parse(buf, n);
	i64 size = ctx_int(40);
	if (size <= 0) size = 10;
	to = from + size < end ? from + size : end;
	if (is("fetch-fail") && from >= number()) return -1;
	if (is("fetch-retry") && from >= number()) return -2;
	if (is("fetch-nonsense") && from >= number()) return -1000;
	if (is("fetch-spin") && from >= number()) for (;;) deep++;
	if (is("tail") && from == end) { offset_set("1000", 4); return 0; }
	char *e = digits(buf, to);
	if (to > from && !is("no-offset")) offset_set(buf, e - buf);
	return (int)(to - from);
}

EXPORT("job_process") int process(void) {
	for (i64 i = from; i < to; i++) {
		if (is("process-fail") && i == number()) { set_error("bad record", 10); return 1; }
		if (is("process-retry") && i == number()) return 2;
		if (is("process-trap") && i == number()) __builtin_trap();
	}
	return 0;
}
