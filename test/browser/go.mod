module github.com/wasmjob/wasmjob/test/browser

go 1.26.0

require (
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.23.0
	github.com/wasmjob/wasmjob v0.0.0-00010101000000-000000000000
	github.com/wasmjob/wasmjob/sdk v0.2.0
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/wasmjob/wasmjob/abi v0.2.0 // indirect
)

replace github.com/wasmjob/wasmjob => ../..

replace github.com/wasmjob/wasmjob/abi => ../../abi

replace github.com/wasmjob/wasmjob/sdk => ../../sdk
