//go:build brief && !race

package engine_test

// simDefault is how many seeds a brief run does (make test).
const simDefault = 24

// stormHosts is how many hosts join at once.
const stormHosts = 20

// callStep is how far apart the calls are that go wrong in tests of each call.
const callStep = 5

// crashDefault and pairsDefault are the strides through the operations at which
// hosts die.
const (
	crashDefault = 61
	pairsDefault = 29
)

// faultsDefault is how many seeds of random faults a plain run does.
const faultsDefault = 12

// garbageDefault: of the cases of garbage in the registry every n-th is played.
const garbageDefault = 35

// seedsDefault is how many seeds of random edits a plain run does.
const seedsDefault = 20

// deathJobs is how many jobs the host leads that dies.
const deathJobs = 300
