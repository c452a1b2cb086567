package session

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/node/deadman"
)

// fixed is a backend with a session that proves to live once, for a day.
type fixed struct{}

func (fixed) String() string    { return "fixed" }
func (fixed) Shared() bool      { return true }
func (fixed) Servers() []string { return nil }
func (fixed) Denied(error) bool { return false }

func (fixed) Open(Opening) (*Dialer, error) {
	return &Dialer{Close: func() error { return nil }, Dial: func(_ context.Context, renewed func(sent, timeout time.Duration)) (Session, error) {
		renewed(time.Duration(1<<62), 24*time.Hour)
		return still{}, nil
	}}, nil
}

// still is a session of which nothing is asked.
type still struct{ registry.Center }

func (still) About() *report.Session { return nil }
func (still) Close() error           { return nil }

// TestStopped: the timer of a session is off when its guests have ended, before the session is closed, and that of the
// next one is on.
func TestStopped(t *testing.T) {
	t.Parallel()
	g, err := deadman.New(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	dir := t.TempDir()
	record, _, err := deadman.OpenRecord(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := record.Close(deadman.Ended); err != nil {
			t.Error(err)
		}
	}()
	armed := func(want bool) {
		t.Helper()
		nerr := record.Note("h", g)
		text, rerr := os.ReadFile(filepath.Join(dir, "last-host-0.json"))
		var kept struct {
			Due int64 `json:"fenceDueNs"`
		}
		if err := errors.Join(nerr, rerr, json.Unmarshal(text, &kept)); err != nil {
			t.Fatal(err)
		}
		if (kept.Due != 0) != want {
			t.Errorf("the timer is due at %d; want it on: %v", kept.Due, want)
		}
	}
	r, err := Open(fixed{}, "ns", 0, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Fence = func() (*deadman.Fence, func(sent, timeout time.Duration)) {
		f := g.Fence()
		return f, f.Renew
	}
	r.Stopped() // without a session nothing happens
	for range 2 {
		r.first = false // the namespace is not looked at
		s, err := r.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		armed(true)
		r.Stopped()
		armed(false)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		armed(false)
	}
}
