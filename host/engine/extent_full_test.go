//go:build !race && !brief

package engine_test

// simDefault is how many seeds a plain run does.
const simDefault = 400

// stormHosts is how many hosts join at once.
const stormHosts = 100

// callStep is how far apart the calls are that go wrong in tests of each call.
const callStep = 1

// crashDefault and pairsDefault are the strides through the operations at which
// hosts die.
const (
	crashDefault = 3
	pairsDefault = 7
)

// faultsDefault is how many seeds of random faults a plain run does.
const faultsDefault = 250

// garbageDefault: of the cases of garbage in the registry every n-th is played.
const garbageDefault = 4

// seedsDefault is how many seeds of random edits a plain run does.
const seedsDefault = 200

// deathJobs is how many jobs the host leads that dies.
const deathJobs = 600
