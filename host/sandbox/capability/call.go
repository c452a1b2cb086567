package capability

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// Call is a request or connection in progress, for a run's trace. Methods of a nil Call do nothing. It is safe
// for concurrent use.
type Call struct {
	run    *Run
	parent string // the trace context for the server that is called

	mu    sync.Mutex
	call  abi.OutsideCall
	began time.Time
}

// sampled is the suffix of trace contexts that are recorded.
const sampled = "-01"

// Begin begins a call, without its span id and times; nil if calls are not recorded.
func (r *Run) Begin(c abi.OutsideCall) *Call {
	before, found := strings.CutSuffix(r.Info.Traceparent, sampled)
	cut := strings.LastIndexByte(before, '-')
	if r.Called == nil || !found || cut < 0 {
		return nil
	}
	c.Target = r.Redacted(c.Target)
	c.SpanID = fmt.Sprintf("%016x", rand.Uint64()|1) // never 0
	return &Call{run: r, parent: before[:cut+1] + c.SpanID + sampled, call: c}
}

// Traceparent is the trace context for the server: the run's if calls are not
// recorded.
func (c *Call) Traceparent(r *Run) string {
	if c == nil {
		return r.Info.Traceparent
	}
	return c.parent
}

func (c *Call) change(how func(*abi.OutsideCall)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	how(&c.call)
}

// Start says that the time of the call begins.
func (c *Call) Start() { c.change(func(*abi.OutsideCall) { c.began = time.Now() }) }

// Connect says that there is a connection.
func (c *Call) Connect() { c.change(func(o *abi.OutsideCall) { o.Connected = time.Since(c.began) }) }

// Answer notes the status of a response.
func (c *Call) Answer(status int) { c.change(func(o *abi.OutsideCall) { o.Status = status }) }

// Transfer counts bytes.
func (c *Call) Transfer(sent, received int64) {
	c.change(func(o *abi.OutsideCall) {
		o.Sent += sent
		o.Received += received
	})
}

// Fail notes why the call failed: the first reason counts. It ignores that the guest, or the end of its run,
// closes a call that was answered.
func (c *Call) Fail(err error) {
	c.change(func(o *abi.OutsideCall) {
		var f *Failure
		closed := errors.As(err, &f) && f.Code == abi.ErrCancelled && (o.Status != 0 || (o.Capability == "net" && o.Connected != 0))
		if !closed && o.Failure == "" {
			o.Failure = c.run.Redacted(err.Error())
		}
	})
}

// End reports the call.
func (c *Call) End() {
	c.change(func(o *abi.OutsideCall) { o.Took = time.Since(c.began) })
	if c != nil {
		c.run.Called(c.call)
	}
}
