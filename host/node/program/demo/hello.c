/* A job of three items. Each greets the city that its parameter names. */
#include "../../../sdk/c/wasmjob.h"

WASMJOB_EXPORT("job_abi_v1") void marker(void) {}

static char line[7 + 64] = "hello, ";

WASMJOB_EXPORT("job_execute") int32_t execute(void) {
  int32_t n = job_ctx_str(JOB_CTX_ITEM_PARAMETER, line + 7, sizeof line - 7);
  if (n < 0 || n > (int32_t)sizeof line - 7) return JOB_FAIL;
  job_log(0, line, 7 + (uint32_t)n, 0, 0);
  return JOB_OK;
}
