package plugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// What a guest may do, and what becomes of it. Each runs in one worker after
// the other, so each also shows that the one before harmed nothing.
func TestSimple(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple, MemoryLimit: 8 << 20})
		for _, c := range []struct {
			parameter string
			outcome   abi.Outcome
			status    abi.Status // where it has a meaning
			message   string
			kind      Kind // of Err, "" = nil
			drops     bool // the instance
		}{
			{"ok", abi.OutcomeOK, 0, "", "", false},
			{"status:1", abi.OutcomeFail, 1, "job_execute returned FAIL", "", false},
			{"error", abi.OutcomeFail, 1, "disk on fire", "", false},
			{"status:2", abi.OutcomeRetry, 2, "job_execute returned RETRY", "", false},
			{"status:3", abi.OutcomeCancelled, 3, "job_execute returned CANCELLED", KindCancelled, true},
			{"status:4", abi.OutcomeFail, 4, "job_execute returned 4, a reserved status", "", false},
			{"status:63", abi.OutcomeFail, 63, "job_execute returned 63, a reserved status", "", false},
			{"status:64", abi.OutcomeFail, 64, "job_execute failed with code 64", "", false},
			{"status:255", abi.OutcomeFail, 255, "job_execute failed with code 255", "", false},
			{"status:256", abi.OutcomeFail, 256, "job_execute returned 256, which is no status", "", true},
			{"status:-1", abi.OutcomeFail, -1, "job_execute returned -1, which is no status", "", true},
			{"nonsense", abi.OutcomeFail, 99, "nonsense", "", false},
			{"trap", abi.OutcomeTrap, 0, "job_execute: trap: unreachable", KindTrap, true},
			{"error-then-trap", abi.OutcomeTrap, 0, "last words", KindTrap, true},
			{"err-then-trap", abi.OutcomeTrap, 0, "job_execute: trap: unreachable: panic: told you", KindTrap, true},
			{"oob", abi.OutcomeTrap, 0, "job_execute: trap: out of bounds memory access", KindTrap, true},
			{"recurse", abi.OutcomeTrap, 0, "job_execute: trap: stack overflow", KindTrap, true},
			{"bad-pointer", abi.OutcomeTrap, 0, "job_execute: trap: offset_set: pointer 2147483647 with length 16 is outside the memory of 196608 bytes", KindTrap, true},
			{"exit:0", abi.OutcomeExit, 0, "job_execute: guest exited with code 0", KindExit, true},
			{"exit:7", abi.OutcomeExit, 0, "job_execute: guest exited with code 7", KindExit, true},
			// The codes with which wazero reports ended contexts.
			{"exit:4294967295", abi.OutcomeExit, 0, "job_execute: guest exited with code 4294967295", KindExit, true},
			{"exit:4026531839", abi.OutcomeExit, 0, "job_execute: guest exited with code 4026531839", KindExit, true},
			{"abort", abi.OutcomeExit, 0, "job_execute: guest exited with code 255", KindExit, true},
			// wazero's own code would fail on this.
			{"poll-overflow", abi.OutcomeFail, 28, "job_execute returned 28, a reserved status", "", false},
			{"grow", abi.OutcomeOK, 0, "", "", false},
			{"probe", abi.OutcomeOK, 0, "", "", false},
			{"huge-length", abi.OutcomeOK, 0, "", "", false},
		} {
			t.Run(c.parameter, func(t *testing.T) {
				got := w.Execute(context.Background(), item(newRecorder(), c.parameter))
				if got.Outcome != c.outcome || got.Message != c.message {
					t.Errorf("%s %q, want %s %q", got.Outcome, got.Message, c.outcome, c.message)
				}
				if c.status != got.Status {
					t.Errorf("status %d, want %d", got.Status, c.status)
				}
				e, _ := errors.AsType[*Error](got.Err)
				switch {
				case c.kind == "" && got.Err != nil:
					t.Error(got.Err)
				case c.kind != "" && (e == nil || e.Kind != c.kind):
					t.Errorf("error %v, want kind %s", got.Err, c.kind)
				}
				if dropped := w.(*worker).in == nil; dropped != c.drops {
					t.Errorf("the instance was dropped: %t, want %t", dropped, c.drops)
				}
				if got.Memory < 2*wasm.PageSize {
					t.Errorf("%d bytes of memory", got.Memory)
				}
				if c.parameter == "oob" && !strings.Contains(e.Stack, "execute") {
					t.Errorf("stack %q", e.Stack)
				}
				if c.parameter == "err-then-trap" && e.Stderr != "noise\npanic: told you\nmore\n" {
					t.Errorf("stderr %q", e.Stderr)
				}
			})
		}
	})
}

// TestRetryAt: RETRY is RETRY_AT if the guest has named a time in the same invocation, and another status stays what it is.
func TestRetryAt(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple})
		now := time.Now()
		soon, past, beyond := now.Add(time.Hour).UnixMilli(), now.Add(-time.Hour).UnixMilli(), now.Add(abi.MaxRetryAt+time.Hour).UnixMilli()
		for _, c := range []struct {
			parameter string
			outcome   abi.Outcome
			status    abi.Status
			at        int64
			pauses    bool
		}{
			{fmt.Sprintf("retry-at:%d", soon), abi.OutcomeRetryAt, 2, soon, false},
			{"status:2", abi.OutcomeRetry, 2, 0, false}, // the time before it counts no more
			{fmt.Sprintf("pause-key:%d", soon), abi.OutcomeRetryAt, 2, soon, true},
			{fmt.Sprintf("retry-at:%d", past), abi.OutcomeRetryAt, 2, past, false},
			{fmt.Sprintf("retry-at:%d", beyond), abi.OutcomeFail, 65, 0, false}, // ErrInvalid
			{"retry-at:0", abi.OutcomeFail, 65, 0, false},
			{"retry-flags:2", abi.OutcomeFail, 65, 0, false},
			{fmt.Sprintf("later-ok:%d", soon), abi.OutcomeOK, 0, 0, false},
		} {
			got := w.Execute(context.Background(), item(newRecorder(), c.parameter))
			at := int64(0)
			if !got.RetryAt.IsZero() {
				at = got.RetryAt.UnixMilli()
			}
			if got.Outcome != c.outcome || got.Status != c.status || at != c.at || got.PauseKey != c.pauses {
				t.Errorf("%s: %s, status %d, at %d, pauses %v: %s", c.parameter, got.Outcome, got.Status, at, got.PauseKey, got.Message)
			}
		}
	})
}

func TestContext(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	m := load(t, r, guest(t, "c/guest"))
	w := newWorker(t, m, Settings{Type: wasm.TypeSimple, PluginConfig: []byte("cfg")})
	dump := func(inv *abi.Invocation) map[string]string {
		h := inv.Host.(*recorder)
		if got := w.Execute(context.Background(), inv); got.Outcome != abi.OutcomeOK {
			t.Fatalf("%+v", got)
		}
		fields := map[string]string{}
		for _, line := range h.texts() {
			k, v, _ := strings.Cut(line, "=")
			fields[k] = v
		}
		return fields
	}
	full := item(newRecorder(), "dump")
	c := &full.Context
	c.ShardingParameter, c.HasShardingParameter = "Guangzhou", true
	c.PreviousFireTime, c.NextFireTime = time.UnixMilli(5), time.UnixMilli(6)
	c.Deadline, c.Attempt, c.FetchDataCount = time.UnixMilli(7), 2, 50
	c.PluginConfig, c.Traceparent, c.HostInfo = []byte("own"), "00-ab-cd-01", "wasmjob test"
	if got, want := dump(full), map[string]string{
		"1": "probe", "2": "probe@-@0,1,2@-@READY@-@10.0.0.7@-@4711", "3": "Guangzhou", "4": "dump", "5": "own",
		"6": "00-ab-cd-01", "7": "wasmjob test", "8": "probe/1/2", "9": "schedule", "10": "E-2",
		"32": "3", "33": "2", "34": "1700000000123", "35": "5", "36": "6", "37": "2", "38": "7", "39": "77", "40": "50", "41": "-2",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	got := dump(item(newRecorder(), "dump"))
	for field, want := range map[string]string{"3": "E-2", "5": "cfg", "6": "", "35": "-2", "36": "-2", "37": "1", "38": "0", "40": "0"} {
		if got[field] != want {
			t.Errorf("field %s is %q, want %q", field, got[field], want)
		}
	}
}

// Upper halves of i32 slots are garbage when compiled; a host that uses them
// fails only there.
func TestDirtyUpperBits(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, guest(t, "wat/dirty_bits")), Settings{})
		if got := w.Execute(context.Background(), item(newRecorder(), "")); got.Outcome != abi.OutcomeOK || string(got.Offset) != "probe" {
			t.Errorf("%+v", got)
		}
	})
}

func TestInitializePhase(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "wat/init_calls")), Settings{})
	h := newRecorder()
	if got := w.Execute(context.Background(), item(h, "")); got.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", got)
	}
	if got := h.texts(); !slices.Equal(got, []string{"in init"}) {
		t.Errorf("%q", got)
	}
	if len(h.progress) != 0 || len(h.metrics) != 0 {
		t.Error("an effect came from before the invocation")
	}
}

func TestTableCap(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, guest(t, "wat/table_grow")), Settings{})
		if got := w.Execute(context.Background(), item(newRecorder(), "")); got.Outcome != abi.OutcomeOK {
			t.Errorf("the table grew: %+v", got)
		}
	})
}

// A worker keeps its instance from item to item, and takes a new one after a
// trap; with isolation by item each has its own.
func TestIsolation(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	m := load(t, r, guest(t, "c/guest"))
	calls := func(w abi.Worker) string {
		h := newRecorder()
		if got := w.Execute(context.Background(), item(h, "calls")); got.Outcome != abi.OutcomeOK {
			t.Fatalf("%+v", got)
		}
		return strings.Join(h.texts(), " ")
	}
	x, err := m.Executor(Settings{Type: wasm.TypeSimple})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	a, b := worked(t, x), worked(t, x)
	defer a.Close()
	defer b.Close()
	got := []string{calls(a), calls(a), calls(b), calls(a)}
	a.Execute(context.Background(), item(newRecorder(), "trap"))
	got = append(got, calls(a), calls(b))
	fresh := newWorker(t, m, Settings{Type: wasm.TypeSimple, FreshPerItem: true})
	got = append(got, calls(fresh), calls(fresh))
	if want := "1 2 1 3 1 2 1 1"; strings.Join(got, " ") != want {
		t.Errorf("calls seen by the instances: %v, want %s", got, want)
	}
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple})
	run := func(parameter string, offset string, code abi.Code) (abi.Result, *recorder) {
		h := newRecorder()
		h.commitCode = code
		inv := item(h, parameter)
		if offset != "" {
			inv.Offset, inv.HasOffset = []byte(offset), true
		}
		return w.Execute(context.Background(), inv), h
	}
	if got, h := run("stage:5", "37", 0); got.Outcome != abi.OutcomeOK || !got.Staged || string(got.Offset) != "42" || len(h.commits) != 0 {
		t.Errorf("%+v", got)
	}
	// Nothing of the last invocation is left over.
	if got, _ := run("stage:5", "", 0); string(got.Offset) != "5" {
		t.Errorf("%+v", got)
	}
	if got, _ := run("ok", "1", 0); got.Staged || got.Offset != nil {
		t.Errorf("%+v", got)
	}
	for _, p := range []string{"stage-fail", "stage-trap"} {
		if got, h := run(p, "", 0); got.Staged || got.Offset != nil || len(h.commits) != 0 {
			t.Errorf("%s: %+v", p, got)
		}
	}
	if got, _ := run("stage-large", "", 0); got.Outcome != abi.OutcomeOK || len(got.Offset) != abi.MaxOffset {
		t.Errorf("%+v", got.Outcome)
	}
	if got, h := run("commit", "", 0); got.Outcome != abi.OutcomeOK || got.Staged || !slices.Equal(h.commits, []string{"7"}) {
		t.Errorf("%+v %q", got, h.commits)
	}
	if got, h := run("commit-trap", "", 0); got.Outcome != abi.OutcomeTrap || !slices.Equal(h.commits, []string{"7"}) {
		t.Errorf("%+v %q", got, h.commits)
	}
	for _, code := range []abi.Code{abi.ErrConflict, abi.ErrUnavailable, abi.ErrCancelled} {
		if got, _ := run("commit", "", code); got.Status != abi.Status(64-int32(code)) {
			t.Errorf("%d: %+v", code, got)
		}
	}
}

func TestLostOwnership(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple})
	run := func(parameter string, why abi.Cancel) (abi.Result, *recorder) {
		h := newRecorder()
		h.cancel = func(*recorder) abi.Cancel { return why }
		return w.Execute(context.Background(), item(h, parameter)), h
	}
	if got, h := run("commit", abi.CancelLost); got.Outcome != abi.OutcomeFail || got.Status != abi.Status(64-int32(abi.ErrCancelled)) || len(h.commits) != 0 || got.Staged {
		t.Errorf("%+v %q", got, h.commits)
	}
	if got, h := run("metric-code", abi.CancelLost); got.Status != abi.Status(64-int32(abi.ErrCancelled)) || len(h.metrics) != 0 {
		t.Errorf("%+v", got)
	}
	if _, h := run("progress", abi.CancelLost); len(h.progress) != 0 {
		t.Error("progress was reported for an item that is lost")
	}
	// For any other reason commits still work.
	if got, h := run("commit", abi.CancelStop); got.Outcome != abi.OutcomeOK || len(h.commits) != 1 {
		t.Errorf("%+v", got)
	}
}

// asleep is the context of a process that was stopped past its deadline and
// has not looked at its timers yet.
type asleep struct{ context.Context }

func (asleep) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

func TestWokenTooLate(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple, FreshPerItem: true})
	for _, p := range []string{"commit", "metric", "progress"} {
		h := newRecorder()
		// The instance is made while there is time.
		in, _, e := w.(*worker).x.instantiate(context.Background(), w.(*worker).engine, unlimited(), item(h, p), w.(*worker).x.config, abi.ExportExecute)
		if e != nil {
			t.Fatal(e)
		}
		w.(*worker).in = in
		got := w.Execute(asleep{context.Background()}, item(h, p))
		if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) || len(h.commits)+len(h.metrics)+len(h.progress) != 0 {
			t.Errorf("%s: %+v", p, got)
		}
	}
}

func TestMetricsAndProgress(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	m := load(t, r, guest(t, "c/guest"))
	w := newWorker(t, m, Settings{Type: wasm.TypeSimple})
	h := newRecorder()
	if got := w.Execute(context.Background(), item(h, "metric")); got.Outcome != abi.OutcomeOK {
		t.Errorf("%+v", got)
	}
	if want := []measured{{abi.MetricCounter, "rows", 3}, {abi.MetricGauge, "rows_2", -5}}; !reflect.DeepEqual(h.metrics, want) {
		t.Errorf("%v", h.metrics)
	}
	w.Execute(context.Background(), item(h, "progress"))
	if want := [][2]int64{{3, 10}, {4, 0}}; !reflect.DeepEqual(h.progress, want) {
		t.Errorf("%v", h.progress)
	}
	h.metricCode = abi.ErrQuota
	if got := w.Execute(context.Background(), item(h, "metric-code")); got.Status != abi.Status(64-int32(abi.ErrQuota)) {
		t.Errorf("%+v", got)
	}
	many := newWorker(t, m, Settings{Type: wasm.TypeSimple})
	for range 2 { // the same names again are no new names
		if got := many.Execute(context.Background(), item(newRecorder(), "metric-names")); got.Outcome != abi.OutcomeOK {
			t.Errorf("%+v", got)
		}
	}
}

// TestWholeLog_ended: a guest whose time is up while its line waits for the disk ends.
func TestWholeLog_ended(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	i := item(newRecorder(), "spin-log")
	i.WholeLog = &abi.WholeLog{Where: "all.log", Add: func(ctx context.Context, _ int, _ string, _ []string) { <-ctx.Done() }}
	if result := w.Execute(ctx, i); result.Outcome != abi.OutcomeTimeout {
		t.Errorf("%+v", result)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple})
	var result abi.Result
	var whole []logged
	run := func(h *recorder, parameter string) *recorder {
		t.Helper()
		i := item(h, parameter)
		whole = nil
		i.WholeLog = &abi.WholeLog{Where: "all.log", Add: func(_ context.Context, level int, msg string, kv []string) {
			whole = append(whole, logged{level, msg, kv})
		}}
		if result = w.Execute(context.Background(), i); result.Outcome != abi.OutcomeOK {
			t.Errorf("%s: %+v", parameter, result)
		}
		return h
	}
	if got, want := run(newRecorder(), "attrs").lines, []logged{
		{abi.LevelWarn, "with", []string{"a", "1", "b", ""}},
		{abi.LevelError, "odd", []string{"a", "1", "b", ""}},
		{abi.LevelDebug, "b\uFFFDd", nil},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got, want := run(newRecorder(), "print").lines, []logged{
		{abi.LevelInfo, "out one", nil}, {abi.LevelInfo, "out two", nil},
		{abi.LevelError, "to err", nil}, {abi.LevelInfo, "rest", nil},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	quiet := newRecorder()
	quiet.minLevel = abi.LevelError
	if got := run(quiet, "attrs").lines; len(got) != 1 || got[0].msg != "odd" {
		t.Errorf("%+v", got)
	}

	long := run(newRecorder(), "long-line").lines
	if len(long) != 2 || len(long[0].msg) > abi.MaxLogMessage || len(long[0].msg) < abi.MaxLogMessage-4 || !utf8.ValidString(long[0].msg) {
		t.Errorf("%d lines, the first of %d bytes", len(long), len(long[0].msg))
	}
	if want := []string{"cut_lines", "1"}; !slices.Equal(long[1].kv, want) {
		t.Errorf("%+v", long[1])
	}

	flood := run(newRecorder(), "flood:200000").lines
	last := flood[len(flood)-1]
	var dropped int
	if _, err := fmt.Sscan(last.kv[1], &dropped); err != nil || last.kv[0] != "dropped_lines" {
		t.Fatalf("%+v", last)
	}
	passed := 0
	for _, l := range flood {
		if l.msg == "line" {
			passed++
		}
	}
	if passed < abi.LogBurst+mostHeld || flood[len(flood)-2].msg != "line" || passed+dropped != 200000 || dropped < 100000 {
		t.Errorf("%d lines passed, %d dropped", passed, dropped)
	}
	if result.DroppedLines != int64(dropped) {
		t.Errorf("the result says %d dropped lines, want %d", result.DroppedLines, dropped)
	}

	if n := slices.IndexFunc(flood, func(l logged) bool { return strings.HasPrefix(l.msg, "lines are missing") }); n < 0 || !slices.Equal(flood[n].kv[2:], []string{abi.AttrWholeLog, "all.log"}) {
		t.Errorf("the gap does not say where all lines are: line %d", n)
	}
	if len(whole) != 200000 || !reflect.DeepEqual(whole[199999], logged{abi.LevelInfo, "line", nil}) {
		t.Errorf("the whole log has %d lines", len(whole))
	}

	// What is written to stdout is limited as lines that are logged.
	const printed = 512 << 10 / 64
	lines := 0
	for _, l := range run(newRecorder(), "print-flood").lines {
		if strings.HasPrefix(l.msg, "xxx") {
			lines++
		}
	}
	if lines < abi.LogBurst+heldBytes/(64+lineOverhead) || lines+int(result.DroppedLines) != printed || len(whole) != printed {
		t.Errorf("of %d lines %d are logged, %d are dropped, and the whole log has %d", printed, lines, result.DroppedLines, len(whole))
	}
	// The limits are an invocation's, so the next one may speak again.
	if got := run(newRecorder(), "print").lines; len(got) != 4 {
		t.Errorf("%+v", got)
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	bothEngines(t, func(t *testing.T, r *Runtime) {
		w := newWorker(t, load(t, r, guest(t, "c/guest")), Settings{Type: wasm.TypeSimple})
		for _, p := range []string{"spin", "spin-log", "nap:3600000"} {
			h := newRecorder()
			h.quiet = true
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			got := w.Execute(ctx, item(h, p))
			cancel()
			if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) {
				t.Errorf("%s: %+v", p, got)
			}
			if w.(*worker).in != nil {
				t.Errorf("%s: the instance was kept", p)
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		h := newRecorder()
		h.cancel = func(*recorder) abi.Cancel { cancel(); return abi.CancelNone }
		got := w.Execute(ctx, item(h, "spin-cancelled"))
		if got.Outcome != abi.OutcomeCancelled || !errors.Is(got.Err, context.Canceled) {
			t.Errorf("%+v", got)
		}
		// An ended context does not even begin, and costs no instance.
		w.Execute(context.Background(), item(newRecorder(), "ok"))
		kept := w.(*worker).in
		if got := w.Execute(ctx, item(newRecorder(), "ok")); got.Outcome != abi.OutcomeCancelled || w.(*worker).in != kept {
			t.Errorf("%+v", got)
		}
		// Asked politely, the guest unwinds.
		h = newRecorder()
		n := 0
		h.cancel = func(*recorder) abi.Cancel {
			if n++; n > 3 {
				return abi.CancelStop
			}
			return abi.CancelNone
		}
		if got := w.Execute(context.Background(), item(h, "spin-cancelled")); got.Outcome != abi.OutcomeCancelled || got.Status != abi.StatusCancelled {
			t.Errorf("%+v", got)
		}
		if got := w.Execute(context.Background(), item(newRecorder(), "nap:1")); got.Outcome != abi.OutcomeOK {
			t.Errorf("%+v", got)
		}
	})
}

func TestListeners(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	m := load(t, r, guest(t, "wat/listeners"))
	x, err := m.Executor(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	w := worked(t, x)
	defer w.Close()
	inv := item(newRecorder(), "")
	if got := w.Execute(context.Background(), inv); got.Status != 64 {
		t.Errorf("%+v", got)
	}
	inv.Context.ShardingItem = -1
	for export, want := range map[string]abi.Status{
		abi.ExportBefore: 1, abi.ExportAfter: 64, abi.ExportBeforeOnce: 0, abi.ExportAfterOnce: 0,
	} {
		if !x.HasListener(export) {
			t.Errorf("no %s", export)
		}
		for range 2 { // an instance of its own each time
			if got := w.Listen(context.Background(), export, inv); got.Status != want || got.Err != nil {
				t.Errorf("%s: %+v, want %d", export, got, want)
			}
		}
	}
	// And the items' instance went on undisturbed.
	if got := w.Execute(context.Background(), item(newRecorder(), "")); got.Status != 65 {
		t.Errorf("%+v", got)
	}
	none := newWorker(t, load(t, r, guest(t, "wat/noop")), Settings{})
	if got := none.Listen(context.Background(), abi.ExportBefore, inv); got.Outcome != abi.OutcomeError {
		t.Errorf("%+v", got)
	}
}
