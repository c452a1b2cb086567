package http

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/grants"
)

// allow returns the grant that lets the job send the request.
func allow(g *grants.Grant, job string, h *head) (*grants.HTTP, error) {
	for i := range g.HTTP {
		r := &g.HTTP[i]
		methods := r.Methods
		if len(methods) == 0 {
			methods = []string{"GET", "HEAD"}
		}
		if r.Scheme == h.url.Scheme && r.Host == h.url.Hostname() && r.Port == h.port && strings.HasPrefix(h.url.Path, r.Path) && slices.Contains(methods, h.method) {
			return r, nil
		}
	}
	return nil, fmt.Errorf("http: %s %s is not granted to job %q", h.method, h.origin(), job)
}
