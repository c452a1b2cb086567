package show

import (
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/engine"
)

func TestHere(t *testing.T) {
	t.Parallel()
	j := &engine.JobStatus{Granted: []string{"http https://api.example.com:443/", "kv"}, Signer: "release", Items: []engine.ItemStatus{
		{LastOutside: map[string]abi.OutsideCount{
			"http": {Calls: 3, Sent: 100, Received: 2048, Targets: []string{"api.example.com:443", "b:443", "c:443"},
				Times: map[string]abi.TargetTime{"b:443": {Calls: 1, Slowest: time.Second}, "api.example.com:443": {Calls: 1, Slowest: 2 * time.Second}}},
			"kv": {Calls: 1},
		}},
		{},
		{LastOutside: map[string]abi.OutsideCount{"http": {Calls: 2, Failed: 2, Sent: 1, Refused: map[string]int64{"denied": 1},
			Targets: []string{"b:443", "d:443"}, FailedTargets: []string{"d:443"},
			Times: map[string]abi.TargetTime{"b:443": {Calls: 2, Slowest: 12400 * time.Millisecond}}}}},
	}}
	want := `granted    http https://api.example.com:443/, kv
signed by  release
outside    http: 5 calls, 101 bytes sent, 2.0 KiB received, api.example.com:443, b:443, c:443 and 1 more; 3 requests to b:443, slowest 12.4s; 2 failed: d:443; 1 refused (denied)
           kv: 1 call
`
	if got := Here(terminal.Style{}, j); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := Here(terminal.Style{}, &engine.JobStatus{}); got != "" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestInForce(t *testing.T) {
	t.Parallel()
	want := `JOB     SIGNED BY  GRANTED
cities  -          nothing
report  release    http https://api.example.com:443/
report  release    kv
`
	jobs := []*engine.JobStatus{{Name: "cities"}, {Name: "report", Signer: "release", Granted: []string{"http https://api.example.com:443/", "kv"}}}
	if got := InForce(terminal.Style{}, jobs); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := InForce(terminal.Style{}, nil); got != "no jobs\n" {
		t.Errorf("without jobs: %q", got)
	}
}
