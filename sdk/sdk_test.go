package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	for name, test := range map[string]struct {
		err     error
		cancel  abi.Cancel
		outcome abi.Outcome
		status  abi.Status
		message string
	}{
		"nil":                    {nil, 0, abi.OutcomeOK, 0, ""},
		"nil although cancelled": {nil, abi.CancelStop, abi.OutcomeOK, 0, ""},
		"error":                  {cause, 0, abi.OutcomeFail, 1, "connection refused"},
		"retry":                  {sdk.Retry(cause), 0, abi.OutcomeRetry, 2, "connection refused"},
		"retry at":               {sdk.RetryAt(time.Now().Add(time.Hour), cause), 0, abi.OutcomeRetryAt, 2, "connection refused"},
		"wrapped retry at":       {fmt.Errorf("settle: %w", sdk.PauseKey(time.Now().Add(time.Hour), cause)), 0, abi.OutcomeRetryAt, 2, "settle: connection refused"},
		"retry at a time past":   {sdk.RetryAt(time.Time{}, cause), 0, abi.OutcomeRetryAt, 2, "connection refused"},
		"retry at no reason":     {sdk.RetryAt(time.Unix(1, 0), nil), 0, abi.OutcomeRetryAt, 2, "not before 1970-01-01T00:00:01Z"},
		"retry at too late":      {sdk.RetryAt(time.Now().Add(31*24*time.Hour), cause), 0, abi.OutcomeFail, 1, "run again at a time: argument is malformed or out of range: connection refused"},
		"retry at, cancelled":    {sdk.RetryAt(time.Now(), context.Canceled), abi.CancelYield, abi.OutcomeCancelled, 3, "context canceled"},
		"wrapped retry":          {fmt.Errorf("settle: %w", sdk.Retry(cause)), 0, abi.OutcomeRetry, 2, "settle: connection refused"},
		"joined retry":           {errors.Join(io.EOF, sdk.Retry(cause)), 0, abi.OutcomeRetry, 2, "EOF\nconnection refused"},
		"retry of nil":           {sdk.Retry(nil), 0, abi.OutcomeOK, 0, ""},
		"own code":               {sdk.Fail(70, cause), 0, abi.OutcomeFail, 70, "connection refused"},
		"own code, no error":     {sdk.Fail(70, nil), 0, abi.OutcomeOK, 0, ""},
		"reserved code":          {sdk.Fail(7, cause), 0, abi.OutcomeFail, 1, "connection refused"},
		"code over 255":          {sdk.Fail(256, cause), 0, abi.OutcomeFail, 1, "connection refused"},
		"outer mark wins":        {sdk.Fail(70, sdk.Retry(cause)), 0, abi.OutcomeFail, 70, "connection refused"},
		"cancelled":              {context.Canceled, abi.CancelStop, abi.OutcomeCancelled, 3, "context canceled"},
		"cancelled, own timeout": {context.DeadlineExceeded, 0, abi.OutcomeFail, 1, "context deadline exceeded"},
		"not by the host":        {context.Canceled, 0, abi.OutcomeFail, 1, "context canceled"},
		"other error, cancelled": {cause, abi.CancelStop, abi.OutcomeFail, 1, "connection refused"},
		"retry of a cancelled":   {sdk.Retry(context.Canceled), abi.CancelYield, abi.OutcomeCancelled, 3, "context canceled"},
		"lost":                   {fmt.Errorf("save: %w", sdk.ErrConflict), abi.CancelLost, abi.OutcomeCancelled, 3, "save: the item is no longer owned by this host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &sdktest.Host{OnCancelled: func(int) abi.Cancel { return test.cancel }}
			r := h.Run(func(context.Context, sdk.ShardingContext) error { return test.err })
			if r.Outcome != test.outcome || r.Status != test.status || r.Message != test.message {
				t.Errorf("got %s %d %q, want %s %d %q", r.Outcome, r.Status, r.Message, test.outcome, test.status, test.message)
			}
		})
	}
}

func TestMarksKeepTheError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{sdk.Retry(io.EOF), sdk.Fail(64, io.EOF)} {
		if !errors.Is(err, io.EOF) || err.Error() != "EOF" {
			t.Errorf("%#v hides its cause", err)
		}
	}
}

func TestShardingContext(t *testing.T) {
	t.Parallel()
	at := func(s string) time.Time {
		v, err := time.ParseInLocation(time.DateTime, s, time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := sdktest.Context{
		JobName: "billing", TaskID: "billing@-@2@-@READY@-@10.0.0.1@-@7", ShardingTotalCount: 3, ShardingItem: 2,
		JobParameter:      strings.Repeat("long ", 2000), // over any first buffer
		ShardingParameter: "Guangzhou", HasShardingParameter: true,
		FireTime: at("2026-03-01 00:00:05"), PreviousFireTime: at("2026-03-01 00:00:00"), NextFireTime: at("2026-03-01 00:00:10"),
		Attempt: 2, Deadline: at("2099-01-01 00:00:00"), Fence: 1 << 40, FetchDataCount: 500, RunID: "billing/1/2",
		Source: abi.SourceFailover, PluginConfig: []byte{0, 1, 0xff}, Traceparent: "00-aa-bb-01", HostInfo: "wasmjob",
	}
	h := &sdktest.Host{Context: want}
	var got sdktest.Context
	r := h.Run(func(ctx context.Context, sc sdk.ShardingContext) error {
		got = sdktest.Context{
			JobName: sc.JobName, TaskID: sc.TaskID(), ShardingTotalCount: sc.ShardingTotalCount, ShardingItem: sc.ShardingItem,
			JobParameter: sc.JobParameter, ShardingParameter: sc.ShardingParameter, HasShardingParameter: sc.HasShardingParameter,
			FireTime: sc.FireTime, PreviousFireTime: sc.PreviousFireTime, NextFireTime: sc.NextFireTime,
			Attempt: sc.Attempt, Deadline: sc.Deadline, Fence: sc.Fence, FetchDataCount: sc.FetchDataCount, RunID: sc.RunID,
			Source: sc.Source, PluginConfig: sc.PluginConfig(), Traceparent: sc.Traceparent(), HostInfo: sc.HostInfo(),
		}
		if d, ok := ctx.Deadline(); !ok || !d.Equal(want.Deadline) {
			return fmt.Errorf("deadline %v %v", d, ok)
		}
		return nil
	})
	if r.Outcome != abi.OutcomeOK {
		t.Fatal(r.Message)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestShardingContextOfNothing(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{Listener: true}
	r := h.Run(func(ctx context.Context, sc sdk.ShardingContext) error {
		if sc.ShardingItem != -1 || sc.HasShardingParameter || !sc.Deadline.IsZero() || !sc.NextFireTime.IsZero() || sc.PluginConfig() != nil || sc.Traceparent() != "" {
			return fmt.Errorf("%+v", sc)
		}
		if _, ok := ctx.Deadline(); ok {
			return errors.New("a deadline out of nothing")
		}
		if _, ok := sdk.Offset(); ok {
			return errors.New("a listener has an offset")
		}
		if err := sdk.SetOffset(nil); !errors.Is(err, sdk.ErrState) {
			return fmt.Errorf("SetOffset: %v", err)
		}
		if err := sdk.CommitOffset(); !errors.Is(err, sdk.ErrState) {
			return fmt.Errorf("CommitOffset: %v", err)
		}
		return nil
	})
	if r.Outcome != abi.OutcomeOK {
		t.Error(r.Message)
	}
}

func TestOffset(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{}
	large := strings.Repeat("x", abi.MaxOffset)
	ok := func(want string, found bool, after error, set ...string) {
		t.Helper()
		r := h.Run(func(context.Context, sdk.ShardingContext) error {
			if b, ok := sdk.Offset(); string(b) != want || ok != found {
				t.Errorf("offset %d bytes %v, want %d bytes %v", len(b), ok, len(want), found)
			}
			for _, s := range set {
				if err := sdk.SetOffset([]byte(s)); err != nil {
					t.Error(err)
				}
				if b, ok := sdk.Offset(); string(b) != s || !ok {
					t.Errorf("read back %q", b)
				}
			}
			return after
		})
		if (r.Outcome == abi.OutcomeOK) != (after == nil) {
			t.Errorf("outcome %s %s", r.Outcome, r.Message)
		}
	}
	ok("", false, nil)
	ok("", false, io.EOF, "1") // a failure discards
	ok("", false, nil, "1", "2")
	ok("2", true, nil, large)
	ok(large, true, nil, "")
	ok("", true, nil)
	if h.Commits() != 3 {
		t.Errorf("%d commits, want 3", h.Commits())
	}

	r := h.Run(func(context.Context, sdk.ShardingContext) error { return sdk.SetOffset([]byte(large + "x")) })
	if want := "set offset: value is over its limit"; r.Message != want {
		t.Errorf("got %q, want %q", r.Message, want)
	}
	h.OnCommit = func([]byte) abi.Code { return abi.ErrUnavailable }
	r = h.Run(func(context.Context, sdk.ShardingContext) error {
		if err := sdk.SetOffset([]byte("3")); err != nil {
			return err
		}
		err := sdk.CommitOffset()
		var code sdk.Errno
		if !errors.As(err, &code) || code != sdk.ErrUnavailable || abi.Code(code) != abi.ErrUnavailable {
			return fmt.Errorf("unexpected %w", err)
		}
		return sdk.Retry(err)
	})
	if r.Outcome != abi.OutcomeRetry || r.Message != "commit offset: registry or network is unavailable" {
		t.Errorf("got %s %q", r.Outcome, r.Message)
	}
	if len(h.Offset) != 0 {
		t.Errorf("offset %q was committed", h.Offset)
	}
}

func TestErrnoTexts(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for code := abi.ErrInternal; code < abi.OK; code++ {
		text := sdk.Errno(code).Error()
		if seen[text] || strings.HasPrefix(text, "host code") {
			t.Errorf("%d: %q", code, text)
		}
		seen[text] = true
	}
	if got := sdk.Errno(-60).Error(); got != "host code -60" {
		t.Error(got)
	}
}

func TestMetricsAndProgress(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{}
	r := h.Run(func(context.Context, sdk.ShardingContext) error {
		sdk.Progress(1, 4)
		sdk.Progress(2, 0)
		if err := sdk.Counter("Orders", 1); !errors.Is(err, sdk.ErrInvalid) {
			return fmt.Errorf("bad name: %v", err)
		}
		return errors.Join(sdk.Counter("orders", 3), sdk.Gauge("open", -1), sdk.Histogram("cents", 1999))
	})
	if r.Outcome != abi.OutcomeOK {
		t.Fatal(r.Message)
	}
	if want := []sdktest.Progress{{Done: 1, Total: 4}, {Done: 2}}; !slices.Equal(h.Progress(), want) {
		t.Errorf("progress %v, want %v", h.Progress(), want)
	}
	want := []sdktest.Metric{{Kind: abi.MetricCounter, Name: "orders", Value: 3}, {Kind: abi.MetricGauge, Name: "open", Value: -1}, {Kind: abi.MetricHistogram, Name: "cents", Value: 1999}}
	if !slices.Equal(h.Metrics(), want) {
		t.Errorf("metrics %v, want %v", h.Metrics(), want)
	}
}

func TestMetricNames(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{}
	r := h.Run(func(context.Context, sdk.ShardingContext) error {
		for i := range abi.MaxMetricNames {
			if err := sdk.Counter(fmt.Sprintf("m%d", i), 1); err != nil {
				return err
			}
		}
		if err := sdk.Counter("m0", 1); err != nil {
			return err
		}
		return sdk.Counter("one_more", 1)
	})
	if want := "metric one_more: budget is used up"; r.Message != want {
		t.Errorf("got %q, want %q", r.Message, want)
	}
}

type named struct{ n *int }

func (n named) value() int { return *n.n }

func TestPanic(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler sdk.Handler
		message string
	}{
		"value":  {func(context.Context, sdk.ShardingContext) error { panic("no such city") }, "panic: no such city, at "},
		"error":  {func(context.Context, sdk.ShardingContext) error { panic(io.EOF) }, "panic: EOF, at "},
		"nil":    {func(context.Context, sdk.ShardingContext) error { named{}.value(); return nil }, "panic: runtime error: invalid memory address or nil pointer dereference, at "},
		"offset": {func(context.Context, sdk.ShardingContext) error { return indexOutOfRange(nil) }, "panic: runtime error: index out of range [3] with length 0, at "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &sdktest.Host{Offset: []byte("7")}
			r := h.Run(func(ctx context.Context, sc sdk.ShardingContext) error {
				if err := sdk.SetOffset([]byte("8")); err != nil {
					return err
				}
				return test.handler(ctx, sc)
			})
			if r.Outcome != abi.OutcomeTrap || !strings.HasPrefix(r.Message, test.message) || !strings.Contains(r.Message, "sdk_test.go:") {
				t.Errorf("got %s %q, want TRAP %q with the place", r.Outcome, r.Message, test.message)
			}
			if r.Err == nil {
				t.Error("no error with the stack")
			}
			if string(h.Offset) != "7" {
				t.Errorf("offset %q survived the trap", h.Offset)
			}
			logs := h.Logs()
			if len(logs) != 1 || logs[0].Level != 8 || logs[0].Message != r.Message {
				t.Fatalf("logs %v", logs)
			}
			if stack := logs[0].Attr("stack"); !strings.HasPrefix(stack, "panic(") || !strings.Contains(stack, "sdk_test.go") {
				t.Errorf("stack %s", stack)
			}
		})
	}
}

func indexOutOfRange(list []error) error { return list[len(list)+3] }

// TestGoexit: a test that gives up within its handler ends as it wants to, and
// leaves the process to the next one.
func TestGoexit(t *testing.T) {
	t.Parallel()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		h := &sdktest.Host{}
		h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
			ctx.Done()
			runtime.Goexit()
			return nil
		})
		t.Error("run returned")
	}()
	<-ended
	h := &sdktest.Host{}
	if r := h.Run(func(context.Context, sdk.ShardingContext) error { return nil }); r.Outcome != abi.OutcomeOK {
		t.Error(r)
	}
}

func TestNoHandler(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{}
	r := h.Run(nil)
	if r.Outcome != abi.OutcomeFail || !strings.Contains(r.Message, "init") {
		t.Errorf("got %s %q", r.Outcome, r.Message)
	}
}

func TestErrAsksTheHost(t *testing.T) {
	t.Parallel()
	h := &sdktest.Host{OnCancelled: func(question int) abi.Cancel {
		if question > 3 {
			return abi.CancelYield
		}
		return abi.CancelNone
	}}
	rounds := 0
	r := h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
		for ctx.Err() == nil {
			rounds++
		}
		if cause := context.Cause(ctx); cause.Error() != "cancelled: the item is to move to another host" || !errors.Is(cause, context.Canceled) {
			t.Errorf("cause %v", cause)
		}
		if sdk.Cancelled() != abi.CancelYield {
			t.Errorf("reason %d", sdk.Cancelled())
		}
		return ctx.Err()
	})
	if r.Outcome != abi.OutcomeCancelled || rounds != 3 {
		t.Errorf("%s after %d rounds, want CANCELLED after 3", r.Outcome, rounds)
	}
}

func TestCauses(t *testing.T) {
	t.Parallel()
	for reason, is := range map[abi.Cancel]error{
		abi.CancelDeadline: context.DeadlineExceeded,
		abi.CancelLost:     sdk.ErrConflict,
		abi.CancelStop:     context.Canceled,
		abi.CancelAbort:    context.Canceled,
		99:                 context.Canceled,
	} {
		h := &sdktest.Host{}
		h.Cancel(reason)
		r := h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), is) {
				t.Errorf("reason %d: cause %v is not %v", reason, context.Cause(ctx), is)
			}
			return context.Cause(ctx)
		})
		if r.Outcome != abi.OutcomeCancelled {
			t.Errorf("reason %d: %s %s", reason, r.Outcome, r.Message)
		}
	}
}

// TestDoneWakes: a handler that waits for Done hears of a cancellation that
// comes while it waits, and so do contexts made from its own.
func TestDoneWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		h := &sdktest.Host{Context: sdktest.Context{Deadline: begin.Add(10 * time.Second)}}
		r := h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			<-child.Done()
			return child.Err()
		})
		if r.Outcome != abi.OutcomeCancelled {
			t.Errorf("got %s %q", r.Outcome, r.Message)
		}
		if took := time.Since(begin); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("woke after %v", took)
		}
	})
}

// TestContextEndsWithTheHandler: the bubble fails if a goroutine is left.
func TestContextEndsWithTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &sdktest.Host{}
		var kept context.Context
		r := h.Run(func(ctx context.Context, _ sdk.ShardingContext) error {
			kept = ctx
			select {
			case <-ctx.Done():
				return ctx.Err()
			default:
				return nil
			}
		})
		if r.Outcome != abi.OutcomeOK {
			t.Error(r.Message)
		}
		<-kept.Done()
		if kept.Err() == nil {
			t.Error("the context lives on")
		}
	})
}

// TestNobodyThere: outside of a run there is no host. It is not parallel, so
// that no other test has one.
func TestNobodyThere(t *testing.T) {
	sdk.Progress(1, 2)
	if err := sdk.Counter("orders", 1); !errors.Is(err, sdk.ErrState) {
		t.Errorf("counter: %v", err)
	}
	if err := sdk.SetOffset([]byte("1")); !errors.Is(err, sdk.ErrState) {
		t.Errorf("offset: %v", err)
	}
	if b, ok := sdk.Offset(); ok {
		t.Errorf("offset %q", b)
	}
	if sdk.Cancelled() != abi.CancelNone {
		t.Error("cancelled")
	}
	if sdk.LogHandler().Enabled(t.Context(), 100) {
		t.Error("a log goes nowhere")
	}
}
