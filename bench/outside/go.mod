// A module of its own: pgx is no requirement of the product.
module github.com/wasmjob/wasmjob/bench/outside

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/wasmjob/wasmjob v0.0.0
	github.com/wasmjob/wasmjob/abi v0.2.0
	github.com/wasmjob/wasmjob/sdk v0.2.0
)

require (
	aead.dev/minisign v0.3.0 // indirect
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	github.com/fxamacker/cbor/v2 v2.10.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/landlock-lsm/go-landlock v0.11.2 // indirect
	github.com/tetratelabs/wazero v1.12.0 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/crypto v0.59.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
	golang.org/x/time v0.16.0 // indirect
	kernel.org/pub/linux/libs/security/libcap/psx v1.2.78 // indirect
)

replace github.com/wasmjob/wasmjob => ../..

replace github.com/wasmjob/wasmjob/abi => ../../abi

replace github.com/wasmjob/wasmjob/sdk => ../../sdk
