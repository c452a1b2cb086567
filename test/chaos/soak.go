package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// SoakOptions say how long a cluster is watched, and what happens to it
// meanwhile. Program and Dial are required.
type SoakOptions struct {
	// Program and Dial are those of [Options].
	Program string
	Dial    func(ctx context.Context, connect string, sessionTimeout time.Duration) (registry.Center, error)
	// Modules are more modules, as files, that have jobs beside the built-in one
	// in C: of each up to ten of the jobs are, by its base name: cities (a
	// parameter for each item) and slow (a duration).
	Modules []string
	// Duration is for how long; 0 is two hours.
	Duration time.Duration
	// Faults is how many faults are made at least, also if that takes longer than Duration. The kinds
	// come in turn: five make one of each.
	Faults int
	// Jobs is how many; 0 is 200.
	Jobs int
	// Reload, Fault, Trigger and Sample are how often a module or a definition
	// is replaced (0: 5 s), a fault made (2 min), a job triggered (15 s), and all
	// measured (a sixtieth of Duration, 2 s to 30 s).
	Reload, Fault, Trigger, Sample time.Duration
	// SessionTimeout of the hosts; 0 is 10 s, longer than in an attack, for a
	// machine that others use.
	SessionTimeout time.Duration
	// Seed makes the choices.
	Seed uint64
	// Dir keeps everything, and must be empty or absent. It is required.
	Dir string
	// Say is called with what goes on, one line at a time; nil is silence.
	Say func(line string)
}

const (
	soakNamespace = "soak"
	soakHosts     = 3
	soakSession   = 10 * time.Second
	soakLog       = "soak.log"
	// faultMark begins what is said of a fault.
	faultMark = "FAULT: "
	// perModule is how many jobs share a module.
	perModule = 10
)

// soak is a stage on which little happens, for long.
type soak struct {
	*stage
	o       SoakOptions
	log     *os.File
	samples *os.File
	files   []bundle
	cycle   int // of faults
	version int
	gone    *bundle // its definitions are
}

// bundle is a module and the jobs that share it.
type bundle struct {
	name   string // without an extension
	module []byte
	jobs   []job
	// heavy modules take long to compile, and are replaced more rarely.
	heavy bool
}

// Soak keeps a cluster of three hosts and one ZooKeeper server busy, replaces
// modules and definitions, makes a fault now and then, and measures what all of
// them use. What it finds is in the directory, line by line, so that [JudgeSoak]
// can be asked at any time, also while it runs or after it was killed. When ctx
// ends, it comes to its end early.
func Soak(ctx context.Context, o SoakOptions) (_ *SoakReport, err error) {
	s, err := newSoak(o)
	if err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	defer func() {
		cerr := errors.Join(s.close(true), s.log.Close(), s.samples.Close())
		if err == nil && cerr != nil {
			err = fmt.Errorf("soak: %w", cerr)
		}
	}()
	if err := s.raise(ctx); err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	if err := s.last(ctx); err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	if err := s.finish(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("soak: %w", err)
	}
	return JudgeSoak(ctx, s.dir)
}

func newSoak(o SoakOptions) (*soak, error) {
	standard := func(d *time.Duration, or time.Duration) {
		if *d == 0 {
			*d = or
		}
	}
	standard(&o.Duration, 2*time.Hour)
	standard(&o.Reload, 5*time.Second)
	standard(&o.Fault, 2*time.Minute)
	standard(&o.Trigger, 15*time.Second)
	standard(&o.Sample, min(30*time.Second, max(2*time.Second, o.Duration/60))) // a short soak has enough for a verdict, too
	standard(&o.SessionTimeout, soakSession)
	if o.Jobs == 0 {
		o.Jobs = 200
	}
	if o.Dir == "" || o.Jobs < 1 {
		return nil, errors.New("options: Dir and at least one job are required")
	}
	st, err := newStage(Options{
		Program: o.Program, Dial: o.Dial, Dir: o.Dir, Namespace: soakNamespace, Hosts: soakHosts, SessionTimeout: o.SessionTimeout,
		Seed: o.Seed, Duration: o.Duration, Keep: true,
	})
	if err != nil {
		return nil, err
	}
	s := &soak{stage: st, o: o}
	if s.files, err = bundles(o, st.random); err != nil {
		return nil, err
	}
	st.deaf, st.expected = true, o.Jobs
	if s.log, err = os.Create(filepath.Join(st.dir, soakLog)); err != nil {
		return nil, err
	}
	if s.samples, err = os.Create(filepath.Join(st.dir, samplesFile)); err != nil {
		return nil, errors.Join(err, s.log.Close())
	}
	st.o.Say = func(line string) {
		_, _ = fmt.Fprintf(s.log, "%s %s\n", time.Now().UTC().Format(time.TimeOnly), line)
		if o.Say != nil {
			o.Say(line)
		}
	}
	return s, nil
}

// soakJob is a kind of job and how many of a hundred are of it. Most do little
// and often.
type soakJob struct {
	share  int
	name   string
	period int // seconds
	items  int
	adds   bool
	more   []string
}

func soakJobs() []soakJob {
	simple := func(parameter string, more ...string) []string {
		return append([]string{"type: SIMPLE", "failover: true", "jobParameter: " + parameter}, more...)
	}
	return []soakJob{
		{share: 5, name: "tick", period: 5, items: 2, more: simple("work:30")},
		{share: 15, name: "short", period: 10, items: 2, more: simple("work:100")},
		{share: 30, name: "calm", period: 15, items: 3, more: simple("work:200")},
		{share: 8, name: "plain", period: 20, items: 2, more: []string{"type: SIMPLE", "failover: false", "jobParameter: work:500"}},
		{share: 8, name: "long", period: 30, items: 2, more: simple("work:3000")},
		{share: 3, name: "deaf", period: 30, items: 2, more: simple("stubborn:3000")},
		{share: 1, name: "late", period: 10, items: 1, more: simple("work:14000", "misfire: true")},
		{share: 1, name: "spin", period: 30, items: 1, more: simple("spin", "timeout: 300ms")},
		{share: 9, name: "fail", period: 30, items: 3,
			more: []string{"type: SIMPLE", "failover: true", "retry: {attempts: 2, backoff: 200ms}", "shardingItemParameters: {0: fail, 1: retry, 2: trap}"}},
		{share: 10, name: "ledger", period: 20, items: 2, adds: true, more: simple("ledger:3")},
		{share: 10, name: "sum", period: 20, items: 2, adds: true,
			more: []string{"type: DATAFLOW", "streamingProcess: true", "failover: true", "jobParameter: sum:50"}},
	}
}

// bundles makes up all jobs.
func bundles(o SoakOptions, random *rand.Rand) ([]bundle, error) {
	cron := func(period int) (string, time.Duration) {
		return fmt.Sprintf("%d/%d * * * * ?", random.IntN(period), period), time.Duration(period) * time.Second
	}
	var list []bundle
	left := o.Jobs
	for _, file := range o.Modules {
		module, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		b := bundle{name: strings.TrimSuffix(filepath.Base(file), ".wasm"), module: module, heavy: true}
		var more []string
		switch b.name {
		case "cities":
			more = []string{"type: SIMPLE", "failover: true", "shardingItemParameters: 0=Beijing,1=Shanghai"}
		case "slow":
			more = []string{"type: SIMPLE", "failover: true", "jobParameter: 1500ms"}
		default:
			return nil, fmt.Errorf("%s: what its jobs need is known of cities.wasm and slow.wasm only", file)
		}
		for i := range min(perModule, left/4) {
			j := job{name: fmt.Sprintf("%s-%d", b.name, i), items: 2, more: more}
			j.cron, j.period = cron(30)
			b.jobs = append(b.jobs, j)
		}
		left -= len(b.jobs)
		list = append(list, b)
	}
	var deck []soakJob
	for _, k := range soakJobs() {
		for range k.share {
			deck = append(deck, k)
		}
	}
	var all []job
	for i := range left {
		if i%len(deck) == 0 {
			random.Shuffle(len(deck), func(i, k int) { deck[i], deck[k] = deck[k], deck[i] })
		}
		k := deck[i%len(deck)]
		j := job{name: fmt.Sprintf("%s-%03d", k.name, i), items: k.items, more: k.more, adds: k.adds, failover: true}
		j.cron, j.period = cron(k.period)
		all = append(all, j)
	}
	for part := range slices.Chunk(all, perModule) {
		// Each has a module of its own from the beginning, as after its first reload: a host has an open file for each.
		module := revised(guestModule, -1-len(list))
		list = append(list, bundle{name: fmt.Sprintf("guest%02d", len(list)), module: module, jobs: part})
	}
	return list, nil
}

// definitions is the bundle's YAML file. The revision is in each description.
func (b *bundle) definitions(revision int) []byte {
	var documents []string
	for _, j := range b.jobs {
		text := strings.Replace(j.definition(), moduleFile, b.name+".wasm", 1)
		documents = append(documents, text+fmt.Sprintf("description: revision %d\n", revision))
	}
	return []byte(strings.Join(documents, "---\n"))
}

// revised is the module with a section of its own behind, so that it is another
// one and does the same.
func revised(module []byte, revision int) []byte {
	const name = "revision"
	body := append([]byte{byte(len(name))}, name...)
	body = fmt.Appendf(body, "%d", revision)
	section := append([]byte{0}, binary.AppendUvarint(nil, uint64(len(body)))...)
	return slices.Concat(module, section, body)
}

func (s *soak) jobs() []job {
	var list []job
	for _, b := range s.files {
		list = append(list, b.jobs...)
	}
	return list
}

// everywhere puts a file into the plugins directory of all hosts.
func (s *soak) everywhere(name string, data []byte) error {
	var err error
	for _, h := range s.hosts {
		err = errors.Join(err, h.put(name, data))
	}
	return err
}

// raise brings the cluster up.
func (s *soak) raise(ctx context.Context) error {
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	s.own, err = zkserver.Start(starting, zkserver.Options{
		Dir: filepath.Join(s.dir, "zookeeper"), TickTime: tick, NoSync: true,
		Extra: map[string]string{"autopurge.purgeInterval": "1", "snapCount": "100000"},
	})
	if err != nil {
		return err
	}
	s.servers = []string{s.own.Addr(0)}
	s.stage.tick = tick
	if s.registry, err = s.dial(ctx, s.servers[0]); err != nil {
		return err
	}
	for i := range s.stage.o.Hosts {
		h, err := newNode(s.stage, i)
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, h)
	}
	for _, b := range s.files {
		if err := errors.Join(s.everywhere(b.name+".wasm", b.module), s.everywhere(b.name+".yaml", b.definitions(0))); err != nil {
			return err
		}
	}
	for _, h := range s.hosts {
		if err := h.start(); err != nil {
			return err
		}
	}
	s.say("%d jobs of %d modules on %d hosts for %s", len(s.jobs()), len(s.files), len(s.hosts), s.o.Duration)
	return until(ctx, time.Second, 5*time.Minute, func() error {
		for _, h := range s.hosts {
			if err := h.live(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// last lasts. All that happens comes one after the other, so that a measurement
// knows what is broken at the time.
func (s *soak) last(ctx context.Context) error {
	s.say("all jobs are there")
	if err := s.head(); err != nil {
		return err
	}
	now := time.Now()
	end := now.Add(s.o.Duration)
	sample, reload, trigger, fault := now, now.Add(s.o.Reload), now.Add(s.o.Trigger), now.Add(s.o.Fault)
	var wound *injury
	what, early := "", false
	for {
		next := []time.Time{sample, reload, trigger, fault}
		lacks := s.cycle < s.o.Faults // some of the faults are still to be made
		if !lacks {
			next = append(next, end)
		}
		if !pause(ctx, time.Until(slices.MinFunc(next, time.Time.Compare))) {
			s.say("it ends early")
			early = true
		}
		now = time.Now()
		var err error
		switch {
		case early || (!lacks && !now.Before(end)):
			if wound != nil {
				err = wound.heal(context.WithoutCancel(ctx))
			}
			return err
		case !now.Before(fault) && wound == nil:
			if what, wound, err = s.hurt(ctx); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			s.say("%s%s (%s)", faultMark, what, wound.text)
			fault = time.Now().Add(wound.hold)
		case !now.Before(fault):
			if err = wound.heal(ctx); err != nil {
				return fmt.Errorf("ending %s: %w", what, err)
			}
			fault, wound, what = time.Now().Add(s.o.Fault), nil, ""
		case !now.Before(sample):
			// Not always at the same place between the instants of the jobs.
			sample = now.Add(s.o.Sample + time.Duration(s.random.Int64N(int64(time.Second))))
			err = s.sample(ctx, what, wound)
		case !now.Before(reload):
			reload = now.Add(s.o.Reload)
			err = s.reload()
		case !now.Before(trigger):
			trigger = now.Add(s.o.Trigger)
			s.fire(ctx, wound)
		}
		if err != nil {
			return err
		}
	}
}

// hurt makes the next fault: all kinds in turn. The first host is never ended,
// so that it grows old.
func (s *soak) hurt(ctx context.Context) (string, *injury, error) {
	mortal := s.hosts[1+s.random.IntN(len(s.hosts)-1)]
	any := s.anyHost()
	long := s.o.SessionTimeout*8/5 + s.stage.tick
	turn := s.cycle
	s.cycle++
	switch turn % 8 {
	case 0, 5:
		n, err := s.killHost(mortal, time.Duration(turn%3)*s.o.SessionTimeout)
		return "kill -9", n, err
	case 1, 6:
		return "cut off", s.partition(any, long, func(p *zkserver.Proxy) { p.Hold(zkserver.ToServer | zkserver.ToClient) }), nil
	case 2, 7:
		n, err := s.haltHost(ctx, mortal, long) // the kernel may end it
		return "SIGSTOP", n, err
	case 3:
		n, err := s.killServers(time.Second, 0)
		return "ZooKeeper restarts", n, err
	default:
		n, err := s.drainHost(ctx, mortal)
		return "SIGTERM", n, err
	}
}

// heavyReload is how many reloads lie between two of a module that is heavy.
const heavyReload = 60

// reload replaces a module, or a file of definitions: with another description,
// sometimes also another number of items. Sometimes the definitions go, and come
// back with the next reload.
func (s *soak) reload() error {
	s.version++
	if b := s.gone; b != nil {
		s.gone = nil
		return s.everywhere(b.name+".yaml", b.definitions(s.version))
	}
	b := &s.files[s.random.IntN(len(s.files))]
	switch what := s.random.IntN(20); {
	case s.version%heavyReload == 0 && s.files[0].heavy:
		for !b.heavy {
			b = &s.files[s.random.IntN(len(s.files))]
		}
		return s.everywhere(b.name+".wasm", revised(b.module, s.version))
	case what < 13 && !b.heavy:
		return s.everywhere(b.name+".wasm", revised(b.module, s.version))
	case what < 14 && !b.heavy:
		s.gone = b
		for _, h := range s.hosts {
			if err := os.Remove(filepath.Join(h.dir, "plugins", b.name+".yaml")); err != nil {
				return err
			}
		}
		return nil
	case what < 17:
		if j := &b.jobs[s.random.IntN(len(b.jobs))]; !j.adds && !b.heavy && !strings.HasPrefix(j.name, "fail") {
			j.items = 1 + s.random.IntN(3)
		}
	}
	return s.everywhere(b.name+".yaml", b.definitions(s.version))
}

// fire triggers a job at a host that is not suffering. It may fail.
func (s *soak) fire(ctx context.Context, wound *injury) {
	all := s.jobs()
	j := all[s.random.IntN(len(all))]
	for _, i := range s.random.Perm(len(s.hosts)) {
		h := s.hosts[i]
		if wound != nil && slices.Contains(wound.hosts, h) {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var c *client.Client
		var err error
		if c, err = h.client(asking); err == nil {
			err = c.Trigger(asking, j.name)
		}
		if err != nil && wound == nil {
			s.say("triggering %s at %s: %v", j.name, h.name, err)
		}
		return
	}
}

// finish lets all come to rest, sees that the registry is in order, and ends the
// hosts.
func (s *soak) finish(ctx context.Context) error {
	s.say("the time is over; all has to come to rest")
	err := s.awaitServers(ctx)
	if err == nil && s.gone != nil {
		err = s.reload()
	}
	if err != nil {
		return err
	}
	err = until(ctx, time.Second, 2*time.Minute, func() error {
		for _, h := range s.hosts {
			if err := h.live(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.violate("a host did not come back: %v", err)
	}
	// For the last fault and the last reloads.
	pause(ctx, 2*s.o.SessionTimeout)
	if err := s.sample(ctx, "", nil); err != nil {
		return err
	}
	if err := s.inOrder(ctx); err != nil {
		return err
	}
	if err := s.shutDown(ctx, s.jobs()); err != nil {
		return err
	}
	s.say("all hosts have ended")
	return nil
}
