;; A WASI command that does nothing: neither marker nor imports.
(module
  (memory (export "memory") 1)
  (func (export "_start")))
