package sdk

// marker says to the host which version of the ABI the module speaks. It is
// looked for and never called.
//
//go:wasmexport job_abi_v1
func marker() {}
