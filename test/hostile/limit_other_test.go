//go:build !linux

package hostile

// limitMemory does nothing here: a module that takes all memory takes the machine's.
func limitMemory() error { return nil }
