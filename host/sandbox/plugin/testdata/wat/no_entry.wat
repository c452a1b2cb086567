(module
  (memory (export "memory") 1)
  (func (export "job_abi_v1")))
