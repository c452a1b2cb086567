package engine

import (
	"maps"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// TestChains: which links behind a job of which a fire goes on are needed soon, and how soon, while jobs come, go and change what they
// come after.
func TestChains(t *testing.T) {
	t.Parallel()
	c := newChains()
	after := func(job string, before ...string) {
		var list []jobconfig.After
		for _, b := range before {
			list = append(list, jobconfig.After{Job: b})
		}
		c.set(job, list)
	}
	expect := func(job string, links int) {
		t.Helper()
		n, soon := c.ahead(job)
		if (links >= 0) != soon || (soon && n != links) {
			t.Errorf("%s: %d links, soon %v; want %d (-1: not soon)", job, n, soon, links)
		}
	}
	after("a")
	after("b", "a")
	after("c", "b")
	after("d", "c", "a")
	expect("d", -1)
	c.note("b", true)
	expect("a", -1)
	expect("b", 0)
	expect("d", 2)
	if got, want := c.behind("a"), map[string]int{"a": 0, "b": 1, "c": 2, "d": 1}; !maps.Equal(got, want) {
		t.Errorf("behind a: %v, want %v", got, want)
	}
	after("c", "a") // it comes after b no more
	expect("c", -1)
	expect("d", -1)
	c.note("a", true)
	expect("c", 1)
	c.forget("a")
	expect("c", -1)
	c.note("b", false)
	expect("b", -1)
	if got, want := c.behind("b"), map[string]int{"b": 0}; !maps.Equal(got, want) {
		t.Errorf("behind b: %v, want %v", got, want)
	}

	last := "link0"
	after(last)
	c.note(last, true)
	for n := range lookAhead + 1 { // in a circle, as files may have it
		next := "link" + string(rune('a'+n))
		after(next, last)
		last = next
	}
	after("link0", last)
	expect(last, -1)
	expect("linka", 1)
	if got := c.behind("link0"); got[last] != 0 || len(got) != lookAhead+1 {
		t.Errorf("%d links behind are needed soon, want %d", len(got)-1, lookAhead)
	}
}
