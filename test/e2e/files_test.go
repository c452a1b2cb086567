package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
)

const everySecond = `cron: "* * * * * ?"`

// refuse drops a file and waits for its refusal, which has to give the reason,
// in the log, in an event and in the status.
func (h *process) refuse(file string, data []byte, kept bool, reasons ...string) seen {
	h.t.Helper()
	from, line := h.mark(), h.logMark()
	h.p.drop(file, data)
	return h.refused(from, line, file, kept, reasons...)
}

func (h *process) refused(from, line int, file string, kept bool, reasons ...string) seen {
	h.t.Helper()
	tests := []test{kind(event.Refused), {"file " + file, func(e event.Event) bool { return e.File == file }}}
	for _, r := range reasons {
		tests = append(tests, because(r))
	}
	e := h.of("", from, tests...)
	h.line(line, "file is refused", file)
	r := h.p.refusal(file)
	switch {
	case r == nil:
		h.t.Errorf("%s is not among the refused files of status", file)
	case r.Kept != kept:
		h.t.Errorf("%s: kept is %v, want %v", file, r.Kept, kept)
	default:
		for _, reason := range reasons {
			if !strings.Contains(strings.Join(r.Reasons, "\n"), reason) {
				h.t.Errorf("%s: refused for %q, want %q", file, r.Reasons, reason)
			}
		}
	}
	return e
}

// fires waits for the next fire of the job and its good end.
func (h *process) fires(job string, from int, tests ...test) seen {
	h.t.Helper()
	started := h.of(job, from, append(tests, kind(event.FireStarted))...)
	ended := h.of(job, started.at, kind(event.FireEnded), ofFire(started))
	if ended.Outcome != abi.OutcomeOK {
		h.t.Errorf("the fire of %s ended with %s", job, ended.Outcome)
	}
	return started
}

func TestHotReload(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v1, v2, v3 := guest(t, 1), guest(t, 2), guest(t, 3)
	h := p.start("--mount", "greet="+p.path("gate")+":/gate")

	// Add: item 0 greets, item 1 holds.
	p.guestJob("greet", everySecond, "shardingTotalCount: 2", `shardingItemParameters: "1=hold:slow"`, "misfire: false")
	held := h.of("greet", 0, kind(event.ItemStarted), item(1), digestOf(v1))
	h.line(0, `"here is version 1"`, `"job":"greet"`)

	// Replace, while item 1 runs: item 0 has the new version from the next
	// fire on, item 1 ends on the old one.
	line := h.logMark()
	p.drop("greet.wasm", v2)
	changed := h.of("greet", held.at, kind(event.JobChanged), digestOf(v2), because("module"))
	h.of("greet", changed.at, kind(event.ItemEnded), item(0), digestOf(v2), outcome(abi.OutcomeOK))
	h.line(line, `"here is version 2"`)
	if n := h.count("greet", kind(event.ItemEnded), item(1)); n != 0 {
		t.Fatalf("item 1 has ended %d times, but nobody let it", n)
	}
	p.open("slow")
	completed := h.of("greet", changed.at, kind(event.ItemCompleted), item(1))
	if !fits(completed.Event, "greet", []test{digestOf(v1), outcome(abi.OutcomeOK), ofFire(held)}) {
		t.Errorf("item 1 was not completed on the version that it was begun with: %+v", completed.Event)
	}
	h.fires("greet", completed.at, digestOf(v2))

	// Broken replacements: refused, and the version that runs goes on.
	for _, broken := range []struct {
		file    string
		data    []byte
		reasons []string
	}{
		{"greet.wasm", []byte("a text, and nothing else\n"), []string{"not a WebAssembly module"}},
		{"greet.wasm", v3[:len(v3)/2], []string{"truncated"}},
		{"greet.wasm", bytes.Replace(v3, []byte("job_abi_v1"), []byte("job_abi_v2"), 1), []string{"v2", "v1"}},
		{"greet.wasm", bytes.Replace(v3, []byte("path_filestat_get"), []byte("path_filestat_put"), 1), []string{"path_filestat_put"}},
		{"greet.wasm", nil, []string{"is empty"}},
		{"greet.yaml", []byte("corn: '* * * * * ?'\nshardingTotalCount: 0\n"), []string{"corn", "did you mean cron", "shardingTotalCount"}},
		{"greet.yaml", []byte("cron: [\n"), []string{"line 1"}},
		{"greet.yaml", nil, []string{"is empty"}},
	} {
		e := h.refuse(broken.file, broken.data, true, broken.reasons...)
		h.fires("greet", e.at, digestOf(v2))
	}

	// Good ones again, at once.
	from := h.mark()
	p.guestJob("greet", everySecond, "shardingTotalCount: 3", "misfire: false")
	p.drop("greet.wasm", v3)
	h.fires("greet", from, digestOf(v3), test{"3 items", func(e event.Event) bool { return len(e.Items) == 3 }})
	if j := p.job("greet"); j.ShardingTotalCount != 3 || j.Digest != h.of("greet", from, digestOf(v3)).Digest {
		t.Errorf("status shows %+v", j)
	}
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("still refused: %+v", r)
	}

	// Delete: the job leaves. What is left of it is told.
	from, line = h.mark(), h.logMark()
	p.remove("greet.yaml")
	left := h.of("greet", from, kind(event.JobRemoved), because("its definition is gone"))
	h.refused(from, line, "greet.wasm", false, "no definition names it")
	if jobs := p.status().Status.Jobs; len(jobs) != 0 {
		t.Errorf("jobs without a definition: %+v", jobs)
	}
	p.remove("greet.wasm")
	p.guestJob("other", everySecond, "shardingTotalCount: 1")
	h.fires("other", left.at)
	if after := h.all("greet", left.at+1); len(after) > 0 {
		t.Errorf("the job did something after it left: %+v", after)
	}
	h.stop()
}

// TestDefinitions: several jobs in a file, and two files that claim one job.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := p.start()
	p.guestJob("pair",
		"jobName: one", everySecond, "shardingTotalCount: 1", "jobParameter: say",
		"---",
		"jobName: two", everySecond, "shardingTotalCount: 2")
	one, two := h.fires("one", 0), h.fires("two", 0)
	if len(one.Items) != 1 || len(two.Items) != 2 {
		t.Errorf("one has items %v, two %v", one.Items, two.Items)
	}

	e := h.refuse("rival.yaml", []byte("jobName: one\nmodule: pair.wasm\n"+everySecond+"\nshardingTotalCount: 5\n---\njobName: three\nmodule: pair.wasm\nshardingTotalCount: 1\n"),
		false, `"one"`, "pair.yaml")
	if f := h.fires("one", e.at); len(f.Items) != 1 {
		t.Errorf("the rival's definition is in force: items %v", f.Items)
	}
	h.of("three", 0, owned()) // the other job of the file is not to blame

	// The definition in force goes: the rival's turn comes.
	from := h.mark()
	p.remove("pair.yaml")
	h.of("two", from, kind(event.JobRemoved))
	h.of("one", from, kind(event.FireStarted), test{"5 items", func(e event.Event) bool { return len(e.Items) == 5 }})
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("still refused: %+v", r)
	}

	// A changed parameter.
	from = h.mark()
	p.define("rival", "jobName: one", "module: pair.wasm", everySecond, "shardingTotalCount: 1", "jobParameter: 'fail:as it was told'")
	h.of("one", from, kind(event.JobChanged), because("jobParameter"))
	h.of("one", from, kind(event.ItemEnded), outcome(abi.OutcomeFail), because("as it was told"))
	h.of("three", from, kind(event.JobRemoved))
	h.stop()
}

// TestMountedVolume: the layout of a Kubernetes ConfigMap. All names are
// symbolic links through ..data, which is turned to another version at once.
func TestMountedVolume(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	v1, v2 := guest(t, 1), guest(t, 2)
	version := func(dir string, wasm []byte, items string) {
		t.Helper()
		if err := os.Mkdir(p.path("plugins", dir), 0o755); err != nil {
			t.Fatal(err)
		}
		p.drop(filepath.Join(dir, "job.wasm"), wasm)
		p.drop(filepath.Join(dir, "job.yaml"), []byte(everySecond+"\nshardingTotalCount: "+items+"\n"))
		if err := os.Symlink(dir, p.path("plugins", "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(p.path("plugins", "..data_tmp"), p.path("plugins", "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_01", v1, "1")
	for _, name := range []string{"job.wasm", "job.yaml"} {
		if err := os.Symlink(filepath.Join("..data", name), p.path("plugins", name)); err != nil {
			t.Fatal(err)
		}
	}
	h := p.start("--rescan", "1h") // what is seen is seen by events
	h.fires("job", 0, digestOf(v1))
	from := h.mark()
	version("..2026_02", v2, "4")
	if f := h.fires("job", h.of("job", from, kind(event.JobChanged), digestOf(v2)).at); len(f.Items) != 4 || !digestOf(v2).ok(f.Event) {
		t.Errorf("the fire after the turn: %+v", f.Event)
	}
	if err := os.RemoveAll(p.path("plugins", "..2026_01")); err != nil {
		t.Fatal(err)
	}
	h.fires("job", h.mark(), digestOf(v2))
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("refused: %+v", r)
	}
	h.stop()
}

// TestSlowCopy: a module that comes in pieces, under its own name.
func TestSlowCopy(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := p.start()
	wasm := guest(t, 5)
	p.define("copied", everySecond, "shardingTotalCount: 1")
	h.of("", 0, kind(event.Refused), because("no such file"))
	f, err := os.Create(p.path("plugins", "copied.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, half := range [][]byte{wasm[:1000], wasm[1000:]} {
		if _, err := f.Write(half); err != nil {
			t.Fatal(err)
		}
		if len(half) == 1000 {
			h.of("", 0, kind(event.Refused), because("truncated"))
		}
	}
	h.fires("copied", 0, digestOf(wasm))
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("still refused: %+v", r)
	}
	h.stop()
}

// TestDirectoryThatVanishes: jobs go on while it is away.
func TestDirectoryThatVanishes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	h := p.start()
	h.fires("clock", 0)
	if err := os.Rename(p.path("plugins"), p.path("elsewhere")); err != nil {
		t.Fatal(err)
	}
	gone := h.of("", 0, kind(event.Refused), because("cannot be read"))
	h.fires("clock", gone.at)
	if r := p.refusal(p.path("plugins")); r == nil || !r.Kept {
		t.Errorf("status does not tell that the directory is away: %+v", p.status().Status.Refused)
	}
	p.put(filepath.Join("elsewhere", "late.wasm"), guest(t, 1))
	p.put(filepath.Join("elsewhere", "late.yaml"), []byte("shardingTotalCount: 1\n"))
	if err := os.Rename(p.path("elsewhere"), p.path("plugins")); err != nil {
		t.Fatal(err)
	}
	h.of("late", gone.at, owned())
	if n := h.count("clock", kind(event.JobRemoved)); n != 0 {
		t.Error("the job left when the directory did")
	}
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("still refused: %+v", r)
	}
	h.stop()
}
