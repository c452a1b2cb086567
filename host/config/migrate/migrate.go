// Package migrate reads the jobs that any version of ElasticJob keeps in a namespace of a registry, and turns
// each into a definition file and a skeleton of a module. It writes nothing to the registry.
//
// Every job has notes on what a definition cannot express.
package migrate

import (
	"context"
	"fmt"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Version says which ElasticJob, or a host like it, wrote a job's nodes.
type Version string

// The versions, by the shape of their trees.
const (
	// Version1 has one node for each setting.
	Version1 Version = "1.x"
	// Version20 keeps the configuration as JSON, and has nodes below each server.
	Version20 Version = "2.0"
	// Version21 keeps the configuration as JSON in the tree of 3.x.
	Version21 Version = "2.1"
	// Version3 has its configuration in YAML: what this host reads and writes.
	Version3 Version = "3.x"
)

// Reader reads nodes; [registry.Center] is one.
type Reader interface {
	Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error)
}

// Found is a job of a namespace.
type Found struct {
	Name    string
	Version Version
	// Node is the path by which the version is known, Sign what is there.
	Node, Sign string
}

// Detect lists the jobs of a namespace, by name. A node without any configuration is skipped: a removed job
// leaves it behind.
func Detect(ctx context.Context, r Reader, namespace string) ([]Found, error) {
	root := tree.JobsPath(namespace)
	jobs, err := r.Read(ctx, registry.Children(root))
	if err != nil {
		return nil, fmt.Errorf("list the jobs of %s: %w", root, err)
	}
	const each = 4
	var queries []registry.Query
	for _, name := range jobs[0].Names {
		job := root + "/" + name
		queries = append(queries, registry.Data(job+"/config"), registry.Children(job+"/config"),
			registry.Children(job+"/servers"), registry.Children(job+"/execution"))
	}
	nodes, err := r.Read(ctx, queries...)
	if err != nil {
		return nil, fmt.Errorf("read the jobs of %s: %w", root, err)
	}
	var servers []registry.Query
	of := make(map[string]int) // the job of a server's node
	for n, name := range jobs[0].Names {
		for _, ip := range nodes[n*each+2].Names {
			q := registry.Children(root + "/" + name + "/servers/" + ip)
			servers = append(servers, q)
			of[q.Path] = n
		}
	}
	below, err := r.Read(ctx, servers...)
	if err != nil {
		return nil, fmt.Errorf("read the servers of %s: %w", root, err)
	}
	oldServer := make(map[int]registry.Node)
	for _, s := range below {
		if len(s.Names) > 0 {
			oldServer[of[s.Path]] = s
		}
	}
	var found []Found
	for n, name := range jobs[0].Names {
		server, old := oldServer[n]
		f, ok := recognise(nodes[n*each], nodes[n*each+1], nodes[n*each+3], server, old)
		if ok {
			f.Name = name
			found = append(found, f)
		}
	}
	return found, nil
}

// recognise returns which version wrote a job's nodes: its configuration, the settings and the execution below
// it, and a server with nodes of its own, if there is one.
func recognise(config, settings, execution, server registry.Node, old bool) (f Found, ok bool) {
	keys := oldKeys(config.Data)
	switch {
	case len(settings.Names) > 0:
		return Found{Version: Version1, Node: settings.Path + "/" + settings.Names[0], Sign: "a node for each setting"}, true
	case len(keys) > 0:
		f = Found{Version: Version21, Node: config.Path, Sign: "JSON with " + strings.Join(keys, ", ")}
		if old || execution.Exists {
			f.Version = Version20
		}
		return f, true
	case execution.Exists:
		return Found{Version: Version1, Node: execution.Path, Sign: "items below execution"}, true
	case old:
		return Found{Version: Version1, Node: server.Path, Sign: "nodes below a server's"}, true
	}
	return Found{Version: Version3, Node: config.Path, Sign: "YAML"}, len(config.Data) > 0
}

// LayoutError says that a namespace holds a job of a version that cannot share
// it with this host.
type LayoutError struct {
	Namespace string
	// First is one such job, More how many there are besides.
	First Found
	More  int
}

func (e *LayoutError) Error() string {
	more := ""
	if e.More > 0 {
		more = fmt.Sprintf(" and %d more", e.More)
	}
	return fmt.Sprintf("namespace %s holds jobs of ElasticJob %s: %s%s (%s: %s); choose another namespace for this host, and take the jobs over with 'wasmjob job import elasticjob'",
		e.Namespace, e.First.Version, e.First.Name, more, e.First.Node, e.First.Sign)
}

// Check returns a [*LayoutError] if the namespace holds a job of a version
// before 3.
func Check(ctx context.Context, r Reader, namespace string) error {
	found, err := Detect(ctx, r, namespace)
	if err != nil {
		return err
	}
	var e *LayoutError
	for _, f := range found {
		switch {
		case f.Version == Version3:
		case e == nil:
			e = &LayoutError{Namespace: namespace, First: f}
		default:
			e.More++
		}
	}
	if e == nil {
		return nil
	}
	return e
}
