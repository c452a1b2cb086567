package registrytest

import (
	"context"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

func watchCases() []testCase {
	return []testCase{
		{"watch/first snapshot at once", watchFirst},
		{"watch/own commits", watchOwn},
		{"watch/newest wins", watchNewest},
		{"watch/never back", watchNeverBack},
		{"watch/a slow reader blocks no other", watchSlow},
		{"watch/absent node comes and goes", watchAbsent},
		{"watch/children", watchChildren},
		{"watch/other sessions", watchOthers},
		{"watch/failed commit and unrelated changes are silent", watchSilent},
		{"watch/ends with its context", watchContext},
		{"watch/ends with its session", watchSession},
		{"watch/many on one node", watchMany},
	}
}

func watchFirst(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, []byte("x")), registry.Create(a+"/b", nil))
	s := e.next(e.watch(e.ctx, e.rc, registry.Data(a), registry.Children(a), registry.Data(e.p("/none")), registry.Children(e.p("/none")), registry.Data(a)))
	if len(s) != 4 {
		e.Fatalf("%d nodes in the snapshot, want one per query: %+v", len(s), s)
	}
	for q, n := range s {
		if n.Query != q {
			e.Errorf("the node under %v answers %v", q, n.Query)
		}
	}
	if n := s.Data(a); !n.Exists || string(n.Data) != "x" || n.Czxid == 0 {
		e.Errorf("data: %+v", n)
	}
	if !slices.Equal(s.Children(a), []string{"b"}) {
		e.Errorf("children: %q", s.Children(a))
	}
	if s.Data(e.p("/none")).Exists || s[registry.Children(e.p("/none"))].Exists {
		e.Errorf("an absent node exists: %+v", s)
	}
	if s := e.next(e.watch(e.ctx, e.rc)); len(s) != 0 {
		e.Errorf("a watch of nothing sent %+v", s)
	}
}

// After a commit returned, at most one snapshot can be older: the one that was
// in the channel already.
func watchOwn(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	ch := e.watch(e.ctx, e.rc, registry.Data(a))
	for v := range int32(50) {
		e.ok(registry.Set(a, nil, v))
		s := e.next(ch)
		if s.Data(a).Version <= v {
			s = e.next(ch)
		}
		if got := s.Data(a).Version; got != v+1 {
			e.Fatalf("a snapshot sent after the commit of version %d has %d", v+1, got)
		}
	}
}

func watchNewest(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	ch := e.watch(e.ctx, e.rc, registry.Data(a))
	for v := range int32(100) {
		e.ok(registry.Set(a, nil, v))
	}
	if n := cap(ch); n > 1 {
		e.Fatalf("the channel holds %d values, want 1", n)
	}
	s := e.next(ch)
	if s.Data(a).Version != 100 {
		s = e.next(ch)
	}
	if got := s.Data(a).Version; got != 100 {
		e.Fatalf("the second snapshot after 100 commits has version %d", got)
	}
}

func watchNeverBack(e *env) {
	const last = 300
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	writer := e.connect()
	e.await(writer, "/a", func(s registry.Snapshot) bool { return s.Data(a).Exists }, registry.Data(a))
	ch := e.watch(e.ctx, e.rc, registry.Data(a), registry.Children(a))
	done := make(chan error, 1)
	go func() {
		for v := range int32(last) {
			if _, err := writer.Commit(e.ctx, registry.Set(a, nil, v), registry.Create(a+fmt.Sprintf("/%03d", v), nil)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	version, children := int32(-1), 0
	for version < last || children < last {
		s := e.next(ch)
		v, n := s.Data(a).Version, len(s.Children(a))
		if v < version || n < children {
			e.Errorf("a snapshot with version %d and %d children came after one with %d and %d", v, n, version, children)
			break
		}
		version, children = v, n
	}
	if err := <-done; err != nil {
		e.Fatal(err)
	}
}

func watchSlow(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	slow := e.watch(e.ctx, e.rc, registry.Data(a)) // read at the very end
	quick := e.watch(e.ctx, e.rc, registry.Data(a))
	for v := range int32(20) {
		e.ok(registry.Set(a, nil, v))
		e.until(quick, fmt.Sprintf("version %d", v+1), func(s registry.Snapshot) bool { return s.Data(a).Version == v+1 })
	}
	s := e.next(slow)
	if s.Data(a).Version != 20 {
		s = e.next(slow)
	}
	if got := s.Data(a).Version; got != 20 {
		e.Fatalf("the slow reader got version %d, want 20", got)
	}
}

func watchAbsent(e *env) {
	a, b := e.p("/a"), e.p("/a/b") // the parent of b does not exist either
	ch := e.watch(e.ctx, e.rc, registry.Data(b), registry.Children(b))
	if s := e.next(ch); s.Data(b).Exists || s[registry.Children(b)].Exists {
		e.Fatalf("first: %+v", s)
	}
	for round := range 3 {
		e.ok(registry.Ensure(a), registry.Create(b, []byte{byte(round)}), registry.Create(b+"/c", nil))
		e.until(ch, "the node and its child", func(s registry.Snapshot) bool {
			return s.Data(b).Exists && s.Data(b).Data[0] == byte(round) && slices.Equal(s.Children(b), []string{"c"})
		})
		e.ok(registry.Delete(b+"/c", 0), registry.Delete(b, 0))
		e.until(ch, "both gone", func(s registry.Snapshot) bool {
			return !s.Data(b).Exists && !s[registry.Children(b)].Exists && s.Children(b) == nil && s.Data(b).Data == nil
		})
	}
	// Each kind of query by itself.
	data, children := e.watch(e.ctx, e.rc, registry.Data(e.p("/x"))), e.watch(e.ctx, e.rc, registry.Children(e.p("/x")))
	e.next(data)
	e.next(children)
	for range 2 {
		e.ok(registry.Create(e.p("/x"), nil))
		e.until(data, "the node, by its data", func(s registry.Snapshot) bool { return s.Data(e.p("/x")).Exists })
		e.until(children, "the node, by its children", func(s registry.Snapshot) bool { return s[registry.Children(e.p("/x"))].Exists })
		e.ok(registry.Delete(e.p("/x"), 0))
		e.until(data, "the node gone, by its data", func(s registry.Snapshot) bool { return !s.Data(e.p("/x")).Exists })
		e.until(children, "the node gone, by its children", func(s registry.Snapshot) bool { return !s[registry.Children(e.p("/x"))].Exists })
	}
	// Without children there is a difference between no node and no children.
	e.ok(registry.Create(b, nil))
	e.until(ch, "a node without children", func(s registry.Snapshot) bool { return s[registry.Children(b)].Exists })
	// Deleted and made again in one commit: the new one is seen.
	old := e.node(b).Czxid
	e.ok(registry.Delete(b, 0), registry.Create(b, []byte("new")))
	e.until(ch, "the new node", func(s registry.Snapshot) bool { return s.Data(b).Czxid > old && string(s.Data(b).Data) == "new" })
}

func watchChildren(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	ch := e.watch(e.ctx, e.rc, registry.Children(a))
	want := func(names ...string) {
		e.Helper()
		e.until(ch, fmt.Sprintf("children %q", names), func(s registry.Snapshot) bool { return slices.Equal(s.Children(a), names) })
	}
	want()
	e.ok(registry.Create(a+"/m", nil))
	want("m")
	e.ok(registry.Create(a+"/z", nil), registry.CreateEphemeral(a+"/b", nil), registry.Create(a+"/c", nil))
	want("b", "c", "m", "z")
	e.ok(registry.Delete(a+"/m", 0), registry.Create(a+"/a", nil), registry.Delete(a+"/z", 0))
	want("a", "b", "c")
	other := e.connect()
	e.await(other, "children", func(s registry.Snapshot) bool { return len(s.Children(a)) == 3 }, registry.Children(a))
	e.commit(other, registry.CreateEphemeral(a+"/other", nil))
	want("a", "b", "c", "other")
	if err := other.Close(); err != nil {
		e.Fatal(err)
	}
	want("a", "b", "c")
	e.ok(registry.Delete(a+"/a", 0), registry.Delete(a+"/b", 0), registry.Delete(a+"/c", 0))
	want()
}

func watchOthers(e *env) {
	a := e.p("/a")
	readers := []registry.Center{e.rc, e.connect(), e.connect()}
	var chs []<-chan registry.Snapshot
	for _, rc := range readers {
		chs = append(chs, e.watch(e.ctx, rc, registry.Data(a)))
	}
	e.ok(registry.Create(a, nil))
	for v := range int32(10) {
		e.commit(readers[v%3], registry.Set(a, nil, registry.AnyVersion))
		for _, ch := range chs {
			e.until(ch, fmt.Sprintf("version %d", v+1), func(s registry.Snapshot) bool { return s.Data(a).Version == v+1 })
		}
	}
}

func watchSilent(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil), registry.Create(a+"/b", nil), registry.Create(e.p("/c"), nil))
	data := e.watch(e.ctx, e.rc, registry.Data(a))
	children := e.watch(e.ctx, e.rc, registry.Children(a))
	e.next(data)
	e.next(children)
	silent := func(what string, chs ...<-chan registry.Snapshot) {
		e.Helper()
		e.node(a) // what the commit caused is under way at least
		for _, ch := range chs {
			select {
			case s := <-ch:
				e.Errorf("%s caused a snapshot: %+v", what, s)
			default:
			}
		}
	}
	e.conflict(2, registry.ReasonVersion, registry.Set(a, nil, 0), registry.Create(a+"/x", nil), registry.Check(e.p("/c"), 9))
	silent("a commit that failed", data, children)
	e.ok(registry.Check(a, 0), registry.Check(a+"/b", 0))
	silent("a commit that changed nothing", data, children)
	e.ok(registry.Set(e.p("/c"), nil, 0), registry.Create(e.p("/c/d"), nil), registry.Create(e.p("/ab"), nil))
	silent("a change elsewhere", data, children)
	e.ok(registry.Set(a+"/b", nil, 0), registry.Create(a+"/b/c", nil))
	silent("a change of a child", data, children)
	e.ok(registry.Set(a, []byte("x"), 0))
	silent("a change of the data", children)
	e.until(data, "the change of the data", func(s registry.Snapshot) bool { return s.Data(a).Version == 1 })
	e.ok(registry.Create(a+"/d", nil))
	silent("a new child", data)
	e.until(children, "the new child", func(s registry.Snapshot) bool { return slices.Equal(s.Children(a), []string{"b", "d"}) })
}

func watchContext(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	ctx, cancel := context.WithCancel(e.ctx)
	read := e.watch(ctx, e.rc, registry.Data(a))
	unread := e.watch(ctx, e.rc, registry.Data(a), registry.Children(a))
	stays := e.watch(e.ctx, e.rc, registry.Data(a))
	e.next(read)
	cancel()
	e.closed(read)
	e.closed(unread)
	e.ok(registry.Set(a, nil, 0)) // and nothing is sent on a closed channel
	e.until(stays, "version 1", func(s registry.Snapshot) bool { return s.Data(a).Version == 1 })

	// Many that come and go, while commits run.
	done := make(chan error, 1)
	go func() {
		for v := int32(1); v <= 100; v++ {
			if _, err := e.rc.Commit(e.ctx, registry.Set(a, nil, v)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 50 {
		ctx, cancel := context.WithCancel(e.ctx)
		ch := e.watch(ctx, e.rc, registry.Data(a))
		e.next(ch)
		cancel()
		e.closed(ch)
	}
	if err := <-done; err != nil {
		e.Fatal(err)
	}
	e.until(stays, "version 101", func(s registry.Snapshot) bool { return s.Data(a).Version == 101 })
}

func watchSession(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	closing, expiring := e.connect(), e.connect()
	ctx, cancel := context.WithCancel(e.ctx)
	one, two := e.watch(ctx, closing, registry.Data(a)), e.watch(ctx, closing, registry.Children(a))
	three := e.watch(ctx, expiring, registry.Data(a))
	if err := closing.Close(); err != nil {
		e.Fatal(err)
	}
	e.closed(one)
	e.closed(two)
	e.server.Expire(e.TB, expiring)
	e.closed(three)
	cancel() // of a watch that has ended
	e.ok(registry.Set(a, nil, 0))
}

func watchMany(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, nil))
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var chs []<-chan registry.Snapshot
	for range 200 {
		chs = append(chs, e.watch(ctx, e.rc, registry.Data(a), registry.Children(a)))
	}
	e.ok(registry.Set(a, nil, 0))
	e.ok(registry.Create(a+"/b", nil))
	for _, ch := range chs {
		e.until(ch, "both changes", func(s registry.Snapshot) bool { return s.Data(a).Version == 1 && len(s.Children(a)) == 1 })
	}
	cancel()
	for _, ch := range chs {
		e.closed(ch)
	}
}
