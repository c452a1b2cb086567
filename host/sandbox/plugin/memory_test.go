package plugin

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// unlimited is the account of a guest that may have all.
func unlimited() *account { return &account{budget: newBudget(0)} }

// A memory that grows keeps what it holds, is zero beyond, and never passes
// its limit, whoever it comes from, and whoever had it before.
func TestLinearMemory(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	t.Run("collected", func(t *testing.T) {
		t.Parallel()
		growMemory(t, &linearMemory{max: limit, account: unlimited()})
	})
	t.Run("bounded", func(t *testing.T) {
		t.Parallel()
		var p memories
		defer p.close()
		p.boundedBy(1<<30, 0)
		m := p.take(limit, unlimited())
		growMemory(t, m)
		p.put(m)
		m = p.take(limit, unlimited())
		growMemory(t, m)
		p.put(m)
	})
	t.Run("reserved", func(t *testing.T) {
		t.Parallel()
		var p memories
		defer p.close()
		m := p.take(limit, unlimited())
		growMemory(t, m)
		p.put(m)
		m = p.take(limit, unlimited())
		growMemory(t, m)
		p.put(m)
	})
}

// TestBoundedAddresses: in a process that may have few addresses, memories reserve about what they use, more of them fit than their limits
// would let in, one that finds none is refused and can go on, and idle ones give theirs to others.
func TestBoundedAddresses(t *testing.T) {
	t.Parallel()
	const limit, most = 2 << 30, 192 << 20
	var p memories
	defer p.close()
	p.boundedBy(most/3*4, 0)
	var all []*linearMemory
	for range 12 { // 24 GiB of limits
		m := p.take(limit, unlimited())
		b := m.Reallocate(4 << 20)
		if b == nil {
			t.Fatalf("memory %d of 4 MiB is refused: %v", len(all), m.account.denied)
		}
		b[0], b[len(b)-1] = 1, 2
		all = append(all, m)
	}
	if used := p.from.used; used > most || used != 12*firstAddresses {
		t.Errorf("they have %d bytes of addresses, want %d", used, 12*firstAddresses)
	}
	first := all[0]
	if first.Reallocate(64<<20) != nil || first.account.denied == nil {
		t.Error("a memory grew beyond what the process may have")
	}
	if b := first.buf; len(b) != 4<<20 || b[0] != 1 || b[len(b)-1] != 2 {
		t.Error("a memory that was refused lost what it held")
	}
	for _, m := range all[1:8] {
		p.put(m)
	}
	b := first.Reallocate(64 << 20)
	if b == nil {
		t.Fatalf("idle memories keep their addresses: %v", first.account.denied)
	}
	if b[0] != 1 || b[4<<20-1] != 2 || b[4<<20] != 0 || b[len(b)-1] != 0 {
		t.Error("a memory that moved holds something else")
	}
	p.put(first)
	for _, m := range all[8:] {
		p.put(m)
	}
	p.close()
	if p.from.used != 0 {
		t.Errorf("%d bytes of addresses are not given back", p.from.used)
	}
}

func growMemory(t *testing.T, m *linearMemory) {
	b := m.Reallocate(wasm.PageSize)
	moved, last := 0, &b[0]
	for size := uint64(2 * wasm.PageSize); size <= m.max; size += wasm.PageSize {
		b[len(b)-1] = 7
		n := len(b)
		b = m.Reallocate(size)
		if uint64(len(b)) != size || b[n-1] != 7 || b[n] != 0 || b[len(b)-1] != 0 {
			t.Fatalf("at %d bytes: length %d", size, len(b))
		}
		if &b[0] != last {
			moved, last = moved+1, &b[0]
		}
		if uint64(cap(b)) > m.max {
			t.Fatalf("capacity of %d bytes", cap(b))
		}
	}
	if most := 30; moved > most || m.reserved != nil && m.from == nil && moved > 0 {
		t.Errorf("moved %d times", moved)
	}
	if m.Reallocate(m.max+1) != nil {
		t.Error("grew over the limit")
	}
	m.Free()
}

// What a guest leaves behind, nobody finds: not where it wrote, not at the end
// of what it had, and not when the next one has more.
func TestMemoryIsWiped(t *testing.T) {
	t.Parallel()
	const limit = 4 << 20
	var p memories
	defer p.close()
	zero := make([]byte, limit)
	for _, size := range []uint64{wasm.PageSize, 3 * wasm.PageSize, limit, 2 * wasm.PageSize, 0, limit} {
		m := p.take(limit, unlimited())
		if len(m.buf) != 0 {
			t.Fatalf("a new memory has %d bytes", len(m.buf))
		}
		b := m.Reallocate(size)
		if !bytes.Equal(b, zero[:size]) {
			t.Fatalf("a new memory of %d bytes is not zero", size)
		}
		for i := uint64(0); i < size; i += 5000 { // some pages are left out
			b[i] = byte(i) | 1
		}
		if size > 0 {
			b[size-1] = 9
		}
		p.put(m)
	}
}

// Idle memories hold no more than their bound, and nothing once closed.
func TestMemoriesAreBounded(t *testing.T) {
	t.Parallel()
	var p memories
	var all []*linearMemory
	const size = 5 << 20
	for range 12 {
		m := p.take(8<<20, unlimited())
		b := m.Reallocate(size)
		for i := range b {
			b[i] = 1
		}
		all = append(all, m)
	}
	var wg sync.WaitGroup
	for _, m := range all {
		wg.Go(func() { p.put(m) })
	}
	wg.Wait()
	kept := 0
	for _, m := range p.idle {
		kept += m.resident
	}
	if kept != p.resident || kept > keptMemory {
		t.Errorf("%d bytes are kept, %d were counted, expected at most %d", kept, p.resident, keptMemory)
	}
	big := p.take(64<<20, unlimited())
	b := big.Reallocate(keptMemory)
	for i := range b {
		b[i] = 1
	}
	idle := len(p.idle)
	p.put(big)
	if len(p.idle) != idle {
		t.Error("one memory takes the place of all")
	}
	p.close()
	m := p.take(8<<20, unlimited())
	m.Reallocate(wasm.PageSize)
	p.put(m)
	if len(p.idle) != 0 || p.resident != 0 {
		t.Errorf("%d memories are held after the end", len(p.idle))
	}
}

// An idle memory counts for all that it keeps from the system, also if its last
// owner had little of it: many small guests after a few large ones kept
// several times the bound.
func TestIdleMemoryCountsInFull(t *testing.T) {
	t.Parallel()
	var p memories
	defer p.close()
	const large = 8 << 20
	m := p.take(64<<20, unlimited())
	for b := m.Reallocate(large); len(b) > 0; b = b[min(4096, len(b)):] {
		b[0] = 1
	}
	p.put(m)
	if runtime.GOOS != "linux" {
		t.Skip("no memory is kept where the system does not say what is in use")
	}
	if p.resident != large {
		t.Fatalf("%d bytes are kept, want %d", p.resident, large)
	}
	if again := p.take(64<<20, unlimited()); again != m || p.resident != 0 {
		t.Fatalf("another memory was taken, and %d bytes are kept", p.resident)
	}
	m.Reallocate(wasm.PageSize)
	p.put(m)
	if p.resident != large {
		t.Errorf("after a small guest %d bytes are kept, want %d", p.resident, large)
	}
}

// TestIdleMemoryIsSmall: a memory that was large is given back to the system, or it would
// take from what the next guests of a process with a limit may have.
func TestIdleMemoryIsSmall(t *testing.T) {
	t.Parallel()
	var p memories
	defer p.close()
	a := &account{budget: newBudget(0)}
	for _, size := range []uint64{keptUsable + 1<<16, keptUsable / 2, keptUsable / 2, keptUsable / 2} {
		m := p.take(1<<30, a)
		if m.reserved == nil {
			return // nothing is kept where addresses cannot be reserved
		}
		if m.Reallocate(size) == nil {
			t.Fatal("no memory")
		}
		defer func() {
			if p.usable > keptUsable {
				t.Errorf("%d bytes of idle memories can be used", p.usable)
			}
		}()
		defer p.put(m)
	}
}
