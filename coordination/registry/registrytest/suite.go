// Package registrytest is the contract of a registry, as tests. Every implementation of registry.Center runs
// them all; a bug in one of them becomes a case here. No case waits for time to pass or depends on a registry's
// speed, so the suite runs against a server across the network as well as inside a testing/synctest bubble.
//
// The package also holds a naive model of a registry, for tests with random commits ([Walk]), and a decorator
// that makes a registry fail on demand ([Faulty]).
package registrytest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Server is a registry under test. Its methods may be called from the
// goroutine of the test only.
type Server interface {
	// Connect opens a new session. The suite closes it.
	Connect(t testing.TB) registry.Center
	// Expire ends a session as the server does for a client that went silent: the server does not notify the
	// client, which must have noticed by itself (Center.Lost) before the ephemeral nodes are deleted. Expire
	// may return before that.
	Expire(t testing.TB, r registry.Center)
}

// Run runs the suite, every case against its own server from start; start may return one server for all, since
// each case works below its own root. start registers its cleanup with t.Cleanup.
func Run(t *testing.T, start func(testing.TB) Server) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newEnv(t, start))
		})
	}
}

// RunBubble is Run with every case inside a testing/synctest bubble: it also fails if a goroutine is left, or
// if a case would have to wait for time to pass.
func RunBubble(t *testing.T, start func(testing.TB) Server) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.run(newEnv(t, start)) })
		})
	}
}

type testCase struct {
	name string
	run  func(*env)
}

func cases() []testCase {
	return slices.Concat(commitCases(), readCases(), watchCases(), sessionCases(), loadCases())
}

// patience is how long a case may take; some make a thousand commits on a busy machine. Inside a bubble it is
// over at once when no event can come.
const patience = 5 * time.Minute

// env is one case's surroundings.
type env struct {
	testing.TB
	server Server
	root   string
	ctx    context.Context
	rc     registry.Center // the case's first session
}

func newEnv(t testing.TB, start func(testing.TB) Server) *env {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	e := &env{TB: t, server: start(t), root: "/registrytest-" + rand.Text(), ctx: ctx}
	e.rc = e.connect()
	e.ok(registry.Ensure(e.root))
	return e
}

// connect opens a session that is closed with the case.
func (e *env) connect() registry.Center {
	e.Helper()
	rc := e.server.Connect(e.TB)
	e.Cleanup(func() {
		if err := rc.Close(); err != nil {
			e.Errorf("close: %v", err)
		}
	})
	return rc
}

// p makes a path below the case's root.
func (e *env) p(path string) string { return e.root + path }

// ok commits with the first session.
func (e *env) ok(ops ...registry.Op) []registry.Result {
	e.Helper()
	return e.commit(e.rc, ops...)
}

// commit fails the case unless the commit succeeds.
func (e *env) commit(rc registry.Center, ops ...registry.Op) []registry.Result {
	e.Helper()
	results, err := rc.Commit(e.ctx, ops...)
	if err != nil {
		e.Fatalf("commit %s: %v", describe(ops), err)
	}
	if len(results) != len(ops) {
		e.Fatalf("commit %s: %d results, want %d", describe(ops), len(results), len(ops))
	}
	for i, r := range results {
		if ops[i].Kind != registry.OpSequential && r.Path != ops[i].Path {
			e.Fatalf("commit %s: result %d has path %q", describe(ops), i, r.Path)
		}
		if set := ops[i].Kind == registry.OpSet; set != (r.Zxid > 0) {
			e.Fatalf("commit %s: result %d has zxid %d", describe(ops), i, r.Zxid)
		}
		if set := ops[i].Kind == registry.OpSet; set == r.Time.IsZero() {
			e.Fatalf("commit %s: result %d has the registry's time %v", describe(ops), i, r.Time)
		}
	}
	return results
}

// conflict demands that the commit fails at the op for the reason, and changes nothing below the root.
func (e *env) conflict(index int, reason registry.Reason, ops ...registry.Op) {
	e.Helper()
	before := dump(e.ctx, e.TB, e.rc, e.root)
	results, err := e.rc.Commit(e.ctx, ops...)
	var oe *registry.OpError
	switch {
	case !errors.Is(err, registry.ErrConflict), !errors.As(err, &oe):
		e.Fatalf("commit %s: error %v, want an *OpError that is ErrConflict", describe(ops), err)
	case oe.Index != index || oe.Reason != reason:
		e.Fatalf("commit %s: failed at op %d, %q; want op %d, %q", describe(ops), oe.Index, oe.Reason, index, reason)
	case oe.Op.Kind != ops[index].Kind || oe.Op.Path != ops[index].Path:
		e.Fatalf("commit %s: the error names op %s %s, want %s %s", describe(ops), oe.Op.Kind, oe.Op.Path, ops[index].Kind, ops[index].Path)
	case results != nil:
		e.Fatalf("commit %s: results beside an error", describe(ops))
	}
	if after := dump(e.ctx, e.TB, e.rc, e.root); !sameTree(before, after) {
		e.Fatalf("commit %s failed and left a trace\nbefore: %s\nafter:  %s", describe(ops), before, after)
	}
}

// node reads the data of one node with the first session.
func (e *env) node(path string) registry.Node {
	e.Helper()
	return e.read(e.rc, registry.Data(path))
}

func (e *env) names(path string) []string {
	e.Helper()
	return e.read(e.rc, registry.Children(path)).Names
}

func (e *env) read(rc registry.Center, q registry.Query) registry.Node {
	e.Helper()
	nodes, err := rc.Read(e.ctx, q)
	if err != nil {
		e.Fatalf("read %v: %v", q, err)
	}
	if len(nodes) != 1 || nodes[0].Query != q {
		e.Fatalf("read %v: got %+v", q, nodes)
	}
	return nodes[0]
}

// watch starts a watch and returns its channel.
func (e *env) watch(ctx context.Context, rc registry.Center, queries ...registry.Query) <-chan registry.Snapshot {
	e.Helper()
	ch, err := rc.Watch(ctx, queries...)
	if err != nil {
		e.Fatalf("watch %v: %v", queries, err)
	}
	return ch
}

// next waits for a snapshot.
func (e *env) next(ch <-chan registry.Snapshot) registry.Snapshot {
	e.Helper()
	select {
	case s, ok := <-ch:
		if !ok {
			e.Fatal("the watch ended")
		}
		return s
	case <-e.ctx.Done():
		e.Fatal("no snapshot came")
	}
	return nil
}

// until waits for a snapshot that satisfies is.
func (e *env) until(ch <-chan registry.Snapshot, what string, is func(registry.Snapshot) bool) registry.Snapshot {
	e.Helper()
	for {
		select {
		case s, ok := <-ch:
			if !ok {
				e.Fatalf("the watch ended before: %s", what)
			}
			if is(s) {
				return s
			}
		case <-e.ctx.Done():
			e.Fatalf("never came: %s", what)
		}
	}
}

// await waits until another session sees what is wanted.
func (e *env) await(rc registry.Center, what string, is func(registry.Snapshot) bool, queries ...registry.Query) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	e.until(e.watch(ctx, rc, queries...), what, is)
}

// awaitGone waits until another session sees that a node is gone.
func (e *env) awaitGone(rc registry.Center, path string) {
	e.Helper()
	e.await(rc, path+" gone", func(s registry.Snapshot) bool { return !s.Data(path).Exists }, registry.Data(path))
}

// closed waits until a channel of snapshots is closed. Before that it may
// still send.
func (e *env) closed(ch <-chan registry.Snapshot) {
	e.Helper()
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-e.ctx.Done():
			e.Fatal("the watch did not end")
		}
	}
}

// awaitLost waits until Lost is closed.
func (e *env) awaitLost(rc registry.Center) {
	e.Helper()
	select {
	case <-rc.Lost():
	case <-e.ctx.Done():
		e.Fatal("Lost was not closed")
	}
}

// Tree is all nodes below a root, and the root, in ascending order.
type Tree []registry.Node

// dump reads the tree below a path. The tree must not change meanwhile.
func dump(ctx context.Context, t testing.TB, rc registry.Center, root string) Tree {
	t.Helper()
	var tree Tree
	level := []string{root}
	for len(level) > 0 {
		queries := make([]registry.Query, 0, 2*len(level))
		for _, path := range level {
			queries = append(queries, registry.Data(path), registry.Children(path))
		}
		nodes, err := rc.Read(ctx, queries...)
		if err != nil {
			t.Fatalf("read %v: %v", queries, err)
		}
		if len(nodes) != len(queries) {
			t.Fatalf("read %v: %d nodes", queries, len(nodes))
		}
		var below []string
		for i := 0; i < len(nodes); i += 2 {
			data, children := nodes[i], nodes[i+1]
			if data.Exists != children.Exists {
				t.Fatalf("%s: exists %v for its data, %v for its children", data.Path, data.Exists, children.Exists)
			}
			if !data.Exists {
				if data.Path != root {
					t.Fatalf("%s: listed by its parent, but does not exist", data.Path)
				}
				continue
			}
			data.Names = children.Names
			tree = append(tree, data)
			if !slices.IsSorted(children.Names) {
				t.Fatalf("%s: children are not in ascending order: %q", data.Path, children.Names)
			}
			for _, name := range children.Names {
				below = append(below, strings.TrimSuffix(data.Path, "/")+"/"+name)
			}
		}
		level = below
	}
	slices.SortFunc(tree, func(a, b registry.Node) int { return strings.Compare(a.Path, b.Path) })
	return tree
}

// String has one line per node.
func (t Tree) String() string {
	var b strings.Builder
	for _, n := range t {
		fmt.Fprintf(&b, "\n  %s = %.40q version %d ephemeral %v zxid %d %d", n.Path, n.Data, n.Version, n.Ephemeral, n.Czxid, n.Mzxid)
	}
	return b.String()
}

// sameTree compares everything that a commit could have changed.
func sameTree(a, b Tree) bool {
	return slices.EqualFunc(a, b, func(x, y registry.Node) bool {
		return x.Path == y.Path && bytes.Equal(x.Data, y.Data) && slices.Equal(x.Names, y.Names) && x.Version == y.Version &&
			x.Ephemeral == y.Ephemeral && x.Czxid == y.Czxid && x.Mzxid == y.Mzxid && x.Mtime.Equal(y.Mtime)
	})
}

// describe names the ops of a commit for a message.
func describe(ops []registry.Op) string {
	var b strings.Builder
	for i, op := range ops {
		if i == 12 {
			fmt.Fprintf(&b, ", and %d more", len(ops)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", op.Kind, op.Path)
		switch op.Kind {
		case registry.OpSet, registry.OpDelete, registry.OpCheck:
			if op.Version != registry.AnyVersion {
				fmt.Fprintf(&b, "@%d", op.Version)
			}
		}
	}
	return "[" + b.String() + "]"
}
