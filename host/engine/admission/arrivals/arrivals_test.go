package arrivals

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

const (
	most = 64
	few  = 8
)

// full are arrivals of which as many go as may, and their names; extra ones wait.
func full(extra int, due func(n int) time.Time) (a *Arrivals[string], names []string, nudged *[]string) {
	nudged = new([]string)
	a = New(most, few, func(name string) string { return name }, func(name string) { *nudged = append(*nudged, name) })
	for n := range most + extra {
		names = append(names, fmt.Sprintf("job%03d", n))
		a.Enter(names[n], Claim{Due: due(n)})
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
		if !a.Enter(late[3-k], Claim{Due: begin}) {
			t.Fatalf("%s may not go, and it is its turn", late[3-k])
		}
	}
	if want := []string{late[3], late[2], late[1], late[0]}; !slices.Equal(*nudged, want) {
		t.Errorf("nudged: %v, want %v", *nudged, want)
	}
	a.Leave(late[0]) // twice is as good as once
	a.Leave(late[0])
	if len(a.going) != most-1 || len(a.waiting) != 0 || len(a.lines[1]) != 0 {
		t.Errorf("%d go, %d wait, %d in the line", len(a.going), len(a.waiting), len(a.lines[1]))
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
	a.Enter(first, Claim{Due: begin.Add(24 * time.Hour)})
	a.Leave(names[0])
	a.Leave(names[1])
	if want := []string{second, first}; !slices.Equal(*nudged, want) || len(a.lines[1]) != 0 {
		t.Errorf("nudged: %v, want %v; %d in the line", *nudged, want, len(a.lines[1]))
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
		if a.Enter(goes, Claim{Due: begin.Add(-24 * time.Hour)}) {
			t.Fatalf("%s goes without waiting, and others wait", goes)
		}
		goes, other = other, goes
	}
	for _, name := range names {
		a.Leave(name)
	}
	if len(a.going)+len(a.waiting)+len(a.lines[1])+len(a.went) != 0 {
		t.Errorf("%d go, %d wait, %d in the line, %d are remembered, want none", len(a.going), len(a.waiting), len(a.lines[1]), len(a.went))
	}
}

// TestUrgent: those that are urgent go before the others, by how soon they are needed, and have places of their own; while there are any,
// few of the others go, and all that may as soon as there are none.
func TestUrgent(t *testing.T) {
	t.Parallel()
	a, names, nudged := full(20, func(int) time.Time { return time.Time{} })
	for n := range 2 { // most places are the others' by now, and none of them waits for that
		if !a.Enter(fmt.Sprintf("urgent%d", n), Claim{Urgent: true, Ahead: n}) {
			t.Fatal("an urgent one waits, and has a place of its own")
		}
	}
	if a.Leave(names[0]); len(*nudged) != 0 {
		t.Errorf("%v may go, and %d others do while there are urgent ones", *nudged, most-1)
	}
	last := names[most+19]
	if a.Hasten(last, Claim{Urgent: true, Ahead: 3}); !slices.Equal(*nudged, []string{last}) {
		t.Errorf("nudged: %v, want %s, which has become urgent", *nudged, last)
	}
	for n := range most - few - 3 {
		a.Enter(fmt.Sprintf("more%02d", n), Claim{Urgent: true, Ahead: 9})
	}
	*nudged = nil
	for _, ahead := range []int{5, 2, 7} {
		if a.Enter(fmt.Sprintf("late%d", ahead), Claim{Urgent: true, Ahead: ahead}) {
			t.Error("more urgent ones go than have places")
		}
	}
	for n := range most - few { // the others' places stay theirs
		if a.Leave(names[1+n]); len(*nudged) != 0 && n < most-few-1 {
			t.Fatalf("%v may go when %d others have left", *nudged, n+1)
		}
	}
	if want := names[most : most+1]; !slices.Equal(*nudged, want) {
		t.Errorf("nudged: %v, want %v: %d others go, and %d may", *nudged, want, few-1, few)
	}
	*nudged = nil
	for range 3 {
		a.Leave("urgent0")
	}
	a.Leave("urgent1")
	a.Leave("more00")
	if want := []string{"late2", "late5", "late7"}; !slices.Equal(*nudged, want) {
		t.Errorf("nudged: %v, want %v", *nudged, want)
	}
	*nudged = nil
	a.Leave(names[most+19])
	for n := range most - few - 3 {
		a.Leave(fmt.Sprintf("more%02d", n))
	}
	a.Leave("late2")
	a.Leave("late5")
	if len(*nudged) != 0 {
		t.Errorf("%v may go before the last urgent one has left", *nudged)
	}
	if a.Leave("late7"); !slices.Equal(*nudged, names[most+1:most+19]) {
		t.Errorf("nudged: %v, want all that wait: no urgent one is left", *nudged)
	}
}

// TestOthersGo: urgent ones come without end, and the others go all the same, a few at a time.
func TestOthersGo(t *testing.T) {
	t.Parallel()
	const others = 2000
	a := New(32, 8, func(name string) string { return name }, func(string) {})
	var line []string
	for n := range 200 {
		urgent := fmt.Sprintf("urgent%03d", n)
		a.Enter(urgent, Claim{Urgent: true})
		line = append(line, urgent)
	}
	waits := make(map[string]bool)
	for n := range others {
		name := fmt.Sprintf("job%04d", n)
		waits[name] = true
		a.Enter(name, Claim{})
	}
	rounds := 0
	for ; len(waits) > 0 && rounds < others; rounds++ { // each that goes leaves in a round; an urgent one comes again at once
		a.mu.Lock()
		var gone []string
		for name := range a.going {
			gone = append(gone, name)
		}
		a.mu.Unlock()
		for _, name := range gone {
			a.Leave(name)
			if delete(waits, name); slices.Contains(line, name) {
				a.Enter(name, Claim{Urgent: true})
			}
		}
	}
	if most := others/8 + 1; rounds > most {
		t.Errorf("the others took %d rounds, and %d still wait; want at most %d rounds", rounds, len(waits), most)
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
