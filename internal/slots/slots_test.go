package slots

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// all is a share that bounds nothing.
const all = 100

// line lets items wait for slots, and notes in which order they are given one.
type line struct {
	given []string
	holds map[string]*Hold
}

// wait has the item wait, and returns when it does.
func (l *line) wait(name string, a *Account, instant int64) {
	h := &Hold{Account: a}
	l.holds[name] = h
	go func() {
		if h.Take(0, instant, nil, nil) {
			l.given = append(l.given, name)
		}
	}()
	synctest.Wait()
}

// end gives the item's slot back, and returns when another has it.
func (l *line) end(name string) {
	l.holds[name].End()
	synctest.Wait()
}

func (l *line) check(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(l.given, " "); got != want {
		t.Errorf("slots were given to %s, expected %s", got, want)
	}
}

// A job that has a slot comes after one that has none, whoever waits longer.
func TestSlots_fewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(3)
		a, b := s.Account("", all), s.Account("", all)
		l := line{holds: make(map[string]*Hold)}
		for _, name := range []string{"b1", "b2", "b3"} {
			l.wait(name, b, 1)
		}
		l.wait("a1", a, 2)
		l.wait("b4", b, 1)
		l.wait("a2", a, 3)
		l.end("b1") // a had none
		l.end("a1") // and has none again, though it had the last
		l.check(t, "b1 b2 b3 a1 a2")
		for _, name := range []string{"b2", "b3", "a2", "b4"} {
			l.end(name)
		}
		if s.free != 3 || a.held != 0 || a.places != 0 || b.held != 0 || b.places != 0 || len(s.queue) != 0 {
			t.Errorf("%d slots are free, a has %d and %d places, b %d and %d", s.free, a.held, a.places, b.held, b.places)
		}
	})
}

// Jobs that have the same number of slots take turns, however many items each
// has and however old they are.
func TestSlots_turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a, b := s.Account("", all), s.Account("", all)
		l := line{holds: make(map[string]*Hold)}
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			l.wait(name, a, 1)
		}
		l.wait("b1", b, 2)
		l.wait("b2", b, 2)
		for _, name := range []string{"a1", "b1", "a2", "b2", "a3"} {
			l.end(name)
		}
		l.check(t, "a1 b1 a2 b2 a3 a4")
		l.end("a4")
		l.wait("b3", b, 3)
		l.wait("b4", b, 3)
		l.wait("a5", a, 4)
		l.wait("c1", s.Account("", all), 4) // it was never given one
		l.end("b3")
		l.end("c1")
		l.end("a5")
		l.check(t, "a1 b1 a2 b2 a3 a4 b3 c1 a5 b4")
	})
}

// A group of many jobs and a group of one take turns, and a group whose jobs have slots comes
// after one that has none. A group is forgotten with its last account.
func TestSlots_groups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		many := []*Account{s.Account("many", all), s.Account("many", all), s.Account("many", all)}
		one := s.Account("one", all)
		l := line{holds: make(map[string]*Hold)}
		for i, name := range []string{"m1", "m2", "m3", "m4", "m5"} {
			l.wait(name, many[i%3], 1)
		}
		l.wait("o1", one, 2)
		l.wait("o2", one, 2)
		for _, name := range []string{"m1", "m2", "o1", "m3", "o2", "m4", "m5"} {
			l.end(name)
		}
		l.check(t, "m1 m2 o1 m3 o2 m4 m5")
		if s.free != 2 || len(s.queue) != 0 || len(s.groups) != 2 || one.group.held != 0 || many[0].group.held != 0 {
			t.Errorf("%d slots are free, %d groups wait of %d, which have %d and %d slots", s.free, len(s.queue), len(s.groups), one.group.held, many[0].group.held)
		}
		for _, a := range append(many, one) {
			a.Close()
		}
		if len(s.groups) != 0 {
			t.Errorf("%d groups are kept", len(s.groups))
		}
	})
}

// An item that gives way between two batches keeps its slot for a while, and
// then waits behind the others of its job.
func TestSlots_givesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a := s.Account("", all)
		l := line{holds: make(map[string]*Hold)}
		l.wait("a1", a, 1)
		if l.holds["a1"].Wanted() {
			t.Error("nobody waits, and the slot is wanted")
		}
		l.wait("a2", a, 2)
		h := l.holds["a1"]
		if h.Wanted() {
			t.Error("it was given the slot just now")
		}
		time.Sleep(quantum)
		if !h.Wanted() {
			t.Error("nobody wants the slot")
		}
		go func() {
			if h.Again(3, nil, nil) {
				l.given = append(l.given, "a1")
			}
		}()
		synctest.Wait()
		if h.slot || !h.place || a.places != 2 {
			t.Errorf("slot %v, place %v, %d places taken; expected the place only, of two", h.slot, h.place, a.places)
		}
		l.end("a2")
		l.check(t, "a1 a2 a1")
		l.end("a1")
	})
}

// Who does not wait any more has nothing, also if it was given a slot at the same
// moment.
func TestSlots_stopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a := s.Account("", all)
		first, second := &Hold{Account: a}, &Hold{Account: a}
		if !first.Take(1, 1, nil, nil) {
			t.Fatal("no slot")
		}
		stop := make(chan struct{})
		answers := make(chan bool)
		go func() { answers <- second.Take(1, 1, stop, nil) }()
		synctest.Wait()
		close(stop)
		if <-answers || second.slot || second.place || len(a.waiting) != 0 {
			t.Errorf("it has a slot: %v, a place: %v; %d wait", second.slot, second.place, len(a.waiting))
		}
		for range 100 { // both at once, mostly
			stop := make(chan struct{})
			go func() { answers <- second.Take(1, 1, stop, nil) }()
			synctest.Wait()
			close(stop)
			first.End()
			if got := <-answers; got != second.slot || got != second.place {
				t.Fatalf("it was told %v, and has a slot: %v, a place: %v", got, second.slot, second.place)
			}
			second.End()
			if !first.Take(1, 1, nil, nil) {
				t.Fatal("no slot")
			}
		}
		first.End()
		if s.free != 1 || a.held != 0 || a.places != 0 {
			t.Errorf("%d slots are free, %d held, %d places taken", s.free, a.held, a.places)
		}
	})
}

// An item that waits for a place is in need of one also while another, which has
// a place, waits for its slot: two that have places would take turns for ever.
func TestSlots_crowded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		a := s.Account("", all)
		one, two, third := &Hold{Account: a}, &Hold{Account: a}, &Hold{Account: a}
		const limit = 2
		if !one.Take(limit, 1, nil, nil) {
			t.Fatal("the first item has no slot")
		}
		one.Rest()
		if !two.Take(limit, 1, nil, nil) {
			t.Fatal("the second item has no slot")
		}
		go one.Again(1, nil, nil)
		synctest.Wait()
		if two.Crowded() {
			t.Error("crowded, and nobody waits for a place")
		}
		stop := make(chan struct{})
		go third.Take(limit, 1, stop, nil)
		synctest.Wait()
		if !two.Crowded() {
			t.Error("not crowded while an item waits for a place")
		}
		close(stop)
		two.End()
		synctest.Wait()
		one.End()
	})
}

// A group has at most its share of the slots while the host has jobs of another group,
// and all of them otherwise.
func TestSlots_groupShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(4)
		many := []*Account{s.Account("many", 3), s.Account("many", 2)}
		l := line{holds: make(map[string]*Hold)}
		wait := func(names ...string) {
			for i, name := range names {
				l.wait(name, many[i%2], 1)
			}
		}
		wait("m1", "m2", "m3", "m4", "m5", "m6")
		l.check(t, "m1 m2 m3 m4")
		one := s.Account("one", 3)
		l.end("m1") // three are left, which is the share: the slot stays free
		l.check(t, "m1 m2 m3 m4")
		if s.free != 1 {
			t.Errorf("%d slots are free, expected one for the other group", s.free)
		}
		if !func() bool { time.Sleep(quantum); return l.holds["m2"].Wanted() }() {
			t.Error("an item of the same group waits, and m2 would not give way to it")
		}
		l.wait("o1", one, 2)
		l.end("m2")
		l.check(t, "m1 m2 m3 m4 o1 m5")
		if l.holds["o1"].Wanted() {
			t.Error("o1 would give way to a group that has its share")
		}
		l.end("o1")
		one.Close() // the limit ends
		synctest.Wait()
		l.check(t, "m1 m2 m3 m4 o1 m5 m6")
		three := s.Account("three", 3)
		wait("m7")
		l.end("m3") // three are left
		many = append(many, s.Account("many", 4))
		synctest.Wait() // its share is larger now
		l.check(t, "m1 m2 m3 m4 o1 m5 m6 m7")
		for _, name := range []string{"m4", "m5", "m6", "m7"} {
			l.end(name)
		}
		for _, a := range append(many, three) {
			a.Close()
		}
		if s.free != 4 || len(s.groups) != 0 || len(s.queue) != 0 {
			t.Errorf("%d slots are free, %d groups are kept, %d wait", s.free, len(s.groups), len(s.queue))
		}
	})
}

// TestSlots_priority: a job of a higher priority is given slots first, and one of the lowest is given one now and then.
func TestSlots_priority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		high, low := s.Account("", all), s.Account("", all)
		high.Prioritize(HighestPriority)
		low.Prioritize(LowestPriority)
		l := line{holds: make(map[string]*Hold)}
		for n := range 20 {
			l.wait("low"+strconv.Itoa(n), low, 1)
		}
		for n := range 20 {
			l.wait("high"+strconv.Itoa(n), high, 2)
		}
		for len(l.given) < 40 {
			l.end(l.given[len(l.given)-1])
		}
		l.end(l.given[39])
		last := -1
		for k, name := range l.given {
			if k > 0 && strings.HasPrefix(name, "low") && k < 22 {
				if k-last > inTurn {
					t.Errorf("low was given none from %d to %d", last, k)
				}
				last = k
			}
		}
		if n := strings.Count(strings.Join(l.given[1:21], " "), "high"); n < 17 {
			t.Errorf("of 20 slots high was given %d, expected all but each eighth: %v", n, l.given)
		}
	})
}

// TestSlots_priorityIsWeight: of many slots a job of a lower priority has its part, also while items of a higher one wait.
func TestSlots_priorityIsWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(10)
		high, low := s.Account("", all), s.Account("", all)
		l := line{holds: make(map[string]*Hold)}
		busy := s.Account("", all)
		for n := range 10 {
			l.wait("busy"+strconv.Itoa(n), busy, 1)
		}
		high.Prioritize(HighestPriority)
		low.Prioritize(LowestPriority)
		for n := range 20 {
			l.wait("low"+strconv.Itoa(n), low, 1)
			l.wait("high"+strconv.Itoa(n), high, 1)
		}
		for n := range 10 {
			l.end("busy" + strconv.Itoa(n))
		}
		if high.held < 7 || low.held < 1 {
			t.Errorf("high has %d slots and low %d", high.held, low.held)
		}
		for k := 10; k < len(l.given); k++ {
			l.end(l.given[k])
		}
	})
}

// TestAsk: a caller that does not wait is given a slot in its turn, by the rules of those that wait, and may leave the line.
func TestAsk(t *testing.T) {
	s := New(1)
	first, second := s.Account("a", 1), s.Account("b", 1)
	var got []string
	ask := func(a *Account, name string, instant int64) (*Hold, func()) {
		h := &Hold{Account: a}
		return h, h.Ask(1, instant, func() { got = append(got, name) })
	}
	one, _ := ask(first, "one", 1)
	two, _ := ask(first, "two", 2)
	left, leave := ask(second, "left", 3)
	three, _ := ask(second, "three", 4)
	leave()
	leave() // it is not in line any more
	one.End()
	three.End()
	two.End()
	left.End() // it has nothing
	if want := []string{"one", "three", "two"}; !slices.Equal(got, want) || s.Free() != 1 {
		t.Errorf("slots went to %q, want %q; %d are free", got, want, s.Free())
	}
	if !slices.Equal([]bool{one.Has(), two.Has(), three.Has(), left.Has()}, []bool{false, false, false, false}) {
		t.Error("a slot that was given back is still held")
	}
	first.Close()
	second.Close()
}
