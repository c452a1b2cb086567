package signedout

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth/cookie"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "ns"

func serve(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func connect(t *testing.T, s *embedded.Server) registry.Center {
	t.Helper()
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// session is one with the registry, which ends with the test.
func session(t *testing.T, s *embedded.Server) registry.Center {
	t.Helper()
	c := connect(t, s)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// list is a host's, which runs until the test ends.
func list(t *testing.T) *List {
	t.Helper()
	l := New(namespace, time.Now, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l
}

func await(t *testing.T, what string, good func() bool) {
	t.Helper()
	late, again := time.After(20*time.Second), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !good() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s did not come about", what)
		}
	}
}

// TestAllHosts: a session that is signed out at one host is so at the others, and at one
// that begins later.
func TestAllHosts(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := list(t), list(t)
	begun := time.Now()
	if a.Loaded() || a.Has("ann", "x", begun) {
		t.Error("something is known before the registry is")
	}
	a.Begun(session(t, s))
	b.Begun(session(t, s))
	await(t, "the list", func() bool { return a.Loaded() && b.Loaded() })
	if err := a.Add(t.Context(), "ann", "x", begun); err != nil {
		t.Fatal(err)
	}
	if !a.Has("ann", "x", begun) {
		t.Error("the host itself does not know it")
	}
	await(t, "the other host's knowledge", func() bool { return b.Has("ann", "x", begun) })
	later := list(t)
	later.Begun(session(t, s))
	await(t, "the list of a host that begins later", later.Loaded)
	if !later.Has("ann", "x", begun) || later.Has("ann", "y", begun) {
		t.Error("a host that begins later knows another list")
	}
}

// TestWithoutRegistry: a sign-out counts on this host at once, and on others when the
// registry is there again.
func TestWithoutRegistry(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := list(t), list(t)
	begun := time.Now()
	if err := a.Add(t.Context(), "ann", "early", begun); err == nil || !strings.Contains(err.Error(), "no session with the registry") {
		t.Errorf("%v", err)
	}
	first := connect(t, s)
	a.Begun(first)
	b.Begun(session(t, s))
	await(t, "what was signed out before", func() bool { return b.Has("ann", "early", begun) })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Add(t.Context(), "ann", "late", begun); err == nil {
		t.Error("a closed session takes a commit")
	}
	if !a.Has("ann", "late", begun) || b.Has("ann", "late", begun) {
		t.Errorf("here %t, elsewhere %t", a.Has("ann", "late", begun), b.Has("ann", "late", begun))
	}
	a.Begun(session(t, s))
	await(t, "what was signed out meanwhile", func() bool { return b.Has("ann", "late", begun) })
}

// TestAtOnce: many hosts write at once, and nothing is lost.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	begun := time.Now()
	var hosts []*List
	for range 4 {
		l := list(t)
		l.Begun(session(t, s))
		hosts = append(hosts, l)
	}
	done := make(chan error)
	for i, l := range hosts {
		go func() {
			for n := range 10 {
				if err := l.Add(t.Context(), "ann"+fmt.Sprint(i), fmt.Sprint(i, "-", n), begun); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range hosts {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for i := range hosts {
		for n := range 10 {
			for _, l := range hosts {
				await(t, fmt.Sprint(i, "-", n), func() bool { return l.Has("ann"+fmt.Sprint(i), fmt.Sprint(i, "-", n), begun) })
			}
		}
	}
}

// TestOneUser: however often one user signs out, it ends the sessions of nobody else.
func TestOneUser(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a, b := list(t), list(t)
	now := time.Now()
	for i := range 3 * most {
		if err := a.Add(t.Context(), "eve", fmt.Sprint(i), now); err == nil {
			t.Fatal("there is a session with the registry")
		}
	}
	a.Begun(session(t, s))
	b.Begun(session(t, s))
	await(t, "the list", func() bool { return b.Has("eve", "0", now) })
	for i := range 3 * most {
		if !b.Has("eve", fmt.Sprint(i), now) {
			t.Fatalf("session %d is alive again", i)
		}
	}
	for what, l := range map[string]*List{"here": a, "elsewhere": b} {
		if l.Has("ann", "hers", now.Add(-time.Hour)) {
			t.Errorf("%s: another user is signed out", what)
		}
		if l.Has("eve", "new", now.Add(2*time.Second)) {
			t.Errorf("%s: a new session is taken for one that was signed out", what)
		}
	}
}

// TestNode: what was written there outside wasmjob, or deleted, is written again, and the
// node stays small.
func TestNode(t *testing.T) {
	t.Parallel()
	s := serve(t)
	outside := session(t, s)
	path := tree.ClusterSignedOut(namespace)
	l := list(t)
	l.Begun(session(t, s))
	begun := time.Now()
	if err := l.Add(t.Context(), "ann", "x", begun); err != nil {
		t.Fatal(err)
	}
	read := func() registry.Node {
		t.Helper()
		nodes, err := outside.Read(t.Context(), registry.Data(path))
		if err != nil {
			t.Fatal(err)
		}
		return nodes[0]
	}
	for what, op := range map[string]registry.Op{"rubbish": registry.Set(path, []byte("{rubbish"), registry.AnyVersion), "nothing": registry.Set(path, nil, registry.AnyVersion), "deleted": registry.Delete(path, registry.AnyVersion)} {
		if _, err := outside.Commit(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		await(t, what, func() bool { return strings.Contains(string(read().Data), `"x":`) })
	}
	full := list(t)
	for i := range 3 * most {
		if err := full.Add(t.Context(), "ann"+fmt.Sprint(i), fmt.Sprint("session", i), begun.Add(time.Duration(i)*time.Second)); err == nil {
			t.Fatal("there is a session with the registry")
		}
	}
	full.Begun(session(t, s))
	newest := begun.Add(3 * most * time.Second)
	await(t, "the floor", func() bool { return l.Has("ann", "never", begun.Add(most*time.Second)) })
	if size := len(read().Data); size > 100*most {
		t.Errorf("the node has %d bytes", size)
	}
	if l.Has("ann", "another", newest) || !l.Has("ann", "x", begun) {
		t.Error("the floor is wrong")
	}
}

var _ cookie.Revocations = (*List)(nil)
