package engine

import (
	"context"
	"fmt"
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

// shared is what a job's loop shares with the goroutines beside it: fires and their
// workers, the term, and who asks for the status. It is safe for concurrent use, and
// is what fires know as their owner.
type shared struct {
	term *term
	host *Host
	log  *zap.Logger
	name string
	// turn is the loop's part in the turns of the host, and the job's in its commits.
	turn *inflight.Worker
	// identity is the id of the instance, which is another one after each join.
	identity atomic.Pointer[string]

	work    context.Context // ends with the session; guests live under it
	done    chan struct{}   // closed when the loop has ended
	settled atomic.Bool     // joined, or in error
	mail    mailbox
	quotas  quotas
	// listener is the last wait around a listener that runs once over all which has taken too long; nil for none.
	listener atomic.Pointer[listenerWait]
}

// listenerWait is a wait around a listener: what was reported of it, and when.
type listenerWait struct {
	text string
	at   time.Time
}

// mailbox is how other goroutines talk to the loop. Whole values, newest wins.
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

func (s *shared) post(f func(*mailbox)) {
	s.mail.mu.Lock()
	f(&s.mail)
	s.mail.rests = false
	s.mail.mu.Unlock()
	notify(s.mail.wake)
}

// update hands over a new definition or module.
func (s *shared) update(wanted Job) {
	s.post(func(m *mailbox) { m.update, m.leave = &wanted, reason.Reason{} })
}

// worked notes that the loop has dealt with one more item: so many are a turn; see [inflight.Worker.Worked]. Only the
// loop calls it, for each item with which it does more than to count it.
func (s *shared) worked() {
	if s.work != nil {
		s.turn.Worked(s.work.Done())
	}
}

// nudge makes the loop look again: the session is trusted again, or is not any
// more, or the wall clock was set.
func (s *shared) nudge() { notify(s.mail.wake) }

// leave makes the host leave the job once its running items have ended.
func (s *shared) leave(why reason.Reason) { s.post(func(m *mailbox) { m.update, m.leave = nil, why }) }

// drain is leave with a time limit.
func (s *shared) drain() { s.post(func(m *mailbox) { m.drain = true }) }

// ask requests the job's status, with what only the registry knows if it is to be
// full; the answer comes once.
func (s *shared) ask(full bool) <-chan *JobStatus {
	c := make(chan *JobStatus, 1)
	s.post(func(m *mailbox) { m.asks = append(m.asks, ask{c, full}) })
	return c
}

// called reports whether the loop is to look at its mail before it goes on with what may take long: the job is to be
// left, or is another one. The loop is awake then.
func (s *shared) called() bool {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	return !s.mail.leave.IsZero() || s.mail.drain || s.mail.update != nil
}

// lastStatus is the newest status; rests: it is what is true now.
func (s *shared) lastStatus() (last *JobStatus, rests bool) {
	s.mail.mu.Lock()
	defer s.mail.mu.Unlock()
	return s.mail.last, s.mail.rests
}

// Emit reports an event of the job.
func (s *shared) Emit(e event.Event) {
	e.Host, e.Job = *s.identity.Load(), s.name
	s.host.emit(e)
}

// Expired reports a wait that has reached its deadline, whatever the job's
// error handler says: it is not the job's error.
func (s *shared) Expired(e *event.WaitError, items ...int) {
	s.log.Warn("waited too long", zap.String("for", e.For), zap.Duration("after", e.After), zap.String("then", e.Then), zap.NamedError("error", e.Err))
	if e.What == event.WaitListener {
		s.listener.Store(&listenerWait{e.Error(), time.Now()})
		s.post(func(*mailbox) {}) // the status is another one
	}
	s.reportWait(e, items...)
}

// reportWait is Expired for an error that is returned: the caller logs it.
func (s *shared) reportWait(e *event.WaitError, items ...int) {
	s.Emit(event.Event{Kind: event.JobError, Wait: e.What, Other: e.Other, Items: items, Duration: e.After, Reason: e.Error()})
}

// Clock is the wall clock that the host goes by.
func (s *shared) Clock() time.Time { return s.host.clock() }

// Trust says whether the session lives; see [registry.Center].
func (s *shared) Trust() (registry.Trust, <-chan struct{}) { return s.term.registry.Trust() }

// Registry is the session for one goroutine beside the loop.
func (s *shared) Registry() registry.Center {
	return counted{s.term.registry, s, new(int64), false}
}

// Listens has the loop look at a listener that has run for long, or has ended after that.
func (s *shared) Listens() { s.nudge() }

// Staged has the loop save offsets.
func (s *shared) Staged() { s.post(func(m *mailbox) { m.offsets = true }) }

// Refused has the loop look for external edits: a commit of an offset met a conflict.
func (s *shared) Refused() { s.post(func(m *mailbox) { m.refused = true }) }

// Ended hands the end of a run to the loop.
func (s *shared) Ended(e run.Ended) { s.post(func(m *mailbox) { m.ended = append(m.ended, e) }) }

// Over hands the news to the loop that the goroutine of a fire has ended.
func (s *shared) Over(f *run.Fire) { s.post(func(m *mailbox) { m.over = append(m.over, f) }) }

// note counts what went beyond the quota.
func (s *shared) note(q *quota) {
	if q.beyond.Add(1) == 1 {
		s.post(func(m *mailbox) { m.beyond = true })
	}
}

// MayLog uses the job's log quotas for one line of so many bytes as written. It
// reports false if the line is to be dropped.
func (s *shared) MayLog(bytes int) bool {
	switch q := s.quotas; {
	case !q.lines.take(1):
		s.note(q.lines)
	case !q.bytes.take(bytes):
		s.note(q.bytes)
	default:
		return true
	}
	return false
}

// MayCommit waits until the job's quota of offset commits has one for the
// guest. Waiting slows a loop that commits without end down; an error would
// only make it try again. It reports false if ctx ended first.
func (s *shared) MayCommit(ctx context.Context) bool {
	q := s.quotas.commits
	if q.limiter == nil {
		return true
	}
	now := time.Now()
	r := q.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return true
	}
	s.note(q)
	if !run.Pause(ctx, wait) {
		r.Cancel()
		return false
	}
	return true
}

// flushQuotas reports what the job has used beyond its quotas.
func (s *shared) flushQuotas() {
	for _, q := range []*quota{s.quotas.lines, s.quotas.bytes, s.quotas.commits} {
		n := q.beyond.Swap(0)
		if n == 0 {
			continue
		}
		what := "log lines were dropped"
		if q == s.quotas.commits {
			what = "offset commits had to wait"
		}
		s.Emit(event.Event{Kind: event.OverQuota, Ceiling: q.ceiling.Name, Count: n, Reason: fmt.Sprintf("%d %s: %s", n, what, q.ceiling)})
	}
}

// accept refuses a configuration that is beyond the host's ceilings.
func (s *shared) accept(c jobconfig.Configuration) error { return s.host.cfg.Ceilings.Check(c) }

// longestError is the longest text of a guest's error in the log, in bytes: a trap with its stack,
// and what the guest wrote to stderr last.
const longestError = 4 * abi.MaxError

// HandleError does what the job's error handler says, within the job's log
// quota.
func (s *shared) HandleError(c jobconfig.Configuration, what string, r abi.Result, fields ...zap.Field) {
	reason := event.Cut(event.Harmless(r.Message), abi.MaxError)
	fields = append(fields, zap.String("outcome", string(r.Outcome)), zap.String("reason", reason))
	size := len(reason)
	if r.Err != nil && !repeats(r.Message, r.Err.Error()) {
		text := event.Cut(event.Harmless(r.Err.Error()), longestError)
		fields = append(fields, zap.String("error", text))
		size += len(text)
	}
	if !s.MayLog(event.LineOverhead + size) {
		return
	}
	switch c.JobErrorHandlerType {
	case "IGNORE":
		s.log.Debug(what, fields...)
	default:
		s.log.Error(what, fields...)
	}
}

// handlerProblem says why an error handler sends nothing that is to send something.
func (s *shared) handlerProblem(handler string) string {
	if s.host.cfg.HandlerProblem == nil {
		return ""
	}
	return s.host.cfg.HandlerProblem(handler)
}

// repeats reports whether the error of a run says no more than its reason.
func repeats(reason, text string) bool {
	cause := strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:]) // what comes before says where
	// A panic ends in the instruction unreachable; the reason has its message.
	return cause == "unreachable" || strings.Contains(text, reason) || strings.Contains(reason, cause)
}
