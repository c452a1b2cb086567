package e2e_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// released is the program of the version before, built from its commit, which
// test/upgrade/baseline names.
func released(t *testing.T) string {
	t.Helper()
	hash := strings.TrimSpace(string(read(t, filepath.Join("..", "upgrade", "baseline"))))
	return made(t, "wasmjob-released", func(ctx context.Context, path string) error {
		sources := path + ".src"
		if err := os.Mkdir(sources, 0o755); err != nil {
			return err
		}
		if err := command(ctx, nil, "sh", "-c", `git archive "$0" >"$1.tar" && tar -x -f "$1.tar" -C "$1" && rm "$1.tar"`, hash, sources); err != nil {
			return err
		}
		return command(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-C", sources, "-trimpath", "-ldflags", "-X main.version=released", "-o", path, "./cmd/host")
	})
}

// TestRollingUpgrade: hosts of the version before and of this one are in the same
// jobs. They share the items, lead in turn, and take over from each other, also
// when one host goes back to the version before. What either writes is judged by
// this version.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	old := released(t)
	c.job("tick", everySecond, "shardingTotalCount: 6", "failover: true")
	c.job("up", "shardingTotalCount: 8", "failover: true", "maxConcurrency: 8", `jobParameter: "stubborn:a"`)
	c.job("down", "shardingTotalCount: 8", "failover: true", "maxConcurrency: 8", `jobParameter: "stubborn:b"`)
	flags := append([]string{"--max-concurrency", "32"}, mortal...) // one host runs them all
	ticks := func(on ...*member) {
		t.Helper()
		c.divided("tick", on...)
		for _, m := range on {
			m.of("tick", m.mark(), kind(event.FireEnded), outcome("OK"))
		}
	}
	// dies kills the leader while all items run: the other host takes its own over.
	dies := func(job, gate string, leader, other *member) {
		t.Helper()
		c.divided(job, leader, other)
		if leads, _ := c.leader(job, leader, other); leads != leader {
			t.Fatalf("the host that came last leads %s", job)
		}
		f := c.fly(job, leader, other)
		leader.kill()
		taken := f.takenOver(t, f.of(leader), other)
		c.open(gate)
		f.once(t, f.of(leader), taken, other)
		ticks(other)
	}

	a := c.addOf(old, flags...)
	for _, job := range []string{"tick", "up", "down"} {
		a.of(job, 0, kind(event.Elected)) // it leads all while it lives
	}
	b := c.addOf(old, flags...)
	ticks(a, b)
	d := c.add(flags...)
	ticks(a, b, d)
	// A host of the version before would run all items.
	d.place.refused(1, []string{"items, a parameter and an instant cannot be given: host 127.0.1.", "has an earlier version of wasmjob"}, "job", "run", "up", "--items", "0")
	b.stop()
	ticks(a, d)
	dies("up", "a", a, d)

	back := c.addOf(old, flags...)
	ticks(d, back)
	dies("down", "b", d, back)

	e := c.add(flags...)
	ticks(back, e)
	back.stop()
	ticks(e)
	c.wholeFire("up", 8, e)
	c.wholeFire("down", 8, e)
	c.judge("tick", "up", "down")
}
