package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// A backfill runs past instants of a job again. The division says that a job has a backfill; then one host, the janitor,
// watches the backfill's node and the waiting triggers, and makes one instant after the other a trigger round.
// coordination/admin/operate has the steps. The items of such a round run like those of every trigger.

// backfillPause is when to try a refused step again, if no change that this host sees comes before.
const backfillPause = 30 * time.Second

// backfill is what the janitor's loop knows of a backfill.
type backfill struct {
	feed    feed
	heard   bool // a snapshot
	known   tree.Backfill
	going   bool     // known goes on
	waiting []string // instances that have not consumed a trigger
	gaveAt  time.Time
	at      time.Time // when to look again; zero: when there is news
	// refused says why the backfill waits, retryAt is when to try again, and refusedFor is the state of the job at the
	// refusal.
	refused    string
	retryAt    time.Time
	refusedFor string
}

// see takes a snapshot of the janitor's watch, and returns events for what it shows for the first time. items is the
// job's item count.
func (b *backfill) see(now moment, l tree.Layout, s registry.Snapshot, items int) (news []event.Event) {
	was, went := b.known, b.going
	node := s.Data(l.Backfill())
	b.known, b.going = tree.ParseBackfill(node.Data)
	same := b.going && went && b.known.Same(was)
	if went && !same {
		last, ok := tree.ParseBackfill(s.Data(l.LastBackfill()).Data)
		news = append(news, backfillEnded(was, last, ok && last.Same(was)))
	}
	if b.going && b.known.Done > 0 && (!same || b.known.Done != was.Done) {
		news = append(news, backfillGiven(b.known, node.Mzxid, items)) // the commit that gave it out wrote the node
	}
	b.waiting, b.heard = s.Children(l.Triggers()), true
	if b.going && (!went || !b.known.Same(was) || b.known.Done != was.Done) {
		b.gaveAt, b.refused, b.retryAt = now.Time, "", time.Time{}
	}
	return news
}

// backfillStep returns the progress of a backfill.
func backfillStep(b tree.Backfill) *event.BackfillStep {
	return &event.BackfillStep{Since: time.UnixMilli(b.Since).UTC(), Done: b.Done, Total: b.Total}
}

// backfillGiven returns the event for the newest instant that was made a trigger round.
func backfillGiven(b tree.Backfill, round int64, items int) event.Event {
	return event.Event{Kind: event.BackfillGiven, Instant: time.UnixMilli(b.Instants[b.Done-1]).UTC(), Trigger: round, Source: abi.SourceBackfill, Total: items,
		Args: &event.TriggerArgs{Items: b.Items.String(), At: true, Backfill: true}, Backfill: backfillStep(b)}
}

// backfillEnded returns the event for the end of a backfill. last is the ended backfill that the registry keeps; kept is
// false if it keeps none, because the job was removed.
func backfillEnded(was, last tree.Backfill, kept bool) event.Event {
	if kept {
		was.Done = last.Done
	}
	e := event.Event{Kind: event.BackfillEnded, Backfill: backfillStep(was)}
	switch left := was.Total - was.Done; {
	case kept && last.Cancelled != "":
		return e.Why(reason.New(reason.BackfillCancelled, last.Cancelled, left, was.Total))
	case kept:
		return e.Why(reason.New(reason.BackfillWhole, was.Total))
	default:
		return e.Why(reason.New(reason.BackfillRemoved, left, was.Total))
	}
}

// abandon ends the watch of a removed job, and returns the event for a backfill that was not finished.
func (b *backfill) abandon() (news []event.Event) {
	if b.going {
		news = []event.Event{backfillEnded(b.known, tree.Backfill{}, false)}
	}
	b.stop()
	return news
}

// decide reports whether to take the next step now, and otherwise when; a zero time means at the next snapshot. live are
// the instances whose triggers count. key is the state of the job: a refusal lasts until it changes.
func (b *backfill) decide(now time.Time, live []string, key string) (step bool, at time.Time) {
	waits := slices.ContainsFunc(b.waiting, func(id string) bool { return slices.Contains(live, id) })
	switch {
	case !b.heard || !b.going || waits:
		return false, at
	case b.refused != "" && key == b.refusedFor && now.Before(b.retryAt):
		return false, b.retryAt
	}
	// The first instant begins at once, and a refused one as soon as it can; the end waits only for the last round.
	if at = b.gaveAt.Add(time.Duration(b.known.Every) * time.Millisecond); b.known.Done > 0 && !b.known.GivenOut() && now.Before(at) {
		return false, at
	}
	return true, time.Time{}
}

// backfillDeps is what a backfill needs of its job: the job as this host knows it, and the registry.
type backfillDeps struct {
	registry registry.Center
	layout   tree.Layout
	view     *coordination.View
	log      *zap.Logger
	// retryAt is when the registry may be asked again after a refusal.
	retryAt time.Time
}

// follow does the janitor's part of a backfill; on other hosts it forgets the backfill. If the registry refuses, doing
// names the step.
func (b *backfill) follow(ctx context.Context, now moment, d backfillDeps) (doing string, err error) {
	v := d.view
	if !v.IsJanitor() || !v.Division.Backfill && !b.going {
		b.stop()
		return "", nil
	}
	if !v.Division.Backfill { // it has ended, and the snapshot of that, which reports it, comes
		b.at = time.Time{}
		return "", nil
	}
	if now.Before(d.retryAt) {
		return "", nil
	}
	if !b.feed.opened() {
		if err := b.watch(ctx, d); err != nil {
			return "watching the backfill", err
		}
	}
	live := slices.Concat(v.Instances, v.Division.Instances)
	key := strings.Join(v.Instances, " ")
	if !v.Enabled {
		key += " disabled"
	}
	step, at := b.decide(now.Time, live, key)
	if b.at = at; !step {
		return "", nil
	}
	err = operate.GiveInstant(ctx, d.registry, d.layout, b.known, now.wall)
	pause := backfillPause
	var arg *tree.ArgError
	switch {
	case err == nil: // the snapshot of it comes
		b.refused, b.at = "", now.Add(lookAgain)
		return "", nil
	case errors.Is(err, tree.ErrRemoved):
		return "", nil
	case errors.Is(err, operate.ErrTriggerWaits):
		pause = lookAgain
	case errors.Is(err, operate.ErrNothingRuns), errors.Is(err, operate.ErrNoTriggerArgs), errors.As(err, &arg):
	default:
		return "continuing a backfill", err
	}
	if why := err.Error(); b.refused != why {
		b.refused = why
		d.log.Info("the backfill waits", zap.String("reason", why))
	}
	b.refusedFor, b.retryAt = key, now.Add(pause)
	b.at = b.retryAt
	return "", nil
}

// watch starts the janitor's watch.
func (b *backfill) watch(ctx context.Context, d backfillDeps) error {
	return b.feed.open(ctx, d.registry, registry.Data(d.layout.Backfill()), registry.Data(d.layout.LastBackfill()), registry.Children(d.layout.Triggers()))
}

// stop ends that watch, and forgets what it has shown.
func (b *backfill) stop() {
	if b.feed.opened() {
		b.feed.close()
		*b = backfill{}
	}
}

// status returns the current backfill as the janitor knows it; nil on other hosts and without a backfill.
func (b *backfill) status() *BackfillStatus {
	if !b.going {
		return nil
	}
	s := BackfillOf(b.known)
	s.Waits = b.refused
	return &s
}

// BackfillStatus is the state of a backfill, which runs past instants of a job again.
type BackfillStatus struct {
	// From and To are the requested range; both ends are included.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Total is how many instants the backfill runs. Done is how many of them have become a round: each of their items has
	// begun, waits for its turn, or has a reason why it does not run. Newest is the last of these instants, zero without
	// one.
	Total  int       `json:"total"`
	Done   int       `json:"done"`
	Newest time.Time `json:"newest,omitzero"`
	// Items are the items that run, as ranges; empty means all.
	Items string `json:"items,omitempty"`
	// Every is the minimum time between the begins of two instants.
	Every time.Duration `json:"everyNs"`
	// Overlap says what happens to an item that still runs when its next instant begins: with queue_all it runs that
	// instant afterwards, with skip it does not run that instant.
	Overlap string `json:"overlap"`
	// By is the user who requested it, Why the given reason, Since the time of the request.
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since"`
	// Waits says why the backfill waits; empty if it does not.
	Waits string `json:"waits,omitempty"`
	// Ended is when it ended, zero while it runs. Cancelled is the user who cancelled it, empty if it ended with its last
	// instant.
	Ended     time.Time `json:"ended,omitzero"`
	Cancelled string    `json:"cancelled,omitempty"`
}

// BackfillOf returns the status of a backfill in the registry.
func BackfillOf(b tree.Backfill) BackfillStatus {
	s := BackfillStatus{From: time.UnixMilli(b.From).UTC(), To: time.UnixMilli(b.To).UTC(), Total: b.Total, Done: b.Done, Items: b.Items.String(),
		Every: time.Duration(b.Every) * time.Millisecond, Overlap: string(b.Overlap()), By: b.By, Why: b.Why, Since: time.UnixMilli(b.Since).UTC(), Cancelled: b.Cancelled}
	if b.Done > 0 && b.Done <= len(b.Instants) {
		s.Newest = time.UnixMilli(b.Instants[b.Done-1]).UTC()
	}
	if b.Ended != 0 {
		s.Ended = time.UnixMilli(b.Ended).UTC()
	}
	return s
}
