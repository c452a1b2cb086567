package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestRefusedBy: a file that several hosts refuse for the same reasons is one row with all of them.
func TestRefusedBy(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	refuses := func(name string, since time.Time, more ...engine.Refusal) cluster.Host {
		same := engine.Refusal{File: "bad.yaml", Reasons: []string{"line 1: no"}, Since: since}
		return cluster.Host{Name: name, Report: &report.Report{Status: engine.Status{Refused: append([]engine.Refusal{same}, more...)}}}
	}
	other := engine.Refusal{File: "bad.yaml", Reasons: []string{"line 2: no"}, Since: at}
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	list := refusedBy(ctx, []cluster.Host{refuses("a", at.Add(time.Minute)), refuses("b", at, other), {Name: "silent"}, refuses("c", at.Add(time.Hour))})
	if len(list) != 2 || !slices.Equal(list[0].Hosts, []string{"a", "b", "c"}) || !list[0].Since.Equal(at) || !slices.Equal(list[1].Hosts, []string{"b"}) {
		t.Errorf("%+v", list)
	}
}

// changes keeps the records of changes.
type changes struct {
	history.Store
	list []history.Change
}

func (c *changes) AddChange(change history.Change) { c.list = append(c.list, change) }

// TestRefusalsAreFew: of a storm of changes that a user may not make, the log and the history have
// about 10 a minute, and count the rest; those of other users, and of nobody, are apart.
func TestRefusalsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.InfoLevel)
		store := &changes{}
		s := New(Options{Logger: zap.New(core), Store: store})
		as := func(name string) context.Context {
			return auth.With(t.Context(), auth.Principal{Name: name, Method: auth.ByPassword})
		}
		refuse := func(ctx context.Context) {
			no := errors.New("you may not")
			if err := s.begin(ctx, &history.Change{What: "trigger", Job: strings.Repeat("x", 250)}, no); !errors.Is(err, no) {
				t.Errorf("the refusal is %v", err)
			}
		}
		for range 6000 { // ten minutes
			refuse(as("ann"))
			time.Sleep(100 * time.Millisecond)
		}
		lines := seen.TakeAll()
		if len(lines) < 100 || len(lines) > 110 || len(store.list) != len(lines) {
			t.Errorf("%d lines and %d records of a storm of ten minutes, want about 100 of both", len(lines), len(store.list))
		}
		counted := 0
		for _, line := range lines {
			left, _ := line.ContextMap()["moreSinceLast"].(int64)
			counted += 1 + int(left)
		}
		if counted < 5900 || !strings.Contains(store.list[len(lines)-1].Error, "more were refused since the last record") {
			t.Errorf("%d of 6000 are in the log or counted there; the last record: %s", counted, store.list[len(lines)-1].Error)
		}
		refuse(as("bob"))
		refuse(t.Context())
		if n := len(seen.TakeAll()); n != 2 {
			t.Errorf("%d lines of somebody else and of nobody, want 2", n)
		}
		if last := store.list[len(store.list)-1]; len(store.list) != len(lines)+1 || !strings.Contains(last.Who, "bob") {
			t.Errorf("the last record: %+v; want bob's, and none of nobody", last)
		}
	})
}
