;; All four listeners: "before" fails, the once ones answer codes that they got.
(module
  (import "job_v1" "ctx_int" (func $ctx_int (param i32) (result i64)))
  (import "job_v1" "ctx_str" (func $ctx_str (param i32 i32 i32) (result i32)))
  (import "job_v1" "offset_get" (func $offset_get (param i32 i32) (result i32)))
  (import "job_v1" "offset_set" (func $offset_set (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func $count (global.set $calls (i32.add (global.get $calls) (i32.const 1))))
  (func (export "job_abi_v1"))
  (func (export "job_execute") (result i32) (call $count) (i32.add (i32.const 63) (global.get $calls)))
  (func (export "job_before_executed") (result i32) (call $count) (i32.const 1))
  (func (export "job_after_executed") (result i32)
    (call $count) (i32.add (i32.const 63) (global.get $calls)))
  (func (export "job_before_executed_at_last_started") (result i32)
    (i32.or
      (i64.ne (call $ctx_int (i32.const 33)) (i64.const -2))
      (i32.ne (call $ctx_str (i32.const 3) (i32.const 0) (i32.const 0)) (i32.const -2))))
  (func (export "job_after_executed_at_last_completed") (result i32)
    (i32.or
      (i32.ne (call $offset_get (i32.const 0) (i32.const 0)) (i32.const -10))
      (i32.ne (call $offset_set (i32.const 0) (i32.const 1)) (i32.const -10)))))
