// Package wasm reads the bytes of WebAssembly modules, says what they are, and rewrites
// them such that a host can stop them. It knows the binary format and the guest
// contract, and no runtime: bytes go in, facts or bytes come out.
//
//	file ──Read──► Module ──┬── Info: digest, imports, exports, types of jobs, problems
//	                        └── Meter ──► the module as the runtime gets it
//
// A scan (scan.go) checks every count and limit before anything is allocated for it,
// the facts are held against package abi (inspect.go), and the code is decoded,
// metered (meter.go) and encoded again with all other sections (rewrite.go): the
// runtime gets nothing that was not read here.
package wasm
