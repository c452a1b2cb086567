package zookeeper_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// long is far more than anything here takes, and still an end.
const long = 60 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	t.Cleanup(cancel)
	return ctx
}

func commit(t testing.TB, rc registry.Center, ops ...registry.Op) []registry.Result {
	t.Helper()
	r, err := rc.Commit(within(t), ops...)
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return r
}

func read(t testing.TB, rc registry.Center, path string) registry.Node {
	t.Helper()
	nodes, err := rc.Read(within(t), registry.Data(path))
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return nodes[0]
}

// until waits for a snapshot.
func until(t testing.TB, rc registry.Center, what string, is func(registry.Snapshot) bool, queries ...registry.Query) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	ch, err := rc.Watch(ctx, queries...)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	for s := range ch {
		if is(s) {
			return
		}
	}
	t.Fatalf("never came: %s", what)
}

func gone(t testing.TB, rc registry.Center, path string) {
	t.Helper()
	until(t, rc, path+" gone", func(s registry.Snapshot) bool { return !s.Data(path).Exists }, registry.Data(path))
}

func wait(t testing.TB, ch <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(long):
		t.Fatalf("never came: %s", what)
	}
}

func proxy(t testing.TB, target string) *zkserver.Proxy {
	t.Helper()
	p, err := zkserver.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// fresh is a path that no other test uses.
func fresh(t testing.TB, rc registry.Center) string {
	t.Helper()
	root := "/test-" + rand.Text()
	commit(t, rc, registry.Ensure(root))
	return root
}

// levels collects the levels of trust until the session is lost.
func levels(rc registry.Center) <-chan []registry.Trust {
	done := make(chan []registry.Trust, 1)
	go func() {
		var seen []registry.Trust
		for {
			level, changed := rc.Trust()
			if len(seen) == 0 || seen[len(seen)-1] != level {
				seen = append(seen, level)
			}
			if level == registry.TrustLost {
				done <- seen
				return
			}
			<-changed
		}
	}()
	return done
}

// A session that hears nothing ends, step by step, and before its nodes go.
func TestSilence(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	for name, harm := range map[string]func(*zkserver.Proxy){
		"cut":       (*zkserver.Proxy).Cut,
		"half open": func(p *zkserver.Proxy) { p.Hold(zkserver.ToClient) },
		"swallowed": func(p *zkserver.Proxy) { p.Hold(zkserver.ToServer | zkserver.ToClient) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := dial(t, zookeeper.Options{Connect: e.Connect()})
			root := fresh(t, other)
			p := proxy(t, e.Addr(0))
			rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 4 * time.Second})
			commit(t, rc, registry.CreateEphemeral(root+"/e", nil))
			seen := levels(rc)
			watch, err := rc.Watch(within(t), registry.Data(root))
			if err != nil {
				t.Fatal(err)
			}
			harm(p)
			if name == "half open" { // the server hears it, so it keeps the session
				wait(t, rc.Lost(), "the loss")
				if !read(t, other, root+"/e").Exists {
					t.Error("its node went before it was closed")
				}
				if err := rc.Close(); err != nil {
					t.Error(err)
				}
			}
			gone(t, other, root+"/e")
			select {
			case <-rc.Lost():
			default:
				t.Error("its node went, and the session did not know")
			}
			got := <-seen
			if got[len(got)-1] != registry.TrustLost || got[0] > got[1] {
				t.Errorf("levels: %v", got)
			}
			for range watch { // until it is closed
			}
			p.Heal()
			if _, err := rc.Commit(t.Context(), registry.Create(root+"/late", nil)); !errors.Is(err, registry.ErrSessionLost) && !errors.Is(err, registry.ErrClosed) {
				t.Errorf("commit after the end: %v", err)
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
			if read(t, other, root+"/late").Exists {
				t.Error("it wrote after its end")
			}
		})
	}
}

// In doubt nothing is committed, and an answer ends the doubt.
func TestDoubt(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	p := proxy(t, e.Addr(0))
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, other)
	var mu sync.Mutex
	var leap time.Duration // the clock only goes this far, as if all was fast
	clock := zookeeper.BootClock()
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second}.WithClock(func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return clock() + leap
	}))
	commit(t, rc, registry.CreateEphemeral(root+"/e", nil))
	made := read(t, other, root+"/e").Czxid
	p.Hold(zkserver.ToClient)
	for want, ahead := range []time.Duration{0, 25 * time.Second, 38 * time.Second} {
		mu.Lock()
		leap = ahead
		mu.Unlock()
		if level, _ := rc.Trust(); level != registry.Trust(want) {
			t.Errorf("trust %v ahead: %s, want %s", ahead, level, registry.Trust(want))
		}
		if want > 0 {
			if _, err := rc.Commit(t.Context(), registry.Set(root, nil, registry.AnyVersion)); !errors.Is(err, registry.ErrSuspect) || rc.Trusted() {
				t.Errorf("commit %v ahead: %v", ahead, err)
			}
		}
	}
	_, changed := rc.Trust()
	p.Heal()
	for level := registry.TrustYield; level != registry.TrustLive; level, changed = rc.Trust() {
		wait(t, changed, "an answer")
	}
	commit(t, rc, registry.Set(root, nil, 0))
	if n := read(t, other, root+"/e"); n.Czxid != made {
		t.Errorf("the node is another one: %+v", n)
	}
	// Somebody wakes up who slept for longer than the session lives: he is told
	// in the first call.
	mu.Lock()
	leap += time.Hour
	mu.Unlock()
	if rc.Trusted() {
		t.Error("trusted after an hour's sleep")
	}
	if _, err := rc.Commit(t.Context(), registry.Set(root, nil, registry.AnyVersion)); !errors.Is(err, registry.ErrSessionLost) {
		t.Errorf("commit after an hour's sleep: %v", err)
	}
	wait(t, rc.Lost(), "the loss")
}

// Without an answer for half of the session, after an answer that was as old as it
// gets, nobody is told to stop, and there is time left to find a server.
func TestHalfASessionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	p := proxy(t, e.Addr(0))
	const session = 60 * time.Second
	var leap atomic.Int64
	clock := zookeeper.BootClock()
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: session}.WithClock(func() time.Duration {
		return clock() + time.Duration(leap.Load())
	}))
	leap.Add(int64(session/12 - time.Millisecond)) // a question is due in a moment
	p.Hold(zkserver.ToClient)
	for range 6 {
		leap.Add(int64(session / 12))
		if level, _ := rc.Trust(); level > registry.TrustSuspect {
			t.Fatalf("%s, %s after the last answer", level, time.Duration(leap.Load()))
		}
	}
	if rc.Trusted() {
		t.Error("trusted after half of the session")
	}
	leap.Add(int64(session/24 - 2*time.Second)) // so long may it take to ask, less what the test takes
	if level, _ := rc.Trust(); level != registry.TrustSuspect {
		t.Errorf("%s, %s after the last answer", level, time.Duration(leap.Load()))
	}
	_, changed := rc.Trust()
	p.Heal()
	for level := registry.TrustSuspect; level != registry.TrustLive; level, changed = rc.Trust() {
		if level > registry.TrustSuspect {
			t.Fatalf("%s when the servers answer again", level)
		}
		wait(t, changed, "an answer")
	}
}

// A server is killed and comes back: the same session, the same nodes, and
// watches that go on.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, fast(1))
	rc := dial(t, zookeeper.Options{Connect: e.Connect(), SessionTimeout: 60 * time.Second})
	other := dial(t, zookeeper.Options{Connect: e.Connect(), SessionTimeout: 60 * time.Second})
	root := fresh(t, rc)
	commit(t, rc, registry.CreateEphemeral(root+"/e", []byte("x")))
	made := read(t, rc, root+"/e")
	watch, err := rc.Watch(within(t), registry.Data(root), registry.Children(root))
	if err != nil {
		t.Fatal(err)
	}
	<-watch
	for round := range int32(2) {
		if err := e.Kill(0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := rc.Commit(ctx, registry.Create(root+"/never", nil)); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, registry.ErrUnknown) {
			// Unknown if it was written before the end of the connection was seen.
			t.Errorf("commit without a server: %v", err)
		}
		cancel()
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := other.Commit(within(t), registry.Set(root, nil, round)); err != nil {
				t.Errorf("commit that waited for the server: %v", err)
			}
		})
		if err := e.Restart(0); err != nil {
			t.Fatal(err)
		}
		both.Wait()
		for s := range watch {
			if s.Data(root).Version == round+1 {
				break
			}
		}
	}
	if n := read(t, rc, root+"/e"); n.Czxid != made.Czxid || !rc.Trusted() {
		t.Errorf("after the restarts: %+v, was %+v", n, made)
	}
	if read(t, rc, root+"/never").Exists {
		t.Error("a commit that was given up was sent later")
	}
}

// trio is an ensemble of three for doing harm to.
func trio(t testing.TB, o zkserver.Options) *zkserver.Ensemble {
	o.Servers, o.TickTime, o.NoSync = 3, 200*time.Millisecond, true
	return zkserver.ForTest(t, o)
}

// The leader is killed; the quorum is lost and comes back in time.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	e := trio(t, zkserver.Options{})
	var all []*zookeeper.Session
	for i := range e.Len() {
		all = append(all, dial(t, zookeeper.Options{Connect: e.Addr(i) + "," + e.Connect(), SessionTimeout: 60 * time.Second}))
	}
	root := fresh(t, all[0])
	var made []int64
	for i, rc := range all {
		path := fmt.Sprintf("%s/%d", root, i)
		until(t, rc, "root", func(s registry.Snapshot) bool { return s.Data(root).Exists }, registry.Data(root))
		commit(t, rc, registry.CreateEphemeral(path, nil))
		made = append(made, read(t, rc, path).Czxid)
	}
	check := func(what string) {
		t.Helper()
		for i, rc := range all {
			ops := []registry.Op{registry.Set(root, nil, registry.AnyVersion), registry.Set(fmt.Sprintf("%s/%d", root, i), nil, registry.AnyVersion)}
			r, err := rc.Commit(within(t), ops...)
			for errors.Is(err, registry.ErrUnknown) { // the connection broke after it was sent
				r, err = rc.Commit(within(t), ops...)
			}
			if err != nil {
				t.Fatalf("%s: session %d: commit: %v", what, i, err)
			}
			if n := read(t, rc, fmt.Sprintf("%s/%d", root, i)); n.Czxid != made[i] || n.Mzxid != r[1].Zxid {
				t.Errorf("%s: session %d: %+v", what, i, n)
			}
			select {
			case <-rc.Lost():
				t.Fatalf("%s: session %d is lost", what, i)
			default:
			}
		}
	}
	leader, err := e.Leader()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Kill(leader); err != nil {
		t.Fatal(err)
	}
	check("leader killed")
	// A second one: no quorum.
	next := (leader + 1) % 3
	if err := e.Kill(next); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{leader, next} {
		if err := e.Restart(i); err != nil {
			t.Fatal(err)
		}
	}
	check("quorum lost and back")
}

// The quorum is lost for longer than a session lives: it is lost before the
// servers can have ended it.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	e := trio(t, zkserver.Options{})
	rc := dial(t, zookeeper.Options{Connect: e.Connect(), SessionTimeout: 4 * time.Second})
	other := dial(t, zookeeper.Options{Connect: e.Connect(), SessionTimeout: 5 * time.Minute})
	root := fresh(t, other)
	until(t, rc, "root", func(s registry.Snapshot) bool { return s.Data(root).Exists }, registry.Data(root))
	commit(t, rc, registry.CreateEphemeral(root+"/e", nil))
	for _, i := range []int{0, 1} {
		if err := e.Kill(i); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, rc.Lost(), "the loss")
	for _, i := range []int{0, 1} {
		if err := e.Restart(i); err != nil {
			t.Fatal(err)
		}
	}
	if !read(t, other, root+"/e").Exists {
		t.Error("the servers ended the session while nobody led them")
	}
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
	gone(t, other, root+"/e")
}

// A server that is cut off from its leader still answers pings: that is no
// reason to trust it. Who knows other servers moves to one of them.
func TestServerCutOff(t *testing.T) {
	t.Parallel()
	e := trio(t, zkserver.Options{PeerProxies: true, SyncLimit: 150}) // 30 s
	leader, err := e.Leader()
	if err != nil {
		t.Fatal(err)
	}
	follower := (leader + 1) % 3
	other := dial(t, zookeeper.Options{Connect: e.Addr(leader), SessionTimeout: 60 * time.Second})
	root := fresh(t, other)
	only := dial(t, zookeeper.Options{Connect: e.Addr(follower), SessionTimeout: 4 * time.Second})
	p := proxy(t, e.Addr(follower))
	knows := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 20 * time.Second})
	for name, rc := range map[string]registry.Center{"/only": only, "/knows": knows} {
		until(t, rc, "root", func(s registry.Snapshot) bool { return s.Data(root).Exists }, registry.Data(root))
		commit(t, rc, registry.CreateEphemeral(root+name, nil))
	}
	e.CutPeers(follower)
	p.SetTarget(e.Addr(leader)) // where the next connection goes
	gone(t, other, root+"/only")
	select {
	case <-only.Lost():
	default:
		t.Error("its node went, and the session did not know")
	}
	commit(t, knows, registry.Set(root+"/knows", []byte("moved"), 0))
	if n := read(t, other, root+"/knows"); string(n.Data) != "moved" {
		t.Errorf("the session that moved: %+v", n)
	}
	e.HealPeers(follower)
}

// counter counts requests by kind.
type counter struct {
	mu  sync.Mutex
	ops map[string]int
}

func (c *counter) count(op string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops == nil {
		c.ops = make(map[string]int)
	}
	c.ops[op] += n
}

// take returns the counts as "getData 1, multi 2", less those named, and
// begins anew.
func (c *counter) take(less ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, op := range []string{"connect", "auth", "multi", "exists", "getData", "getChildren", "sync", "ping", "close"} {
		if n := c.ops[op]; n > 0 && !strings.Contains(strings.Join(less, " "), op) {
			parts = append(parts, fmt.Sprintf("%s %d", op, n))
		}
		delete(c.ops, op)
	}
	for op := range c.ops {
		parts = append(parts, "unexpected "+op)
	}
	return strings.Join(parts, ", ")
}

func (c *counter) of(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops[op]
}

// The connection breaks between a commit's being sent and its answer.
func TestAmbiguous(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	type outcome struct {
		results []registry.Result
		err     error
	}
	for name, c := range map[string]struct {
		lose zkserver.Direction // what gets lost
		ops  func(root string) []registry.Op
		err  error
	}{
		"request": {zkserver.ToServer, func(root string) []registry.Op {
			return []registry.Op{registry.Set(root, []byte("done"), 0), registry.Create(root+"/p", nil)}
		}, nil},
		"request of creates only": {zkserver.ToServer, func(root string) []registry.Op {
			return []registry.Op{registry.Create(root+"/x", nil), registry.Absent(root + "/y"), registry.Create(root+"/x/z", nil)}
		}, nil},
		"answer, with an ephemeral node": {zkserver.ToClient, func(root string) []registry.Op {
			return []registry.Op{registry.Set(root, []byte("1"), 0), registry.CreateEphemeral(root+"/e", nil), registry.Set(root, []byte("done"), 1)}
		}, nil},
		"answer, nothing to tell by": {zkserver.ToClient, func(root string) []registry.Op {
			return []registry.Op{registry.Set(root, []byte("done"), 0)}
		}, registry.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := fresh(t, other)
			p := proxy(t, e.Addr(0))
			var n counter
			rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second, OnOperation: n.count})
			read(t, rc, root)
			n.take()
			p.Hold(c.lose)
			done := make(chan outcome, 1)
			go func() {
				r, err := rc.Commit(within(t), c.ops(root)...)
				done <- outcome{r, err}
			}()
			if c.lose == zkserver.ToClient {
				until(t, other, "the effect", func(s registry.Snapshot) bool { return string(s.Data(root).Data) == "done" }, registry.Data(root))
			} else {
				for n.of("multi") == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			p.Cut()
			p.Heal()
			got := <-done
			if !errors.Is(got.err, c.err) {
				t.Fatalf("error %v, want %v", got.err, c.err)
			}
			if c.err != nil {
				return
			}
			sets := 0
			for i, op := range c.ops(root) {
				r := got.results[i]
				switch op.Kind {
				case registry.OpSet:
					sets++
					if now := read(t, other, op.Path); r.Version != op.Version+1 || r.Zxid != now.Mzxid {
						t.Errorf("result %+v, the node is %+v", r, now)
					}
				case registry.OpCreate, registry.OpEphemeral:
					if now := read(t, other, op.Path); !now.Exists || now.Version != 0 {
						t.Errorf("%s: %+v", op.Path, now)
					}
				}
			}
			if now := read(t, other, root); int(now.Version) != sets {
				t.Errorf("%d sets made version %d", sets, now.Version)
			}
		})
	}
}

// A commit that nobody waits for any more is not sent when the connection is
// back, and those after it are.
func TestGivenUpCommit(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, other)
	p := proxy(t, e.Addr(0))
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second})
	for round := range int32(5) {
		p.Cut()
		var givers sync.WaitGroup
		for i := range 20 {
			givers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*3*time.Millisecond)
				defer cancel()
				_, err := rc.Commit(ctx, registry.Create(fmt.Sprintf("%s/%d-%d", root, round, i), nil))
				// Unknown if it was written to a connection that was not yet
				// known to be cut.
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, registry.ErrUnknown) {
					t.Errorf("commit while cut off: %v", err)
				}
			})
		}
		givers.Wait()
		p.Heal()
		commit(t, rc, registry.Set(root, nil, round))
	}
	nodes, err := other.Read(t.Context(), registry.Children(root))
	if err != nil || len(nodes[0].Names) > 0 {
		t.Errorf("sent after all: %q, %v", nodes[0].Names, err)
	}
}

// Connections break all the time, sessions commit: every commit that was
// answered happened once, and none that was refused did.
func TestBreakingConnections(t *testing.T) {
	t.Parallel()
	e := shared.get(t, 1)
	other := dial(t, zookeeper.Options{Connect: e.Connect()})
	root := fresh(t, other)
	p := proxy(t, e.Addr(0))
	rc := dial(t, zookeeper.Options{Connect: p.Addr(), SessionTimeout: 60 * time.Second})
	const each, hands = 100, 4
	for w := range hands {
		commit(t, rc, registry.Create(fmt.Sprintf("%s/%d", root, w), nil))
	}
	stop := make(chan struct{})
	var breaker, workers sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				p.Drop()
			}
		}
	})
	for w := range hands {
		workers.Go(func() {
			path := fmt.Sprintf("%s/%d", root, w)
			for version := int32(0); version < each; {
				_, err := rc.Commit(within(t), registry.Set(path, nil, version), registry.Create(fmt.Sprintf("%s/%d", path, version), nil))
				switch {
				case err == nil:
					version++
				case errors.Is(err, registry.ErrUnknown):
					nodes, err := rc.Read(within(t), registry.Data(path))
					if err != nil {
						t.Errorf("read: %v", err)
						return
					}
					if v := nodes[0].Version; v != version && v != version+1 {
						t.Errorf("version %d after an unknown outcome at %d", v, version)
						return
					}
					version = nodes[0].Version
				default:
					t.Errorf("commit: %v", err)
					return
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	breaker.Wait()
	for w := range hands {
		path := fmt.Sprintf("%s/%d", root, w)
		nodes, err := other.Read(t.Context(), registry.Data(path), registry.Children(path))
		if err != nil || nodes[0].Version != each || len(nodes[1].Names) != each {
			t.Errorf("worker %d: version %d, %d children, %v; want %d", w, nodes[0].Version, len(nodes[1].Names), err, each)
		}
	}
}
