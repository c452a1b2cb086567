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
	var room [1 << 10]byte // most texts fit: one call each
	parameter, code := ctxStr(abi.CtxItemParameter, room[:])
	sc := ShardingContext{
		JobName:              ctxText(abi.CtxJobName, room[:]),
		TaskID:               ctxText(abi.CtxTaskID, room[:]),
		ShardingTotalCount:   int(ctxNumber(abi.CtxTotalCount)),
		JobParameter:         ctxText(abi.CtxJobParameter, room[:]),
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
		RunID:                ctxText(abi.CtxRunID, room[:]),
		Source:               abi.Source(ctxText(abi.CtxSource, room[:])),
		Traceparent:          ctxText(abi.CtxTraceparent, room[:]),
		HostInfo:             ctxText(abi.CtxHostInfo, room[:]),
	}
	if item := border.CtxInt(abi.CtxItem); item >= 0 {
		sc.ShardingItem = int(item)
	}
	if config := ctxText(abi.CtxPluginConfig, room[:]); config != "" {
		sc.PluginConfig = []byte(config)
	}
	return sc
}

func ctxText(field uint32, room []byte) string {
	s, _ := ctxStr(field, room)
	return s
}

// ctxStr reads a text by way of room, or of a larger buffer if it does not fit.
func ctxStr(field uint32, room []byte) (string, abi.Code) {
	for {
		n := border.CtxStr(field, room)
		if n < 0 {
			return "", abi.Code(n)
		}
		if int(n) <= len(room) {
			return string(room[:n]), abi.OK
		}
		room = make([]byte, n)
	}
}

func ctxNumber(field uint32) int64 { return max(0, border.CtxInt(field)) }

func ctxTime(field uint32) time.Time {
	if ms := border.CtxInt(field); ms > 0 {
		return time.UnixMilli(ms)
	}
	return time.Time{}
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
	ended         bool
	stop, stopped chan struct{} // of the goroutine; nil if there is none
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
	if c.stop != nil || c.ended || c.Context.Err() != nil {
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
	c.ended = true
	stop, stopped := c.stop, c.stopped
	c.mu.Unlock()
	if stop != nil {
		close(stop)
		<-stopped
	}
	c.cancel(errEnded)
}
