package due_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/schedule/due"
)

// TestOwedHas compares with a look at each that waits.
func TestOwedHas(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var o due.Owed
		fire := func() tree.Fire {
			f := tree.Fire{Instant: dice.Int64N(8)}
			if dice.IntN(3) == 0 {
				f.Trigger = 1 + dice.Int64N(3)
			}
			return f
		}
		for range dice.IntN(12) {
			o.Put(fire(), func(f tree.Fire) bool { return f.Trigger == 0 || dice.IntN(2) == 0 })
		}
		f := fire()
		if want := slices.ContainsFunc(o.Waiting(), f.Same); o.Has(f) != want {
			t.Fatalf("%v waits among %v: %t, want %t", f, o.Waiting(), !want, want)
		}
	}
}

// TestOwedHas_many: a full queue is asked for each instant of each item; it is not looked through.
func TestOwedHas_many(t *testing.T) {
	var o due.Owed
	for n := range int64(1_000_000) {
		o.Put(tree.Fire{Instant: n}, func(tree.Fire) bool { return true })
	}
	begun := time.Now()
	for n := range int64(100_000) {
		if o.Has(tree.Fire{Instant: 1_000_000 + n}) {
			t.Fatal("what does not wait is said to wait")
		}
		if time.Since(begun) > 20*time.Second { // one after the other takes some minutes, or half an hour
			t.Fatalf("only %d questions in 20 s", n)
		}
	}
}
