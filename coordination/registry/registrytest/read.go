package registrytest

import (
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

func readCases() []testCase {
	return []testCase{
		{"read/order and absence", readOrder},
		{"read/names ascend", readNames},
		{"read/large tree", readLarge},
		{"read/what was read stays", readStays},
	}
}

func readOrder(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, []byte("data")), registry.Create(a+"/b", nil))
	queries := []registry.Query{registry.Data(a), registry.Data(e.p("/none")), registry.Children(a), registry.Children(e.p("/none")), registry.Data(a), registry.Children(a + "/b")}
	nodes, err := e.rc.Read(e.ctx, queries...)
	if err != nil || len(nodes) != len(queries) {
		e.Fatalf("read: %d nodes, %v", len(nodes), err)
	}
	for i, n := range nodes {
		if n.Query != queries[i] {
			e.Errorf("node %d answers %v, want %v", i, n.Query, queries[i])
		}
		if want := i != 1 && i != 3; n.Exists != want {
			e.Errorf("%v: exists %v, want %v", n.Query, n.Exists, want)
		}
		if !n.Exists && (n.Data != nil || n.Names != nil || n.Version != 0 || n.Czxid != 0 || n.Mzxid != 0 || !n.Mtime.IsZero() || n.Ephemeral) {
			e.Errorf("an absent node has content: %+v", n)
		}
		if (n.Children && n.Data != nil) || (!n.Children && n.Names != nil) {
			e.Errorf("%v: data %q and names %q, want the one that was asked for", n.Query, n.Data, n.Names)
		}
	}
	if string(nodes[0].Data) != "data" || string(nodes[4].Data) != "data" || !slices.Equal(nodes[2].Names, []string{"b"}) || len(nodes[5].Names) != 0 {
		e.Errorf("read: %+v", nodes)
	}
	if n := e.read(e.rc, registry.Children("/")); !n.Exists || !slices.Contains(n.Names, e.root[1:]) {
		e.Errorf("children of /: %+v, want %s among them", n, e.root[1:])
	}
}

func readNames(e *env) {
	want := []string{"-", "0", "1", "10", "2", "A", "B", "a", "a-b", "a.b", "ab", "b", "ä"}
	for _, i := range []int{5, 0, 12, 3, 7, 2, 9, 11, 1, 10, 4, 8, 6} {
		e.ok(registry.Create(e.p("/"+want[i]), nil))
		if !slices.IsSorted(e.names(e.root)) {
			e.Fatalf("names: %q", e.names(e.root))
		}
	}
	if names := e.names(e.root); !slices.Equal(names, want) {
		e.Fatalf("names: %q, want %q", names, want)
	}
	// Grandchildren are not children.
	e.ok(registry.Create(e.p("/a/x"), nil), registry.Create(e.p("/a-b/y"), nil), registry.Delete(e.p("/b"), 0), registry.Delete(e.p("/ä"), 0))
	if names := e.names(e.root); !slices.Equal(names, want[:11]) {
		e.Fatalf("names: %q, want %q", names, want[:11])
	}
}

func readLarge(e *env) {
	const n = 3000
	for i := 0; i < n; i += 500 {
		var ops []registry.Op
		for j := i; j < i+500; j++ {
			ops = append(ops, registry.Create(e.p(fmt.Sprintf("/%06d", (j*7919)%n)), []byte{byte(j)}))
		}
		e.ok(ops...)
	}
	names := e.names(e.root)
	if len(names) != n || !slices.IsSorted(names) {
		e.Fatalf("%d names, want %d in order", len(names), n)
	}
	var queries []registry.Query
	for _, name := range names {
		queries = append(queries, registry.Data(e.p("/"+name)))
	}
	nodes, err := e.rc.Read(e.ctx, queries...)
	if err != nil || len(nodes) != n {
		e.Fatalf("read: %d nodes, %v", len(nodes), err)
	}
	for i, node := range nodes {
		if !node.Exists || len(node.Data) != 1 || node.Path != queries[i].Path {
			e.Fatalf("node %d: %+v", i, node)
		}
	}
}

func readStays(e *env) {
	a := e.p("/a")
	e.ok(registry.Create(a, []byte("one")), registry.Create(a+"/x", nil), registry.Create(a+"/y", nil))
	nodes, err := e.rc.Read(e.ctx, registry.Data(a), registry.Children(a))
	if err != nil {
		e.Fatal(err)
	}
	snapshot := e.next(e.watch(e.ctx, e.rc, registry.Data(a), registry.Children(a)))
	e.ok(registry.Set(a, []byte("two"), 0), registry.Create(a+"/a", nil), registry.Delete(a+"/y", 0), registry.Create(a+"/z", nil))
	e.names(a)
	for what, n := range map[string][2]registry.Node{
		"read":  {nodes[0], nodes[1]},
		"watch": {snapshot.Data(a), snapshot[registry.Children(a)]},
	} {
		if string(n[0].Data) != "one" || n[0].Version != 0 || !slices.Equal(n[1].Names, []string{"x", "y"}) {
			e.Errorf("what a %s gave changed later: %+v", what, n)
		}
	}
}
