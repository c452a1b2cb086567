package engine_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestDisabled_instantsMeanwhileHaveNoCatchUp: what came due while a job or an item was
// disabled does not run after it was enabled, whatever becomes of its host then.
//
// It kills the mutant "catch-up of what came due while disabled".
func TestDisabled_instantsMeanwhileHaveNoCatchUp(t *testing.T) {
	item := func(s *disabling, enable bool) {
		if enable {
			s.do(s.operator().EnableItem(t.Context(), "j", 1))
		} else {
			s.do(s.operator().DisableItem(t.Context(), "j", 1))
		}
	}
	byHand := func(s *disabling, enable bool) { // as ElasticJob's console does
		if enable {
			s.commit(registry.Delete("/test/j/sharding/1/disabled", registry.AnyVersion))
		} else {
			s.commit(registry.Create("/test/j/sharding/1/disabled", nil))
		}
	}
	whole := func(s *disabling, enable bool) {
		if enable {
			s.do(s.operator().Enable(t.Context(), "j"))
		} else {
			s.do(s.operator().Disable(t.Context(), "j"))
		}
	}
	stops := func(s *disabling) { s.stop(s.owner(1)) }
	for name, tt := range map[string]struct {
		hosts      int
		takes      time.Duration // a run
		set        func(s *disabling, enable bool)
		meanwhile  func(s *disabling)
		afterwards func(s *disabling)
	}{
		"an item, and its host stops":              {hosts: 2, set: item, afterwards: stops},
		"an item by hand, and its host stops":      {hosts: 2, set: byHand, afterwards: stops},
		"an item, and its host crashes":            {hosts: 2, set: item, afterwards: func(s *disabling) { s.crash(s.owner(1)) }},
		"an item, and it moves":                    {hosts: 2, set: item, afterwards: func(s *disabling) { s.do(s.operator().DisableServer(t.Context(), "j", s.owner(1))) }},
		"an item, and its only host starts again":  {hosts: 1, set: item, afterwards: func(s *disabling) { s.again(s.stop(s.owner(1))) }},
		"an item that ran on, and its host stops":  {hosts: 2, takes: 100 * time.Second, set: item, afterwards: stops},
		"an item that moved meanwhile":             {hosts: 2, set: item, meanwhile: stops, afterwards: func(s *disabling) { s.again("10.0.0.1", "10.0.0.2"); time.Sleep(time.Second); s.stop(s.owner(1)) }},
		"a job, and a host stops":                  {hosts: 2, set: whole, afterwards: stops},
		"a job, and a host crashes":                {hosts: 2, set: whole, afterwards: func(s *disabling) { s.crash(s.owner(1)) }},
		"a job, and a host starts again":           {hosts: 2, set: whole, afterwards: func(s *disabling) { s.again(s.stop(s.owner(1))) }},
		"a job, and its only host starts again":    {hosts: 1, set: whole, afterwards: func(s *disabling) { s.again(s.stop(s.owner(1))) }},
		"a job that ran on, and a host stops":      {hosts: 2, takes: 100 * time.Second, set: whole, afterwards: stops},
		"a job, and a host is away when it is set": {hosts: 2, set: whole, meanwhile: stops, afterwards: func(s *disabling) { s.again(s.stop(s.owner(1))) }},
		"an item, enabled while no host runs":      {hosts: 1, set: item, meanwhile: stops, afterwards: func(s *disabling) { s.again("10.0.0.1") }},
		"a job, enabled while no host runs":        {hosts: 1, set: whole, meanwhile: stops, afterwards: func(s *disabling) { s.again("10.0.0.1") }},
		"a job, enabled for one server alone": {hosts: 2, set: func(s *disabling, enable bool) {
			if !enable {
				whole(s, false)
				return
			}
			s.do(s.operator().EnableServer(t.Context(), "j", "10.0.0.1"))
		}, meanwhile: func(s *disabling) { s.stop("10.0.0.1") }, afterwards: func(s *disabling) {
			s.again("10.0.0.1")
			time.Sleep(time.Second)
			s.do(s.operator().Enable(t.Context(), "j"))
		}},
		"a job by hand, and a host crashes": {hosts: 2, set: func(s *disabling, enable bool) {
			for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
				s.commit(registry.Set("/test/j/servers/"+ip, []byte(map[bool]string{true: "ENABLED", false: "DISABLED"}[enable]), registry.AnyVersion))
			}
		}, afterwards: func(s *disabling) { s.crash("10.0.0.1"); s.crash("10.0.0.2"); s.again("10.0.0.3") }},
	} {
		check := func(t *testing.T, props map[string]string) {
			synctest.Test(t, func(t *testing.T) {
				s := &disabling{cluster: newCluster(t), takes: max(tt.takes, time.Second), props: props}
				for n := range tt.hosts {
					s.again(fmt.Sprintf("10.0.0.%d", n+1))
				}
				time.Sleep(90 * time.Second)
				tt.set(s, false)
				time.Sleep(75 * time.Second) // the instant 00:02:00 passes
				if tt.meanwhile != nil {
					tt.meanwhile(s)
				}
				time.Sleep(30 * time.Second) // the instant 00:03:00 passes
				tt.set(s, true)
				time.Sleep(time.Second)
				tt.afterwards(s)
				time.Sleep(2 * time.Minute)
				var ran []string
				for _, start := range s.starts(1) {
					if strings.HasSuffix(start, " for 02:00") || strings.HasSuffix(start, " for 03:00") {
						ran = append(ran, start)
					}
				}
				missing(s.cluster, time.Now().Truncate(time.Hour).Add(time.Minute), time.Now().Truncate(time.Hour).Add(4*time.Minute), time.Minute, 2)
				if len(ran) > 0 {
					t.Errorf("item 1 ran for instants at which it was disabled: %q\n%s", ran, s.all())
				}
				if starts := s.starts(1); !slices.ContainsFunc(starts, func(start string) bool { return strings.HasSuffix(start, "for 04:00") }) {
					t.Errorf("item 1 did not run after it was enabled: %q\n%s", starts, s.all())
				}
			})
		}
		t.Run(name, func(t *testing.T) { check(t, nil) })
		t.Run(name+"; each instant runs for itself", func(t *testing.T) {
			check(t, map[string]string{"wasm.overlap": "queue_all", "wasm.catchUp": "all"})
		})
	}
}

// TestDisabled_instantsAfterwardsHaveTheirCatchUp: what comes due after a job was enabled
// is missed if no host is there, and runs.
func TestDisabled_instantsAfterwardsHaveTheirCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &disabling{cluster: newCluster(t), takes: time.Second}
		s.again("10.0.0.1")
		time.Sleep(90 * time.Second)
		s.do(s.operator().Disable(t.Context(), "j"))
		time.Sleep(60 * time.Second)
		s.do(s.operator().Enable(t.Context(), "j"))
		time.Sleep(20 * time.Second)
		s.stop("10.0.0.1")
		time.Sleep(30 * time.Second)
		s.again("10.0.0.1")
		time.Sleep(time.Minute)
		for item := range 2 {
			if got, want := s.starts(item), []string{"01:00 schedule for 01:00", "03:20 catch-up for 03:00", "04:00 schedule for 04:00"}; !slices.Equal(got, want) {
				t.Errorf("item %d started %q, expected %q\n%s", item, got, want, s.all())
			}
		}
	})
}

// TestDisabled_aServersItemsAreCaughtUpElsewhere: an instant that came when a server had
// been disabled, before others got its items, runs there.
func TestDisabled_aServersItemsAreCaughtUpElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &disabling{cluster: newCluster(t), takes: time.Second}
		s.again("10.0.0.1")
		s.again("10.0.0.2")
		time.Sleep(2*time.Minute - time.Millisecond)
		s.do(s.operator().DisableServer(t.Context(), "j", s.owner(1)))
		time.Sleep(30 * time.Second)
		ran := s.starts(1)
		if len(ran) != 2 || !strings.HasSuffix(ran[1], " for 02:00") {
			t.Errorf("item 1 started %q, expected it for 01:00 and 02:00\n%s", ran, s.all())
		}
	})
}

// TestDisabled_costsNothing: a fire of a job asks the registry for no more when items of it, or a server, are
// disabled.
func TestDisabled_costsNothing(t *testing.T) {
	const items, hosts = 1000, 2
	cost := func(t *testing.T, disable func(s *disabling)) (commits, reads int64) {
		synctest.Test(t, func(t *testing.T) {
			s := &disabling{cluster: newCluster(t), items: items} // that end at once
			var count counts
			s.wrap = func(_ int, l *lease) registry.Center { return &countedSession{l, &count} }
			for n := range hosts {
				s.again(fmt.Sprintf("10.0.0.%d", n+1))
			}
			time.Sleep(90 * time.Second)
			disable(s)
			time.Sleep(3 * time.Minute) // its hosts have heard of it
			commits, reads = count.commits.Load(), count.reads.Load()
			time.Sleep(5 * time.Minute)
			commits, reads = count.commits.Load()-commits, count.reads.Load()-reads
			missing(s.cluster, time.Now().Truncate(time.Hour).Add(time.Minute), time.Now().Truncate(time.Hour).Add(9*time.Minute), time.Minute, items)
		})
		return commits, reads
	}
	commits, reads := cost(t, func(*disabling) {})
	mark := func(s *disabling, data string) {
		var ops []registry.Op
		for i := 1; i < items; i++ {
			ops = append(ops, registry.Create(fmt.Sprintf("/test/j/sharding/%d/disabled", i), []byte(data)))
		}
		s.commit(ops...)
	}
	for what, disable := range map[string]func(s *disabling){
		"999 items":                    func(s *disabling) { mark(s, string(tree.Word{By: "user alice"}.Mark())) },
		"999 items by another program": func(s *disabling) { mark(s, "") },
		"an item":                      func(s *disabling) { s.do(s.operator().DisableItem(s.t.Context(), "j", 7)) },
		"a server":                     func(s *disabling) { s.do(s.operator().DisableServer(s.t.Context(), "j", "10.0.0.1")) },
		"all servers":                  func(s *disabling) { s.do(s.operator().Disable(s.t.Context(), "j")) },
		"999 items and a server": func(s *disabling) {
			mark(s, "")
			s.do(s.operator().DisableServer(s.t.Context(), "j", "10.0.0.1"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			c, r := cost(t, disable)
			t.Logf("five fires: %d commits, %d nodes read; with none disabled %d, %d", c, r, commits, reads)
			if c > commits || r > reads {
				t.Errorf("five fires cost %d commits and %d nodes read, and %d and %d with none disabled", c, r, commits, reads)
			}
		})
	}
}

// counts are what sessions ask of the registry.
type counts struct{ commits, reads atomic.Int64 }

type countedSession struct {
	*lease
	counts *counts
}

func (s *countedSession) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	s.counts.commits.Add(1)
	return s.lease.Commit(ctx, ops...)
}

func (s *countedSession) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	s.counts.reads.Add(int64(len(q)))
	return s.lease.Read(ctx, q...)
}

func (s *countedSession) Watch(ctx context.Context, q ...registry.Query) (<-chan registry.Snapshot, error) {
	s.counts.reads.Add(int64(len(q)))
	return s.lease.Watch(ctx, q...)
}

// TestDisabled_moreThanAreWatched: of very many items that are disabled, those that are
// enabled begin again before long.
func TestDisabled_moreThanAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items = 2500
		s := &disabling{cluster: newCluster(t), takes: time.Millisecond, items: items}
		s.again("10.0.0.1")
		time.Sleep(90 * time.Second)
		for some := range slices.Chunk(numbers(items), 500) {
			var ops []registry.Op
			for _, i := range some {
				ops = append(ops, registry.Create(fmt.Sprintf("/test/j/sharding/%d/disabled", i), nil))
			}
			s.commit(ops...)
		}
		time.Sleep(3 * time.Minute)
		for _, i := range []int{3, 1700, 2499} {
			s.do(s.operator().EnableItem(t.Context(), "j", i))
		}
		time.Sleep(5 * time.Minute)
		for _, i := range []int{3, 4, 1700, 2499} {
			if starts := s.starts(i); len(starts) > 1 != (i != 4) {
				t.Errorf("item %d started %q", i, starts)
			}
		}
	})
}

func numbers(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestDisabled_until: what is disabled until a time runs again from then on by itself: the instant at
// that time, and no earlier one.
func TestDisabled_until(t *testing.T) {
	item := func(s *disabling, until time.Time) { s.do(s.operator().Until(until).DisableItem(t.Context(), "j", 1)) }
	whole := func(s *disabling, until time.Time) { s.do(s.operator().Until(until).Disable(t.Context(), "j")) }
	for name, tt := range map[string]struct {
		set       func(s *disabling, until time.Time)
		meanwhile func(s *disabling)
		clocks    []time.Duration // of the hosts; 0 is right
		misfire   bool
		want      []string // instants for which item 1 runs; nil is 01, 04, 05, 06
	}{
		"an item":                     {set: item, misfire: true},
		"an item, misfire off":        {set: item},
		"a job":                       {set: whole, misfire: true},
		"a job, misfire off":          {set: whole},
		"clocks that are ahead":       {set: whole, misfire: true, clocks: []time.Duration{3 * time.Second, 2 * time.Second}},
		"clocks that are behind":      {set: whole, misfire: true, clocks: []time.Duration{-3 * time.Second, -time.Second}},
		"clocks that differ":          {set: whole, clocks: []time.Duration{2 * time.Second, -2 * time.Second}},
		"an item and clocks ahead":    {set: item, clocks: []time.Duration{3 * time.Second, 3 * time.Second}},
		"an item and clocks behind":   {set: item, clocks: []time.Duration{-3 * time.Second, -3 * time.Second}},
		"a server that comes later":   {set: whole, misfire: true, meanwhile: func(s *disabling) { s.again("10.0.0.3") }},
		"the hosts are other ones":    {set: whole, misfire: true, meanwhile: func(s *disabling) { s.crash("10.0.0.1"); s.crash("10.0.0.2"); s.again("10.0.0.3") }},
		"an item, and it moves":       {set: item, misfire: true, meanwhile: func(s *disabling) { s.stop(s.owner(1)) }},
		"an item, and its host dies":  {set: item, misfire: true, meanwhile: func(s *disabling) { s.crash(s.owner(1)) }},
		"it is enabled before":        {set: whole, misfire: true, meanwhile: func(s *disabling) { s.do(s.operator().Enable(t.Context(), "j")) }, want: []string{"01", "03", "04", "05", "06"}},
		"it is said anew, for longer": {set: whole, misfire: true, meanwhile: func(s *disabling) { whole(s, time.Now().Add(3*time.Minute)) }, want: []string{"01", "06"}},
		"it is said anew, for ever":   {set: whole, misfire: true, meanwhile: func(s *disabling) { whole(s, time.Time{}) }, want: []string{"01"}},
		"an item is, for longer":      {set: item, misfire: true, meanwhile: func(s *disabling) { item(s, time.Now().Add(3*time.Minute)) }, want: []string{"01", "06"}},
		"an item, by another program": {set: item, misfire: true, meanwhile: func(s *disabling) { s.commit(registry.Delete("/test/j/sharding/1/disabled", registry.AnyVersion)) }, want: []string{"01", "03", "04", "05", "06"}},
		"a server, that differs": {set: whole, misfire: true, meanwhile: func(s *disabling) {
			s.do(s.operator().DisableServer(t.Context(), "j", "10.0.0.1"))
			s.stop("10.0.0.2")
		}, want: []string{"01"}},
		"no host is there when it is over": {set: whole, misfire: true, meanwhile: func(s *disabling) {
			s.stop("10.0.0.1")
			s.stop("10.0.0.2")
			time.Sleep(110 * time.Second)
			s.again("10.0.0.1")
		}, want: []string{"01", "04", "05", "06"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &disabling{cluster: newCluster(t), takes: time.Second, noMisfire: !tt.misfire}
				start := time.Now().Truncate(time.Hour)
				hosts := 0
				s.config = func(cfg *engine.Config) {
					if ahead := tt.clocks; hosts < len(ahead) {
						by := ahead[hosts]
						cfg.Now = func() time.Time { return time.Now().Add(by) }
					}
					hosts++
				}
				s.again("10.0.0.1")
				s.again("10.0.0.2")
				time.Sleep(90 * time.Second)
				tt.set(s, start.Add(4*time.Minute))
				time.Sleep(60 * time.Second)
				if tt.meanwhile != nil {
					tt.meanwhile(s)
				}
				time.Sleep(time.Until(start.Add(6*time.Minute + 30*time.Second)))
				var ran []string
				for _, s := range s.starts(1) {
					ran = append(ran, s[len(s)-5:len(s)-3])
				}
				want := tt.want
				if want == nil {
					want = []string{"01", "04", "05", "06"}
				}
				if !slices.Equal(ran, want) {
					t.Errorf("item 1 ran for %v, expected %v: %q\n%s", ran, want, s.starts(1), s.all())
				}
				missing(s.cluster, start.Add(time.Minute), start.Add(6*time.Minute), time.Minute, 2)
			})
		})
	}
}

// TestDisabled_saysWho: the status says who has disabled, stopped or removed a job, or disabled an item, why, since
// when and until when; that it is over by itself is on record.
func TestDisabled_saysWho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &disabling{cluster: newCluster(t), takes: time.Second}
		s.again("10.0.0.1")
		n := s.hosts["10.0.0.1"]
		time.Sleep(90 * time.Second)
		at, until := time.Now(), time.Now().Add(time.Minute)
		by := n.operator().For("user ann", "the database moves")
		is := func(what string, said *engine.Said, want engine.Said) {
			t.Helper()
			if said == nil || said.By != want.By || said.Why != want.Why || !said.Since.Equal(want.Since) || !said.Until.Equal(want.Until) {
				t.Errorf("%s: found %+v, expected %+v", what, said, want)
			}
		}
		status := func() *engine.JobStatus { return n.host.FullStatus().Jobs[0] }
		s.do(by.Until(until).DisableItem(t.Context(), "j", 1))
		is("an item", status().Items[1].Said, engine.Said{By: "user ann", Why: "the database moves", Since: at, Until: until})
		s.do(by.Until(until).Disable(t.Context(), "j"))
		time.Sleep(time.Second)
		is("a job", status().Said, engine.Said{By: "user ann", Why: "the database moves", Since: at, Until: until})
		time.Sleep(2 * time.Minute)
		if got := status(); got.Said != nil || got.Items[1].Said != nil || got.State != engine.JobReady {
			t.Errorf("it is over, and the status is %+v", got)
		}
		var over []string
		for _, name := range s.nodes(registry.Children(tree.ClusterChanges("test")))[0].Names {
			data := s.nodes(registry.Data(tree.ClusterChanges("test") + "/" + name))[0].Data
			if text := string(data); strings.Contains(text, `"what":"enable"`) && strings.Contains(text, `"who":"user ann"`) {
				over = append(over, text)
			}
		}
		if len(over) != 2 {
			t.Errorf("on record are %q, expected the job and the item", over)
		}
		at = time.Now()
		s.do(by.Shutdown(t.Context(), "j", "", ""))
		time.Sleep(time.Minute)
		is("a job that is stopped", status().Said, engine.Said{By: "user ann", Why: "the database moves", Since: at})
		at = time.Now()
		s.do(by.Remove(t.Context(), "j", false))
		time.Sleep(time.Minute)
		is("a job that is removed", status().Said, engine.Said{By: "user ann", Why: "the database moves", Since: at})
	})
}

// disabling is a cluster that runs the job "j" each minute, with two items.
type disabling struct {
	*cluster
	takes     time.Duration
	props     map[string]string
	items     int // 0: 2
	noMisfire bool
}

func (s *disabling) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *disabling) operator() *admin.Registry {
	for _, n := range s.hosts {
		return n.operator()
	}
	r, err := s.server.Connect(s.t.Context())
	s.do(err)
	s.t.Cleanup(func() { _ = r.Close() })
	return admin.NewRegistry("test", func() registry.Center { return r })
}

// again starts hosts that do not run.
func (s *disabling) again(servers ...string) {
	for _, server := range servers {
		if s.hosts[server] == nil {
			var n int
			if _, err := fmt.Sscanf(server, "10.0.0.%d", &n); err != nil {
				s.t.Fatal(err)
			}
			d := definition("j", "0 * * * * ?", cmp.Or(s.items, 2))
			d.Misfire, d.Props = !s.noMisfire, s.props
			s.start(n, job(d, sleeper(s.takes)))
		}
	}
}

// owner is the server that has an item.
func (s *disabling) owner(item int) string {
	server, _, _ := strings.Cut(string(s.nodes(registry.Data(fmt.Sprintf("/test/j/sharding/%d/instance", item)))[0].Data), "@")
	return server
}

// stop has a host end in good order, and waits for that.
func (s *disabling) stop(server string) string {
	n := s.hosts[server]
	if n == nil {
		s.t.Fatalf("no host %s runs\n%s", server, s.all())
	}
	n.stop()
	<-n.done
	delete(s.hosts, server)
	return server
}

// crash ends a host's session without a word, and the host with it.
func (s *disabling) crash(server string) {
	n := s.hosts[server]
	n.kill()
	<-n.done
	delete(s.hosts, server)
}
