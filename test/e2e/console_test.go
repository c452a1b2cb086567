package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	view "github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// decoded is what a command says with --json.
func decoded[T any](t *testing.T, out string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return v
}

// records are those of a list that a command prints as JSON.
func records[T any](t *testing.T, out string) []T {
	t.Helper()
	return decoded[history.Page[T]](t, out).Records
}

// TestAnyHostAnswers asks each of two hosts about the whole cluster: with both alive,
// with one stopped, and with one gone.
func TestAnyHostAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 4")
	c.job("bad", "shardingTotalCount: 2", `jobParameter: "fail"`)
	a := c.add()
	a.of("tick", 0, assigned(4))
	b := c.add()
	b.of("tick", 0, assigned(2))
	b.of("bad", 0, assigned(1))
	a.must("job", "run", "bad", "--reason", "to see it fail")
	b.of("bad", 0, kind(event.ItemCompleted), outcome(abi.OutcomeFail))
	a.of("bad", 0, kind(event.ItemCompleted), outcome(abi.OutcomeFail))
	b.of("tick", 0, kind(event.ItemCompleted))

	if top := a.must("top"); !strings.Contains(top, "bad") || !strings.Contains(top, b.ip) { // once: this is no terminal
		t.Errorf("wasmjob top: %s", top)
	}
	for _, m := range []*member{a, b} {
		hosts := records[view.Host](t, m.must("host", "list", "--json"))
		if len(hosts) != 2 || hosts[0].ServerIP != m.ip || !hosts[0].Here || hosts[1].Silent != "" || hosts[1].Report.Status.State != engine.HostLive {
			t.Errorf("the hosts, by %s: %+v", m.ip, hosts)
		}
		jobs := records[view.Job](t, m.must("job", "list", "--json"))
		if len(jobs) != 2 || jobs[0].Name != "bad" || jobs[0].Health != view.HealthFailing || jobs[0].Failed != 2 || jobs[0].Last.Outcome != abi.OutcomeFail ||
			len(jobs[0].Hosts) != 2 || jobs[1].Health != view.HealthOK {
			t.Errorf("the jobs, by %s: %+v", m.ip, jobs)
		}
		fires := decoded[view.Found[history.Fire]](t, m.must("job", "history", "bad", "--json")).Records
		if len(fires) != 1 || len(fires[0].Hosts) != 2 || fires[0].Failed != 2 || len(fires[0].Items) != 2 {
			t.Errorf("the fires, by %s: %+v", m.ip, fires)
		}
		runs := decoded[view.Found[history.Run]](t, m.must("job", "runs", "--failed", "--json")).Records
		if len(runs) != 2 || runs[0].Host == runs[1].Host || runs[0].Message == "" {
			t.Errorf("the runs, by %s: %+v", m.ip, runs)
		}
		changes := decoded[view.Found[history.Change]](t, m.must("access", "audit", "--json")).Records
		changes = slices.DeleteFunc(changes, func(c history.Change) bool { return c.What == "create" })
		if len(changes) != 1 || changes[0].What != "trigger" || changes[0].Why != "to see it fail" {
			t.Errorf("the changes, by %s: %+v", m.ip, changes)
		}
		why := m.must("explain", "bad")
		for _, want := range []string{"bad: failed", "on host " + a.ip, "on host " + b.ip, `did "run"`, "to see it fail"} {
			if !strings.Contains(why, want) {
				t.Errorf("why, by %s: %q is not in\n%s", m.ip, want, why)
			}
		}
	}

	// Removed on both hosts, and brought back by one.
	a.must("job", "remove", "bad")
	a.of("bad", 0, kind(event.JobRemoved))
	b.of("bad", 0, kind(event.JobRemoved))
	removed := func() bool {
		jobs := records[view.Job](t, b.must("job", "list", "--job", "bad", "--json"))
		return len(jobs) == 1 && jobs[0].State == engine.JobRemoved && jobs[0].Next.IsZero()
	}
	for end := time.Now().Add(patience); !removed(); {
		if time.Now().After(end) {
			t.Fatal("the removed job is not shown as such")
		}
	}
	mark := a.mark()
	if out := b.must("job", "restore", "bad"); !strings.Contains(out, "127.0.1.1") || !strings.Contains(out, "127.0.1.2") {
		t.Errorf("restore says %q", out)
	}
	a.of("bad", mark, assigned(1))
	a.place.refused(1, []string{"neither removed nor shut down"}, "job", "restore", "bad")

	// One that does not answer is waited for a second, and shown.
	b.signal(syscall.SIGSTOP)
	began := time.Now()
	hosts := records[view.Host](t, a.must("host", "list", "--json"))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if len(hosts) != 2 || !strings.Contains(hosts[1].Silent, "has not answered") {
		t.Errorf("the hosts while one is stopped: %+v", hosts)
	}
	if why := a.must("explain", "bad"); !strings.Contains(why, "The histories of 127.0.1.2 ") {
		t.Errorf("why, while one is stopped: %s", why)
	}
	b.kill()
	a.of("tick", 0, assigned(4), test{"after the death", func(e event.Event) bool { return e.Time.After(began) }})
	if hosts := records[view.Host](t, a.must("host", "list", "--json")); len(hosts) != 1 {
		t.Errorf("the hosts when one is gone: %+v", hosts)
	}
	a.stop()
}

// TestNoAPI: every list says that a host which serves no API is missing in it.
func TestNoAPI(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("tick", everySecond, "shardingTotalCount: 2")
	token := server.NewToken()
	c.place.put("token", []byte(token))
	if err := os.Chmod(c.path("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := c.add("--admin-token-file", c.path("token"))
	b := c.add("--admin", "off")
	b.of("tick", 0, kind(event.ItemCompleted))
	a.of("tick", 0, assigned(1))
	said := b.ip + ": it serves no API to other hosts"
	for _, args := range [][]string{{"job", "list"}, {"job", "list", "--json"}, {"job", "list", "--output", "yaml"}, {"job", "runs"}, {"job", "runs", "tick", "--json"}, {"job", "history"}, {"job", "logs"}, {"access", "audit"}, {"module", "list"}, {"module", "list", "--json"}} {
		if r := a.cli(args...); r.code != 0 || !strings.Contains(r.out+r.err, said) {
			t.Errorf("%v: %d %s%s", args, r.code, r.out, r.err)
		}
	}
	if r := a.cli("job", "list", "--json"); !json.Valid([]byte(r.out)) {
		t.Errorf("jobs --json: %s", r.out)
	}
	for _, page := range []string{"/v1/jobs", "/v1/jobs/tick", "/v1/fires", "/v1/runs", "/v1/logs", "/v1/overview", "/jobs", "/runs", "/logs"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.address+page, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		got, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got.Body)
		got.Body.Close()
		if err != nil || !strings.Contains(string(text), b.ip) || !strings.Contains(string(text), "it serves no API to other hosts") {
			t.Errorf("%s: %d %v", page, got.StatusCode, err)
		}
	}
	b.stop()
	a.stop()
}

// TestLogs follows what guests log, and finds it again.
func TestLogs(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("talk", everySecond, "shardingTotalCount: 1")
	h := p.start("--mount", "talk="+p.path("gate")+":/gate")
	h.of("talk", 0, kind(event.ItemStarted))
	p.refused(2, []string{"--follow wants the name of a job"}, "job", "logs", "--follow")
	p.refused(2, []string{`--from: "yesterday" is not a time`}, "job", "logs", "--from", "yesterday")
	p.refused(2, []string{`"1" is no run of job "talk"`, "begins with talk/"}, "job", "logs", "talk", "1")
	p.refused(2, []string{`unexpected argument "more"`}, "job", "logs", "talk", "talk/1", "more")

	follow := exec.CommandContext(t.Context(), wasmjob(t), "job", "logs", "talk", "--follow", "--limit", "1", "--output", "json")
	follow.Env = p.env()
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var live history.Line
	for lines.Scan() {
		if live = decoded[history.Line](t, lines.Text()); live.RunID != "" {
			break
		}
	}
	if live.Job != "talk" || live.Message == "" {
		t.Errorf("followed: %+v, %v", live, lines.Err())
	}
	if err := follow.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() { // up to the end
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("a signal ends it with %v", err)
	}
	found := decoded[view.Found[history.Line]](t, p.must("job", "logs", "talk", live.RunID, "--json")).Records
	if len(found) != 1 || found[0].Message != live.Message {
		t.Errorf("found: %+v, want %+v", found, live)
	}
	for level, want := range map[string]int{"debug": 1, "info": 1, "warn": 0, "error": 0} { // the guest's line is an info
		if got := decoded[view.Found[history.Line]](t, p.must("job", "logs", "talk", live.RunID, "--level", level, "--json")).Records; len(got) != want {
			t.Errorf("--level %s: %+v", level, got)
		}
	}
	p.refused(2, []string{`"loud"`, "debug, info, warn or error"}, "job", "logs", "--level", "loud")
	if offered := p.must("__complete", "job", "logs", "talk", ""); !strings.HasPrefix(offered, "talk/") {
		t.Errorf("completion offers\n%s", offered)
	}
	h.stop()
}

// TestWithoutConsole: a program that was built with -tags noui has no pages, and answers programs
// as it does otherwise.
func TestWithoutConsole(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.program = made(t, "wasmjob-noui", func(ctx context.Context, path string) error {
		return command(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-tags", "noui", "-o", path, "./cmd/host")
	})
	p.guestJob("tick", everySecond, "shardingTotalCount: 1")
	h := p.start()
	h.of("tick", 0, kind(event.ItemCompleted))
	if text := p.must("job", "list"); !strings.Contains(text, "tick") {
		t.Errorf("wasmjob job list: %s", text)
	}
	for _, page := range []string{"/", "/jobs", "/static/app.js"} {
		if code, text := h.get(page); code == http.StatusOK || strings.Contains(text, "<html") {
			t.Errorf("%s: %d %s", page, code, text)
		}
	}
	if code, _ := h.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	h.stop()
}
