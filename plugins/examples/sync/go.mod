module github.com/wasmjob/wasmjob/plugins/examples/sync

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/wasmjob/wasmjob v0.0.0-00010101000000-000000000000
	github.com/wasmjob/wasmjob/abi v0.2.0
	github.com/wasmjob/wasmjob/sdk v0.2.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/text v0.44.0 // indirect
)

replace github.com/wasmjob/wasmjob => ../../..

replace github.com/wasmjob/wasmjob/abi => ../../../abi

replace github.com/wasmjob/wasmjob/sdk => ../../../sdk
