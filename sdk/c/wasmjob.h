/* Job ABI v1 for C and C++: the functions that a host gives to a job, and what they
   answer. Their meaning is in docs/writing-jobs.md. A function that is not called is not
   imported, so one header serves modules that use nothing of a capability.

   The part between the marks is made from the table of imports:
   go test ./sdk/internal/border -update */
#ifndef WASMJOB_H
#define WASMJOB_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WASMJOB_IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define WASMJOB_EXPORT(name) __attribute__((export_name(name)))

/* imports */

/* Codes: what a function answers instead of a result. */
enum {
  JOB_ERR_INVALID = -1,
  JOB_ERR_NOT_FOUND = -2,
  JOB_ERR_DENIED = -3,
  JOB_ERR_TOO_LARGE = -4,
  JOB_ERR_QUOTA = -5,
  JOB_ERR_UNAVAILABLE = -6,
  JOB_ERR_CONFLICT = -7,
  JOB_ERR_CANCELLED = -8,
  JOB_ERR_UNSUPPORTED = -9,
  JOB_ERR_STATE = -10,
  JOB_ERR_TIMEOUT = -11,
  JOB_ERR_INTERNAL = -12,
  JOB_ERR_AGAIN = -13,
};

/* Statuses: what a job returns. 64 to 255 are failures of its own. */
enum {
  JOB_OK = 0,
  JOB_FAIL = 1,
  JOB_RETRY = 2,
  JOB_CANCELLED = 3,
};

/* Fields of job_ctx_str and job_ctx_int. */
enum {
  JOB_CTX_JOB_NAME = 1,
  JOB_CTX_TASK_ID = 2,
  JOB_CTX_ITEM_PARAMETER = 3,
  JOB_CTX_JOB_PARAMETER = 4,
  JOB_CTX_PLUGIN_CONFIG = 5,
  JOB_CTX_TRACEPARENT = 6,
  JOB_CTX_HOST_INFO = 7,
  JOB_CTX_RUN_ID = 8,
  JOB_CTX_SOURCE = 9,
  JOB_CTX_TOTAL_COUNT = 32,
  JOB_CTX_ITEM = 33,
  JOB_CTX_FIRE_TIME = 34,
  JOB_CTX_PREVIOUS_FIRE = 35,
  JOB_CTX_NEXT_FIRE = 36,
  JOB_CTX_ATTEMPT = 37,
  JOB_CTX_DEADLINE = 38,
  JOB_CTX_FENCE = 39,
  JOB_CTX_FETCH_DATA_COUNT = 40,
};

/* job_v1 */
WASMJOB_IMPORT("job_v1", "ctx_str") int32_t job_ctx_str(uint32_t field, void *buf, uint32_t buf_limit);
WASMJOB_IMPORT("job_v1", "ctx_int") int64_t job_ctx_int(uint32_t field);
WASMJOB_IMPORT("job_v1", "log") void job_log(int32_t level, const char *msg, uint32_t msg_len, const void *kv, uint32_t kv_len);
WASMJOB_IMPORT("job_v1", "log_enabled") int32_t job_log_enabled(int32_t level);
WASMJOB_IMPORT("job_v1", "set_error") void job_set_error(const char *msg, uint32_t msg_len);
WASMJOB_IMPORT("job_v1", "progress") void job_progress(int64_t done, int64_t total);
WASMJOB_IMPORT("job_v1", "metric") int32_t job_metric(int32_t kind, const char *name, uint32_t name_len, int64_t value);
WASMJOB_IMPORT("job_v1", "offset_get") int32_t job_offset_get(void *buf, uint32_t buf_limit);
WASMJOB_IMPORT("job_v1", "offset_set") int32_t job_offset_set(const void *offset, uint32_t offset_len);
WASMJOB_IMPORT("job_v1", "offset_commit") int32_t job_offset_commit(void);
WASMJOB_IMPORT("job_v1", "cancelled") int32_t job_cancelled(void);
WASMJOB_IMPORT("job_v1", "retry_at") int32_t job_retry_at(int64_t at, int32_t flags);

/* job_v1_io */
WASMJOB_IMPORT("job_v1_io", "read") int32_t job_io_read(int32_t handle, void *buf, uint32_t buf_limit);
WASMJOB_IMPORT("job_v1_io", "write") int32_t job_io_write(int32_t handle, const void *data, uint32_t data_len);
WASMJOB_IMPORT("job_v1_io", "finish") int32_t job_io_finish(int32_t handle);
WASMJOB_IMPORT("job_v1_io", "close") int32_t job_io_close(int32_t handle);
WASMJOB_IMPORT("job_v1_io", "wait") int32_t job_io_wait(int32_t timeout_ms);
WASMJOB_IMPORT("job_v1_io", "error") int32_t job_io_error(int32_t handle, void *buf, uint32_t buf_limit);

/* job_v1_http */
WASMJOB_IMPORT("job_v1_http", "open") int32_t job_http_open(const void *head, uint32_t head_len);
WASMJOB_IMPORT("job_v1_http", "status") int32_t job_http_status(int32_t handle);
WASMJOB_IMPORT("job_v1_http", "headers") int32_t job_http_headers(int32_t handle, void *buf, uint32_t buf_limit);

/* job_v1_net */
WASMJOB_IMPORT("job_v1_net", "dial") int32_t job_net_dial(const char *target, uint32_t target_len);

/* job_v1_kv */
WASMJOB_IMPORT("job_v1_kv", "get") int32_t job_kv_get(const char *key, uint32_t key_len, void *buf, uint32_t buf_limit);
WASMJOB_IMPORT("job_v1_kv", "set") int32_t job_kv_set(const char *key, uint32_t key_len, const void *value, uint32_t value_len);
WASMJOB_IMPORT("job_v1_kv", "delete") int32_t job_kv_delete(const char *key, uint32_t key_len);
WASMJOB_IMPORT("job_v1_kv", "list") int32_t job_kv_list(const char *prefix, uint32_t prefix_len, void *buf, uint32_t buf_limit);
WASMJOB_IMPORT("job_v1_kv", "increment") int64_t job_kv_increment(const char *key, uint32_t key_len, int64_t by);

/* job_v1_env */
WASMJOB_IMPORT("job_v1_env", "get") int32_t job_env_get(const char *name, uint32_t name_len, void *buf, uint32_t buf_limit);
WASMJOB_IMPORT("job_v1_env", "secret") int32_t job_env_secret(const char *name, uint32_t name_len, void *buf, uint32_t buf_limit);
/* end */

/* The rest waits. A job in C has one thread, and nothing else to do. All of them return
   what the function of the host does, but never JOB_ERR_AGAIN: JOB_ERR_CANCELLED if the
   host begins to cancel the job while they wait, which it says once. */

/* job_await waits until a call that was answered with JOB_ERR_AGAIN may go on. */
static inline int32_t job_await(int32_t answer) {
  if (answer != JOB_ERR_AGAIN) return answer;
  int32_t ready = job_io_wait(-1);
  return ready < 0 ? ready : JOB_ERR_AGAIN;
}

/* job_read reads up to limit bytes; 0 is the end. */
static inline int32_t job_read(int32_t handle, void *buf, uint32_t limit) {
  int32_t n;
  do n = job_await(job_io_read(handle, buf, limit)); while (n == JOB_ERR_AGAIN);
  return n;
}

/* job_write writes all of the bytes, and returns 0. Of no bytes it waits for a
   connection. */
static inline int32_t job_write(int32_t handle, const void *data, uint32_t len) {
  const char *rest = (const char *)data;
  for (;;) {
    int32_t n = job_await(job_io_write(handle, rest, len));
    if (n == JOB_ERR_AGAIN) continue;
    if (n < 0) return n;
    rest += n;
    len -= (uint32_t)n;
    if (len == 0) return 0;
  }
}

/* job_status waits for a response and returns its status code. */
static inline int32_t job_status(int32_t handle) {
  int32_t n;
  do n = job_await(job_http_status(handle)); while (n == JOB_ERR_AGAIN);
  return n;
}

#ifdef __cplusplus
}
#endif

#endif
