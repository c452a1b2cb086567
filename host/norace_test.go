//go:build !race

package host_test

// simDefault is how many seeds a plain run does.
const simDefault = 1000
