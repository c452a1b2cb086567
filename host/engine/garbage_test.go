package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
)

var (
	garbageStride = flag.Int("garbage.stride", garbageDefault, "of the cases of garbage in the registry every n-th is played; 1 is all of them")
	garbageSeeds  = flag.Int("garbage.seeds", seedsDefault, "how many seeds of random edits are played")
	garbageSeed   = flag.Int64("garbage.seed", 0, "play only this seed, and print what happened")
	garbageCase   = flag.String("garbage.case", "", "play only this case, such as 'running razed /test/j/sharding/0', and print what happened")
)

// garbageJob has four items of eight seconds, every twenty seconds.
const garbageJob = "j"

func garbageDefinition() jobconfig.Configuration {
	d := definition(garbageJob, "0/20 * * * * ?", 4)
	d.Failover, d.ReconcileIntervalMinutes = true, 2
	d.Props[jobconfig.PropMaxHostDeaths] = "0" // its hosts do not die of what they run
	return d
}

// spoiler is somebody who edits the registry while two or three hosts work, and
// looks what becomes of the job.
type spoiler struct {
	*cluster
	t      *testing.T
	name   string
	def    jobconfig.Configuration
	lone   lone
	guest  *guest
	logs   *observer.ObservedLogs
	mu     sync.Mutex
	nodes  map[int]*node // under mu
	hand   registry.Center
	other  registry.Center // another program's session
	edited []string        // paths
	wrote  []string        // what was edited, for people
	errs   []string
	// declared is set when both nodes by which a host is known to live were
	// deleted: others then take over what it runs, beside it.
	declared bool
	calls    atomic.Int64
	before   atomic.Pointer[func(ops []registry.Op)] // every commit of a host
}

// watched is a session of which the spoiler sees every call.
type watched struct {
	*lease
	s *spoiler
}

func (w *watched) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if f := w.s.before.Load(); f != nil {
		(*f)(ops)
	}
	w.s.calls.Add(1)
	return w.lease.Commit(ctx, ops...)
}

func (w *watched) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	w.s.calls.Add(1)
	return w.lease.Read(ctx, queries...)
}

func newSpoiler(t *testing.T, name string) *spoiler {
	s := &spoiler{cluster: newCluster(t), t: t, name: name, def: garbageDefinition(), nodes: make(map[int]*node)}
	core, logs := observer.New(zap.WarnLevel)
	s.log, s.logs = zap.New(core), logs
	s.wrap = func(_ int, l *lease) registry.Center { return &watched{lease: l, s: s} }
	s.guest = s.lone.guest(func(int) time.Duration { return 8 * time.Second })
	hand, err := s.server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = hand.Close(), other.Close() })
	s.hand, s.other = hand, other
	return s
}

func (s *spoiler) begin(n int) {
	started := s.start(n, job(s.def, s.guest))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n] = started
}

// roots are the nodes that hold all there is of a job.
var roots = []string{"/test", "/test.wasmjob"}

// tree lists the nodes below, parents first.
func (s *spoiler) tree(paths ...string) []string {
	var all []string
	for len(paths) > 0 {
		queries := make([]registry.Query, len(paths))
		for i, p := range paths {
			queries[i] = registry.Children(p)
		}
		nodes, err := s.hand.Read(context.Background(), queries...)
		if err != nil {
			s.errs = append(s.errs, err.Error())
			return all
		}
		paths = nil
		for _, n := range nodes {
			if n.Exists {
				all = append(all, n.Path)
				for _, name := range n.Names {
					paths = append(paths, n.Path+"/"+name)
				}
			}
		}
	}
	return all
}

// commit writes by the spoiler's hand; what was there may be gone meanwhile.
func (s *spoiler) commit(ops ...registry.Op) error {
	_, err := s.hand.Commit(context.Background(), ops...)
	return err
}

var (
	instanceID = regexp.MustCompile(`10\.0\.0\.(\d+)@-@[0-9]+-[0-9a-f]+`)
	latchNode  = regexp.MustCompile(`_c_[-0-9a-f]+-latch-[0-9]+`)
)

// named is the path with {1} for the instance of host 1, since ids are made at
// random.
func named(path string) string {
	return latchNode.ReplaceAllString(instanceID.ReplaceAllString(path, "{$1}"), "{place}")
}

// path is what named has made of it.
func (s *spoiler) path(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, nd := range s.nodes {
		name = strings.ReplaceAll(name, fmt.Sprintf("{%d}", n), nd.host.Status().Instance)
	}
	return name
}

// edits are what can be done to a node, or to where one could be.
var edits = map[string]func(s *spoiler, path string) error{
	"deleted": func(s *spoiler, path string) error {
		return s.commit(registry.Delete(path, registry.AnyVersion))
	},
	"razed":   func(s *spoiler, path string) error { return s.raze(path) },
	"emptied": func(s *spoiler, path string) error { return s.write(path, nil) },
	"garbage": func(s *spoiler, path string) error {
		return s.write(path, []byte("\x00\xff{[: no/such - thing\n\t@-@"))
	},
	"huge": func(s *spoiler, path string) error { return s.write(path, []byte(strings.Repeat("x", 1_000_000))) },
	"foreign": func(s *spoiler, path string) error { // as if another session had made it
		data := s.data(path)
		if err := s.raze(path); err != nil {
			return err
		}
		_, err := s.other.Commit(context.Background(), registry.CreateEphemeral(path, data))
		return err
	},
	"anew": func(s *spoiler, path string) error { // as from a backup
		nodes := s.tree(path)
		ops := make([]registry.Op, len(nodes))
		for i, p := range nodes {
			ops[i] = registry.Create(p, s.data(p))
		}
		if err := s.raze(path); err != nil {
			return err
		}
		return s.commit(ops...)
	},
	"named": func(s *spoiler, path string) error { return s.write(path, []byte(s.path("{2}"))) },
}

func (s *spoiler) data(path string) []byte {
	nodes, err := s.hand.Read(context.Background(), registry.Data(path))
	if err != nil {
		s.errs = append(s.errs, err.Error())
		return nil
	}
	return nodes[0].Data
}

// write sets the node, or makes it and what is above it.
func (s *spoiler) write(path string, data []byte) error {
	return s.commit(registry.Ensure(path), registry.Set(path, data, registry.AnyVersion))
}

// raze deletes the node and what is below it, however long hosts go on writing
// there.
func (s *spoiler) raze(path string) error {
	for range 100 {
		nodes := s.tree(path)
		if len(nodes) == 0 {
			return nil
		}
		ops := make([]registry.Op, 0, len(nodes))
		for _, p := range slices.Backward(nodes) {
			ops = append(ops, registry.Delete(p, registry.AnyVersion))
		}
		if err := s.commit(ops...); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s cannot be deleted", path)
}

// moments are when the registry is edited: act is called then.
var moments = map[string]func(s *spoiler, act func()){
	"idle": func(s *spoiler, act func()) {
		time.Sleep(51 * time.Second)
		act()
	},
	"running": func(s *spoiler, act func()) {
		time.Sleep(44 * time.Second)
		act()
	},
	// The leader has read all that it divides by, and is about to write.
	"dividing": func(s *spoiler, act func()) {
		time.Sleep(51 * time.Second)
		var once sync.Once
		edit := func(ops []registry.Op) {
			if slices.ContainsFunc(ops, func(op registry.Op) bool {
				return op.Kind == registry.OpSet && op.Path == "/test.wasmjob/j/assignment"
			}) {
				once.Do(act)
			}
		}
		s.before.Store(&edit)
		s.begin(3)
		time.Sleep(3 * time.Second)
		s.before.Store(nil)
	},
}

// besides are nodes that a job may have or not have, and some that it never has.
var besides = []string{
	"/test/j/leader/election/latch/x", "/test/j/leader/failover/latch/x", "/test/j/leader/failover/items/0", "/test/j/leader/failover/items/x",
	"/test/j/leader/sharding/necessary", "/test/j/leader/sharding/processing", "/test/j/leader/sharding/x",
	"/test/j/sharding/0/running", "/test/j/sharding/0/misfire", "/test/j/sharding/0/disabled", "/test/j/sharding/0/failover", "/test/j/sharding/0/failovering",
	"/test/j/sharding/0/x", "/test/j/sharding/9", "/test/j/sharding/9/running", "/test/j/sharding/-1", "/test/j/sharding/x/instance",
	"/test/j/trigger/{1}", "/test/j/trigger/x", "/test/j/guarantee/started/0", "/test/j/systemTime/current", "/test/j/instances/x", "/test/j/servers/x", "/test/j/x", "/test/x",
	"/test.wasmjob/j/assignment/x", "/test.wasmjob/j/runs/x", "/test.wasmjob/j/instances/x", "/test.wasmjob/j/sharding/9", "/test.wasmjob/j/sharding/x",
	"/test.wasmjob/j/offset/0", "/test.wasmjob/j/offset/x", "/test.wasmjob/j/x", "/test.wasmjob/x",
}

// spoil is one case: an edit of a node at a moment.
type spoil struct{ moment, edit, path string }

func (c spoil) String() string { return c.moment + " " + c.edit + " " + c.path }

// verdict is what became of the job.
type verdict struct {
	whole  bool     // every item of every fire runs
	says   []string // what hosts tell of what is wrong
	calls  int64    // of all hosts, in a time in which nothing happens but fires
	faults []string
	left   []string // nodes, once all hosts are gone
}

// quiet is how long a job has to heal, and how long it is then looked at.
const (
	healing = 6 * time.Minute
	looking = 2 * time.Minute
)

// play does the edits and reports what became of the job.
func (c spoil) play(t *testing.T, tell bool) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpoiler(t, c.String())
		s.begin(1)
		s.begin(2)
		moments[c.moment](s, func() {
			if err := edits[c.edit](s, s.path(c.path)); err != nil && tell {
				t.Logf("the edit: %v", err)
			}
		})
		v = s.judge()
		if tell {
			t.Log(s.story())
		}
	})
	return v
}

// story is what hosts did and logged, for people.
func (s *spoiler) story() string {
	var b strings.Builder
	b.WriteString("\n" + s.all())
	for _, e := range s.logs.All() {
		fmt.Fprintf(&b, "%s %s %v\n", e.Time.UTC().Format("15:04:05.000"), e.Message, e.ContextMap())
	}
	return named(b.String())
}

// judge gives the job time to heal and looks at it.
func (s *spoiler) judge() (v verdict) {
	time.Sleep(healing - time.Duration(time.Now().UnixNano()%int64(20*time.Second)))
	from := time.Now()
	s.calls.Store(0)
	time.Sleep(looking)
	v.calls = s.calls.Load()
	done := make(map[string]bool)
	for _, e := range s.list(event.ItemCompleted) {
		if e.Outcome == abi.OutcomeOK {
			done[e.RunID] = true
		}
	}
	v.whole = true
	for at := from.Add(20 * time.Second); at.Before(from.Add(looking - 20*time.Second)); at = at.Add(20 * time.Second) {
		for i := range s.def.ShardingTotalCount {
			if id := tree.RunID(garbageJob, tree.Fire{Instant: at.UnixMilli()}, i); !done[id] {
				v.whole = false
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(s.nodes)) {
		for _, j := range s.nodes[n].host.FullStatus().Jobs {
			if j.Reason != "" {
				v.says = append(v.says, named(fmt.Sprintf("%d %s: %s", n, j.State, j.Reason)))
			}
			for _, it := range j.Items {
				if it.Disabled {
					v.says = append(v.says, fmt.Sprintf("/test/j/sharding/%d/disabled: the item is disabled", it.Item))
				}
			}
			for _, h := range j.Hosts {
				if h.Java {
					v.says = append(v.says, fmt.Sprintf("/test/j/instances/%s: is a Java host", named(h.Instance)))
				}
			}
			for _, w := range j.Warnings {
				v.says = append(v.says, named(fmt.Sprintf("%d warns: %s", n, w)))
			}
		}
	}
	s.lone.mu.Lock()
	v.faults = append(v.faults, s.lone.faults...)
	s.lone.mu.Unlock()
	if n := s.logs.FilterMessageSnippet("not coming to rest").Len(); n > 0 {
		v.faults = append(v.faults, "the job was divided so often that it was slowed down")
	}
	for _, nd := range s.nodes {
		nd.stop()
	}
	for _, nd := range s.nodes {
		<-nd.done
	}
	for _, p := range s.tree(roots...) {
		if p = named(p); mark.MatchString(p) {
			v.left = append(v.left, p)
		}
	}
	v.faults = append(v.faults, s.errs...)
	return v
}

// mark is a node that stands for a host, or for what one does: it has to be
// gone when all hosts are.
var mark = regexp.MustCompile(`^/test/j/(instances/.|sharding/\d+/(running|failover|failovering)$|leader/(election/(instance|latch/.)|failover/(items/|latch/.)|sharding/processing)|trigger/.)|^/test.wasmjob/j/(assignment/.|instances/.|runs/.)`)

// nodesAt lists the nodes that there are at a moment.
func nodesAt(t *testing.T, moment string) (paths []string) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpoiler(t, moment)
		s.begin(1)
		s.begin(2)
		moments[moment](s, func() {
			for _, p := range s.tree(roots...) {
				paths = append(paths, named(p))
			}
		})
	})
	slices.Sort(paths)
	return slices.Compact(paths)
}

// most is the number of calls that three hosts have a use for in the time for
// which a job is looked at.
const most = 100

// check says what is wrong with what became of the job; nothing, if it is whole
// again, or if its hosts say why not and what to do.
func (v verdict) check(edited ...string) (wrong []string) {
	wrong = v.faults
	said := slices.ContainsFunc(v.says, func(s string) bool {
		return strings.Contains(s, "removed from the registry") || strings.Contains(s, "stopped by an operator") ||
			slices.ContainsFunc(edited, func(path string) bool { return strings.Contains(s, path) })
	})
	if !v.whole && !said {
		wrong = append(wrong, fmt.Sprintf("items do not run, and all that hosts say is %q", v.says))
	}
	if v.calls > most {
		wrong = append(wrong, fmt.Sprintf("hosts that should be at rest called the registry %d times in %s, and say %q", v.calls, looking, v.says))
	}
	for _, left := range v.left {
		if !slices.ContainsFunc(edited, func(path string) bool { return strings.HasPrefix(path, left) || strings.HasPrefix(left, path) }) {
			wrong = append(wrong, "left over: "+left)
		}
	}
	return wrong
}

// TestGarbage edits each node of a job, and nodes that it might have, in each
// way, while nothing runs, while items run, and while they are divided. No item
// may run twice at once; the job must heal, or its hosts say what is the matter
// with which node.
func TestGarbage(t *testing.T) {
	if *garbageCase != "" {
		words := strings.SplitN(*garbageCase, " ", 3)
		if len(words) != 3 || moments[words[0]] == nil || edits[words[1]] == nil {
			t.Fatalf("case %q: expected MOMENT EDIT PATH", *garbageCase)
		}
		v := spoil{words[0], words[1], words[2]}.play(t, true)
		t.Logf("%+v", v)
		for _, wrong := range v.check(words[2]) {
			t.Error(wrong)
		}
		return
	}
	t.Parallel()
	var played, healed atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d cases; %d of the jobs healed, of the others the hosts said why not (stride %d)", played.Load(), healed.Load(), *garbageStride)
	})
	for moment := range moments {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			paths := nodesAt(t, moment)
			for _, p := range besides {
				if !slices.Contains(paths, p) {
					paths = append(paths, p)
				}
			}
			for e, edit := range slices.Sorted(maps.Keys(edits)) {
				t.Run(edit, func(t *testing.T) {
					t.Parallel()
					for k, p := range paths {
						if (k+e)%*garbageStride != 0 {
							continue
						}
						c := spoil{moment, edit, p}
						v := c.play(t, false)
						played.Add(1)
						if v.whole {
							healed.Add(1)
						}
						for _, wrong := range v.check(p) {
							t.Errorf("%s: %s\n(repeat with: go test ./host/engine -run 'TestGarbage$' -v -garbage.case '%s')", c, wrong, c)
						}
					}
				})
			}
		})
	}
}

// nonsense is what somebody may write into any node; {1} is the id of a host.
var nonsense = []string{
	"", "null", "{}", "[]", "NaN", "-1", "x", "{1}", "{2}", "{1}\n{2}\nx/y\n@-@", "0-3", "0-999999", "1,0,-1", "DISABLED", "\x00\xff", "true",
	`{"owner":"a/../b","instant":1,"begun":1}`, `{"owner":"..","instant":1,"begun":1}`, `{"begun":1}`, `{"owner":"{1}","instant":9223372036854775807,"begun":1}`,
	`{"owner":"{2}","begun":1,"unknown":[{}]}`, `{"owner":"gone","instant":-5,"begun":-1,"ended":-1,"outcome":"?"}`, `{"instant":1e400}`,
	`{"instant":4102444800000,"trigger":9223372036854775807}`,
	`{"runs":[{"instant":1,"items":"0-3","marked":true}]}`, `{"runs":[{"instant":-5,"trigger":-1,"items":"0,2,900000"}],"java":"a/b"}`, `{"runs":[{"items":"x"}]}`,
	`{"runs":[{"instant":1,"source":"failover","items":"0-3"}],"java":"10.0.0.77@-@1"}`, `{"runs":[{"instant":1,"items":"2-900"}]}`,
	`{"total":-4,"members":["x"],"instances":["{1}"],"strategy":"none","pending":"0-3"}`, `{"java":true,"doubts":["x"],"total":4,"instances":["{1}","{2}"]}`,
	`{"total":4,"members":["{1}","{2}"],"instances":["{1}","{2}"],"strategy":"AVG_ALLOCATION"}`, `{"foreign":"0-9","foreigners":["/"],"pending":"9"}`,
	`{"state":"DRAINING"}`, `{"state":7}`, "jobName: j\ncron: ''\nshardingTotalCount: 2\n", "jobName: other\nshardingTotalCount: -2\n", "jobName: j\nshardingTotalCount: 7\ncron: 0/20 * * * * ?\nfailover: true\n",
	"jobName: j\nshardingTotalCount: 3\ncron: 0/20 * * * * ?\nmonitorExecution: false\n", "shardingTotalCount: [",
}

// overlap is in what the guest tells of two live runs of an item.
const overlap = "beside another live run"

// spoilAtRandom edits some nodes, each in some way.
func (s *spoiler) spoilAtRandom(r *rand.Rand) {
	var done []string
	for range 1 + r.IntN(3) {
		paths := s.tree("/test/j", "/test.wasmjob/j")
		path := s.path(besides[r.IntN(len(besides))])
		if k := r.IntN(5 * (1 + len(paths))); k < 4*len(paths) {
			path = paths[k%len(paths)]
		}
		if path == "/test/j" && r.IntN(10) > 0 { // that removes the job
			continue
		}
		if strings.HasSuffix(path, "/") { // the node of a host that has no instance
			continue
		}
		edit, err := "", error(nil)
		switch kinds := slices.Sorted(maps.Keys(edits)); r.IntN(2) {
		case 0:
			edit = kinds[r.IntN(len(kinds))]
			err = edits[edit](s, path)
		default:
			text := nonsense[r.IntN(len(nonsense))]
			edit = fmt.Sprintf("%q", text)
			err = s.write(path, []byte(s.path(text)))
		}
		s.edited = append(s.edited, named(path))
		line := edit + " " + path
		if err != nil {
			line += ": " + err.Error()
		}
		done = append(done, named(line))
	}
	s.note(strings.Join(done, "; "))
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, nd := range s.nodes {
		select {
		case <-nd.done:
			continue // it has left, or died
		default:
		}
		id := nd.host.Status().Instance
		if len(s.tree("/test/j/instances/"+id, "/test.wasmjob/j/instances/"+id)) == 0 {
			s.note(fmt.Sprintf("which declares host %d dead", n))
			s.declared = true
		}
	}
}

func (s *spoiler) note(what string) {
	s.wrote = append(s.wrote, time.Now().UTC().Format("04:05.000 ")+what)
}

// repair is what an operator does afterwards, besides bringing the job back if it was removed: the
// configuration is good, and nothing is disabled.
func (s *spoiler) repair() {
	config := registry.Data("/test/j/config")
	if nodes, err := s.hand.Read(context.Background(), config); err == nil && nodes[0].Exists {
		s.note("operator: repairs the configuration")
		if err := s.write(config.Path, s.def.YAML()); err != nil {
			s.errs = append(s.errs, err.Error())
		}
	}
	for _, p := range s.tree("/test/j/servers", "/test/j/sharding") {
		switch {
		case strings.HasPrefix(p, "/test/j/servers/") && strings.EqualFold(strings.TrimSpace(string(s.data(p))), "DISABLED"):
			s.note("operator: enables " + p)
			_ = s.write(p, []byte("ENABLED"))
		case strings.HasSuffix(p, "/disabled"):
			s.note("operator: enables " + p)
			_ = s.raze(p)
		}
	}
}

// spoilSeed plays a seed: some minutes of edits, while hosts come, go and die.
func spoilSeed(t *testing.T, seed uint64, tell bool) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := newSpoiler(t, fmt.Sprintf("seed %d", seed))
		s.def.Failover = r.IntN(3) > 0
		s.def.MonitorExecution = s.def.Failover || r.IntN(2) > 0
		s.begin(1)
		s.begin(2)
		time.Sleep(time.Duration(20+r.IntN(25)) * time.Second)
		next := 3
		for range 1 + r.IntN(3) {
			s.spoilAtRandom(r)
			time.Sleep(time.Duration(r.IntN(40_000)) * time.Millisecond)
			n := 1 + r.IntN(next-1)
			switch nd := s.nodes[n]; r.IntN(6) {
			case 0:
				s.note(fmt.Sprintf("host %d is killed", n))
				nd.kill()
				<-nd.done
			case 1:
				s.note(fmt.Sprintf("host %d is stopped", n))
				nd.stop()
				<-nd.done
			case 2, 3:
				s.note(fmt.Sprintf("host %d is started", next))
				s.begin(next)
				next++
			case 4:
				_ = nd.operator().Trigger(t.Context(), garbageJob) // the host may be gone
			}
			time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		_ = s.other.Close()
		s.repair()
		s.note(fmt.Sprintf("host %d is started", next))
		s.begin(next)
		time.Sleep(10 * time.Second) // until it has joined, or has found that the job is away
		if _, err := s.nodes[next].operator().Restore(t.Context(), garbageJob); err == nil {
			s.note("operator: restores the job")
		} else if !errors.Is(err, operate.ErrNotAway) {
			s.note("operator: cannot restore the job: " + err.Error())
		}
		v := s.judge()
		wrong := v.faults
		if s.declared {
			wrong = slices.DeleteFunc(wrong, func(f string) bool { return strings.Contains(f, overlap) })
		}
		said := slices.ContainsFunc(s.edited, func(path string) bool { return strings.Contains(fmt.Sprint(v.says), path) })
		if !v.whole && !said {
			wrong = append(wrong, fmt.Sprintf("items do not run; hosts say %q", v.says))
		}
		if v.calls > int64(next)*most/2 {
			wrong = append(wrong, fmt.Sprintf("%d hosts that should be at rest called the registry %d times in %s, and say %q", next, v.calls, looking, v.says))
		}
		if tell {
			t.Log(s.story())
		}
		if len(wrong) > 0 || tell {
			t.Logf("seed %d: %s\nleft over %q, says %q", seed, strings.Join(s.wrote, "\n"), v.left, v.says)
		}
		for _, w := range wrong {
			t.Errorf("seed %d: %s\n(repeat with: go test ./host/engine -run TestGarbageAtRandom -v -garbage.seed %d)", seed, w, seed)
		}
	})
}

// TestGarbageAtRandom edits several nodes at once, again and again, while hosts
// come, go and die. When an operator has mended what is his, the configuration
// and what is disabled, the job heals by itself, or its hosts name the node.
func TestGarbageAtRandom(t *testing.T) {
	if *garbageSeed != 0 {
		spoilSeed(t, uint64(*garbageSeed), true)
		return
	}
	t.Parallel()
	const groups = 4
	for g := range groups {
		t.Run(fmt.Sprintf("group%d", g), func(t *testing.T) {
			t.Parallel()
			for seed := g + 1; seed <= *garbageSeeds; seed += groups {
				spoilSeed(t, uint64(seed), false)
			}
		})
	}
}
