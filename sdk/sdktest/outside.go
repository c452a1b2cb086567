package sdktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// outside is what one run has open in the world that the test made.
type outside struct {
	job    string
	ctx    context.Context // of all that goes on; ends with the run
	cancel context.CancelFunc
	pumps  sync.WaitGroup // the goroutines of the streams

	mu      sync.Mutex
	changed *sync.Cond // of a stream; for the pumps
	streams map[int32]*stream
	next    int32
	sent    int // requests
	ready   []*stream
	last    string        // why the newest call that failed did
	asked   bool          // the guest knows that it is being cancelled
	wake    chan struct{} // has room for one; for wait
}

func newOutside(job string) *outside {
	o := &outside{job: job, streams: make(map[int32]*stream), wake: make(chan struct{}, 1)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.changed = sync.NewCond(&o.mu)
	return o
}

// close ends all that is open.
func (o *outside) close() {
	o.mu.Lock()
	for _, s := range o.streams {
		o.drop(s)
	}
	o.mu.Unlock()
	o.cancel()
	o.pumps.Wait()
}

// fail notes a reason. It is called with the lock held.
func (o *outside) fail(code abi.Code, format string, args ...any) int32 {
	o.last = fmt.Sprintf(format, args...)
	return int32(code)
}

func (o *outside) refuse(code abi.Code, format string, args ...any) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fail(code, format, args...)
}

// open makes a stream; start begins what it stands for.
func (o *outside) open(start func(s *stream)) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return o.fail(abi.ErrCancelled, "the run is over")
	}
	if len(o.streams) >= abi.MaxHandles {
		return o.fail(abi.ErrQuota, "%d handles are open, which is the limit: close those that are done with", abi.MaxHandles)
	}
	o.next++
	s := &stream{o: o, id: o.next}
	s.ctx, s.cancel = context.WithCancel(o.ctx)
	o.streams[s.id] = s
	start(s)
	return s.id
}

// do carries out a call of a handle, with the lock held.
func (o *outside) do(handle int32, act func(s *stream) int32) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.streams[handle]
	if s == nil {
		return o.fail(abi.ErrInvalid, "there is no open handle %d", handle)
	}
	code := act(s)
	if abi.Code(code) == abi.ErrAgain {
		s.waiting = true
		return code
	}
	if code < 0 && s.failed != "" {
		o.last = s.failed
	}
	return code
}

func (o *outside) drop(s *stream) {
	delete(o.streams, s.id)
	s.closed, s.waiting = true, false
	s.cancel()
	if s.conn != nil {
		s.conn.Close()
	}
	o.changed.Broadcast()
}

func (o *outside) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// first says which handle may go on; 0: none yet.
func (o *outside) first(cancelled bool) int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if cancelled && !o.asked {
		o.asked = true
		return o.fail(abi.ErrCancelled, "the run is being cancelled")
	}
	for len(o.ready) > 0 {
		s := o.ready[0]
		o.ready = o.ready[1:]
		if !s.closed {
			return s.id
		}
	}
	for _, s := range o.streams {
		if s.waiting {
			return 0
		}
	}
	return o.fail(abi.ErrInvalid, "there is nothing to wait for: no call was answered with ErrAgain")
}

// out is the outside of the run that goes on.
func (i imports) out() *outside {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	return i.h.outside
}

// outsideCancelled is Cancelled without being a question of the job's.
func (i imports) outsideCancelled() bool {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	d := i.h.context.Deadline
	return i.h.cancel != abi.CancelNone || (!d.IsZero() && !time.Now().Before(d))
}

func (i imports) IORead(handle int32, buf []byte) int32 {
	return i.out().do(handle, func(s *stream) int32 { return s.read(buf) })
}

// mayAct refuses what has an effect on an item that is another host's.
func (i imports) mayAct() int32 {
	i.h.mu.Lock()
	o, lost := i.h.outside, i.h.cancel == abi.CancelLost
	i.h.mu.Unlock()
	if lost {
		return o.refuse(abi.ErrCancelled, "ownership of the item is lost")
	}
	return int32(abi.OK)
}

func (i imports) IOWrite(handle int32, data []byte) int32 {
	if code := i.mayAct(); code != 0 {
		return code
	}
	return i.out().do(handle, func(s *stream) int32 { return s.write(data) })
}

func (i imports) IOFinish(handle int32) int32 {
	if code := i.mayAct(); code != 0 {
		return code
	}
	return i.out().do(handle, func(s *stream) int32 {
		s.finished = true
		s.o.changed.Broadcast()
		return int32(abi.OK)
	})
}

func (i imports) IOClose(handle int32) int32 {
	o := i.out()
	o.flush(handle)
	return o.do(handle, func(s *stream) int32 {
		o.drop(s)
		return int32(abi.OK)
	})
}

// flush waits until what was written to a connection is sent, if that does not take long.
func (o *outside) flush(handle int32) {
	o.mu.Lock()
	s := o.streams[handle]
	if s == nil || s.sending == nil {
		o.mu.Unlock()
		return
	}
	s.finished = true
	o.changed.Broadcast()
	o.mu.Unlock()
	select {
	case <-s.sending:
	case <-time.After(time.Second):
	}
}

func (i imports) IOWait(timeoutMs int32) int32 {
	o := i.out()
	var late <-chan time.Time
	if timeoutMs >= 0 {
		t := time.NewTimer(time.Duration(timeoutMs) * time.Millisecond)
		defer t.Stop()
		late = t.C
	}
	for {
		if n := o.first(i.outsideCancelled()); n != 0 {
			return n
		}
		select {
		case <-o.wake:
		case <-late:
			if n := o.first(i.outsideCancelled()); n != 0 {
				return n
			}
			return o.refuse(abi.ErrTimeout, "no handle is ready after %d ms", timeoutMs)
		case <-o.ctx.Done():
			return o.refuse(abi.ErrCancelled, "the time of the run is up")
		}
	}
}

func (i imports) IOError(handle int32, buf []byte) int32 {
	o := i.out()
	o.mu.Lock()
	defer o.mu.Unlock()
	reason := o.last
	if handle != 0 {
		reason = ""
		if s := o.streams[handle]; s != nil {
			reason = s.failed
		}
	}
	if reason == "" {
		return int32(abi.ErrNotFound)
	}
	return give(buf, []byte(reason))
}

// EnvGet and EnvSecret answer from the maps of the test.

func (i imports) EnvGet(name string, buf []byte) int32 {
	return i.fromEnv(abi.ErrNotFound, "variable: %q is not granted to job %q", i.h.Env, name, buf)
}

func (i imports) EnvSecret(name string, buf []byte) int32 {
	return i.fromEnv(abi.ErrDenied, "secret: %q is not granted to job %q", i.h.Secrets, name, buf)
}

func (i imports) fromEnv(code abi.Code, missing string, values map[string]string, name string, buf []byte) int32 {
	o := i.out()
	if len(i.h.Env)+len(i.h.Secrets) == 0 {
		return o.refuse(abi.ErrDenied, "%s is not granted to job %q", abi.ModuleEnv, o.job)
	}
	if name == "" || len(name) > abi.MaxTarget || strings.ContainsRune(name, 0) {
		return o.refuse(abi.ErrInvalid, "the name is empty, longer than %d bytes or has a NUL", abi.MaxTarget)
	}
	value, ok := values[name]
	if !ok {
		return o.refuse(code, missing, name, o.job)
	}
	return give(buf, []byte(value))
}

// sorted are the keys of a map in their order.
func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
