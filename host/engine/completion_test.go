package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestCompletion_stoppedItemsMakeAFireNotOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.start(1, job(definition("j", "0 * * * * ?", 1), sleeper(time.Hour)))
		time.Sleep(61 * time.Second)
		n.stop()
		<-n.done
		ended := c.list(event.FireEnded)
		if len(ended) != 1 || ended[0].Outcome == abi.OutcomeOK {
			t.Errorf("fires that ended: %s, want one, not OK", lines(ended))
		}
	})
}

// TestCompletion_outcomeOfAFire: it is the worst of its items'.
func TestCompletion_outcomeOfAFire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		outcomes := []abi.Outcome{abi.OutcomeOK, abi.OutcomeTrap, abi.OutcomeFail, abi.OutcomeCancelled}
		n := c.start(1, job(definition("j", "0 * * * * ?", len(outcomes)), &guest{digest: "mixed", run: func(_ context.Context, inv *abi.Invocation) abi.Result {
			return abi.Result{Outcome: outcomes[inv.Context.ShardingItem]}
		}}))
		time.Sleep(61 * time.Second)
		ended := c.list(event.FireEnded)
		if len(ended) != 1 || ended[0].Outcome != abi.OutcomeTrap || n.host.Status().Jobs[0].LastFire.Outcome != abi.OutcomeTrap {
			t.Errorf("fires that ended: %s, want one, TRAP", lines(ended))
		}
	})
}

func TestCompletion_movesTheItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 * * * * ?", 2)
		var l lone
		g := l.guest(func(int) time.Duration { return 90 * time.Second })
		c.start(1, job(d, g))
		time.Sleep(65 * time.Second)
		c.start(2, job(d, g))
		time.Sleep(3 * time.Minute) // 4:05; the runs of 1:00 ended at 2:30
		l.check(t, c)
		hosts := make(map[string]bool)
		for _, e := range c.list(event.ItemStarted) {
			if e.Time.Sub(time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC)) > 0 {
				hosts[e.Host] = true
			}
		}
		if len(hosts) != 2 {
			t.Errorf("after the first runs were completed items began on %v, want both hosts\n%s", hosts, c.all())
		}
		if got := len(c.list(event.ItemStarted)); got < 4 {
			t.Errorf("%d starts, want at least 4", got)
		}
	})
}
