package run

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/event"
)

// steppingOwner has a clock that stands still, and is then set back.
type steppingOwner struct {
	quietOwner
	at []time.Time
}

func (o *steppingOwner) Clock() time.Time {
	at := o.at[0]
	if len(o.at) > 1 {
		o.at = o.at[1:]
	}
	return at
}
func (o *steppingOwner) MayLog(int) bool { return true }

// TestLineTimes: of the lines of a fire none has the time of another, and each a later one than those
// before it: that is by what readers tell them apart and put them in order.
func TestLineTimes(t *testing.T) {
	at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	var whole, kept []time.Time
	o := &steppingOwner{at: []time.Time{at, at, at, at.Add(time.Second), at.Add(-time.Hour)}}
	j := &Job{Owner: o, Name: "j", Log: zap.NewNop(), OnLog: func(g event.GuestLog) { kept = append(kept, g.Time) },
		WholeLog: &event.WholeLog{Add: func(_ context.Context, g event.GuestLog) { whole = append(whole, g.Time) }}}
	f := New(j, Begun{}, map[int]coordination.ItemState{0: {}, 1: {}}, nil)
	for n := range 8 {
		e := f.Runs[n%2]
		e.Log(0, "row", nil)
		if n%4 == 3 {
			e.wholeLog().Add(t.Context(), 0, "row", nil)
		}
	}
	if len(kept) != 8 || len(whole) != 2 {
		t.Fatalf("%d lines, and %d of all", len(kept), len(whole))
	}
	for n := range kept[1:] {
		if !kept[n+1].After(kept[n]) {
			t.Errorf("line %d: %s, after %s", n+1, kept[n+1].Format(time.RFC3339Nano), kept[n].Format(time.RFC3339Nano))
		}
	}
	if kept[0] != at {
		t.Errorf("the first: %s", kept[0])
	}
}
