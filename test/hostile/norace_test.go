//go:build !race

package hostile

const (
	slower = 1
	raced  = 1
)
