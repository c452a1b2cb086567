;; The smallest SIMPLE job: reads its item and is done.
(module
  (import "job_v1" "ctx_int" (func $ctx_int (param i32) (result i64)))
  (memory (export "memory") 1)
  (func (export "job_abi_v1"))
  (func (export "job_execute") (result i32)
    (drop (call $ctx_int (i32.const 33)))
    (i32.const 0)))
