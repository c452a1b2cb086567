;; Hands imports i32 values that the compiler leaves in registers with a dirty
;; upper half: wrapped from a global's 64 bits.
(module
  (import "job_v1" "ctx_str" (func $ctx_str (param i32 i32 i32) (result i32)))
  (import "job_v1" "ctx_int" (func $ctx_int (param i32) (result i64)))
  (import "job_v1" "offset_set" (func $offset_set (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $dirt (mut i64) (i64.const 0xffffffff00000000))
  (func $dirty (param i32) (result i32)
    (i32.wrap_i64 (i64.or (global.get $dirt) (i64.extend_i32_u (local.get 0)))))
  (func (export "job_abi_v1"))
  (func (export "job_execute") (result i32)
    (if (i64.ne (call $ctx_int (call $dirty (i32.const 33))) (i64.const 2)) (then (return (i32.const 64))))
    (if (i32.ne (call $ctx_str (call $dirty (i32.const 1)) (call $dirty (i32.const 16)) (call $dirty (i32.const 100))) (i32.const 5))
      (then (return (i32.const 65))))
    (if (i32.ne (call $offset_set (call $dirty (i32.const 16)) (call $dirty (i32.const 5))) (i32.const 0))
      (then (return (i32.const 66))))
    (i32.const 0)))
