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
		"status citis": noJob, "job items citis": noJob, "job offset citis": noJob, "job kv citis": noJob, "job list --job citis": noJob,
		"job history citis": noJob, "job runs citis": noJob, "job logs citis": noJob, "job calendar citis": noJob, "why citis": noJob,
		"job history citis --item 7": noJob, "job logs citis citis/t9/0": noJob, "job runs nosuch --json": `no job "nosuch"` + "\n",
		"job logs cities cities/t999/0": `no run "cities/t999/0"`,
		"job logs cities --item 7":      `job "cities" has no item 7; there is 0-2`, "job runs cities --item 7": "has no item 7", "job history cities --item 3": "has no item 3", "why cities --item 7": "has no item 7",
		"job offset cities --item 7": "no item 7", "why cit*": `no job "cit*"`,
		"job runs cities --trigger 999999": `no trigger 999999 of job "cities"`, "job history --trigger 999999": "no trigger 999999", "job runs --host 10.9.9.9": `no host "10.9.9.9"`, "job list --host 10.9.9.9": `no host "10.9.9.9"`,
	} {
		if r := runCLI(t, client, strings.Fields(command)...); r.code != exitFailure || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%s: exit code %d, want 1 and %q\n%s%s", command, r.code, want, r.out, r.err)
		}
	}
	for command, want := range map[string]string{
		"status cities": "cities", "job items cities": "PENDING", "job history cities": "no fires", "job runs cities": "no runs", "job runs cities --item 2": "no runs", "job logs cities": "no lines", "job logs cities --item 2": "no lines",
		"job calendar cities": "nothing fires", "access audit cities --who nobody": "no changes", "why cities": "cities", "job history citis*": "no fires", "job list --job citis*": "no jobs", "job runs": "no runs",
		"host list": "127.0.0.1", "module list": "cities", "top": "jobs", "job list": "cities", "job runs cities --json": `"records": []`, "job runs --host 127.0.0.1": "no runs",
	} {
		runCLI(t, client, strings.Fields(command)...).expect(t, exitOK, want)
	}
	for _, text := range []string{"5m", "7d", "1d12h", "16:20", "2026-03-28", "2026-03-28T09:00", "2026-03-28T09:00:00Z"} {
		for _, command := range []string{"job history --from", "job runs --from", "job logs --from", "access audit --from", "why cities --at", "why cities --before", "job next @daily --from"} {
			runCLI(t, client, append(strings.Fields(command), text)...).expect(t, exitOK)
		}
	}
	for _, text := range []string{"noonish", "-5m", "5"} {
		for _, command := range []string{"job history --from", "job runs --to", "job logs --to", "access audit --from", "why cities --at", "why cities --before", "job next @daily --from"} {
			from := " (ago), "
			if strings.HasPrefix(command, "job next") {
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
