//go:build race

package host_test

// simDefault is how many seeds a run under the race detector does: it is some
// ten times slower.
const simDefault = 48
