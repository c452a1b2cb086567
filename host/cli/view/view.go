// Package view turns the stream of a host's events into few lines for people: one
// for each fire, and no more in a second than somebody can read.
package view

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// viewQueue is how many events may wait for the view.
	viewQueue = 4096
	// Of fires, fireBurst lines may come at once and fireRate per second in
	// the long run; the rest is summed up once a second. Bad news has a
	// budget of its own.
	fireBurst, fireRate = 60, 10
	// repeatAfter is how soon the same reason of the same job is shown again.
	repeatAfter = time.Minute
	// mostMemory bounds what the view remembers of fires, and of reasons.
	mostMemory = 10_000
	// mostAdded is how many jobs that came are held back at once.
	mostAdded = 64
)

// View turns the stream of events into few lines for people: one per fire, not
// one per item, and only so many per second. It takes events without blocking;
// one goroutine turns them into lines.
type View struct {
	show    func(line)
	brief   bool
	queue   chan event.Event
	done    chan struct{}
	dropped atomic.Int64
	// ending says that the host is on its way out.
	ending atomic.Bool

	mu     sync.Mutex // guards closed and the sending side of queue
	closed bool

	// Owned by run.
	failures *memory[fireKey, *failures]
	repeats  *memory[string, *repeat] // by text
	owners   map[string]bool          // jobs of which this host has items
	added    []line                   // jobs that came, held back for the items that they bring
	good     *rate.Limiter
	bad      *rate.Limiter
	rest     summary
}

// line is what the view shows: a fire, or a sentence about a job or the host.
type line struct {
	time  time.Time
	level zapcore.Level
	job   string
	text  string
	// fire is set for a fire; text is empty then.
	fire *fireLine
}

type fireLine struct {
	instant  time.Time
	items    []int
	source   abi.Source
	duration time.Duration
	lag      time.Duration
	outcome  abi.Outcome
	// reason says which items are not OK, if the fire has several. Why is in
	// their own lines.
	reason string
}

type fireKey struct {
	instant int64
	trigger int64
	source  abi.Source
}

// failures are the items of a fire that are not OK.
type failures struct {
	bad   map[int]struct{}
	lag   time.Duration
	items int
}

// repeat is a sentence that was said.
type repeat struct {
	at    time.Time
	count int // how often since
}

// summary counts what was not shown.
type summary struct {
	fires, bad, others int
	jobs               map[string]struct{}
}

// New begins to show lines; brief makes one of two where people read them.
func New(show func(line), brief bool) *View {
	v := &View{
		show:     show,
		brief:    brief,
		queue:    make(chan event.Event, viewQueue),
		done:     make(chan struct{}),
		failures: newMemory[fireKey, *failures](mostMemory),
		repeats:  newMemory[string, *repeat](mostMemory),
		owners:   make(map[string]bool),
		good:     rate.NewLimiter(fireRate, fireBurst),
		bad:      rate.NewLimiter(fireRate, fireBurst),
		rest:     summary{jobs: make(map[string]struct{})},
	}
	go v.run()
	return v
}

// Add takes an event. It never blocks; what does not fit is counted.
func (v *View) Add(e event.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	select {
	case v.queue <- e:
	default:
		v.dropped.Add(1)
	}
}

// End says that the host is on its way out.
func (v *View) End() { v.ending.Store(true) }

// Close shows what is queued and joins the goroutine.
func (v *View) Close() {
	v.mu.Lock()
	if !v.closed {
		v.closed = true
		close(v.queue)
	}
	v.mu.Unlock()
	<-v.done
}

func (v *View) run() {
	defer close(v.done)
	// The timer runs only while something is held back.
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	running := false
	for {
		select {
		case e, ok := <-v.queue:
			if !ok {
				timer.Stop()
				v.flush(time.Now())
				return
			}
			v.event(e)
			if held := v.rest.fires+v.rest.others+len(v.added) > 0; held && !running {
				timer.Reset(time.Second)
				running = true
			}
		case now := <-timer.C:
			running = false
			v.flush(now)
		}
	}
}

// flush shows what was held back, or its summary.
func (v *View) flush(now time.Time) {
	for _, l := range v.added {
		v.show(l)
	}
	v.added = nil
	if n := v.dropped.Swap(0); n > 0 {
		v.show(line{time: now, level: zapcore.WarnLevel, text: fmt.Sprintf("%d events came too fast to be shown here", n)})
	}
	r := v.rest
	if r.fires+r.others == 0 {
		return
	}
	v.rest = summary{jobs: make(map[string]struct{})}
	level := zapcore.InfoLevel
	text := fmt.Sprintf("… and %s of %s", words.Count(r.fires, "fire"), words.Count(len(r.jobs), "job"))
	switch {
	case r.fires == 0:
		text = fmt.Sprintf("… and %s about %s", words.Count(r.others, "more line"), words.Count(len(r.jobs), "job"))
	case r.bad > 0:
		level = zapcore.WarnLevel
		text += fmt.Sprintf(", %d not OK", r.bad)
	default:
		text += ", all OK"
	}
	v.show(line{time: now, level: level, text: text})
}

// limited shows a line if the budget allows it, and counts it otherwise.
func (v *View) limited(l line) {
	b := v.good
	if l.level > zapcore.InfoLevel {
		b = v.bad
	}
	if b.AllowN(l.time, 1) {
		v.show(l)
		return
	}
	v.rest.jobs[l.job] = struct{}{}
	if l.fire == nil {
		v.rest.others++
		return
	}
	v.rest.fires++
	if l.fire.outcome != abi.OutcomeOK {
		v.rest.bad++
	}
}

// seldom shows a sentence unless the same was said a short while ago.
func (v *View) seldom(l line) {
	text := l.text
	r := v.repeats.get(l.job, text)
	if r != nil && l.time.Sub(r.at) < repeatAfter {
		r.count++
		return
	}
	if r != nil && r.count > 0 {
		l.text += fmt.Sprintf(" (%d times more since)", r.count)
	}
	v.repeats.put(l.job, text, &repeat{at: l.time})
	v.limited(l)
}

func (v *View) event(e event.Event) {
	key := fireKey{e.Instant.UnixNano(), e.Trigger, e.Source}
	switch e.Kind {
	case event.JobConfigured, event.Janitor, event.Elected, event.Sharded, event.Assigned: // what a job that came may begin with
	default:
		if l, held := v.cameNow(e.Job); held {
			v.show(l)
		}
	}
	switch e.Kind {
	case event.FireStarted:
		f := v.of(e.Job, key)
		f.lag, f.items = e.Lag, len(e.Items)
	case event.ItemEnded:
		v.itemEnded(key, e)
	case event.FireEnded:
		v.fireEnded(key, e)
	case event.FireSkipped:
		v.seldom(lineOf(e, zapcore.InfoLevel, because(e, "nothing to run")))
	case event.ItemSkipped:
		text := "not run"
		if e.Item != nil {
			text = "item " + strconv.Itoa(*e.Item) + " " + text
		}
		v.seldom(lineOf(e, zapcore.InfoLevel, because(e, text)))
	case event.Assigned:
		v.assigned(e)
	case event.Sharded:
		v.limited(lineOf(e, zapcore.DebugLevel, because(e, "items assigned")))
	case event.Elected:
		v.limited(lineOf(e, zapcore.DebugLevel, "this host is the job's leader"))
	default: // what else happens in a fire is in the log already
		v.jobEvent(e)
	}
}

// lineOf is a sentence about an event.
func lineOf(e event.Event, level zapcore.Level, text string) line {
	return line{time: e.Time, level: level, job: e.Job, text: text}
}

// because adds the event's reason.
func because(e event.Event, text string) string {
	if e.Reason == "" {
		return text
	}
	return text + ": " + e.Reason
}

// jobEvent shows what becomes of a job, or of the session. EventJobError,
// EventRefused and a lost session are in the log already.
func (v *View) jobEvent(e event.Event) {
	say := func(level zapcore.Level, text string) { v.show(lineOf(e, level, text)) }
	switch e.Kind {
	case event.JobAdded:
		added := lineOf(e, zapcore.InfoLevel, because(e, "job added"))
		if !v.brief || len(v.added) >= mostAdded {
			v.show(added)
			return
		}
		v.added = append(v.added, added)
	case event.JobChanged:
		if e.Digest == "" { // a new module is in the host's own log
			say(zapcore.InfoLevel, because(e, "job changed"))
		}
	case event.JobRemoved:
		level := zapcore.InfoLevel
		if v.ending.Load() { // all jobs leave then
			level = zapcore.DebugLevel
		}
		say(level, because(e, "job left"))
		v.forget(e.Job)
	case event.OverQuota:
		say(zapcore.WarnLevel, because(e, "over its quota"))
	case event.JobStopped:
		say(zapcore.WarnLevel, because(e, "job stopped by an operator"))
	case event.Session:
		switch e.Reason {
		case event.SessionLive:
			say(zapcore.DebugLevel, "registry session live")
		case event.SessionSuspect:
			say(zapcore.WarnLevel, "registry session suspect: nothing begins until it is known to be alive")
		}
	}
}

// assigned shows which items this host has now, if that is news.
func (v *View) assigned(e event.Event) {
	text := "this host runs " + itemsText(e.Items)
	if len(e.Items) == 0 {
		if !v.owners[e.Job] {
			return
		}
		text = "this host runs no items any more"
	}
	v.owners[e.Job] = len(e.Items) > 0
	if l, held := v.cameNow(e.Job); held {
		v.show(lineOf(e, l.level, l.text+"; "+text))
		return
	}
	v.limited(lineOf(e, zapcore.InfoLevel, text))
}

// cameNow takes out the line of a job that is held back.
func (v *View) cameNow(job string) (l line, held bool) {
	i := slices.IndexFunc(v.added, func(l line) bool { return l.job == job })
	if i < 0 {
		return line{}, false
	}
	l = v.added[i]
	v.added = slices.Delete(v.added, i, i+1)
	return l, true
}

// of is the memory of a fire.
func (v *View) of(job string, key fireKey) *failures {
	f := v.failures.get(job, key)
	if f == nil {
		f = &failures{}
		v.failures.put(job, key, f)
	}
	return f
}

func (v *View) itemEnded(key fireKey, e event.Event) {
	if e.Item == nil {
		return
	}
	f := v.of(e.Job, key)
	if e.Outcome == abi.OutcomeOK {
		delete(f.bad, *e.Item)
		return
	}
	if f.bad == nil {
		f.bad = make(map[int]struct{})
	}
	f.bad[*e.Item] = struct{}{}
	if e.Outcome == abi.OutcomeRetry {
		text := fmt.Sprintf("item %d, attempt %d: RETRY", *e.Item, e.Attempt)
		if e.Reason != "" {
			text += ": " + words.FirstLine(e.Reason)
		}
		v.limited(line{time: e.Time, level: zapcore.WarnLevel, job: e.Job, text: text})
	}
}

func (v *View) fireEnded(key fireKey, e event.Event) {
	f := v.of(e.Job, key)
	v.failures.drop(e.Job, key)
	l := line{time: e.Time, level: zapcore.InfoLevel, job: e.Job, fire: &fireLine{
		instant: e.Instant, items: e.Items, source: e.Source, duration: e.Duration,
		lag: max(f.lag, e.Lag), outcome: e.Outcome,
	}}
	if e.Outcome != abi.OutcomeOK {
		l.level = zapcore.WarnLevel
		if total := max(f.items, len(e.Items)); total > 1 && len(f.bad) > 0 {
			bad := tree.Items(slices.Sorted(maps.Keys(f.bad))).String()
			if len(bad) > terminal.LongList {
				bad = bad[:terminal.LongList] + "…"
			}
			l.fire.reason = fmt.Sprintf("%d of %s not OK: %s", len(f.bad), words.Count(total, "item"), bad)
		}
	}
	v.limited(l)
}

// forget drops what is remembered of a job.
func (v *View) forget(job string) {
	delete(v.owners, job)
	v.failures.forget(job)
	v.repeats.forget(job)
}

// itemsText names items for people.
func itemsText(items []int) string {
	if len(items) == 1 {
		return "item " + strconv.Itoa(items[0])
	}
	return "items " + tree.Items(items).String()
}

// ShowRow shows lines in columns, on a terminal.
func ShowRow(c *terminal.Console, least zapcore.Level) func(line) {
	return func(l line) {
		if l.level < least {
			return
		}
		if l.fire == nil {
			tag, colour := terminal.LevelTag(l.level)
			who := l.job
			if who == "" {
				who = "host"
			}
			c.Row(l.time, tag, colour, who, l.text)
			return
		}
		f := l.fire
		colour := terminal.Green
		if f.outcome != abi.OutcomeOK {
			colour = terminal.Red
		}
		items := itemsText(f.items)
		if len(items) > 24 {
			items = items[:23] + "…"
		}
		text := terminal.Pad(items, 14) + "  " + terminal.Pad(string(f.source), 8) + "  " + fmt.Sprintf("%7s", words.Short(f.duration)) + "  " +
			c.Style.Paint(colour, string(f.outcome))
		if f.lag >= time.Second {
			text += c.Style.Paint(terminal.Yellow, "  "+words.Short(f.lag)+" late")
		}
		if f.reason != "" {
			text += "  " + f.reason
		}
		c.Row(l.time, "fire", terminal.Bold, l.job, text)
	}
}

// ShowLog writes lines to the log.
func ShowLog(log *zap.Logger) func(line) {
	return func(l line) {
		text := l.text
		var fields []zap.Field
		if l.job != "" {
			fields = append(fields, zap.String(terminal.FieldJob, l.job))
		}
		if f := l.fire; f != nil {
			text = "fire ended"
			fields = append(fields,
				zap.Time("instant", f.instant), zap.String("items", tree.Items(f.items).String()), zap.String("source", string(f.source)),
				zap.Duration("duration", f.duration), zap.Duration("lag", f.lag), zap.String("outcome", string(f.outcome)))
			if f.reason != "" {
				fields = append(fields, zap.String("reason", f.reason))
			}
		}
		if entry := log.Check(l.level, text); entry != nil {
			entry.Time = l.time
			entry.Write(slices.Clip(fields)...)
		}
	}
}
