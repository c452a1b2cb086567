package program

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/invoke"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// TestMain makes this program what hosts start once more: for modules to be compiled and
// for guests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{compileWord, guestsWord, "job", "plan"}, os.Args[1]) {
		Main()
	}
	goleak.VerifyTestMain(m)
}

// guest does what its job parameter says; see its source beside it.
const guest = "../../sandbox/plugin/testdata/c/guest.wasm"

const wat = "../../sandbox/plugin/testdata/wat/"

// result is what a command line did.
type result struct {
	code     int
	out, err string
}

// runCLI runs a command line in process, in an environment of its own. It is to name the command as it is named now.
func runCLI(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	if _, former := withNewNames(args); former {
		t.Errorf("wasmjob %s: expected the name that the command has now", strings.Join(args, " "))
	}
	return runAny(t, environ, args...)
}

// runAny is runCLI of a former name, too.
func runAny(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	p := &program{Program: command.Program{
		Out: &out, Err: &err, Environ: append([]string{"HOME=" + t.TempDir()}, environ...),
		Notify: func() (<-chan os.Signal, func()) { return nil, func() {} },
	}, self: thisProgram()}
	code := p.main(t.Context(), args)
	return result{code, out.String(), err.String()}
}

// expect checks the exit code, and that all words are in what was shown.
func (r result) expect(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, w := range words {
		if !strings.Contains(r.out+r.err, w) {
			t.Errorf("%q is not in\n%s%s", w, r.out, r.err)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitOK, "Run a host:"},
		{[]string{"--help"}, exitOK, "Write jobs:"},
		{[]string{"--help"}, exitOK, "Look:\n  explain "},
		{[]string{"help", "run"}, exitOK, "--print-config"},
		{[]string{"version"}, exitOK, "wasmjob "},
		{[]string{"--version"}, exitOK, "wasmjob "},
		{[]string{"job", "pause", "--help"}, exitOK, "  only this item, N from 0\n"},
		{[]string{"completion", "bash"}, exitOK, "bash completion"},
		{[]string{"statsu", "--json"}, exitUsage, `unknown command "statsu"; did you mean "status"?`},
		{[]string{"run", "--print-config", "--plugins", "/nonexistent"}, exitOK, "plugins: /nonexistent"},
		{[]string{"run", "--print-config", "--plugins", "/nonexistent"}, exitOK, `warning: plugins: directory "/nonexistent" does not exist`},
		{[]string{"run", "--plugins", "/nonexistent"}, exitUsage, `--plugins: directory "/nonexistent" does not exist`},
		{[]string{"stat"}, exitUsage, `unknown command "stat"; did you mean "status"?`},
		{[]string{"job", "pause", "--help"}, exitOK, "wasmjob job pause [JOB] [flags]"},
		{[]string{"job", "pause", "--help"}, exitOK, "that says why"},
		{[]string{"job", "logs", "--tail", "5"}, exitUsage, "unknown flag --tail; did you mean \"--limit\"?"},
		{[]string{"job", "history", "--since", "1h"}, exitUsage, "unknown flag --since; did you mean \"--from\"?"},
		{[]string{"job", "runs", "--until", "1h"}, exitUsage, "unknown flag --until; did you mean \"--to\"?"},
		{[]string{"job", "pause", "--since", "1h"}, exitUsage, "unknown flag --since"},
		{[]string{"job", "logs", "--level", "loud"}, exitUsage, `for "--level" flag: found "loud", expected debug, info, warn or error`},
		{[]string{"job", "runs", "--trigger", "abc"}, exitUsage, `--trigger: "abc" is not a whole number from 0`},
		{[]string{"__complete", "job", "runs", "--outcome", ""}, exitOK, "TIMEOUT\n"},
		{[]string{"__complete", "job", "history", "--outcome", "OK,"}, exitOK, "OK,TRAP\n"},
		{[]string{"__complete", "job", "runs", "--outcome", ""}, exitOK, "UNKNOWN\n"},
		{[]string{"__complete", "access", "audit", "--what", ""}, exitOK, "sign in\n"},
		{[]string{"__complete", "job", "logs", "--level", ""}, exitOK, "warn\n"},
		{[]string{"__complete", "job", "list", "--health", ""}, exitOK, "failing\n"},
		{[]string{"__complete", "job", "list", "--sort", ""}, exitOK, "duration\n"},
		{[]string{"pause", "cities"}, exitUsage, `unknown command "pause"; did you mean "job pause"?`},
		{[]string{"resume"}, exitUsage, `unknown command "resume"; did you mean "job resume"?`},
		{[]string{"drain"}, exitUsage, `unknown command "drain"; did you mean "host drain"?`},
		{[]string{"stop"}, exitUsage, `unknown command "stop"; did you mean "host drain"?`},
		{[]string{"delete"}, exitUsage, `unknown command "delete"; did you mean "job remove"?`},
		{[]string{"list"}, exitUsage, `unknown command "list"; did you mean "job list"?`},
		{[]string{"ps"}, exitUsage, `unknown command "ps"; did you mean "job list"?`},
		{[]string{"get"}, exitUsage, `unknown command "get"; did you mean "status"?`},
		{[]string{"describe"}, exitUsage, `unknown command "describe"; did you mean "status"?`},
		{[]string{"run-now", "--json"}, exitUsage, `unknown command "run-now"; did you mean "job run"?`},
		{[]string{"quite-wrong"}, exitUsage, `unknown command "quite-wrong"` + "\n"},
		{[]string{"quite-wrong", "--help"}, exitUsage, `unknown command "quite-wrong"` + "\n"},
		{[]string{"--help", "statsu"}, exitUsage, `unknown command "statsu"; did you mean "status"?`},
		{[]string{"help", "statsu"}, exitUsage, `unknown command "statsu"; did you mean "status"?`},
		{[]string{"help", "status"}, exitOK, "Show the jobs of the running host"},
		{[]string{"print-config"}, exitUsage, `unknown command "print-config"; 'wasmjob run --print-config' shows the settings`},
		{[]string{"chaos", "--seed", "7"}, exitUsage, `unknown command "chaos"; it is a program of its own: wasmjob-chaos`},
		{[]string{"migrate"}, exitUsage, `unknown command "migrate"; 'wasmjob job import elasticjob' takes jobs over from ElasticJob`},
		{[]string{"completion", "tcsh"}, exitUsage, `there is no completion for "tcsh"; expected bash, zsh, fish or powershell`},
		{[]string{"completion"}, exitOK, "powershell"},
		{[]string{"run", "--plugns", "x"}, exitUsage, `unknown flag --plugns; did you mean "--plugins"?` + "\nSee 'wasmjob run --help'."},
		{[]string{"invoke", "--timeout", "5", "x.wasm"}, exitUsage, `--timeout: "5" is not a duration such as `},
		{[]string{"job", "next", "0", "0", "3", "*", "*", "?"}, exitUsage, `quote the cron expression: wasmjob job next "0 0 3 * * ?"`},
		{[]string{"run", "extra"}, exitUsage, `unexpected argument "extra"`},
		{[]string{"run", "--plugins", "/nonexistent", "--log-level", "x"}, exitUsage, "--log-level: "},
		{[]string{"job", "run"}, exitUsage, "the job's name is missing"},
		{[]string{"job", "run", "a", "b"}, exitUsage, `unexpected argument "b"`},
		{[]string{"job", "pause"}, exitUsage, "the job's name (or --all, or --server IP) is missing"},
		{[]string{"job", "pause", "a", "--all"}, exitUsage, `unexpected argument "a"`},
		{[]string{"job", "pause", "--all", "--item", "1"}, exitUsage, "--item and --all do not go together"},
		{[]string{"job", "resume", "a", "--item", "-3"}, exitUsage, "--item: -3 is not a number from 0"},
		{[]string{"validate"}, exitUsage, "name a directory"},
		{[]string{"run", "--namespace", "a\U0001F600"}, exitUsage, "is not a namespace: registry: path"},
		{[]string{"module", "inspect"}, exitUsage, "the module's file is missing"},
		{[]string{"status", "--admin", "off"}, exitUsage, "nothing to ask"},
		{[]string{"status", "--admin", "nonsense"}, exitFailure, "want IP:PORT"},
	} {
		r := runCLI(t, nil, c.args...)
		r.expect(t, c.code, c.want)
		if c.code != exitOK && r.out != "" {
			t.Errorf("%q: a failure on stdout: %s", c.args, r.out)
		}
	}
}

// TestSuggestedCommands: what messages suggest is a command, also for a job whose name is
// that of a flag.
func TestSuggestedCommands(t *testing.T) {
	t.Parallel()
	for verb, flags := range map[string][]string{
		"why": {"--item", "3"}, "explain": nil, "status": nil, "job items": nil, "job resume": nil, "job restore": nil, "job start": nil, "job kill": {"--item", "3"},
		"job release": {"--item", "3"}, "job pause": {"--server", "10.0.0.1"}, "job drain": {"--instance", "10.0.0.1@-@7"},
	} {
		for _, job := range []string{"report", "--admin=x", "-h"} {
			root := (&program{}).root()
			// None of these has anything that a shell would take away but the quotation.
			args := strings.Fields(strings.ReplaceAll(words.Command(verb, job, flags...), `"`, ""))[1:]
			cmd, rest, err := root.Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err != nil || !slices.Equal(cmd.Flags().Args(), []string{job}) || cmd.ValidateArgs(cmd.Flags().Args()) != nil {
				t.Errorf("%q: %v, for job %q", args, err, cmd.Flags().Args())
			}
			if f := cmd.Flags().Lookup("admin"); f != nil && f.Changed {
				t.Errorf("%q changes --admin", args)
			}
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	r := runCLI(t, nil, "job", "next", "0 30 2 * * ?", "--zone", "Europe/Berlin", "--from", "2026-03-28", "--count", "3")
	r.expect(t, exitOK)
	want := `Sat 2026-03-28 02:30:00 +01:00  CET    2h30m later
Sun 2026-03-29 03:00:00 +02:00  CEST   1d2h later
Mon 2026-03-30 02:30:00 +02:00  CEST   2d2h later
`
	if r.out != want {
		t.Errorf("got\n%swant\n%s", r.out, want)
	}
	runCLI(t, nil, "job", "next", "0 0 0 1 1 ? 2027", "--from", "2026-01-01T00:00:00Z", "--count", "3").expect(t, exitOK, "2027-01-01", "it never fires again")
	if r := runCLI(t, nil, "job", "next", "@every 90s", "--count", "2"); r.code != 0 || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out, "  in ") {
		t.Errorf("%+v", r)
	}
	runCLI(t, nil, "job", "next", "0 0 0 1 1 ? 2020", "--from", "2026-01-01", "--zone", "Asia/Shanghai").expect(t, exitFailure, `"0 0 0 1 1 ? 2020" never fires after 2026-01-01 00:00:00 CST`)
	runCLI(t, nil, "job", "next", "61 * * * * ?").expect(t, exitFailure, "61")
	runCLI(t, nil, "job", "next", "* * * * *", "--zone", "Asia/Shangai").expect(t, exitUsage, "--zone", "Asia/Shanghai")
	runCLI(t, nil, "job", "next", "* * * * *", "--from", "soon").expect(t, exitUsage, `--from: "soon" is not a time`)
	runCLI(t, nil, "job", "next", "* * * * *", "--count", "0").expect(t, exitUsage, "--count")
	runCLI(t, nil, "job", "schema").expect(t, exitOK, `"$id": "`+schema.URL("job")+`"`, `"shardingTotalCount"`)
	runCLI(t, nil, "job", "schema", "x").expect(t, exitUsage, "x")
	runCLI(t, nil, "job", "next").expect(t, exitUsage, "the cron expression is missing")
}

func TestInspect(t *testing.T) {
	t.Parallel()
	runCLI(t, nil, "module", "inspect", guest).expect(t, exitOK, "DATAFLOW, SIMPLE", "v1", "job_v1: the job's own context")
	r := runCLI(t, nil, "module", "inspect", guest, "--json")
	r.expect(t, exitOK)
	var info struct {
		Types  []string
		Size   int
		Digest string
	}
	if err := json.Unmarshal([]byte(r.out), &info); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(guest); err != nil || int64(info.Size) != stat.Size() || len(info.Digest) != 64 {
		t.Errorf("%+v, %v", info, err)
	}
	runCLI(t, nil, "module", "inspect", wat+"unknown_import.wasm").expect(t, exitFailure, "refused")
	runCLI(t, nil, "module", "inspect", wat+"abi_v2.wasm", "--json").expect(t, exitFailure, `"problems"`)
	text := filepath.Join(t.TempDir(), "text.wasm")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	runCLI(t, nil, "module", "inspect", text).expect(t, exitFailure, "refused")
	for _, name := range []string{"module inspect", "invoke"} {
		runCLI(t, nil, append(strings.Fields(name), "text.yaml")...).expect(t, exitFailure, "text.yaml is a definition; expected a module, such as text.wasm")
	}
	runCLI(t, nil, "module", "inspect", t.TempDir()).expect(t, exitFailure, "is a directory, expected a module's file")
	missing := filepath.Join(t.TempDir(), "report")
	runCLI(t, nil, "invoke", missing).expect(t, exitFailure, missing+": cannot be read: no such file or directory\n")
	for _, name := range []string{"report.wasm", "reports.wasm"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(missing), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"report", "reprot.wasm"} {
		for _, tool := range []string{"module inspect", "invoke"} {
			runCLI(t, nil, append(strings.Fields(tool), filepath.Join(filepath.Dir(missing), name))...).expect(t, exitFailure,
				name+": cannot be read: no such file or directory; did you mean \""+missing+".wasm\"?\n")
		}
	}
	runCLI(t, nil, "module", "inspect", "none.wasm").expect(t, exitFailure, "none.wasm")
}

// jobDir is a plugins directory with one job.
func jobDir(t *testing.T, definition string) string {
	t.Helper()
	dir := t.TempDir()
	wasm, err := os.ReadFile(guest)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cities.wasm": wasm, "cities.yaml": []byte(definition)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestValidate(t *testing.T) {
	t.Parallel()
	good := jobDir(t, "type: SIMPLE\ncron: '0 * * * * ?'\nshardingTotalCount: 1\n")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	runCLI(t, nil, "validate", good, "--cache", filepath.Join(file, "cache")).expect(t, exitFailure, "not a directory", "(use --cache DIR or --cache off)")
	runCLI(t, nil, "validate", good, "--cache", "off").expect(t, exitOK, "ok\n")
	if r := runCLI(t, nil, "validate", good, "--json"); r.code != exitOK || r.out != "{\n  \"records\": []\n}\n" {
		t.Errorf("%+v", r)
	}
	bad := jobDir(t, "type: SIMPLE\ncron: '0 61 * * * ?'\nshardingTotalCount: 0\nshardingItmParameters: 0=a\n")
	runCLI(t, nil, "validate", bad).expect(t, exitFailure, "61", "shardingTotalCount", "shardingItemParameters")
	r := runCLI(t, nil, "validate", bad, good, "--json")
	r.expect(t, exitFailure)
	if findings := records[catalog.Finding](t, r.out); len(findings) != 3 || findings[0].File != filepath.Join(bad, "cities.yaml") || findings[0].Problem == "" {
		t.Errorf("%s", r.out)
	}
	runCLI(t, nil, "validate", filepath.Join(good, "none.yaml")).expect(t, exitFailure, "none.yaml")
}

// records reads a list that a command printed as JSON.
func records[T any](t *testing.T, text string) []T {
	t.Helper()
	var page history.Page[T]
	if err := json.Unmarshal([]byte(text), &page); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return page.Records
}

// invoked reads what invoke --json said, by item.
func invoked(t *testing.T, r result) map[int]invoke.Result {
	t.Helper()
	results := make(map[int]invoke.Result)
	for l := range strings.Lines(r.out) {
		var res invoke.Result
		if err := json.Unmarshal([]byte(l), &res); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		results[res.Item] = res
	}
	return results
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	cache := filepath.Join(t.TempDir(), "cache")
	for _, isolation := range []string{"", "process"} {
		args := []string{"invoke", guest, "--type", "simple", "--cache", cache + isolation, "--isolation", isolation, "--job-parameter", "ok"}
		if isolation == "" {
			args = slices.Delete(args, 6, 8)
		}
		for n, want := range []bool{true, false} {
			r := runCLI(t, nil, args...)
			r.expect(t, exitOK)
			if said := strings.Contains(r.err, "compiling "+guest+", once: compiled code is kept in "+cache); said != want {
				t.Errorf("run %d: stderr says %q; says that it compiles: want %t", n, r.err, want)
			}
		}
	}
	simple := func(parameter string, more ...string) result {
		t.Helper()
		return runCLI(t, nil, append([]string{"invoke", guest, "--type", "simple", "--cache", "off", "--json", "--job-parameter", parameter}, more...)...)
	}
	for parameter, want := range map[string]abi.Outcome{
		"ok": abi.OutcomeOK, "error": abi.OutcomeFail, "status:2": abi.OutcomeRetry, "trap": abi.OutcomeTrap, "exit:3": abi.OutcomeExit, "status:3": abi.OutcomeCancelled,
	} {
		r := simple(parameter)
		code := exitFailure
		if want == abi.OutcomeOK {
			code = exitOK
		}
		r.expect(t, code)
		if got := invoked(t, r)[0]; got.Outcome != want || got.Duration <= 0 || want == abi.OutcomeOK && got.Memory == 0 {
			t.Errorf("%s: %+v, want %s", parameter, got, want)
		}
	}
	if got := invoked(t, simple("error"))[0].Message; got != "disk on fire" {
		t.Errorf("message %q", got)
	}
	if got := invoked(t, simple("spin", "--timeout", "100ms"))[0]; got.Outcome != abi.OutcomeTimeout {
		t.Errorf("ended: %+v", got)
	}
	if got := invoked(t, simple("stage:5", "--offset", "37"))[0]; got.Offset != "42" {
		t.Errorf("offset: %+v", got)
	}
	if got := invoked(t, simple("stage-fail", "--offset", "37"))[0]; got.Offset != "" {
		t.Errorf("a failed item kept its offset: %+v", got)
	}
	if got := invoked(t, simple("commit-trap"))[0]; got.Offset != "7" {
		t.Errorf("a committed offset is gone: %+v", got)
	}
	if got := invoked(t, simple("metric"))[0]; !maps.Equal(got.Metrics, map[string]int64{"rows": 3, "rows_2": -5}) {
		t.Errorf("metrics: %+v", got)
	}
	simple("metric-names").expect(t, exitOK)
	if got := invoked(t, simple("progress"))[0]; got.Done != 4 || got.Total != 0 {
		t.Errorf("progress: %+v", got)
	}

	r := runCLI(t, nil, "invoke", guest, "--type", "SIMPLE", "--job-parameter", "dump", "--items", "0-1,3", "--total", "4", "--param", "0=Beijing,1=Shanghai")
	r.expect(t, exitOK, "item 0 Beijing", "item 1 Shanghai", "item 3   ", "OK")
	if strings.Contains(r.out, "item 2") || strings.Count(r.out, "\n") != 3 {
		t.Errorf("stdout is\n%s", r.out)
	}
	r = runCLI(t, nil, "invoke", guest, "--type", "SIMPLE", "--job-parameter", "attrs")
	r.expect(t, exitOK)
	if !strings.Contains(r.err, "warn  guest[0]      with  a=1 b=\"\"") {
		t.Errorf("the guest's lines on stderr: %s", r.err)
	}
	if r := runCLI(t, nil, "invoke", guest, "--type", "SIMPLE", "--job-parameter", "attrs", "--log-level", "error"); strings.Contains(r.err, "with") || !strings.Contains(r.err, "odd") {
		t.Errorf("--log-level error: %s", r.err)
	}

	r = runCLI(t, nil, "invoke", guest, "--type", "DATAFLOW", "--streaming", "--fetch-data-count", "30", "--param", "0=100", "--json")
	r.expect(t, exitOK)
	if got := invoked(t, r)[0]; got.Records != 100 || got.Batches != 4 || got.Offset != "100" {
		t.Errorf("dataflow: %+v", got)
	}
	// Without a batch size the guest is asked for the default one.
	r = runCLI(t, nil, "invoke", guest, "--type", "DATAFLOW", "--streaming", "--param", "0=250", "--json")
	r.expect(t, exitOK)
	if got := invoked(t, r)[0]; got.Records != 250 || got.Batches != 3 {
		t.Errorf("dataflow without a batch size: %+v", got)
	}
	// This one's listeners and its item do not all end well.
	runCLI(t, nil, "invoke", wat+"listeners.wasm").expect(t, exitFailure, "hook  listeners     "+abi.ExportBefore+" ", abi.ExportAfterOnce)
}

// TestCacheSize: validate and invoke read the size of the cache as a host does, and keep to it.
func TestCacheSize(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"validate", wat + "noop.wasm"}, {"invoke", wat + "noop.wasm"}} {
		runCLI(t, nil, append(args, "--cache-size", "1MiB")...).expect(t, exitUsage, "cache-size: 1MiB is too little; want at least 16MiB")
		runCLI(t, []string{"WASMJOB_CACHE_SIZE=much"}, args...).expect(t, exitUsage, `cache-size: "much" is not a size`)
		runCLI(t, []string{"WASMJOB_CACHE_SIZE=much"}, append(args, "--cache-size", "16MiB")...).expect(t, exitOK)
	}
	var o plugin.Options
	if err := (&cacheFlags{dir: off, size: "1GiB"}).set(&o); err != nil || o.CacheDir != "" || o.CacheSize != 1<<30 {
		t.Errorf("%v, %+v", err, o)
	}
}

func TestInvokeRefuses(t *testing.T) {
	t.Parallel()
	runCLI(t, nil, "invoke", guest, "--streaming", "--type", "SIMPLE").expect(t, exitFailure, "--streaming is for DATAFLOW jobs", "guest.wasm is SIMPLE")
	runCLI(t, nil, "invoke", wat+"listeners.wasm", "--streaming").expect(t, exitFailure, "listeners.wasm is SIMPLE")
	r := runCLI(t, nil, "invoke", guest, "--items", "0-x", "--param", "0=a,9=b", "--total", "3", "--type", "SIMPEL", "--timeout", "-1s",
		"--mount", "/nonexistent:/src", "--mount", "bad", "--env", "X", "--memory-limit", "much", "--plugin-config", "@/nonexistent", "--log-level", "loud", "--offset", strings.Repeat("x", 5000))
	r.expect(t, exitUsage,
		`--items: "0-x" are not items`, "--param: there is no item 9", `--type: "SIMPEL" is not a type`, `did you mean "SIMPLE"?`, "--timeout: -1s is less than 0",
		`--mount: directory "/nonexistent" does not exist`, `--mount: "bad" is not a mount`, `--env: "X" is not a variable`, `--memory-limit: "much"`,
		"--plugin-config: open /nonexistent", `--log-level: "loud"`, "--offset: it has 5000 bytes")
	runCLI(t, nil, "invoke", guest, "--items", "5", "--total", "3").expect(t, exitUsage, "there is no item 5: the total count is 3")
	runCLI(t, nil, "invoke", guest, "--total", "1000000").expect(t, exitUsage, "too many to run here")
	runCLI(t, nil, "invoke", guest, "--items", "0-999999999").expect(t, exitUsage, "more than 100000 items")
	runCLI(t, nil, "invoke", guest).expect(t, exitFailure, "type") // it has two
	runCLI(t, nil, "invoke", wat+"no_marker.wasm").expect(t, exitFailure, "job_abi_v")
	runCLI(t, nil, "invoke", guest, "extra").expect(t, exitUsage, `unexpected argument "extra"`)
}

// lineByLine is a writer that tells of each line.
type lineByLine struct{ c chan string }

func (l lineByLine) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l.c <- line
	}
	return len(p), nil
}

// await reads lines until one contains the words.
func (l lineByLine) await(t *testing.T, words string) string {
	t.Helper()
	var seen []string
	for {
		select {
		case line := <-l.c:
			if strings.Contains(line, words) {
				return line
			}
			seen = append(seen, line)
		case <-t.Context().Done():
		case <-time.After(time.Minute):
			t.Fatalf("%q never came; there was\n%s", words, strings.Join(seen, ""))
		}
	}
}

func TestInvokeWatchesTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "job.wasm")
	put := func(from string) {
		t.Helper()
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file+".tmp", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".tmp", file); err != nil {
			t.Fatal(err)
		}
	}
	put(wat + "noop.wasm")
	signals := make(chan os.Signal, 2)
	out := lineByLine{make(chan string, 1000)}
	p := &program{Program: command.Program{Out: out, Err: out, Environ: []string{"HOME=" + t.TempDir()}, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() { ended <- p.main(context.Background(), []string{"invoke", file, "--watch", "--cache", "off"}) }()
	out.await(t, "OK")
	out.await(t, "waiting for")
	put(wat + "no_marker.wasm")
	out.await(t, "job_abi_v")
	out.await(t, "waiting for")
	put(wat + "command.wasm")
	out.await(t, "item 0")
	out.await(t, "waiting for")
	signals <- os.Interrupt
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// hosted is a host that runs in process, and the environment of commands that ask it.
type hosted struct {
	out, logs lineByLine
	env       []string
}

// startHost runs a host until the test ends.
func startHost(t *testing.T, dir string, args ...string) *hosted {
	t.Helper()
	h := &hosted{out: lineByLine{make(chan string, 10_000)}, logs: lineByLine{make(chan string, 10_000)}}
	h.start(t, dir, h.out, h.logs, args...)
	return h
}

// start runs a host that writes to two streams.
func (h *hosted) start(t *testing.T, dir string, out, logs io.Writer, args ...string) {
	t.Helper()
	home := t.TempDir()
	socket := filepath.Join(home, "s")
	signals := make(chan os.Signal, 2)
	h.env = []string{"XDG_RUNTIME_DIR=" + home, "WASMJOB_ADMIN=" + socket} // the address keeps other hosts out of the test
	p := &program{Program: command.Program{Out: out, Err: logs, OutTTY: true, Environ: []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "NO_COLOR=1"},
		Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), append([]string{"run", "--plugins", dir, "--admin", socket, "--server-ip", "127.0.0.1"}, args...))
	}()
	t.Cleanup(func() {
		signals <- syscall.SIGTERM
		if code := <-ended; code != exitOK {
			t.Errorf("the host ended with code %d", code)
		}
	})
}

// fullPipe is a stream whose reader reads nothing until it is closed.
type fullPipe chan struct{}

func (f fullPipe) Write(p []byte) (int, error) {
	<-f
	return len(p), nil
}

// TestNobodyReadsTheLog: a host whose log nobody reads runs jobs, answers, and ends.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"console", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			pipe := make(fullPipe)
			t.Cleanup(func() { close(pipe) })
			h := &hosted{}
			h.start(t, jobDir(t, "type: SIMPLE\nshardingTotalCount: 3\njobParameter: ok\n"), io.Discard, pipe, "--history", filepath.Join(t.TempDir(), "h.jsonl"), "--log-format", format, "--log-level", "debug")
			h.await(t, "0-2 of 3", "status")
			for range 3 {
				runCLI(t, h.env, "job", "run", "cities", "--wait").expect(t, exitOK)
			}
		})
	}
}

// await runs a command until what it shows has a word.
func (h *hosted) await(t *testing.T, word string, args ...string) result {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		r := runCLI(t, h.env, args...)
		if r.code == exitOK && strings.Contains(r.out, word) {
			return r
		}
		select {
		case <-again.C:
		case <-limit.C:
			t.Fatalf("%v: %q is not in %d\n%s%s", args, word, r.code, r.out, r.err)
		}
	}
}

func TestOperatingARunningHost(t *testing.T) {
	t.Parallel()
	runCLI(t, []string{"XDG_RUNTIME_DIR=" + t.TempDir()}, "status", "--admin", "127.0.0.1:1").expect(t, exitFailure, "no host is running here", "127.0.0.1:1", "wasmjob run")

	dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 3\njobParameter: ok\n") // only a trigger runs it
	for name, text := range map[string]string{"once.yaml": "module: cities.wasm\ntype: SIMPLE\nshardingTotalCount: 1\njobParameter: ok\n", "bad.wasm": "not a module"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := startHost(t, dir)
	env := h.env
	h.await(t, "0-2 of 3", "status")
	h.await(t, "0 of 1", "status")

	runCLI(t, env, "status").expect(t, exitOK, "live, ready, up ", "127.0.0.1@-@", "cities", "Refused files", "bad.wasm")
	runCLI(t, env, "status", "--items").expect(t, exitOK, "cities  0 ")
	var watched bytes.Buffer
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	p := &program{Program: command.Program{Out: &watched, Err: io.Discard, OutTTY: true, Environ: env, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	if code := p.main(t.Context(), []string{"status", "--watch"}); code != exitOK || strings.Count(watched.String(), "\x1b[H\x1b[2J") != 1 {
		t.Errorf("--watch: %d %q", code, &watched)
	}
	runCLI(t, env, "job", "list").expect(t, exitOK, "NAME", "cities", "once")
	var report report.Report
	if err := json.Unmarshal([]byte(runCLI(t, env, "status", "--json").out), &report); err != nil || report.Status.Namespace != "wasmjob" || len(report.Status.Jobs) != 2 {
		t.Errorf("%v: %+v", err, report)
	}
	if jobs := records[cluster.Job](t, runCLI(t, env, "job", "list", "--json").out); len(jobs) != 2 {
		t.Errorf("%+v", jobs)
	}

	runCLI(t, env, "job", "run", "cities").expect(t, exitOK, "triggered cities")
	h.out.await(t, "fire  cities")
	h.await(t, "cities", "job", "list", "--outcome", "OK")
	for flags, want := range map[string]bool{"--outcome FAIL": false, "--state ready --job cit*": true, "--state paused": false, "--state disabled": false} {
		if r := runCLI(t, env, append([]string{"job", "list"}, strings.Fields(flags)...)...); r.code != exitOK || strings.Contains(r.out, "cities") != want {
			t.Errorf("jobs %s: %d %s%s", flags, r.code, r.out, r.err)
		}
	}
	runCLI(t, env, "job", "list", "--state", "asleep").expect(t, exitUsage, "asleep")
	runCLI(t, env, "job", "list", "--host", "10.9.9.9").expect(t, exitFailure, `no host "10.9.9.9"`)
	runCLI(t, env, "job", "list", "--host", "other").expect(t, exitUsage, `found "other", expected a server`)
	runCLI(t, env, "job", "pause", "cities", "--item", "2").expect(t, exitOK)
	h.await(t, "paused", "status", "--items")
	runCLI(t, env, "job", "resume", "cities").expect(t, exitOK, "cities is not paused; item 2 stays paused: wasmjob job resume cities --item 2\n")
	runCLI(t, env, "status", "cities").expect(t, exitOK, "item 2 is paused: wasmjob job resume cities --item 2\n")
	runCLI(t, env, "job", "resume", "cities", "--item", "2").expect(t, exitOK)
	runCLI(t, env, "job", "pause", "cities", "--server", "127.0.0.1").expect(t, exitOK)
	runCLI(t, env, "job", "items", "cities").expect(t, exitOK, "READY, paused", "server 127.0.0.1 is paused for the job: wasmjob job resume cities lets it run on all servers")
	runCLI(t, env, "job", "resume", "cities").expect(t, exitOK, "resumed cities on 127.0.0.1\n")
	if r := runCLI(t, env, "job", "start", "cities"); r.code != exitOK || r.out != "cities runs here already\n" {
		t.Errorf("start of a job that runs: %d %q", r.code, r.out)
	}
	runCLI(t, env, "job", "pause", "cities", "--reason", "db maintenance").expect(t, exitOK, "paused cities\n")
	h.await(t, "cities", "job", "list", "--state", "paused")
	h.await(t, "cities", "job", "list", "--state", "disabled")
	h.await(t, "host token ("+command.WhoAsks()+")", "access", "audit", "cities", "--what", "pause")
	h.await(t, "by host token ("+command.WhoAsks()+"): db maintenance\n", "job", "pause", "cities")
	runCLI(t, env, "job", "pause", "cities").expect(t, exitOK, "cities is paused already, since ")
	if r := runCLI(t, env, "job", "start", "cities"); r.code != exitOK || r.out != "cities is paused: wasmjob job resume cities\n" {
		t.Errorf("start of a job that is paused: %d %q", r.code, r.out)
	}
	runCLI(t, env, "job", "pause", "--all").expect(t, exitOK)
	runCLI(t, env, "job", "resume", "--all").expect(t, exitOK)
	h.await(t, "cities runs here already", "job", "start", "cities")
	runCLI(t, env, "job", "drain", "cities", "--server", "127.0.0.1").expect(t, exitOK, "asked the instances on 127.0.0.1 of cities to stop; when they have, wasmjob status cities shows them no more\n")
	h.await(t, "stopped", "job", "list")
	h.await(t, "started cities\n", "job", "start", "cities")
	h.await(t, "cities runs here already", "job", "start", "cities")
	runCLI(t, env, "job", "start", "--server", "127.0.0.1").expect(t, exitFailure, "no job is stopped on 127.0.0.1, or not yet: 'wasmjob host list' shows when a shutdown takes effect")
	runCLI(t, env, "job", "drain", "--server", "127.0.0.1").expect(t, exitOK, "asked the instances on 127.0.0.1 of all jobs to stop; wasmjob host list shows when they have\n")
	h.await(t, "stopped here by an operator", "host", "list")
	runCLI(t, env, "job", "start", "cities", "--server", "127.0.0.1").expect(t, exitUsage, "leave the job out")
	runCLI(t, env, "job", "start", "--server", "127.0.0.1").expect(t, exitOK, "started all jobs again on ")
	h.await(t, "cities runs here already", "job", "start", "cities")
	runCLI(t, env, "job", "drain", "cities").expect(t, exitOK)
	h.await(t, "stopped", "job", "list")
	h.await(t, "restored cities on 127.0.0.1\n", "job", "restore", "cities")
	h.await(t, "cities runs here already", "job", "start", "cities")
	for _, purge := range [][]string{nil, {"--purge"}} {
		runCLI(t, env, append([]string{"job", "remove", "cities"}, purge...)...).expect(t, exitOK, "still defined by cities.yaml on 1 host: a change of the file or a restart of its host brings the job back, with the settings of the file and without edits")
		h.await(t, "removed", "job", "list")
		if purge == nil {
			h.await(t, "restored cities on 127.0.0.1 with the settings of its definition file: what was edited before the removal is gone\n", "job", "restore", "cities")
		} else {
			h.await(t, "started cities\n", "job", "start", "cities")
		}
		h.await(t, "cities runs here already", "job", "start", "cities")
	}

	runCLI(t, env, "events").expect(t, exitUsage, "wasmjob job history", "GET /v1/events")
	runCLI(t, env, "job", "run", "none").expect(t, exitFailure, `there is no job "none"`+"\n")
	runCLI(t, env, "job", "start", "cities", "--zk", "127.0.0.1:1").expect(t, exitUsage, "only a host can start a job again")
	if help := runCLI(t, env, "job", "start", "--help").out; strings.Contains(help, "--zk") || strings.Contains(help, "--config") || !strings.Contains(help, "--admin") {
		t.Errorf("start shows flags that it refuses:\n%s", help)
	}
	runCLI(t, env, "job", "run", "citis").expect(t, exitFailure, `there is no job "citis"; did you mean "cities"?`)
	runCLI(t, env, "__complete", "job", "run", "").expect(t, exitOK, "cities\nonce\n")
	for _, args := range [][]string{{"job", "logs", "citis"}, {"job", "runs", "citis"}, {"job", "history", "citis"}, {"access", "audit", "cites"}} {
		runCLI(t, env, args...).expect(t, exitFailure, `there is no job "`+args[len(args)-1]+`"; did you mean "cities"?`)
	}
	runCLI(t, env, "alert", "silence", "cities", "--for", "1m", "--reason", strings.Repeat("x", 10_000)).expect(t, exitUsage, "--reason: found 10000 bytes")
	runCLI(t, env, "alert", "silence", "cities", "--for", "1m", "--reason", "it is known").expect(t, exitOK, "silenced alerts of cities")
	runCLI(t, env, "alert", "list").expect(t, exitOK, "it is known")
	runCLI(t, env, "alert", "silence", "citis", "--for", "1m").expect(t, exitFailure, `there is no job "citis"; did you mean "cities"? (a pattern such as "citis*" is taken`)
	runCLI(t, env, "alert", "silence", "citis*", "--for", "1m").expect(t, exitOK, "silenced alerts of citis*", "; no job has such a name now")
	for _, pattern := range []string{"c*s", "*"} {
		if r := runCLI(t, env, "alert", "silence", pattern, "--for", "1m", "--rule", "lost"); r.code != exitOK || strings.Contains(r.out, "no job") {
			t.Errorf("%s: %+v", pattern, r)
		}
	}
	runCLI(t, env, "alert", "silence", "cities").expect(t, exitUsage, "--for is missing, expected a duration such as 2h or 7d")
	runCLI(t, env, "alert", "silence", "cities", "--for=").expect(t, exitUsage, "--for is missing")
	if list := runCLI(t, env, "alert", "list"); strings.Contains(list.out, "citis ") {
		t.Errorf("a silence of a job that there is not:\n%s", list.out)
	}
	for _, args := range [][]string{{"job", "logs", "cit*"}, {"job", "runs", "cities", "--failed"}, {"job", "runs", "none*"}} {
		if r := runCLI(t, env, args...); r.code != exitOK || strings.Contains(r.err, "there is no job") {
			t.Errorf("%v: %d %q", args, r.code, r.err)
		}
	}
	runCLI(t, env, "job", "runs", "--outcome", "BOGUS").expect(t, exitUsage, `outcome: found "BOGUS", expected OK, FAIL,`, "LOST, HELD")
	runCLI(t, env, "job", "runs", "--outcome", "fial").expect(t, exitUsage, `did you mean "FAIL"?`)
	wrong := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(wrong, []byte(server.NewToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	runCLI(t, env, "job", "list", "--token-file", wrong).expect(t, exitFailure, "the token is not the one of this host")

	// A module that is refused while the version before runs on shows with its jobs.
	if err := os.WriteFile(filepath.Join(dir, "cities.wasm"), []byte("oops"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.await(t, "cities.wasm  ", "status", "cities")
	runCLI(t, env, "status", "once").expect(t, exitOK, "Refused on the host that was asked", "cities.wasm", "an earlier version stays in force")
	h.await(t, "cities.wasm on 127.0.0.1", "module", "list")
	runCLI(t, env, "module", "list").expect(t, exitOK, "DIGEST", "cities, once  127.0.0.1  ", "an earlier version stays in force")
	runCLI(t, env, "module", "list", "-o", "yaml").expect(t, exitOK, "refused:", "jobs:", "- once")
	runCLI(t, env, "status", "once", "--json").expect(t, exitOK, `"refused": [`)
	if err := os.Remove(filepath.Join(dir, "once.yaml")); err != nil {
		t.Fatal(err)
	}
	h.await(t, "\"jobs\": 1,", "host", "list", "--json")
	runCLI(t, env, "job", "run", "once").expect(t, exitFailure, "no host has the job; 'wasmjob why once' says why")
	runCLI(t, env, "why", "once").expect(t, exitOK, "once")
}

// TestRun starts a host for real, in process, and steers it as people do.
func TestRun(t *testing.T) {
	t.Parallel()
	dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 3\njobParameter: ok\n") // one-off: only a trigger runs it
	home := t.TempDir()
	file := filepath.Join(home, "events.jsonl")
	socket := filepath.Join(home, "s")
	granted, alerts := filepath.Join(home, "grants.yaml"), filepath.Join(home, "alerts.yaml")
	users, guestLog := filepath.Join(home, "users.yaml"), filepath.Join(home, "guests.jsonl")
	if err := errors.Join(os.WriteFile(granted, []byte(someGrants), 0o600),
		os.WriteFile(alerts, []byte("receivers:\n  ops: {webhook: {url: \"http://127.0.0.1:9\"}}\nroutes:\n  - {name: all, to: ops}\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home}
	signals := make(chan os.Signal, 2)
	out, logs := lineByLine{make(chan string, 10_000)}, lineByLine{make(chan string, 10_000)}
	p := &program{Program: command.Program{Out: out, Err: logs, OutTTY: true, Environ: append(env, "NO_COLOR=1", "WASMJOB_PLUGIN=x"), Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", socket, "--history", file, "--server-ip", "127.0.0.1", "--data", filepath.Join(home, "data"),
			"--grants", granted, "--alerts", alerts, "--users", users, "--guest-log", guestLog})
	}()
	logs.await(t, "WASMJOB_PLUGIN is not a setting; did you mean WASMJOB_PLUGINS?")
	out.await(t, "plugins   "+dir)
	out.await(t, "unix:"+socket)
	out.await(t, "token     "+filepath.Join(home, "wasmjob"))
	out.await(t, "grants    "+granted)
	out.await(t, "alerts    "+alerts)
	out.await(t, "users     "+users)
	out.await(t, "guest log "+guestLog)
	out.await(t, "this host runs items 0-2")

	client := []string{"WASMJOB_ADMIN=" + socket, "XDG_RUNTIME_DIR=" + home}
	runCLI(t, client, "status").expect(t, exitOK, "live", "cities", "0-2 of 3", "grants     "+granted+"\n", "alerts     "+alerts+"\n", "users      "+users+"\n", "guest log  "+guestLog+"\n")
	runCLI(t, client, "status", "--json").expect(t, exitOK, `"grants": "`+granted+`"`, `"alerts": "`+alerts+`"`, `"users": "`+users+`"`, `"guestLog": "`+guestLog+`"`, `"history": {`, `"file": "`+file+`"`, `"dropped": 0`)
	runCLI(t, client, "job", "run", "cities").expect(t, exitOK, "triggered cities")
	fire := out.await(t, "fire  cities")
	for _, w := range []string{"items 0-2", "trigger", "OK"} {
		if !strings.Contains(fire, w) {
			t.Errorf("%q is not in %q", w, fire)
		}
	}
	// A mistake in a file that is read again leaves the one before in force, and is shown.
	if err := errors.Join(os.WriteFile(alerts, []byte("receivers:\n  ops: {mailto: x}\n"), 0o600), os.WriteFile(users, []byte("usres: []\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	h := &hosted{env: client}
	for _, words := range [][]string{{"the file of alerts is not taken", "alert", "list"}, {"the file of alerts is not taken", "status"}, {"the users file is not taken", "status"},
		{"the file of alerts is not taken", "host", "list"}, {"the users file is not taken", "host", "list"}} {
		h.await(t, words[0], words[1:]...)
	}
	second := runCLI(t, env, "run", "--plugins", dir, "--admin", socket)
	second.expect(t, exitFailure, "unix:"+socket+" is in use", "--admin ADDRESS or --admin off")
	runCLI(t, env, "run", "--plugins", dir, "--admin", "off", "--data", filepath.Join(home, "data")).expect(t, exitFailure, "data")

	signals <- syscall.SIGTERM
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	logs.await(t, "a second signal stops at once")
	kinds := make(map[event.Kind]int)
	for e, err := range jsonl.Read(file) {
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Kind]++
	}
	for kind, want := range map[event.Kind]int{event.ItemCompleted: 3, event.FireEnded: 1, event.HostStopped: 1} {
		if kinds[kind] != want {
			t.Errorf("%d events %s, want %d", kinds[kind], kind, want)
		}
	}
	runCLI(t, client, "status").expect(t, exitFailure, "no host is running here")
	if left, err := os.ReadDir(filepath.Join(home, "wasmjob")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestCeilingsAreInForce: the host, its catalog and its history know the ceilings
// of the configuration, and so does validate.
func TestCeilingsAreInForce(t *testing.T) {
	t.Parallel()
	const job = "type: SIMPLE\nshardingTotalCount: 30\njobParameter: attrs\n"
	dir := jobDir(t, job)
	const beyond = `shardingTotalCount: found 30, the host's ceiling shardingTotalCount for jobs "cit*" is 29`
	runCLI(t, nil, "validate", dir).expect(t, exitOK, "ok\n")
	runCLI(t, nil, "validate", dir, "--ceiling", "cit*:shardingTotalCount=29").expect(t, exitFailure, beyond)
	runCLI(t, []string{"WASMJOB_CEILINGS=x:timeout=1h;cit*:shardingTotalCount=29"}, "validate", dir).expect(t, exitFailure, beyond)
	runCLI(t, nil, "validate", dir, "--ceiling", "nonsense").expect(t, exitUsage, "expected JOBS:NAME=VALUE")
	large := jobDir(t, "shardingTotalCount: 10001\n")
	runCLI(t, nil, "validate", large).expect(t, exitFailure, `found 10001, the host's ceiling shardingTotalCount for jobs "*" is 10000`)

	home := t.TempDir()
	file := filepath.Join(home, "events.jsonl")
	socket := filepath.Join(home, "s")
	signals := make(chan os.Signal, 2)
	out, logs := lineByLine{make(chan string, 10_000)}, lineByLine{make(chan string, 10_000)}
	p := &program{Program: command.Program{Out: out, Err: logs, OutTTY: true, Environ: []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "NO_COLOR=1"}, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	if err := os.WriteFile(filepath.Join(dir, "more.yaml"), []byte("module: cities.wasm\nshardingTotalCount: 31\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", socket, "--history", file, "--server-ip", "127.0.0.1",
			"--ceiling", "more:shardingTotalCount=30", "--ceiling", "cities:logLines=1,historyBytes=64KiB"})
	}()
	logs.await(t, `reasons="line 2: shardingTotalCount: found 31, the host's ceiling`)
	out.await(t, "this host runs items 0-29")
	runCLI(t, []string{"WASMJOB_ADMIN=" + socket, "XDG_RUNTIME_DIR=" + home}, "job", "run", "cities").expect(t, exitOK)
	out.await(t, "fire  cities")
	signals <- syscall.SIGTERM
	out.await(t, `log lines were dropped: the host's ceiling logLines for jobs "cities" is 1 a second`)
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	gaps := 0
	for e, err := range jsonl.Read(file) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == event.OverQuota && e.Ceiling == ceiling.HistoryBytes && e.Job == "cities" {
			gaps++
		}
	}
	if gaps != 2 {
		t.Errorf("the history speaks of its gap %d times, expected of its begin and its end", gaps)
	}
}

// TestRunWithoutJobs is what people see who forget --plugins, or give it as an
// argument.
func TestRunWithoutJobs(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	dir := filepath.Join(home, "jobs")
	if err := os.MkdirAll(filepath.Join(dir, "sub.d"), 0o700); err != nil {
		t.Fatal(err)
	}
	runCLI(t, nil, "run", dir).expect(t, exitUsage, "did you mean --plugins "+dir+"?")
	signals := make(chan os.Signal, 2)
	logs := lineByLine{make(chan string, 10_000)}
	p := &program{Program: command.Program{Out: lineByLine{make(chan string, 10_000)}, Err: logs, Environ: []string{"HOME=" + home}, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", "off", "--server-ip", "127.0.0.1"})
	}()
	logs.await(t, "there is no job in the plugins directory yet")
	signals <- syscall.SIGTERM
	if code := <-ended; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	for _, name := range []string{"a.yaml", "a.yml", "a.wasm"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if withoutJobs(dir) {
			t.Errorf("%s is none", name)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

func TestASecondSignalStopsAtOnce(t *testing.T) {
	t.Parallel()
	dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 1\njobParameter: spin\n")
	home := t.TempDir()
	socket, history := filepath.Join(home, "s"), filepath.Join(home, "history")
	signals := make(chan os.Signal, 2)
	logs := lineByLine{make(chan string, 10_000)}
	p := &program{Program: command.Program{Out: io.Discard, Err: logs, Environ: []string{"XDG_RUNTIME_DIR=" + home, "HOME=" + home}, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
	ended := make(chan int)
	go func() {
		ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", socket, "--drain-timeout", "1h", "--log-format", "json", "--log-level", "debug", "--history", history})
	}()
	for {
		var entry map[string]any
		if err := json.Unmarshal([]byte(logs.await(t, `"message"`)), &entry); err != nil {
			t.Fatal(err)
		}
		if entry["message"] == "this host runs item 0" && entry["job"] == "cities" {
			break
		}
	}
	client := []string{"WASMJOB_ADMIN=" + socket, "XDG_RUNTIME_DIR=" + home}
	runCLI(t, client, "job", "run", "cities").expect(t, exitOK)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if events, err := os.ReadFile(history); err == nil && strings.Contains(string(events), string(event.ItemStarted)) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the item does not begin")
		}
	}
	signals <- os.Interrupt
	logs.await(t, "draining")
	signals <- os.Interrupt
	select {
	case code := <-ended:
		if code != exitFailure {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(time.Minute):
		t.Fatal("the host does not end")
	}
	logs.await(t, "stopping at once")
	if entry := logs.await(t, "what was running counts as unfinished"); !strings.Contains(entry, `"items":"0"`) {
		t.Errorf("it does not say what was cut off: %s", entry)
	}
	logs.await(t, "stopped at once by a second signal")
}

// TestValidateWarns: what a host takes and what will not do what is expected is
// named, and is no failure.
func TestValidateWarns(t *testing.T) {
	t.Parallel()
	dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 1\ncron: 0 0 0 1 1 ? 2020\n")
	r := runCLI(t, nil, "validate", "--cache", "off", dir)
	r.expect(t, exitOK, `warning: cron "0 0 0 1 1 ? 2020" never fires again`, "\nok\n")
	five := jobDir(t, "type: SIMPLE\nshardingTotalCount: 1\ncron: 0/10 * * * *\ntimeZone: GMT\n")
	runCLI(t, nil, "validate", "--cache", "off", five).expect(t, exitOK,
		`warning: cron "0/10 * * * *" has five fields and is read as Unix cron: minutes first, no seconds; it fires next at 2`, "0:00 +00:00", "\nok\n")
	r = runCLI(t, nil, "validate", "--json", "--cache", "off", dir)
	if findings := records[catalog.Finding](t, r.out); r.code != exitOK || len(findings) != 1 || !findings[0].Warning {
		t.Errorf("--json: %d %+v", r.code, findings)
	}
}

func TestColourOnlyWhereItIsWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env    []string
		tty    bool
		colour bool
	}{{nil, true, true}, {nil, false, false}, {[]string{"NO_COLOR=1"}, true, false}, {[]string{"NO_COLOR="}, true, true}, {[]string{"TERM=dumb"}, true, false}} {
		p := &program{Program: command.Program{Environ: c.env}}
		if got := p.Colour(c.tty); got != c.colour {
			t.Errorf("%q, terminal %t: colour %t", c.env, c.tty, got)
		}
		var out strings.Builder
		terminal.NewLogger(false, zapcore.InfoLevel, terminal.New(&out, terminal.Style{Columns: c.tty, Colour: p.Colour(c.tty)}), nil).Error("x", zap.Int("k", 1))
		if got := strings.Contains(out.String(), "\x1b["); got != c.colour {
			t.Errorf("%q, terminal %t: %q", c.env, c.tty, &out)
		}
	}
}
