package registrytest

import (
	"context"
	"fmt"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Bench measures a registry. Every benchmark has a server of its own.
func Bench(b *testing.B, start func(testing.TB) Server) {
	b.Run("commit 5 ops, 1000 watches elsewhere", func(b *testing.B) { benchSmall(newBench(b, start)) })
	b.Run("commit 1 op, 1000 watches on it", func(b *testing.B) { benchFan(newBench(b, start)) })
	b.Run("commit 3000 ops", func(b *testing.B) { benchLarge(newBench(b, start)) })
	b.Run("conflict at the end of 3000 ops", func(b *testing.B) { benchConflict(newBench(b, start)) })
	b.Run("commit 2 ops, 64 goroutines", func(b *testing.B) { benchParallel(newBench(b, start)) })
	b.Run("commit then watch", func(b *testing.B) { benchWatch(newBench(b, start)) })
	b.Run("read 1 node", func(b *testing.B) { benchRead(newBench(b, start)) })
	b.Run("read children of 10000, one new", func(b *testing.B) { benchChildren(newBench(b, start)) })
}

// bench is env for benchmarks, without a time limit.
type bench struct {
	*env
	b *testing.B
}

func newBench(b *testing.B, start func(testing.TB) Server) bench {
	b.ReportAllocs()
	e := newEnv(b, start)
	e.ctx = context.Background()
	return bench{e, b}
}

// items makes n item nodes.
func (e bench) items(n int) {
	ops := []registry.Op{registry.Ensure(e.p("/sharding"))}
	for i := range n {
		ops = append(ops, registry.Create(e.item(i), nil))
	}
	e.ok(ops...)
}

func (e bench) item(i int) string { return e.p(fmt.Sprintf("/sharding/%d", i)) }

func benchSmall(e bench) {
	e.items(10)
	for i := range 1000 {
		e.watch(e.ctx, e.rc, registry.Data(e.p(fmt.Sprintf("/other/%d", i))), registry.Children(e.p(fmt.Sprintf("/other/%d", i))))
	}
	record := make([]byte, 60)
	ops := []registry.Op{
		registry.Check(e.root, 0), registry.Set(e.item(0), record, registry.AnyVersion), registry.Set(e.item(1), record, registry.AnyVersion),
		registry.Absent(e.item(0) + "/running"), registry.Set(e.item(2), record, registry.AnyVersion),
	}
	for e.b.Loop() {
		e.ok(ops...)
	}
}

func benchFan(e bench) {
	e.items(1)
	for range 1000 {
		e.watch(e.ctx, e.rc, registry.Data(e.item(0)))
	}
	for e.b.Loop() {
		e.ok(registry.Set(e.item(0), nil, registry.AnyVersion))
	}
}

func benchLarge(e bench) {
	const n = 1000
	e.items(n)
	record := make([]byte, 60)
	var begin, complete []registry.Op
	for i := range n {
		begin = append(begin, registry.Absent(e.item(i)+"/misfire"), registry.Set(e.item(i), record, registry.AnyVersion), registry.Create(e.item(i)+"/running", record[:40]))
		complete = append(complete, registry.Delete(e.item(i)+"/running", 0))
	}
	for e.b.Loop() {
		e.ok(begin...)
		e.b.StopTimer()
		e.ok(complete...)
		e.b.StartTimer()
	}
}

func benchConflict(e bench) {
	const n = 1000
	e.items(n)
	var ops []registry.Op
	for i := range n {
		ops = append(ops, registry.Absent(e.item(i)+"/misfire"), registry.Set(e.item(i), nil, registry.AnyVersion), registry.Create(e.item(i)+"/running", nil))
	}
	ops = append(ops, registry.Check(e.root, 77))
	for e.b.Loop() {
		if _, err := e.rc.Commit(e.ctx, ops...); err == nil {
			e.Fatal("no conflict")
		}
	}
}

func benchParallel(e bench) {
	e.items(1000)
	e.b.SetParallelism(32)
	next := make(chan int, 1000)
	for i := range 1000 {
		next <- i
	}
	e.b.RunParallel(func(pb *testing.PB) {
		i := <-next
		for pb.Next() {
			if _, err := e.rc.Commit(e.ctx, registry.Check(e.root, 0), registry.Set(e.item(i), nil, registry.AnyVersion)); err != nil {
				e.Errorf("commit: %v", err)
				return
			}
		}
	})
}

func benchWatch(e bench) {
	e.items(1)
	other := e.connect()
	ch := e.watch(e.ctx, other, registry.Data(e.item(0)))
	v := int32(0)
	for e.b.Loop() {
		e.ok(registry.Set(e.item(0), nil, v))
		v++
		for (<-ch).Data(e.item(0)).Version != v {
		}
	}
}

func benchRead(e bench) {
	e.items(1000)
	for e.b.Loop() {
		if _, err := e.rc.Read(e.ctx, registry.Data(e.item(7))); err != nil {
			e.Fatal(err)
		}
	}
}

func benchChildren(e bench) {
	e.items(1)
	for i := 0; i < 10000; i += 1000 {
		var ops []registry.Op
		for j := i; j < i+1000; j++ {
			ops = append(ops, registry.Create(e.item(0)+fmt.Sprintf("/%05d", j), nil))
		}
		e.ok(ops...)
	}
	for e.b.Loop() {
		e.ok(registry.Create(e.item(0)+"/05000x", nil))
		if n := len(e.names(e.item(0))); n != 10001 {
			e.Fatalf("%d names", n)
		}
		e.b.StopTimer()
		e.ok(registry.Delete(e.item(0)+"/05000x", 0))
		e.b.StartTimer()
	}
}
