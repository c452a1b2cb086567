//go:build race

package engine_test

// simDefault is how many seeds a run under the race detector does, which is some ten times slower: make sim, which goes
// with it, does the others.
const simDefault = 8

// stormHosts is how many hosts join at once.
const stormHosts = 20

// callStep is how far apart the calls are that go wrong in tests of each call.
const callStep = 5

// crashDefault and pairsDefault are the strides through the operations at which
// hosts die.
const (
	crashDefault = 181
	pairsDefault = 83
)

// faultsDefault is how many seeds of random faults a plain run does.
const faultsDefault = 4

// garbageDefault: of the cases of garbage in the registry every n-th is played.
const garbageDefault = 70

// seedsDefault is how many seeds of random edits a plain run does.
const seedsDefault = 8

// deathJobs is how many jobs the host leads that dies.
const deathJobs = 100
