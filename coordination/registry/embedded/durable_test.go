package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.etcd.io/bbolt"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
)

func connect(t testing.TB, s *Server) registry.Center {
	t.Helper()
	return suite{s}.Connect(t)
}

func commit(t testing.TB, rc registry.Center, ops ...registry.Op) []registry.Result {
	t.Helper()
	r, err := rc.Commit(t.Context(), ops...)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return r
}

func read(t testing.TB, rc registry.Center, queries ...registry.Query) []registry.Node {
	t.Helper()
	nodes, err := rc.Read(t.Context(), queries...)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return nodes
}

// reopen closes a server and opens its directory again.
func restart(t testing.TB, s suite) suite {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return open(t, Options{Dir: s.dir})
}

func TestRestart(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "made", "by", "open")})
	rc := connect(t, s.Server)
	commit(t, rc, registry.Create("/job", []byte("config")), registry.Ensure("/job/sharding/0"), registry.Create("/job/empty", nil), registry.Set("/", []byte("root"), 0))
	last := commit(t, rc, registry.Set("/job", []byte("config 2"), 0))[0].Zxid
	commit(t, rc, registry.CreateEphemeral("/job/instance", nil), registry.Create("/job/gone", nil))
	commit(t, rc, registry.Delete("/job/gone", 0))
	// A persistent node that became an ephemeral one is not there afterwards.
	commit(t, rc, registry.Create("/job/swap", nil))
	commit(t, rc, registry.Delete("/job/swap", 0), registry.CreateEphemeral("/job/swap", nil))
	first := commit(t, rc, registry.CreateSequential("/job/n-", nil))[0].Path
	before := read(t, rc, registry.Data("/job"), registry.Data("/job/sharding/0"), registry.Data("/job/empty"), registry.Data("/"))

	s = restart(t, s)
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
	rc = connect(t, s.Server)
	if names := read(t, rc, registry.Children("/job"))[0].Names; !slices.Equal(names, []string{"empty", "sharding"}) {
		t.Errorf("below /job after a restart: %q", names)
	}
	for i, n := range read(t, rc, registry.Data("/job"), registry.Data("/job/sharding/0"), registry.Data("/job/empty"), registry.Data("/")) {
		b := before[i]
		if !n.Exists || string(n.Data) != string(b.Data) || n.Version != b.Version || n.Czxid != b.Czxid || n.Mzxid != b.Mzxid || !n.Mtime.Equal(b.Mtime) {
			t.Errorf("after a restart: %+v, was %+v", n, b)
		}
	}
	r := commit(t, rc, registry.Set("/job", nil, 1), registry.CreateSequential("/job/n-", nil))
	if r[0].Version != 2 || r[0].Zxid <= last {
		t.Errorf("set after a restart: %+v; the last zxid was %d", r[0], last)
	}
	if r[1].Path <= first {
		t.Errorf("sequential path %s after a restart, %s before", r[1].Path, first)
	}
	// The children that were read from disk count.
	if _, err := rc.Commit(t.Context(), registry.Delete("/job/sharding", 0)); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("delete of a node with children after a restart: %v", err)
	}
	commit(t, rc, registry.Delete("/job/sharding/0", 0), registry.Delete("/job/sharding", 0))
}

// After a clean end the numbers go on without a gap; after any end they grow,
// even those that were never written because only ephemeral nodes changed.
func TestZxidOverRestarts(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	rc := connect(t, s.Server)
	commit(t, rc, registry.Create("/a", nil), registry.CreateEphemeral("/e", nil))
	last := commit(t, rc, registry.Set("/a", nil, 0))[0].Zxid
	s = restart(t, s)
	rc = connect(t, s.Server)
	if z := commit(t, rc, registry.Set("/a", nil, 1))[0].Zxid; z != last+1 {
		t.Errorf("zxid %d after a clean restart, want %d", z, last+1)
	}
	commit(t, rc, registry.CreateEphemeral("/e", nil))
	for range 2*ahead + 10 {
		last = commit(t, rc, registry.Set("/e", nil, registry.AnyVersion))[0].Zxid
	}
	// The file as a killed process leaves it.
	raw, err := os.ReadFile(filepath.Join(s.dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	rc = connect(t, open(t, Options{Dir: dir}).Server)
	if z := commit(t, rc, registry.Set("/a", nil, 2))[0].Zxid; z <= last {
		t.Errorf("zxid %d after a crash, %d before", z, last)
	}
}

// A file can be copied while the writer is idle, and the registry goes through
// the same random commits with restarts as without.
func TestDurableWalk(t *testing.T) {
	t.Parallel()
	s, mem := open(t, Options{Dir: t.TempDir()}), open(t, Options{})
	for i := range uint64(3) {
		root := fmt.Sprintf("/walk%d", i)
		for _, s := range []suite{s, mem} {
			commit(t, connect(t, s.Server), registry.Create(root, nil))
		}
		registrytest.Walk(t, rand.New(rand.NewPCG(i, 7)), 150, root, mem, s)
		want := tree(t, s, root)
		s = restart(t, s)
		if got := tree(t, s, root); !slices.Equal(got, want) {
			t.Fatalf("after a restart:\n%s\nbefore:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// tree lists all nodes below root, once nobody has a session.
func tree(t *testing.T, s suite, root string) []string {
	t.Helper()
	rc := connect(t, s.Server)
	defer func() { _ = rc.Close() }()
	var lines []string
	var walk func(path string)
	walk = func(path string) {
		n := read(t, rc, registry.Data(path), registry.Children(path))
		if !n[0].Exists || n[0].Ephemeral {
			t.Errorf("%s: %+v", path, n[0])
		}
		lines = append(lines, fmt.Sprintf("%s %q %d %d %d %v", path, n[0].Data, n[0].Version, n[0].Czxid, n[0].Mzxid, n[0].Mtime.UnixMilli()))
		for _, name := range n[1].Names {
			walk(path + "/" + name)
		}
	}
	walk(root)
	return lines
}

// gate is a fault that lets the test decide over every write to disk.
type gate struct {
	mu     sync.Mutex
	armed  bool
	writes int
	ask    chan func(*bbolt.Tx) error // one answer per write, while armed
}

func newGate() *gate { return &gate{ask: make(chan func(*bbolt.Tx) error)} }

func (g *gate) commit(tx *bbolt.Tx) error {
	g.mu.Lock()
	armed := g.armed
	g.writes++
	g.mu.Unlock()
	if armed {
		return (<-g.ask)(tx)
	}
	return tx.Commit()
}

func (g *gate) arm(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = on
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.writes
}

var errDisk = errors.New("no space left on the test's disk")

// The outcomes that a write can have.
func pass(tx *bbolt.Tx) error { return tx.Commit() }
func full(tx *bbolt.Tx) error { return errors.Join(errDisk, tx.Rollback()) }
func unsynced(tx *bbolt.Tx) error {
	return errors.Join(tx.Commit(), errDisk)
}
func crash(*bbolt.Tx) error { panic("assertion failed: page 7 is not free") }

// inBubble runs a test with a gated registry inside a bubble, where
// synctest.Wait tells that everybody waits for the gate.
func inBubble(t *testing.T, body func(t *testing.T, s suite, g *gate)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		s := open(t, Options{Dir: t.TempDir(), fault: faults{commit: g.commit}})
		defer g.arm(false)
		body(t, s, g)
	})
}

// Nobody sees a commit before it is on disk, and the answer comes after.
func TestNotSeenBeforeDurable(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc, other := connect(t, s.Server), connect(t, s.Server)
		commit(t, rc, registry.Create("/a", []byte("old")))
		ch, err := other.Watch(t.Context(), registry.Data("/a"), registry.Data("/b"), registry.Children("/"))
		if err != nil {
			t.Fatal(err)
		}
		<-ch
		g.arm(true)
		answered := make(chan error, 1)
		go func() {
			_, err := rc.Commit(t.Context(), registry.Set("/a", []byte("new"), 0), registry.CreateEphemeral("/b", nil))
			answered <- err
		}()
		synctest.Wait()
		select {
		case s := <-ch:
			t.Errorf("a watch saw what is not on disk: %+v", s)
		case err := <-answered:
			t.Errorf("answered before it was on disk: %v", err)
		default:
		}
		for _, rc := range []registry.Center{rc, other} {
			n := read(t, rc, registry.Data("/a"), registry.Data("/b"), registry.Children("/"))
			if string(n[0].Data) != "old" || n[1].Exists || len(n[2].Names) != 1 {
				t.Errorf("a read saw what is not on disk: %+v", n)
			}
		}
		fresh, err := other.Watch(t.Context(), registry.Data("/a"))
		if err != nil {
			t.Fatal(err)
		}
		if s := <-fresh; string(s.Data("/a").Data) != "old" {
			t.Errorf("a new watch saw what is not on disk: %+v", s)
		}
		g.ask <- pass
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if s := <-ch; string(s.Data("/a").Data) != "new" || !s.Data("/b").Exists || len(s.Children("/")) != 2 {
			t.Errorf("after the write: %+v", s)
		}
	})
}

// What waits while a write runs goes to disk together.
func TestGroupCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		const waiting = 50
		rc := connect(t, s.Server)
		commit(t, rc, registry.Create("/a", nil), registry.Create("/n", nil))
		g.arm(true)
		before := g.count()
		var wg sync.WaitGroup
		told, err := rc.Watch(t.Context(), registry.Data("/n"))
		if err != nil {
			t.Fatal(err)
		}
		<-told
		wg.Go(func() { commit(t, rc, registry.Set("/a", nil, 0)) })
		synctest.Wait() // its write has begun
		wg.Go(func() { commit(t, rc, registry.Set("/n", []byte("n"), 0)) })
		synctest.Wait() // in the batch; the others only add children to that node
		var zxids [waiting]int64
		conflicts := make(chan error, 1)
		for i := range waiting {
			wg.Go(func() {
				rc := connect(t, s.Server)
				r := commit(t, rc, registry.Set("/a", nil, registry.AnyVersion), registry.Create(fmt.Sprintf("/n/%d", i), nil), registry.CreateEphemeral(fmt.Sprintf("/e%d", i), nil))
				zxids[i] = r[0].Zxid
			})
		}
		synctest.Wait()
		wg.Go(func() { // it sees those before it in the batch
			_, err := rc.Commit(t.Context(), registry.Check("/a", 1+waiting), registry.Create("/n/7", nil))
			conflicts <- err
		})
		synctest.Wait()
		g.ask <- pass
		g.ask <- pass
		wg.Wait()
		if n := g.count() - before; n != 2 {
			t.Errorf("%d writes for one commit and then %d together, want 2", n, waiting)
		}
		var oe *registry.OpError
		if err := <-conflicts; !errors.As(err, &oe) || oe.Index != 1 || oe.Reason != registry.ReasonExists {
			t.Errorf("a conflict within the batch: %v", err)
		}
		slices.Sort(zxids[:])
		if n := len(slices.Compact(zxids[:])); n != waiting {
			t.Errorf("%d different zxids for %d commits", n, waiting)
		}
		n := read(t, rc, registry.Data("/a"), registry.Children("/n"))
		if n[0].Version != 1+waiting || len(n[1].Names) != waiting {
			t.Errorf("after the batch: version %d, %d nodes", n[0].Version, len(n[1].Names))
		}
		synctest.Wait()
		select {
		case s := <-told:
			if string(s.Data("/n").Data) != "n" {
				t.Errorf("the watch was told %+v", s)
			}
		default:
			t.Error("the watch was not told of a set in the batch")
		}
		g.arm(false)
		s = restart(t, s)
		n = read(t, connect(t, s.Server), registry.Data("/a"), registry.Data("/n"), registry.Children("/n"))
		if n[0].Version != 1+waiting || string(n[1].Data) != "n" || len(n[2].Names) != waiting {
			t.Errorf("after a restart: version %d, data %q, %d nodes", n[0].Version, n[1].Data, len(n[2].Names))
		}
	})
}

// Ephemeral nodes are nobody's business after a restart, so they cost no write.
func TestEphemeralIsNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc := connect(t, s.Server)
		commit(t, rc, registry.Create("/a", nil))
		before := g.count()
		commit(t, rc, registry.CreateEphemeral("/a/e", nil), registry.Check("/a", 0))
		commit(t, rc, registry.Set("/a/e", nil, 0))
		commit(t, rc, registry.Absent("/b"))
		commit(t, rc, registry.Delete("/a/e", 1))
		commit(t, rc, registry.CreateEphemeral("/a/e", nil))
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
		if n := g.count() - before; n != 0 {
			t.Errorf("%d writes, want none", n)
		}
	})
}

// A full disk: the commits that were to be written fail, with all in their
// batch, and leave no trace; the sessions live, and go on when there is room.
func TestWriteFails(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc, other := connect(t, s.Server), connect(t, s.Server)
		commit(t, rc, registry.Create("/a", []byte("old")), registry.CreateEphemeral("/e", nil))
		last := commit(t, rc, registry.Set("/a", []byte("old"), 0))[0].Zxid
		ch, err := other.Watch(t.Context(), registry.Data("/a"), registry.Children("/"))
		if err != nil {
			t.Fatal(err)
		}
		<-ch
		g.arm(true)
		for round := range 3 {
			var wg sync.WaitGroup
			for _, ops := range [][]registry.Op{
				{registry.Set("/a", []byte("new"), 1), registry.CreateEphemeral("/x", nil)},
				{registry.Delete("/e", 0)},
				{registry.Create("/a", nil)}, // a conflict, but with what?
				{registry.CreateSequential("/n-", nil)},
				{registry.Delete("/a", 1)},
			} {
				wg.Go(func() {
					r, err := rc.Commit(t.Context(), ops...)
					if !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, errDisk) || errors.Is(err, registry.ErrConflict) || r != nil {
						t.Errorf("round %d: commit on a full disk: %v, %v", round, r, err)
					}
				})
				synctest.Wait()
			}
			g.ask <- full // the first alone
			synctest.Wait()
			g.ask <- full // and the rest
			wg.Wait()
			if err := s.Err(); !errors.Is(err, errDisk) || !strings.Contains(err.Error(), s.dir) {
				t.Errorf("Err: %v", err)
			}
			n := read(t, other, registry.Data("/a"), registry.Children("/"))
			if string(n[0].Data) != "old" || n[0].Version != 1 || !slices.Equal(n[1].Names, []string{"a", "e"}) {
				t.Errorf("a failed write left a trace: %+v", n)
			}
		}
		select {
		case s := <-ch:
			t.Errorf("a watch heard of a failed write: %+v", s)
		default:
		}
		// What is not written still works: a session ends, and its nodes go.
		third := connect(t, s.Server)
		commit(t, third, registry.CreateEphemeral("/third", nil))
		if err := third.Close(); err != nil || read(t, rc, registry.Data("/third"))[0].Exists {
			t.Errorf("a session's end while the disk is full: %v", err)
		}
		if s.Err() == nil {
			t.Error("Err is nil, but nothing was written since")
		}
		g.arm(false)
		if r := commit(t, rc, registry.Set("/a", []byte("new"), 1)); r[0].Zxid <= last {
			t.Errorf("zxid %d after %d", r[0].Zxid, last)
		}
		if err := s.Err(); err != nil {
			t.Errorf("Err after a write that worked: %v", err)
		}
		if !rc.Trusted() || !other.Trusted() {
			t.Error("a session was lost to a full disk")
		}
	})
}

// The write reached the file, but not surely the disk: the next write that
// does settles it.
func TestSyncFailsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc := connect(t, s.Server)
		g.arm(true)
		done := make(chan error, 1)
		go func() {
			_, err := rc.Commit(t.Context(), registry.Create("/a", nil))
			done <- err
		}()
		g.ask <- unsynced
		g.ask <- pass
		if err := <-done; err != nil {
			t.Errorf("commit: %v", err)
		}
		if err := s.Err(); err != nil {
			t.Errorf("Err: %v", err)
		}
		g.arm(false)
		commit(t, rc, registry.Set("/a", nil, 0))
		s = restart(t, s)
		if n := read(t, connect(t, s.Server), registry.Data("/a"))[0]; n.Version != 1 {
			t.Errorf("after a restart: %+v", n)
		}
	})
}

// Nobody can know whether the write took effect: then nobody is told that it
// did or did not, every session ends, and the next one sees what the disk says.
func TestOutcomeUnknown(t *testing.T) {
	for name, outcomes := range map[string][]func(*bbolt.Tx) error{
		"not synced twice": {unsynced, full},
		"bbolt panics":     {crash},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s suite, g *gate) {
				rc, other := connect(t, s.Server), connect(t, s.Server)
				commit(t, rc, registry.Create("/a", []byte("old")), registry.CreateEphemeral("/e", nil))
				last := commit(t, rc, registry.Set("/a", []byte("old"), 0))[0].Zxid
				ch, err := other.Watch(t.Context(), registry.Data("/a"))
				if err != nil {
					t.Fatal(err)
				}
				<-ch
				g.arm(true)
				var wg sync.WaitGroup
				wg.Go(func() {
					if _, err := rc.Commit(t.Context(), registry.Set("/a", []byte("new"), 1)); !errors.Is(err, registry.ErrUnknown) {
						t.Errorf("commit: %v", err)
					}
				})
				synctest.Wait()
				wg.Go(func() { // waits in the queue, and was surely not written
					if _, err := other.Commit(t.Context(), registry.Create("/b", nil)); !errors.Is(err, registry.ErrSessionLost) {
						t.Errorf("commit after it: %v", err)
					}
				})
				third := connect(t, s.Server)
				wg.Go(func() {
					if err := third.Close(); err != nil {
						t.Errorf("close: %v", err)
					}
				})
				synctest.Wait()
				for _, outcome := range outcomes {
					g.ask <- outcome
				}
				wg.Wait()
				for _, rc := range []registry.Center{rc, other} {
					<-rc.Lost()
					if _, err := rc.Read(t.Context(), registry.Data("/a")); !errors.Is(err, registry.ErrSessionLost) {
						t.Errorf("read: %v", err)
					}
				}
				if _, ok := <-ch; ok {
					t.Error("a watch sent something in place of ending")
				}
				if err := s.Err(); !errors.Is(err, registry.ErrUnavailable) {
					t.Errorf("Err: %v", err)
				}
				s.Server.Expire(rc) // of no effect
				if err := rc.Close(); err != nil {
					t.Error(err)
				}
				g.arm(false)

				again := connect(t, s.Server)
				if err := s.Err(); err != nil {
					t.Errorf("Err after it was opened again: %v", err)
				}
				n := read(t, again, registry.Data("/a"), registry.Children("/"))
				if v := n[0].Version; v != 1 && v != 2 || !slices.Equal(n[1].Names, []string{"a"}) {
					t.Errorf("after it was opened again: %+v", n)
				}
				if z := commit(t, again, registry.Set("/a", nil, registry.AnyVersion))[0].Zxid; z <= last+1 {
					t.Errorf("zxid %d; %d may have been given out", z, last+1)
				}
				if _, err := other.Commit(t.Context()); !errors.Is(err, registry.ErrSessionLost) {
					t.Errorf("an old session lives again: %v", err)
				}
			})
		})
	}
}

// A registry that was given up and cannot be opened again says so at Connect.
func TestReopenFails(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc := connect(t, s.Server)
		g.arm(true)
		go func() { g.ask <- crash }()
		if _, err := rc.Commit(t.Context(), registry.Create("/a", nil)); !errors.Is(err, registry.ErrUnknown) {
			t.Fatalf("commit: %v", err)
		}
		g.arm(false)
		taken, err := Open(Options{Dir: s.dir}) // another host took the directory meanwhile
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := s.Server.Connect(t.Context()); !errors.Is(err, registry.ErrUnavailable) || !strings.Contains(err.Error(), "in use by another host") {
				t.Errorf("connect: %v", err)
			}
		}
		if err := taken.Close(); err != nil {
			t.Error(err)
		}
		connect(t, s.Server)
	})
}

func TestCommitContext(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc := connect(t, s.Server)
		commit(t, rc, registry.Create("/a", nil))
		g.arm(true)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { // on its way to disk: waited for
			if _, err := rc.Commit(ctx, registry.Set("/a", nil, 0)); err != nil {
				t.Errorf("commit that was being written: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() { // not yet: taken back
			if _, err := rc.Commit(ctx, registry.Create("/b", nil)); !errors.Is(err, context.Canceled) || errors.Is(err, registry.ErrUnknown) {
				t.Errorf("commit that waited: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		g.ask <- pass
		wg.Wait()
		g.arm(false)
		n := read(t, rc, registry.Data("/a"), registry.Data("/b"))
		if n[0].Version != 1 || n[1].Exists {
			t.Errorf("afterwards: %+v", n)
		}
	})
}

// The server closes while a commit is being written and others wait.
func TestCloseWhileWriting(t *testing.T) {
	inBubble(t, func(t *testing.T, s suite, g *gate) {
		rc := connect(t, s.Server)
		g.arm(true)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := rc.Commit(t.Context(), registry.Create("/a", nil)); err != nil {
				t.Errorf("commit that was being written: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := rc.Commit(t.Context(), registry.Create("/b", nil)); !errors.Is(err, registry.ErrSessionLost) {
				t.Errorf("commit that waited: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		synctest.Wait()
		<-rc.Lost()
		if _, err := s.Server.Connect(t.Context()); !errors.Is(err, registry.ErrClosed) {
			t.Errorf("connect: %v", err)
		}
		g.arm(false)
		g.ask <- pass
		wg.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("closed again: %v", err)
		}
		s = open(t, Options{Dir: s.dir})
		if names := read(t, connect(t, s.Server), registry.Children("/"))[0].Names; !slices.Equal(names, []string{"a"}) {
			t.Errorf("after a restart: %q", names)
		}
	})
}

func TestServerClose(t *testing.T) {
	s := open(t, Options{})
	rc := connect(t, s.Server)
	commit(t, rc, registry.CreateEphemeral("/e", nil))
	ch, err := rc.Watch(t.Context(), registry.Data("/e"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	<-ch
	if _, ok := <-ch; ok {
		t.Error("the watch did not end")
	}
	<-rc.Lost()
	if _, err := rc.Commit(t.Context()); !errors.Is(err, registry.ErrSessionLost) {
		t.Errorf("commit: %v", err)
	}
	if _, err := s.Server.Connect(t.Context()); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("connect: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Server.Connect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("connect with a cancelled context: %v", err)
	}
}

// refused demands that a directory cannot be opened, with an error that names
// it and has the words.
func refused(t *testing.T, dir string, words ...string) {
	t.Helper()
	s, err := Open(Options{Dir: dir})
	if err == nil {
		_ = s.Close()
		t.Fatalf("opened; want an error with %q", words)
	}
	for _, w := range append(words, "data directory "+dir+": ") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want %q in it", err, w)
		}
	}
}

// TestOpenWithoutLocks: a directory on a file system without locks, or with locks that keep nobody out, is refused, and
// no file is left there; one with locks is opened.
func TestOpenWithoutLocks(t *testing.T) {
	t.Parallel()
	for want, lock := range map[string]func(*os.File) (bool, error){
		"the file system has no locks (no locks available)": func(*os.File) (bool, error) { return false, errors.New("no locks available") },
		"the locks of the file system keep nobody out":      func(*os.File) (bool, error) { return true, nil },
	} {
		dir := t.TempDir()
		s, err := Open(Options{Dir: dir, fault: faults{lock: lock}})
		if err == nil {
			_ = s.Close()
			t.Fatalf("opened; want an error with %q", want)
		}
		if text := err.Error(); !strings.Contains(text, want) || !strings.Contains(text, "data directory "+dir+": make "+fileName+": ") || !strings.Contains(text, "use a directory on a local disk") {
			t.Errorf("error %q, want %q in it", text, want)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
			t.Errorf("left in the directory: %v, %v", files, err)
		}
		s, err = Open(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
	}
}

func TestOpenLocked(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir()})
	commit(t, connect(t, s.Server), registry.Create("/a", nil))
	refused(t, s.dir, "in use by another host", fileName)
	s = restart(t, s)
	if !read(t, connect(t, s.Server), registry.Data("/a"))[0].Exists {
		t.Error("the one that could not open it did harm")
	}
}

func TestOpenNotADirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, file, "not a directory")
	refused(t, filepath.Join(file, "below"), "not a directory")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, fileName), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, fileName, "is a directory")
}

// edit changes a registry's file by hand.
func edit(t *testing.T, dir string, change func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, fileName), 0o600, &bbolt.Options{Timeout: lockWait})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// filled makes a directory with some hundred nodes and returns its file.
func filled(t *testing.T) (dir, file string) {
	t.Helper()
	s := open(t, Options{Dir: t.TempDir()})
	ops := []registry.Op{registry.Create("/a", nil)}
	for i := range 800 {
		ops = append(ops, registry.Create(fmt.Sprintf("/a/%04d", i), make([]byte, 100)))
	}
	commit(t, connect(t, s.Server), ops...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s.dir, filepath.Join(s.dir, fileName)
}

func TestOpenDamaged(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, dir, file string){
		"another kind of file": func(t *testing.T, _, file string) {
			write(t, file, []byte(strings.Repeat("this is not a registry\n", 2000)))
		},
		"short": func(t *testing.T, _, file string) { write(t, file, []byte("short")) },
		"zeros": func(t *testing.T, _, file string) { write(t, file, make([]byte, 64<<10)) },
		"cut off": func(t *testing.T, _, file string) {
			if err := os.Truncate(file, 20<<10); err != nil {
				t.Fatal(err)
			}
		},
		"pages overwritten": func(t *testing.T, _, file string) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 2 * 4096; i < len(raw); i++ {
				raw[i] = 0xa5
			}
			write(t, file, raw)
		},
		"another program's buckets": func(t *testing.T, _, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			edit(t, filepath.Dir(file), func(tx *bbolt.Tx) error {
				_, err := tx.CreateBucket([]byte("theirs"))
				return err
			})
		},
		"bucket missing": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketNodes()) })
		},
		"counter missing": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta()).Delete(keyCeiling()) })
		},
		"counter too low": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta()).Put(keyCeiling(), number(0)) })
		},
		"schema 0": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta()).Put(keySchema(), number(0)) })
		},
		"parent missing": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketNodes()).Delete([]byte("/a")) })
		},
		"node cut off": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketNodes()).Put([]byte("/a"), []byte{nodeFormat}) })
		},
		"wrong path": func(t *testing.T, dir, _ string) {
			edit(t, dir, func(tx *bbolt.Tx) error {
				return tx.Bucket(bucketNodes()).Put([]byte("/a//b"), encodeNode(&state{}))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, file := filled(t)
			harm(t, dir, file)
			refused(t, dir, fileName, "damaged or not a registry")
			refused(t, dir, "damaged or not a registry") // and it was let go, and left as it is
		})
	}
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever bytes go bad, Open returns.
func TestOpenRandomDamage(t *testing.T) {
	t.Parallel()
	dir, file := filled(t)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	refusals := 0
	for range 60 {
		raw := slices.Clone(whole)
		at, n := r.IntN(len(raw)), 1+r.IntN(4096)
		for i := at; i < min(at+n, len(raw)); i++ {
			raw[i] = byte(r.Uint32())
		}
		write(t, file, raw)
		s, err := Open(Options{Dir: dir})
		if err != nil {
			refusals++
			continue
		}
		if err := s.Close(); err != nil {
			t.Logf("close: %v", err)
		}
	}
	if refusals == 0 {
		t.Error("no damage was ever seen")
	}
}

func TestOpenNewer(t *testing.T) {
	t.Parallel()
	dir, _ := filled(t)
	edit(t, dir, func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta()).Put(keySchema(), number(schema+1)) })
	refused(t, dir, "newer wasmjob", fmt.Sprintf("schema %d", schema+1))
}

// An empty file is what a crash leaves in the moment when it is made.
func TestOpenEmptyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, fileName), nil)
	commit(t, connect(t, open(t, Options{Dir: dir}).Server), registry.Create("/a", nil))
}

func TestMaxCommit(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Dir: t.TempDir()}} {
		s := open(t, o).Server
		s.maxCommit = 1000
		rc := connect(t, s)
		commit(t, rc, registry.Create("/a", make([]byte, 900)))
		var sets []registry.Op
		for range 10 {
			sets = append(sets, registry.Set("/a", make([]byte, 90), registry.AnyVersion))
		}
		for _, ops := range [][]registry.Op{{registry.Set("/a", make([]byte, 1000), 0)}, sets} {
			if _, err := rc.Commit(t.Context(), ops...); !errors.Is(err, registry.ErrTooLarge) || !strings.Contains(err.Error(), "1000") {
				t.Errorf("commit of %d ops: %v", len(ops), err)
			}
		}
		if _, err := rc.Commit(t.Context(), registry.Absent("/"+strings.Repeat("x", maxPath))); !errors.Is(err, registry.ErrTooLarge) {
			t.Errorf("a path that is too long: %v", err)
		}
	}
}

// The longest path that is allowed can be stored.
func TestLongestPath(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Dir: t.TempDir()})
	path := "/" + strings.Repeat("x", maxPath-1)
	commit(t, connect(t, s.Server), registry.Create(path, []byte("x")))
	s = restart(t, s)
	if n := read(t, connect(t, s.Server), registry.Data(path))[0]; string(n.Data) != "x" {
		t.Errorf("after a restart: exists %v", n.Exists)
	}
}

// A version never becomes negative: that would be AnyVersion.
func TestVersionWraps(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	rc := connect(t, s.Server)
	commit(t, rc, registry.Create("/a", nil))
	s.mu.Lock()
	s.tree["/a"].version = math.MaxInt32
	s.mu.Unlock()
	if r := commit(t, rc, registry.Set("/a", nil, math.MaxInt32)); r[0].Version != 0 {
		t.Errorf("after version %d: %d", int32(math.MaxInt32), r[0].Version)
	}
}

// A sequential number that somebody took by hand is passed over.
func TestSequentialTaken(t *testing.T) {
	t.Parallel()
	rc := connect(t, open(t, Options{}).Server)
	commit(t, rc, registry.Create("/n-0000000000", nil), registry.Create("/n-0000000001", nil))
	if r := commit(t, rc, registry.CreateSequential("/n-", nil)); r[0].Path != "/n-0000000002" {
		t.Errorf("path %s", r[0].Path)
	}
}

// The notes that a node keeps about children which nobody lists stay few.
func TestChildMovesStayFew(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	rc := connect(t, s.Server)
	commit(t, rc, registry.Create("/a", nil))
	for range 1000 {
		commit(t, rc, registry.Create("/a/b", nil))
		commit(t, rc, registry.Delete("/a/b", 0))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := cap(s.tree["/a"].moved); n > 100 {
		t.Errorf("%d notes kept", n)
	}
}

// Ended watches leave nothing behind.
func TestWatchesAreForgotten(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	rc := connect(t, s.Server)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 100 {
		who := rc
		if i%2 == 1 {
			who = connect(t, s.Server)
		}
		ch, err := who.Watch(ctx, registry.Data("/a"), registry.Children("/a"), registry.Data(fmt.Sprintf("/%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			if err := who.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			defer func() {
				for range ch { // until it is closed
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if i == 0 && (len(s.watched) != 0 || len(s.sessions) != 1) {
					t.Errorf("%d paths are watched, %d sessions live", len(s.watched), len(s.sessions))
				}
			}()
		}
	}
	cancel()
}

func FuzzDecodeNode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(encodeNode(&state{}))
	f.Add(encodeNode(&state{data: []byte("data"), version: 3, sequence: 9, czxid: 5, mzxid: 8, mtime: 1}))
	f.Add(binary.BigEndian.AppendUint64([]byte{nodeFormat, 255}, math.MaxUint64))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := decodeNode(b)
		if err != nil {
			return
		}
		if got := encodeNode(&st); !slices.Equal(got, b) {
			t.Errorf("%x became %x", b, got)
		}
	})
}

func FuzzCheckPath(f *testing.F) {
	for _, p := range []string{"", "/", "/a/b", "/a//b", "/.", "/ä", "/\xff", "/a\x80", "x"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if checkPath(p) != nil || p == "/" {
			return
		}
		parent, name := split(p)
		if name == "" || strings.Contains(name, "/") || checkPath(parent) != nil || strings.ToValidUTF8(p, "") != p {
			t.Errorf("%q was let through", p)
		}
	})
}

func ExampleOpen() {
	ctx := context.Background()
	server, err := Open(Options{}) // in memory
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	one, _ := server.Connect(ctx)
	two, _ := server.Connect(ctx)

	// Two hosts want to lead; the second one's commit fails whole.
	_, err = one.Commit(ctx, registry.Ensure("/job"), registry.CreateEphemeral("/job/leader", []byte("one")))
	fmt.Println(err)
	_, err = two.Commit(ctx, registry.CreateEphemeral("/job/leader", []byte("two")))
	fmt.Println(err)

	watch, _ := two.Watch(ctx, registry.Data("/job/leader"))
	fmt.Printf("%s\n", (<-watch).Data("/job/leader").Data)
	one.Close()
	fmt.Println((<-watch).Data("/job/leader").Exists)
	// Output:
	// <nil>
	// registry: conflict: op 0 (ephemeral /job/leader): node exists
	// one
	// false
}
