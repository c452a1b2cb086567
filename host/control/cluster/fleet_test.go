package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/cluster/orphans"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is hosts that say what a test has them do, and a network between them.
type fleet struct {
	t    *testing.T
	self *ship
	mu   sync.Mutex
	list []*ship // the others
	// asked counts the questions to each.
	asked map[string]int
}

// ship is one host.
type ship struct {
	id    string
	mu    sync.Mutex
	jobs  map[string]*engine.JobStatus
	local *Local
	// compiling is what it compiles.
	compiling []report.Compiling
	refused   []engine.Refusal
	// slow is how long it takes to see what it does itself, delay to answer another; down is
	// why it does not.
	slow  time.Duration
	delay time.Duration
	down  error
}

func newShip(id string) *ship {
	s := &ship{id: id, jobs: make(map[string]*engine.JobStatus)}
	s.start()
	return s
}

// start begins another life of the host.
func (s *ship) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.local = NewLocal(func() report.Report {
		time.Sleep(s.slow)
		s.mu.Lock()
		defer s.mu.Unlock()
		jobs := slices.SortedFunc(maps.Values(s.jobs), func(a, b *engine.JobStatus) int { return strings.Compare(a.Name, b.Name) })
		return report.Report{Status: engine.Status{Instance: s.id, Jobs: jobs, Refused: s.refused}, Compiling: s.compiling}
	})
}

func (s *ship) set(jobs ...engine.JobStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		s.jobs[j.Name] = &j
	}
}

// compiles has it compile a module of some jobs, or none.
func (s *ship) compiles(module string, jobs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compiling = nil
	if module != "" {
		s.compiling = []report.Compiling{{Module: module, Jobs: jobs}}
	}
}

// refuse has it refuse files, or none.
func (s *ship) refuse(files ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = nil
	for _, f := range files {
		s.refused = append(s.refused, engine.Refusal{File: f, Reasons: []string{"broken"}})
	}
}

func (s *ship) drop(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		delete(s.jobs, name)
	}
}

func (s *ship) answers(delay time.Duration, down error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay, s.down = delay, down
}

func (s *ship) peer() Peer {
	return Peer{s.id, tree.ClusterDetail{ServerIP: "10.0.0." + s.id, API: "http://10.0.0." + s.id + ":9770"}}
}

// sail starts a cluster that host "0" shows; the test ends it.
func sail(t *testing.T, others ...*ship) (f *fleet, c *Cluster) {
	t.Helper()
	return sailWith(t, nil, others...)
}

// sailWith is sail with a registry.
func sailWith(t *testing.T, r Registry, others ...*ship) (f *fleet, c *Cluster) {
	t.Helper()
	f = &fleet{t: t, self: newShip("0"), list: others, asked: make(map[string]int)}
	c = New(Options{Local: f.self.local, Self: f.self.peer, Peers: f.peers, Fetch: f.fetch, Registry: r})
	ctx, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); run.Wait() })
	return f, c
}

func (f *fleet) peers() (list []Peer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.list {
		list = append(list, s.peer())
	}
	return list
}

// lists changes which hosts there are.
func (f *fleet) lists(others ...*ship) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = others
}

func (f *fleet) questions(id string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[id]
}

func (f *fleet) fetch(ctx context.Context, p Peer, epoch string, since uint64) (d Delta, err error) {
	f.mu.Lock()
	f.asked[p.ID]++
	i := slices.IndexFunc(f.list, func(s *ship) bool { return s.id == p.ID })
	if i < 0 {
		f.mu.Unlock()
		return d, errors.New("nothing answers there")
	}
	s := f.list[i]
	f.mu.Unlock()
	s.mu.Lock()
	delay, down, local := s.delay, s.down, s.local
	s.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return d, ctx.Err()
	}
	if down != nil {
		return d, down
	}
	data, err := json.Marshal(local.Delta(epoch, since)) // as it comes over the network
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(data, &d)
}

// refresh is Refresh that takes as long as it should.
func refresh(t *testing.T, c *Cluster, takes time.Duration) {
	t.Helper()
	from := time.Now()
	if err := c.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(from); took != takes {
		t.Errorf("it took %s, want %s", took, takes)
	}
}

// stale lets what is known be too old.
func stale() { time.Sleep(oldest) }

func job(name string, state engine.JobState, items ...engine.ItemStatus) engine.JobStatus {
	return engine.JobStatus{Name: name, State: state, ShardingTotalCount: 4, Items: items}
}

func jobNames(c *Cluster) string {
	var names []string
	for _, j := range c.Jobs() {
		names = append(names, j.Name)
	}
	return strings.Join(names, " ")
}

func host1(c *Cluster, id string) Host {
	for _, h := range c.Hosts() {
		if h.ID == id {
			return h
		}
	}
	return Host{}
}

// register is what the registry has of jobs.
type register struct {
	mu    sync.Mutex
	jobs  map[string]orphans.Job
	delay time.Duration
	looks int
}

func (r *register) put(jobs ...orphans.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range jobs {
		r.jobs[j.Name] = j
	}
}

func (r *register) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, name)
}

// takes sets how long it takes to answer.
func (r *register) takes(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

func (r *register) looked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.looks
}

func (r *register) Names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.jobs))
}

func (r *register) Look(ctx context.Context, names []string) (list []orphans.Job, err error) {
	r.mu.Lock()
	delay := r.delay
	r.looks++
	r.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if j, ok := r.jobs[name]; ok {
			list = append(list, j)
		}
	}
	return list, nil
}

// TestUnheld: a job of the registry that no host has is in the list, with what the registry
// knows of it, until a host has it; the registry is asked for no other.
func TestUnheld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, books := newShip("1"), &register{jobs: make(map[string]orphans.Job)}
		f, c := sailWith(t, books, one)
		books.put(orphans.Job{Name: "a", Cron: "0 0 3 * * ?", ShardingTotalCount: 4}, orphans.Job{Name: "b", Description: "bills", Cron: "0 0 3 * * ?", ShardingTotalCount: 4},
			orphans.Job{Name: "java", Instances: 2, ShardingTotalCount: 1}, orphans.Job{Name: "odd", Problem: "it is no YAML"})
		f.self.set(job("a", engine.JobReady))
		one.set(job("b", engine.JobReady), job("java", engine.JobReady), job("odd", engine.JobReady))
		refresh(t, c, 0)
		if names := jobNames(c); names != "a b java odd" || books.looked() != 0 {
			t.Errorf("found %s after %d looks, expected all jobs of hosts and no look", names, books.looked())
		}
		mark, _ := c.Mark()

		stale()
		f.lists() // host 1 is gone
		refresh(t, c, 0)
		b, items, on, ok := c.Job("b")
		want := Job{Name: "b", Description: "bills", Health: HealthError, State: StateNoHost, Reason: "no host has it: those that had it are gone, or its files are; if it is not needed any more: wasmjob job remove b",
			Cron: "0 0 3 * * ?", TimeZone: "Local", ShardingTotalCount: 4, Hosts: []string{}, Digests: []string{}}
		if !ok || !reflect.DeepEqual(b, want) || len(items)+len(on) != 0 {
			t.Errorf("found %+v %v %v, expected %+v", b, items, on, want)
		}
		if j, _, _, _ := c.Job("java"); j.Health != HealthOK || j.State != StateElsewhere || !strings.HasPrefix(j.Reason, "2 instances of hosts") {
			t.Errorf("a job of other hosts: %+v", j)
		}
		if j, _, _, _ := c.Job("odd"); j.Health != HealthError || !strings.HasSuffix(j.Reason, "its configuration cannot be read: it is no YAML") {
			t.Errorf("a job with a bad configuration: %+v", j)
		}
		if changed := c.Changes(mark); len(changed.Jobs) != 3 || changed.Jobs[0].Name != "b" || changed.Jobs[0].Health != HealthError {
			t.Errorf("changes: %+v", changed.Jobs)
		}

		mark, _ = c.Mark()
		stale()
		refresh(t, c, 0)
		if again, _ := c.Mark(); again != mark {
			t.Error("nothing has changed, and who watches was woken")
		}

		f.self.set(job("b", engine.JobRunning))
		books.remove("odd")
		stale()
		refresh(t, c, 0)
		if b, _, _, _ := c.Job("b"); b.State != engine.JobRunning {
			t.Errorf("a host has it now: %+v", b)
		}
		if names := jobNames(c); names != "a b java" {
			t.Errorf("found %s, expected a b java", names)
		}
		if changed := c.Changes(mark); len(changed.Jobs) != 2 || changed.Jobs[1].Name != "odd" || changed.Jobs[1].Health != "" {
			t.Errorf("changes: %+v", changed.Jobs)
		}
	})
}

// TestUnheld_undefined: a job that all its servers have answered to have no definition of is
// not in error.
func TestUnheld_undefined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, books := newShip("1"), &register{jobs: map[string]orphans.Job{
			"both": {Name: "both", Servers: []string{"10.0.0.0", "10.0.0.1"}}, "gone": {Name: "gone", Servers: []string{"10.0.0.0", "10.0.0.9"}}, "new": {Name: "new"}}}
		f, c := sailWith(t, books, one)
		refresh(t, c, 0)
		for name, want := range map[string]engine.JobState{"both": StateUndefined, "gone": StateNoHost, "new": StateNoHost} {
			j, _, _, _ := c.Job(name)
			if j.State != want || (j.Health == HealthError) == (want == StateUndefined) || !strings.Contains(j.Reason, "wasmjob job remove "+name) {
				t.Errorf("%s: found %+v, expected the state %q", name, j, want)
			}
		}
		f.self.refuse("both.yaml")
		stale()
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("both"); j.State != StateNoHost || j.Health != HealthError {
			t.Errorf("its definition is refused: %+v", j)
		}
		f.self.refuse()
		one.answers(0, errors.New("down"))
		stale()
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("both"); j.State != StateNoHost {
			t.Errorf("one of its servers does not answer: %+v", j)
		}
	})
}

// TestUnheld_compiling: a job whose module is being compiled is not without a host.
func TestUnheld_compiling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		books := &register{jobs: map[string]orphans.Job{"a": {Name: "a"}}}
		f, c := sailWith(t, books)
		f.self.compiles("a.wasm", "a")
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("a"); j.State != engine.JobJoining || j.Health != HealthOK || j.Reason != "its module a.wasm is being compiled" {
			t.Errorf("found %+v", j)
		}
		f.self.compiles("")
		stale()
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("a"); j.State != StateNoHost {
			t.Errorf("it is compiled, and no host has it: %+v", j)
		}
	})
}

// TestUnheld_patience: nobody waits for a registry that does not answer, and what it said
// counts until it does.
func TestUnheld_patience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, books := newShip("1"), &register{jobs: map[string]orphans.Job{"a": {Name: "a"}}}
		_, c := sailWith(t, books, one)
		refresh(t, c, 0)
		books.put(orphans.Job{Name: "b"})
		books.takes(5 * time.Second)
		stale()
		refresh(t, c, patience)
		if names := jobNames(c); names != "a" {
			t.Errorf("found %s, expected a", names)
		}
		one.answers(10*time.Second, nil)
		stale()
		refresh(t, c, patience) // the registry is being asked
		time.Sleep(5 * time.Second)
		books.takes(0)
		refresh(t, c, 0)
		if names := jobNames(c); names != "a b" {
			t.Errorf("found %s, expected a b", names)
		}
	})
}

// TestClusterOfThree: what three hosts say is one list, and a host that is asked again says
// only what has changed.
func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newShip("1"), newShip("2")
		f, c := sail(t, one, two)
		f.self.set(job("a", engine.JobReady, engine.ItemStatus{Item: 0}), job("b", engine.JobReady))
		one.set(job("a", engine.JobRunning, engine.ItemStatus{Item: 1, Running: true}))
		two.set(job("a", engine.JobReady, engine.ItemStatus{Item: 2}), job("c", engine.JobDisabled))
		refresh(t, c, 0)
		if got := jobNames(c); got != "a b c" {
			t.Fatalf("jobs %s", got)
		}
		a, items, on, ok := c.Job("a")
		if !ok || a.State != engine.JobRunning || a.Running != 1 || strings.Join(a.Hosts, " ") != "0 1 2" || len(on) != 3 || a.Stale {
			t.Errorf("%+v %v", a, on)
		}
		if len(items) != 3 || items[1].Host != "1" || items[2].Host != "2" || items[2].Item != 2 {
			t.Errorf("%+v", items)
		}
		if j, _, _, _ := c.Job("c"); j.Health != HealthPaused {
			t.Errorf("%+v", j)
		}
		if hosts := c.Hosts(); len(hosts) != 3 || !hosts[0].Here || hosts[0].ID != "0" || hosts[1].Running != 1 || hosts[2].Jobs != 2 || hosts[1].Report == nil {
			t.Errorf("%+v", hosts)
		}
		if _, _, _, ok := c.Job("d"); ok {
			t.Error("there is a job d")
		}
		mark := c.Changes(Mark{}).Mark
		one.set(job("a", engine.JobReady, engine.ItemStatus{Item: 1}))
		refresh(t, c, 0) // it is fresh
		if got := c.Changes(mark); len(got.Jobs) != 0 {
			t.Errorf("what is fresh is asked for again: %+v", got)
		}
		stale()
		refresh(t, c, 0)
		if got := c.Changes(mark); got.Whole || len(got.Jobs) != 1 || got.Jobs[0].State != engine.JobReady || got.Jobs[0].Running != 0 {
			t.Errorf("%+v", got)
		}
		if h := host1(c, "1"); h.Running != 0 || h.Jobs != 1 {
			t.Errorf("%+v", h)
		}
	})
}

// TestAtOnce: a host asks the others while it looks at itself.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newShip("1")
		f, c := sail(t, b)
		f.self.slow = 300 * time.Millisecond
		b.answers(400*time.Millisecond, nil)
		began := time.Now()
		if err := c.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Errorf("a round took %v, want 400ms", took)
		}
	})
}

// TestSilentHost is waited for once, for a second, and shown with what it said last.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newShip("1"), newShip("2")
		one.set(job("a", engine.JobReady, engine.ItemStatus{Item: 0}), job("b", engine.JobReady))
		two.set(job("a", engine.JobReady, engine.ItemStatus{Item: 1}))
		f, c := sail(t, one, two)
		refresh(t, c, 0)
		seen := host1(c, "1").Seen
		one.answers(5*time.Second, nil)
		stale()
		refresh(t, c, patience)
		if h := host1(c, "1"); h.Silent != "it has not answered within 1s" || !h.Seen.Equal(seen) || h.Jobs != 2 {
			t.Errorf("%+v", h)
		}
		if got := c.Silent(); len(got) != 1 || got[0] != "10.0.0.1: it has not answered within 1s" {
			t.Errorf("%q", got)
		}
		if b, _, _, ok := c.Job("b"); !ok || !b.Stale {
			t.Errorf("the job that only it has: %+v", b)
		}
		if a, items, _, _ := c.Job("a"); a.Stale || len(items) != 2 || strings.Join(a.Hosts, " ") != "1 2" {
			t.Errorf("a job that another has, too: %+v %+v", a, items)
		}
		// Nobody waits for it again, and it is asked once at a time.
		for range 3 {
			stale()
			refresh(t, c, 0)
		}
		if n := f.questions("1"); n != 2 {
			t.Errorf("it was asked %d times", n)
		}
		// Its late answer counts.
		one.set(job("b", engine.JobRunning))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if h := host1(c, "1"); h.Silent != "" || !h.Seen.After(seen) {
			t.Errorf("after its answer: %+v", h)
		}
		if b, _, _, _ := c.Job("b"); b.Stale || b.State != engine.JobRunning {
			t.Errorf("after its answer: %+v", b)
		}
		// One that says at once that it cannot answer costs nothing.
		one.answers(0, errors.New("no"))
		stale()
		refresh(t, c, 0)
		if h := host1(c, "1"); h.Silent != "no" {
			t.Errorf("%+v", h)
		}
		one.answers(0, nil)
		stale()
		refresh(t, c, 0)
		if got := c.Silent(); len(got) != 0 {
			t.Errorf("it is back: %q", got)
		}
	})
}

// TestWhySilent: a host whose history does not answer is known as that for a second, and one that does
// not answer at all as long as rounds wait for it.
func TestWhySilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		_, c := sail(t, one)
		refresh(t, c, 0)
		c.NoteSlow("1", "slow")
		if got := c.WhySilent("1"); got != "slow" {
			t.Errorf("found %q", got)
		}
		if got := c.Silent(); len(got) != 0 { // who asks much of a history would have its host shown as silent to everybody
			t.Errorf("a slow history makes a host silent: %q", got)
		}
		stale()
		if got := c.WhySilent("1"); got != "" {
			t.Errorf("%q still counts after %s", got, oldest)
		}
		one.answers(time.Hour, nil)
		refresh(t, c, patience)
		for range 5 { // the host is not asked again meanwhile
			if got := c.WhySilent("1"); got != errLate.Error() {
				t.Errorf("found %q", got)
			}
			stale()
			refresh(t, c, 0)
		}
	})
}

// TestDraining: jobs of which something still runs are named first.
func TestDraining(t *testing.T) {
	t.Parallel()
	k := &known{report: &report.Report{Status: engine.Status{State: engine.HostLive}}, jobs: map[string]*engine.JobStatus{
		"a": {Name: "a", State: engine.JobDraining}, "b": {Name: "b", State: engine.JobDraining, Items: []engine.ItemStatus{{Item: 0}, {Item: 2, Running: true}}},
		"c": {Name: "c", State: engine.JobStopped}, "d": {Name: "d", State: engine.JobRemoved},
	}}
	for _, j := range k.jobs {
		k.add(j, 1)
	}
	if got := k.leaving(func(job string) bool { return job == "b" }); len(got) != 1 || got[0].Job != "b" {
		t.Errorf("who may see b alone sees %+v", got)
	}
	if got := k.leaving(nil); len(got) != 2 || got[0].Job != "b" || !slices.Equal(got[0].Items, []int{2}) || got[1].Job != "a" || k.state() != engine.HostDraining {
		t.Errorf("%s, leaves %+v", k.state(), got)
	}
	k.add(k.jobs["a"], -1)
	k.add(k.jobs["b"], -1)
	if k.tally != (tally{stopped: 1, removed: 1}) {
		t.Errorf("%+v", k.tally)
	}
}

// TestDisabledFor: of the jobs that a server is disabled for, those are named that another may run.
func TestDisabledFor(t *testing.T) {
	t.Parallel()
	k := &known{jobs: map[string]*engine.JobStatus{}}
	all := make(map[string]*Job)
	for name, state := range map[string]engine.JobState{"here": engine.JobDisabled, "too": engine.JobDisabled, "everywhere": engine.JobDisabled, "runs": engine.JobReady} {
		k.jobs[name], all[name] = &engine.JobStatus{Name: name, State: state}, &Job{Name: name, State: engine.JobReady}
		k.add(k.jobs[name], 1)
	}
	all["everywhere"].State = engine.JobDisabled
	if got := k.disabledFor(all, nil); !slices.Equal(got, []string{"here", "too"}) {
		t.Errorf("disabled for %q", got)
	}
	if got := k.disabledFor(all, func(job string) bool { return job == "too" }); !slices.Equal(got, []string{"too"}) {
		t.Errorf("who may see one alone sees %q", got)
	}
}

// TestEarlierProcess: a host that was killed and started again is there twice until its earlier
// session has ended, and what is listed for that says so.
func TestEarlierProcess(t *testing.T) {
	t.Parallel()
	for name, same := range map[string]bool{"the same address": true, "another server's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			earlier := Peer{"old", tree.ClusterDetail{ServerIP: "10.0.0.1", API: "http://127.0.0.1:9770", Started: time.Unix(100, 0)}}
			self := Peer{"new", tree.ClusterDetail{ServerIP: "10.0.0.1", API: "http://127.0.0.1:9770", Started: time.Unix(200, 0)}}
			if !same {
				earlier.ServerIP = "10.0.0.2"
			}
			c := New(Options{})
			c.list(self, []Peer{earlier})
			c.silence("old", "answers 401 Unauthorized")
			want := "answers 401 Unauthorized"
			if same {
				want = "an earlier process of this host, which was started again: it is listed until its session has ended"
			}
			if got := c.Silent(); len(got) != 1 || got[0] != earlier.ServerIP+": "+want {
				t.Errorf("%q", got)
			}
			for _, h := range c.Hosts() {
				if (h.ID == "old" && h.Silent != want) || (h.Here && h.Silent != "") {
					t.Errorf("%+v", h)
				}
			}
		})
	}
}

// TestTake_null: an answer of another host ends no host, whatever it has for a job.
func TestTake_null(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	c.list(Peer{ID: "self"}, []Peer{{ID: "other"}})
	c.take(answer{id: "other", delta: Delta{Whole: true, Jobs: []*engine.JobStatus{nil, {Name: "j"}}}})
	if jobs := c.Jobs(); len(jobs) != 1 || jobs[0].Name != "j" {
		t.Errorf("%+v", jobs)
	}
}

// TestHostThatNeverAnswers is given up after longestFetch, and asked again.
func TestHostThatNeverAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		one.answers(time.Hour, nil)
		f, c := sail(t, one)
		refresh(t, c, patience)
		if h := host1(c, "1"); h.Silent == "" || !h.Seen.IsZero() || h.Report != nil {
			t.Errorf("%+v", h)
		}
		time.Sleep(longestFetch)
		synctest.Wait()
		if h := host1(c, "1"); !strings.Contains(h.Silent, "deadline") {
			t.Errorf("%+v", h)
		}
		refresh(t, c, patience)
		if n := f.questions("1"); n != 2 {
			t.Errorf("it was asked %d times", n)
		}
	})
}

// TestSilentHostCountsLess: what it said last does not hide what others say.
func TestSilentHostCountsLess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newShip("1"), newShip("2")
		next := time.Now().Add(time.Minute)
		a := job("a", engine.JobError, engine.ItemStatus{Item: 0, Running: true}, engine.ItemStatus{Item: 1})
		a.Next, a.Reason = next, "no module"
		one.set(a)
		b := job("a", engine.JobReady, engine.ItemStatus{Item: 0})
		b.Next = next
		two.set(b)
		_, c := sail(t, one, two)
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("a"); j.Health != HealthError || j.Running != 1 {
			t.Errorf("both answer: %+v", j)
		}
		one.answers(0, errors.New("gone"))
		time.Sleep(2*time.Minute + 2*time.Second) // not with a round
		b.Next = next.Add(2 * time.Minute)
		two.set(b)
		refresh(t, c, 0)
		j, items, _, _ := c.Job("a")
		if j.Health != HealthOK || j.Running != 0 || !j.Next.Equal(b.Next) || j.State != engine.JobReady {
			t.Errorf("one is silent: %+v", j)
		}
		if len(items) != 2 || items[0].Host != "2" || items[1].Host != "1" {
			t.Errorf("%+v", items)
		}
	})
}

// TestHostsComeAndGo: a host that is started again, one that leaves, and one whose answer
// comes when it has left.
func TestHostsComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, two := newShip("1"), newShip("2")
		one.set(job("a", engine.JobReady), job("b", engine.JobReady))
		two.set(job("b", engine.JobReady), job("c", engine.JobReady))
		f, c := sail(t, one, two)
		refresh(t, c, 0)
		// Another life, which counts its answers from the beginning.
		one.drop("a")
		one.set(job("d", engine.JobReady))
		one.start()
		stale()
		refresh(t, c, 0)
		if got := jobNames(c); got != "b c d" {
			t.Errorf("started again: %s", got)
		}
		mark := c.Changes(Mark{}).Mark
		two.answers(2*time.Second, nil)
		stale()
		refresh(t, c, patience)
		f.lists(one)
		stale()
		refresh(t, c, 0)
		if got := jobNames(c); got != "b d" || len(c.Hosts()) != 2 {
			t.Errorf("two has left: %s, %+v", got, c.Hosts())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := jobNames(c); got != "b d" || len(c.Hosts()) != 2 {
			t.Errorf("its last answer brought it back: %s, %+v", got, c.Hosts())
		}
		changed := c.Changes(mark)
		if changed.Whole || len(changed.Jobs) != 2 || changed.Jobs[0].Name != "b" || changed.Jobs[1].Name != "c" || len(changed.Jobs[1].Hosts) != 0 {
			t.Errorf("%+v", changed)
		}
		three := newShip("3")
		three.set(job("c", engine.JobReady))
		f.lists(one, three)
		refresh(t, c, 0)
		if got := jobNames(c); got != "b c d" {
			t.Errorf("three has come: %s", got)
		}
	})
}

// TestJobThatVanishes from a host, and comes back.
func TestJobThatVanishes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		one.set(job("a", engine.JobReady, engine.ItemStatus{Running: true}), job("b", engine.JobReady))
		_, c := sail(t, one)
		refresh(t, c, 0)
		mark := c.Changes(Mark{}).Mark
		one.drop("a")
		stale()
		refresh(t, c, 0)
		changed := c.Changes(mark)
		if got := jobNames(c); got != "b" || len(changed.Jobs) != 1 || len(changed.Jobs[0].Hosts) != 0 || host1(c, "1").Running != 0 {
			t.Errorf("%s %+v %+v", got, changed, host1(c, "1"))
		}
		one.set(job("a", engine.JobReady))
		stale()
		refresh(t, c, 0)
		if got := jobNames(c); got != "a b" {
			t.Errorf("it is back: %s", got)
		}
		if changed := c.Changes(changed.Mark); len(changed.Jobs) != 1 || len(changed.Jobs[0].Hosts) != 1 {
			t.Errorf("it is back: %+v", changed)
		}
	})
}

// TestLateHealth_jitter: a job whose start is put off is late after that.
func TestLateHealth_jitter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := sail(t)
		a := job("a", engine.JobReady)
		a.Next = time.Now().Add(time.Second)
		a.Starts = a.Next.Add(time.Hour)
		f.self.set(a)
		for _, want := range []Health{HealthOK, HealthLate} {
			time.Sleep(time.Hour)
			stale()
			refresh(t, c, 0)
			if j, _, _, _ := c.Job("a"); j.Health != want || !j.Starts.Equal(a.Starts) {
				t.Errorf("want %s: %+v", want, j)
			}
		}
	})
}

// TestLateHealth: a job is late by the clock alone, whoever says nothing about it.
func TestLateHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := sail(t)
		a := job("a", engine.JobReady)
		a.Next = time.Now().Add(time.Second)
		f.self.set(a)
		refresh(t, c, 0)
		mark := c.Changes(Mark{}).Mark
		time.Sleep(time.Second + lateAfter)
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("a"); j.Health != HealthOK {
			t.Errorf("at %s: %+v", lateAfter, j)
		}
		stale()
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("a"); j.Health != HealthLate {
			t.Errorf("after %s: %+v", lateAfter, j)
		}
		if changed := c.Changes(mark); len(changed.Jobs) != 1 || changed.Jobs[0].Health != HealthLate {
			t.Errorf("%+v", changed)
		}
		a.Next = a.Next.Add(time.Hour)
		f.self.set(a)
		stale()
		refresh(t, c, 0)
		if j, _, _, _ := c.Job("a"); j.Health != HealthOK {
			t.Errorf("it has fired: %+v", j)
		}
	})
}

// TestLateHealth_asked: a job whose guests have it wait beyond its next fire is late, and says so; one that fires when they let it is well.
func TestLateHealth_asked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := sail(t)
		for days, want := range map[int]Health{0: HealthOK, 30: HealthLate} {
			a := job("a", engine.JobReady)
			a.Next = time.Now().Add(time.Hour)
			a.Waits = []engine.WaitStatus{{What: event.WaitRate, Since: time.Now(), Until: time.Now().Add(time.Minute + time.Duration(days)*24*time.Hour)}}
			f.self.set(a)
			stale()
			refresh(t, c, 0)
			if j, _, _, _ := c.Job("a"); j.Health != want {
				t.Errorf("%d days: %+v", days, j)
			}
		}
	})
}

// TestSeen: when a host answered last is known without anybody who looks, to the minute: hosts are
// asked all the time, seldom while nobody watches.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		f, c := sail(t, one)
		time.Sleep(time.Hour)
		if n := f.questions("1"); n < 59 || n > 61 {
			t.Errorf("asked %d times in an hour, expected once a minute", n)
		}
		one.answers(0, errors.New("it is halted"))
		gone := time.Now()
		time.Sleep(2 * time.Hour)
		refresh(t, c, 0)
		if h := host1(c, "1"); h.Silent == "" || gone.Sub(h.Seen) > idlePace || h.Seen.After(gone) {
			t.Errorf("it answered last %s before it was halted, expected within %s: %+v", gone.Sub(h.Seen), idlePace, h)
		}
	})
}

// TestWatch: hosts are asked again and again while somebody watches, and seldom without.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		one.set(job("a", engine.JobReady))
		f, c := sail(t, one)
		time.Sleep(idlePace / 2)
		if n := f.questions("1"); n != 0 {
			t.Errorf("asked %d times for nobody", n)
		}
		var ends []func()
		for range 2 {
			end, err := c.Watch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		_, more := c.Mark()
		<-more // the first round has an answer
		time.Sleep(10*livePace + livePace/2)
		synctest.Wait()
		if n := f.questions("1"); n != 11 {
			t.Errorf("asked %d times in ten paces", n)
		}
		ends[0]()
		time.Sleep(10 * livePace)
		synctest.Wait()
		if n := f.questions("1"); n != 21 {
			t.Errorf("asked %d times in twenty paces", n)
		}
		ends[1]()
		time.Sleep(idlePace - time.Second)
		synctest.Wait()
		if n := f.questions("1"); n != 21 {
			t.Errorf("asked %d times when nobody watches", n)
		}
		refresh(t, c, 0)
		// A change is seen within a second.
		end, err := c.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		changed := c.Changes(Mark{})
		time.Sleep(livePace / 3)
		one.set(job("a", engine.JobRunning))
		from := time.Now()
		<-changed.More
		if took := time.Since(from); took > time.Second {
			t.Errorf("a change was seen after %s", took)
		}
	})
}

// TestRenewed: between livePace and a second, what is known is shown at once, and renewed
// for who asks next.
func TestRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		f, c := sail(t, one)
		refresh(t, c, 0)
		one.set(job("a", engine.JobReady))
		one.answers(300*time.Millisecond, nil)
		time.Sleep(livePace - time.Millisecond)
		refresh(t, c, 0)
		synctest.Wait()
		if f.questions("1") != 1 {
			t.Error("the host was asked too early")
		}
		time.Sleep(time.Millisecond)
		refresh(t, c, 0)
		refresh(t, c, 0) // the round is under way
		if got := jobNames(c); got != "" {
			t.Errorf("jobs %s before the host has answered", got)
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		refresh(t, c, 0)
		if got := jobNames(c); got != "a" || f.questions("1") != 2 {
			t.Errorf("jobs %s after %d questions", got, f.questions("1"))
		}
		time.Sleep(oldest)
		refresh(t, c, 300*time.Millisecond)
	})
}

// TestExpire: what is asked for after a change is not answered by a round that began
// before it.
func TestExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		_, c := sail(t, one)
		refresh(t, c, 0)
		one.answers(400*time.Millisecond, nil)
		stale()
		var before sync.WaitGroup
		before.Go(func() { refresh(t, c, 400*time.Millisecond) })
		time.Sleep(100 * time.Millisecond)
		c.Expire()
		refresh(t, c, 700*time.Millisecond)
		before.Wait()
		refresh(t, c, 0)
	})
}

// TestExpire_roundUnderWay: all who ask after a change wait for the round that has begun since,
// any that had begun it.
func TestExpire_roundUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		f, c := sail(t, one)
		refresh(t, c, 0)
		time.Sleep(freshness)
		one.set(job("a", engine.JobReady))
		one.answers(300*time.Millisecond, nil)
		c.Expire()
		var first sync.WaitGroup
		first.Go(func() { refresh(t, c, 300*time.Millisecond) })
		time.Sleep(100 * time.Millisecond)
		refresh(t, c, 200*time.Millisecond)
		if got := jobNames(c); got != "a" || f.questions("1") != 2 {
			t.Errorf("jobs %s after %d questions", got, f.questions("1"))
		}
		first.Wait()
	})
}

// TestEnd: nobody is left waiting when the host ends.
func TestEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := newShip("1")
		one.answers(time.Hour, nil)
		f := &fleet{t: t, self: newShip("0"), list: []*ship{one}, asked: make(map[string]int)}
		c := New(Options{Local: f.self.local, Self: f.self.peer, Peers: f.peers, Fetch: f.fetch})
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = c.Run(ctx) })
		end, err := c.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run.Go(func() { _ = c.Refresh(t.Context()) })
		time.Sleep(patience / 2)
		c.Expire()
		run.Go(func() { _ = c.Refresh(t.Context()) })
		synctest.Wait()
		stop()
		<-c.Ended()
		run.Wait()
		end()
		if err := c.Refresh(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("Refresh: %v", err)
		}
		if _, err := c.Watch(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("Watch: %v", err)
		}
	})
}

// TestMarks: a mark of another life of the host, or one that is too old, gives all jobs.
func TestMarks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := sail(t)
		f.self.set(job("a", engine.JobReady), job("b", engine.JobReady))
		refresh(t, c, 0)
		first := c.Changes(Mark{})
		if !first.Whole || len(first.Jobs) != 2 {
			t.Fatalf("%+v", first)
		}
		for name, m := range map[string]Mark{
			"another life": {"x", first.Mark.Generation}, "the future": {first.Mark.Epoch, first.Mark.Generation + 1},
		} {
			if got := c.Changes(m); !got.Whole {
				t.Errorf("%s: %+v", name, got)
			}
		}
		if got := c.Changes(first.Mark); got.Whole || len(got.Jobs) != 0 {
			t.Errorf("nothing has changed: %+v", got)
		}
		for n := range leastLog {
			state := engine.JobReady
			if n%2 == 0 {
				state = engine.JobRunning
			}
			f.self.set(job("a", state))
			stale()
			refresh(t, c, 0)
		}
		newest := c.Changes(Mark{}).Mark
		if got := c.Changes(first.Mark); got.Whole || len(got.Jobs) != 1 {
			t.Errorf("%d changes later: %+v", leastLog, got)
		}
		for n := range 3 * leastLog {
			f.self.set(job("x"+string(rune('0'+n%10)), engine.JobReady))
			stale()
			refresh(t, c, 0)
			f.self.drop("x" + string(rune('0'+n%10)))
		}
		if got := c.Changes(first.Mark); !got.Whole {
			t.Errorf("much later: %+v", got)
		}
		if got := c.Changes(newest); !got.Whole || len(got.Jobs) != 3 {
			t.Errorf("later: %+v", got)
		}
		if len(c.log.list) > 2*3+2*leastLog || len(f.self.local.gone.list) > 2*3+2*leastLog {
			t.Errorf("%d changes and %d jobs that are gone are remembered", len(c.log.list), len(f.self.local.gone.list))
		}
		for text, want := range map[string]Mark{"": {}, "x": {}, ".5": {}, "e.": {}, "e.-1": {}, "e.5": {"e", 5}, "e.5.6": {}, newest.String(): newest} {
			if got := ParseMark(text); got != want {
				t.Errorf("%q is %+v, want %+v", text, got, want)
			}
		}
	})
}

// TestLocal: who knows too little is told all.
func TestLocal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShip("1")
		s.set(job("a", engine.JobReady), job("b", engine.JobReady))
		first := s.local.Delta("", 0)
		if !first.Whole || len(first.Jobs) != 2 {
			t.Fatalf("%+v", first)
		}
		s.drop("a")
		s.set(job("b", engine.JobRunning))
		if d := s.local.Delta(first.Epoch, first.Generation); d.Whole || len(d.Jobs)+len(d.Gone) != 0 {
			t.Errorf("within %s: %+v", freshness, d)
		}
		s.local.Invalidate()
		if d := s.local.Delta(first.Epoch, first.Generation); d.Whole || len(d.Jobs) != 1 || len(d.Gone) != 1 || d.Gone[0] != "a" || d.Report.Status.Jobs != nil {
			t.Errorf("%+v", d)
		}
		if d := s.local.Delta("another life", first.Generation); !d.Whole || len(d.Jobs) != 1 || len(d.Gone) != 0 {
			t.Errorf("%+v", d)
		}
		for range 2 * leastLog {
			s.set(job("x", engine.JobReady))
			s.local.Invalidate()
			s.local.Delta(first.Epoch, 0)
			s.drop("x")
			s.local.Invalidate()
			s.local.Delta(first.Epoch, 0)
		}
		if d := s.local.Delta(first.Epoch, first.Generation); !d.Whole {
			t.Errorf("long after: %+v", d)
		}
	})
}

// TestDisabledOn: a job that is disabled on one of its servers names it, and is well.
func TestDisabledOn(t *testing.T) {
	t.Parallel()
	j := merge([]part{{host: "a", JobStatus: &engine.JobStatus{Name: "j", State: engine.JobReady}}, {host: "b", JobStatus: &engine.JobStatus{Name: "j", State: engine.JobDisabled}}}, time.Now())
	if !slices.Equal(j.DisabledOn, []string{"b"}) || j.State != engine.JobReady || j.Health != HealthOK {
		t.Errorf("%+v", j)
	}
}

// TestLast: the outcome of a job's last fire is the worst of its items', on whatever hosts, with what
// such an item said; a job whose runs an operator has killed does not fail.
func TestLast(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		a, b          abi.Outcome
		health        Health
		last, message string
		failed        int
	}{
		"the worst comes last":  {abi.OutcomeFail, abi.OutcomeTrap, HealthFailing, "TRAP", "TRAP of b", 2},
		"the worst comes first": {abi.OutcomeTrap, abi.OutcomeFail, HealthFailing, "TRAP", "TRAP of a", 2},
		"one failed":            {abi.OutcomeOK, abi.OutcomeFail, HealthFailing, "FAIL", "FAIL of b", 1},
		"killed":                {abi.OutcomeCancelled, abi.OutcomeCancelled, HealthOK, "CANCELLED", "CANCELLED of a", 0},
		"one of them killed":    {abi.OutcomeOK, abi.OutcomeCancelled, HealthOK, "CANCELLED", "CANCELLED of b", 0},
		"killed and failed":     {abi.OutcomeFail, abi.OutcomeCancelled, HealthFailing, "FAIL", "FAIL of a", 1},
	} {
		for _, remembered := range []bool{true, false} { // else what the items' records say
			var parts []part
			for n, o := range []abi.Outcome{tc.a, tc.b} {
				id := string(rune('a' + n))
				item := engine.ItemStatus{Item: n, LastOutcome: o, LastEnd: at.Add(time.Second)}
				if o != abi.OutcomeOK {
					item.LastMessage = string(o) + " of " + id
				}
				s := &engine.JobStatus{Name: "j", State: engine.JobReady, Items: []engine.ItemStatus{item}}
				if remembered {
					s.LastFire = &engine.FireStatus{Instant: at, Outcome: o, Duration: time.Second}
				}
				parts = append(parts, part{host: id, JobStatus: s})
			}
			j := merge(parts, at.Add(time.Minute))
			if j.Last == nil || string(j.Last.Outcome) != tc.last || j.Last.Message != tc.message || j.Health != tc.health || j.Failed != tc.failed {
				t.Errorf("%s: %s, %d failed, last %+v", name, j.Health, j.Failed, j.Last)
			}
		}
	}
}
