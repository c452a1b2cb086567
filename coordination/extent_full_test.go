//go:build !race && !brief

package coordination_test

// modelBrief: all sizes of the model are explored.
const modelBrief = false

// livesDefault is how many seeds of random lives a run does, half as many with Java hosts.
const livesDefault = 400

// crashStep: of the calls of a story every n-th is one that goes wrong.
const crashStep = 1

// extentOfTriggers: at every n-th commit of a division of many items the job is triggered.
const extentOfTriggers = 1
