package rate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

var (
	minute = jobconfig.Rate{Key: "api", Per: time.Minute, Max: 2}
	one    = Owner{"a", "j"}
	two    = Owner{"b", "j"}
)

// at is a time of the tests, by the second.
func at(second int64) int64 { return 1_796_000_000_000 + second*1000 }

func places(w Window) (list []string) {
	for _, p := range w.Places {
		list = append(list, fmt.Sprintf("%s %d", p.Host, (p.At-at(0))/1000))
	}
	return list
}

// TestWindow: what may begin now, and when the rest may.
func TestWindow(t *testing.T) {
	t.Parallel()
	var w Window
	if n := w.Free(minute, one, at(0)); n != 2 {
		t.Fatalf("%d may begin, expected 2", n)
	}
	w = w.Begin(minute, one, 2, 5, at(0))
	if got := places(w); !slices.Equal(got, []string{"a 60", "a 60"}) {
		t.Fatalf("places %v: expected as many as may begin in a span, when the first two are over", got)
	}
	if n := w.Free(minute, one, at(59)); n != 0 {
		t.Errorf("%d may begin within the span", n)
	}
	// Another host comes behind those that wait, and is not passed by them afterwards.
	w = w.Begin(minute, two, 0, 1, at(30))
	if got := places(w); !slices.Equal(got, []string{"a 60", "a 60", "b 120"}) {
		t.Fatalf("places %v", got)
	}
	if n := w.Free(minute, one, at(60)); n != 2 {
		t.Errorf("%d may begin at their time, expected 2", n)
	}
	if n := w.Free(minute, two, at(60)); n != 0 {
		t.Errorf("%d of the other host may begin before their time", n)
	}
	w = w.Begin(minute, one, 2, 3, at(60))
	if got := places(w); !slices.Equal(got, []string{"b 120", "a 120", "a 180"}) {
		t.Fatalf("places %v", got)
	}
	// A place that is not used is void after a while, and holds up no other.
	if n := w.Free(minute, Owner{"c", "j"}, at(191)); n != 2 {
		t.Errorf("%d may begin when all places are void, expected 2", n)
	}
}

// TestWindow_late: a host that comes late to its place still keeps the span free behind it.
func TestWindow_late(t *testing.T) {
	t.Parallel()
	r := jobconfig.Rate{Key: "api", Per: time.Minute, Max: 1}
	w := Window{}.Begin(r, one, 1, 1, at(0)).Begin(r, two, 0, 1, at(0))
	w = w.Begin(r, one, 1, 0, at(65)) // at its place of 60
	if n, due := w.Free(r, two, at(120)), w.Due(r, two, at(120)); n != 0 || due != at(125) {
		t.Errorf("%d may begin, the next at %d: expected none before 125", n, (due-at(0))/1000)
	}
}

// TestWindow_places: places for which nothing waits any more are given up.
func TestWindow_places(t *testing.T) {
	t.Parallel()
	w := Window{}.Begin(minute, one, 2, 2, at(0)).Begin(minute, one, 0, 0, at(1))
	if len(w.Places) != 0 || w.Empty(at(59)) || !w.Empty(at(60)) {
		t.Errorf("places %v, empty %v and %v", places(w), w.Empty(at(59)), w.Empty(at(60)))
	}
}

// TestWindow_pause: nothing begins before a pause is over, and a shorter one does not end it.
func TestWindow_pause(t *testing.T) {
	t.Parallel()
	w := Window{}.Pause(at(500), "j").Pause(at(100), "k")
	if w.By != "j" || w.Free(minute, one, at(499)) != 0 || w.Free(minute, one, at(500)) != 2 || w.Empty(at(499)) {
		t.Errorf("paused until %d by %q", w.Paused, w.By)
	}
	w = w.Begin(minute, one, 0, 3, at(0))
	if got := places(w); !slices.Equal(got, []string{"a 500", "a 500"}) {
		t.Errorf("places %v", got)
	}
}

// TestWindow_data: what a node says is read again; what a wrong clock wrote, or is no window, holds up nothing.
func TestWindow_data(t *testing.T) {
	t.Parallel()
	w := Window{}.Begin(minute, one, 2, 5, at(0)).Begin(minute, two, 0, 1, at(3)).Pause(at(400), "j")
	w.Key = "api"
	if got := Parse(w.Data(), at(3)); fmt.Sprint(got) != fmt.Sprint(w) {
		t.Errorf("read %+v, wrote %+v", got, w)
	}
	for _, data := range []string{"", "x", `{"begins":"x"}`, `{"first":9996000000000,"begins":[0,5],"places":[{"at":9996000000000}],"paused":9996000000000}`, `{"first":-5,"begins":[0,-1],"per":-7,"max":-1}`} {
		if w := Parse([]byte(data), at(0)); w.Free(minute, one, at(0)) != 2 {
			t.Errorf("%s holds up a begin: %+v", data, w)
		}
	}
	for range 3000 {
		w = w.Begin(jobconfig.Rate{Key: "api", Per: time.Hour, Max: 1000}, one, 1, 5000, at(500))
	}
	if n := len(w.Data()); n > 120_000 || len(w.Begins) > jobconfig.MaxRate+1 {
		t.Errorf("%d bytes, %d begins", n, len(w.Begins))
	}
}

// TestWindow_never plays hosts that wait, begin late, and die. In no span begin more than may, and each host that
// lives begins again and again.
func TestWindow_never(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 34))
		r := jobconfig.Rate{Key: "k", Per: time.Duration(1+dice.IntN(60)) * time.Second, Max: 1 + dice.IntN(5)}
		w, now := Window{}, at(0)
		var begins []int64
		counts := make(map[Owner]int)
		hosts := []Owner{{"a", "j"}, {"b", "j"}, {"c", "k"}, {"dead", "j"}}
		for range 3000 {
			now += int64(dice.IntN(int(r.Per.Milliseconds() / 4)))
			who := hosts[dice.IntN(len(hosts))]
			if who.Host == "dead" { // it stands in line and never begins
				w = w.Begin(r, who, 0, 1, now)
				continue
			}
			n := w.Free(r, who, now)
			w = Parse(w.Begin(r, who, n, 3, now).Data(), now)
			for range n {
				begins = append(begins, now)
				counts[who]++
			}
		}
		for k := r.Max; k < len(begins); k++ {
			if begins[k]-begins[k-r.Max] < r.Per.Milliseconds() {
				t.Fatalf("seed %d: %d begins within %s", seed, r.Max+1, r.Per)
			}
		}
		for _, who := range hosts[:3] {
			if counts[who] < len(begins)/8 {
				t.Errorf("seed %d, %d in %s: host %s began %d of %d", seed, r.Max, r.Per, who.Host, counts[who], len(begins))
			}
		}
	}
}
