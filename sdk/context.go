package sdk

import (
	"context"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// shardingContext asks the host for everything it knows about the invocation.
// A field that this host does not know stays zero.
func shardingContext() ShardingContext {
	var room [1 << 10]byte // most fields fit: one call each
	text := func(field uint32) string {
		b, _ := read(room[:], func(buf []byte) int32 { return border.CtxStr(field, buf) })
		return string(b)
	}
	number := func(field uint32) int64 { return max(0, border.CtxInt(field)) }
	instant := func(field uint32) time.Time {
		if ms := border.CtxInt(field); ms > 0 {
			return time.UnixMilli(ms)
		}
		return time.Time{}
	}
	sc := ShardingContext{
		JobName:            text(abi.CtxJobName),
		TaskID:             text(abi.CtxTaskID),
		ShardingTotalCount: int(number(abi.CtxTotalCount)),
		JobParameter:       text(abi.CtxJobParameter),
		ShardingItem:       -1,
		FireTime:           instant(abi.CtxFireTime),
		PreviousFireTime:   instant(abi.CtxPreviousFire),
		NextFireTime:       instant(abi.CtxNextFire),
		Attempt:            int(number(abi.CtxAttempt)),
		Deadline:           instant(abi.CtxDeadline),
		Fence:              number(abi.CtxFence),
		FetchDataCount:     int(number(abi.CtxFetchDataCount)),
		RunID:              text(abi.CtxRunID),
		Source:             abi.Source(text(abi.CtxSource)),
		Traceparent:        text(abi.CtxTraceparent),
		HostInfo:           text(abi.CtxHostInfo),
	}
	if item := border.CtxInt(abi.CtxItem); item >= 0 {
		sc.ShardingItem = int(item)
	}
	parameter, code := read(room[:], func(buf []byte) int32 { return border.CtxStr(abi.CtxItemParameter, buf) })
	sc.ShardingParameter, sc.HasShardingParameter = string(parameter), code == abi.OK
	config, code := read(room[:], func(buf []byte) int32 { return border.CtxStr(abi.CtxPluginConfig, buf) })
	if code == abi.OK && len(config) > 0 {
		sc.PluginConfig = append([]byte(nil), config...)
	}
	return sc
}

// read calls get with room, and again with a larger buffer while the value
// does not fit. The result lies in room if it fits there.
func read(room []byte, get func(buf []byte) int32) ([]byte, abi.Code) {
	for {
		n := get(room)
		if n < 0 {
			return nil, abi.Code(n)
		}
		if int(n) <= len(room) {
			return room[:n], abi.OK
		}
		room = make([]byte, n)
	}
}

// Cancelled asks the host whether the invocation is being cancelled, and why.
// abi.CancelNone is "run on". After abi.CancelLost no commit works any more;
// after the other reasons it still does until the deadline.
func Cancelled() abi.Cancel {
	return max(abi.CancelNone, abi.Cancel(border.Cancelled()))
}

// pollInterval is how often the host is asked while somebody waits for Done.
const pollInterval = 50 * time.Millisecond

// invocation is the context of one invocation. The host cannot call into a
// running guest, so the guest asks: Err and Done ask the host each time, and
// once somebody holds the channel of Done a goroutine asks every pollInterval,
// whenever the handler waits for something and lets it run. Code that computes
// without waiting sees a cancellation only when it calls Err; contexts derived
// from this one learn it when this one does.
type invocation struct {
	context.Context // holds the values and the cause
	cancel          context.CancelCauseFunc
	deadline        time.Time

	mu            sync.Mutex
	stop, stopped chan struct{} // of the goroutine; nil before there is one
}

func newInvocation(deadline time.Time) *invocation {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &invocation{Context: ctx, cancel: cancel, deadline: deadline}
}

// Deadline is when the host stops the guest by force. The context is done
// some time before, so that the handler can come to an end by itself.
func (c *invocation) Deadline() (time.Time, bool) {
	return c.deadline, !c.deadline.IsZero()
}

// Err is context.Canceled from when the host cancels the invocation;
// context.Cause tells why.
func (c *invocation) Err() error {
	c.poll()
	return c.Context.Err()
}

func (c *invocation) Done() <-chan struct{} {
	c.poll()
	c.watch()
	return c.Context.Done()
}

func (c *invocation) poll() {
	if c.Context.Err() != nil {
		return
	}
	if reason := Cancelled(); reason != abi.CancelNone {
		c.cancel(cancelError(reason))
	}
}

// watch starts the asking goroutine, once; end joins it.
func (c *invocation) watch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil || c.Context.Err() != nil {
		return
	}
	c.stop, c.stopped = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(c.stopped)
		t := time.NewTicker(pollInterval)
		defer t.Stop()
		for c.Context.Err() == nil {
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
	if c.stop == nil {
		c.stop, c.stopped = make(chan struct{}), make(chan struct{})
		close(c.stopped)
	}
	c.mu.Unlock()
	close(c.stop)
	<-c.stopped
	c.cancel(errEnded)
}
