// An item with effects outside, in freestanding C: it does what an item of
// Jobs.java does, as deaf as that one, to whatever the host says meanwhile.
//
//	clang --target=wasm32 -O2 -nostdlib -fno-builtin -Wall -Wl,--no-entry -o guest.wasm guest.c
//
// The item's parameter is a number of steps, the job's is the milliseconds of a
// step. Each step says a line, "effect". Items with an even number then commit
// an offset, too, and say what became of that: "committed" or "refused".
#define JOB(name) __attribute__((import_module("job_v1"), import_name(name)))
#define WASI(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

typedef unsigned int u32;
typedef long long i64;

JOB("ctx_str") int ctx_str(u32 field, void *buf, u32 limit);
JOB("ctx_int") i64 ctx_int(u32 field);
JOB("log") void log_line(int level, const void *msg, u32 len, const void *kv, u32 kv_len);
JOB("offset_set") int offset_set(const void *p, u32 len);
JOB("offset_commit") int offset_commit(void);
WASI("clock_time_get") int clock_time_get(int clock, i64 precision, i64 *time);
WASI("poll_oneoff") int poll_oneoff(const void *in, void *out, u32 n, u32 *events);

enum { ITEM_PARAMETER = 3, JOB_PARAMETER = 4, ITEM = 33, FENCE = 39 };

static u32 digits(char *to, i64 v) {
	char b[24];
	u32 n = 0, m = 0;
	do b[n++] = '0' + v % 10; while (v /= 10);
	while (n) to[m++] = b[--n];
	return m;
}

static char kv[200];
static u32 kv_len;

static void value(const char *key, i64 v) {
	while (*key) kv[kv_len++] = *key++;
	kv[kv_len++] = 0;
	kv_len += digits(kv + kv_len, v);
	kv[kv_len++] = 0;
}

static void say(const char *what) {
	i64 at = 0;
	clock_time_get(0, 1000, &at);
	kv_len = 0;
	value("item", ctx_int(ITEM));
	value("fence", ctx_int(FENCE));
	value("at", at / 1000);
	u32 n = 0;
	while (what[n]) n++;
	log_line(0, what, n, kv, kv_len);
}

static void nap(i64 ms) {
	static struct { i64 user, tag, clock, timeout, precision, flags; } in; // little-endian
	static char out[32];
	u32 n;
	in.clock = 1;
	in.timeout = ms * 1000 * 1000;
	poll_oneoff(&in, out, 1, &n);
}

static i64 number(u32 field) {
	static char b[24];
	int n = ctx_str(field, b, sizeof b);
	i64 v = 0;
	for (int i = 0; i < n && i < (int)sizeof b; i++) v = v * 10 + (b[i] - '0');
	return v;
}

EXPORT("job_abi_v1") void marker(void) {}

EXPORT("job_execute") int execute(void) {
	i64 steps = number(ITEM_PARAMETER), beat = number(JOB_PARAMETER);
	say("begin");
	for (i64 step = 1; step <= steps; step++) {
		nap(beat);
		say("effect");
		if (ctx_int(ITEM) % 2) continue;
		char b[24];
		int code = offset_set(b, digits(b, step));
		if (code == 0) code = offset_commit();
		say(code == 0 ? "committed" : "refused");
	}
	say("end");
	return 0;
}
