package zookeeper_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// shared are the servers that tests without a taste for harm use together.
var shared pool

type pool struct {
	mu  sync.Mutex
	by  map[int]*zkserver.Ensemble
	err map[int]error
}

func (p *pool) get(t testing.TB, servers int) *zkserver.Ensemble {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by, p.err = make(map[int]*zkserver.Ensemble), make(map[int]error)
	}
	if p.by[servers] == nil && p.err[servers] == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		p.by[servers], p.err[servers] = zkserver.Start(ctx, fast(servers))
	}
	if err := p.err[servers]; err != nil {
		t.Fatal(err)
	}
	return p.by[servers]
}

func (p *pool) close() error {
	for _, e := range p.by {
		if e == nil {
			continue
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return nil
}

func fast(servers int) zkserver.Options {
	return zkserver.Options{Servers: servers, TickTime: 200 * time.Millisecond, SyncLimit: 25, NoSync: true}
}

// suite is the registrytest.Server of some servers.
type suite struct{ *zkserver.Ensemble }

func (s suite) Connect(t testing.TB) registry.Center {
	t.Helper()
	return dial(t, zookeeper.Options{Connect: s.Ensemble.Connect()})
}

func (s suite) Expire(_ testing.TB, r registry.Center) { r.(*zookeeper.Session).Expire() }

// dial opens a session that is closed with the test.
func dial(t testing.TB, o zookeeper.Options) *zookeeper.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rc, err := zookeeper.Dial(ctx, o)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() {
		if err := rc.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return rc
}

func TestStandalone(t *testing.T) {
	registrytest.Run(t, func(t testing.TB) registrytest.Server { return suite{shared.get(t, 1)} })
}

func TestEnsemble(t *testing.T) {
	registrytest.Run(t, func(t testing.TB) registrytest.Server { return suite{shared.get(t, 3)} })
}

func BenchmarkStandalone(b *testing.B) {
	registrytest.Bench(b, func(t testing.TB) registrytest.Server { return suite{shared.get(t, 1)} })
}

func BenchmarkEnsemble(b *testing.B) {
	registrytest.Bench(b, func(t testing.TB) registrytest.Server { return suite{shared.get(t, 3)} })
}
