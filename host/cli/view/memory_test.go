package view

import (
	"fmt"
	"testing"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	m := newMemory[int, string](4)
	m.put("a", 1, "x")
	m.put("a", 1, "y")
	m.put("a", 2, "z")
	m.put("b", 1, "w")
	want := func(n int, job string, key int, value string) {
		t.Helper()
		if got := m.get(job, key); got != value || m.n != n {
			t.Errorf("value %q of %d, want %q of %d", got, m.n, value, n)
		}
	}
	want(3, "a", 1, "y")
	m.drop("a", 2)
	m.drop("a", 2)
	m.drop("c", 2)
	want(2, "a", 2, "")
	m.forget("a")
	m.forget("a")
	want(1, "a", 1, "")
	m.drop("b", 1)
	want(0, "b", 1, "")
	if len(m.jobs) != 0 {
		t.Errorf("jobs %v are kept that have no value", m.jobs)
	}
	for i := range 5 {
		m.put(fmt.Sprint(i), i, "v")
	}
	want(1, "3", 3, "") // the fifth has no room
	want(1, "4", 4, "v")
}
