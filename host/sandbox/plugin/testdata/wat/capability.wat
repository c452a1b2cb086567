(module
  (import "job_v1_http" "send" (func (param i32 i32 i32 i32 i32) (result i32)))
  (import "job_v1_http" "read" (func (param i32 i32 i32) (result i32)))
  (import "job_v1_kv" "get" (func (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "job_abi_v1"))
  (func (export "job_execute") (result i32) (i32.const 0)))
