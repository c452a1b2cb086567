package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// The text that ElasticJob 3.0 gives to a script.
func TestContextJSON(t *testing.T) {
	t.Parallel()
	c := &abi.ShardingContext{
		JobName: "ledgerClose", TaskID: "ledgerClose@-@0,1@-@READY@-@10.0.0.7@-@4711", ShardingTotalCount: 2,
		ShardingParameter: "EU", HasShardingParameter: true,
	}
	want := `{"jobName":"ledgerClose","taskId":"ledgerClose@-@0,1@-@READY@-@10.0.0.7@-@4711","shardingTotalCount":2,"jobParameter":"","shardingItem":0,"shardingParameter":"EU"}`
	if got := string(contextJSON(c)); got != want {
		t.Errorf("%s\n%s", got, want)
	}
	c.HasShardingParameter = false
	c.JobParameter = "a=b&<'>\"\\\n\t\x01 é北\u2028\xff"
	want = `{"jobName":"ledgerClose","taskId":"ledgerClose@-@0,1@-@READY@-@10.0.0.7@-@4711","shardingTotalCount":2,"jobParameter":"a\u003db\u0026\u003c\u0027\u003e\"\\\n\t\u0001 é北\u2028` + "\uFFFD" + `","shardingItem":0}`
	if got := string(contextJSON(c)); got != want {
		t.Errorf("%s\n%s", got, want)
	}
}

func TestScript(t *testing.T) {
	t.Parallel()
	r := newRuntime(t, Options{})
	m := loadGo(t, "gocommand")
	run := func(ctx context.Context, inv *abi.Invocation, args ...string) abi.Result {
		w := newWorker(t, m, Settings{Args: args, Env: map[string]string{"GRANTED": "yes", "JOB_NAME": "lie"}})
		return w.Execute(ctx, inv)
	}
	h := newRecorder()
	inv := item(h, "k=v")
	inv.Context.ShardingParameter, inv.Context.HasShardingParameter = "Beijing", true
	inv.Context.Deadline = time.UnixMilli(99)
	inv.Offset, inv.HasOffset = []byte("o1"), true
	if got := run(context.Background(), inv, "tell", "two words"); got.Outcome != abi.OutcomeOK {
		t.Fatalf("%+v", got)
	}
	json := `{"jobName":"probe","taskId":"probe@-@0,1,2@-@READY@-@10.0.0.7@-@4711","shardingTotalCount":3,"jobParameter":"k\u003dv","shardingItem":2,"shardingParameter":"Beijing"}`
	want := []string{
		"arg 0 guest", "arg 1 tell", "arg 2 two words", "arg 3 " + json,
		"env GRANTED=yes", "env JOB_ATTEMPT=1", "env JOB_DEADLINE_MS=99", "env JOB_FIRE_TIME_MS=1700000000123",
		"env JOB_NAME=probe", "env JOB_OFFSET=o1", "env JOB_PARAMETER=k=v", "env JOB_SHARDING_ITEM=2",
		"env JOB_SHARDING_PARAMETER=Beijing", "env JOB_SHARDING_TOTAL_COUNT=3",
		"env JOB_TASK_ID=probe@-@0,1,2@-@READY@-@10.0.0.7@-@4711",
	}
	got := h.texts()
	for i, w := range want {
		if i >= len(got) || got[i] != w {
			t.Errorf("line %d: %q, want %q", i, got[i], w)
		}
	}
	if last := got[len(got)-2]; !strings.HasPrefix(last, `stdin "{\"jobName\":`) || !strings.HasSuffix(last, `}\n" <nil>`) {
		t.Errorf("%q", last)
	}
	if e := h.lines[len(h.lines)-1]; e.level != abi.LevelError || e.msg != "and an error line" {
		t.Errorf("%+v", e)
	}

	for _, c := range []struct {
		args    []string
		outcome abi.Outcome
		message string
	}{
		{[]string{"exit", "0"}, abi.OutcomeOK, ""},
		{[]string{"exit", "75"}, abi.OutcomeRetry, "exited with code 75: leaving"},
		{[]string{"exit", "3"}, abi.OutcomeExit, "_start: guest exited with code 3: leaving"},
		{[]string{"panic"}, abi.OutcomeExit, "_start: guest exited with code 2: panic: script went wrong"},
	} {
		got := run(context.Background(), item(newRecorder(), ""), c.args...)
		if got.Outcome != c.outcome || got.Message != c.message {
			t.Errorf("%v: %+v", c.args, got)
		}
	}
	for _, p := range []string{"spin", "sleep"} {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		got := run(ctx, item(newRecorder(), ""), p)
		cancel()
		if got.Outcome != abi.OutcomeTimeout || !errors.Is(got.Err, context.DeadlineExceeded) {
			t.Errorf("%s: %+v", p, got)
		}
	}
	if got := run(context.Background(), item(newRecorder(), "a\x00b"), "exit", "0"); got.Outcome != abi.OutcomeError || !strings.Contains(got.Message, "the job's parameter contains a NUL byte") {
		t.Errorf("%+v", got)
	}
	bare := newWorker(t, load(t, r, guest(t, "wat/command")), Settings{Type: wasm.TypeScript})
	for range 2 {
		if got := bare.Execute(context.Background(), item(newRecorder(), "")); got.Outcome != abi.OutcomeOK || got.Memory != wasm.PageSize {
			t.Errorf("%+v", got)
		}
	}
}
