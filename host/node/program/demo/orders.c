/* A job that goes on where the run before ended: each run takes ten orders and
   commits how far it has come, its offset, together with its end. Of five runs one
   fails, on purpose. */
#include "../../../sdk/c/wasmjob.h"

WASMJOB_EXPORT("job_abi_v1") void marker(void) {}

static char line[96], offset[24];

static uint32_t text(char *to, const char *from) {
  uint32_t n = 0;
  for (; from[n]; n++) to[n] = from[n];
  return n;
}

static uint32_t digits(char *to, int64_t value) {
  char reversed[24];
  uint32_t n = 0;
  do reversed[n++] = (char)('0' + value % 10); while (value /= 10);
  for (uint32_t i = 0; i < n; i++) to[i] = reversed[n - 1 - i];
  return n;
}

WASMJOB_EXPORT("job_execute") int32_t execute(void) {
  static const char failure[] = "one of five runs of this demo fails, so that you see what that looks like";
  int64_t done = 0;
  int32_t n = job_offset_get(offset, sizeof offset);
  for (int32_t i = 0; i < n && i < (int32_t)sizeof offset; i++) done = done * 10 + (offset[i] - '0');

  if (job_ctx_int(JOB_CTX_FIRE_TIME) / 3000 % 5 == 4) {
    job_set_error(failure, sizeof failure - 1);
    return JOB_FAIL;
  }

  uint32_t end = text(line, "took the orders ");
  end += digits(line + end, done + 1);
  end += text(line + end, " to ");
  end += digits(line + end, done + 10);
  job_log(0, line, end, 0, 0);
  return job_offset_set(offset, digits(offset, done + 10)) < 0 ? JOB_FAIL : JOB_OK;
}
