package show

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestModules: who runs what, what it wants and has, and what was refused where.
func TestModules(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := &service.Modules{
		Modules: []service.Module{
			{Digest: strings.Repeat("ab", 32), Files: []string{"cities.wasm"}, Size: 1 << 20, Jobs: []string{"a", "b", "c", "d"}, Hosts: []string{"b", "a", "gone"}},
			{Digest: strings.Repeat("cd", 32), Files: []string{"sync.wasm"}, Signer: "release", Imports: []string{"job_v1", "job_v1_http"}, Needs: []string{"kv"}, Granted: []string{"key/value state"}, Jobs: []string{"sync"}, Hosts: []string{"a"}},
		},
		Refused: []service.Refusal{{Hosts: []string{"10.0.0.2"}, Refusal: engine.Refusal{File: "bad.wasm", Reasons: []string{"not a module"}, Since: now.Add(-time.Minute), Kept: true}}},
		Silent:  []string{"10.0.0.3: it has not answered in time"},
	}
	want := `FILE         DIGEST        SIZE     SIGNER   JOBS                HOSTS                             WANTED    GRANTED
cities.wasm  abababababab  1.0 MiB  -        a, b, c and 1 more  10.0.0.1 (:9770), 10.0.0.2, gone  -         -
sync.wasm    cdcdcdcdcdcd  -        release  sync                10.0.0.1 (:9770)                  kv, http  key/value state

Refused files
bad.wasm on 10.0.0.2  1m ago, an earlier version stays in force
  not a module
does not answer, what it knows is missing: 10.0.0.3: it has not answered in time
`
	if got := Modules(terminal.Style{}, m, []cluster.Host{{ID: "a", Name: "10.0.0.1 (:9770)", ServerIP: "10.0.0.1"}, {ID: "b", Name: "10.0.0.2", ServerIP: "10.0.0.2"}}, now); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	large := service.Module{
		Imports: []string{"job_v1", "job_v1_io", "job_v1_http", "job_v1_env"}, Needs: []string{"http https://api.example.com/v1/", "dir /data", "secret token", "kv"},
		Granted: []string{"http https://api.example.com/v1/", "dir /data", "secret token", "kv"}, Jobs: []string{strings.Repeat("x", 300)},
	}
	if got := wanted(&large); !slices.Equal(got, large.Needs) {
		t.Errorf("wanted: %q, expected what the definitions say", got)
	}
	for line := range strings.Lines(Modules(terminal.Style{}, &service.Modules{Modules: []service.Module{large}}, nil, now)) {
		if len(line) > 200 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if got := Modules(terminal.Style{}, &service.Modules{}, nil, now); got != "no modules\n" {
		t.Errorf("of nothing: %q", got)
	}
}
