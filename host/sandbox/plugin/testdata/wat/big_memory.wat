;; Begins with 256 MiB, over the default limit.
(module
  (memory (export "memory") 4096)
  (func (export "job_abi_v1"))
  (func (export "job_execute") (result i32) (i32.const 0)))
