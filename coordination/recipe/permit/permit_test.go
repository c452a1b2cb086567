package permit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
)

// names are nodes of a line: maximum and number.
func names(tickets ...[2]int) (list []string) {
	for _, t := range tickets {
		list = append(list, fmt.Sprintf("%d-%010d", t[0], t[1]))
	}
	return list
}

// TestPlaces: who may run follows from the line alone.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		line  []string
		most  int
		grant []bool
	}{
		{"as many as the maximum", names([2]int{2, 1}, [2]int{2, 5}, [2]int{2, 7}), 2, []bool{true, true, false}},
		{"whatever the order in which the registry names them", names([2]int{2, 7}, [2]int{2, 1}, [2]int{2, 5}), 2, []bool{true, true, false}},
		{"the smallest maximum before", names([2]int{1, 1}, [2]int{5, 2}, [2]int{5, 3}), 5, []bool{true, false, false}},
		{"not one that stands behind", names([2]int{5, 1}, [2]int{5, 2}, [2]int{1, 3}, [2]int{5, 4}), 5, []bool{true, true, false, false}},
		{"the configuration in force", names([2]int{5, 1}, [2]int{5, 2}, [2]int{5, 3}), 2, []bool{true, true, false}},
		{"no ticket", append(names([2]int{1, 2}), "x", "0-0000000001", "-1", "1", "1-y"), 1, []bool{true}},
		{"numbers that began again", []string{"1-2147483647", "1--2147483648", "1--2147483647"}, 2, []bool{true, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			line := Parse("/k", tt.line)
			if !slices.IsSortedFunc(line, Ticket.compare) {
				t.Errorf("the line is not in order: %v", line)
			}
			places := Places(line, line, tt.most)
			var got []bool
			for _, ticket := range line {
				got = append(got, places[ticket.Path].Granted())
			}
			if !slices.Equal(got, tt.grant) {
				t.Errorf("granted %v, expected %v", got, tt.grant)
			}
		})
	}
}

// TestPlaces_watch: of those who wait only the first watches the line, the others the ticket before theirs.
func TestPlaces_watch(t *testing.T) {
	t.Parallel()
	line := Parse("/k", names([2]int{2, 1}, [2]int{2, 2}, [2]int{2, 3}, [2]int{2, 4}, [2]int{1, 5}))
	places := Places(line, line, 2)
	for k, want := range map[int]string{2: "/k", 3: line[2].Path, 4: line[3].Path} {
		if got := places[line[k].Path].Watch("/k").Path; got != want {
			t.Errorf("ticket %d watches %s, expected %s", k, got, want)
		}
	}
	// What its own configuration says, which has changed, does not say who of the others waits.
	line = Parse("/k", names([2]int{5, 1}, [2]int{5, 2}, [2]int{5, 3}, [2]int{2, 4}))
	if got := Places(line, line, 2)[line[3].Path].Watch("/k"); !got.Children {
		t.Errorf("behind one that runs it watches %v, expected the line", got)
	}
	// One whose own maximum is smaller than that of the one before, which runs.
	line = Parse("/k", names([2]int{5, 1}, [2]int{1, 2}))
	if got := Places(line, line, 5)[line[1].Path].Watch("/k"); got.Path != "/k" || !got.Children {
		t.Errorf("it watches %v, expected the line", got)
	}
}

// TestPlaces_neverMore plays lines in which tickets come and go in any order, with maxima that change. Each host knows
// some state of the line that is not older than its own ticket. What runs is never more than the smallest maximum
// of those that run, as far as they know it: a ticket that was granted stays granted, and each that runs had at most so many before it.
func TestPlaces_neverMore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 1))
		var line []Ticket // as the registry has it
		running := make(map[string]bool)
		number := int32(math.MaxInt32 - 20)
		for range 400 {
			switch dice.IntN(3) {
			case 0:
				most := 1 + dice.IntN(4)
				line = append(line, Ticket{fmt.Sprintf("/k/%d-%d", most, number), most, number})
				number++
			case 1: // a host looks, at what was there just now or after something went
				places := Places(line, line, 4)
				for _, t := range line {
					if places[t.Path].Granted() && dice.IntN(2) == 0 {
						running[t.Path] = true
					}
				}
			case 2: // one goes, running or not
				if len(line) > 0 {
					k := dice.IntN(len(line))
					delete(running, line[k].Path)
					line = slices.Delete(slices.Clone(line), k, k+1)
				}
			}
			places := Places(line, line, 4)
			runs := 0
			for _, ticket := range line {
				if !running[ticket.Path] {
					continue
				}
				runs++
				if !places[ticket.Path].Granted() {
					t.Fatalf("seed %d: a ticket that runs is not granted any more", seed)
				}
				if runs > places[ticket.Path].Max {
					t.Fatalf("seed %d: %d run up to a ticket with at most %d", seed, runs, places[ticket.Path].Max)
				}
			}
		}
	}
}

// TestHolder: what a ticket says is read again.
func TestHolder(t *testing.T) {
	t.Parallel()
	seven := 7
	h, ok := ParseHolder(Holder{"a@-@1", "j", &seven}.Data())
	if !ok || h.Host != "a@-@1" || h.Job != "j" || h.Item == nil || *h.Item != 7 {
		t.Errorf("read %+v, %v", h, ok)
	}
	if _, ok := ParseHolder([]byte("x")); ok {
		t.Error("read what is no holder")
	}
}

// TestReturn: tickets go, also if one is gone already or is named twice: one that is to be returned may be found once more by
// who looks for what a commit of unknown outcome has made.
func TestReturn(t *testing.T) {
	t.Parallel()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	r, err := server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const key = "/limits/k"
	made, err := Take(t.Context(), r, Holder{Host: "h", Job: "j"}, Draw{Key: key, Count: 3, Max: 2})
	if err != nil || len(made[key]) != 3 {
		t.Fatalf("made %v, %v", made, err)
	}
	gone, twice, once := made[key][0].Path, made[key][1].Path, made[key][2].Path
	if err := Return(t.Context(), r, gone); err != nil {
		t.Fatal(err)
	}
	if err := Return(t.Context(), r, twice, gone, once, twice); err != nil {
		t.Error(err)
	}
	nodes, err := r.Read(t.Context(), registry.Children(key))
	if err != nil || len(nodes[0].Names) > 0 {
		t.Errorf("left: %v, %v", nodes, err)
	}
}
