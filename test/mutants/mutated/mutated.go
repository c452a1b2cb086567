// Package mutated switches the mutants of a copied tree. The copy contains all mutants at once,
// and a process of its tests has one of them, or none: the variable MUTANT names its number. So
// the copy is compiled once.
//
// If the variable MUTANTS_REACHED names a file, a process writes down there which mutants it
// came by, one number a line.
package mutated

import (
	"os"
	"slices"
	"strconv"
	"sync"
)

// The variables that a process of tests reads.
const (
	Variable = "MUTANT"
	Reached  = "MUTANTS_REACHED"
)

// The state is the process's: what the compiler has put into the sources has no other place
// to ask.
var (
	on, _ = strconv.Atoi(os.Getenv(Variable))
	file  = open(os.Getenv(Reached))
	seen  sync.Map
)

func open(name string) *os.File {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil // then the test reaches nothing, and is not taken for one that does
	}
	return f
}

// On reports whether this process has the mutant.
func On(mutant int) bool {
	if file != nil {
		if _, known := seen.LoadOrStore(mutant, true); !known {
			_, _ = file.WriteString(strconv.Itoa(mutant) + "\n") // as open
		}
	}
	return mutant == on
}

// Swap returns what the mutant has in place of a value, or the value.
func Swap[T any](mutant int, value, other T) T {
	if On(mutant) {
		return other
	}
	return value
}

// Reversed returns the list, which the mutant has in reverse order.
func Reversed[S ~[]E, E any](mutant int, list S) S {
	if On(mutant) {
		list = slices.Clone(list)
		slices.Reverse(list)
	}
	return list
}
