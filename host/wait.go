package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	// longestBusiness is how long a host waits for what takes others a moment
	// before it says that it takes too long.
	longestBusiness = time.Minute
	// longestRun is the same for what may have to wait for an item to end.
	longestRun = 10 * time.Minute
)

// expired reports a wait that has reached its deadline, whatever the job's
// error handler says: it is not the job's error.
func (j *job) expired(e *event.WaitError, items ...int) {
	j.log.Warn("waited too long", zap.String("for", e.For), zap.Duration("after", e.After), zap.String("then", e.Then), zap.NamedError("error", e.Err))
	j.reportWait(e, items...)
}

// reportWait is expired for an error that is returned: the caller logs it.
func (j *job) reportWait(e *event.WaitError, items ...int) {
	j.emit(event.Event{Kind: event.JobError, Wait: e.What, Items: items, Duration: e.After, Reason: e.Error()})
}

// waitKey distinguishes what a job's loop waits for: by item where that matters,
// else the item is -1.
type waitKey struct {
	what event.Wait
	item int
}

// ongoing is a wait that has not ended.
type ongoing struct {
	since    time.Time // by Go's own clock
	reported bool      // that it has taken too long
	round    uint64    // see waits
}

// waits are those of a job's loop that go on.
type waits struct {
	list  map[waitKey]*ongoing
	round uint64
	at    time.Time // when the next has taken too long; zero if none will
}

// watchWaits notes what the loop waits for now, and reports once each wait
// that has taken too long.
func (j *job) watchWaits(now moment) {
	w := &j.ongoing
	w.round++
	w.at = time.Time{}
	var overdue map[event.Wait][]waitKey
	j.eachWait(now, func(what event.Wait, item int, since time.Time) {
		key := waitKey{what, item}
		o := w.list[key]
		if o == nil {
			if w.list == nil {
				w.list = make(map[waitKey]*ongoing)
			}
			o = &ongoing{since: now.Time}
			w.list[key] = o
		}
		if !since.IsZero() {
			o.since = since
		}
		o.round = w.round
		limit, ok := deadline(what, j.host.cfg.DrainTimeout)
		switch end := o.since.Add(limit); {
		case !ok || o.reported:
		case now.Before(end):
			w.at = soonest(w.at, end)
		default:
			o.reported = true
			if overdue == nil {
				overdue = make(map[event.Wait][]waitKey)
			}
			overdue[what] = append(overdue[what], key)
		}
	})
	maps.DeleteFunc(w.list, func(_ waitKey, o *ongoing) bool { return o.round != w.round })
	for _, what := range event.Waits() {
		keys := overdue[what]
		if len(keys) == 0 {
			continue
		}
		items, since := w.sum(keys)
		e := &event.WaitError{What: what, After: now.Sub(since)}
		e.For, e.Then = j.waitsFor(what, items)
		j.expired(e, items...)
	}
}

// sum are the items of some waits, ascending, and since when the oldest lasts.
func (w *waits) sum(keys []waitKey) (items []int, since time.Time) {
	for _, key := range keys {
		since = soonest(since, w.list[key].since)
		if key.item >= 0 {
			items = append(items, key.item)
		}
	}
	return sortedInts(items), since
}

// deadline is how long a wait may last before the loop reports it; ok is false if
// another component reports it.
func deadline(what event.Wait, drainTimeout time.Duration) (limit time.Duration, ok bool) {
	switch what {
	case event.WaitRegistry, event.WaitDivision, event.WaitJavaLeader:
		return longestBusiness, true
	case event.WaitTakeover, event.WaitMark, event.WaitMove, event.WaitTrigger, event.WaitSlot:
		return longestRun, true
	case event.WaitDrain:
		return drainTimeout, true
	}
	return 0, false
}

// eachWait calls yield for all that the loop waits for now. since is zero where
// it is not known otherwise.
func (j *job) eachWait(now moment, yield func(what event.Wait, item int, since time.Time)) {
	v := &j.member.View
	refuses := now.Before(j.refusal.retryAt) && !refused(j.joining.err) // else it is this host that refuses
	if refuses || (j.joined && !j.seen && j.exit.left == "") {
		yield(event.WaitRegistry, -1, time.Time{})
	}
	for f := range j.fires {
		if p := f.waits.Load(); p != nil {
			since := p.since
			if o := j.ongoing.list[waitKey{event.WaitListener, -1}]; o != nil && o.round == j.ongoing.round {
				since = soonest(o.since, since) // of several fires
			}
			yield(event.WaitListener, -1, since)
		}
	}
	if since := j.queuedSince(); !since.IsZero() {
		yield(event.WaitSlot, -1, since)
	}
	if j.exit.draining || j.exit.leaving != "" {
		if j.running() > 0 {
			yield(event.WaitDrain, -1, time.Time{})
		}
		return
	}
	if !j.joined || !j.seen || j.exit.left != "" || !v.Exists || !v.Joined() {
		return
	}
	if _, waits := j.election.Waiting(); waits {
		yield(event.WaitElection, -1, j.election.since)
	}
	if _, waits := j.takers.Waiting(); waits {
		yield(event.WaitFailover, -1, j.takers.since)
	}
	switch {
	case v.JavaLed() && v.Halted():
		yield(event.WaitJavaLeader, -1, time.Time{})
	case v.Enabled && (v.Necessary || v.Processing || !j.member.Share.Current(*v) || (v.Division.Total == 0 && !v.JavaLed())):
		yield(event.WaitDivision, -1, time.Time{})
	}
	if len(v.FailoverItems) > 0 || len(v.Crashed()) > 0 {
		yield(event.WaitTakeover, -1, time.Time{})
	}
	if v.Trigger != 0 {
		yield(event.WaitTrigger, -1, time.Time{})
	}
	for _, it := range j.items {
		key := waitKey{event.WaitMark, it.number}
		// Every snapshot is a reason to try again; that does not end the wait.
		if it.owned && it.due != nil && it.run == nil && (it.held || j.ongoing.list[key] != nil) {
			yield(event.WaitMark, it.number, time.Time{})
		}
	}
	for _, n := range v.Division.Pending {
		if it := j.items[n]; v.Leading() || (it != nil && it.run != nil) {
			yield(event.WaitMove, n, time.Time{})
		}
	}
}

// queuedSince is since when the item waits for a slot that has waited longest;
// zero if none waits.
func (j *job) queuedSince() (since time.Time) {
	for f := range j.fires {
		for _, e := range f.runs {
			if queued := e.queued.Load(); queued != 0 && j.goesOn(e) {
				since = soonest(since, f.begun.Add(time.Duration(queued)))
				break
			}
		}
	}
	return since
}

// waitsFor says in words what the loop waits for, and what can be done about it.
func (j *job) waitsFor(what event.Wait, items []int) (forWhat, then string) {
	v := &j.member.View
	numbers := coordination.Items(items).String()
	switch what {
	case event.WaitRegistry:
		if !j.seen && j.joined {
			return "the registry to show the job", "nothing begins until it does"
		}
		return "the registry, which refuses: " + j.refusal.what, "it is tried again each second"
	case event.WaitDivision:
		if v.Leader == "" {
			return "the items to be divided, and the job has no leader", "see that a host with the job is enabled and not in error"
		}
		return "the items to be divided by the leader, " + v.Leader, "see its log; restart its host if it makes no progress"
	case event.WaitJavaLeader:
		return "the items to be divided by a Java leader, " + v.Leader + ", which waits until no item of the job runs anywhere; nothing begins meanwhile",
			"see which item runs: wasmjob shards " + j.name + "; or have one of ours elected: wasmjob shutdown " + j.name + " --instance " + v.Leader
	case event.WaitElection:
		return "its turn in ElasticJob's latch, behind node " + j.election.behind, ""
	case event.WaitFailover:
		return "its turn in ElasticJob's latch, behind node " + j.takers.behind, ""
	case event.WaitTakeover:
		if gone := v.Crashed(); len(gone) > 0 {
			return "somebody to take what was begun by hosts that are gone: " + joinWords(gone),
				"it takes an enabled host with the module, and items that are not disabled"
		}
		return "somebody to take items " + v.FailoverItems.String() + ", which a Java host has marked as crashed", "it takes an enabled host with the module"
	case event.WaitMark:
		return "items " + numbers + ", which are due and marked as running elsewhere", "see who runs them: wasmjob shards " + j.name + "; delete marks that no host owns"
	case event.WaitMove:
		return "items " + numbers + " to end where they run: they go to other hosts then",
			"see who runs them: wasmjob status " + j.name + "; the job's timeout ends them, or a restart of that host"
	case event.WaitTrigger:
		return "the job to be idle here, to serve a trigger", "items that run are shown by: wasmjob status --items"
	case event.WaitSlot:
		return fmt.Sprintf("a slot: the host has %d for all jobs, and this job may have %d", j.host.cfg.MaxConcurrency, j.concurrency()),
			"see what runs: wasmjob status --items; a timeout ends items that go on for ever"
	case event.WaitListener:
		for f := range j.fires {
			if p := f.waits.Load(); p != nil {
				return p.forWhat(), ""
			}
		}
		return "the other hosts, around a listener", ""
	case event.WaitDrain:
		return fmt.Sprintf("%d items to end, because this host leaves the job", j.running()), ""
	}
	return string(what), ""
}

// waitStatus has the waits that go on.
func (j *job) waitStatus(now moment) []WaitStatus {
	var list []WaitStatus
	for _, what := range event.Waits() {
		var keys []waitKey
		reported := false
		for key, o := range j.ongoing.list {
			if key.what == what {
				keys = append(keys, key)
				reported = reported || o.reported
			}
		}
		if len(keys) == 0 {
			continue
		}
		items, since := j.ongoing.sum(keys)
		s := WaitStatus{What: what, Since: now.instant(since), Items: items, Expired: reported}
		s.Reason, _ = j.waitsFor(what, items)
		list = append(list, s)
	}
	return list
}

// listenerWait is a fire's wait for other hosts around a listener.
type listenerWait struct {
	export string
	since  time.Time
}

func (w *listenerWait) forWhat() string {
	return "the items of the other hosts, around the listener " + w.export
}

// counted is a session as one job uses it: its calls have a time limit each,
// however many an exchange takes, failures are counted, and it notes the newest
// transaction that one of them made.
type counted struct {
	registry.Center
	job  *job
	zxid *int64
}

// registry is the session for one goroutine beside the loop.
func (j *job) registry() registry.Center {
	return counted{j.term.registry, j, new(int64)}
}

func (c counted) Commit(ctx context.Context, ops ...registry.Op) (results []registry.Result, err error) {
	late := func() {
		c.job.reportWait(&event.WaitError{What: event.WaitRegistry, For: "its turn among this host's commits", Then: "it goes on waiting: the registry is slow", After: commitTimeout})
	}
	if err := c.job.host.commits.enter(ctx, late); err != nil {
		return nil, err
	}
	sent := time.Now()
	err = c.limited(ctx, func(ctx context.Context) error {
		results, err = c.Center.Commit(ctx, ops...)
		return err
	})
	c.job.host.commits.leave(sent, time.Now(), results != nil)
	for k := range results {
		results[k] = results[k].Raise(c.job.base.Load())
		*c.zxid = max(*c.zxid, results[k].Zxid)
	}
	if i := slices.IndexFunc(results, func(r registry.Result) bool { return !r.Time.IsZero() }); i >= 0 {
		c.job.host.registry.note(sent, time.Now(), results[i].Time)
	}
	return results, err
}

func (c counted) Read(ctx context.Context, queries ...registry.Query) (nodes []registry.Node, err error) {
	err = c.limited(ctx, func(ctx context.Context) error {
		nodes, err = c.Center.Read(ctx, queries...)
		return err
	})
	for k := range nodes {
		nodes[k] = nodes[k].Raise(c.job.base.Load())
	}
	return nodes, err
}

// limited makes a call with a time limit. Its error is a *WaitError if the limit
// was reached, and not one that the caller had set.
func (c counted) limited(ctx context.Context, call func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	err := call(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		late := &event.WaitError{What: event.WaitRegistry, For: "an answer of the registry", After: commitTimeout, Err: err}
		if c.job.work.Err() == nil {
			c.job.reportWait(late)
		}
		err = late
	}
	c.job.host.failures.note(err)
	return err
}

// failures counts requests that the registry did not answer, or refused.
type failures struct {
	counts [len(failureReasons)]atomic.Int64
}

// failureReasons are the reasons by which failures are counted.
var failureReasons = [...]string{"timeout", "unknown", "suspect", "unavailable", "too_large", "other"}

// note counts an error, unless it is nil or in the order of things: another was
// faster, or the session or the caller has ended.
func (f *failures) note(err error) {
	reason := ""
	switch {
	case err == nil, errors.Is(err, registry.ErrConflict), errors.Is(err, registry.ErrSessionLost), errors.Is(err, registry.ErrClosed):
		return
	case errors.Is(err, event.ErrWaited):
		reason = "timeout"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return
	case errors.Is(err, registry.ErrUnknown):
		reason = "unknown"
	case errors.Is(err, registry.ErrSuspect):
		reason = "suspect"
	case errors.Is(err, registry.ErrUnavailable):
		reason = "unavailable"
	case errors.Is(err, registry.ErrTooLarge):
		reason = "too_large"
	default:
		reason = "other"
	}
	f.counts[slices.Index(failureReasons[:], reason)].Add(1)
}

// snapshot is how many failures there were, by reason.
func (f *failures) snapshot() map[string]int64 {
	m := make(map[string]int64, len(failureReasons))
	for i, reason := range failureReasons {
		m[reason] = f.counts[i].Load()
	}
	return m
}

// callAfter calls f after some time. The function that it returns calls that
// off, and waits for a call that has begun.
func callAfter(d time.Duration, f func()) (stop func()) {
	var wg sync.WaitGroup
	wg.Add(1)
	timer := time.AfterFunc(d, func() {
		defer wg.Done()
		f()
	})
	return func() {
		if timer.Stop() {
			wg.Done()
		}
		wg.Wait()
	}
}

// waitForSession notes that the host has no session, and reports if that takes too
// long. The function that it returns is to be called when it has one, or stops.
func (h *Host) waitForSession() (end func()) {
	h.mu.Lock()
	h.dialling = time.Now()
	h.mu.Unlock()
	stop := callAfter(longestBusiness, func() {
		e := &event.WaitError{What: event.WaitSession, For: "a session with the registry", Then: "it is tried until there is one", After: longestBusiness}
		h.log.Warn("waited too long", zap.String("for", e.For), zap.Duration("after", e.After), zap.String("then", e.Then))
		h.emit(event.Event{Kind: event.Session, Wait: e.What, Duration: e.After, Reason: e.Error()})
	})
	return func() {
		stop()
		h.mu.Lock()
		h.dialling = time.Time{}
		h.mu.Unlock()
	}
}
