package registrytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

func loadCases() []testCase {
	return []testCase{
		{"load/no update is lost", noLostUpdate},
		{"load/one of many takes each", oneTakesEach},
		{"load/random commits", randomCommits},
	}
}

// noLostUpdate: sessions raise two counters together, guarded by the version
// of one of them.
func noLostUpdate(e *env) {
	const sessions, raises = 8, 25
	a, b := e.p("/a"), e.p("/b")
	e.ok(registry.Create(a, []byte("0")), registry.Create(b, []byte("0")))
	var wg sync.WaitGroup
	for range sessions {
		rc := e.connect()
		e.await(rc, "/b", func(s registry.Snapshot) bool { return s.Data(b).Exists }, registry.Data(b))
		wg.Go(func() {
			for done := 0; done < raises; {
				nodes, err := rc.Read(e.ctx, registry.Data(a))
				if err != nil {
					e.Errorf("read: %v", err)
					return
				}
				n, err := strconv.Atoi(string(nodes[0].Data))
				if err != nil || n != int(nodes[0].Version) {
					e.Errorf("counter %q of version %d: %v", nodes[0].Data, nodes[0].Version, err)
					return
				}
				next := []byte(strconv.Itoa(n + 1))
				switch _, err := rc.Commit(e.ctx, registry.Set(b, next, registry.AnyVersion), registry.Set(a, next, nodes[0].Version)); {
				case err == nil:
					done++
				case !errors.Is(err, registry.ErrConflict):
					e.Errorf("commit: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	e.await(e.rc, "the last count", func(s registry.Snapshot) bool { return s.Data(a).Version >= sessions*raises }, registry.Data(a))
	for _, path := range []string{a, b} {
		if n := e.node(path); string(n.Data) != strconv.Itoa(sessions*raises) || n.Version != sessions*raises {
			e.Errorf("%s counted %q in %d versions, want %d", path, n.Data, n.Version, sessions*raises)
		}
	}
}

// oneTakesEach: sessions race for the same places.
func oneTakesEach(e *env) {
	const sessions, places = 6, 40
	e.ok(registry.Create(e.p("/won"), nil))
	var wg sync.WaitGroup
	wins := make([][]int, sessions)
	for s := range sessions {
		rc := e.connect()
		e.await(rc, "/won", func(s registry.Snapshot) bool { return s.Data(e.p("/won")).Exists }, registry.Data(e.p("/won")))
		wg.Go(func() {
			for i := range places {
				_, err := rc.Commit(e.ctx, registry.Create(e.p(fmt.Sprintf("/won/%d", i)), []byte(strconv.Itoa(s))), registry.CreateEphemeral(e.p(fmt.Sprintf("/by-%d-%d", s, i)), nil))
				switch {
				case err == nil:
					wins[s] = append(wins[s], i)
				case !errors.Is(err, registry.ErrConflict):
					e.Errorf("commit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for s, won := range wins {
		total += len(won)
		for _, i := range won {
			path := e.p(fmt.Sprintf("/won/%d", i))
			e.await(e.rc, path, func(s registry.Snapshot) bool { return s.Data(path).Exists }, registry.Data(path))
			if n := e.node(path); string(n.Data) != strconv.Itoa(s) {
				e.Errorf("place %d: session %d won it, the node says %q", i, s, n.Data)
			}
		}
	}
	if total != places {
		e.Errorf("%d wins for %d places", total, places)
	}
	if n := len(e.names(e.root)); n != places+1 {
		e.Errorf("%d nodes below the root, want %d marks and one more: a loser left a trace", n, places)
	}
}

func randomCommits(e *env) {
	for seed := range uint64(4) {
		root := e.p(fmt.Sprintf("/%d", seed))
		e.ok(registry.Create(root, nil))
		Walk(e.TB, rand.New(rand.NewPCG(seed, 1)), 250, root, e.server)
	}
}
