//go:build !linux && !darwin && !freebsd

package history

func diskSize(string) int64 { return 0 }
