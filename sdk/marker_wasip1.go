package sdk

// marker says to the host which version of the ABI the module speaks. It is
// looked for and never called.
//
//lint:ignore U1000 the export is what matters
//go:wasmexport job_abi_v1
func marker() {}
