//go:build !linux

package hostile

// limitData does nothing: other systems do not bound what a process takes in this way.
func limitData(uint64) error { return nil }
