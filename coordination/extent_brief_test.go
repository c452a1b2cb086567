//go:build race || brief

package coordination_test

// modelBrief: a brief run (-tags brief), and one under the race detector, which is some
// ten times slower, explores two sizes of the model. make sim explores all of them.
const modelBrief = true

// livesDefault is how many seeds of random lives a brief run does, half as many with Java hosts.
const livesDefault = 80

// crashStep: of the calls of a story every n-th is one that goes wrong.
const crashStep = 5

// extentOfTriggers: at every n-th commit of a division of many items the job is triggered.
const extentOfTriggers = 2
