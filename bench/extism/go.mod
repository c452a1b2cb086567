// A module of its own: Extism's SDK is no requirement of the product.
module github.com/wasmjob/wasmjob/bench/extism

go 1.26.0

require (
	github.com/extism/go-sdk v1.7.1
	github.com/tetratelabs/wazero v1.12.0
	github.com/wasmjob/wasmjob v0.0.0
	github.com/wasmjob/wasmjob/abi v0.2.0
)

require (
	aead.dev/minisign v0.3.0 // indirect
	github.com/dylibso/observe-sdk/go v0.0.0-20240819160327-2d926c5d788a // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/gobwas/glob v0.2.3 // indirect
	github.com/ianlancetaylor/demangle v0.0.0-20240805132620-81f5be970eca // indirect
	github.com/tetratelabs/wabin v0.0.0-20230304001439-f6f874872834 // indirect
	go.opentelemetry.io/proto/otlp v1.3.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/wasmjob/wasmjob => ../..

replace github.com/wasmjob/wasmjob/abi => ../../abi

replace github.com/wasmjob/wasmjob/sdk => ../../sdk
