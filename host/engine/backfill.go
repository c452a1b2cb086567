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

// Past instants that are run again. The division says that there are some; then one host, the janitor, watches the node of
// the backfill and the triggers that wait, and makes a round of one instant after the other: coordination/admin/operate has
// the steps. Each round is a trigger with an instant, and its items run as those of every trigger do.

// backfillPause is when to try again what was refused, if nothing that this host hears of changes before.
const backfillPause = 30 * time.Second

// backfill is what the loop of the janitor knows of one.
type backfill struct {
	feed    feed
	heard   bool // a snapshot
	known   tree.Backfill
	going   bool     // known goes on
	waiting []string // instances that have not consumed a trigger
	gaveAt  time.Time
	at      time.Time // when to look again; zero: when there is news
	// refused says why it does not go on, retryAt is when to try again, and refusedFor is what the job was then.
	refused    string
	retryAt    time.Time
	refusedFor string
}

// see takes a snapshot of the janitor's watch, and returns what it shows for the first time. items is how many the job has.
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

// backfillStep is how far a backfill is.
func backfillStep(b tree.Backfill) *event.BackfillStep {
	return &event.BackfillStep{Since: time.UnixMilli(b.Since).UTC(), Done: b.Done, Total: b.Total}
}

// backfillGiven reports the newest instant that was given out, as a round.
func backfillGiven(b tree.Backfill, round int64, items int) event.Event {
	return event.Event{Kind: event.BackfillGiven, Instant: time.UnixMilli(b.Instants[b.Done-1]).UTC(), Trigger: round, Source: abi.SourceBackfill, Total: items,
		Args: &event.TriggerArgs{Items: b.Items.String(), At: true, Backfill: true}, Backfill: backfillStep(b)}
}

// backfillEnded reports the end of a backfill, of which last is what is kept; without it the job was removed.
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

// abandon ends the watch of a job that is removed, and reports what goes on until then.
func (b *backfill) abandon() (news []event.Event) {
	if b.going {
		news = []event.Event{backfillEnded(b.known, tree.Backfill{}, false)}
	}
	b.stop()
	return news
}

// decide reports whether to take the next step now, and if not when; zero: when there is news. live are the
// instances whose triggers count, key is what may end a refusal.
func (b *backfill) decide(now time.Time, live []string, key string) (step bool, at time.Time) {
	waits := slices.ContainsFunc(b.waiting, func(id string) bool { return slices.Contains(live, id) })
	switch {
	case !b.heard || !b.going || waits:
		return false, at
	case b.refused != "" && key == b.refusedFor && now.Before(b.retryAt):
		return false, b.retryAt
	}
	// The first begins at once, and what was refused as soon as it can; the end waits for nothing but the last round.
	if at = b.gaveAt.Add(time.Duration(b.known.Every) * time.Millisecond); b.known.Done > 0 && !b.known.GivenOut() && now.Before(at) {
		return false, at
	}
	return true, time.Time{}
}

// backfillDeps is what a backfill goes by: the job as this host knows it, and the registry.
type backfillDeps struct {
	registry registry.Center
	layout   tree.Layout
	view     *coordination.View
	log      *zap.Logger
	// retryAt is when the registry may be asked again, after it has refused.
	retryAt time.Time
}

// follow does what the janitor has to for a backfill, and forgets it on other hosts. The error is why the registry
// refused, doing what.
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
		return "going on with a backfill", err
	}
	if why := err.Error(); b.refused != why {
		b.refused = why
		d.log.Info("the backfill waits", zap.String("reason", why))
	}
	b.refusedFor, b.retryAt = key, now.Add(pause)
	b.at = b.retryAt
	return "", nil
}

// watch begins the janitor's watch.
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

// status is the backfill that goes on, as the janitor knows it; nil on other hosts and without one.
func (b *backfill) status() *BackfillStatus {
	if !b.going {
		return nil
	}
	s := BackfillOf(b.known)
	s.Waits = b.refused
	return &s
}

// BackfillStatus is a backfill: past instants of a job that are run again.
type BackfillStatus struct {
	// From and To are the range that was asked for; both count.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Total is how many instants run, and Done how many of them were given out: each of their items has begun, waits for
	// its turn, or has the reason why not. Newest is the last of those, zero if there is none.
	Total  int       `json:"total"`
	Done   int       `json:"done"`
	Newest time.Time `json:"newest,omitzero"`
	// Items are those that run, as ranges; empty is all.
	Items string `json:"items,omitempty"`
	// Every is the least time between two instants.
	Every time.Duration `json:"everyNs"`
	// Overlap is what becomes of an item that runs for something else when its turn comes: queue_all, it runs after that; skip, it
	// leaves the instant out.
	Overlap string `json:"overlap"`
	// By is who asked for it, Why the reason that was given, Since when.
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	Since time.Time `json:"since"`
	// Waits says why it does not go on, if so.
	Waits string `json:"waits,omitempty"`
	// Ended is when it ended, zero if it goes on; Cancelled is who has cancelled it, empty if it ended with its last instant.
	Ended     time.Time `json:"ended,omitzero"`
	Cancelled string    `json:"cancelled,omitempty"`
}

// BackfillOf is a backfill as the registry has it, for people.
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
