package engine

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/recipe/permit"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// A job may be under a limit over the namespace (concurrency in its definition): its items begin with a
// permit, a ticket of package permit. An item that has none yet keeps the fire that it owes, as one does that
// runs elsewhere, and begins when a ticket is granted.
//
//	due ──▶ admit ──▶ has a granted ticket ──▶ begins with it ──▶ completion deletes the ticket
//	          │
//	          └──▶ waits: stands in the line with a ticket, if not too many of this host do

// limits is this host's part in the job's limit.
type limits struct {
	*admission
	most   func() int // items of the job that may run at once on this host
	guests *guests
	lines  map[string]*limitLine // by key
	// held are the tickets of items that run, or whose begin is being written.
	held map[int]heldTicket
	// crashed are the keys of items of crashed hosts that this host may take over, once it has a permit.
	crashed map[int]string
	back    []string // paths of tickets that are to be deleted
	turns   uint64   // counts the items that began to wait
	// atOnce has the loop look again at once: others may begin with the permits of those that do not wait any more.
	atOnce bool
	// takeOver is set when an item of a crashed host may be taken over that lacked a permit.
	takeOver bool
}

// heldTicket is an item's ticket in the line of a key of concurrency.
type heldTicket struct {
	permit.Ticket
	key string
}

// limitLine has this host's tickets in the line of one key.
type limitLine struct {
	key, path string
	// free are this host's tickets without an item, in the line's order; items may take the granted ones, which are first.
	free    []permit.Ticket
	granted int
	place   permit.Place // of the first that waits
	most    int          // that may run at once, as far as this host knows
	stale   bool         // to be read again
	doubt   bool         // a commit of unknown outcome may have made tickets
	watched registry.Query
	end     context.CancelFunc // ends the watch; nil if there is none
}

// limitNews is what the watch of a line has shown.
type limitNews struct {
	line *limitLine
	node registry.Node
}

// line is a key's, which is made if need be.
func (l *limits) line(layout tree.Layout, key string) *limitLine {
	ln := l.lines[key]
	if ln == nil {
		if l.lines == nil {
			l.lines, l.held, l.crashed = make(map[string]*limitLine), make(map[int]heldTicket), make(map[int]string)
		}
		ln = &limitLine{key: key, path: permit.Key(layout, key)}
		l.lines[key] = ln
	}
	return ln
}

// limited reports whether the job is under a limit.
func (l *limits) limited() bool { return l.guest.Concurrency.Key != "" }

// key is the key under which an item runs for a fire.
func (l *limits) key(item int, id tree.Fire) string {
	return l.keyFor(l.guest.Concurrency.Key, item, id)
}

// changed has the items that wait looked at again: their key, or its maximum, may be another one now. Each keeps its turn
// among those of this host.
func (l *limits) changed() {
	for _, ln := range l.lines {
		ln.stale = true
	}
	for it := range l.items.allActive() {
		it.waits = ""
	}
}

// take gives an item the first ticket that is granted. It returns false if there is none.
func (l *limits) take(ln *limitLine, item int) bool {
	if ln == nil || ln.granted == 0 {
		return false
	}
	l.held[item] = heldTicket{ln.free[0], ln.key}
	ln.free = ln.free[1:]
	ln.granted--
	return true
}

// permitOf is the path of the ticket of an item; empty if it has none.
func (l *limits) permitOf(item int) string { return l.held[item].Path }

// permits are the tickets of items.
func (l *limits) permits(items []*item) map[int]string {
	if len(l.held) == 0 {
		return nil
	}
	permits := make(map[int]string, len(items))
	for _, it := range items {
		if path := l.permitOf(it.number); path != "" {
			permits[it.number] = path
		}
	}
	return permits
}

// drop forgets the ticket of an item, which is deleted if it is still there.
func (l *limits) drop(item int) {
	if h, has := l.held[item]; has {
		l.back = append(l.back, h.Path)
		delete(l.held, item)
	}
}

// heldOf counts the tickets of a key that items have.
func (l *limits) heldOf(key string) (n int) {
	for _, h := range l.held {
		if h.key == key {
			n++
		}
	}
	return n
}

// wants is how many tickets a line lacks. A host stands in a line with as many items as may run and with as
// many as come next, and with no more than it can run at once.
func (l *limits) wants(ln *limitLine, waiting int) int {
	for _, key := range l.crashed {
		if key == ln.key {
			waiting++
		}
	}
	most := min(2*l.guest.Concurrency.Max, l.most())
	return max(min(waiting, most-l.heldOf(ln.key))-len(ln.free), 0)
}

// mayBegin are the items that may begin with the tickets that are granted, and of lines that lack tickets all.
func (l *limits) mayBegin() func(*item) bool {
	chosen := make(map[int]bool)
	open := make(map[string]bool)
	if !l.limited() {
		return func(*item) bool { return true }
	}
	for key, ln := range l.lines {
		list := l.items.waitsUnder(key)
		open[key] = l.wants(ln, len(list)) > 0
		for _, it := range list[:min(ln.granted, len(list))] {
			chosen[it.number] = true
		}
	}
	return func(it *item) bool { return it.waits == "" || open[it.waits] || chosen[it.number] }
}

// admit gives items of a fire the permits that they need. waiting are those for which there is none yet: they owe
// the fire, and begin when a ticket is granted.
func (l *limits) admit(now moment, id tree.Fire, items []*item) (admitted []*item, waiting tree.Items) {
	if !l.limited() {
		return items, nil
	}
	lines := make(map[string]*limitLine)
	for _, it := range items {
		key := l.key(it.number, id)
		h, has := l.held[it.number]
		if has && (l.job.member.Unknown || (h.key == key && h.Max == l.guest.Concurrency.Max)) {
			continue // a begin of this host has failed
		}
		l.drop(it.number)
		if it.turn == 0 {
			l.turns++
			it.turn = l.turns
		}
		it.waits, it.asks = key, true
		lines[key] = l.line(l.job.member.Layout, key)
	}
	err := l.draw(now, slices.Collect(maps.Values(lines)))
	chosen := make(map[int]bool)
	for key, ln := range lines {
		list := l.items.waitsUnder(key)
		for _, it := range list[:min(ln.granted, len(list))] {
			chosen[it.number] = true
		}
	}
	for _, it := range items {
		it.asks = false
		if _, has := l.held[it.number]; has {
			admitted = append(admitted, it)
			continue
		}
		if ln := lines[it.waits]; chosen[it.number] && l.take(ln, it.number) {
			it.waits, it.turn, it.waitsFor = "", 0, ""
			admitted = append(admitted, it)
			continue
		}
		l.owe(it, id)
		waiting = append(waiting, it.number)
		if it.waitsFor != id.ID() && err == nil {
			it.waitsFor = id.ID()
			l.reports.skip(it, id, event.SkipLater, lines[it.waits].says())
		}
	}
	return admitted, waiting
}

// says why an item waits.
func (ln *limitLine) says() reason.Reason {
	return reason.New(reason.WaitsForPermit, strconv.Quote(ln.key), ln.most)
}

// draw makes the tickets that lines lack, in one commit, and reads where they stand.
func (l *limits) draw(now moment, lines []*limitLine) error {
	var draws []permit.Draw
	var drawn []*limitLine
	for _, ln := range lines {
		if n := l.wants(ln, len(l.items.waitsUnder(ln.key))); n > 0 {
			draws = append(draws, permit.Draw{Key: ln.path, Count: n, Max: l.guest.Concurrency.Max})
			drawn = append(drawn, ln)
		}
	}
	if len(draws) == 0 {
		return nil
	}
	made, err := permit.Take(l.job.work, l.job.member.Registry, permit.Holder{Host: l.job.member.Self.ID, Job: l.job.name}, draws...)
	for _, ln := range drawn {
		ln.free = append(ln.free, made[ln.path]...)
		ln.stale, ln.doubt = true, ln.doubt || err != nil
	}
	if err == nil {
		err = l.readStale()
	}
	if err != nil {
		l.job.failed(now, "drawing tickets of a limit", err)
	}
	return err
}

// readStale reads where the host's tickets stand in the lines that may have changed.
func (l *limits) readStale() error {
	var keys []string
	for _, ln := range l.lines {
		if ln.stale {
			keys = append(keys, ln.path)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	lines, err := permit.Lines(l.job.work, l.job.member.Registry, keys...)
	if err != nil {
		return err
	}
	for _, ln := range l.lines {
		if ln.stale {
			ln.stands(lines[ln.path], l.guest.Concurrency.Max)
		}
	}
	return nil
}

// stands takes note of a line as it is. most is how many items may run under the limit, 0 for no limit.
func (ln *limitLine) stands(line []permit.Ticket, most int) {
	ln.stale, ln.granted = false, 0
	if most == 0 {
		most = math.MaxInt // they are returned
	}
	places := permit.Places(line, ln.free, most)
	ln.most, ln.place = most, permit.Place{}
	ln.free = slices.DeleteFunc(ln.free, func(t permit.Ticket) bool { _, there := places[t.Path]; return !there })
	waits := false
	for _, t := range ln.free {
		ln.most = min(ln.most, places[t.Path].Max)
		if places[t.Path].Granted() {
			ln.granted++
		} else if !waits {
			waits, ln.place = true, places[t.Path]
		}
	}
}

// readChanged reads the lines of which a watch has shown that they changed.
func (l *limits) readChanged(now moment) {
	if len(l.lines) == 0 || l.job.rests(now) {
		return
	}
	if err := l.readStale(); err != nil {
		l.job.failed(now, "reading who runs under a limit", err)
		return
	}
	for _, key := range l.crashed {
		if ln := l.lines[key]; ln != nil && ln.granted > 0 {
			l.takeOver = true
		}
	}
}

// hear takes what the watch of a line has shown. most is how many items may run under the limit.
func (ln *limitLine) hear(news registry.Node, most int) {
	if ln.end == nil || ln.watched != news.Query {
		return // it watches something else by now
	}
	if !news.Children {
		ln.stale = ln.stale || permit.Moved(news)
		return
	}
	// What is in the snapshot may be older than a ticket that this host has drawn since: it says only when to read the line.
	waits := ln.free[ln.granted:min(ln.granted+1, len(ln.free))]
	places := permit.Places(permit.Parse(ln.path, news.Names), waits, most)
	for _, t := range waits {
		place, there := places[t.Path]
		ln.stale = ln.stale || !there || place.Granted() || place.Watch(ln.path) != ln.watched
	}
}

// permitFor is the ticket with which an item of a crashed host is taken over; empty if there is none that is granted.
func (l *limits) permitFor(item int, id tree.Fire) string {
	key := l.key(item, id)
	if h, has := l.held[item]; has && (h.key == key || l.job.member.Unknown) {
		return h.Path
	}
	l.drop(item)
	if l.take(l.line(l.job.member.Layout, key), item) {
		delete(l.crashed, item)
		return l.permitOf(item)
	}
	l.crashed[item] = key
	return ""
}

// drawForCrashed makes tickets for the items of crashed hosts that lack one. It reports whether some may be taken over now.
func (l *limits) drawForCrashed(now moment) bool {
	var lines []*limitLine
	for _, key := range l.crashed {
		if ln := l.lines[key]; ln != nil && !slices.Contains(lines, ln) {
			lines = append(lines, ln)
		}
	}
	return l.draw(now, lines) == nil && slices.ContainsFunc(lines, func(ln *limitLine) bool { return ln.granted > 0 })
}

// returnAll has the tickets deleted with which items have begun that do not run on this host any more, though they have not ended: it
// leaves the job, and its session, with which they would go, goes on.
func (l *limits) returnAll() {
	if l.job.member.Unknown {
		return
	}
	for n := range l.held {
		l.drop(n)
	}
}

// returnUnneeded deletes the tickets that are not needed any more, and watches the lines in which others wait. If
// leaves is set the host begins nothing more of the job. It reports false if something is left to do.
func (l *limits) returnUnneeded(now moment, leaves bool) bool {
	if len(l.lines) == 0 && len(l.back) == 0 {
		return true
	}
	unsure := l.job.member.Unknown || (!leaves && (l.job.rests(now) || l.job.stale.reread))
	for n := range l.held {
		if it := l.items.of[n]; !l.items.runs(n) && !unsure && (it == nil || it.paced == "" || !l.stillWaits(now, it)) { // nothing has begun with it, or is about to
			l.drop(n)
		}
	}
	ended, others := false, false
	waiting := make(map[string]int)
	for it := range l.items.allActive() {
		if it.waits == "" {
			continue
		}
		if leaves || !l.limited() || !l.stillWaits(now, it) {
			it.waits, it.turn, it.waitsFor, ended = "", 0, "", true
			continue
		}
		waiting[it.waits]++
	}
	if leaves {
		clear(l.crashed)
	}
	for _, key := range l.crashed {
		waiting[key]++
	}
	for key, ln := range l.lines {
		l.trim(ln, waiting[key])
		others = others || (waiting[key] > 0 && (ln.granted > 0 || l.wants(ln, waiting[key]) > 0))
		if len(ln.free) == 0 && !ln.doubt && waiting[key] == 0 {
			ln.unwatch()
			delete(l.lines, key)
		}
	}
	ended = ended || len(l.back) > 0
	if !l.giveBack(now) {
		return false
	}
	l.atOnce = ended && others && !l.job.rests(now) && l.job.term.registry.Trusted()
	return true
}

// trim gives back the tickets of a line for which no item waits, the newest first, and those that name another maximum than
// the job has now. It watches the line while a ticket waits.
func (l *limits) trim(ln *limitLine, waiting int) {
	kept := ln.free[:0:0]
	granted := 0
	for k, t := range ln.free {
		if t.Max != l.guest.Concurrency.Max || len(kept) >= waiting {
			l.back = append(l.back, t.Path)
			continue
		}
		if k < ln.granted {
			granted++
		}
		kept = append(kept, t)
	}
	ln.free, ln.granted = kept, granted
	if len(ln.free) == ln.granted || ln.stale {
		ln.unwatch()
		return
	}
	l.watch(ln)
}

// watch watches what stands before the first ticket that waits.
func (l *limits) watch(ln *limitLine) {
	want := ln.place.Watch(ln.path)
	if ln.end != nil && ln.watched == want {
		return
	}
	ln.unwatch()
	ctx, cancel := context.WithCancel(l.job.work)
	snapshots, err := l.job.member.Registry.Watch(ctx, want)
	if err != nil {
		cancel()
		ln.stale = true
		l.job.log.Warn("watching the line of a limit; trying again", zap.String("limit", ln.key), zap.Error(err))
		l.job.againAt = l.job.host.now().Add(retryPause)
		return
	}
	ln.watched, ln.end = want, cancel
	l.guests.running.Go(func() {
		for s := range snapshots {
			l.job.mail.post(func(m *mailbox) { m.limits = append(m.limits, limitNews{ln, s[want]}) })
		}
	})
}

// unwatch ends the watch of a line.
func (ln *limitLine) unwatch() {
	if ln.end != nil {
		ln.end()
		ln.end = nil
	}
}

// unwatch ends the watches of all lines.
func (l *limits) unwatch() {
	for _, ln := range l.lines {
		ln.unwatch()
	}
}

// giveBack deletes the tickets that are to be, with those that a commit of unknown outcome has made. It reports false if
// it could not.
func (l *limits) giveBack(now moment) bool {
	if l.job.rests(now) || !l.job.term.registry.Trusted() {
		return len(l.back) == 0
	}
	known := make(map[string]bool)
	for _, h := range l.held {
		known[h.Path] = true
	}
	for _, ln := range l.lines {
		for _, t := range ln.free {
			known[t.Path] = true
		}
	}
	for _, ln := range l.lines {
		if !ln.doubt {
			continue
		}
		found, err := permit.Own(l.job.work, l.job.member.Registry, ln.path, func(who permit.Holder) bool {
			return who.Job == l.job.name && event.TermOf(who.Host) == event.TermOf(l.job.member.Self.ID)
		}, known)
		if err != nil {
			l.job.failed(now, "looking for tickets of a limit", err)
			return false
		}
		ln.doubt = false
		for _, t := range found {
			l.back = append(l.back, t.Path)
		}
	}
	if len(l.back) == 0 {
		return true
	}
	if err := permit.Return(l.job.work, l.job.member.Registry, l.back...); err != nil {
		l.job.failed(now, "returning tickets of a limit", err)
		return false
	}
	l.back = nil
	return true
}

// waitsFor says in words for which permits the items of the job wait here.
func (l *limits) waitsFor() (forWhat, then string) {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(l.lines)) {
		ln := l.lines[key]
		if n := len(l.items.waitsUnder(key)); n > 0 {
			list = append(list, fmt.Sprintf("limit %s, under which %s may run at once: %s, with %s before them in the line",
				strconv.Quote(key), words.Count(ln.most, "item"), words.Count(n, "item")+" wait here", words.Count(ln.place.Before, "ticket")))
		}
	}
	if more := len(list) - mostNamedLimits; more > 0 {
		list = append(list[:mostNamedLimits], words.Count(more, "more limit"))
	}
	return "a permit of " + strings.Join(list, "; "), "see who runs: " + words.Command("status", l.job.name, "--items")
}

// mostNamedLimits is how many limits a text names.
const mostNamedLimits = 3
