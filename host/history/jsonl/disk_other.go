//go:build !linux && !darwin && !freebsd

package jsonl

func diskSize(string) int64 { return 0 }
