// The job that is run while the cluster is attacked, in freestanding C: small
// enough to be compiled by a host in no time. The job's parameter, or the
// item's, says what an item does: a word, and a number after a colon.
//
//	clang --target=wasm32 -O2 -nostdlib -fno-builtin -Wall -Wl,--no-entry -o guest.wasm guest.c
//
// Whatever it does it tells by itself, by its own clock: who it is, under which
// fence, and what the host answered. These lines are the evidence that does not
// come from the host's events. Other versions of the module differ in the text
// "version 1".
#define JOB(name) __attribute__((import_module("job_v1"), import_name(name)))
#define WASI(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef unsigned int u32;
typedef long long i64;

JOB("ctx_str") int ctx_str(u32 field, void *buf, u32 limit);
JOB("ctx_int") i64 ctx_int(u32 field);
JOB("log") void log_line(int level, const void *msg, u32 len, const void *kv, u32 kv_len);
JOB("set_error") void set_error(const void *msg, u32 len);
JOB("cancelled") int cancelled(void);
JOB("offset_get") int offset_get(void *buf, u32 limit);
JOB("offset_set") int offset_set(const void *p, u32 len);
JOB("offset_commit") int offset_commit(void);
WASI("clock_time_get") int clock_time_get(int clock, i64 precision, i64 *time);
WASI("poll_oneoff") int poll_oneoff(const void *in, void *out, u32 n, u32 *events);

enum { TASK_ID = 2, ITEM_PARAMETER = 3, JOB_PARAMETER = 4, RUN_ID = 8, ITEM = 33, ATTEMPT = 37, FENCE = 39 };
enum { OK = 0, FAIL = 1, RETRY = 2, CANCELLED = 3 };
enum { BEAT = 100, BATCH = 10 };

static const char version[] = "version 1";

static char parameter[256];
static i64 number; // in the parameter, behind the colon

static u32 len(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}

static i64 now(void) { // microseconds
	i64 t = 0;
	clock_time_get(0, 1000, &t);
	return t / 1000;
}

static void nap(i64 ms) {
	static struct { i64 user, tag, clock, timeout, precision, flags; } in; // little-endian
	static char out[32];
	u32 n;
	in.clock = 1;
	in.timeout = ms * 1000 * 1000;
	poll_oneoff(&in, out, 1, &n);
}

// Lines.

static char kv[1024];
static u32 kv_len;

static void add(const char *s, u32 n) {
	for (u32 i = 0; i < n && kv_len < sizeof kv - 1; i++) kv[kv_len++] = s[i];
	kv[kv_len++] = 0;
}

static u32 digits(char *to, i64 v) {
	char b[24];
	u32 n = 0, m = 0;
	if (v < 0) to[m++] = '-', v = -v;
	do b[n++] = '0' + v % 10; while (v /= 10);
	while (n) to[m++] = b[--n];
	return m;
}

static void text(const char *key, u32 field) {
	static char b[400];
	int n = ctx_str(field, b, sizeof b);
	add(key, len(key));
	add(b, n < 0 || n > (int)sizeof b ? 0 : n);
}

static void value(const char *key, i64 v) {
	char b[24];
	add(key, len(key));
	add(b, digits(b, v));
}

static void line(const char *what) { log_line(0, what, len(what), kv, kv_len); }

static void who(void) {
	kv_len = 0;
	i64 at = now();
	text("run", RUN_ID);
	text("task", TASK_ID);
	value("fence", ctx_int(FENCE));
	value("at", at);
}

static void tell(const char *what, const char *key, i64 v) {
	who();
	if (key) value(key, v);
	line(what);
}

static void begin(void) {
	who();
	value("attempt", ctx_int(ATTEMPT));
	add("module", 6);
	add(version, len(version));
	line("begin");
}

// Parameters.

static void read_parameter(void) {
	int n = ctx_str(ITEM_PARAMETER, parameter, sizeof parameter - 1);
	if (n < 0) n = ctx_str(JOB_PARAMETER, parameter, sizeof parameter - 1);
	if (n < 0 || n >= (int)sizeof parameter) n = 0;
	parameter[n] = 0;
	number = 0;
	for (char *p = parameter; *p; p++) {
		if (*p != ':') continue;
		*p++ = 0;
		while (*p >= '0' && *p <= '9') number = number * 10 + (*p++ - '0');
		break;
	}
}

static int is(const char *word) {
	u32 i = 0;
	for (; word[i]; i++)
		if (parameter[i] != word[i]) return 0;
	return parameter[i] == 0;
}

// The offset: how many numbers were added, their sum, and the fence under which
// that was written.

static i64 count, sum;

static void load(void) {
	static char b[128];
	i64 list[2] = {0, 0};
	int n = offset_get(b, sizeof b), k = 0;
	for (int i = 0; i < n && i < (int)sizeof b && k < 2; i++) {
		if (b[i] == ' ') k++;
		else list[k] = list[k] * 10 + (b[i] - '0');
	}
	count = list[0];
	sum = list[1];
}

static void take_next(void) {
	count++;
	sum += count * count % 9973 + ctx_int(ITEM);
}

static int store(void) {
	char b[80];
	u32 n = digits(b, count);
	b[n++] = ' ';
	n += digits(b + n, sum);
	b[n++] = ' ';
	n += digits(b + n, ctx_int(FENCE));
	return offset_set(b, n);
}

static int fail(const char *why) {
	set_error(why, len(why));
	tell("end", "status", FAIL);
	return FAIL;
}

static int end(int status) {
	tell("end", "status", status);
	return status;
}

// work takes a time, and tells that it is alive. Who asks it to stop is heard
// only if it listens.
static int work(int listens) {
	i64 until = now() + number * 1000;
	for (;;) {
		i64 left = (until - now()) / 1000;
		if (left <= 0) return end(OK);
		nap(left < BEAT ? left : BEAT);
		int why = cancelled();
		if (why && listens) {
			tell("cancelled", "why", why);
			return CANCELLED;
		}
		tell("beat", 0, 0);
	}
}

// ledger commits every step, before it takes the next.
static int ledger(void) {
	load();
	for (i64 n = 0; n < number; n++) {
		take_next();
		int code = store();
		if (code == 0) code = offset_commit();
		if (code != 0) {
			tell("refused", "code", code);
			return code == -7 || code == -8 ? CANCELLED : FAIL;
		}
		tell("committed", "n", count);
		nap(BEAT);
	}
	return end(OK);
}

static volatile int sink;

EXPORT("job_abi_v1") void marker(void) {}

EXPORT("job_execute") int execute(void) {
	read_parameter();
	begin();
	if (is("work")) return work(1);
	if (is("stubborn")) return work(0);
	if (is("ledger")) return ledger();
	if (is("fail")) return fail("it fails, as it should");
	if (is("retry")) return end(ctx_int(ATTEMPT) < 2 ? RETRY : OK);
	if (is("trap")) __builtin_trap();
	if (is("spin")) for (;;) sink++;
	return fail("no such word");
}

static i64 loop_fence, taken; // of this loop

EXPORT("job_fetch") int fetch(void) {
	read_parameter();
	load();
	if (loop_fence != ctx_int(FENCE)) {
		loop_fence = ctx_int(FENCE);
		taken = 0;
		begin();
	}
	if (taken < number) return BATCH;
	loop_fence = 0;
	tell("end", "n", count);
	return 0;
}

EXPORT("job_process") int process(void) {
	for (int i = 0; i < BATCH; i++) take_next();
	taken += BATCH;
	nap(BEAT);
	tell("beat", "n", count);
	return store() == 0 ? OK : FAIL;
}
