//go:build !linux

package plugin

func processState() string { return "" }
