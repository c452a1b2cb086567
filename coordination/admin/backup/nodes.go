package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Node is a persistent node.
type Node struct {
	// Path is the node's path, starting with the namespace: "/job/config" in ElasticJob's tree,
	// ".wasmjob/job/definition" in ours.
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
}

// atOnce is how many nodes one read asks for.
const atOnce = 1000

// roots are the two nodes below which all nodes of a namespace are.
func roots(namespace string) []string {
	return []string{tree.JobsPath(namespace), tree.NewLayout(namespace, "").NamespaceNode()}
}

// leftOut reports whether a node and its children are left out of a backup, because hosts create them again.
func leftOut(namespace, path string) bool {
	return path == tree.ClusterHosts(namespace) || path == tree.NumberPath(namespace)
}

// Read reads the persistent nodes of a namespace, parents first, and the greatest transaction number among them
// and the namespace's base. It counts ephemeral nodes. Hosts may keep working meanwhile: the result may or may
// not have what they write.
func Read(ctx context.Context, c registry.Center, namespace string) (nodes []Node, greatest int64, ephemeral int, err error) {
	c, err = fence.Raised(ctx, c, namespace)
	if err != nil {
		return nil, 0, 0, err
	}
	prefix := tree.JobsPath(namespace)
	level := roots(namespace)
	for len(level) > 0 {
		var next []string
		for part := range slices.Chunk(level, atOnce) {
			var queries []registry.Query
			for _, path := range part {
				queries = append(queries, registry.Data(path), registry.Children(path))
			}
			found, err := c.Read(ctx, queries...)
			if err != nil {
				return nil, 0, 0, fmt.Errorf("read %s of namespace %s: %w", words.Count(len(part), "node"), namespace, err)
			}
			for i, path := range part {
				n := found[2*i]
				if n.Exists && n.Ephemeral {
					ephemeral++
				}
				if !n.Exists || n.Ephemeral {
					continue
				}
				nodes = append(nodes, Node{Path: strings.TrimPrefix(path, prefix), Data: n.Data})
				greatest = max(greatest, n.Mzxid, n.Czxid)
				for _, name := range found[2*i+1].Names {
					if child := path + "/" + name; !leftOut(namespace, child) {
						next = append(next, child)
					}
				}
			}
		}
		level = next
	}
	return nodes, greatest, ephemeral, nil
}

// Target says where and how nodes are written.
type Target struct {
	Namespace string
	// Above is the greatest number known to have been given out.
	Above int64
	// Replace removes the nodes that exist; without it a namespace with jobs is refused.
	Replace bool
	// By names the operator.
	By string
}

// ErrHasJobs says that the namespace has jobs.
var ErrHasJobs = errors.New("the registry has jobs in this namespace")

// Written is the result of [Write].
type Written struct {
	Nodes, Removed int
	// Base is what is added to the registry's transaction numbers from now on.
	Base int64
}

// Write writes nodes to a namespace, parents first, and raises the namespace's base above Target.Above. No host
// may run there. If it fails halfway, the namespace is incomplete; call Write again with Replace.
func Write(ctx context.Context, c registry.Center, nodes []Node, t Target) (w Written, err error) {
	there, _, ephemeral, err := Read(ctx, c, t.Namespace)
	if err != nil {
		return w, err
	}
	hosts, err := c.Read(ctx, registry.Children(tree.ClusterHosts(t.Namespace)))
	if err != nil {
		return w, fmt.Errorf("read the hosts of namespace %s: %w", t.Namespace, err)
	}
	if n := len(hosts[0].Names) + ephemeral; n > 0 {
		return w, fmt.Errorf("hosts are running in namespace %s (%s of their sessions): stop all of them, also those of ElasticJob, and try again; the registry ends the session of one that died after its session timeout", t.Namespace, words.Count(n, "node"))
	}
	jobs := jobsOf(there)
	if len(jobs) > 0 && !t.Replace {
		return w, fmt.Errorf("%w: %s", ErrHasJobs, words.Some(jobs, ", "))
	}
	if w.Base, err = fence.RaiseAbove(ctx, c, t.Namespace, t.Above, t.By); err != nil {
		return w, err
	}
	var removals, ops []registry.Op
	prefix := tree.JobsPath(t.Namespace)
	kept := roots(t.Namespace)
	for _, n := range slices.Backward(there) { // children first
		if path := prefix + n.Path; !slices.Contains(kept, path) {
			removals = append(removals, registry.Delete(path, registry.AnyVersion))
		}
	}
	w.Removed = len(removals)
	for _, root := range kept {
		ops = append(ops, registry.Ensure(root))
	}
	for _, n := range nodes {
		if path := prefix + n.Path; !slices.Contains(kept, path) {
			ops = append(ops, registry.Create(path, n.Data))
			w.Nodes++
		}
	}
	for _, all := range [][]registry.Op{removals, ops} { // a commit has no path twice: see commit
		for part := range step.Parts(all, step.Budget) {
			if err := commit(ctx, c, part); err != nil {
				return w, fmt.Errorf("namespace %s is written in part; try again with --replace: %w", t.Namespace, err)
			}
		}
	}
	return w, nil
}

// jobsOf returns the names of the jobs that have nodes.
func jobsOf(nodes []Node) (names []string) {
	for _, n := range nodes {
		path := strings.TrimPrefix(n.Path, ".wasmjob")
		if name, ok := strings.CutPrefix(path, "/"); ok && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	names = tree.JobsOf(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// mostTries is how often a commit whose answer was lost is tried again.
const mostTries = 5

// commit commits ops, each on a different node; no other program may write these nodes. If the answer is lost,
// the next try skips the ops that took effect.
func commit(ctx context.Context, c registry.Center, ops []registry.Op) error {
	for try := 1; ; try++ {
		_, err := c.Commit(ctx, ops...)
		if err == nil || try == mostTries || (!step.IsUnknown(err) && !errors.Is(err, registry.ErrConflict)) {
			return err
		}
		queries := make([]registry.Query, len(ops))
		for i, op := range ops {
			queries[i] = registry.Data(op.Path)
		}
		found, readErr := c.Read(ctx, queries...)
		if readErr != nil {
			return errors.Join(err, readErr)
		}
		var left []registry.Op
		for i, op := range ops {
			if done := found[i].Exists == (op.Kind != registry.OpDelete); !done {
				left = append(left, op)
			}
		}
		if ops = left; len(ops) == 0 {
			return nil
		}
	}
}
