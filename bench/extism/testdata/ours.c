// The work of the benchmarks for a host of ours: the parameter becomes the offset, or is
// the head of a request, whose body is read and whose status becomes the offset.
// Built by: make -C bench/extism testdata
#include "../../../sdk/c/wasmjob.h"

WASMJOB_EXPORT("job_abi_v1") void marker(void) {}

static char buf[64 << 10];
static unsigned char text[4096];

static int32_t wait_for(int32_t h, int32_t n) {
  (void)h;
  if (n == JOB_ERR_AGAIN && job_io_wait(-1) < 0) return JOB_ERR_CANCELLED;
  return n;
}

WASMJOB_EXPORT("job_execute") int32_t run(void) {
  int32_t n = job_ctx_str(JOB_CTX_ITEM_PARAMETER, text, sizeof text);
  if (n < 0 || n > (int32_t)sizeof text) return JOB_FAIL;
  if (text[0] != '@') return job_offset_set(text, n) == 0 ? JOB_OK : JOB_FAIL;
  for (int32_t i = 0; i < n; i++) if (text[i] == '\n') text[i] = 0;
  int32_t h = job_http_open(text + 1, n - 1);
  if (h < 0 || job_io_finish(h) < 0) return JOB_FAIL;
  int32_t status;
  do status = wait_for(h, job_http_status(h)); while (status == JOB_ERR_AGAIN);
  if (status < 0) return JOB_FAIL;
  for (;;) {
    int32_t r = wait_for(h, job_io_read(h, buf, sizeof buf));
    if (r == JOB_ERR_AGAIN) continue;
    if (r < 0) return JOB_FAIL;
    if (r == 0) break;
  }
  job_io_close(h);
  unsigned char digits[3] = {'0' + status / 100, '0' + status / 10 % 10, '0' + status % 10};
  return job_offset_set(digits, 3) == 0 ? JOB_OK : JOB_FAIL;
}
