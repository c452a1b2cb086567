// The same work for Extism: the input becomes the output, or is the URL of a request,
// whose body is read and whose status becomes the output.
#define IMPORT(n) __attribute__((import_module("extism:host/env"), import_name(n)))
typedef unsigned long long u64;
IMPORT("input_length") u64 input_length(void);
IMPORT("input_load_u64") u64 input_load_u64(u64);
IMPORT("input_load_u8") int input_load_u8(u64);
IMPORT("alloc") u64 alloc(u64);
IMPORT("free") void release(u64);
IMPORT("store_u8") void store_u8(u64, int);
IMPORT("store_u64") void store_u64(u64, u64);
IMPORT("load_u64") u64 load_u64(u64);
IMPORT("length") u64 length(u64);
IMPORT("output_set") void output_set(u64, u64);
IMPORT("http_request") u64 http_request(u64, u64);
IMPORT("http_status_code") int http_status_code(void);

static unsigned char text[4096];
static u64 words[8192];

static u64 put(const unsigned char *p, u64 n) {
  u64 at = alloc(n), i = 0;
  for (; i + 8 <= n; i += 8) {
    u64 v;
    __builtin_memcpy(&v, p + i, 8);
    store_u64(at + i, v);
  }
  for (; i < n; i++) store_u8(at + i, p[i]);
  return at;
}

static u64 input(void) {
  u64 n = input_length(), i = 0;
  for (; i + 8 <= n; i += 8) {
    u64 v = input_load_u64(i);
    __builtin_memcpy(text + i, &v, 8);
  }
  for (; i < n; i++) text[i] = input_load_u8(i);
  return n;
}

__attribute__((export_name("run"))) int run(void) {
  u64 n = input();
  output_set(put(text, n), n);
  return 0;
}

__attribute__((export_name("fetch"))) int fetch(void) {
  u64 n = input(); // the request as JSON
  u64 request = put(text, n);
  u64 body = http_request(request, 0);
  u64 size = length(body);
  for (u64 i = 0; i + 8 <= size; i += 8) words[i / 8 % 8192] = load_u64(body + i);
  int status = http_status_code();
  unsigned char digits[3] = {'0' + status / 100, '0' + status / 10 % 10, '0' + status % 10};
  output_set(put(digits, 3), 3);
  release(body);
  return 0;
}
