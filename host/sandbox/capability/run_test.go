package capability_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
)

// source is a stream of which a test says what it has.
type source struct {
	notify func()
	mu     sync.Mutex
	has    int  // bytes to read
	ended  bool // the end follows them
	room   bool // for writes
	closed atomic.Bool
}

func (s *source) add(n int) {
	s.mu.Lock()
	s.has += n
	s.mu.Unlock()
	s.notify()
}

func (s *source) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.notify()
}

func (s *source) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(s.has, len(p))
	s.has -= n
	if n == 0 && s.ended {
		return 0, io.EOF
	}
	if n == 0 {
		return 0, capability.Again()
	}
	return n, nil
}

func (s *source) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.room {
		return 0, capability.Again()
	}
	return len(p), nil
}

func (s *source) Finish() error { return capability.Fail(abi.ErrUnavailable, "it is broken") }
func (s *source) Close()        { s.closed.Store(true) }

// begin starts a run whose job_v1_net.dial makes sources.
func begin(t testing.TB) (*capabilitytest.Guest, func() (int64, *source)) {
	made := make(chan *source, 1)
	g := capabilitytest.NewGuest(t, &grants.Grant{}, map[string]capability.Function{
		"job_v1_net.dial": func(_ context.Context, r *capability.Run, _ *abi.Call) (int64, error) {
			return r.Open(func(notify func()) (capability.Stream, error) {
				s := &source{notify: notify, room: true}
				made <- s
				return s, nil
			})
		},
	})
	return g, func() (int64, *source) {
		t.Helper()
		h := g.Dial("x")
		if h <= 0 {
			t.Fatalf("%d: %s", h, g.Error(0))
		}
		return h, <-made
	}
}

// want fails unless the code is as wanted and the guest can read why.
func want(t testing.TB, g *capabilitytest.Guest, got int64, code abi.Code, reason string) {
	t.Helper()
	if text := g.Error(0); abi.Code(got) != code || !strings.Contains(text, reason) {
		t.Fatalf("got %d (%s), want %d with %q", got, text, code, reason)
	}
}

const again = int64(abi.ErrAgain)

func read(g *capabilitytest.Guest, h int64) int64 {
	return g.Call("job_v1_io.read", make([]byte, 10), nil, h)
}

func write(g *capabilitytest.Guest, h int64) int64 {
	return g.Call("job_v1_io.write", nil, make([]byte, 10), h)
}

// TestWait: see its cases.
//
// It kills the mutant "guest's write that ends the wait of its read".
func TestWait(t *testing.T) {
	t.Run("nothing to wait for", func(t *testing.T) {
		g, open := begin(t)
		want(t, g, g.Wait(-1), abi.ErrInvalid, "nothing to wait for")
		h, s := open()
		want(t, g, g.Wait(-1), abi.ErrInvalid, "nothing to wait for")
		s.add(1)
		if n := read(g, h); n != 1 {
			t.Fatal(n)
		}
		want(t, g, g.Wait(-1), abi.ErrInvalid, "nothing to wait for")
		if n := read(g, h); n != again {
			t.Fatal(n)
		}
		g.CloseHandle(h)
		want(t, g, g.Wait(-1), abi.ErrInvalid, "nothing to wait for")
	})
	t.Run("timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, open := begin(t)
			defer g.Run.Close()
			h, s := open()
			read(g, h)
			start := time.Now()
			want(t, g, g.Wait(1500), abi.ErrTimeout, "1.5s")
			if d := time.Since(start); d != 1500*time.Millisecond {
				t.Errorf("it lasted %s", d)
			}
			want(t, g, g.Wait(0), abi.ErrTimeout, "no handle is ready")
			s.add(1)
			if got := g.Wait(0); got != h {
				t.Errorf("%d", got)
			}
		})
	})
	t.Run("in the order of events", func(t *testing.T) {
		g, open := begin(t)
		one, a := open()
		two, b := open()
		read(g, one)
		read(g, two)
		b.add(1)
		a.add(1)
		b.add(1)
		if x, y := g.Wait(-1), g.Wait(-1); x != two || y != one {
			t.Errorf("%d, %d", x, y)
		}
		want(t, g, g.Wait(-1), abi.ErrInvalid, "nothing to wait for")
	})
	t.Run("a write does not end the wait of a read", func(t *testing.T) {
		g, open := begin(t)
		h, s := open()
		if n := read(g, h); n != again {
			t.Fatal(n)
		}
		if n := write(g, h); n != 10 {
			t.Fatal(n)
		}
		s.add(1)
		if got := g.Wait(-1); got != h {
			t.Errorf("%d: %s", got, g.Error(0))
		}
	})
	t.Run("many events without a wait", func(t *testing.T) {
		g, open := begin(t)
		h, s := open()
		for range 1000 {
			if n := read(g, h); n != again {
				t.Fatal(n)
			}
			s.add(1)
			read(g, h)
		}
		if got := g.Wait(-1); got != h {
			t.Errorf("%d", got)
		}
		want(t, g, g.Wait(-1), abi.ErrInvalid, "nothing to wait for")
	})
	t.Run("end of a stream", func(t *testing.T) {
		g, open := begin(t)
		h, s := open()
		read(g, h)
		s.end()
		if got := g.Wait(-1); got != h || read(g, h) != 0 {
			t.Errorf("%d", got)
		}
	})
	t.Run("end of the time", func(t *testing.T) {
		g, open := begin(t)
		h, _ := open()
		read(g, h)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, f := range abi.CapabilityImports() {
			if f.Name == "wait" {
				if code := g.Run.Call(ctx, &abi.Call{Function: &f, Numbers: []int64{-1}}); code != int64(abi.ErrCancelled) {
					t.Errorf("%d", code)
				}
			}
		}
	})
}

func TestCancel(t *testing.T) {
	t.Run("once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, open := begin(t)
			defer g.Run.Close()
			h, s := open()
			read(g, h)
			go func() {
				time.Sleep(time.Second)
				g.Owner.Cancel(abi.CancelStop)
			}()
			want(t, g, g.Wait(-1), abi.ErrCancelled, "being cancelled")
			want(t, g, g.Wait(100), abi.ErrTimeout, "")
			s.add(1)
			if got := g.Wait(-1); got != h {
				t.Errorf("%d", got)
			}
			if n := write(g, h); n != 10 {
				t.Errorf("a run that is only being cancelled may not write: %d: %s", n, g.Error(0))
			}
		})
	})
	t.Run("before the first wait", func(t *testing.T) {
		g, open := begin(t)
		h, s := open()
		read(g, h)
		s.add(1)
		g.Owner.Cancel(abi.CancelStop)
		want(t, g, g.Wait(-1), abi.ErrCancelled, "being cancelled")
		if got := g.Wait(-1); got != h {
			t.Errorf("%d", got)
		}
	})
	t.Run("ownership lost", func(t *testing.T) {
		g, open := begin(t)
		h, s := open()
		g.Owner.Cancel(abi.CancelLost)
		want(t, g, write(g, h), abi.ErrCancelled, "ownership")
		want(t, g, g.Finish(h), abi.ErrCancelled, "ownership")
		want(t, g, g.Dial("x"), abi.ErrCancelled, "ownership")
		s.add(1)
		if n := read(g, h); n != 1 {
			t.Errorf("what has come cannot be read: %d", n)
		}
	})
	t.Run("run over", func(t *testing.T) {
		g, open := begin(t)
		_, s := open()
		g.Run.Close()
		if err := g.Run.MayAct(); err == nil || !s.closed.Load() {
			t.Errorf("%v", err)
		}
		want(t, g, g.Dial("x"), abi.ErrCancelled, "over")
		g.Run.Close()
	})
}

func TestHandles(t *testing.T) {
	g, open := begin(t)
	first, s := open()
	want(t, g, g.Finish(first), abi.ErrUnavailable, "broken")
	if text := g.Error(first); text != "it is broken" {
		t.Errorf("%q", text)
	}
	for range abi.MaxHandles - 1 {
		open()
	}
	want(t, g, g.Dial("x"), abi.ErrQuota, "256 handles are open")
	if code := g.CloseHandle(first); code != 0 || !s.closed.Load() {
		t.Errorf("%d", code)
	}
	for _, h := range []int64{first, 0, -1, 1 << 30} {
		want(t, g, read(g, h), abi.ErrInvalid, fmt.Sprintf("no open handle %d", h))
		want(t, g, g.CloseHandle(h), abi.ErrInvalid, "no open handle")
	}
	s.notify() // too late: nothing comes of it
	if h, _ := open(); h <= first {
		t.Errorf("the handle %d is used again", h)
	}
	want(t, g, g.Open("GET", "http://a/"), abi.ErrDenied, `job_v1_http is not granted to job "report"`)
	all := g.Run.Usage.All()
	if all["http"].Refused["denied"] != 1 || all["net"].Calls != 258 || all["net"].Refused["quota"] != 1 {
		t.Errorf("usage: %+v", all)
	}
}

// What a guest has closed is not kept, also if something came for it and the guest never waits.
func TestClosedHandlesAreNotKept(t *testing.T) {
	g, open := begin(t)
	kept := make([]weak.Pointer[source], 100)
	for i := range kept {
		h, s := open()
		if got := read(g, h); got != again {
			t.Fatal(got)
		}
		s.add(1)
		if code := g.CloseHandle(h); code != 0 {
			t.Fatal(code)
		}
		kept[i] = weak.Make(s)
	}
	runtime.GC()
	n := 0
	for _, p := range kept {
		if p.Value() != nil {
			n++
		}
	}
	if n > 1 { // the last may be in a register
		t.Errorf("%d of %d streams are kept", n, len(kept))
	}
	runtime.KeepAlive(g)
}

func TestBudget(t *testing.T) {
	g := capabilitytest.NewGuest(t, &grants.Grant{Quotas: grants.Quotas{Requests: 10}}, nil)
	b := &g.Run.Left.Requests
	var taken atomic.Int64
	var joined sync.WaitGroup
	for range 4 {
		joined.Go(func() {
			for range 1000 {
				if b.Take(3) {
					taken.Add(3)
					b.Return(2)
					taken.Add(-2)
				}
			}
		})
	}
	joined.Wait()
	if b.Used() != taken.Load() || b.Used() > b.Limit() || b.Limit() != 10 {
		t.Errorf("%d used, %d taken, of %d", b.Used(), taken.Load(), b.Limit())
	}
}

// TestNoLostWakeUp has streams that get bytes at any moment, and a guest that waits
// without a limit: if a wake-up is lost, it does not end.
func TestNoLostWakeUp(t *testing.T) {
	const streams, bytes = 8, 5000
	g, open := begin(t)
	var joined sync.WaitGroup
	left := map[int64]bool{}
	for range streams {
		h, s := open()
		left[h] = true
		joined.Go(func() {
			for sent := 0; sent < bytes; {
				n := 1 + rand.IntN(3)
				s.add(n)
				sent += n
			}
			s.end()
		})
	}
	got := map[int64]int64{}
	for h := range left { // each has to be asked once
		for n := read(g, h); n != again; n = read(g, h) {
			if n == 0 {
				delete(left, h)
				break
			}
			got[h] += n
		}
	}
	for len(left) > 0 {
		h := g.Wait(-1)
		if h < 0 {
			t.Fatalf("%d: %s", h, g.Error(0))
		}
		if rand.IntN(2) == 0 {
			write(g, h)
		}
		for left[h] {
			n := read(g, h)
			if n == again {
				break
			} else if n == 0 {
				delete(left, h)
			}
			got[h] += n
		}
	}
	joined.Wait()
	for h, n := range got {
		if n < bytes {
			t.Errorf("handle %d: %d bytes", h, n)
		}
	}
}
