package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
	build "github.com/wasmjob/wasmjob/test/wasm"
)

// paying is a host that accounts for memory itself.
type paying struct {
	*recorder
	most    int64 // that the native stacks may take
	asked   []int64
	refused bool
}

func (p *paying) CoverMemory(_, stacks int64) error {
	p.asked = append(p.asked, stacks)
	if p.most > 0 && stacks > p.most {
		p.refused = true
		return errors.New("too much")
	}
	return nil
}

// last is what the native stacks were said to take.
func (p *paying) last() int64 {
	if len(p.asked) == 0 {
		return 0
	}
	return p.asked[len(p.asked)-1]
}

// TestStackIsPaid: a guest pays for its native stack, and for what the engine takes to double it,
// before that happens. It runs alone: what others allocate is counted in TestStackLimit.
func TestStackIsPaid(t *testing.T) {
	grown := int64(0)
	r := newRuntime(t, Options{StackGrown: func(bytes int64) { grown += bytes }})
	x, err := load(t, r, guest(t, "c/guest")).Executor(Settings{Type: wasm.TypeSimple})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	for n := range 2 { // what the first worker has paid for, its host has paid, and not the next one's
		w := worked(t, x)
		h := &paying{recorder: newRecorder()}
		if r := w.Execute(t.Context(), item(h, "recurse")); r.Outcome != abi.OutcomeTrap || !strings.HasSuffix(r.Message, "stack overflow") {
			t.Errorf("%+v", r)
		}
		// The stack that exceeds its limit has twice the size of the last one that was paid.
		if least := int64(doubled * abi.MaxStack / 2); h.last() < least/2 || h.last() > 2*least {
			t.Errorf("worker %d paid for %d", n, h.asked)
		}
		// All stacks together have twice the size of the last one, which exceeds the limit.
		if grown < 2*abi.MaxStack || grown > 4*abi.MaxStack {
			t.Errorf("worker %d has left %d bytes of stacks", n, grown)
		}
		grown = 0
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	w := worked(t, x)
	defer w.Close()
	poor := &paying{recorder: newRecorder(), most: 4 << 20}
	if r := w.Execute(t.Context(), item(poor, "recurse")); r.Outcome != abi.OutcomeTrap || !poor.refused || !strings.Contains(r.Message, "there is no more memory for the guest's calls") {
		t.Errorf("refused: %t, %+v", poor.refused, r)
	}
}

// TestStacksArePaid: each entry point keeps the stack that it has had. It runs alone, too.
func TestStacksArePaid(t *testing.T) {
	needsCompiler(t)
	m := build.New()
	m.Memory(1, 1)
	m.ExportMemory(abi.ExportMemory)
	m.Export(abi.Marker, m.Func("", "", ""))
	deep := m.Declare("i", "i")
	m.Body(deep, "", build.Get(0), build.Eqz(), build.If(build.I32Const(0), build.Return()),
		build.Get(0), build.I32Const(1), build.Sub(), build.Call(deep), build.Get(0), build.Add())
	entry := func(name string, result int32) {
		// Twice: the second time it is asked while the stack is large.
		m.Export(name, m.Func("", "i", "", build.Times(2, build.I32Const(50_000), build.Call(deep), build.Drop()), build.I32Const(result)))
	}
	entry(abi.ExportFetch, 1)
	entry(abi.ExportProcess, 0)
	w := newWorker(t, load(t, newRuntime(t, Options{}), m.Bytes()), Settings{Type: wasm.TypeDataflow})
	h := &paying{recorder: newRecorder()}
	if r := w.Execute(t.Context(), item(h, "")); r.Outcome != abi.OutcomeOK {
		t.Fatalf("%+v", r)
	}
	in := w.(*worker).in
	one, two := sizeOf(nativeStack(in.entry[0])), sizeOf(nativeStack(in.entry[1]))
	if one < 1<<20 || one != two {
		t.Fatalf("stacks of %d and %d bytes", one, two)
	}
	if want := one + doubled*two; h.last() < want {
		t.Errorf("it paid for %d, of two stacks of %d", h.asked, one)
	}
}
