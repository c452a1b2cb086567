package host

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/event"
)

const (
	// longestBusiness is how long a host waits for what takes others a moment
	// before it says that it takes too long.
	longestBusiness = time.Minute
	// longestRun is the same for what may have to wait for an item to end.
	longestRun = 10 * time.Minute
)

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
		j.Expired(e, items...)
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
		if p := f.Waits(); p != nil {
			since := p.Since
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
		for _, e := range f.Runs {
			if queued := e.QueuedSince(); !queued.IsZero() && j.goesOn(e) {
				since = soonest(since, queued)
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
			if p := f.Waits(); p != nil {
				return p.For(), ""
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
