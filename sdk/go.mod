module github.com/wasmjob/wasmjob/sdk

go 1.26.0

require (
	github.com/tetratelabs/wazero v1.12.0
	github.com/wasmjob/wasmjob/abi v0.2.0
)

require golang.org/x/sys v0.50.0 // indirect
