package engine

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine/admission/inflight"
	"github.com/wasmjob/wasmjob/host/engine/run"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// shared is what a job's loop shares with other goroutines: fires and their workers, which use it as [owner]; the term,
// which writes to its mailbox; and callers that ask for the status. It is safe for concurrent use.
type shared struct {
	term *term
	host *Host
	log  *zap.Logger
	name string
	// turn is the loop's share of the turns of the host, and the job's share of its commits.
	turn *inflight.Worker
	// identity is the id of the instance; each join has another one.
	identity atomic.Pointer[string]

	work    context.Context // ends with the session; guests live under it
	done    chan struct{}   // closed when the loop has ended
	settled atomic.Bool     // joined, or in error
	mail    mailbox
	quotas  quotas
	// listener is the last wait around a listener that runs once over all hosts which took too long; nil for none.
	listener atomic.Pointer[listenerWait]
}

// listenerWait is the report of a wait around a listener, and its time.
type listenerWait struct {
	text string
	at   time.Time
}

// mailbox is how other goroutines talk to the loop. It holds whole values, of which the newest wins.
type mailbox struct {
	mu      sync.Mutex
	wake    chan struct{}
	update  *Job
	leave   reason.Reason
	drain   bool
	ended   []run.Ended
	over    []*run.Fire
	offsets bool
	refused bool // a guest's commit was: something may be to repair
	beyond  bool // something went beyond a quota
	asks    []ask
	limits  []limitNews
	last    *JobStatus
	rests   bool // last is true until the loop has something to do
}

// post changes what is in the mailbox, and wakes the loop.
func (m *mailbox) post(f func(*mailbox)) {
	m.mu.Lock()
	f(m)
	m.rests = false
	m.mu.Unlock()
	notify(m.wake)
}

// replace sets a new definition or module.
func (m *mailbox) replace(wanted Job) {
	m.post(func(m *mailbox) { m.update, m.leave = &wanted, reason.Reason{} })
}

// worked counts one more handled item for the loop's turn; see [inflight.Worker.Worked]. Only the loop calls it, for each
// item with which it does more than count.
func (s *shared) worked() {
	if s.work != nil {
		s.turn.Worked(s.work.Done())
	}
}

// nudge makes the loop look again: the trust in the session changed, or the wall clock was set.
func (m *mailbox) nudge() { notify(m.wake) }

// depart makes the host leave the job once its running items have ended.
func (m *mailbox) depart(why reason.Reason) {
	m.post(func(m *mailbox) { m.update, m.leave = nil, why })
}

// finish is depart with a time limit.
func (m *mailbox) finish() { m.post(func(m *mailbox) { m.drain = true }) }

// ask requests the job's status; with full, including what only the registry knows. The answer comes once.
func (m *mailbox) ask(full bool) <-chan *JobStatus {
	c := make(chan *JobStatus, 1)
	m.post(func(m *mailbox) { m.asks = append(m.asks, ask{c, full}) })
	return c
}

// called reports whether the loop should read its mail before it continues with long work, because the job is to be left
// or has changed. The loop is awake then.
func (m *mailbox) called() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.leave.IsZero() || m.drain || m.update != nil
}

// takeBeyond reports whether a quota was exceeded since the last call.
func (m *mailbox) takeBeyond() (beyond bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	beyond, m.beyond = m.beyond, false
	return beyond
}

// lastStatus returns the newest status; rests says that it is still true.
func (m *mailbox) lastStatus() (last *JobStatus, rests bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last, m.rests
}

// Emit reports an event of the job.
func (s *shared) Emit(e event.Event) {
	e.Host, e.Job = *s.identity.Load(), s.name
	s.host.emit(e)
}

// Expired reports a wait that has reached its deadline, regardless of the job's error handler: it is not an error of the
// job.
func (s *shared) Expired(e *event.WaitError, items ...int) {
	s.log.Warn("waited too long", zap.String("for", e.For), zap.Duration("after", e.After), zap.String("then", e.Then), zap.NamedError("error", e.Err))
	if e.What == event.WaitListener {
		s.listener.Store(&listenerWait{e.Error(), time.Now()})
		s.mail.post(func(*mailbox) {}) // the status is another one
	}
	s.reportWait(e, items...)
}

// reportWait is Expired for an error that is returned: the caller logs it.
func (s *shared) reportWait(e *event.WaitError, items ...int) {
	s.Emit(event.Event{Kind: event.JobError, Wait: e.What, Other: e.Other, Items: items, Duration: e.After, Reason: e.Error()})
}

// owner is what the fires of a job, and their guests, know of its loop. The loop itself does not use it.
type owner struct{ *shared }

// Clock returns the wall clock that the host uses.
func (o owner) Clock() time.Time { return o.host.clock() }

// RegistryClock returns the earliest time that the registry's clock can show now.
func (o owner) RegistryClock() time.Time {
	low, _ := o.host.registryBounds(o.host.now())
	return low
}

// Trust returns how far the session is trusted; see [registry.Center].
func (o owner) Trust() (registry.Trust, <-chan struct{}) { return o.term.registry.Trust() }

// Registry returns the session for one goroutine beside the loop.
func (o owner) Registry() registry.Center {
	return counted{o.term.registry, o.shared, new(int64), false}
}

// Listens makes the loop look at a listener that has run for long, or that ended after that.
func (o owner) Listens() { o.mail.nudge() }

// Staged makes the loop save offsets.
func (o owner) Staged() { o.mail.post(func(m *mailbox) { m.offsets = true }) }

// Refused makes the loop look for external edits, because a commit of an offset met a conflict.
func (o owner) Refused() { o.mail.post(func(m *mailbox) { m.refused = true }) }

// Ended passes the end of a run to the loop.
func (o owner) Ended(e run.Ended) { o.mail.post(func(m *mailbox) { m.ended = append(m.ended, e) }) }

// Over tells the loop that the goroutine of a fire has ended.
func (o owner) Over(f *run.Fire) { o.mail.post(func(m *mailbox) { m.over = append(m.over, f) }) }

// note counts use beyond a quota.
func (o owner) note(q *quota) {
	if q.beyond.Add(1) == 1 {
		o.mail.post(func(m *mailbox) { m.beyond = true })
	}
}

// MayLog uses the job's log quotas for one line of bytes bytes. It returns false if the line must be dropped.
func (o owner) MayLog(bytes int) bool {
	switch q := &o.quotas; {
	case !q.lines.take(1):
		o.note(q.lines)
	case !q.bytes.take(bytes):
		o.note(q.bytes)
	default:
		return true
	}
	return false
}

// MayCommit waits until the job's quota of offset commits allows one more. Waiting slows a loop that commits all the
// time; an error would only make it try again. It returns false if ctx ended first.
func (o owner) MayCommit(ctx context.Context) bool {
	q := o.quotas.commits
	if q.limiter == nil {
		return true
	}
	now := time.Now()
	r := q.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return true
	}
	o.note(q)
	if !run.Pause(ctx, wait) {
		r.Cancel()
		return false
	}
	return true
}

// longestError is the longest text of a guest's error in the log, in bytes: a trap with its stack, and the guest's last
// output to stderr.
const longestError = 4 * abi.MaxError

// HandleError does what the job's error handler says, within the job's log quota.
func (o owner) HandleError(c jobconfig.Configuration, what string, r abi.Result, fields ...zap.Field) {
	reason := event.Cut(event.Harmless(r.Message), abi.MaxError)
	fields = append(fields, zap.String("outcome", string(r.Outcome)), zap.String("reason", reason))
	size := len(reason)
	if r.Err != nil && !repeats(r.Message, r.Err.Error()) {
		text := event.Cut(event.Harmless(r.Err.Error()), longestError)
		fields = append(fields, zap.String("error", text))
		size += len(text)
	}
	if !o.MayLog(event.LineOverhead + size) {
		return
	}
	switch c.JobErrorHandlerType {
	case "IGNORE":
		o.log.Debug(what, fields...)
	default:
		o.log.Error(what, fields...)
	}
}

// repeats reports whether the error of a run adds nothing to its reason.
func repeats(reason, text string) bool {
	cause := strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:]) // what comes before says where
	// A panic ends in the instruction unreachable; the reason has its message.
	return cause == "unreachable" || strings.Contains(text, reason) || strings.Contains(reason, cause)
}
