//go:build !linux && !darwin && !freebsd

package lines

func diskSize(string) int64 { return 0 }
