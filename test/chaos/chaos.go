// Package chaos attacks a cluster of real processes and says whether the
// promises of delivery held. It starts hosts, and ZooKeeper servers unless it
// is given a test cluster, keeps them busy, breaks one thing after the other by
// a plan that a seed makes, and judges by four kinds of evidence:
//
//   - the event histories of all hosts, by package host/history/verify;
//   - what the guests themselves said, by their own clock, on their hosts'
//     stderr, which no event goes through;
//   - ZooKeeper's transaction log, in which every write of every session
//     stands in the one order that there was (of its own servers only);
//   - the offsets at the end: each holds a sum that only comes out if no batch
//     was lost, repeated or overwritten.
//
// Nothing of it is part of a host. The hosts are the program itself, as an
// operator would start it.
package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

//go:embed testdata/guest.wasm
var guestModule []byte

// Options say what to attack, and for how long. Program and Dial are required.
type Options struct {
	// Program is the binary of a host.
	Program string
	// Dial opens a session of the attacker's own, to look at the registry.
	Dial func(ctx context.Context, connect string, sessionTimeout time.Duration) (registry.Center, error)
	// Connect names the servers of a test cluster. Empty: three servers are
	// started, and attacked too.
	Connect string
	// Namespace of the jobs; empty is "chaos".
	Namespace string
	// Reuse allows a namespace that has jobs. Otherwise that is refused.
	Reuse bool
	// Duration is for how long faults are begun; 0 is 10 minutes, and negative
	// is until each kind was there once.
	Duration time.Duration
	// SessionTimeout of the hosts; 0 is 6 s for the own servers, whose ticks
	// are short, and 30 s for others.
	SessionTimeout time.Duration
	// Seed makes the plan; the same seed makes the same one.
	Seed uint64
	// Hosts is how many; 0 is 4.
	Hosts int
	// Kinds are the faults; nil is all that can be made here.
	Kinds []Kind
	// Dir is where everything is kept: histories, logs, the servers' data. It
	// must be empty or absent. Empty is a temporary one, which is removed at the
	// end if nothing was violated and Keep is not set.
	Dir  string
	Keep bool
	// HostFlags and HostEnv are given to every host, for the way to ZooKeeper.
	HostFlags, HostEnv []string
	// Say is called with what goes on, one line at a time; nil is silence.
	Say func(line string)
}

// Defaults of Options.
const (
	DefaultDuration  = 10 * time.Minute
	DefaultHosts     = 4
	DefaultNamespace = "chaos"
	ownSession       = 6 * time.Second
	otherSession     = 30 * time.Second
	// tick of the own servers. Sessions end at multiples of it.
	tick = 400 * time.Millisecond
	// syncLimit is how many ticks a server may be cut off from its leader.
	syncLimit = 4
	// diskSize is what there is for the data of the server whose disk fills up.
	diskSize = 192 << 20
)

// stage is all that an attack has set up.
type stage struct {
	o        Options
	start    time.Time
	random   *rand.Rand
	dir      string
	own      *zkserver.Ensemble // nil for a test cluster
	servers  []string           // HOST:PORT
	chroot   string
	tick     time.Duration
	disk     string // the small disk's directory; empty if there is none
	noDisk   string // why not
	hosts    []*node
	evidence *evidence
	registry registry.Center
	report   *Report
	module   int       // the newest version of the module
	rolled   time.Time // when all hosts had that
	flex     bool      // the job flex has more items than its definition says
	standing *standing // what an operator said that still holds; nil for nothing
	expected int       // jobs that every host has
	deaf     bool      // what guests say is not kept
	calm     time.Time // when all jobs were disabled, at the end
	had      []string  // jobs that were in a test cluster's namespace before
	was      bool      // that namespace was there
}

// Run attacks. The report is nil if there is none because it could not begin;
// violations are in the report, and not an error. When ctx ends, the attack
// ends early and is judged all the same.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	s, err := newStage(o)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	defer func() {
		if err != nil && s.own == nil && len(s.hosts) > 0 {
			err = fmt.Errorf("%w; jobs of this attack may be left in namespace %s: have them taken away", err, s.o.Namespace)
		}
		if cerr := s.close(err != nil); cerr != nil {
			err = errors.Join(err, fmt.Errorf("chaos: %w", cerr))
		}
	}()
	if err := s.set(ctx); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	if err := s.attack(ctx); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	if err := s.judge(); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	if err := s.clear(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	return s.report, s.keepReport()
}

func newStage(o Options) (*stage, error) {
	if o.Program == "" || o.Dial == nil {
		return nil, errors.New("options: Program and Dial are required")
	}
	if o.Namespace == "" {
		o.Namespace = DefaultNamespace
	}
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.Hosts == 0 {
		o.Hosts = DefaultHosts
	}
	if o.Hosts < 2 || o.Hosts > 50 {
		return nil, fmt.Errorf("%d hosts, expected 2 to 50", o.Hosts)
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = ownSession
		if o.Connect != "" {
			o.SessionTimeout = otherSession
		}
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	s := &stage{o: o, start: time.Now(), random: rand.New(rand.NewPCG(o.Seed, 0x77)), tick: tick, module: 1, expected: len(jobs())}
	s.report = newReport(s.o)
	for _, k := range o.Kinds {
		if _, known := kinds()[k]; !known {
			return nil, fmt.Errorf("%q is no kind of fault; there are %s", k, strings.Join(names(), ", "))
		}
	}
	var err error
	if o.Dir == "" {
		s.dir, err = os.MkdirTemp("", "wasmjob-chaos-")
	} else if s.dir, err = filepath.Abs(o.Dir); err == nil {
		err = emptyDir(s.dir)
	}
	if err != nil {
		return nil, err
	}
	s.report.Dir = s.dir
	s.evidence = newEvidence()
	return s, nil
}

// emptyDir makes a directory, or sees that there is nothing in it.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s is not empty; what is kept there would be mixed up", dir)
	}
	return err
}

// set brings everything up and waits until all jobs run.
func (s *stage) set(ctx context.Context) error {
	if s.o.Connect == "" {
		if err := s.startServers(ctx); err != nil {
			return err
		}
	} else {
		var servers string
		servers, s.chroot, _ = strings.Cut(s.o.Connect, "/")
		if s.chroot != "" {
			s.chroot = "/" + s.chroot
		}
		s.servers = strings.Split(servers, ",")
		s.tick = 2 * time.Second
	}
	s.report.Tick = s.tick
	connect := strings.Join(s.servers, ",") + s.chroot
	var err error
	if s.registry, err = s.dial(ctx, connect); err != nil {
		return err
	}
	if err := s.vacant(ctx); err != nil {
		return err
	}
	for i := range s.o.Hosts {
		h, err := newNode(s, i)
		if err != nil {
			return err
		}
		s.hosts = append(s.hosts, h)
		if err := h.equip(version(s.module), jobs()); err != nil {
			return err
		}
	}
	for _, h := range s.hosts {
		if err := h.start(); err != nil {
			return err
		}
	}
	s.say("%d hosts start, session timeout %s, seed %d, everything is kept in %s", len(s.hosts), s.o.SessionTimeout, s.o.Seed, s.dir)
	if err := s.settle(ctx, time.Now(), 2*time.Minute); err != nil {
		return fmt.Errorf("the cluster did not come up: %w", err)
	}
	s.report.Before = s.measure(ctx)
	s.say("all jobs run")
	return nil
}

func (s *stage) startServers(ctx context.Context) error {
	dir := filepath.Join(s.dir, "zookeeper")
	s.disk = filepath.Join(dir, "server2")
	if err := os.MkdirAll(s.disk, 0o755); err != nil {
		return err
	}
	if err := mountSmallDisk(s.disk, diskSize); err != nil {
		s.disk, s.noDisk = "", err.Error()
	}
	starting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var err error
	s.own, err = zkserver.Start(starting, zkserver.Options{
		Servers: 3, Dir: dir, TickTime: tick, SyncLimit: syncLimit, PeerProxies: true, NoSync: true,
		// A follower that does not catch up in time on a busy machine begins an
		// election in the middle of it, in which versions up to 3.8 may lose what
		// they have confirmed.
		Extra: map[string]string{"autopurge.purgeInterval": "0", "snapCount": "100000", "initLimit": "75"},
	})
	if err != nil {
		return err
	}
	for i := range s.own.Len() {
		s.servers = append(s.servers, s.own.Addr(i))
	}
	return nil
}

func (s *stage) dial(ctx context.Context, connect string) (registry.Center, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r, err := s.o.Dial(ctx, connect, max(s.o.SessionTimeout, 30*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", connect, err)
	}
	return r, nil
}

// vacant sees that nobody's jobs are in the namespace.
func (s *stage) vacant(ctx context.Context) error {
	nodes, err := s.registry.Read(ctx, registry.Children(tree.JobsPath(s.o.Namespace)))
	if err != nil {
		return err
	}
	s.had, s.was = nodes[0].Names, nodes[0].Exists
	if len(s.had) > 0 && !s.o.Reuse {
		return fmt.Errorf("namespace %s has jobs (%s); name another, have what an attack left there taken away, or say that it may be used all the same",
			s.o.Namespace, strings.Join(s.had[:min(len(s.had), 5)], ", "))
	}
	return nil
}

// looked gives a session to look at the registry with: the one there is, or a
// new one if that is over.
func (s *stage) looked(ctx context.Context) (registry.Center, error) {
	select {
	case <-s.registry.Lost():
	default:
		return s.registry, nil
	}
	_ = s.registry.Close() // it is over
	r, err := s.dial(ctx, strings.Join(s.servers, ",")+s.chroot)
	if err == nil {
		s.registry = r
	}
	return r, err
}

func (s *stage) say(format string, args ...any) {
	s.o.Say(fmt.Sprintf("%7.1fs  ", time.Since(s.start).Seconds()) + fmt.Sprintf(format, args...))
}

// close ends all that runs. failed keeps the directory.
func (s *stage) close(failed bool) error {
	var problems []error
	for _, h := range s.hosts {
		h.close()
	}
	if s.registry != nil {
		problems = append(problems, s.registry.Close())
	}
	if s.own != nil {
		problems = append(problems, s.own.Close())
	}
	if s.disk != "" {
		problems = append(problems, s.saveSmallDisk())
	}
	if s.o.Dir == "" && !s.o.Keep && !failed && s.report.OK() {
		s.report.Dir = ""
		problems = append(problems, os.RemoveAll(s.dir))
	}
	return errors.Join(problems...)
}

// version is the module with another number in it, so that its digest differs.
func version(n int) []byte {
	return regexp.MustCompile(`version \d`).ReplaceAll(guestModule, fmt.Appendf(nil, "version %d", n%10))
}

// pause waits; false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// until asks every so often whether something holds that other processes do not
// tell of. It fails with the last reason why not.
func until(ctx context.Context, every, patience time.Duration, look func() error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := look()
		if err == nil {
			return nil
		}
		if !pause(ctx, every) {
			return fmt.Errorf("waited %s in vain: %w", time.Since(began).Round(time.Millisecond), err)
		}
	}
}

func sorted[K ~string, V any](m map[K]V) []K {
	var keys []K
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
