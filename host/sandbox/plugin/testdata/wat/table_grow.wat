;; Grows its table, which has no maximum, by a million entries; 0 if refused.
(module
  (table $t 1 funcref)
  (memory (export "memory") 1)
  (func (export "job_abi_v1"))
  (func (export "job_execute") (result i32)
    (i32.ne (table.grow $t (ref.null func) (i32.const 1000000)) (i32.const -1))))
