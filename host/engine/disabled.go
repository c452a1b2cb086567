package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
)

// pause is what this host knows of why its server is disabled.
type pause struct {
	job    *access
	word   tree.Word
	change int64 // of the server's node, for which word was read
	ended  bool  // it is over, and the next snapshot shows the server enabled
	// deniedUntil is when to try again what the registry denied.
	deniedUntil time.Time
}

// forget forgets the word: the server is enabled, or the job is another one.
func (p *pause) forget() { *p = pause{job: p.job} }

// endsBy reports whether the server is disabled until a time that is not after an instant: that is due.
func (p *pause) endsBy(at time.Time) bool { return p.word.Until != 0 && at.UnixMilli() >= p.word.Until }

// switched is what a host knows of how an item was disabled and enabled.
type switched struct {
	// notBefore is up to when nothing is owed, reported up to which instant it is reported
	// that the item does not run.
	notBefore, reported time.Time
	// since is when the mark was made that this host saw last, by the registry's clock; seen is when
	// it found that gone, by the wall clock, and ended the time at which it was over by itself. Both
	// are zero once notBefore says what they mean.
	since, seen, ended time.Time
	// watched is set while a watch shows whether it is still disabled: one that was set since it was
	// found to be.
	watched bool
}

// disable notes that the item is disabled.
func (it *item) disable() {
	if !it.state.Disabled {
		it.switched.watched = false
	}
	it.state.Disabled = true
}

// marks is the watch of the marks of items that are disabled.
type marks struct {
	feed   feed
	items  tree.Items
	turnAt time.Time // when to watch the marks of others; zero if all are watched
}

const (
	// marksAtOnce bounds the marks that a host watches for a job; of more, some are watched
	// at a time, for marksTurn.
	marksAtOnce = 1000
	marksTurn   = time.Minute
)

// watchMarks watches the marks of the items that are known to be disabled, so that a fire need
// not ask for them. Marks that are gone stay in the watch until it is set anew for other items.
func (j *job) watchMarks(now moment) {
	m := &j.watch.marks
	var disabled tree.Items
	for _, it := range j.items.sortedActive(func(it *item) bool { return it.owned && it.state.Disabled && !j.denials.waits(now, it.number) }) {
		disabled = append(disabled, it.number)
	}
	if len(disabled) == 0 {
		j.watch.endMarks()
		return
	}
	turn := m.items == nil || (!m.turnAt.IsZero() && !now.Before(m.turnAt))
	unwatched := func(n int) bool { return !j.items.of[n].switched.watched }
	if j.rests(now) || (!turn && (!m.turnAt.IsZero() || !slices.ContainsFunc(disabled, unwatched))) {
		return
	}
	next, turnAt := disabled, time.Time{}
	if len(disabled) > marksAtOnce {
		from := 0
		if len(m.items) > 0 {
			from, _ = slices.BinarySearch(disabled, m.items[len(m.items)-1]+1)
		}
		next, turnAt = disabled[from:min(from+marksAtOnce, len(disabled))], now.Add(marksTurn)
		if len(next) == 0 {
			next = disabled[:marksAtOnce]
		}
	}
	j.watch.endMarks()
	if err := m.feed.open(j.work, j.member.Registry, coordination.DisabledMarks(j.member.Layout, next)...); err != nil {
		if j.denials.denyWatch(now, j.log, next, func(n int) []registry.Query { return coordination.DisabledMarks(j.member.Layout, tree.Items{n}) }, err) {
			j.watchMarks(now) // the others
			return
		}
		j.failed(now, "watching paused items", err)
		return
	}
	m.items, m.turnAt = next, turnAt
	for _, n := range next {
		j.items.get(n).switched.watched = true
		j.denials.endUnread(n)
	}
}

func (w *watch) endMarks() {
	w.marks.feed.close()
	w.marks = marks{}
}

// seeMarks takes a snapshot of the marks of disabled items.
func (j *job) seeMarks(now moment, s registry.Snapshot) {
	s = s.Raise(j.term.registry.Base())
	var enabled []int
	for _, n := range j.watch.marks.items {
		it := j.items.get(n)
		if it == nil || !it.owned || !it.state.Disabled {
			continue
		}
		mark := s.Data(j.member.Layout.ItemDisabled(n))
		if !mark.Exists {
			enabled = append(enabled, n)
			continue
		}
		j.outside.Mark(n, mark)
		it.state.Said, _ = tree.ParseMark(mark.Data)
		it.switched.since = mark.Mtime
	}
	j.itemsEnabled(now, enabled)
}

// itemsEnabled takes note that items are not disabled any more: they begin again, and owe nothing
// of what came due meanwhile.
func (set *itemSet) itemsEnabled(now moment, items []int) {
	for _, n := range items {
		it := set.items.get(n)
		set.outside.Enabled(n)
		it.state.Disabled, it.state.Said = false, tree.Word{}
		it.switched.seen = now.wall
	}
	if len(items) > 0 {
		set.dues.makeUp(now, items)
	}
}

// learn reads who has disabled this host's server, and until when.
func (p *pause) learn(now moment) {
	v := &p.job.member.View
	if v.Enabled || p.change == v.ServerChange() || p.job.rests(now) {
		return
	}
	word, _, err := coordination.ReadDisabler(p.job.work, p.job.member.Registry, p.job.member.Layout, p.job.member.Self.ServerIP)
	if err != nil {
		p.job.failed(now, "reading who has paused the job", err)
		return
	}
	*p = pause{job: p.job, word: word, change: v.ServerChange()}
}

// enabled takes note that this host's server is enabled again: what came due meanwhile is not owed.
func (j *job) enabled(now moment) {
	since := j.member.View.ServerTime()
	if until := time.UnixMilli(j.pause.word.Until); j.pause.word.Until != 0 && !since.Before(until) {
		since = until // it was over by itself
	}
	j.calendar.NotBefore = latest(since, j.calendar.NotBefore)
	for _, it := range j.items.sortedActive(func(it *item) bool { return it.run == nil && it.Due != nil && it.Due.Trigger == 0 }) {
		j.dues.dropWaiting(it, it.WaitingBefore(since), event.SkipDisabled, reason.New(reason.ServerWasDisabled))
	}
	j.pause.forget()
	if err := j.member.NoteEnabled(j.work); err != nil {
		j.setback(now, "writing down that the job is resumed", err)
	}
	if !j.knowsShare() {
		return // what is due is found with the share
	}
	if at := j.calendar.Parked; !at.IsZero() {
		j.calendar.Parked = time.Time{}
		j.fire(now, at, nil, true)
	}
}

// endPauses enables this host's server and its items again where the time until which they are
// disabled is over, by the registry's clock.
func (j *job) endPauses(now moment) {
	j.pause.learn(now)
	if j.rests(now) {
		return
	}
	at := j.host.registryTime(now)
	if p := &j.pause; !j.member.View.Enabled && !p.ended && p.word.Over(at.UnixMilli()) && !at.Before(j.pause.serverEnds(j.member.View.IsJanitor())) && !now.Before(p.deniedUntil) {
		j.pause.endServers(now, at)
	}
	if !j.knowsShare() {
		return
	}
	for _, it := range j.items.sortedActive(func(it *item) bool {
		return it.owned && it.state.Disabled && it.state.Said.Over(at.UnixMilli()) && !j.denials.waits(now, it.number)
	}) {
		var word tree.Word
		r := j.pause.overByItself(&word, func() changelog.Record { return changelog.Record{Item: &it.number} })
		done, err := operate.EndItem(j.work, r, j.member.Layout, it.number, at, &word)
		var denied *registry.DeniedError
		if errors.As(err, &denied) {
			j.denials.note(now, "", coordination.Denials{it.number: denied}, j.log)
			continue
		}
		if err != nil {
			j.failed(now, "resuming an item that was paused for a time", err)
			return
		}
		if !done { // the watch shows what is wanted now
			it.state.Said.Until = 0
			continue
		}
		it.switched.ended = time.UnixMilli(word.Until)
		j.itemsEnabled(now, []int{it.number})
	}
}

// endServers enables all servers again for which it is over.
func (p *pause) endServers(now moment, at time.Time) {
	for {
		var of string
		var word tree.Word
		r := p.overByItself(&word, func() changelog.Record { return changelog.Record{Host: of} })
		done, err := operate.EndDisabled(p.job.work, r, p.job.member.Layout, at, &of, &word)
		if err != nil {
			if p.job.setback(now, "resuming servers that were paused for a time", err) {
				p.deniedUntil = now.Add(longestDenial)
			}
			return
		}
		if !done {
			break
		}
		p.job.log.Info("servers are resumed: the time is over until which they were paused", zap.String("server", cmp.Or(of, "all")), zap.String("by", word.By))
	}
	word, enabled, err := coordination.ReadDisabler(p.job.work, p.job.member.Registry, p.job.member.Layout, p.job.member.Self.ServerIP)
	switch {
	case err != nil:
		p.job.failed(now, "reading who has paused the job", err)
	case enabled:
		p.ended = true
	default: // something else disables it
		*p = pause{job: p.job, word: word, change: p.job.member.View.ServerChange()}
	}
}

// overByItself is the registry for the end of a word, which a record of goes to the histories:
// they know who disabled what, and until when. of says what the word was said of.
func (p *pause) overByItself(word *tree.Word, of func() changelog.Record) registry.Center {
	return changelog.Leaving(p.job.member.Registry, p.job.member.Layout, func() changelog.Record {
		r := of()
		r.Time, r.Job, r.What, r.From = time.Now(), p.job.name, "enable", event.FromRegistry
		r.Who, r.Why = cmp.Or(word.By, "the registry"), reason.New(reason.DisabledUntilOver).String()
		return r
	})
}

// serverEnds is when this host ends what disables its server: the janitor when it is over, others if it
// has not done so.
func (p *pause) serverEnds(janitor bool) time.Time {
	at := time.UnixMilli(p.word.Until)
	if !janitor {
		at = at.Add(lookAgain)
	}
	return at
}

// wakes is when the word ends by itself, by Go's own clock; zero if it does not, or does not count.
func (p *pause) wakes(now moment) time.Time {
	if p.word.Until == 0 || p.ended || p.job.member.View.Enabled {
		return time.Time{}
	}
	if now.Before(p.deniedUntil) {
		return p.deniedUntil
	}
	return now.Add(p.serverEnds(p.job.member.View.IsJanitor()).Sub(p.job.host.registryTime(now)))
}

// enabledAt is when the first item that is disabled for a time is enabled, by Go's own clock; zero if none is. clock is now by
// the registry's clock.
func (s *items) enabledAt(now moment, clock time.Time) (at time.Time) {
	for it := range s.allActive() {
		if it.owned && it.state.Disabled && it.state.Said.Until != 0 {
			at = soonest(at, now.Add(time.UnixMilli(it.state.Said.Until).Sub(clock)))
		}
	}
	return at
}
