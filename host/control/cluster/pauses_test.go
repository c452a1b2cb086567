package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestWhoPaused: who has paused a job is who did it last, and no one if that left no record.
func TestWhoPaused(t *testing.T) {
	t.Parallel()
	item := 1
	disable := history.Change{What: "disable", Job: "a", Who: "ann", Why: "broken disk", Time: time.Unix(1, 0)}
	for name, c := range map[string]struct {
		changes []history.Change // newest first
		want    *Paused
	}{
		"by ann":             {[]history.Change{{What: "trigger", Job: "a", Who: "bob"}, disable}, &Paused{By: "ann", At: time.Unix(1, 0), Why: "broken disk"}},
		"without a reason":   {[]history.Change{{What: "remove", Job: "a", Who: "bob"}, disable}, &Paused{By: "bob"}},
		"refused":            {[]history.Change{{What: "disable", Job: "a", Who: "bob", Error: "no"}, disable}, &Paused{By: "ann", At: time.Unix(1, 0), Why: "broken disk"}},
		"one item":           {[]history.Change{{What: "disable", Job: "a", Who: "bob", Item: &item}}, nil},
		"since then resumed": {[]history.Change{{What: "enable", Job: "a", Who: "bob"}, disable}, nil},
		"nothing known":      {nil, nil},
	} {
		if got := New(Options{}).WhoPaused(&Job{State: engine.JobDisabled}, c.changes); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestPauses: lists of jobs name who has paused one, on whatever host that was, and ask no
// history for it.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newShip("1"), newShip("2")
		f, c := sail(t, one, two)
		one.set(job("a", engine.JobDisabled), job("b", engine.JobReady))
		at := time.Now()
		change := func(what, job, who string, after time.Duration) history.Change {
			return history.Change{What: what, Job: job, Who: who, Why: "because", Time: at.Add(after)}
		}
		var follower follower
		shows := func(job, by string) {
			t.Helper()
			stale()
			refresh(t, c, 0)
			follower.look(c)
			got := ""
			if p := follower.jobs[job].Paused; p != nil {
				got = p.By
			}
			if got != by {
				t.Errorf("%s is paused by %q, want %q", job, got, by)
			}
		}
		shows("a", "")
		two.local.Note(change("disable", "a", "ann", 2), change("disable", "b", "ann", 2), change("disable", "none", "ann", 2)) // two has no job
		shows("a", "ann")
		shows("b", "") // it runs
		for _, j := range c.Changes(Mark{c.epoch, 0}).Jobs {
			if j.Name == "none" {
				t.Error("a job that is nowhere is said to have changed")
			}
		}
		f.self.local.Note(change("disable", "a", "older", 1))
		shows("a", "ann")
		c.Note(change("enable", "a", "bob", 3))
		shows("a", "") // another program has paused it
		c.Note(change("disable", "a", "bob", 4))
		shows("a", "bob")
		one.set(job("a", engine.JobReady))
		shows("a", "")
		one.set(job("a", engine.JobRemoved))
		shows("a", "bob")
		f.lists(one) // who recorded it is gone, and it is known all the same
		shows("a", "bob")
		one.local.Note(change("shutdown", "", "eve", 5))
		shows("a", "bob") // removed jobs are not shut down
		one.set(job("a", engine.JobStopped))
		shows("a", "")
		if p := c.WhoPaused(&Job{State: engine.JobStopped}, []history.Change{change("shutdown", "a", "bob", 4)}); p != nil {
			t.Errorf("its changes say %+v", p)
		}
		one.set(job("a", engine.JobDisabled))
		shows("a", "bob")
		one.local.Note(change("enable", "", "eve", 6)) // and somebody has disabled it again
		shows("a", "")
		c.Note(change("disable", "a", "ann", 7))
		shows("a", "ann")
	})
}

// TestRemember: a host that begins knows the newest changes of its store, and looks through no
// more than some pages.
func TestRemember(t *testing.T) {
	t.Parallel()
	asked := 0
	pages := func(_ context.Context, f history.Filter) (history.Page[history.Change], error) {
		asked++
		if f.Limit != history.MaxLimit || (asked > 1 && f.After != fmt.Sprint(asked-1)) {
			t.Errorf("question %d: %+v", asked, f)
		}
		return history.Page[history.Change]{Next: fmt.Sprint(asked), Records: []history.Change{{What: "disable", Job: fmt.Sprint("job-", asked), Who: "ann", Time: time.Unix(1, 0)}}}, nil
	}
	l := newShip("1").local
	l.Remember(t.Context(), pages)
	if d := l.Delta("", 0); asked != mostRemembered || len(d.Pauses) != mostRemembered {
		t.Errorf("%d questions, %+v", asked, d.Pauses)
	}
	l.Remember(t.Context(), func(context.Context, history.Filter) (history.Page[history.Change], error) {
		return history.Page[history.Change]{}, errors.New("down")
	})
	since := l.Delta("", 0)
	l.Note(history.Change{What: "enable", Job: "job-3", Who: "bob", Time: time.Unix(2, 0)})
	if d := l.Delta(since.Epoch, since.Generation); len(d.Pauses) != 1 || !d.Pauses[0].Over {
		t.Errorf("what is new is %+v", d.Pauses)
	}
	for n := range mostPauses {
		l.Note(history.Change{What: "disable", Job: fmt.Sprint("many-", n), Time: time.Unix(int64(3+n), 0)})
	}
	newest := fmt.Sprint("many-", mostPauses-1)
	if _, there := l.pauses[newest]; len(l.pauses) > mostPauses || !there {
		t.Errorf("%d are remembered, the newest: %t", len(l.pauses), there)
	}
}

// TestPausedBy: who has paused a job is who the registry names on hosts in that state, and else who the
// histories name.
func TestPausedBy(t *testing.T) {
	t.Parallel()
	at := time.Unix(100, 0)
	one := func(state engine.JobState, by string, since time.Duration) part {
		return part{JobStatus: &engine.JobStatus{State: state, Said: &engine.Said{By: by, Why: "why", Since: at.Add(since), Until: at.Add(time.Hour)}}}
	}
	c := New(Options{})
	c.pauses = make(pauses)
	c.pauses.learn(Pause{Paused: Paused{By: "eve", At: at}, Job: "j"}, 1)
	for _, tt := range []struct {
		parts []part
		want  string
	}{
		{[]part{one(engine.JobDisabled, "ann", 1), one(engine.JobDisabled, "bob", 2)}, "bob"},
		{[]part{one(engine.JobDisabled, "ann", 2), one(engine.JobStopped, "bob", 3)}, "ann"},
		{[]part{one(engine.JobDisabled, "", 2)}, "eve"},
		{[]part{{JobStatus: &engine.JobStatus{State: engine.JobDisabled}}}, "eve"},
		{[]part{one(engine.JobDisabled, "ann", 2), {JobStatus: &engine.JobStatus{State: engine.JobReady}}}, ""},
	} {
		j := merge(tt.parts, at)
		j.Name = "j"
		c.noteWho(j)
		got := ""
		if j.Paused != nil {
			got = j.Paused.By
			if got != "eve" && (j.Paused.Why != "why" || !j.Paused.Until.Equal(at.Add(time.Hour))) {
				t.Errorf("found %+v", j.Paused)
			}
		}
		if got != tt.want {
			t.Errorf("paused by %q, expected %q", got, tt.want)
		}
	}
}
