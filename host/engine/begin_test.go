package engine_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

func TestBegin_everyInstantHasAReason(t *testing.T) {
	for _, misfire := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.wrap = func(_ int, l *lease) registry.Center {
				return &slow{lease: l, call: 700 * time.Millisecond, news: 900 * time.Millisecond}
			}
			d := definition("j", "* * * * * ?", 2)
			d.Misfire = misfire
			g := sleeper(0)
			c.start(1, job(d, g))
			time.Sleep(time.Minute) // it has been elected, and has divided
			from := time.Now().Truncate(time.Second)
			b := c.start(2, job(d, g))
			time.Sleep(30 * time.Second)
			b.host.Apply(nil, nil)
			time.Sleep(90 * time.Second)
			to := time.Now().Truncate(time.Second).Add(-60 * time.Second)
			missing(c, from, to, time.Second, 2)
		})
	}
}

func TestBegin_failuresLeaveReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var bad atomic.Int32 // the registrytest.Fault of every call
		c.wrap = func(_ int, l *lease) registry.Center {
			return planned(l, func(string) registrytest.Fault { return registrytest.Fault(bad.Load()) })
		}
		c.start(1, job(definition("j", "*/10 * * * * ?", 2), sleeper(time.Second)))
		for _, fault := range []registrytest.Fault{registrytest.Refused, registrytest.InDoubt, registrytest.LostRequest, registrytest.LostAnswer} {
			time.Sleep(65 * time.Second)
			bad.Store(int32(fault))
			time.Sleep(35 * time.Second)
			bad.Store(int32(registrytest.NoFault))
		}
		time.Sleep(60 * time.Second)
		missing(c, time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC), time.Now().Add(-20*time.Second), 10*time.Second, 2)
	})
}

// When the server is disabled before the host can ask for a begin again, the item
// is not left begun.
func TestBegin_unknownOutcomeIsHandedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		lost := &unheard{is: func(op registry.Op) bool {
			return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, ".wasmjob/j/sharding/0")
		}}
		c.wrap = lost.wrap
		d := definition("j", "0 0 * * * ?", 1)
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Hour + 500*time.Millisecond)
		if !lost.refuses(1) {
			t.Fatal("no answer was lost\n" + c.all())
		}
		c.commit(registry.Set("/test/j/servers/10.0.0.1", []byte("DISABLED"), registry.AnyVersion))
		time.Sleep(time.Minute)
		nodes := c.nodes(registry.Data("/test.wasmjob/j/sharding/0"), registry.Data("/test/j/sharding/0/running"))
		var r tree.Record
		if err := json.Unmarshal(nodes[0].Data, &r); err != nil || r.Open() || nodes[1].Exists {
			t.Errorf("record %s, running %v; want it handed back\n%s", nodes[0].Data, nodes[1].Exists, c.all())
		}
		if len(c.starts(0)) != 0 {
			t.Errorf("it ran\n%s", c.all())
		}
	})
}

// The same with others there: the item that stayed because it was begun moves
// once it is handed back, also if a trigger was consumed in between.
func TestBegin_unknownOutcomeOnADisabledServerMovesTheItem(t *testing.T) {
	for name, trigger := range map[string]bool{"alone": false, "and a trigger": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				var path atomic.Value
				path.Store("-")
				lost := &unheard{is: func(op registry.Op) bool {
					return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, path.Load().(string))
				}}
				c.wrap = lost.wrap
				d := definition("j", "0 0 * * * ?", 2)
				d.Failover = true
				c.start(1, job(d, sleeper(time.Second)))
				c.start(2, job(d, sleeper(time.Second)))
				time.Sleep(10 * time.Minute)
				n := c.nodes(registry.Data("/test/j/leader/election/instance"), registry.Data("/test/j/sharding/0/instance"), registry.Data("/test/j/sharding/1/instance"))
				item := 0
				if string(n[1].Data) == string(n[0].Data) {
					item = 1 // of the host that does not lead
				}
				owner := string(n[1+item].Data)
				ip, _, _ := strings.Cut(owner, "@")
				path.Store(fmt.Sprintf(".wasmjob/j/sharding/%d", item))
				time.Sleep(50*time.Minute + 300*time.Millisecond)
				if !lost.happened() {
					t.Fatal("no answer was lost\n" + c.all())
				}
				c.commit(registry.Create("/test/j/leader/sharding/necessary", nil),
					registry.Set("/test/j/servers/"+ip, []byte("DISABLED"), registry.AnyVersion))
				time.Sleep(300 * time.Millisecond)
				if trigger {
					c.commit(registry.Create("/test/j/trigger/"+owner, nil))
				}
				time.Sleep(3*time.Hour + time.Minute)
				if starts := c.starts(item); len(starts) < 3 {
					t.Errorf("item %d started %q in three hours\n%s", item, starts, c.all())
				}
			})
		})
	}
}

// What became due and could not begin while the only server was disabled is not
// begun hours later: the only start is that of seven o'clock.
func TestBegin_dueWhileDisabledIsNotBegunLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		lost := &unheard{is: func(op registry.Op) bool {
			return op.Kind == registry.OpSet && strings.HasSuffix(op.Path, ".wasmjob/j/sharding/0")
		}}
		c.wrap = lost.wrap
		c.start(1, job(definition("j", "0 0 * * * ?", 1), sleeper(time.Second)))
		time.Sleep(time.Hour + 500*time.Millisecond)
		c.commit(registry.Set("/test/j/servers/10.0.0.1", []byte("DISABLED"), registry.AnyVersion))
		time.Sleep(5*time.Hour + 30*time.Minute)
		c.commit(registry.Set("/test/j/servers/10.0.0.1", []byte("ENABLED"), registry.AnyVersion))
		time.Sleep(time.Hour)
		if got, want := c.starts(0), []string{"00:00 schedule for 00:00"}; !slices.Equal(got, want) {
			t.Errorf("started %q, want %q\n%s", got, want, c.all())
		}
		missing(c, time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC), time.Now().Add(-time.Minute), time.Hour, 1)
	})
}

func TestBegin_staleMarkHoldsAnItemWhileItStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := definition("j", "0 0 * * * ?", 1)
		d.ReconcileIntervalMinutes = 0
		c.start(1, job(d, sleeper(time.Second)))
		time.Sleep(time.Hour - 10*time.Second)
		c.commit(registry.Create("/test/j/sharding/0/running", []byte("10.9.9.9@-@1")))
		time.Sleep(20 * time.Second)
		if got, want := c.starts(0), []string{"00:01 misfire for 00:00"}; !slices.Equal(got, want) {
			t.Errorf("started %q, want %q\n%s", got, want, c.all())
		}
	})
}
