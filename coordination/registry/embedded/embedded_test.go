package embedded

import (
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
)

// suite is the registrytest.Server of a Server.
type suite struct{ *Server }

func (s suite) Connect(t testing.TB) registry.Center {
	t.Helper()
	rc, err := s.Server.Connect(t.Context())
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return rc
}

func (s suite) Expire(_ testing.TB, r registry.Center) { s.Server.Expire(r) }

func open(t testing.TB, o Options) suite {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return suite{s}
}

func inMemory(t testing.TB) registrytest.Server { return open(t, Options{}) }
func durable(t testing.TB) registrytest.Server  { return open(t, Options{Dir: t.TempDir()}) }

func TestInMemory(t *testing.T)         { registrytest.Run(t, inMemory) }
func TestInMemoryInBubble(t *testing.T) { registrytest.RunBubble(t, inMemory) }
func TestDurable(t *testing.T)          { registrytest.Run(t, durable) }

func BenchmarkInMemory(b *testing.B) { registrytest.Bench(b, inMemory) }
func BenchmarkDurable(b *testing.B)  { registrytest.Bench(b, durable) }
