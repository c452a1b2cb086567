// Package capabilitytest simulates guests, and a name server, for tests of capabilities.
package capabilitytest

import (
	"context"
	"io"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// Owner is an owner whose answers a test sets. It is safe for concurrent use.
type Owner struct {
	mu     sync.Mutex
	reason abi.Cancel
	begun  chan struct{} // closed when reason is set
}

// NewOwner makes an owner that has not cancelled anything.
func NewOwner() *Owner { return &Owner{begun: make(chan struct{})} }

// Cancel begins to cancel, or changes the reason.
func (o *Owner) Cancel(reason abi.Cancel) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason == abi.CancelNone {
		close(o.begun)
	}
	o.reason = reason
}

// Cancelled implements capability.Owner.
func (o *Owner) Cancelled() abi.Cancel {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reason
}

// Log implements capability.Owner.
func (*Owner) Log(int, string, []string) {}

// AwaitCancel implements capability.Owner.
func (o *Owner) AwaitCancel(ctx context.Context) {
	select {
	case <-o.begun:
	case <-ctx.Done():
	}
}

// Guest makes the calls of a guest.
type Guest struct {
	Run   *capability.Run
	Owner *Owner

	t       testing.TB
	imports map[string]*abi.Import
	call    abi.Call
}

// NewGuest begins a run, which ends with the test.
func NewGuest(t testing.TB, grant *grants.Grant, functions map[string]capability.Function) *Guest {
	g := &Guest{Owner: NewOwner(), t: t, imports: map[string]*abi.Import{}}
	for _, f := range abi.CapabilityImports() {
		g.imports[f.Module+"."+f.Name] = &f
	}
	info := capability.Info{Job: "report", RunID: "report/20260101T000000Z/0", Fence: 7, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	g.Run = capability.NewRun(info, grant, g.Owner, functions)
	t.Cleanup(g.Run.Close)
	return g
}

// Call calls a function, "job_v1_io.read" for example.
func (g *Guest) Call(function string, buf []byte, text []byte, number int64) int64 {
	c := &g.call
	c.Function, c.Buf, c.Numbers, c.Texts = g.imports[function], buf, c.Numbers[:0], c.Texts[:0]
	if c.Function == nil {
		g.t.Fatalf("there is no function %s", function)
	}
	for _, p := range c.Function.Params {
		switch p.Kind {
		case abi.KindText, abi.KindBytes:
			c.Texts = append(c.Texts, text)
		case abi.KindBuffer:
		default:
			c.Numbers = append(c.Numbers, number)
		}
	}
	return g.Run.Call(g.t.Context(), c)
}

// Open begins a request.
func (g *Guest) Open(head ...string) int64 {
	return g.Call(abi.ModuleHTTP+".open", nil, abi.AppendList(nil, head...), 0)
}

// Dial begins a connection.
func (g *Guest) Dial(target string) int64 {
	return g.Call(abi.ModuleNet+".dial", nil, []byte(target), 0)
}

// again repeats a call until it is answered with something else than ErrAgain.
func (g *Guest) again(call func() int64) int64 {
	for {
		n := call()
		if n != int64(abi.ErrAgain) {
			return n
		}
		if h := g.Wait(-1); h < 0 {
			return h
		}
	}
}

// Wait waits for a handle.
func (g *Guest) Wait(milliseconds int64) int64 {
	return g.Call(abi.ModuleIO+".wait", nil, nil, milliseconds)
}

// Write writes all of b; the result is OK, or the code with which it failed.
func (g *Guest) Write(h int64, b []byte) int64 {
	for len(b) > 0 {
		n := g.again(func() int64 { return g.Call(abi.ModuleIO+".write", nil, b, h) })
		if n < 0 {
			return n
		}
		b = b[n:]
	}
	return int64(abi.OK)
}

// Finish says that all is written.
func (g *Guest) Finish(h int64) int64 { return g.Call(abi.ModuleIO+".finish", nil, nil, h) }

// CloseHandle drops a handle.
func (g *Guest) CloseHandle(h int64) int64 { return g.Call(abi.ModuleIO+".close", nil, nil, h) }

// Connected waits for a connection.
func (g *Guest) Connected(h int64) int64 {
	return g.again(func() int64 { return g.Call(abi.ModuleIO+".write", nil, nil, h) })
}

// Read waits for some bytes.
func (g *Guest) Read(h int64, b []byte) int64 {
	return g.again(func() int64 { return g.Call(abi.ModuleIO+".read", b, nil, h) })
}

// ReadAll reads to the end; the code is OK, or what ended it.
func (g *Guest) ReadAll(h int64) (all []byte, code abi.Code) {
	b := make([]byte, 64<<10)
	for {
		n := g.Read(h, b)
		if n <= 0 {
			return all, abi.Code(n)
		}
		all = append(all, b[:n]...)
	}
}

// Copy reads to the end into w.
func (g *Guest) Copy(w io.Writer, h int64, b []byte) (int64, abi.Code) {
	var all int64
	for {
		n := g.Read(h, b)
		if n <= 0 {
			return all, abi.Code(n)
		}
		all += n
		if _, err := w.Write(b[:n]); err != nil {
			g.t.Fatal(err)
		}
	}
}

// Status waits for the status of a response.
func (g *Guest) Status(h int64) int64 {
	return g.again(func() int64 { return g.Call(abi.ModuleHTTP+".status", nil, nil, h) })
}

// Headers waits for the headers of a response.
func (g *Guest) Headers(h int64) []string {
	b := make([]byte, abi.MaxHead)
	n := g.again(func() int64 { return g.Call(abi.ModuleHTTP+".headers", b, nil, h) })
	if n < 0 || n > int64(len(b)) {
		g.t.Fatalf("headers: %d: %s", n, g.Error(h))
	}
	list, err := abi.ParseList(b[:n])
	if err != nil {
		g.t.Fatal(err)
	}
	return list
}

// Error returns the reason of the newest failure of a handle; handle 0 means of all calls.
func (g *Guest) Error(h int64) string {
	b := make([]byte, 4096)
	n := g.Call(abi.ModuleIO+".error", b, nil, h)
	if n < 0 {
		return ""
	}
	return string(b[:min(int(n), len(b))])
}
