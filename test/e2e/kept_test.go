package e2e_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/event"
)

// kept is what offset and kv say with --json of one item.
func kept(t *testing.T, out string) (k admin.Kept) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &k); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return k
}

// TestKept shows and changes offsets and state by a host with the embedded registry.
func TestKept(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("import", "shardingTotalCount: 2", `jobParameter: "resume:a"`)
	p.put("grants.yaml", []byte("grants:\n  - jobs: import\n    kv: true\n"))
	h := p.start("--data", p.path("data"), "--grants", p.path("grants.yaml"), "--mount", "import="+p.path("gate")+":/gate")
	h.of("import", 0, owned())
	if out := p.must("status", "import"); !strings.Contains(out, "granted    dir /gate, kv\n") {
		t.Errorf("status says %q", out)
	}
	if out := p.must("status", "import", "--json"); !strings.Contains(out, `"granted": [`) || !strings.Contains(out, `"leader": `) {
		t.Errorf("status --json says %s", out)
	}
	p.refused(1, []string{`no job "imprt"`, `did you mean "import"?`}, "job", "offset", "imprt")
	p.refused(1, []string{`no job "imprt"`, `did you mean "import"?`}, "job", "kv", "imprt", "--item", "0", "--reset")
	p.refused(1, []string{`no item 7`, "there is 0-1"}, "job", "offset", "import", "--item", "7")
	p.refused(2, []string{"say which one is meant"}, "job", "offset", "import", "--set", "x")
	p.refused(2, []string{"--set and --reset"}, "job", "offset", "import", "--item", "0", "--set", "x", "--reset")
	p.refused(2, []string{"none.bin"}, "job", "offset", "import", "--item", "0", "--set", "@none.bin")
	p.refused(2, []string{"is not KEY=VALUE"}, "job", "kv", "import", "--item", "0", "--set", "x")
	p.refused(2, []string{"--get goes without"}, "job", "kv", "import", "--item", "0", "--get", "x", "--reset")

	// Before the first run, which sees it.
	if out := p.must("job", "offset", "import", "--item", "0", "--set", "line 7"); out != "item 0 of import: set the offset, 6 bytes\n" {
		t.Errorf("offset says %q", out)
	}
	p.must("job", "run", "import")
	first := h.of("import", 0, kind(event.ItemStarted), item(0))
	h.of("import", 0, kind(event.ItemStarted), item(1))
	h.line(0, `"from line 7"`)
	h.line(0, `"from the beginning"`)
	p.refused(1, []string{"item 0 runs on", "wasmjob job kill import --item 0", "wasmjob job pause import --item 0"}, "job", "offset", "import", "--item", "0", "--set", "line 8")
	p.refused(1, []string{"item 0 runs on"}, "job", "kv", "import", "--item", "0", "--set", "cursor=9")
	if k := kept(t, p.must("job", "offset", "import", "--item", "0", "--json")); k.RunsOn == "" || k.Fence != first.Fence || *k.Offset != "line 7" {
		t.Errorf("while it runs: %+v", k)
	}
	p.open("a")
	h.of("import", 0, kind(event.ItemCompleted), item(0), outcome(abi.OutcomeOK))
	h.of("import", 0, kind(event.ItemCompleted), item(1), outcome(abi.OutcomeOK))
	if k := kept(t, p.must("job", "offset", "import", "--item", "0", "--json")); k.RunsOn != "" || k.Fence != first.Fence || *k.Offset != "done" {
		t.Errorf("when it has ended: %+v", k)
	}

	// Between two runs on a host that knows the item.
	if err := os.WriteFile(p.path("offset.bin"), []byte("line 9"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must("job", "offset", "import", "--item", "0", "--set", "@"+p.path("offset.bin"))
	p.must("job", "kv", "import", "--item", "0", "--set", "cursor=10", "--set", "bytes=@"+p.path("offset.bin"), "--set", "old=")
	p.must("job", "kv", "import", "--item", "0", "--delete", "old")
	p.must("job", "offset", "import", "--item", "1", "--reset")
	logged := h.logMark()
	p.must("job", "run", "import")
	h.line(logged, `"from line 9"`)
	h.line(logged, `"from the beginning"`)
	h.of("import", first.at, kind(event.ItemCompleted), item(0), test{"the second", func(e event.Event) bool { return e.Trigger != first.Trigger }})
	k := kept(t, p.must("job", "kv", "import", "--item", "0", "--json"))
	if *k.Offset != "done" || len(k.Values) != 2 || k.Values["cursor"] != "10" || k.Values["bytes"] != "line 9" {
		t.Errorf("a run leaves the state as %+v", k)
	}
	if out := p.must("job", "kv", "import", "--item", "0", "--get", "bytes"); out != "line 9" {
		t.Errorf("the value is %q", out)
	}
	p.refused(1, []string{`no key "curser"`, `did you mean "cursor"?`}, "job", "kv", "import", "--item", "0", "--get", "curser")
	p.refused(1, []string{`no key "curser"`, "there is bytes, cursor"}, "job", "kv", "import", "--item", "0", "--delete", "curser")
	for args, want := range map[string]string{"offset import": "done", "kv import": "bytes, cursor", "kv import --item 0": "line 9"} {
		if out := p.must(strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("%s says %q, want %q", args, out, want)
		}
	}
	p.must("job", "kv", "import", "--item", "0", "--reset")
	if out := p.must("job", "kv", "import", "--item", "0"); out != "item 0 has no keys\n" {
		t.Errorf("kv says %q", out)
	}
	h.stop()
	if out := p.must("job", "verify", h.history); strings.Contains(out, "passed over") {
		t.Errorf("verify says %s", out)
	}
}

// TestClusterKept changes offsets in ZooKeeper, and has another host go on from there.
func TestClusterKept(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.job("import", "shardingTotalCount: 1", "failover: true", `jobParameter: "resume:a"`)
	c.job("clock", everySecond, "shardingTotalCount: 1")
	a := c.add()
	a.of("import", 0, assigned(1))
	c.registry("job", "run", "import")
	a.of("import", 0, kind(event.ItemStarted))
	if out := c.cli("job", "offset", "import", "--item", "0", "--set", "line 8", "--registry", "zookeeper://"+c.zk, "--namespace", c.ns); !strings.Contains(out.err, "item 0 runs on "+a.ip) {
		t.Errorf("while it runs: %+v", out)
	}
	c.open("a")
	ended := a.of("import", 0, kind(event.ItemCompleted), outcome(abi.OutcomeOK))
	c.remove("../gate/a")

	// The host that knows the item.
	c.registry("job", "offset", "import", "--set", "line 9")
	logged := a.logMark()
	c.registry("job", "run", "import")
	a.line(logged, `"from line 9"`)
	c.open("a")
	a.of("import", ended.at+1, kind(event.ItemCompleted), outcome(abi.OutcomeOK))
	c.remove("../gate/a")

	// The host that takes it over.
	c.registry("job", "offset", "import", "--set", "line 10")
	c.registry("job", "kv", "import", "--set", "cursor=11")
	c.registry("job", "run", "import")
	a.line(logged, `"from line 10"`)
	b := c.add()
	b.of("import", 0, kind(event.JobAdded))
	a.kill()
	b.of("import", 0, kind(event.ItemStarted), source(abi.SourceFailover))
	b.line(0, `"from line 10"`)
	c.open("a")
	b.of("import", 0, kind(event.ItemCompleted), outcome(abi.OutcomeOK))
	if k := kept(t, b.must("job", "kv", "import", "--item", "0", "--json")); k.Values["cursor"] != "11" || *k.Offset != "done" {
		t.Errorf("after the failover: %+v", k)
	}
	c.judge("import")
}
