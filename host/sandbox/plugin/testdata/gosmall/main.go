// Command gosmall is a job in plain Go that needs little: a module of about
// 2 MB. Built with -buildmode=c-shared.
package main

import "time"

//go:wasmexport job_abi_v1
func marker() {}

//go:wasmexport job_execute
func execute() int32 {
	if time.Now().Year() < 2000 {
		return 1
	}
	return 0
}

func main() {}
