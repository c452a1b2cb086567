package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// Kind is a kind of fault.
type Kind string

// The kinds. Of a test cluster only those that the hosts suffer are made; what
// happens to servers is left to its owner.
const (
	KillLeader      Kind = "kill-leader"        // kill -9 of the host that leads a job
	KillFollower    Kind = "kill-follower"      // kill -9 of another one
	KillAndReturn   Kind = "kill-and-return"    // kill -9, and started again at once
	Halt            Kind = "halt"               // SIGSTOP beyond the session, SIGCONT; the kernel may end it
	HaltShort       Kind = "halt-short"         // SIGSTOP for a quarter of it
	Partition       Kind = "partition"          // a host loses all its connections
	PartitionSilent Kind = "partition-silent"   // its connections stay open, nothing comes through
	PartitionDeaf   Kind = "partition-deaf"     // what it sends arrives, the answers do not
	PartitionShort  Kind = "partition-short"    // silent, for a quarter of the session
	SlowLinks       Kind = "slow-links"         // all hosts' links are slow
	Drain           Kind = "drain"              // SIGTERM, and started again
	Rolling         Kind = "rolling-restart"    // all hosts one by one, with a new version of the module
	ServerKilled    Kind = "zk-follower-kill"   // kill -9 of a server that follows
	ServerCut       Kind = "zk-server-cut"      // a server is parted from the others, and still answers its clients
	LeaderKilled    Kind = "zk-leader-kill"     // kill -9 of the server that leads
	LeaderHalted    Kind = "zk-leader-halt"     // SIGSTOP of it, beyond the session
	QuorumShort     Kind = "zk-quorum-short"    // two servers halt for less than half of the session
	QuorumLong      Kind = "zk-quorum-long"     // two servers are killed, beyond the session
	AllRestarted    Kind = "zk-all-restart"     // all servers are stopped and started
	DiskFull        Kind = "zk-disk-full"       // no room for a server's data
	KillDuringVote  Kind = "kill-and-zk-kill"   // a host and the server that leads, at once
	HaltAndPart     Kind = "halt-and-slow"      // a host halts while links are slow
	TwoHosts        Kind = "kill-and-partition" // one host is killed, another cut off
)

// injury is a fault that has been made.
type injury struct {
	text string
	// hosts suffer it; crashed are the processes whose runs it cut off.
	hosts   []*node
	crashed []*stint
	// from is when it was made; zero if that took no time.
	from time.Time
	// hold is how long it lasts, heal ends it.
	hold time.Duration
	heal func(ctx context.Context) error
	// servers: it is servers that do not run, and so there may be no leader.
	servers bool
}

// spec is how a kind is made.
type spec struct {
	what string
	// servers says that it needs servers of our own.
	servers bool
	make    func(ctx context.Context, s *stage) (*injury, error)
}

// kinds are all of them.
func kinds() map[Kind]spec {
	long := func(s *stage) time.Duration { return s.o.SessionTimeout*8/5 + s.tick }
	short := func(s *stage) time.Duration { return s.o.SessionTimeout / 4 }
	links := func(what string, hold func(*stage) time.Duration, do func(*zkserver.Proxy)) spec {
		return spec{what: what, make: func(_ context.Context, s *stage) (*injury, error) {
			return s.partition(s.anyHost(), hold(s), do), nil
		}}
	}
	return map[Kind]spec{
		KillLeader: {what: "kill -9 of a host that leads a job", make: func(ctx context.Context, s *stage) (*injury, error) {
			return s.killHost(s.leadingHost(ctx, true), s.o.SessionTimeout+s.tick+2*time.Second)
		}},
		KillFollower: {what: "kill -9 of a host that does not lead it", make: func(ctx context.Context, s *stage) (*injury, error) {
			return s.killHost(s.leadingHost(ctx, false), s.o.SessionTimeout+s.tick+2*time.Second)
		}},
		KillAndReturn: {what: "kill -9 of a host, started again at once", make: func(_ context.Context, s *stage) (*injury, error) {
			return s.killHost(s.anyHost(), 0)
		}},
		Halt: {what: "SIGSTOP of a host beyond its session, then SIGCONT, or a new process if the kernel has ended it", make: func(ctx context.Context, s *stage) (*injury, error) {
			return s.haltHost(ctx, s.anyHost(), long(s))
		}},
		HaltShort: {what: "SIGSTOP of a host for a quarter of its session", make: func(ctx context.Context, s *stage) (*injury, error) {
			return s.haltHost(ctx, s.anyHost(), short(s))
		}},
		Partition:       links("a host is cut off: connections closed", long, (*zkserver.Proxy).Cut),
		PartitionSilent: links("a host is cut off: connections open, nothing comes through", long, func(p *zkserver.Proxy) { p.Hold(zkserver.ToServer | zkserver.ToClient) }),
		PartitionDeaf:   links("a host is half cut off: its requests arrive, the answers do not", long, func(p *zkserver.Proxy) { p.Hold(zkserver.ToClient) }),
		PartitionShort:  links("a host is cut off for a quarter of its session", short, func(p *zkserver.Proxy) { p.Hold(zkserver.ToServer | zkserver.ToClient) }),
		SlowLinks: {what: "every link of every host takes 100 ms more each way", make: func(_ context.Context, s *stage) (*injury, error) {
			return s.slow(2*s.o.SessionTimeout, 100*time.Millisecond), nil
		}},
		Drain:   {what: "SIGTERM of a host, started again", make: func(ctx context.Context, s *stage) (*injury, error) { return s.drainHost(ctx, s.anyHost()) }},
		Rolling: {what: "rolling restart of all hosts with a new version of the module", make: func(ctx context.Context, s *stage) (*injury, error) { return s.roll(ctx) }},

		ServerKilled: {what: "kill -9 of a ZooKeeper server that follows", servers: true, make: func(ctx context.Context, s *stage) (*injury, error) {
			_, followers, err := s.quorum(ctx)
			if err != nil {
				return nil, err
			}
			return s.killServers(3*time.Second, followers[s.random.IntN(len(followers))])
		}},
		LeaderKilled: {what: "kill -9 of the ZooKeeper server that leads", servers: true, make: func(ctx context.Context, s *stage) (*injury, error) {
			leader, _, err := s.quorum(ctx)
			if err != nil {
				return nil, err
			}
			return s.killServers(s.o.SessionTimeout, leader)
		}},
		LeaderHalted: {what: "SIGSTOP of the ZooKeeper server that leads, beyond the session", servers: true, make: func(ctx context.Context, s *stage) (*injury, error) {
			leader, _, err := s.quorum(ctx)
			if err != nil {
				return nil, err
			}
			return s.haltServers(long(s), leader)
		}},
		ServerCut: {what: "a ZooKeeper server is parted from the others, and still answers its clients", servers: true, make: func(_ context.Context, s *stage) (*injury, error) {
			i := s.random.IntN(s.own.Len())
			s.own.CutPeers(i)
			return &injury{text: fmt.Sprintf("server %d", i), hold: long(s), heal: func(context.Context) error {
				s.own.HealPeers(i)
				return nil
			}}, nil
		}},
		QuorumShort: {what: "two of three ZooKeeper servers halt for less than half of the session", servers: true, make: func(ctx context.Context, s *stage) (*injury, error) {
			_, followers, err := s.quorum(ctx)
			if err != nil {
				return nil, err
			}
			return s.haltServers(s.o.SessionTimeout*5/12, followers...)
		}},
		QuorumLong: {what: "two of three ZooKeeper servers killed, beyond the session", servers: true, make: func(_ context.Context, s *stage) (*injury, error) {
			i := s.random.IntN(s.own.Len())
			return s.killServers(long(s), i, (i+1)%s.own.Len())
		}},
		AllRestarted: {what: "all ZooKeeper servers stopped and started", servers: true, make: func(_ context.Context, s *stage) (*injury, error) {
			var all []int
			for i := range s.own.Len() {
				all = append(all, i)
			}
			return s.killServers(time.Second, all...)
		}},
		DiskFull: {what: "no room on the disk of a ZooKeeper server", servers: true, make: func(_ context.Context, s *stage) (*injury, error) { return s.fillDisk() }},

		KillDuringVote: {what: "a host and the ZooKeeper server that leads killed at once", servers: true, make: func(ctx context.Context, s *stage) (*injury, error) {
			leader, _, err := s.quorum(ctx)
			if err != nil {
				return nil, err
			}
			return both(func() (*injury, error) { return s.killServers(s.o.SessionTimeout, leader) },
				func() (*injury, error) { return s.killHost(s.anyHost(), s.o.SessionTimeout+s.tick+2*time.Second) })
		}},
		HaltAndPart: {what: "a host halts beyond its session while links are slow", make: func(ctx context.Context, s *stage) (*injury, error) {
			return both(func() (*injury, error) { return s.slow(long(s), 100*time.Millisecond), nil },
				func() (*injury, error) { return s.haltHost(ctx, s.anyHost(), long(s)) })
		}},
		TwoHosts: {what: "a host is killed while another is cut off", make: func(_ context.Context, s *stage) (*injury, error) {
			order := s.random.Perm(len(s.hosts))
			return both(func() (*injury, error) {
				return s.partition(s.hosts[order[0]], long(s), func(p *zkserver.Proxy) { p.Hold(zkserver.ToServer | zkserver.ToClient) }), nil
			}, func() (*injury, error) {
				return s.killHost(s.hosts[order[1]], s.o.SessionTimeout+s.tick+2*time.Second)
			})
		}},
	}
}

func names() []string {
	var list []string
	for _, k := range sorted(kinds()) {
		list = append(list, string(k))
	}
	return list
}

// possible says why a kind cannot be made here; empty if it can.
func (s *stage) possible(k Kind) string {
	switch sp := kinds()[k]; {
	case sp.servers && s.own == nil:
		return "the servers are not ours to break"
	case k == DiskFull && s.disk == "":
		return s.noDisk
	}
	return ""
}

// both makes two faults of which the first lasts while the second is made.
func both(first, second func() (*injury, error)) (*injury, error) {
	a, err := first()
	if err != nil {
		return nil, err
	}
	b, err := second()
	if err != nil {
		return nil, errors.Join(err, a.heal(context.Background()))
	}
	n := &injury{text: a.text + ", " + b.text, hosts: slices.Concat(a.hosts, b.hosts), crashed: slices.Concat(a.crashed, b.crashed),
		from: a.from, hold: max(a.hold, b.hold), servers: a.servers || b.servers}
	n.heal = func(ctx context.Context) error { return errors.Join(a.heal(ctx), b.heal(ctx)) }
	return n, nil
}

func (s *stage) anyHost() *node { return s.hosts[s.random.IntN(len(s.hosts))] }

// leadingHost is the host that leads the job long, or one that does not. If
// nobody is known to lead it, it is any.
func (s *stage) leadingHost(ctx context.Context, leads bool) *node {
	any := s.anyHost() // always drawn, so that the plan stays the same
	r, err := s.looked(ctx)
	if err != nil {
		return any
	}
	nodes, err := r.Read(ctx, registry.Data(tree.NewLayout(s.o.Namespace, "long").Root()+"/leader/election/instance"))
	if err != nil {
		return any
	}
	ip, _, _ := strings.Cut(string(nodes[0].Data), "@-@")
	leader := slices.IndexFunc(s.hosts, func(h *node) bool { return h.ip == ip })
	switch {
	case leader < 0:
		return any
	case leads:
		return s.hosts[leader]
	case any == s.hosts[leader]:
		return s.hosts[(leader+1)%len(s.hosts)]
	}
	return any
}

func (s *stage) killHost(h *node, hold time.Duration) (*injury, error) {
	pid, from := h.life().pid, time.Now()
	if err := h.kill(); err != nil {
		return nil, err
	}
	return &injury{text: h.name, hosts: []*node{h}, crashed: s.evidence.open(pid), from: from, hold: hold,
		heal: func(context.Context) error { return h.start() }}, nil
}

// haltHost stops a process in its tracks. If it has a dead man's timer, it must not
// outlive its session; it is started again, as a supervisor does.
func (s *stage) haltHost(ctx context.Context, h *node, hold time.Duration) (*injury, error) {
	const armed = "wasmjob_dead_man_armed"
	values, _ := h.gauges(ctx, armed) // one that does not answer is not asked more of
	l := h.life()
	from := time.Now()
	if err := pauseProcess(l.cmd.Process); err != nil {
		return nil, err
	}
	return &injury{text: h.name, hosts: []*node{h}, from: from, hold: hold, heal: func(context.Context) error {
		// Noted before it goes on: what it says then is late.
		s.evidence.halted(l.pid, from, time.Now())
		if !h.runs() {
			return h.start()
		}
		if values[armed] == 1 && hold > s.o.SessionTimeout {
			s.violate("%s was halted for %s, beyond its session of %s, and its dead man's timer did not end it", h.name, hold, s.o.SessionTimeout)
		}
		return resumeProcess(l.cmd.Process)
	}}, nil
}

func (s *stage) partition(h *node, hold time.Duration, do func(*zkserver.Proxy)) *injury {
	from := time.Now()
	for _, p := range h.proxies {
		do(p)
	}
	return &injury{text: h.name, hosts: []*node{h}, from: from, hold: hold, heal: func(context.Context) error {
		for _, p := range h.proxies {
			p.Heal()
		}
		return nil
	}}
}

func (s *stage) slow(hold, delay time.Duration) *injury {
	each := func(do func(*zkserver.Proxy)) {
		for _, h := range s.hosts {
			for _, p := range h.proxies {
				do(p)
			}
		}
	}
	each(func(p *zkserver.Proxy) { p.Delay(delay) })
	return &injury{text: "all links", hosts: s.hosts, hold: hold, heal: func(context.Context) error {
		each((*zkserver.Proxy).Heal)
		return nil
	}}
}

func (s *stage) drainHost(ctx context.Context, h *node) (*injury, error) {
	id := h.instance()
	err := h.drain(drainTimeout + 20*time.Second)
	switch {
	case err == nil:
		if err := s.gone(ctx, h, id); err != nil {
			return nil, err
		}
	case h.runs():
		s.violate("%v", err)
		if err := h.kill(); err != nil {
			return nil, err
		}
	default:
		s.violate("%v", err)
	}
	return &injury{text: h.name, hosts: []*node{h}, hold: 3 * time.Second, heal: func(context.Context) error { return h.start() }}, nil
}

// roll restarts all hosts, one after the other, with a new module.
func (s *stage) roll(ctx context.Context) (*injury, error) {
	s.module++
	for _, h := range s.hosts {
		n, err := s.drainHost(ctx, h)
		if err != nil {
			return nil, err
		}
		if err := h.install(version(s.module)); err != nil {
			return nil, err
		}
		if err := n.heal(ctx); err != nil {
			return nil, err
		}
		if err := until(ctx, 100*time.Millisecond, time.Minute, func() error { return h.live(ctx) }); err != nil {
			s.violate("a host did not come back from a rolling restart: %v", err)
		}
	}
	s.rolled = time.Now()
	return &injury{text: fmt.Sprintf("module version %d", s.module), hosts: s.hosts, heal: func(context.Context) error { return nil }}, nil
}

// quorum waits until all servers serve, and tells who leads.
func (s *stage) quorum(ctx context.Context) (leader int, followers []int, err error) {
	for i := range s.own.Len() {
		waiting, cancel := context.WithTimeout(ctx, time.Minute)
		err := s.own.Await(waiting, i)
		cancel()
		if err != nil {
			return 0, nil, err
		}
	}
	if leader, err = s.own.Leader(); err != nil {
		return 0, nil, err
	}
	for i := range s.own.Len() {
		if i != leader {
			followers = append(followers, i)
		}
	}
	return leader, followers, nil
}

func (s *stage) killServers(hold time.Duration, servers ...int) (*injury, error) {
	from := time.Now()
	for _, i := range servers {
		if err := s.own.Kill(i); err != nil {
			return nil, err
		}
	}
	return &injury{text: fmt.Sprintf("servers %v", servers), from: from, hold: hold, servers: true, heal: func(ctx context.Context) error {
		for _, i := range servers {
			if err := s.own.Restart(i); err != nil {
				return err
			}
		}
		return s.awaitServers(ctx)
	}}, nil
}

func (s *stage) awaitServers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range s.own.Len() {
		if err := s.own.Await(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) haltServers(hold time.Duration, servers ...int) (*injury, error) {
	from := time.Now()
	for _, i := range servers {
		if err := s.own.Pause(i); err != nil {
			return nil, err
		}
	}
	return &injury{text: fmt.Sprintf("servers %v", servers), from: from, hold: hold, servers: true, heal: func(ctx context.Context) error {
		for _, i := range servers {
			if err := s.own.Resume(i); err != nil {
				return err
			}
		}
		return s.awaitServers(ctx)
	}}, nil
}

// ballast is the file that fills the small disk.
const ballast = "ballast"

// smallServer is the server whose data is on the small disk.
const smallServer = 2

// fillDisk leaves no room on the small disk. The server ends, or hangs; when
// there is room again it is started anew, as an operator would.
func (s *stage) fillDisk() (*injury, error) {
	file := filepath.Join(s.disk, ballast)
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	block := make([]byte, 1<<20)
	for size := len(block); err == nil || size > 1; {
		if _, err = f.Write(block[:size]); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return nil, errors.Join(err, f.Close())
			}
			size = max(size/2, 1)
		}
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &injury{text: fmt.Sprintf("server %d", smallServer), hold: 2 * s.o.SessionTimeout, heal: func(ctx context.Context) error {
		if err := os.Remove(file); err != nil {
			return err
		}
		// Whatever it made of it: it may have ended, and it may go on half dead.
		if err := s.own.Kill(smallServer); err != nil {
			return err
		}
		if err := s.own.Restart(smallServer); err != nil {
			return err
		}
		return s.awaitServers(ctx)
	}}, nil
}

// keptSuffix is added to the name of a server's directory where it stays.
const keptSuffix = ".kept"

// saveSmallDisk copies what is on the small disk to where it can stay.
func (s *stage) saveSmallDisk() error {
	kept := s.disk + keptSuffix
	err := os.MkdirAll(kept, 0o755)
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(s.disk))
	}
	return errors.Join(err, unmount(s.disk))
}
