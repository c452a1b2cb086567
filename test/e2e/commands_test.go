package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/admin"
	view "github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestOperating does to a running host what an operator does.
func TestOperating(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("work", "shardingTotalCount: 2", "description: for the operator")
	p.guestJob("clock", everySecond, "shardingTotalCount: 2")
	p.guestJob("busy", "shardingTotalCount: 1", `jobParameter: "hold:a"`)
	h := p.start("--data", p.path("data"), "--mount", "busy="+p.path("gate")+":/gate")
	for _, j := range []string{"work", "clock", "busy"} {
		h.of(j, 0, owned())
	}

	var edited admin.Edited
	if err := json.Unmarshal([]byte(p.must("job", "edit", "work", "description=for the operator, too", "--reason", "two read it", "-o", "json")), &edited); err != nil || edited.After == nil {
		t.Errorf("the edit: %v %+v", err, edited)
	}
	var config admin.JobConfig
	if err := json.Unmarshal([]byte(p.must("job", "edit", "work", "-o", "json")), &config); err != nil || config.Settings["description"] != "for the operator, too" || config.Origins["description"].Why != "two read it" {
		t.Errorf("the settings: %v %+v", err, config)
	}

	for setting, why := range map[string]string{
		"shardingTotalCount=20000": "found 20000, the host's ceiling shardingTotalCount for jobs \"*\" is 10000",
		"type=DATAFLOW":            "job type DATAFLOW needs the exports ",
		"memoryLimit=64KiB":        "bytes of memory, the limit is 65536",
	} {
		name, _, _ := strings.Cut(setting, "=")
		p.refused(2, []string{name + ": ", why}, "job", "edit", "work", setting, "--preview")
		p.refused(2, []string{name + ": ", why}, "job", "edit", "work", setting)
	}

	said := p.must("job", "run", "work")
	fire := h.of("work", 0, kind(event.FireStarted), source(abi.SourceTrigger))
	round := strconv.FormatInt(fire.Trigger, 10)
	if want := "triggered work; 'wasmjob job runs work --trigger " + round + "' shows its runs\n"; said != want {
		t.Errorf("trigger says %q, want %q", said, want)
	}
	h.of("work", fire.at, kind(event.FireEnded), ofFire(fire), outcome(abi.OutcomeOK))
	p.must("job", "run", "work")
	h.of("work", 0, kind(event.FireEnded), test{"another round", func(e event.Event) bool { return e.Trigger > fire.Trigger }})
	var runs view.Found[history.Run]
	if err := json.Unmarshal([]byte(p.must("job", "runs", "work", "--trigger", round, "-o", "json")), &runs); err != nil || len(runs.Records) != 2 || runs.Records[0].Trigger != fire.Trigger {
		t.Errorf("runs of round %s: %v %+v", round, err, runs.Records)
	}

	// While it runs, one trigger is kept, however often it is asked for.
	for range 3 {
		p.must("job", "run", "busy")
		h.of("busy", 0, kind(event.ItemStarted))
	}
	p.open("a")
	first := h.of("busy", 0, kind(event.FireEnded))
	h.of("busy", first.at, kind(event.FireEnded), test{"another round", func(e event.Event) bool { return e.Trigger != first.Trigger }})

	// One item.
	p.must("job", "pause", "clock", "--item", "1")
	skipped := h.of("clock", 0, kind(event.ItemSkipped), item(1), because("paused"))
	h.fires("clock", skipped.at, test{"without item 1", func(e event.Event) bool { return len(e.Items) == 1 && e.Items[0] == 0 }})
	from := h.mark()
	p.must("job", "resume", "clock", "--item", "1")
	h.of("clock", from, kind(event.ItemCompleted), item(1))

	// All of it.
	p.must("job", "pause", "clock")
	off := h.of("clock", from, kind(event.FireSkipped), because("paused"))
	if s := p.job("clock").State; s != engine.JobDisabled {
		t.Errorf("the disabled job is %s", s)
	}
	from = h.mark()
	p.must("job", "resume", "clock")
	on := h.fires("clock", from)
	if n := len(h.all("clock", off.at, kind(event.ItemStarted))); n > 2*len(h.all("clock", on.at, kind(event.FireStarted))) {
		t.Errorf("%d items ran from when the job was disabled", n)
	}
	p.must("job", "pause", "--all")
	h.of("clock", on.at, kind(event.FireSkipped), because("paused"))
	p.must("job", "resume", "--all")

	// Out of the registry, and back when its file is changed, not before.
	from = h.mark()
	p.must("job", "remove", "work", "--purge")
	gone := h.of("work", from, kind(event.JobRemoved), because("removed from the registry"))
	if s := p.job("work"); s.State != engine.JobRemoved || s.Reason == "" {
		t.Errorf("the removed job is %s: %q", s.State, s.Reason)
	}
	p.refused(1, []string{"removed from the registry"}, "job", "run", "work")
	h.fires("clock", gone.at)
	p.guestJob("another", everySecond, "shardingTotalCount: 1")
	h.fires("another", gone.at)
	if back := h.all("work", gone.at+1); len(back) != 0 {
		t.Errorf("the removed job came back by itself: %+v", back)
	}
	p.define("work", "shardingTotalCount: 3")
	h.of("work", gone.at, owned())
	p.must("job", "run", "work")
	again := h.of("work", gone.at, kind(event.FireStarted), source(abi.SourceTrigger))
	if len(again.Items) != 3 {
		t.Errorf("the job that came back has items %v, want 3", again.Items)
	}
	if e := h.of("work", again.at, kind(event.ItemStarted)); e.Fence <= h.of("work", fire.at, kind(event.ItemCompleted)).Fence {
		t.Errorf("fence %d: it has to grow for ever", e.Fence)
	}

	// Removed once more: start brings it back as it is defined.
	p.must("job", "remove", "work")
	gone = h.of("work", again.at, kind(event.JobRemoved), because("removed from the registry"))
	p.must("job", "start", "work")
	h.of("work", gone.at, owned())
	p.refused(1, []string{"no such job"}, "job", "start", "wrok")

	// What machines ask.
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ready"} {
		if code, body := h.get(path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	_, metrics := h.get("/metrics")
	for _, want := range []string{`version="e2e"} 1`, `wasmjob_host_state{state="live"} 1`, `="clock"`, "wasmjob_items_completed_total{", "wasmjob_history_events_dropped_total 0", "wasmjob_history_failing 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%q is not in the metrics", want)
		}
	}
	if code, body := h.get("/v1/status"); code != 401 || strings.Contains(body, "clock") {
		t.Errorf("without the token: %d %s", code, body)
	}

	// What people ask.
	for _, want := range []string{"clock", "another", "work", "busy"} {
		if text := p.must("job", "list"); !strings.Contains(text, want) {
			t.Errorf("%q is not among the jobs:\n%s", want, text)
		}
	}
	if jobs := records[view.Job](t, p.must("job", "list", "--json")); len(jobs) != 4 {
		t.Errorf("%d jobs, want 4", len(jobs))
	}
	if text := p.must("status", "--items"); !strings.Contains(text, "clock") || !strings.Contains(text, "OK") {
		t.Errorf("status --items:\n%s", text)
	}
	h.stop()
	p.refused(1, []string{"no host is running here", "wasmjob run"}, "job", "list")
}

// result is a line of invoke --json.
type result struct {
	Item      int              `json:"item"`
	Parameter *string          `json:"parameter"`
	Outcome   abi.Outcome      `json:"outcome"`
	Message   string           `json:"message"`
	Records   int64            `json:"records"`
	Metrics   map[string]int64 `json:"metrics"`
}

func results(t *testing.T, text string) (list []result) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}

// TestInvoke runs the examples by hand, without a host.
func TestInvoke(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	invoke := func(code int, args ...string) answer {
		t.Helper()
		args = append([]string{"invoke", "--cache", cache(t)}, args...)
		a := p.cli(args...)
		a.mustSay(t, code, nil, args...)
		return a
	}
	cities := example(t, "cities")
	a := invoke(0, cities, "--json", "--param", "0=Beijing,1=Shanghai,2=Guangzhou", "--items", "0-2", "--total", "3")
	for i, r := range results(t, a.out) {
		if want := []string{"Beijing", "Shanghai", "Guangzhou"}[i]; r.Item != i || r.Outcome != abi.OutcomeOK || *r.Parameter != want || r.Metrics["cities_observed"] != 1 {
			t.Errorf("item %d: %+v", i, r)
		}
		if !strings.Contains(a.err, []string{"Beijing: ", "Shanghai: ", "Guangzhou: "}[i]) {
			t.Errorf("item %d logs nothing:\n%s", i, a.err)
		}
	}
	a = invoke(1, cities, "--param", "0=Beijing,1=Atlantis")
	a.mustSay(t, 1, []string{`unknown city "Atlantis"`, "OK", "FAIL"})

	root := t.TempDir()
	for n := range 30 {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("f%d.go", n)), []byte(strings.Repeat("x\n", n)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	codestats := example(t, "codestats")
	a = invoke(0, codestats, "--json", "--streaming", "--fetch-data-count", "7", "--mount", root+":/src")
	if r := results(t, a.out); len(r) != 1 || r[0].Records != 30 || r[0].Metrics["codestats_lines"] != 29*30/2 {
		t.Errorf("codestats: %+v", r)
	}
	a = invoke(0, codestats, "--json", "--fetch-data-count", "7", "--mount", root+":/src")
	if r := results(t, a.out); len(r) != 1 || r[0].Records != 7 {
		t.Errorf("codestats, once: %+v", r)
	}
	invoke(1, codestats).mustSay(t, 1, []string{"mount one at /src"})

	script := example(t, "script")
	invoke(0, script, "--job-parameter", "12", "--", "-list").mustSay(t, 0, []string{"11", "5 primes from 0 to 11 (item 0 of 1)"})
	invoke(1, script, "--job-parameter", "many").mustSay(t, 1, []string{"is not a number", "EXIT"})

	invoke(1, example(t, "spin"), "--timeout", "300ms").mustSay(t, 1, []string{"TIMEOUT"})
	invoke(1, example(t, "slow"), "--job-parameter", "10m", "--timeout", "1s").mustSay(t, 1, []string{"stopped", "TIMEOUT", "its time was nearly up"})
	invoke(1, example(t, "crash"), "--total", "4", "--param", "0=panic,1=fail,2=retry,3=ok").
		mustSay(t, 1, []string{"TRAP", "FAIL", "RETRY", "OK", "item 0 crashes, as it should"})
	crash := example(t, "crash")
	for how, want := range map[string]string{"nil": "nil pointer", "deadlock": "deadlock", "goroutine": "a goroutine crashes", "exit": "3", "memory": "memory"} {
		invoke(1, crash, "--job-parameter", how, "--memory-limit", "64MiB").mustSay(t, 1, []string{want})
	}
	p.refused(2, []string{"--items", "there is no item 5", "--type", "did you mean"}, "invoke", cities, "--items", "5", "--total", "2", "--type", "SIMPEL")
	p.refused(1, []string{"no such file"}, "invoke", "nowhere.wasm")
}

// TestOfflineTools: inspect, validate, next, version.
func TestOfflineTools(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for module, kind := range map[string]string{"cities": "SIMPLE", "codestats": "DATAFLOW", "script": "SCRIPT"} {
		text := p.must("module", "inspect", example(t, module))
		if !strings.Contains(text, kind) {
			t.Errorf("inspect %s does not say %s:\n%s", module, kind, text)
		}
		p.drop(module+".wasm", read(t, example(t, module)))
		p.drop(module+".yaml", read(t, "../../plugins/examples/"+module+".yaml"))
	}
	var info struct {
		Types    []string
		Digest   string
		Problems []string
	}
	if err := json.Unmarshal([]byte(p.must("module", "inspect", "--json", p.path("plugins", "cities.wasm"))), &info); err != nil || len(info.Digest) != 64 || len(info.Types) != 1 {
		t.Errorf("inspect --json: %+v %v", info, err)
	}
	if out := p.must("validate", "--cache", cache(t), p.path("plugins")); !strings.HasSuffix(out, "\nok\n") || !strings.Contains(out, "cities: 3 items, next fire ") {
		t.Errorf("validate says %q", out)
	}
	p.put("text.wasm", []byte("just a text"))
	p.refused(1, []string{"not a WebAssembly module"}, "module", "inspect", "text.wasm")
	p.refused(1, []string{"no such file"}, "module", "inspect", "none.wasm")

	out := p.must("job", "next", "0 30 8 ? * MON-FRI", "--zone", "Asia/Shanghai", "--from", "2026-03-27T12:00", "--count", "2")
	if lines := strings.Split(out, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "Mon 2026-03-30 08:30:00 +08:00") || !strings.HasPrefix(lines[1], "Tue 2026-03-31 08:30:00 +08:00") {
		t.Errorf("next says\n%s", out)
	}
	p.refused(1, []string{"61", "seconds"}, "job", "next", "61 * * * * ?")
	p.refused(2, []string{"Asia/Shangai"}, "job", "next", "@hourly", "--zone", "Asia/Shangai")
	if out := p.must("version"); !strings.HasPrefix(out, "wasmjob e2e ") {
		t.Errorf("version says %q", out)
	}
	p.refused(2, []string{`unknown command "tirgger"`, "job run"}, "tirgger", "cities")
	if out := p.must("completion", "bash"); !strings.Contains(out, "wasmjob") {
		t.Error("there is no completion")
	}
}
