//go:build race

package plugin

// The race detector makes compiling a Go guest ten times slower than running
// it in the interpreter.
const raceEnabled = true
