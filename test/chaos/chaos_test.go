package chaos

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

func dial(ctx context.Context, connect string, timeout time.Duration) (coordination.RegistryCenter, error) {
	s, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: connect, SessionTimeout: timeout})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func noDial(context.Context, string, time.Duration) (coordination.RegistryCenter, error) {
	return nil, errors.New("there is none")
}

// program builds the host, without the race detector: compiling modules would
// take ten times as long.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wasmjob")
	c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "./cmd/host")
	c.Dir = filepath.Join("..", "..")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// attacked runs an attack that has to end without a violation. Where it keeps
// things goes only if it did.
func attacked(t *testing.T, o Options) *Report {
	t.Helper()
	o.Program, o.Dial, o.Say = program(t), dial, func(line string) { t.Log(line) }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	r.Write(&text)
	t.Logf("\n%s", &text)
	if !r.OK() || r.Overlaps != 0 || r.Losses != 0 {
		t.Errorf("%d violations; see report.txt in %s, and again: wasmjob chaos --seed %d --duration -1s", len(r.Violations), r.Dir, o.Seed)
	}
	return r
}

// TestAttack is the attack in short: the main kinds once.
func TestAttack(t *testing.T) {
	t.Parallel()
	main := []Kind{KillLeader, Halt, PartitionSilent, Rolling, LeaderKilled, QuorumLong}
	r := attacked(t, Options{Seed: 1, Duration: -1, SessionTimeout: 4 * time.Second, Kinds: main})
	if len(r.Events) != len(main) {
		t.Errorf("%d faults were made, want %d", len(r.Events), len(main))
	}
	if r.Runs < 500 || r.Stints < 500 || r.Journal == nil || r.Journal.Begins < 500 || r.Offsets == 0 || r.Numbers == 0 {
		t.Errorf("the cluster had little to do: %d runs, %d by the guests, journal %+v, %d offsets", r.Runs, r.Stints, r.Journal, r.Offsets)
	}
}

// TestForeignCluster: with a test cluster of somebody's only hosts are harmed,
// and what is in use is refused.
func TestForeignCluster(t *testing.T) {
	t.Parallel()
	e := zkserver.ForTest(t, zkserver.Options{TickTime: 400 * time.Millisecond, NoSync: true})
	o := Options{Connect: e.Connect() + "/somewhere", Namespace: "attack", Seed: 1, Hosts: 2, Duration: -1,
		SessionTimeout: 4 * time.Second, Kinds: []Kind{KillAndReturn, LeaderKilled}}
	r := attacked(t, o)
	if len(r.Events) != 1 || r.Skipped[LeaderKilled] == "" || r.Journal != nil {
		t.Errorf("%d faults, left out: %v", len(r.Events), r.Skipped)
	}
	o.Program, o.Dial = "never started", dial
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "has jobs") {
		t.Errorf("attacked a namespace that has jobs: %v", err)
	}
}
