//go:build race

package jobconfig

// raced says that the race detector is on, which allocates more.
const raced = true
