//go:build !race

package host_test

// simDefault is how many seeds a plain run does.
const simDefault = 1000

// callStep is how far apart the calls are that go wrong in tests of each call.
const callStep = 1
