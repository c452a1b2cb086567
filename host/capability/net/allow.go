package net

import (
	"fmt"

	"github.com/wasmjob/wasmjob/host/grants"
)

// allow returns the grant that lets the job connect.
func allow(g *grants.Grant, job string, t target) (*grants.Net, error) {
	for i := range g.Net {
		n := &g.Net[i]
		if n.Scheme == t.scheme && n.Host == t.host && n.Port == t.port {
			return n, nil
		}
	}
	return nil, fmt.Errorf("net: %s is not granted to job %q", t, job)
}
