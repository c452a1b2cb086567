module github.com/wasmjob/wasmjob/abi

go 1.26.0
