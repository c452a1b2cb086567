//go:build unix

package deadman

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEnding: what a record shows, and what it does not.
func TestEnding(t *testing.T) {
	t.Parallel()
	const at = 1000 * time.Second // of both clocks, at the start
	for _, c := range []struct {
		name  string
		state state
		boot  string
		want  Ending
		due   time.Duration
	}{
		{"said so", state{Boot: "a", Ending: Ended, FenceDue: 1}, "b", Ended, 0},
		{"stuck", state{Boot: "a", Ending: Stuck}, "a", Stuck, 0},
		{"another start of the machine", state{Boot: "a", FenceDue: at - time.Second}, "b", MachineRestart, 0},
		{"starts of the machine are not known", state{FenceDue: at - time.Second}, "", Unknown, 0},
		{"no timer", state{Boot: "a"}, "a", Killed, 0},
		{"before the deadline", state{Boot: "a", FenceDue: at + time.Second, BeatDue: at + time.Minute}, "a", Killed, 0},
		{"the fence was due", state{Boot: "a", FenceDue: at - 5*time.Second, BeatDue: at + time.Minute}, "a", DeadMan, 5 * time.Second},
		{"the heartbeat was due", state{Boot: "a", BeatDue: at - 2*time.Second}, "a", DeadMan, 2 * time.Second},
		{"due long ago", state{Boot: "a", FenceDue: at - DueFor - 1}, "a", Unknown, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got, due := c.state.ending(c.boot, at, at); got != c.want || due != c.due {
				t.Errorf("ended %q, due %s before; expected %q, %s", got, due, c.want, c.due)
			}
		})
	}
	said := make(map[string]Ending)
	for _, e := range []Ending{Ended, Stuck, DeadMan, Killed, MachineRestart, Unknown} {
		why := Last{Ending: e}.Why().String()
		if other, twice := said[why]; twice {
			t.Errorf("%q and %q are the same: %s", e, other, why)
		}
		said[why] = e
	}
}

// TestRecord: a start reads what the last one has left; hosts that live do not
// see each other's. It runs alone: a process that another test has just forked
// holds a copy of the file, and its lock, until it runs its program.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	open := func(want Ending, host string) *Record {
		t.Helper()
		r, last, err := OpenRecord(dir)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case want == "" && last != nil:
			t.Fatalf("a first start finds %+v", last)
		case want != "" && (last == nil || last.Ending != want || last.Host != host || (want != Unknown && (last.PID != os.Getpid() || last.Started.IsZero()))):
			t.Fatalf("a start finds %+v, expected %q", last, want)
		}
		return r
	}
	first := open("", "")
	second := open("", "")                                     // beside it
	if err := second.Note("10.0.0.1@-@1-b", nil); err != nil { // it has no timers
		t.Fatal(err)
	}
	if err := second.Close(Stuck); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(Ended); err != nil {
		t.Error(err)
	}
	if err := open(Stuck, "10.0.0.1@-@1-b").Close(Ended); err != nil {
		t.Error(err)
	}

	// The kernel closes the file of a process that it kills.
	g := &Guard{}
	g.fenceDue.Store(int64(now(bootClock) + time.Hour))
	g.beatDue.Store(int64(now(monotonicClock) + time.Hour))
	if err := first.Note("10.0.0.1@-@1-a", g); err != nil {
		t.Fatal(err)
	}
	if err := first.file.Close(); err != nil {
		t.Fatal(err)
	}
	killed := Killed
	if bootID() == "" {
		killed = Unknown
	}
	if err := open(killed, "10.0.0.1@-@1-a").Close(Ended); err != nil {
		t.Error(err)
	}
	if err := open(Ended, "").Close(Ended); err != nil {
		t.Error(err)
	}

	for _, text := range []string{"{", strings.Repeat("x", 2*size)} {
		if err := os.WriteFile(filepath.Join(dir, "last-host-0.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := open(Unknown, "").Close(Ended); err != nil {
			t.Error(err)
		}
	}
}

// TestWhy: a process that was killed before its timer was due leaves the same record as one that the
// timer has ended, if the next start comes later than that. The text says both.
func TestWhy(t *testing.T) {
	t.Parallel()
	why := Last{Ending: DeadMan, Due: 20 * time.Second}.Why()
	for _, want := range []string{"its dead man's timer was due 20s before this start", "killed", "crashed", "frozen", "a guest"} {
		if !strings.Contains(why.String(), want) {
			t.Errorf("%q does not say %q", why, want)
		}
	}
}
