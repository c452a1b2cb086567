package sdk

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// ShardingContext says what a handler should do: which item of how many, the parameters of the item and of the job, and
// for which fire. RunID and Fence make the handler's effects idempotent. Long or rarely needed values are methods.
type ShardingContext struct {
	JobName            string
	ShardingTotalCount int
	JobParameter       string
	// ShardingItem counts from 0. It is -1 in a listener, which has no item.
	ShardingItem int
	// ShardingParameter is the item's parameter. HasShardingParameter is
	// false when the configuration names none for this item.
	ShardingParameter    string
	HasShardingParameter bool
	// FireTime is the scheduled instant, not the moment of the call.
	FireTime time.Time
	// PreviousFireTime and NextFireTime are zero when there is none.
	PreviousFireTime, NextFireTime time.Time
	// Attempt counts from 1 within a fire.
	Attempt int
	// Deadline is zero without a time limit.
	Deadline time.Time
	// Fence is the fence token of this begin of the item: each later begin has a greater one.
	Fence int64
	// FetchDataCount is the preferred batch size of a DATAFLOW job, 100 if its configuration has none; 0 for other jobs.
	FetchDataCount int
	// RunID is unique for each fire and item, and the same for all attempts.
	RunID string
	// Source says why the job fires.
	Source abi.Source
}

// The methods ask the host about the current invocation: call them from the handler, or from goroutines that the handler
// waits for.

// TaskID returns the name of the fire in ElasticJob's form, with all items of the fire on this host.
func (ShardingContext) TaskID() string { return ctxText(abi.CtxTaskID) }

// PluginConfig returns the operator's configuration for the module, nil without one.
func (ShardingContext) PluginConfig() []byte {
	if config := ctxText(abi.CtxPluginConfig); config != "" {
		return []byte(config)
	}
	return nil
}

// Traceparent returns the W3C trace context of the invocation, "" without one.
func (ShardingContext) Traceparent() string { return ctxText(abi.CtxTraceparent) }

// HostInfo returns the host's description of itself, for people.
func (ShardingContext) HostInfo() string { return ctxText(abi.CtxHostInfo) }

// shardingContext asks the host for what nearly every handler wants to know. A
// field that this host does not know stays zero.
func shardingContext() ShardingContext {
	parameter, code := ctxStr(abi.CtxItemParameter)
	sc := ShardingContext{
		JobName:              ctxText(abi.CtxJobName),
		ShardingTotalCount:   int(ctxNumber(abi.CtxTotalCount)),
		JobParameter:         ctxText(abi.CtxJobParameter),
		ShardingItem:         -1,
		ShardingParameter:    parameter,
		HasShardingParameter: code == abi.OK,
		FireTime:             ctxTime(abi.CtxFireTime),
		PreviousFireTime:     ctxTime(abi.CtxPreviousFire),
		NextFireTime:         ctxTime(abi.CtxNextFire),
		Attempt:              int(ctxNumber(abi.CtxAttempt)),
		Deadline:             ctxTime(abi.CtxDeadline),
		Fence:                ctxNumber(abi.CtxFence),
		FetchDataCount:       int(ctxNumber(abi.CtxFetchDataCount)),
		RunID:                ctxText(abi.CtxRunID),
		Source:               source(),
	}
	if item := border.CtxInt(abi.CtxItem); item >= 0 {
		sc.ShardingItem = int(item)
	}
	return sc
}

// source reads why the job fires, mostly without an allocation.
func source() abi.Source {
	var short [16]byte
	if n := border.CtxStr(abi.CtxSource, short[:]); n >= 0 && int(n) <= len(short) {
		for _, known := range [...]abi.Source{abi.SourceSchedule, abi.SourceTrigger, abi.SourceMisfire, abi.SourceFailover, abi.SourceCatchUp, abi.SourceBackfill} {
			if string(short[:n]) == string(known) {
				return known
			}
		}
	}
	return abi.Source(ctxText(abi.CtxSource))
}

func ctxText(field uint32) string {
	s, _ := ctxStr(field)
	return s
}

// ctxStr reads a text: most are short, and need one call.
func ctxStr(field uint32) (string, abi.Code) {
	var short [128]byte
	n := border.CtxStr(field, short[:])
	if n < 0 {
		return "", abi.Code(n)
	}
	if int(n) <= len(short) {
		return string(short[:n]), abi.OK
	}
	return longStr(field, n)
}

// longStr reads a text whose length the host has given.
func longStr(field uint32, n int32) (string, abi.Code) {
	for {
		room := make([]byte, n)
		if n = border.CtxStr(field, room); n < 0 {
			return "", abi.Code(n)
		}
		if int(n) <= len(room) {
			return unsafe.String(unsafe.SliceData(room), n), abi.OK // it does not change any more
		}
	}
}

func ctxNumber(field uint32) int64 { return max(0, border.CtxInt(field)) }

func ctxTime(field uint32) time.Time {
	if ms := border.CtxInt(field); ms > 0 {
		return time.UnixMilli(ms)
	}
	return time.Time{}
}

// Cancelled asks the host whether the invocation is being cancelled, and why. abi.CancelNone means that it continues.
// After abi.CancelLost no commit succeeds; after the other reasons commits succeed until the deadline.
func Cancelled() abi.Cancel {
	return max(abi.CancelNone, abi.Cancel(border.Cancelled()))
}

// pollInterval is how often the host is asked while the guest waits for Done.
const pollInterval = 50 * time.Millisecond

// invocation is the context of one invocation. The host cannot call into a running guest, so that the guest asks: Err and
// Done ask the host each time. Once a goroutine has called Done, another goroutine asks every pollInterval, whenever the
// handler waits and lets it run. Code that computes without waiting sees a cancellation only when it calls Err; derived
// contexts see it when this one does.
type invocation struct {
	deadline time.Time

	mu            sync.Mutex
	inner         context.Context // made when somebody wants more than the deadline
	cancel        context.CancelCauseFunc
	ended         bool
	stop, stopped chan struct{} // of the goroutine; nil if there is none
}

// context is the context that holds the cancellation, made on demand: many
// handlers do not look.
func (c *invocation) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner == nil {
		c.inner, c.cancel = context.WithCancelCause(context.Background())
		if c.ended {
			c.cancel(errEnded)
		}
	}
	return c.inner
}

// Deadline returns when the host stops the guest by force. The context is done some time before, so that the handler can
// end by itself.
func (c *invocation) Deadline() (time.Time, bool) {
	return c.deadline, !c.deadline.IsZero()
}

// Err is context.Canceled from when the host cancels the invocation;
// context.Cause says why.
func (c *invocation) Err() error {
	c.poll()
	return c.context().Err()
}

func (c *invocation) Done() <-chan struct{} {
	c.poll()
	c.watch()
	return c.context().Done()
}

// Value returns no values of its own, only what derived contexts need to find the cancellation and its cause.
func (c *invocation) Value(key any) any { return c.context().Value(key) }

func (c *invocation) poll() {
	ctx := c.context()
	if ctx.Err() != nil {
		return
	}
	if reason := Cancelled(); reason != abi.CancelNone {
		c.cancel(cancelError(reason))
	}
}

// watch starts the asking goroutine, once; end joins it.
func (c *invocation) watch() {
	ctx := c.context()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil || c.ended || ctx.Err() != nil {
		return
	}
	c.stop, c.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(c.stopped)
		t := time.NewTicker(pollInterval)
		defer t.Stop()
		for ctx.Err() == nil {
			select {
			case <-c.stop:
				return
			case <-t.C:
				c.poll()
			}
		}
	}()
}

// end ends the context when the handler has returned.
func (c *invocation) end() {
	c.mu.Lock()
	c.ended = true
	stop, stopped, cancel := c.stop, c.stopped, c.cancel
	c.mu.Unlock()
	if stop != nil {
		close(stop)
		<-stopped
	}
	if cancel != nil {
		cancel(errEnded)
	}
}
