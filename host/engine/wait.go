package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/words"
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

	drainTimeout time.Duration
	// each calls yield for all that the loop waits for at present. since is zero where it is not known otherwise.
	each func(now moment, yield func(what event.Wait, item int, since time.Time))
	// describe says in words what the loop waits for, and what can be done about it.
	describe func(what event.Wait, items []int) (forWhat, then string)
	// until is when a wait ends that guests have asked for; zero for any other.
	until func(what event.Wait) time.Time
	// expired reports a wait that has taken too long.
	expired func(e *event.WaitError, items ...int)
}

// sum are the items of some waits, ascending, and since when the oldest lasts.
func (w *waits) sum(keys []waitKey) (items []int, since time.Time) {
	for _, key := range keys {
		since = soonest(since, w.list[key].since)
		if key.item >= 0 {
			items = append(items, key.item)
		}
	}
	return slices.Sorted(slices.Values(items)), since
}

// watch notes what the loop waits for at present, and reports once each wait
// that has taken too long.
func (w *waits) watch(now moment) {
	w.round++
	w.at = time.Time{}
	var overdue map[event.Wait][]waitKey
	w.each(now, func(what event.Wait, item int, since time.Time) {
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
		limit, ok := deadline(what, w.drainTimeout)
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
		e.For, e.Then = w.describe(what, items)
		w.expired(e, items...)
	}
}

// status has the waits that go on.
func (w *waits) status(now moment) []WaitStatus {
	var list []WaitStatus
	for _, what := range event.Waits() {
		var keys []waitKey
		reported := false
		for key, o := range w.list {
			if key.what == what {
				keys = append(keys, key)
				reported = reported || o.reported
			}
		}
		if len(keys) == 0 {
			continue
		}
		items, since := w.sum(keys)
		s := WaitStatus{What: what, Since: now.instant(since), Items: items, Expired: reported}
		s.Reason, _ = w.describe(what, items)
		s.Until = w.until(what)
		s.Reason = words.Reason(s.Reason)
		list = append(list, s)
	}
	return list
}

// deadline is how long a wait may last before the loop reports it; ok is false if
// another component reports it.
func deadline(what event.Wait, drainTimeout time.Duration) (limit time.Duration, ok bool) {
	switch what {
	case event.WaitRegistry, event.WaitSharding, event.WaitJavaLeader:
		return longestBusiness, true
	case event.WaitTakeover, event.WaitMark, event.WaitMove, event.WaitTrigger, event.WaitSlot, event.WaitPermit:
		return longestRun, true
	case event.WaitDrain:
		return drainTimeout, true
	}
	return 0, false
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
		h.emit(event.Event{Kind: event.Session, Host: h.process, Wait: e.What, Duration: e.After, Reason: e.Error()})
	})
	return func() {
		stop()
		h.mu.Lock()
		h.dialling = time.Time{}
		h.mu.Unlock()
	}
}
