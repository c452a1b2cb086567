package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

// declaring is a job of one item with arguments.
func declaring(cron, arguments string) jobconfig.Configuration {
	d := definition("j", cron, 1)
	d.Props["wasm.arguments"] = arguments
	d.Failover = true
	return d
}

func namedArgs(t *testing.T, arguments string) tree.TriggerArgs {
	t.Helper()
	a, err := tree.NewNamedArgs("", arguments)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestArguments: a scheduled run gets the defaults, and a trigger what it gives, as JSON; what does not fit is refused at
// the command.
func TestArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := declaring("0 * * * * ?", `[{"name":"day","type":"date"},{"name":"limit","type":"integer","default":"100","max":"1000"}]`)
		d.JobParameter = `{"day":"2026-01-01"}`
		n := c.start(1, job(d, g.guest(atOnce)))
		time.Sleep(5 * time.Second)
		for _, a := range []tree.TriggerArgs{{}, namedArgs(t, `{"day":"2026-12-24","limit":"7"}`), args(t, "", `{"limit":8}`)} {
			n.triggers(t, "j", a)
			time.Sleep(time.Second)
		}
		for text, want := range map[string]string{`{"limit":1001}`: "arguments.limit: found \"1001\"", `{"lmit":1}`: `arguments: found "lmit", expected one of day, limit`} {
			_, err := n.operator().TriggerWith(t.Context(), "j", namedArgs(t, text))
			var bad *tree.ArgError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}
		time.Sleep(time.Minute)
		want := []string{`0 trigger {"day":"2026-01-01","limit":100}`, `0 trigger {"day":"2026-01-01","limit":8}`, `0 trigger {"day":"2026-12-24","limit":7}`}
		if got := g.of(abi.SourceTrigger); !slices.Equal(got, want) {
			t.Errorf("triggered runs %q, want %q", got, want)
		}
		if got := g.of(abi.SourceSchedule); len(got) != 1 || got[0] != `0 schedule {"day":"2026-01-01","limit":100}` {
			t.Errorf("scheduled runs %q", got)
		}
	})
}

// TestArguments_missing: a trigger that gives no value to an argument without a default is refused, and one of another
// program, such as ElasticJob's console, is dropped with the reason.
func TestArguments_missing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(declaring("", `[{"name":"day","type":"date"}]`), g.guest(atOnce)))
		time.Sleep(time.Second)
		if _, err := n.operator().TriggerWith(t.Context(), "j", tree.TriggerArgs{}); err == nil || !strings.Contains(err.Error(), "arguments.day: is missing") {
			t.Errorf("a plain trigger: %v", err)
		}
		l := tree.NewLayout("test", "j")
		c.commit(registry.Ensure(l.Triggers()), registry.Set(l.Triggers(), nil, registry.AnyVersion), registry.Create(l.Trigger(n.host.Status().Instance), nil))
		time.Sleep(time.Second)
		s := c.list(event.FireSkipped)
		if len(g.of(abi.SourceTrigger)) != 0 || len(s) != 1 || s[0].Cause != event.SkipRefused || !strings.Contains(s[0].Reason, "arguments.day: is missing") {
			t.Errorf("ran %q, skipped %s", g.of(abi.SourceTrigger), lines(s))
		}
		n.triggers(t, "j", namedArgs(t, `{"day":"2026-12-24"}`))
		time.Sleep(time.Second)
		if got := g.of(abi.SourceTrigger); len(got) != 1 || got[0] != `0 trigger {"day":"2026-12-24"}` {
			t.Errorf("ran %q", got)
		}
	})
}

// TestArguments_ofAnotherJob: a job that declares none is given none.
func TestArguments_ofAnotherJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		n := c.start(1, job(definition("j", "", 1), g.guest(atOnce)))
		time.Sleep(time.Second)
		if _, err := n.operator().TriggerWith(t.Context(), "j", namedArgs(t, `{"day":"2026-12-24"}`)); err == nil || !strings.Contains(err.Error(), "the job declares no arguments") {
			t.Error(err)
		}
	})
}

// TestArguments_failover: the host that takes a run over gives it the same arguments.
func TestArguments_failover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		first := func(inv *abi.Invocation) time.Duration {
			if inv.Context.Source == abi.SourceFailover {
				return 0
			}
			return time.Hour
		}
		d := declaring("", `[{"name":"day","type":"date"}]`)
		n := c.start(1, job(d, g.guest(first)))
		time.Sleep(time.Second)
		n.triggers(t, "j", namedArgs(t, `{"day":"2026-12-24"}`))
		time.Sleep(time.Second)
		c.start(2, job(d, g.guest(first)))
		n.kill()
		<-n.done
		time.Sleep(time.Minute)
		if got, want := g.of(abi.SourceTrigger, abi.SourceFailover), []string{`0 failover {"day":"2026-12-24"}`, `0 trigger {"day":"2026-12-24"}`}; !slices.Equal(got, want) {
			t.Errorf("runs %q, want %q", got, want)
		}
	})
}
