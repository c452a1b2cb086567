package dump

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// command begins a request; the job's name follows.
const command = "dump@"

// errRequest: the line is not a request. The server closes the connection without an answer, as ElasticJob
// does.
var errRequest = errors.New("not a request; expected dump@NAME")

// parseRequest returns the name in a request's line: what follows the one @.
func parseRequest(line string) (job string, err error) {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	job, ok := strings.CutPrefix(line, command)
	if !ok || job == "" || strings.Contains(job, "@") {
		return "", errRequest
	}
	return job, nil
}

// Text is the answer to a request: for every node below the job's root, depth
// first and children by descending name, a line of its path (from the job's
// name on) and its value, with IPv4 addresses masked. A job that does not
// exist has an empty line.
func Text(ctx context.Context, read func(context.Context, ...registry.Query) ([]registry.Node, error), namespace, job string) (string, error) {
	if jobconfig.CheckJobName(job) != nil {
		return "\n", nil // there can be no such job
	}
	root := tree.NewLayout(namespace, job).Root()
	children := make(map[string][]string)
	values := make(map[string]string)
	for level := []string{root}; len(level) > 0; {
		queries := make([]registry.Query, 0, 2*len(level))
		for _, p := range level {
			queries = append(queries, registry.Children(p), registry.Data(p))
		}
		nodes, err := read(ctx, queries...)
		if err != nil {
			return "", fmt.Errorf("read job %q: %w", job, err)
		}
		level = nil
		for n := 0; n+1 < len(nodes); n += 2 {
			names, data := nodes[n], nodes[n+1]
			if !data.Exists {
				continue // deleted meanwhile
			}
			values[data.Path] = string(data.Data)
			children[data.Path] = slices.SortedFunc(slices.Values(names.Names), func(a, b string) int { return javaCompare(b, a) })
			for _, name := range names.Names {
				level = append(level, data.Path+"/"+name)
			}
		}
	}
	var lines []string
	above := len(root) - len(job) - 1 // the namespace is not shown
	var walk func(path string)
	walk = func(path string) {
		for _, name := range children[path] {
			child := path + "/" + name
			if value, exists := values[child]; exists {
				lines = append(lines, child[above:]+" | "+value)
				walk(child)
			}
		}
	}
	walk(root)
	return masked(strings.Join(lines, "\n")) + "\n", nil
}

// javaCompare orders as Java orders strings: by UTF-16 units.
func javaCompare(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// masked replaces each IPv4 address by ip1, ip2, … in the order in which they
// first appear.
func masked(text string) string {
	const octet = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	known := make(map[string]string)
	return regexp.MustCompile(`\b`+octet+`(?:\.`+octet+`){3}\b`).ReplaceAllStringFunc(text, func(ip string) string {
		if known[ip] == "" {
			known[ip] = "ip" + strconv.Itoa(len(known)+1)
		}
		return known[ip]
	})
}
