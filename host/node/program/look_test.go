package program

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestLookedForAndNotThere: commands that look for a job, a run or an item that there is not say so
// and end with 1; a job without any run is there.
func TestLookedForAndNotThere(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	socket := filepath.Join(home, "s")
	dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 3\njobParameter: attrs\n")
	signals := make(chan os.Signal, 2)
	out := lineByLine{make(chan string, 10_000)}
	p := &program{Program: command.Program{Out: out, Err: lineByLine{make(chan string, 10_000)}, OutTTY: true, Environ: []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "NO_COLOR=1"},
		Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", socket, "--server-ip", "127.0.0.1"})
	}()
	out.await(t, "this host runs items 0-2")
	client := []string{"WASMJOB_ADMIN=" + socket, "XDG_RUNTIME_DIR=" + home, "HOME=" + home}
	runCLI(t, client, "job", "run", "citis").expect(t, exitFailure) // on record, and no proof that there was such a job
	const noJob = `no job "citis"; did you mean "cities"?`
	for command, want := range map[string]string{
		"status citis": noJob, "shards citis": noJob, "offset citis": noJob, "kv citis": noJob, "jobs --job citis": noJob,
		"history citis": noJob, "runs citis": noJob, "logs citis": noJob, "calendar citis": noJob, "why citis": noJob,
		"history citis --item 7": noJob, "logs citis citis/t9/0": noJob, "runs nosuch --json": `no job "nosuch"` + "\n",
		"logs cities cities/t999/0": `no run "cities/t999/0"`,
		"logs cities --item 7":      `job "cities" has no item 7; there is 0-2`, "runs cities --item 7": "has no item 7", "history cities --item 3": "has no item 3", "why cities --item 7": "has no item 7",
		"offset cities --item 7": "no item 7", "why cit*": `no job "cit*"`,
		"runs cities --trigger 999999": `no trigger 999999 of job "cities"`, "history --trigger 999999": "no trigger 999999", "runs --host 10.9.9.9": `no host "10.9.9.9"`, "jobs --host 10.9.9.9": `no host "10.9.9.9"`,
	} {
		if r := runCLI(t, client, strings.Fields(command)...); r.code != exitFailure || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%s: exit code %d, want 1 and %q\n%s%s", command, r.code, want, r.out, r.err)
		}
	}
	for command, want := range map[string]string{
		"status cities": "cities", "shards cities": "PENDING", "history cities": "no fires", "runs cities": "no runs", "runs cities --item 2": "no runs", "logs cities": "no lines", "logs cities --item 2": "no lines",
		"calendar cities": "nothing fires", "audit cities --who nobody": "no changes", "why cities": "cities", "history citis*": "no fires", "jobs --job citis*": "no jobs", "runs": "no runs",
		"hosts": "127.0.0.1", "modules": "cities", "top": "jobs", "jobs": "cities", "runs cities --json": `"records": []`, "runs --host 127.0.0.1": "no runs",
	} {
		runCLI(t, client, strings.Fields(command)...).expect(t, exitOK, want)
	}
	for _, text := range []string{"5m", "7d", "1d12h", "16:20", "2026-03-28", "2026-03-28T09:00", "2026-03-28T09:00:00Z"} {
		for _, command := range []string{"history --from", "runs --from", "logs --from", "audit --from", "why cities --at", "why cities --before", "next @daily --from"} {
			runCLI(t, client, append(strings.Fields(command), text)...).expect(t, exitOK)
		}
	}
	for _, text := range []string{"noonish", "-5m", "5"} {
		for _, command := range []string{"history --from", "runs --to", "logs --to", "audit --from", "why cities --at", "why cities --before", "next @daily --from"} {
			from := " (ago), "
			if strings.HasPrefix(command, "next") {
				from = " (from now), "
			}
			runCLI(t, client, append(strings.Fields(command), text)...).expect(t, exitUsage, `"`+text+`" is not a time; want 90m or 7d`+from)
		}
	}
	runCLI(t, client, "job", "calendar", "--for", "7d").expect(t, exitOK)
	runCLI(t, client, "job", "calendar", "--for", "7 d").expect(t, exitUsage, `--for: "7 d" is not a duration such as`)
	runCLI(t, client, "job", "run", "cities").expect(t, exitOK)
	out.await(t, "fire  cities")
	runCLI(t, client, "job", "logs", "cities").expect(t, exitOK, "warn cities/2", "err cities/2")
	if r := runCLI(t, client, "job", "logs", "cities", "--level", "error"); r.code != exitOK || strings.Contains(r.out, "warn") || !strings.Contains(r.out, "err cities/2") {
		t.Errorf("--level error: %d\n%s%s", r.code, r.out, r.err)
	}
	runCLI(t, client, "job", "remove", "cities").expect(t, exitOK, "removed")
	out.await(t, "removed")
	if err := os.Remove(filepath.Join(dir, "cities.yaml")); err != nil {
		t.Fatal(err)
	}
	runCLI(t, client, "access", "audit", "cities", "--who", "nobody").expect(t, exitOK, "no changes")
	signals <- syscall.SIGTERM
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
