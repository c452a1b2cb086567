package arrivals

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const most = 64

// full are arrivals of which as many go as may, and their names; extra ones wait.
func full(extra int, due func(n int) time.Time) (a *Arrivals[string], names []string, nudged *[]string) {
	nudged = new([]string)
	a = New(most, func(name string) string { return name }, func(name string) { *nudged = append(*nudged, name) })
	for n := range most + extra {
		names = append(names, fmt.Sprintf("job%03d", n))
		a.Enter(names[n], due(n))
	}
	return a, names, nudged
}

// TestOrder: those that wait go in the order in which they are due, and one that does not want
// to any more is not waited for.
func TestOrder(t *testing.T) {
	t.Parallel()
	begin := time.Unix(0, 0)
	a, names, nudged := full(5, func(n int) time.Time { return begin.Add(-time.Duration(n) * time.Minute) })
	if len(a.going) != most || len(*nudged) != 0 {
		t.Fatalf("%d go, nudged: %v", len(a.going), *nudged)
	}
	late := names[most:]
	a.Leave(late[4]) // due first
	for k := range 4 {
		a.Leave(names[k])
		if !a.Enter(late[3-k], begin) {
			t.Fatalf("%s may not go, and it is its turn", late[3-k])
		}
	}
	if want := []string{late[3], late[2], late[1], late[0]}; !slices.Equal(*nudged, want) {
		t.Errorf("nudged: %v, want %v", *nudged, want)
	}
	a.Leave(late[0]) // twice is as good as once
	a.Leave(late[0])
	if len(a.going) != most-1 || len(a.waiting) != 0 || len(a.line) != 0 {
		t.Errorf("%d go, %d wait, %d in the line", len(a.going), len(a.waiting), len(a.line))
	}
}

// TestNames: of those that are due at once the first by its name goes first.
func TestNames(t *testing.T) {
	t.Parallel()
	a, names, nudged := full(3, func(int) time.Time { return time.Time{} })
	for k := range 3 {
		a.Leave(names[k])
	}
	if !slices.Equal(*nudged, names[most:]) {
		t.Errorf("nudged: %v", *nudged)
	}
}

// TestDueAtAnotherTime: one that waits, and is due at another time by now, has its place by
// that.
func TestDueAtAnotherTime(t *testing.T) {
	t.Parallel()
	begin := time.Unix(0, 0)
	a, names, nudged := full(2, func(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) })
	first, second := names[most], names[most+1]
	a.Enter(first, begin.Add(24*time.Hour))
	a.Leave(names[0])
	a.Leave(names[1])
	if want := []string{second, first}; !slices.Equal(*nudged, want) || len(a.line) != 0 {
		t.Errorf("nudged: %v, want %v; %d in the line", *nudged, want, len(a.line))
	}
}

// TestComesAgain has two come again as soon as they have left, each time due before a third: they go before it a few times, and
// not more.
func TestComesAgain(t *testing.T) {
	t.Parallel()
	begin := time.Unix(0, 0)
	a, names, nudged := full(3, func(n int) time.Time { return begin.Add(-time.Duration(n) * time.Minute) })
	waits := names[most]
	goes, other := names[most+2], names[most+1]
	a.Leave(names[0])
	for times := 1; ; times++ {
		a.Leave(goes)
		if slices.Contains(*nudged, waits) {
			if times < patience {
				t.Errorf("they went %d times only before %s", times, waits)
			}
			break
		}
		if times > 2*patience {
			t.Fatalf("they went %d times, and %s still waits", times, waits)
		}
		if a.Enter(goes, begin.Add(-24*time.Hour)) {
			t.Fatalf("%s goes without waiting, and others wait", goes)
		}
		goes, other = other, goes
	}
	for _, name := range names {
		a.Leave(name)
	}
	if len(a.going)+len(a.waiting)+len(a.line)+len(a.went) != 0 {
		t.Errorf("%d go, %d wait, %d in the line, %d are remembered, want none", len(a.going), len(a.waiting), len(a.line), len(a.went))
	}
}

// BenchmarkStart has 10,000 wait, and one after the other go and leave.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		a, names, _ := full(10_000, func(n int) time.Time { return time.Unix(int64(n*7919%10_007), 0) })
		for _, name := range names {
			a.Leave(name)
		}
	}
}
