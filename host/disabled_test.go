package host_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/admin"
)

// TestDisabled_instantsMeanwhileHaveNoCatchUp: what came due while a job or an item was
// disabled does not run after it was enabled, whatever becomes of its host then.
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
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &disabling{cluster: newCluster(t), takes: max(tt.takes, time.Second)}
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
				if len(ran) > 0 {
					t.Errorf("item 1 ran for instants at which it was disabled: %q\n%s", ran, s.all())
				}
				if starts := s.starts(1); !slices.ContainsFunc(starts, func(start string) bool { return strings.HasSuffix(start, "for 04:00") }) {
					t.Errorf("item 1 did not run after it was enabled: %q\n%s", starts, s.all())
				}
			})
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

// disabling is a cluster that runs the job "j" each minute, with two items.
type disabling struct {
	*cluster
	takes time.Duration
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
	s.t.Fatal("no host runs")
	return nil
}

// again starts hosts that do not run.
func (s *disabling) again(servers ...string) {
	for _, server := range servers {
		if s.hosts[server] == nil {
			var n int
			if _, err := fmt.Sscanf(server, "10.0.0.%d", &n); err != nil {
				s.t.Fatal(err)
			}
			s.start(n, job(definition("j", "0 * * * * ?", 2), sleeper(s.takes)))
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
