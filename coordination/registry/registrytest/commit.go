package registrytest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

func commitCases() []testCase {
	return []testCase{
		{"commit/each guard alone", eachGuard},
		{"commit/all or nothing", allOrNothing},
		{"commit/ops see those before them", opsInOrder},
		{"commit/results", results},
		{"commit/versions", versions},
		{"commit/zxid grows for ever", zxidGrows},
		{"commit/ephemeral nodes have no children", ephemeralHasNoChildren},
		{"commit/sequential names ascend", sequential},
		{"commit/ensure", ensure},
		{"commit/data is copied", dataIsCopied},
		{"commit/cancelled context writes nothing", cancelledCommit},
		{"commit/too large writes nothing", tooLarge},
		{"commit/wrong ops write nothing", wrongOps},
		{"commit/nothing", nothing},
		{"commit/three thousand ops", manyOps},
	}
}

func eachGuard(e *env) {
	a, b, in, far := e.p("/a"), e.p("/b"), e.p("/a/in"), e.p("/none/in")
	other := e.connect()
	e.ok(registry.Create(a, nil), registry.Create(in, nil), registry.Create(b, nil), registry.Set(b, nil, 0), registry.Create(e.p("/c"), nil))
	e.commit(other, registry.CreateEphemeral(e.p("/e"), nil))
	e.await(e.rc, "/e", func(s registry.Snapshot) bool { return s.Data(e.p("/e")).Exists }, registry.Data(e.p("/e")))

	for _, c := range []struct {
		op  registry.Op
		why registry.Reason
	}{
		{registry.Create(a, nil), registry.ReasonExists},
		{registry.Create(e.p("/e"), nil), registry.ReasonExists},
		{registry.Create(far, nil), registry.ReasonParent},
		{registry.CreateEphemeral(a, nil), registry.ReasonExists},
		{registry.CreateEphemeral(far, nil), registry.ReasonParent},
		{registry.CreateSequential(e.p("/none/n-"), nil), registry.ReasonParent},
		{registry.Set(e.p("/none"), nil, registry.AnyVersion), registry.ReasonAbsent},
		{registry.Set(e.p("/none"), nil, 0), registry.ReasonAbsent},
		{registry.Set(far, nil, registry.AnyVersion), registry.ReasonAbsent},
		{registry.Set(a, nil, 1), registry.ReasonVersion},
		{registry.Set(b, nil, 0), registry.ReasonVersion},
		{registry.Set(b, nil, 2), registry.ReasonVersion},
		{registry.Delete(e.p("/none"), registry.AnyVersion), registry.ReasonAbsent},
		{registry.Delete(far, registry.AnyVersion), registry.ReasonAbsent},
		{registry.Delete(b, 0), registry.ReasonVersion},
		{registry.Delete(a, registry.AnyVersion), registry.ReasonChildren},
		{registry.Delete(a, 0), registry.ReasonChildren},
		{registry.Check(e.p("/none"), registry.AnyVersion), registry.ReasonAbsent},
		{registry.Check(e.p("/none"), 0), registry.ReasonAbsent},
		{registry.Check(b, 0), registry.ReasonVersion},
		{registry.Absent(a), registry.ReasonExists},
		{registry.Absent(in), registry.ReasonExists},
		{registry.Absent(e.p("/e")), registry.ReasonExists},
		{registry.Absent(far), registry.ReasonParent},
	} {
		e.conflict(0, c.why, c.op)
		// It also fails between ops that succeed, and the error has its index.
		e.conflict(2, c.why, registry.Create(e.p("/x"), nil), registry.Set(e.p("/c"), []byte("x"), 0), c.op, registry.Delete(in, 0))
	}
	// Each of them holds when it should.
	e.ok(registry.Check(a, 0))
	e.ok(registry.Check(a, registry.AnyVersion))
	e.ok(registry.Check(b, 1))
	e.ok(registry.Absent(e.p("/none")))
	e.ok(registry.Absent(e.p("/a/none")))
	e.ok(registry.Set(b, nil, 1))
	e.ok(registry.Set(b, nil, registry.AnyVersion))
	e.ok(registry.Delete(b, 3))
	e.ok(registry.Delete(in, registry.AnyVersion), registry.Delete(a, 0))
}

func allOrNothing(e *env) {
	e.ok(registry.Create(e.p("/a"), []byte("1")), registry.Create(e.p("/b"), []byte("1")), registry.Create(e.p("/c"), nil))
	late := registry.Check(e.p("/none"), registry.AnyVersion)
	e.conflict(6, registry.ReasonAbsent,
		registry.Set(e.p("/a"), []byte("2"), 0),
		registry.Delete(e.p("/b"), 0),
		registry.Create(e.p("/c/new"), nil),
		registry.CreateEphemeral(e.p("/c/e"), nil),
		registry.CreateSequential(e.p("/c/n-"), nil),
		registry.Absent(e.p("/d")),
		late)
	// The first op that fails is the one that is named.
	e.conflict(1, registry.ReasonVersion, registry.Set(e.p("/a"), nil, 0), registry.Set(e.p("/b"), nil, 7), late)

	// What the failed commit would have made can still be made.
	e.ok(registry.Create(e.p("/c/new"), nil), registry.CreateEphemeral(e.p("/c/e"), nil), registry.Delete(e.p("/b"), 0), registry.Set(e.p("/a"), nil, 0))
}

func opsInOrder(e *env) {
	a, b := e.p("/a"), e.p("/a/b")
	r := e.ok(registry.Create(a, []byte("0")), registry.Set(a, []byte("1"), 0))
	if r[1].Version != 1 || r[1].Zxid == 0 {
		e.Fatalf("set after create: %+v, want version 1 and a zxid", r[1])
	}
	if n := e.node(a); string(n.Data) != "1" || n.Version != 1 || n.Czxid != r[1].Zxid || n.Mzxid != r[1].Zxid {
		e.Fatalf("set after create: %+v, want data 1, version 1, zxids %d", n, r[1].Zxid)
	}
	r = e.ok(registry.Set(a, []byte("2"), 1), registry.Check(a, 2), registry.Set(a, []byte("3"), 2))
	if r[0].Version != 2 || r[2].Version != 3 || r[0].Zxid != r[2].Zxid {
		e.Fatalf("two sets: %+v, want versions 2 and 3 of one transaction", r)
	}
	e.conflict(1, registry.ReasonVersion, registry.Set(a, nil, 3), registry.Check(a, 3))
	e.conflict(1, registry.ReasonExists, registry.Create(b, nil), registry.Create(b, nil))
	e.conflict(1, registry.ReasonExists, registry.Create(b, nil), registry.Absent(b))
	e.conflict(1, registry.ReasonAbsent, registry.Delete(a, 3), registry.Set(a, nil, registry.AnyVersion))
	e.conflict(1, registry.ReasonParent, registry.Delete(a, 3), registry.Create(b, nil))
	e.conflict(1, registry.ReasonParent, registry.Delete(a, 3), registry.Absent(b))
	e.conflict(1, registry.ReasonChildren, registry.Create(b, nil), registry.Delete(a, 3))

	e.ok(registry.Absent(b), registry.Create(b, []byte("b")), registry.Delete(b, 0), registry.Absent(b))
	if e.node(b).Exists || len(e.names(a)) != 0 {
		e.Fatal("a node that was made and deleted in one commit is there")
	}
	// Parent and child come and go together; a node made again is a new one.
	old := e.node(a)
	r = e.ok(registry.Create(b, nil), registry.Delete(b, 0), registry.Delete(a, 3), registry.Absent(a), registry.Create(a, []byte("new")), registry.Create(b, nil), registry.Set(b, nil, 0))
	n := e.node(a)
	if string(n.Data) != "new" || n.Version != 0 || n.Czxid != r[6].Zxid || n.Czxid <= old.Mzxid {
		e.Fatalf("a node made again: %+v, was %+v", n, old)
	}
	if names := e.names(a); len(names) != 1 || names[0] != "b" {
		e.Fatalf("children of a node made again: %q, want b", names)
	}
	e.ok(registry.Delete(b, 1), registry.Delete(a, 0))
	if len(e.names(e.root)) != 0 {
		e.Fatalf("children of the root: %q, want none", e.names(e.root))
	}
	// An ephemeral node becomes a persistent one and the other way round.
	e.ok(registry.CreateEphemeral(a, nil), registry.Delete(a, 0), registry.Create(a, nil), registry.Create(b, nil))
	if e.node(a).Ephemeral {
		e.Fatal("a persistent node made in place of an ephemeral one is ephemeral")
	}
	e.ok(registry.Delete(b, 0), registry.Delete(a, 0), registry.CreateEphemeral(a, nil))
	if !e.node(a).Ephemeral {
		e.Fatal("an ephemeral node made in place of a persistent one is not ephemeral")
	}
}

func results(e *env) {
	a := e.p("/a")
	r := e.ok(registry.Create(a, nil), registry.CreateEphemeral(e.p("/e"), nil), registry.CreateSequential(e.p("/s-"), nil),
		registry.Check(a, 0), registry.Absent(e.p("/x")), registry.Ensure(a), registry.Set(a, nil, 0), registry.Set(a, nil, 1), registry.Delete(e.p("/e"), 0))
	for i, want := range []int32{0, 0, 0, 0, 0, 0, 1, 2, 0} {
		if r[i].Version != want {
			e.Errorf("result %d has version %d, want %d", i, r[i].Version, want)
		}
	}
	if n := e.node(a); n.Mzxid != r[7].Zxid || n.Version != r[7].Version {
		e.Errorf("node has version %d, mzxid %d; the set's result said %d, %d", n.Version, n.Mzxid, r[7].Version, r[7].Zxid)
	}
	if !e.node(r[2].Path).Exists {
		e.Errorf("the sequential node is not at %s, where the result has it", r[2].Path)
	}
}

func versions(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, []byte("same")))
	created := e.node(a)
	if created.Version != 0 || created.Czxid == 0 || created.Mzxid != created.Czxid || created.Ephemeral || created.Mtime.IsZero() {
		e.Fatalf("new node: %+v", created)
	}
	for v := range int32(3) {
		r := e.ok(registry.Set(a, []byte("same"), v)) // a set counts even if it changes no data
		n := e.node(a)
		if n.Version != v+1 || r[0].Version != v+1 || n.Mzxid != r[0].Zxid || !n.Mtime.Equal(r[0].Time) || n.Czxid != created.Czxid || n.Mtime.Before(created.Mtime) {
			e.Fatalf("after set %d: node %+v, result %+v", v+1, n, r[0])
		}
	}
	// Children do not count as sets.
	before := e.node(a)
	e.ok(registry.Create(a+"/b", nil))
	if n := e.node(a); n.Version != before.Version || n.Mzxid != before.Mzxid {
		e.Fatalf("a child changed its parent's version or mzxid: %+v, was %+v", n, before)
	}
	e.ok(registry.Delete(a+"/b", 0), registry.Delete(a, 3))
	e.ok(registry.Create(a, nil))
	if n := e.node(a); n.Version != 0 || n.Czxid <= before.Mzxid || len(n.Data) != 0 {
		e.Fatalf("a node made again: %+v, want version 0, a later czxid, no data", n)
	}
}

func zxidGrows(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	other := e.connect()
	e.await(other, "/a", func(s registry.Snapshot) bool { return s.Data(a).Exists }, registry.Data(a))
	last := e.node(a).Czxid
	for i := range 20 {
		rc := e.rc
		if i%2 == 1 {
			rc = other
		}
		r := e.commit(rc, registry.Set(a, nil, registry.AnyVersion))
		if r[0].Zxid <= last {
			e.Fatalf("commit %d has zxid %d, the one before had %d", i, r[0].Zxid, last)
		}
		last = r[0].Zxid
		if i%5 == 4 {
			// Also for a node that is made again.
			e.commit(rc, registry.Delete(a, registry.AnyVersion))
			e.commit(rc, registry.Create(a, nil))
			if n := e.read(rc, registry.Data(a)); n.Czxid <= last {
				e.Fatalf("a node made again has czxid %d, the commit before had %d", n.Czxid, last)
			} else {
				last = n.Czxid
			}
		}
	}
}

func ephemeralHasNoChildren(e *env) {
	a := e.p("/a")
	e.ok(registry.CreateEphemeral(a, []byte("x")))
	if n := e.node(a); !n.Ephemeral || string(n.Data) != "x" {
		e.Fatalf("ephemeral node: %+v", n)
	}
	e.conflict(0, registry.ReasonParent, registry.Create(a+"/b", nil))
	e.conflict(0, registry.ReasonParent, registry.CreateEphemeral(a+"/b", nil))
	e.conflict(0, registry.ReasonParent, registry.CreateSequential(a+"/b", nil))
	e.conflict(1, registry.ReasonParent, registry.CreateEphemeral(e.p("/b"), nil), registry.Create(e.p("/b/c"), nil))
	// It can be set and deleted like any other, by any session.
	other := e.connect()
	e.await(other, "/a", func(s registry.Snapshot) bool { return s.Data(a).Exists }, registry.Data(a))
	e.commit(other, registry.Set(a, nil, 0))
	e.commit(other, registry.Delete(a, 1))
}

func sequential(e *env) {
	e.ok(registry.Create(e.p("/q"), nil), registry.Create(e.p("/r"), nil))
	other := e.connect()
	e.await(other, "/q", func(s registry.Snapshot) bool { return s.Data(e.p("/q")).Exists }, registry.Data(e.p("/q")))
	last := ""
	for i := range 24 {
		rc := e.rc
		if i%3 == 1 {
			rc = other
		}
		prefix := e.p("/q/n-")
		if i%8 == 7 {
			prefix = e.p("/q/") // nothing but the number
		}
		r := e.commit(rc, registry.CreateSequential(prefix, []byte("d")))
		number, ok := strings.CutPrefix(r[0].Path, prefix)
		if !ok || len(number) != 10 || strings.Trim(number, "0123456789") != "" {
			e.Fatalf("sequential path %q, want %q and ten digits", r[0].Path, prefix)
		}
		if number <= last {
			e.Fatalf("sequential number %s came after %s", number, last)
		}
		last = number
		n := e.read(rc, registry.Data(r[0].Path))
		if !n.Exists || !n.Ephemeral || string(n.Data) != "d" {
			e.Fatalf("sequential node: %+v", n)
		}
		if i%4 == 0 { // the numbers of deleted nodes do not come again
			e.commit(rc, registry.Delete(r[0].Path, 0))
		}
	}
	r := e.ok(registry.CreateSequential(e.p("/q/m-"), nil), registry.CreateSequential(e.p("/q/m-"), nil), registry.CreateSequential(e.p("/r/m-"), nil))
	if r[0].Path >= r[1].Path {
		e.Fatalf("sequential paths of one commit: %q, then %q", r[0].Path, r[1].Path)
	}
	if n := len(e.names(e.p("/r"))); n != 1 {
		e.Fatalf("%d nodes below /r, want 1", n)
	}
}

func ensure(e *env) {
	a, c := e.p("/a"), e.p("/a/b/c")
	r := e.ok(registry.Ensure(c))
	if r[0].Path != c || r[0].Version != 0 {
		e.Fatalf("ensure: %+v", r[0])
	}
	for _, path := range []string{a, e.p("/a/b"), c} {
		if n := e.node(path); !n.Exists || len(n.Data) != 0 || n.Version != 0 || n.Ephemeral {
			e.Fatalf("ensured node: %+v", n)
		}
	}
	// It leaves alone what is there.
	e.ok(registry.Set(a, []byte("x"), 0))
	before := e.node(a)
	e.ok(registry.Ensure(a), registry.Ensure(c), registry.Ensure(a))
	if n := e.node(a); string(n.Data) != "x" || n.Version != 1 || n.Mzxid != before.Mzxid {
		e.Fatalf("ensured again: %+v, was %+v", n, before)
	}
	// Ops after it build on it, and it sees those before it.
	e.ok(registry.Ensure(e.p("/d/e")), registry.Create(e.p("/d/e/f"), []byte("f")), registry.Set(e.p("/d"), []byte("d"), 0))
	e.ok(registry.Create(e.p("/g"), []byte("g")), registry.Ensure(e.p("/g/h")), registry.CreateEphemeral(e.p("/g/h/i"), nil))
	if n := e.node(e.p("/g")); string(n.Data) != "g" {
		e.Fatalf("a node that was made before it was ensured: %+v", n)
	}
	if n := e.node(e.p("/d/e/f")); string(n.Data) != "f" {
		e.Fatalf("a node below an ensured one: %+v", n)
	}
	// It cannot make nodes below an ephemeral one.
	var oe *registry.OpError
	if _, err := e.rc.Commit(e.ctx, registry.Check(a, 1), registry.Ensure(e.p("/g/h/i/j"))); !errors.As(err, &oe) || oe.Index != 1 || oe.Reason != registry.ReasonParent {
		e.Fatalf("ensure below an ephemeral node: %v", err)
	}
	// Nodes that it created may stay if the commit fails, others may not.
	_, err := e.rc.Commit(e.ctx, registry.Ensure(e.p("/k/l")), registry.Set(a, nil, 1), registry.Check(a, 1))
	if !errors.As(err, &oe) || oe.Index != 2 || oe.Reason != registry.ReasonVersion {
		e.Fatalf("a commit with ensure that fails: %v", err)
	}
	if n := e.node(a); n.Version != 1 {
		e.Fatalf("a commit with ensure that failed left %+v", n)
	}
	e.ok(registry.Ensure(e.p("/k/l")))
}

func dataIsCopied(e *env) {
	data := []byte("before")
	e.ok(registry.Create(e.p("/a"), data), registry.Create(e.p("/b"), nil), registry.Set(e.p("/b"), data, 0))
	copy(data, "AFTER!")
	for _, path := range []string{"/a", "/b"} {
		if n := e.node(e.p(path)); string(n.Data) != "before" {
			e.Errorf("%s changed to %q with the caller's buffer", path, n.Data)
		}
	}
}

func cancelledCommit(e *env) {
	before := dump(e.ctx, e.TB, e.rc, e.root)
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := e.rc.Commit(ctx, registry.Create(e.p("/a"), nil)); !errors.Is(err, context.Canceled) || errors.Is(err, registry.ErrUnknown) {
		e.Fatalf("commit with a cancelled context: %v", err)
	}
	if _, err := e.rc.Read(ctx, registry.Data(e.root)); !errors.Is(err, context.Canceled) {
		e.Fatalf("read with a cancelled context: %v", err)
	}
	if _, err := e.rc.Watch(ctx, registry.Data(e.root)); !errors.Is(err, context.Canceled) {
		e.Fatalf("watch with a cancelled context: %v", err)
	}
	if after := dump(e.ctx, e.TB, e.rc, e.root); !sameTree(before, after) {
		e.Fatalf("a cancelled commit wrote\nbefore: %s\nafter:  %s", before, after)
	}
	e.ok(registry.Create(e.p("/a"), nil)) // the session is none the worse
}

func tooLarge(e *env) {
	before := dump(e.ctx, e.TB, e.rc, e.root)
	for _, ops := range [][]registry.Op{
		{registry.Create(e.p("/a"), make([]byte, 8<<20))},
		{registry.Create(e.p("/b"), nil), registry.Set(e.p("/b"), make([]byte, 8<<20), 0)},
		hundredThousand(e),
	} {
		if _, err := e.rc.Commit(e.ctx, ops...); !errors.Is(err, registry.ErrTooLarge) {
			e.Fatalf("a commit of %d ops far over the limit: %v", len(ops), err)
		}
	}
	if after := dump(e.ctx, e.TB, e.rc, e.root); !sameTree(before, after) {
		e.Fatal("a commit that was too large wrote something")
	}
	e.ok(registry.Create(e.p("/a"), make([]byte, 512<<10))) // the size of a chunk must fit
	if n := e.node(e.p("/a")); len(n.Data) != 512<<10 {
		e.Fatalf("%d bytes came back, want %d", len(n.Data), 512<<10)
	}
}

func hundredThousand(e *env) []registry.Op {
	ops := make([]registry.Op, 100_000)
	for i := range ops {
		ops[i] = registry.Create(e.p(fmt.Sprintf("/n%d", i)), nil)
	}
	return ops
}

func wrongOps(e *env) {
	before := dump(e.ctx, e.TB, e.rc, e.root)
	for _, path := range []string{
		"", "relative", e.root + "/", e.root + "//a", e.root + "/.", e.root + "/..", e.root + "/../a", e.root + "/a/./b",
		e.root + "/nul\x00", e.root + "/bell\a", e.root + "/del\x7f", e.root + "/\u0085", e.root + "/\ue000", e.root + "/\uffff", e.root + "/\U0001F600",
		e.root + "/\xff", e.root + "/\xe4", e.root + "/a\x80", e.root + "/ä\x80",
	} {
		for _, op := range []registry.Op{registry.Create(path, nil), registry.Set(path, nil, registry.AnyVersion), registry.Delete(path, registry.AnyVersion), registry.Check(path, registry.AnyVersion), registry.Absent(path), registry.Ensure(path)} {
			_, err := e.rc.Commit(e.ctx, registry.Create(e.p("/made"), nil), op)
			if err == nil || errors.Is(err, registry.ErrConflict) || errors.Is(err, registry.ErrUnknown) {
				e.Errorf("%s %q: error %v, want one about the path", op.Kind, path, err)
			}
		}
		if _, err := e.rc.Read(e.ctx, registry.Data(path)); err == nil {
			e.Errorf("read %q: no error", path)
		}
		if _, err := e.rc.Watch(e.ctx, registry.Data(path)); err == nil {
			e.Errorf("watch %q: no error", path)
		}
	}
	for _, kind := range []registry.OpKind{0, 99} {
		if _, err := e.rc.Commit(e.ctx, registry.Create(e.p("/made"), nil), registry.Op{Kind: kind, Path: e.p("/a")}); err == nil {
			e.Errorf("op of kind %d: no error", kind)
		}
	}
	if after := dump(e.ctx, e.TB, e.rc, e.root); !sameTree(before, after) {
		e.Fatalf("wrong commits wrote\nbefore: %s\nafter:  %s", before, after)
	}
	// Strange but right.
	for _, path := range []string{"/日本語", "/with space", "/a.b", "/...", "/@-@", "/ä"} {
		e.ok(registry.Create(e.p(path), []byte(path)))
		if n := e.node(e.p(path)); string(n.Data) != path {
			e.Errorf("%s: %+v", path, n)
		}
	}
}

func nothing(e *env) {
	if r, err := e.rc.Commit(e.ctx); err != nil || len(r) != 0 {
		e.Fatalf("a commit of nothing: %v, %v", r, err)
	}
	if nodes, err := e.rc.Read(e.ctx); err != nil || len(nodes) != 0 {
		e.Fatalf("a read of nothing: %v, %v", nodes, err)
	}
}

func manyOps(e *env) {
	const n = 1000
	prepare := []registry.Op{registry.Create(e.p("/item"), nil)}
	for i := range n {
		prepare = append(prepare, registry.Create(e.p(fmt.Sprintf("/item/%d", i)), nil))
	}
	e.ok(prepare...)
	var ops []registry.Op
	for i := range n {
		path := e.p(fmt.Sprintf("/item/%d", i))
		ops = append(ops, registry.Absent(path+"/misfire"), registry.Set(path, []byte("begun"), 0), registry.CreateEphemeral(path+"/running", nil))
	}
	e.conflict(len(ops), registry.ReasonVersion, append(ops, registry.Check(e.p("/item"), 5))...)
	r := e.ok(ops...)
	for i := range r {
		if i%3 == 1 && (r[i].Version != 1 || r[i].Zxid != r[1].Zxid) {
			e.Fatalf("result %d: %+v, want version 1 and zxid %d", i, r[i], r[1].Zxid)
		}
	}
	if names := e.names(e.p("/item")); len(names) != n {
		e.Fatalf("%d items, want %d", len(names), n)
	}
	if n := e.node(e.p("/item/999/running")); !n.Ephemeral {
		e.Fatalf("running mark: %+v", n)
	}
}
