package catalog

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// tinyModule is a SIMPLE module whose job_execute returns the status. The
// label makes modules differ that do the same.
func tinyModule(status byte, label string) []byte {
	section := func(id byte, content ...byte) []byte {
		return append([]byte{id, byte(len(content))}, content...)
	}
	export := func(name string, kind, index byte) []byte {
		return append(append([]byte{byte(len(name))}, name...), kind, index)
	}
	exports := []byte{3}
	exports = append(exports, export(abi.ExportMemory, 2, 0)...)
	exports = append(exports, export(abi.Marker, 0, 0)...)
	exports = append(exports, export(abi.ExportExecute, 0, 1)...)
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, section(1, 2, 0x60, 0, 0, 0x60, 0, 1, 0x7f)...)          // () -> (), () -> i32
	m = append(m, section(3, 2, 0, 1)...)                                  // two functions
	m = append(m, section(5, 1, 0, 1)...)                                  // one page
	m = append(m, section(7, exports...)...)                               // see above
	m = append(m, section(10, 2, 2, 0, 0x0b, 4, 0, 0x41, status, 0x0b)...) // end; i32.const status, end
	return append(m, section(0, append(append([]byte{byte(len(label))}, label...), 0)...)...)
}

const tinyDefinition = "jobName: %s\ncron: \"0 0 0 1 1 ?\"\nshardingTotalCount: 1\n%s"

// noHost is for guests that call nothing.
type noHost struct{}

func (noHost) Log(int, string, []string)                     {}
func (noHost) LogEnabled(int) bool                           { return false }
func (noHost) Progress(int64, int64)                         {}
func (noHost) Metric(int, string, int64) abi.Code            { return abi.OK }
func (noHost) CommitOffset(context.Context, []byte) abi.Code { return abi.OK }
func (noHost) StageOffset(context.Context, []byte) abi.Code  { return abi.OK }
func (noHost) Pause(context.Context)                         {}
func (noHost) Cancelled() abi.Cancel                         { return abi.CancelNone }

func execute(t *testing.T, e abi.Executor, job string) abi.Result {
	t.Helper()
	w, err := e.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.Execute(t.Context(), &abi.Invocation{Host: noHost{}, Context: abi.ShardingContext{JobName: job, ShardingTotalCount: 1}})
}

func newRuntime(t testing.TB) *plugin.Runtime {
	t.Helper()
	rt, err := plugin.NewRuntime(t.Context(), plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// It waits for the last executor: none may be left.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := rt.Close(ctx); err != nil {
			t.Errorf("close the runtime: %v", err)
		}
	})
	return rt
}

// TestRealModules goes from files to results: real definitions, real modules.
func TestRealModules(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	dir := t.TempDir()
	put(t, dir, "a.yaml", fmt.Sprintf(tinyDefinition, "a", ""))
	put(t, dir, "a.wasm", string(tinyModule(0, "one")))
	c, err := New(Options{Dir: dir, Runtime: rt, Debounce: 10 * time.Millisecond, Ceilings: ceiling.List{ceiling.Default(1)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	type applied struct {
		jobs    []engine.Job
		refused []engine.Refusal
	}
	states := make(chan applied, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, func(jobs []engine.Job, refused []engine.Refusal) { states <- applied{jobs, refused} })
	}()
	await := func(what string, ok func(applied) bool) applied {
		t.Helper()
		limit := time.NewTimer(time.Minute)
		defer limit.Stop()
		var last applied
		for {
			select {
			case last = <-states:
				if ok(last) {
					return last
				}
			case <-limit.C:
				t.Fatalf("%s: last state was %+v", what, last)
			}
		}
	}
	first := await("start", func(a applied) bool { return len(a.jobs) == 1 })
	job := first.jobs[0]
	if job.File != "a.yaml" || job.ModuleFile != "a.wasm" || job.Definition.JobName != "a" || job.Definition.ShardingTotalCount != 1 {
		t.Errorf("job is %+v", job)
	}
	old, err := job.Module.Executor(job.Definition)
	if err != nil {
		t.Fatal(err)
	}
	if r := execute(t, old, "a"); r.Outcome != abi.OutcomeOK {
		t.Errorf("the first version: %+v", r)
	}

	put(t, dir, "a.wasm", string(tinyModule(1, "two")))
	second := await("replace", func(a applied) bool { return len(a.jobs) == 1 && a.jobs[0].Module.Digest() != job.Module.Digest() })
	e, err := second.jobs[0].Module.Executor(second.jobs[0].Definition)
	if err != nil {
		t.Fatal(err)
	}
	if r := execute(t, e, "a"); r.Outcome != abi.OutcomeFail {
		t.Errorf("the second version: %+v", r)
	}
	e.Release()
	refuses(t, c, second.jobs[0])

	for name, bad := range map[string]struct{ bytes, reason string }{
		"text":      {"hello, world\n", "text"},
		"truncated": {string(tinyModule(0, "three")[:50]), "truncated"},
	} {
		put(t, dir, "a.wasm", bad.bytes)
		a := await(name, func(a applied) bool {
			return len(a.refused) == 1 && strings.Contains(strings.Join(a.refused[0].Reasons, " "), bad.reason)
		})
		if !a.refused[0].Kept || len(a.jobs) != 1 || a.jobs[0].Module != second.jobs[0].Module {
			t.Errorf("%s: the version before was not kept: %+v", name, a)
		}
	}
	put(t, dir, "a.wasm", string(tinyModule(0, "four")))
	await("repair", func(a applied) bool { return len(a.refused) == 0 })
	for _, change := range []string{"type: DATAFLOW\n", "type: DATAFLOW\nmemoryLimit: 1MiB\n"} {
		put(t, dir, "a.yaml", fmt.Sprintf(tinyDefinition, "a", change))
		a := await("misfit", func(a applied) bool { return len(a.refused) == 1 })
		if !strings.Contains(a.refused[0].Reasons[0], abi.ExportFetch) || !a.refused[0].Kept {
			t.Errorf("a DATAFLOW job of a SIMPLE module: %+v", a.refused)
		}
		put(t, dir, "a.yaml", fmt.Sprintf(tinyDefinition, "a", "memoryLimit: 2MiB\n"))
		await("fit", func(a applied) bool { return len(a.refused) == 0 && len(a.jobs) == 1 })
	}

	// The catalog is gone; an executor lives for as long as it is held.
	stop()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if r := execute(t, old, "a"); r.Outcome != abi.OutcomeOK {
		t.Errorf("an executor of a module that was closed: %+v", r)
	}
	old.Release()
}

// refuses shows that the catalog says of the configuration of an applied job what the host would say, before it has it.
func refuses(t *testing.T, c *Catalog, job engine.Job) {
	t.Helper()
	for name, test := range map[string]struct {
		of, field string
		total     int
		props     map[string]string
	}{
		"as it is":             {"a", "", 1, nil},
		"beyond the ceilings":  {"a", "shardingTotalCount", 20_000, nil},
		"another type":         {"a", "type", 1, map[string]string{"wasm.type": "DATAFLOW"}},
		"no worker processes":  {"a", "isolation", 1, map[string]string{"wasm.isolation": "process"}},
		"what cannot be read":  {"a", "", 1, map[string]string{"wasm.memoryLimit": "much"}},
		"a job of other hosts": {"b", "", 20_000, map[string]string{"wasm.type": "DATAFLOW"}},
	} {
		d := job.Definition
		d.JobName, d.ShardingTotalCount, d.Props = test.of, test.total, test.props
		problems := c.Refuses(d)
		if test.field == "" {
			if len(problems) > 0 {
				t.Errorf("%s: %v", name, problems[0])
			}
			continue
		}
		said := c.ceilings.Check(d)
		if said == nil {
			said = fit(job.Module, d)
		}
		if len(problems) != 1 || problems[0].Field != test.field || said == nil || !strings.Contains(said.Error(), problems[0].Problem) {
			t.Errorf("%s: %v, the host says %v", name, problems, said)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	rt := newRuntime(t)
	m, err := rt.Load(t.Context(), "a.wasm", tinyModule(0, "a"), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mounts := map[string]granted{"w": {Grant: &grants.Grant{Dirs: []grants.Dir{{Host: filepath.Join(t.TempDir(), "gone"), Guest: "/out", Write: true}}}}, "b": {Grant: &grants.Grant{}}, "a": {Grant: &grants.Grant{Dirs: []grants.Dir{{Host: filepath.Join(t.TempDir(), "gone"), Guest: "/data"}}}}}
	l := compiledModule{Module: m, terms: terms{quotas: dir.NewQuotas()}}
	for name, test := range map[string]struct {
		job   string
		props map[string]string
		want  string
	}{
		"plain":       {"b", nil, ""},
		"mount":       {"a", nil, "gone"},
		"directory":   {"w", nil, "the directory that is granted as /out: stat "},
		"bad setting": {"b", map[string]string{"wasm.memoryLimit": "much"}, "much"},
		"bad type":    {"b", map[string]string{"wasm.type": "SCRIPT"}, "SCRIPT"},
		"memory":      {"b", map[string]string{"wasm.memoryLimit": "1"}, "memory"},
	} {
		err := fit(l.bind(test.job, mounts[test.job]), jobconfig.Configuration{JobName: test.job, Props: test.props})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.want)
		}
	}
	if got := l.bind("b", mounts["b"]).Digest(); got != m.Digest() {
		t.Errorf("digest is %s, want %s", got, m.Digest())
	}
}

func TestCheckRealFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "a.yaml", fmt.Sprintf(tinyDefinition, "a", ""))
	put(t, dir, "a.wasm", string(tinyModule(0, "a")))
	if f := Check(t.Context(), Options{Runtime: newRuntime(t)}, []string{dir}); len(f) != 0 {
		t.Errorf("findings: %v", f)
	}
	put(t, dir, "a.yaml", "jobName: a\ncron: never\nshardingTotalCount: -1\nfailovr: true\n")
	f := Check(t.Context(), Options{Runtime: newRuntime(t)}, []string{filepath.Join(dir, "a.yaml")})
	text := fmt.Sprint(f)
	for _, want := range []string{"never", "-1", "failovr"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing about %q in %q", want, text)
		}
	}
	if len(f) < 3 {
		t.Errorf("%d findings, want one for each problem: %q", len(f), text)
	}
}
