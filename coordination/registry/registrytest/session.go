package registrytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

func sessionCases() []testCase {
	return []testCase{
		{"session/close", sessionClose},
		{"session/expiry", sessionExpiry},
		{"session/Lost comes before the nodes go", lostFirst},
		{"session/trust", trust},
		{"session/sessions are apart", sessionsApart},
		{"session/nothing is written after the end", sessionRace},
	}
}

// over demands that every method says err.
func (e *env) over(rc registry.Center, want error) {
	e.Helper()
	_, err := rc.Commit(e.ctx, registry.Create(e.p("/late"), nil))
	if !errors.Is(err, want) {
		e.Errorf("commit: %v, want %v", err, want)
	}
	if _, err = rc.Commit(e.ctx); !errors.Is(err, want) {
		e.Errorf("commit of nothing: %v, want %v", err, want)
	}
	if _, err = rc.Read(e.ctx, registry.Data(e.root)); !errors.Is(err, want) {
		e.Errorf("read: %v, want %v", err, want)
	}
	if ch, err := rc.Watch(e.ctx, registry.Data(e.root)); !errors.Is(err, want) || ch != nil {
		e.Errorf("watch: %v, %v, want %v", ch, err, want)
	}
	if rc.Trusted() {
		e.Error("a session that is over is trusted")
	}
	if level, changed := rc.Trust(); level != registry.TrustLost || changed != nil {
		e.Errorf("trust in a session that is over: %s, channel %v, want lost and nil", level, changed)
	}
	select {
	case <-rc.Lost():
	default:
		e.Error("Lost of a session that is over is open")
	}
}

func sessionClose(e *env) {
	e.ok(registry.Create(e.p("/q"), nil))
	rc := e.connect()
	e.await(rc, "/q", func(s registry.Snapshot) bool { return s.Data(e.p("/q")).Exists }, registry.Data(e.p("/q")))
	if !rc.Trusted() {
		e.Error("a new session is not trusted")
	}
	select {
	case <-rc.Lost():
		e.Error("Lost of a new session is closed")
	default:
	}
	r := e.commit(rc, registry.CreateEphemeral(e.p("/e"), nil), registry.CreateEphemeral(e.p("/q/e"), nil), registry.CreateSequential(e.p("/q/n-"), nil),
		registry.Create(e.p("/stays"), []byte("x")), registry.CreateEphemeral(e.p("/x"), nil), registry.Delete(e.p("/x"), 0))
	if err := rc.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.ok(registry.Create(e.p("/after"), nil)) // what this session reads is as new as that
	for _, path := range []string{e.p("/e"), e.p("/q/e"), r[2].Path} {
		if e.node(path).Exists {
			e.Errorf("%s is there after its session was closed", path)
		}
	}
	if names := e.names(e.p("/q")); len(names) != 0 {
		e.Errorf("children after the session was closed: %q", names)
	}
	if n := e.node(e.p("/stays")); string(n.Data) != "x" {
		e.Errorf("a persistent node of a closed session: %+v", n)
	}
	e.over(rc, registry.ErrClosed)
	if err := rc.Close(); err != nil {
		e.Errorf("closed again: %v", err)
	}
	e.over(rc, registry.ErrClosed)
	if e.node(e.p("/late")).Exists {
		e.Error("a closed session wrote")
	}
	e.ok(registry.Absent(e.p("/e")), registry.CreateEphemeral(e.p("/e"), nil), registry.Delete(e.p("/q"), 0))
}

func sessionExpiry(e *env) {
	rc := e.connect()
	e.commit(rc, registry.CreateEphemeral(e.p("/e"), nil), registry.Create(e.p("/stays"), nil), registry.CreateSequential(e.p("/n-"), nil))
	e.server.Expire(e.TB, rc)
	e.awaitLost(rc)
	e.over(rc, registry.ErrSessionLost)
	e.awaitGone(e.rc, e.p("/e"))
	if names := e.names(e.root); len(names) != 1 || names[0] != "stays" {
		e.Errorf("nodes after the session expired: %q, want stays", names)
	}
	e.over(rc, registry.ErrSessionLost)
	if err := rc.Close(); err != nil {
		e.Errorf("close after the session was lost: %v", err)
	}
	e.over(rc, registry.ErrClosed)
	if err := rc.Close(); err != nil {
		e.Errorf("closed again: %v", err)
	}
	// The others live on, and a new session can take the places.
	if !e.rc.Trusted() {
		e.Error("another session is not trusted any more")
	}
	next := e.connect()
	e.commit(next, registry.CreateEphemeral(e.p("/e"), nil))
}

func lostFirst(e *env) {
	for i := range 20 {
		path := e.p(fmt.Sprintf("/e%d", i))
		rc := e.connect()
		e.commit(rc, registry.CreateEphemeral(path, nil))
		e.await(e.rc, path, func(s registry.Snapshot) bool { return s.Data(path).Exists }, registry.Data(path))
		ctx, cancel := context.WithCancel(e.ctx)
		ch := e.watch(ctx, e.rc, registry.Data(path), registry.Children(e.root))
		for range 200 { // more to tell, so that the first one told has the time to look
			e.watch(ctx, e.rc, registry.Data(path))
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for s := range ch {
				if s.Data(path).Exists && slices.Contains(s.Children(e.root), path[len(e.root)+1:]) {
					continue
				}
				select {
				case <-rc.Lost():
				default:
					e.Error("an ephemeral node was seen gone while its session did not know")
				}
				if level, _ := rc.Trust(); rc.Trusted() || level != registry.TrustLost {
					e.Error("an ephemeral node was seen gone while its session was trusted")
				}
				return
			}
			e.Error("the node did not go")
		})
		if i%2 == 0 {
			e.server.Expire(e.TB, rc)
		} else if err := rc.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
		wg.Wait()
		cancel()
	}
}

// trust: who follows the channels sees every session end, and nobody is told
// of a change that was none.
func trust(e *env) {
	for i := range 4 {
		rc := e.connect()
		level, changed := rc.Trust()
		if level != registry.TrustLive || changed == nil || !rc.Trusted() {
			e.Fatalf("trust in a new session: %s, channel %v", level, changed)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					level, changed := rc.Trust()
					if level == registry.TrustLost {
						break
					}
					select {
					case <-changed:
					case <-e.ctx.Done():
						e.Error("no follower learned that the session ended")
						return
					}
				}
				select {
				case <-rc.Lost():
				default:
					e.Error("trust is lost, and Lost is open")
				}
			})
		}
		if i%2 == 0 {
			e.server.Expire(e.TB, rc)
		} else if err := rc.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
		wg.Wait()
	}
}

func sessionsApart(e *env) {
	one, two := e.connect(), e.connect()
	e.commit(one, registry.CreateEphemeral(e.p("/one"), nil), registry.CreateEphemeral(e.p("/swap"), nil))
	e.await(two, "/swap", func(s registry.Snapshot) bool { return s.Data(e.p("/swap")).Exists }, registry.Data(e.p("/swap")))
	// The node is now another session's, and is deleted with it.
	e.commit(two, registry.CreateEphemeral(e.p("/two"), nil), registry.Delete(e.p("/swap"), 0), registry.CreateEphemeral(e.p("/swap"), nil))
	// This one no longer belongs to a session.
	e.commit(two, registry.CreateEphemeral(e.p("/kept"), nil), registry.Delete(e.p("/kept"), 0), registry.Create(e.p("/kept"), nil))
	if err := one.Close(); err != nil {
		e.Fatal(err)
	}
	e.await(e.rc, "/two", func(s registry.Snapshot) bool { return s.Data(e.p("/two")).Exists }, registry.Data(e.p("/two")))
	if e.node(e.p("/one")).Exists || !e.node(e.p("/swap")).Exists || !two.Trusted() {
		e.Fatalf("after one session closed: %q", e.names(e.root))
	}
	e.server.Expire(e.TB, two)
	e.awaitGone(e.rc, e.p("/swap"))
	e.awaitGone(e.rc, e.p("/two"))
	if names := e.names(e.root); len(names) != 1 || names[0] != "kept" {
		e.Fatalf("after both ended: %q, want kept", names)
	}
}

// Many goroutines commit while their session ends: every answered commit took effect, and no node of the
// session is left or created later.
func sessionRace(e *env) {
	for round := range 6 {
		rc := e.connect()
		var wg sync.WaitGroup
		var mu sync.Mutex
		begun := make(chan struct{})
		var once sync.Once
		done := 0
		for g := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					_, err := rc.Commit(e.ctx,
						registry.CreateEphemeral(e.p(fmt.Sprintf("/e-%d-%d", g, i)), nil), registry.Create(e.p(fmt.Sprintf("/p-%d-%d-%d", round, g, i)), nil))
					if err != nil {
						if !errors.Is(err, registry.ErrSessionLost) && !errors.Is(err, registry.ErrClosed) && !errors.Is(err, registry.ErrUnknown) {
							e.Errorf("commit while the session ends: %v", err)
						}
						return
					}
					mu.Lock()
					if done++; done == 20 {
						once.Do(func() { close(begun) })
					}
					mu.Unlock()
				}
			})
		}
		<-begun
		if round%2 == 0 {
			e.server.Expire(e.TB, rc)
		} else if err := rc.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
		wg.Wait()
		e.await(e.rc, "no ephemeral node", func(s registry.Snapshot) bool {
			for _, name := range s.Children(e.root) {
				if name[0] == 'e' {
					return false
				}
			}
			return true
		}, registry.Children(e.root))
		names := e.names(e.root)
		if len(names) < done {
			e.Errorf("%d persistent nodes, but %d commits were answered", len(names), done)
		}
		for len(names) > 0 {
			n := min(len(names), 1000)
			var ops []registry.Op
			for _, name := range names[:n] {
				ops = append(ops, registry.Delete(e.p("/"+name), registry.AnyVersion))
			}
			e.ok(ops...)
			names = names[n:]
		}
	}
}
