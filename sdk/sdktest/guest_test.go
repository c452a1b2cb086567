//go:build !wasip1

package sdktest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
	behave "github.com/wasmjob/wasmjob/sdk/testdata/guests/behave/handler"
	flow "github.com/wasmjob/wasmjob/sdk/testdata/guests/flow/handler"
)

// capabilities are all of their imports, with their modules.
func capabilities() []string {
	var names []string
	for _, f := range abi.CapabilityImports() {
		names = append(names, f.Module+"."+f.Name)
	}
	return names
}

// TestExportsAndImports: a module has the exports of the packages that it
// imports and the host functions that it can reach, no more.
func TestExportsAndImports(t *testing.T) {
	t.Parallel()
	always := []string{"ctx_int", "ctx_str", "log", "log_enabled", "set_error", "cancelled"}
	for _, test := range []struct {
		guest   string
		exports []string
		imports []string // besides always
	}{
		{"bare", []string{abi.ExportExecute}, nil},
		{"behave", []string{abi.ExportExecute}, []string{"metric", "progress", "offset_commit", "offset_get", "offset_set"}},
		{"flow", []string{abi.ExportFetch, abi.ExportProcess}, []string{"offset_get", "offset_set"}},
		{"listeners", []string{abi.ExportExecute, abi.ExportBefore, abi.ExportAfter, abi.ExportBeforeOnce, abi.ExportAfterOnce}, nil},
		{"outside", []string{abi.ExportExecute}, append(capabilities(), "metric")},
	} {
		t.Run(test.guest, func(t *testing.T) {
			t.Parallel()
			module := build(t, guests+test.guest, "-buildmode=c-shared")
			t.Logf("%d bytes", len(module))
			imports, exports := sections(t, module)
			want := append([]string{abi.Marker, abi.ExportInitialize, abi.ExportMemory}, test.exports...)
			slices.Sort(want)
			if !slices.Equal(exports, want) {
				t.Errorf("exports %v, want %v", exports, want)
			}
			want = nil
			for _, name := range slices.Concat(always, test.imports) {
				if !strings.Contains(name, ".") {
					name = abi.Module + "." + name
				}
				want = append(want, name)
			}
			slices.Sort(want)
			imports = slices.DeleteFunc(imports, func(name string) bool { return strings.HasPrefix(name, abi.ModuleWASI+".") })
			if !slices.Equal(imports, want) {
				t.Errorf("imports %v, want %v", imports, want)
			}
		})
	}
}

// told is everything that a job told its host.
func told(h *Host, r abi.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d %q, %d batches, %d records, staged %v %q\n", r.Outcome, r.Status, r.Message, r.Batches, r.Records, r.Staged, r.Offset)
	for _, l := range h.Logs() {
		l.Attrs = slices.Clone(l.Attrs)
		for i := 1; i < len(l.Attrs); i += 2 {
			if l.Attrs[i-1] == "stack" {
				l.Attrs[i] = "…"
			}
		}
		fmt.Fprintln(&b, l)
	}
	fmt.Fprintln(&b, h.Metrics(), h.Progress(), h.Commits(), string(h.Offset))
	return b.String()
}

// TestCompiled runs the guest behave, compiled.
func TestCompiled(t *testing.T) {
	t.Parallel()
	program := guest(t, "behave")
	t.Run("as native", func(t *testing.T) { compiledAsNative(t, program) })
	t.Run("beyond recover", func(t *testing.T) { beyondRecover(t, program) })
}

// compiledAsNative runs each behaviour natively and compiled, on equal hosts,
// and compares what the hosts were told.
func compiledAsNative(t *testing.T, program program) {
	t.Parallel()
	fire := time.UnixMilli(1767225600123)
	host := func(behaviour string) *Host {
		h := &Host{
			Context: Context{
				JobName: "behave", JobParameter: behaviour, ShardingItem: 1, ShardingTotalCount: 3, ShardingParameter: "Shanghai",
				FireTime: fire, PreviousFireTime: fire.Add(-time.Minute), Attempt: 2, Fence: 1 << 40, FetchDataCount: 9,
				PluginConfig: []byte(strings.Repeat("\x00config", 200)), HostInfo: "sdktest",
			},
			LogLevel: slog.LevelWarn,
			Offset:   []byte(strings.Repeat("x", 300)),
		}
		switch behaviour {
		case "poll", "wait", "yield":
			h.OnCancelled = func(question int) abi.Cancel {
				if question > 3 {
					return abi.CancelStop
				}
				return abi.CancelNone
			}
			fallthrough
		case "context", "offset":
			h.LogLevel = slog.LevelInfo
		}
		return h
	}
	outcomes := map[string]abi.Outcome{
		"ok": abi.OutcomeOK, "context": abi.OutcomeOK, "log": abi.OutcomeOK,
		"fail": abi.OutcomeFail, "retry": abi.OutcomeRetry, "code": abi.OutcomeFail,
		"offset": abi.OutcomeFail, "report": abi.OutcomeFail,
		"poll": abi.OutcomeCancelled, "wait": abi.OutcomeCancelled, "yield": abi.OutcomeCancelled,
		"timeout": abi.OutcomeFail, "panic": abi.OutcomeTrap, "nil": abi.OutcomeTrap, "unknown": abi.OutcomeFail,
	}
	// Behaviours that end well share an instance, as items of a fire do.
	var current *Host
	var stderr strings.Builder
	rt := program.load(t, &current)
	shared := rt.instance(t, &stderr)
	for behaviour, outcome := range outcomes {
		native := host(behaviour)
		want := native.Run(behave.Behave)
		if want.Outcome != outcome {
			t.Errorf("%s natively: %s %s, want %s", behaviour, want.Outcome, want.Message, outcome)
		}
		g := shared
		if outcome == abi.OutcomeTrap {
			g = rt.instance(t, &stderr)
		}
		current = host(behaviour)
		current.begin()
		got := current.item(export(t, g, abi.ExportExecute))
		if a, b := told(current, got), told(native, want); a != b {
			t.Errorf("%s compiled:\n%s\nnatively:\n%s", behaviour, a, b)
		}
		if outcome != abi.OutcomeTrap {
			continue
		}
		var exit *sys.ExitError
		if errors.As(got.Err, &exit) || !strings.Contains(got.Err.Error(), "unreachable") {
			t.Errorf("%s: the host does not see a trap: %v", behaviour, got.Err)
		}
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr: %s", stderr.String())
	}
}

// beyondRecover: what no handler can recover from ends the guest all the
// same. In a c-shared module the Go runtime's own end is a trap, too.
func beyondRecover(t *testing.T, program program) {
	t.Parallel()
	for behaviour, want := range map[string]struct{ err, stderr string }{
		"goroutine": {"unreachable", "panic: nobody can catch this"},
		"deadlock":  {"unreachable", "all goroutines are asleep"},
		"exit":      {"exit_code(3)", ""},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			h := &Host{Context: Context{JobParameter: behaviour}}
			var stderr strings.Builder
			g := program.load(t, &h).instance(t, &stderr)
			h.begin()
			r := h.item(export(t, g, abi.ExportExecute))
			var exit *sys.ExitError
			if r.Err == nil || !strings.Contains(r.Err.Error(), want.err) || errors.As(r.Err, &exit) != (behaviour == "exit") {
				t.Errorf("got %v, want %s", r.Err, want.err)
			}
			if !strings.Contains(stderr.String(), want.stderr) {
				t.Errorf("stderr %q, want %q", stderr.String(), want.stderr)
			}
		})
	}
}

func TestCompiledFlow(t *testing.T) {
	t.Parallel()
	native := &Host{Context: Context{JobParameter: "35", FetchDataCount: 10, FireTime: time.UnixMilli(1)}}
	compiled := &Host{Context: native.Context}
	g := guest(t, "flow").load(t, &compiled).instance(t, io.Discard)
	fetch, process := export(t, g, abi.ExportFetch), export(t, g, abi.ExportProcess)
	for attempt, outcome := range []abi.Outcome{abi.OutcomeRetry, abi.OutcomeOK} {
		native.Context.Attempt, compiled.Context.Attempt = attempt+1, attempt+1
		want := Dataflow(native, flow.Fetch, flow.Process)
		compiled.begin()
		got := compiled.loop(fetch, process)
		if a, b := told(compiled, got), told(native, want); a != b || got.Outcome != outcome {
			t.Errorf("attempt %d\ncompiled:\n%s\nnative:\n%s", attempt+1, a, b)
		}
	}
	// Without a batch size in the configuration a loop that counts up to it gets on, too.
	native.Context.FetchDataCount, compiled.Context.FetchDataCount = 0, 0
	native.Context.JobParameter, compiled.Context.JobParameter = "250", "250"
	want := Dataflow(native, flow.Fetch, flow.Process)
	compiled.begin()
	got := compiled.loop(fetch, process)
	if want.Batches != 3 || got.Batches != 3 || want.Records != 215 || got.Records != 215 {
		t.Errorf("without fetchDataCount: native %+v, compiled %+v", want, got)
	}
	compiled.Context.JobParameter = "35"
	if string(compiled.Offset) != "250" {
		t.Errorf("offset %q", compiled.Offset)
	}
	compiled.begin()
	if r := compiled.item(process); r.Outcome != abi.OutcomeFail {
		t.Errorf("process without a batch: %s", r.Outcome)
	}
}

func TestCompiledListeners(t *testing.T) {
	t.Parallel()
	h := &Host{Listener: true}
	g := guest(t, "listeners").load(t, &h).instance(t, io.Discard)
	for _, name := range []string{abi.ExportBeforeOnce, abi.ExportBefore, abi.ExportAfter, abi.ExportAfterOnce} {
		h.begin()
		if r := h.item(export(t, g, name)); r.Outcome != abi.OutcomeOK {
			t.Errorf("%s: %s %s", name, r.Outcome, r.Message)
		}
	}
	var got []string
	for _, l := range h.Logs() {
		got = append(got, l.String())
	}
	want := []string{`INFO before once item=-1`, `INFO before item=-1`, `INFO after item=-1`, `INFO after once item=-1`}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestHints: what a guest cannot do by itself fails with a reason that helps.
func TestHints(t *testing.T) {
	t.Parallel()
	var h *Host
	rt := guest(t, "alone").load(t, &h)
	for parameter, hint := range map[string]string{
		"get":   `Connection reset by peer (guests have no sockets: import _ "github.com/wasmjob/wasmjob/sdk/nethttp"`,
		"dial":  `as text: dial tcp 10.0.0.1:80: address 10.0.0.1:80: connect: Connection refused (guests have no sockets`,
		"file":  "open /data/orders.csv: Bad file number (nothing is mounted at this path: the job is granted no directory, and a guest has no other files)",
		"panic": "panic: open /data/orders.csv: Bad file number (nothing is mounted at this path: the job is granted no directory, ",
	} {
		h = &Host{Context: Context{JobParameter: parameter}}
		g := rt.instance(t, io.Discard)
		h.begin()
		if r := h.item(export(t, g, abi.ExportExecute)); !strings.Contains(r.Message, hint) {
			t.Errorf("%s: %s, want %s", parameter, r.Message, hint)
		}
	}
}

// TestHintsOfPaths: a path that is not there fails with what is, as a host mounts it: an empty
// root beside what is granted.
func TestHintsOfPaths(t *testing.T) {
	t.Parallel()
	var h *Host
	rt := guest(t, "alone").load(t, &h)
	const failed = "panic: open /data/orders.csv: No such file or directory"
	for _, c := range []struct {
		want   string
		mounts []string
	}{
		{failed + " (nothing is mounted at this path: the job is granted no directory, and a guest has no other files), at", nil},
		{failed + " (nothing is mounted at this path: the job is granted /sales, /dat, and a guest has no other files), at", []string{"/sales", "/dat"}},
		{failed + ", at", []string{"/sales", "/data"}},
	} {
		h = &Host{}
		files := wazero.NewFSConfig()
		for _, m := range c.mounts {
			files = files.WithFSMount(fstest.MapFS{"file": {}}, m)
		}
		g := rt.instanceWith(t, io.Discard, files.WithFSMount(fstest.MapFS{}, "/"))
		h.begin()
		if r := h.item(export(t, g, abi.ExportExecute)); !strings.Contains(r.Message, c.want) {
			t.Errorf("with %q: %s, want %s", c.mounts, r.Message, c.want)
		}
	}
	h = &Host{}
	g := rt.instanceWith(t, io.Discard, wazero.NewFSConfig().WithFSMount(fstest.MapFS{"file": {}}, "/"))
	h.begin()
	if r := h.item(export(t, g, abi.ExportExecute)); !strings.Contains(r.Message, failed+", at") {
		t.Errorf("with a root: %s", r.Message)
	}
}
