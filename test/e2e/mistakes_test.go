package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/engine"
)

// TestMistakesAtStart: a host that cannot start says why, with an exit code,
// and leaves the one that runs alone.
func TestMistakesAtStart(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	h := p.start("--data", p.path("data"))
	h.fires("clock", 0)

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p.put("file", []byte("no directory\n"))
	p.put("config.yaml", []byte("plugin: jobs\nlogLevel: loud\nmounts:\n  clock: [{hots: /, guest: /x}]\n"))
	if err := os.Mkdir(p.path("damaged"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.put("damaged/registry.db", []byte(strings.Repeat("no registry\n", 1000)))
	p.put("open.token", []byte("0123456789abcdef0123\n"))
	ok := []string{"run", "--plugins", p.path("plugins"), "--admin", "127.0.0.1:0", "--cache", cache(t)}
	for _, m := range []struct {
		code  int
		texts []string
		flags []string
		env   []string
	}{
		{1, []string{taken.Addr().String(), "in use", "--admin"}, []string{"--admin", taken.Addr().String()}, nil},
		{1, []string{p.path("data"), "in use by another host"}, []string{"--data", p.path("data")}, nil},
		{1, []string{p.path("file"), "not a directory"}, []string{"--data", p.path("file")}, nil},
		{2, []string{"not a directory"}, []string{"--data", p.path("file", "below")}, nil},
		{1, []string{"registry.db is damaged or not a registry"}, []string{"--data", p.path("damaged")}, nil},
		{2, []string{`unknown key "plugin"`, `did you mean "plugins"`, "config.yaml:1", `"loud" is not a level`, `unknown key "hots"`}, []string{"--config", p.path("config.yaml")}, nil},
		{2, []string{"no such file"}, []string{"--config", p.path("none.yaml")}, nil},
		{2, []string{"WASMJOB_LOG_LEVEL", `"loud"`}, nil, []string{"WASMJOB_LOG_LEVEL=loud"}},
		{2, []string{"unknown flag", "--plugin-dir"}, []string{"--plugin-dir", "x"}, nil},
		{2, []string{"--plugins", "does not exist"}, []string{"--plugins", p.path("nowhere")}, nil},
		{2, []string{"--plugins", "is not a directory"}, []string{"--plugins", p.path("file")}, nil},
		{2, []string{"--mount", p.path("nowhere"), "does not exist"}, []string{"--mount", "clock=" + p.path("nowhere") + ":/x"}, nil},
		{2, []string{"JOB=HOST:GUEST"}, []string{"--mount", "/x:/y"}, nil},
		{2, []string{"zookeeper needs its servers", "--zk"}, []string{"--registry", "zookeeper"}, nil},
		{2, []string{`"zokeeper"`, "embedded, zookeeper or zookeeper://HOST:PORT", "did you mean"}, []string{"--registry", "zokeeper"}, nil},
		{2, []string{"neither an IPv4 address nor a network"}, []string{"--server-ip", "localhost"}, nil},
		{2, []string{"too short"}, []string{"--drain-timeout", "-1s"}, nil},
		{1, []string{"0644", "0600"}, []string{"--admin-token-file", p.path("open.token")}, nil},
		{2, []string{"unexpected argument"}, []string{"plugins"}, nil},
		{2, []string{"does not exist"}, []string{"--history", p.path("nowhere", "events.jsonl")}, nil},
		{1, []string{"history", p.path("home"), "is a directory"}, []string{"--history", p.path("home")}, nil},
	} {
		args := append(append([]string(nil), ok...), m.flags...)
		p.cliEnv(m.env, args...).mustSay(t, m.code, m.texts, append(m.env, m.flags...)...)
	}

	// Nobody else's harm.
	from := h.mark()
	h.fires("clock", from)
	entries, err := os.ReadDir(p.path("data"))
	for _, e := range entries { // the registry, how far the host came, and, after a while, the greatest numbers that it has seen
		if !slices.ContainsFunc([]string{"registry.db", "last-host-", "numbers-"}, func(name string) bool { return strings.HasPrefix(e.Name(), name) }) {
			t.Errorf("the data directory holds %s", e.Name())
		}
	}
	if err != nil || len(entries) < 2 {
		t.Errorf("the data directory holds %v (%v)", entries, err)
	}
	if data := read(t, p.path("file")); string(data) != "no directory\n" {
		t.Errorf("a file that was taken for a directory now holds %q", data)
	}
	if data := read(t, p.path("damaged", "registry.db")); string(data) != strings.Repeat("no registry\n", 1000) {
		t.Errorf("a file that was taken for a registry has now %d other bytes", len(data))
	}

	// Those who ask the host can be wrong, too.
	p.put("wrong.token", []byte("0123456789abcdef0123\n"))
	if err := os.Chmod(p.path("wrong.token"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.refused(1, []string{`there is no job "clokc"`}, "job", "run", "clokc")
	p.refused(1, []string{`there is no job "clokc"`}, "job", "pause", "clokc")
	p.refused(1, []string{`there is no job "clokc"`}, "job", "remove", "clokc")
	p.refused(1, []string{"no item 7"}, "job", "pause", "clock", "--item", "7")
	p.refused(2, []string{"--item"}, "job", "pause", "clock", "--item", "-1")
	p.refused(1, []string{"token is not the one of this host"}, "job", "run", "clock", "--token-file", p.path("wrong.token"))
	p.refused(1, []string{"0644"}, "status", "--token-file", p.path("open.token"))
	p.refused(1, []string{"nothing answers at"}, "status", "--admin", "127.0.0.1:1")
	p.refused(2, []string{"the job's name is missing"}, "job", "run")
	h.fires("clock", h.mark())
	h.stop()

	other := newPlace(t)
	other.refused(1, []string{"no host is running here", "wasmjob run"}, "status")
	other.refused(1, []string{"no host is running here"}, "job", "run", "clock")
}

// TestUnknownVariable: it is a warning, for Kubernetes makes such variables.
func TestUnknownVariable(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := p.startEnv([]string{"WASMJOB_PLUGIN=x", "WASMJOB_PORT=tcp://10.0.0.1:80", "WASMJOB_DRAIN_TIMEOUT=7s"})
	h.line(0, `"warn"`, "WASMJOB_PLUGIN is not a setting", "did you mean WASMJOB_PLUGINS?")
	h.line(0, `"warn"`, "WASMJOB_PORT is not a setting")
	h.stop()
	a := p.cliEnv([]string{"WASMJOB_DRAIN_TIMEOUT=7s"}, "run", "--print-config", "--plugins", p.path("plugins"))
	a.mustSay(t, 0, []string{"drainTimeout: 7s", "# WASMJOB_DRAIN_TIMEOUT", "# --plugins", "# default"})
}

// TestMistakesInFiles: bad definitions and modules, beside a good job. Each is
// refused by the host and by validate, with the same reasons.
func TestMistakesInFiles(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.guestJob("clock", everySecond, "shardingTotalCount: 1")
	h := p.start()
	h.fires("clock", 0)
	const module = "module: clock.wasm\n"
	mistakes := []struct {
		file, text string
		reasons    []string
	}{
		{"cron.yaml", module + "cron: '0 0 25 * * ?'\nshardingTotalCount: 1\n", []string{"cron", "25"}},
		{"both.yaml", module + "cron: '0 0 1 1 * 1'\nshardingTotalCount: 1\n", []string{"cron", "?"}},
		{"never.yaml", module + "cron: '0 0 0 30 2 ?'\nshardingTotalCount: 1\n", []string{"cron"}},
		{"zone.yaml", module + everySecond + "\ntimeZone: Asia/Shangai\nshardingTotalCount: 1\n", []string{"timeZone", "Asia/Shangai"}},
		{"zero.yaml", module + "shardingTotalCount: 0\n", []string{"shardingTotalCount", "0"}},
		{"negative.yaml", module + "shardingTotalCount: -1\n", []string{"shardingTotalCount", "-1"}},
		{"huge.yaml", module + "shardingTotalCount: 1000000000\n", []string{"shardingTotalCount", "1000000"}},
		{"none.yaml", module, []string{"shardingTotalCount", "is missing"}},
		{"beyond.yaml", module + "shardingTotalCount: 2\nshardingItemParameters: 0=a,2=c\n", []string{"shardingItemParameters", "item 2"}},
		{"twice.yaml", module + "shardingTotalCount: 2\nshardingItemParameters: 0=a,0=b\n", []string{"shardingItemParameters", "item 0"}},
		{"malformed.yaml", module + "shardingTotalCount: 2\nshardingItemParameters: 0:a\n", []string{"shardingItemParameters"}},
		{"unknown.yaml", module + "shardingTotalCount: 1\nfailOver: true\n", []string{"failOver", "did you mean failover"}},
		{"strategy.yaml", module + "shardingTotalCount: 1\njobShardingStrategyType: AVERAGE\n", []string{"AVERAGE", "AVG_ALLOCATION"}},
		{"type.yaml", module + "shardingTotalCount: 1\ntype: DATAFLOW\n", []string{"DATAFLOW"}},
		{"name.yaml", module + "jobName: a/b\nshardingTotalCount: 1\n", []string{"jobName"}},
		{"same.yaml", module + "jobName: clock\nshardingTotalCount: 1\n", []string{`"clock"`, "clock.yaml"}},
		{"lonely.yaml", "shardingTotalCount: 1\n", []string{"lonely.wasm", "no such file"}},
		{"outside.yaml", "module: ../clock.wasm\nshardingTotalCount: 1\n", []string{"../clock.wasm"}},
		{"list.yaml", "- a\n- b\n", []string{"list"}},
		{"binary.yaml", "\x00\x01\x02", []string{"binary.yaml"[:0]}},
		{"text.wasm", "no module", []string{"not a WebAssembly module"}},
	}
	from, line := h.mark(), h.logMark()
	p.define("text", "shardingTotalCount: 1")
	for _, m := range mistakes {
		p.drop(m.file, []byte(m.text))
	}
	for _, m := range mistakes {
		h.refused(from, line, m.file, false, m.reasons...)
	}
	from = h.mark()
	h.fires("clock", from)
	if jobs := p.status().Status.Jobs; len(jobs) != 1 || jobs[0].Name != "clock" || jobs[0].State == engine.JobError {
		t.Errorf("jobs: %+v", jobs)
	}
	validated := p.cli("validate", "--cache", cache(t), p.path("plugins"))
	for _, m := range mistakes {
		validated.mustSay(t, 1, append([]string{filepath.Join("plugins", m.file) + ":"}, m.reasons...), "validate", m.file)
	}
	text := p.must("status")
	if !strings.Contains(text, "Refused files") || !strings.Contains(text, "did you mean failover") {
		t.Errorf("the status tells people nothing:\n%s", text)
	}
	for _, m := range mistakes {
		p.remove(m.file)
	}
	p.remove("text.yaml")
	// As long as a definition could not be read, it might have named it.
	h.refuse("orphan.wasm", guest(t, 4), false, "no definition names it", "orphan.yaml")
	p.remove("orphan.wasm")
	p.guestJob("good", everySecond, "shardingTotalCount: 1")
	h.fires("good", from)
	if r := p.status().Status.Refused; len(r) != 0 {
		t.Errorf("still refused: %+v", r)
	}
	h.stop()
}
