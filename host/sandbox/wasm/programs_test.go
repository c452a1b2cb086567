package wasm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

var (
	programsDir    = flag.String("programs.dir", "", "where testdata/programs/build has put real programs")
	programsRounds = flag.Int("programs.rounds", 0, "how often each of them is timed")
	programsOnly   = flag.String("programs.only", "", "programs whose name has this")
	programsSince  = flag.String("programs.since", "0736366", "the commit whose metering is compared with today's")
	programsTable  = flag.String("programs.output", "", "a file for the table")
)

// programs are the built ones, by name.
func programs(t *testing.T) map[string][]byte {
	t.Helper()
	if *programsDir == "" {
		t.Skip("make programs runs it")
	}
	names, err := filepath.Glob(filepath.Join(*programsDir, "*.wasm"))
	if err != nil || len(names) == 0 {
		t.Fatal("no programs in ", *programsDir, err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		short := strings.TrimSuffix(filepath.Base(name), ".wasm")
		if !strings.Contains(short, *programsOnly) || strings.HasPrefix(short, ".") {
			continue
		}
		if all[short], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// offerCheckedTurns gives a runtime what metered modules import, as the host does
// it, but for what it does when the time is up. fill is what the counter gets.
func offerCheckedTurns(ctx context.Context, rt wazero.Runtime, fill uint64) error {
	_, err := rt.NewHostModuleBuilder(MeterModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
			if ctx.Err() != nil {
				panic(ctx.Err())
			}
			stack[0] = fill
		}), nil, []api.ValueType{api.ValueTypeI32}).Export(MeterImport).Instantiate(ctx)
	return err
}

// running is a compiled program.
type running struct {
	rt       wazero.Runtime
	compiled wazero.CompiledModule
}

func newRunning(t *testing.T, wasm []byte, config wazero.RuntimeConfig, fill uint64) *running {
	t.Helper()
	ctx := context.Background()
	r := &running{rt: wazero.NewRuntimeWithConfig(ctx, config.WithMemoryLimitPages(MaxPages))}
	t.Cleanup(func() { r.rt.Close(ctx) })
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r.rt); err != nil {
		t.Fatal(err)
	}
	if err := offerCheckedTurns(ctx, r.rt, fill); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.compiled, err = r.rt.CompileModule(ctx, wasm); err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs the program n times over, and says what it wrote and how it ended.
func (r *running) run(t *testing.T, n int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // one that may end, as a host's
	defer cancel()
	var out bytes.Buffer
	mod, err := r.rt.InstantiateModule(ctx, r.compiled, wazero.NewModuleConfig().WithName("").
		WithArgs("program", fmt.Sprint(n)).WithStdout(&out).WithStderr(&out).WithSysWalltime())
	code := uint32(0)
	if exit, ok := errors.AsType[*sys.ExitError](err); ok {
		code, err = exit.ExitCode(), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	if mod != nil {
		_ = mod.Close(ctx)
	}
	return fmt.Sprintf("%sexit code %d", &out, code)
}

// Real programs do metered what they do plain.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for name, wasm := range programs(t) {
		metered, err := meter(wasm)
		if err != nil {
			t.Errorf("%s is not metered: %v", name, err)
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := newRunning(t, wasm, wazero.NewRuntimeConfig(), Quantum).run(t, 2)
			if !strings.HasSuffix(want, "\nexit code 0") {
				t.Fatal("the plain program: ", want)
			}
			if got := newRunning(t, metered, wazero.NewRuntimeConfig(), Quantum).run(t, 2); got != want {
				t.Errorf("metered:\n%s\nplain:\n%s", got, want)
			}
		})
	}
}

// emitter writes what another commit's metering makes of the programs in a
// directory. It is part of that commit's tests.
const emitter = `package plugin

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEmit(t *testing.T) {
	names, _ := filepath.Glob(filepath.Join(os.Getenv("PROGRAMS"), "*.wasm"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if out, ok := meter(b); ok {
			if err := os.WriteFile(filepath.Join(os.Getenv("METERED"), filepath.Base(name)), out, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}
`

// meteredSince has a commit's metering make what it makes of the programs.
func meteredSince(t *testing.T, commit string) map[string][]byte {
	t.Helper()
	tree, out := filepath.Join(t.TempDir(), "tree"), t.TempDir()
	do := func(dir, name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PROGRAMS="+*programsDir, "METERED="+out)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, text)
		}
	}
	do(".", "git", "worktree", "add", "-q", "--detach", tree, commit)
	defer do(".", "git", "worktree", "remove", "--force", tree)
	if err := os.WriteFile(filepath.Join(tree, "host", "sandbox", "plugin", "emit_test.go"), []byte(emitter), 0o600); err != nil {
		t.Fatal(err)
	}
	do(tree, "go", "test", "-count", "1", "-run", "^TestEmit$", "./host/sandbox/plugin")
	names, err := filepath.Glob(filepath.Join(out, "*.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".wasm")] = b
	}
	return all
}

// What metering costs real programs: in processor time, at most mostDearer times
// that of an earlier commit; and with debugging information not more than
// without. The ways take turns, and the best of the rounds counts, for a machine
// with background load is not the same a minute later.
func TestProgramsCost(t *testing.T) {
	const mostDearer = 1.15
	if *programsRounds == 0 {
		t.Skip("make programs runs it")
	}
	all := programs(t)
	since := meteredSince(t, *programsSince)
	interrupted := wazero.NewRuntimeConfig().WithCloseOnContextDone(true)
	table := &strings.Builder{}
	fmt.Fprintf(table, "| Program | Plain | Interrupted by wazero | Metered at %s | Metered | of plain | of %s |\n| --- | --: | --: | --: | --: | --: | --: |\n", *programsSince, *programsSince)
	dearer := map[string]float64{} // than the plain program
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		wasm := all[name]
		metered, err := meter(wasm)
		if err != nil {
			t.Errorf("%s is not metered: %v", name, err)
			continue
		}
		old := newRunning(t, wasm, interrupted, 0) // what could not be metered then
		if m := since[name]; m != nil {
			const then = 1000 // turns of loops
			old = newRunning(t, m, wazero.NewRuntimeConfig(), then)
		}
		ways := []*running{newRunning(t, wasm, wazero.NewRuntimeConfig(), 0), newRunning(t, wasm, interrupted, 0), old,
			newRunning(t, metered, wazero.NewRuntimeConfig(), Quantum)}
		took := make([]time.Duration, len(ways))
		n := 1
		measure := func(rounds int) {
			for range rounds {
				for i, w := range ways {
					before := cpuTime()
					w.run(t, n)
					if d := cpuTime() - before; took[i] == 0 || d < took[i] {
						took[i] = d
					}
				}
			}
		}
		for measure(1); took[0] < 100*time.Millisecond && n < 1000; measure(1) { // long enough for the clock
			n *= 2
			clear(took)
		}
		ratio := func(of int) float64 { return float64(took[3]) / float64(took[of]) }
		for range 3 { // what looks too dear is timed again
			if measure(*programsRounds); ratio(2) <= mostDearer {
				break
			}
		}
		dearer[name] = ratio(0)
		fmt.Fprintf(table, "| %s × %d | %d ms | %d ms | %d ms | %d ms | %.2f | %.2f |\n", name, n, took[0].Milliseconds(), took[1].Milliseconds(),
			took[2].Milliseconds(), took[3].Milliseconds(), ratio(0), ratio(2))
		if ratio(2) > mostDearer {
			t.Errorf("%s takes %.2f times what it took at %s", name, ratio(2), *programsSince)
		}
		if stripped, ok := dearer[strings.TrimSuffix(name, "-g")]; ok && ratio(0) > mostDearer*stripped {
			t.Errorf("%s takes %.2f times what it takes plain, without debugging information %.2f times", name, ratio(0), stripped)
		}
	}
	t.Log("\n" + table.String())
	if *programsTable != "" {
		if err := os.WriteFile(*programsTable, []byte(table.String()), 0o600); err != nil {
			t.Error(err)
		}
	}
}
