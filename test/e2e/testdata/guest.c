// A SIMPLE job in freestanding C, small enough to be compiled by a host in no
// time. What an item does is said by its parameter, or else by the job's: a
// word, and perhaps an argument after a colon.
//
//	clang --target=wasm32 -O2 -nostdlib -Wall -Wno-infinite-recursion \
//	      -Wl,--no-entry -o guest.wasm guest.c
//
// Tests make other versions of it: they replace the text "version 1".
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
JOB("offset_set") int offset_set(const void *offset, u32 len);
WASI("path_filestat_get") int path_filestat_get(int fd, u32 flags, const void *path, u32 len, void *stat);
WASI("poll_oneoff") int poll_oneoff(const void *in, void *out, u32 n, u32 *events);
WASI("proc_exit") _Noreturn void proc_exit(u32 code);

enum { ITEM_PARAMETER = 3, JOB_PARAMETER = 4, ATTEMPT = 37 };
enum { OK = 0, FAIL = 1, RETRY = 2, CANCELLED = 3 };
enum { GATE = 3 }; // the first mounted directory

static char parameter[256];
static char *argument; // in the parameter, behind the colon

static u32 len(const char *s) {
	u32 n = 0;
	while (s[n]) n++;
	return n;
}

static void say(const char *s) { log_line(0, s, len(s), 0, 0); }

static int fail(const char *why) {
	set_error(why, len(why));
	return FAIL;
}

static int is(const char *word) {
	u32 i = 0;
	for (; word[i]; i++)
		if (parameter[i] != word[i]) return 0;
	return parameter[i] == 0;
}

static int number(void) {
	int v = 0, sign = 1;
	const char *p = argument;
	if (*p == '-') sign = -1, p++;
	for (; *p >= '0' && *p <= '9'; p++) v = v * 10 + (*p - '0');
	return v * sign;
}

static void nap(void) {
	static struct { i64 user, tag, clock, timeout, precision, flags; } in; // little-endian
	static char out[32];
	u32 n;
	in.clock = 1;
	in.timeout = 10 * 1000 * 1000;
	poll_oneoff(&in, out, 1, &n);
}

// hold waits until the file that the argument names is in the mounted
// directory. Who asks it to stop is heard only if it listens.
static int hold(int listens) {
	static i64 stat[8];
	say("holding");
	for (;;) {
		int e = path_filestat_get(GATE, 0, argument, len(argument), stat);
		if (e == 0) return OK;
		if (e == 8) return fail("no directory is mounted");
		if (listens && cancelled()) return CANCELLED;
		nap();
	}
}

// rows holds, and then logs 60 lines that differ by an attribute alone, five at once.
static int rows(void) {
	int e = hold(1);
	for (int n = 0; e == OK && n < 60; n++) {
		char kv[] = {'n', 0, '0' + n / 10, '0' + n % 10, 0};
		log_line(0, "row", 3, kv, sizeof kv);
		if (n % 5 == 4) nap();
	}
	return e;
}

// resume says the offset, sets "done", and holds.
static int resume(void) {
	static char text[64] = "from ";
	int n = offset_get(text + 5, sizeof text - 6);
	if (n >= 0) text[5 + n] = 0;
	say(n < 0 ? "from the beginning" : text);
	offset_set("done", 4);
	return hold(1);
}

static volatile int sink;
static const char version[] = "here is version 1";

EXPORT("job_abi_v1") void marker(void) {}

EXPORT("job_execute") int execute(void) {
	int n = ctx_str(ITEM_PARAMETER, parameter, sizeof parameter - 1);
	if (n < 0) n = ctx_str(JOB_PARAMETER, parameter, sizeof parameter - 1);
	if (n < 0 || n >= (int)sizeof parameter) n = 0;
	parameter[n] = 0;
	for (argument = parameter; *argument && *argument != ':';) argument++;
	if (*argument) *argument++ = 0;

	if (is("") || is("say")) { say(version); return OK; }
	if (is("hold")) return hold(1);
	if (is("stubborn")) return hold(0);
	if (is("rows")) return rows();
	if (is("resume")) return resume();
	if (is("fail")) return fail(argument);
	if (is("second")) return ctx_int(ATTEMPT) < 2 ? RETRY : OK;
	if (is("status")) return number();
	if (is("exit")) proc_exit(number());
	if (is("trap")) __builtin_trap();
	if (is("spin")) for (;;) sink++;
	if (is("spam")) for (;;) say("spam");
	if (is("hog")) {
		while (__builtin_wasm_memory_grow(0, 16) != -1ul) sink++;
		return fail("there is no more memory");
	}
	return fail("no such word");
}
