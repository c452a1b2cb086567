package e2e_test

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestPagesWaitForFires: what is asked for just before an instant is answered when the fire has
// begun, or 50 ms after the instant; here the registry takes longer than that.
func TestPagesWaitForFires(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("often", "cron: '*/2 * * * * ?'", "shardingTotalCount: 1")
	m, proxy := c.behind()
	m.of("often", 0, kind(event.FireEnded))
	proxy.Delay(150 * time.Millisecond)
	waited := 0
	for range 40 { // a machine that stalls may ask, or begin, too late
		instant := time.Now().Truncate(2 * time.Second).Add(2 * time.Second)
		time.Sleep(time.Until(instant.Add(-5 * time.Millisecond)))
		asked := time.Now()
		m.get("/healthz")
		if answered := time.Now(); asked.Before(instant) && !answered.Before(instant.Add(50*time.Millisecond)) {
			waited++
		}
		if waited == 3 {
			return
		}
	}
	t.Errorf("of 40 requests just before an instant %d waited for its fire, want 3", waited)
}
