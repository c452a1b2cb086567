package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// story is what an invocation did and how it ended, as far as it must be the same
// in both kinds of executors.
type story struct {
	Outcome          abi.Outcome
	Status           abi.Status
	Message          string
	Error            string
	Kind             plugin.Kind
	ExitCode         uint32
	Stack, Stderr    string
	Offset           string
	Staged, Yielded  bool
	Batches, Records int64
	Memory           int64
	Reads, ReadBytes int64
	Dropped          bool // how many lines depends on time
	Host             recorder
}

func tell(r abi.Result, h *recorder) *story {
	s := &story{Outcome: r.Outcome, Status: r.Status, Message: r.Message, Offset: string(r.Offset), Staged: r.Staged, Yielded: r.Yielded,
		Batches: r.Batches, Records: r.Records, Memory: r.Memory, Reads: r.Reads, ReadBytes: r.ReadBytes, Dropped: r.DroppedLines > 0}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	if e, ok := errors.AsType[*plugin.Error](r.Err); ok {
		s.Kind, s.ExitCode, s.Stack, s.Stderr = e.Kind, e.ExitCode, e.Stack, e.Stderr
	}
	s.Host.Lines, s.Host.Done, s.Host.Metrics, s.Host.Commits, s.Host.Stages, s.Host.Pauses = h.Lines, h.Done, h.Metrics, h.Commits, h.Stages, h.Pauses
	return s
}

// behaviour is a run of a guest.
type behaviour struct {
	name      string
	module    string
	settings  plugin.Settings
	export    string // of a listener
	parameter string
	change    func(*abi.Invocation)
	host      func(*recorder)
	limit     time.Duration
	stopped   bool // the context is cancelled when the guest has logged
	loose     bool // lines depend on time
}

func behaviours(t *testing.T) []behaviour {
	simple, flow := plugin.Settings{Type: wasm.TypeSimple}, plugin.Settings{Type: wasm.TypeDataflow}
	streaming := plugin.Settings{Type: wasm.TypeDataflow, Streaming: true}
	var list []behaviour
	for _, p := range []string{"ok", "status:1", "status:2", "status:3", "status:5", "status:70", "status:1000", "error", "error-then-trap", "trap", "oob", "div",
		"recurse", "nap:1", "exit:0", "exit:7", "abort", "calls", "dump", "long-line", "attrs", "print", "print-flood", "flood:5000", "err-then-trap",
		"bad-pointer", "huge-length", "probe", "stage", "stage-fail", "stage-trap", "stage-large", "commit", "commit-trap", "metric",
		"metric-names", "metric-code", "progress", "grow:100", "grow:100000", "what is this"} {
		// How many lines are dropped depends on how long the guest takes.
		list = append(list, behaviour{name: "simple " + p, module: "c/guest", settings: simple, parameter: p, loose: p == "print-flood" || p == "flood:5000"})
	}
	for _, code := range []abi.Code{abi.ErrConflict, abi.ErrCancelled, abi.ErrUnavailable, abi.ErrQuota} {
		for _, p := range []string{"commit", "metric-code"} {
			list = append(list, behaviour{name: fmt.Sprintf("code %d of %s", code, p), module: "c/guest", settings: simple, parameter: p,
				host: func(r *recorder) { r.code = code }})
		}
	}
	for _, c := range []abi.Cancel{abi.CancelStop, abi.CancelLost, abi.CancelDeadline, abi.CancelAbort} {
		for _, p := range []string{"commit", "metric", "progress", "spin-cancelled"} {
			list = append(list, behaviour{name: fmt.Sprintf("cancelled %d, %s", c, p), module: "c/guest", settings: simple, parameter: p,
				host: func(r *recorder) { r.cancel = func(int) abi.Cancel { return c } }})
		}
	}
	counted := func(from, end string) func(*abi.Invocation) {
		return func(i *abi.Invocation) {
			i.Context.ShardingParameter, i.Context.HasShardingParameter = end, true
			if from != "" {
				i.Offset, i.HasOffset = []byte(from), true
			}
		}
	}
	for _, p := range []string{"", "tail", "no-offset", "fetch-fail:10", "fetch-retry:10", "fetch-nonsense:10", "process-fail:13", "process-retry:13", "process-trap:13"} {
		for _, s := range []plugin.Settings{flow, streaming} {
			if p == "no-offset" && s.Streaming {
				continue // it would never end
			}
			list = append(list, behaviour{name: fmt.Sprintf("dataflow %q, streaming %t", p, s.Streaming), module: "c/guest", settings: s, parameter: p, change: counted("", "35")})
		}
	}
	list = append(list,
		behaviour{name: "from an offset", module: "c/guest", settings: streaming, change: counted("30", "35")},
		behaviour{name: "nothing left", module: "c/guest", settings: flow, change: counted("35", "35")},
		behaviour{name: "yield", module: "c/guest", settings: streaming, change: counted("", "1000"),
			host: func(r *recorder) { r.cancel = func(int) abi.Cancel { return abi.CancelYield } }},
		behaviour{name: "stop between batches", module: "c/guest", settings: streaming, change: counted("", "1000"),
			host: func(r *recorder) { r.cancel = func(int) abi.Cancel { return abi.CancelStop } }},
		behaviour{name: "offset refused", module: "c/guest", settings: streaming, change: counted("", "35"), host: func(r *recorder) { r.code = abi.ErrConflict }},
		behaviour{name: "quiet", module: "c/guest", settings: simple, parameter: "attrs", host: func(r *recorder) { r.level = abi.LevelError }},
		behaviour{name: "a time-out", module: "c/guest", settings: simple, parameter: "spin", limit: 100 * time.Millisecond},
		behaviour{name: "a time-out asleep", module: "c/guest", settings: simple, parameter: "nap:3600000", limit: 100 * time.Millisecond},
		behaviour{name: "a flood", module: "c/guest", settings: simple, parameter: "spin-log", limit: 300 * time.Millisecond, loose: true},
		behaviour{name: "stopped", module: "c/guest", settings: simple, parameter: "spin-log", stopped: true, loose: true},
		behaviour{name: "plugin configuration", module: "c/guest", settings: plugin.Settings{Type: wasm.TypeSimple, PluginConfig: []byte("a\xff\x00b")}, parameter: "dump"},
		behaviour{name: "a full context", module: "c/guest", settings: simple, parameter: "dump", change: func(i *abi.Invocation) {
			c := &i.Context
			c.ShardingParameter, c.HasShardingParameter, c.PluginConfig, c.Traceparent, c.HostInfo = "Köln", true, []byte("x"), "00-1-2-3", "host"
			c.PreviousFireTime, c.NextFireTime, c.Deadline = time.UnixMilli(5), time.UnixMilli(6), time.UnixMilli(7)
			c.Attempt, c.FetchDataCount, c.Source = 3, 20, abi.SourceFailover
			i.Offset, i.HasOffset = []byte{}, true
		}},
		behaviour{name: "a trap in the start section", module: "wat/start_trap"},
		behaviour{name: "a trap in _initialize", module: "wat/init_trap"},
		behaviour{name: "calls in _initialize", module: "wat/init_calls"},
		behaviour{name: "no such listener", module: "wat/noop", export: abi.ExportBefore},
	)
	for _, e := range []string{abi.ExportBefore, abi.ExportAfter, abi.ExportBeforeOnce, abi.ExportAfterOnce} {
		list = append(list, behaviour{name: e, module: "wat/listeners", export: e, change: func(i *abi.Invocation) { i.Context.ShardingItem = -1 }})
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := plugin.Settings{Args: []string{"tell", "two words"}, Env: map[string]string{"GRANTED": "yes"}, Mounts: []plugin.Mount{{Host: dir, Guest: "/data"}}}
	list = append(list, behaviour{name: "script", module: "gocommand", settings: script, parameter: "k=v"},
		behaviour{name: "mounts", module: "goguest", settings: plugin.Settings{Mounts: script.Mounts}, parameter: "read:/data/a.txt"})
	for _, code := range []string{"0", "7", "75"} {
		list = append(list, behaviour{name: "script exit " + code, module: "gocommand", settings: plugin.Settings{Args: []string{"exit", code}}})
	}
	return list
}

// goModules are built once.
var goModules = sync.OnceValues(func() (map[string][]byte, error) {
	dir, err := os.MkdirTemp("", "process-guests")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	built := map[string][]byte{}
	for name, flags := range map[string][]string{"goguest": {"-buildmode=c-shared"}, "gocommand": nil} {
		out := filepath.Join(dir, name+".wasm")
		cmd := exec.Command("go", append(append([]string{"build", "-trimpath"}, flags...), "-o", out, "../plugin/testdata/"+name)...)
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
		if built[name], err = os.ReadFile(out); err != nil {
			return nil, err
		}
	}
	return built, nil
})

// TestContract runs guests in this process and in a worker process: nobody may see
// a difference.
func TestContract(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	built, err := goModules()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]*plugin.Module{}
	apart := map[string]*Module{}
	for _, b := range behaviours(t) {
		m := modules[b.module]
		if m == nil {
			wasm, isGo := built[b.module]
			if !isGo {
				wasm = wasmOf(t, b.module)
			}
			var err error
			if m, err = w.o.Runtime.Open("some/guest.wasm", wasm); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(m.Close)
			modules[b.module], apart[b.module] = m, w.Module(m)
		}
		t.Run(b.name, func(t *testing.T) {
			b.settings.JobName = "probe"
			inside, err1 := m.Executor(b.settings)
			outside, err2 := apart[b.module].Executor(t.Context(), b.settings, "")
			if err1 != nil || err2 != nil {
				if fmt.Sprint(err1) != fmt.Sprint(err2) {
					t.Fatalf("refused with\n%v\nin this process, and in another with\n%v", err1, err2)
				}
				return
			}
			defer inside.Release()
			defer outside.Release()
			if inside.Digest() != outside.Digest() {
				t.Error("digests differ")
			}
			want, got := b.run(t, inside), b.run(t, outside)
			if b.loose {
				want.Host, got.Host = recorder{}, recorder{}
				want.Stack, got.Stack = "", ""
			}
			if b.limit > 0 || b.stopped { // it depends on the moment whether there is a stack, and how many lines
				want.Stack, got.Stack = "", ""
				want.Dropped, got.Dropped = false, false
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("in this process\n%+v\nin another\n%+v", want, got)
			}
		})
	}
	if n := w.Stats().Killed; n != 0 {
		t.Errorf("%d processes were killed", n)
	}
}

func (b behaviour) run(t *testing.T, x abi.Executor) *story {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if b.limit > 0 {
		// A process that is starting may take longer than the limit.
		warm, err := x.NewWorker(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer warm.Close()
		warm.Execute(ctx, item(newRecorder(), "ok"))
		ctx, cancel = context.WithTimeout(ctx, b.limit)
		defer cancel()
	}
	w, err := x.NewWorker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	h := newRecorder()
	if b.host != nil {
		b.host(h)
	}
	if b.stopped {
		h.heard = func(string) { cancel() }
	}
	inv := item(h, b.parameter)
	if b.change != nil {
		b.change(inv)
	}
	var r abi.Result
	if b.export != "" {
		r = w.Listen(ctx, b.export, inv)
	} else {
		r = w.Execute(ctx, inv)
	}
	if strings.Contains(r.Message, "worker process") {
		t.Error(r.Message)
	}
	return tell(r, h)
}
