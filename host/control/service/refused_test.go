package service

import (
	"slices"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestRefusedBy: a file that several hosts refuse for the same reasons is one row with all of them.
func TestRefusedBy(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	refuses := func(name string, since time.Time, more ...engine.Refusal) cluster.Host {
		same := engine.Refusal{File: "bad.yaml", Reasons: []string{"line 1: no"}, Since: since}
		return cluster.Host{Name: name, Report: &admin.Report{Status: engine.Status{Refused: append([]engine.Refusal{same}, more...)}}}
	}
	other := engine.Refusal{File: "bad.yaml", Reasons: []string{"line 2: no"}, Since: at}
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	list := refusedBy(ctx, []cluster.Host{refuses("a", at.Add(time.Minute)), refuses("b", at, other), {Name: "silent"}, refuses("c", at.Add(time.Hour))})
	if len(list) != 2 || !slices.Equal(list[0].Hosts, []string{"a", "b", "c"}) || !list[0].Since.Equal(at) || !slices.Equal(list[1].Hosts, []string{"b"}) {
		t.Errorf("%+v", list)
	}
}
