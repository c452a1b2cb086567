// Package explain says in sentences, from what hosts reported, why an item of a job ran
// late, elsewhere, again, or not at all. It is pure: events in, sentences out. It claims
// nothing that the events do not show.
package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// Question is what is asked about a job.
type Question struct {
	Job string
	// At is the instant that is meant; for a trigger, a time in the second in which a
	// host saw it first. Zero is the newest fire that was due.
	At time.Time
	// Nearest wants the newest fire at At or before, whatever its instant is.
	Nearest bool
	// Trigger is the round of the trigger that is meant, 0 for a fire by its instant.
	Trigger int64
	// Item is the one that is meant; nil is all.
	Item *int
	// Language is that of the sentences; empty is English. What people, guests and hosts
	// wrote themselves stays as they wrote it.
	Language i18n.Language
	// Zone is that of who asks, in which times are shown of a job that goes by the zone of each of its
	// hosts, or whose zone is not known. Nil: the zone of the host that answers, or UTC.
	Zone *time.Location
}

// Facts are what an answer rests on.
type Facts struct {
	// Events are those of all hosts, in any order: those of the job, and those of
	// hosts and sessions, which have no job.
	Events []event.Event
	// Changes are what people have changed, in any order.
	Changes []history.Change
	// Wanted are the changes by which the job, servers and items are disabled, stopped or removed now,
	// as the registry has them: of what the histories do not have.
	Wanted []history.Change
	// Settings are in force now; nil if only the events say what was.
	Settings *event.Settings
	// Idle is why the job does not fire now; empty if it does, or if that is not known.
	Idle Idle
	// From is since when the histories hold all events; zero is the oldest event.
	From time.Time
	// Silent names hosts whose histories could not be had.
	Silent []string
	// Unanswering are hosts of the job that do not answer, and whose session has not ended.
	Unanswering []Unanswering
	// Departed names servers of the job on which no host runs now, and whose histories are
	// therefore missing.
	Departed []string
	// Files: the events are from files that somebody named; other hosts may have others.
	Files bool
	// Partial: the histories have more that may belong to the answer.
	Partial bool
	Now     time.Time
}

// Unanswering is a host that does not answer.
type Unanswering struct {
	// Host is its instance id, Seen is when it answered last.
	Host string
	Seen time.Time
	// Items are those that it had then, and that no other host has now.
	Items []int
}

// Idle is why a job does not fire.
type Idle string

// Why a job does not fire.
const (
	IdleDisabled Idle = "disabled" // on all its servers
	IdleStopped  Idle = "stopped"  // on all its hosts
	IdleRemoved  Idle = "removed"  // from the registry
	IdleNoHost   Idle = "no host"  // no host has it
)

// Verdict is the answer in a word.
type Verdict string

// The verdicts on an item, or on a fire: that of its worst item. The order is from
// bad to good.
const (
	Lost      Verdict = "lost"      // its host died while it ran, and no host repeats it
	Held      Verdict = "held"      // it is held back, because hosts died in its runs
	Failed    Verdict = "failed"    // it ran, and was not OK in the end
	Killed    Verdict = "killed"    // an operator ended it
	Missed    Verdict = "missed"    // no host had it when it was due
	Refused   Verdict = "refused"   // a host could not run it: no module, settings or a clock
	NoHost    Verdict = "no host"   // no host had the job; or has it, of an instant to come
	Skipped   Verdict = "skipped"   // it still ran or the error handler stopped it: its policy
	Unknown   Verdict = "unknown"   // the histories do not show it
	Disabled  Verdict = "disabled"  // it was disabled, stopped or removed; or is, of an instant to come
	Elsewhere Verdict = "elsewhere" // another host had it, of which there is no history
	Pending   Verdict = "pending"   // it is still to begin
	Running   Verdict = "running"   // it has begun, and not ended
	Late      Verdict = "late"      // it began late, and was OK
	Coalesced Verdict = "coalesced" // a newer instant ran in its place
	Ran       Verdict = "ran"       // it began in time, and was OK
	NotYetDue Verdict = "not yet due"
	NeverDue  Verdict = "never due" // the job has no such instant, or no such item, or was not there yet
)

// Open reports whether the verdict may still change by itself: the item is to begin, runs, or the histories do not
// show yet what became of it.
func (v Verdict) Open() bool {
	switch v {
	case Pending, Running, Unknown, Elsewhere, NotYetDue:
		return true
	}
	return false
}

// verdicts are all of them, the worst first.
var verdicts = [...]Verdict{Lost, Held, Failed, Killed, Missed, Refused, NoHost, Skipped, Unknown, Disabled, Elsewhere, Pending, Running, Late, Coalesced, Ran, NotYetDue, NeverDue}

// Verdicts are all verdicts, the worst first.
func Verdicts() []Verdict { return slices.Clone(verdicts[:]) }

// Kind says what a sentence is about.
type Kind string

// The kinds. Of KindBegan and KindNotRun an item has exactly one.
const (
	KindBegan   Kind = "began"   // when and where it began
	KindNotRun  Kind = "not run" // that it did not, and why
	KindDue     Kind = "due"     // what the schedule says
	KindHost    Kind = "host"    // what became of a host, or of its session
	KindJob     Kind = "job"     // what became of the job on a host
	KindShare   Kind = "share"   // who got which items, and why
	KindSkip    Kind = "skip"    // why a host did not begin it
	KindWait    Kind = "wait"    // what it waited for
	KindAgain   Kind = "again"   // that it was begun once more, and why
	KindAttempt Kind = "attempt" // what an attempt came to
	KindEnd     Kind = "end"     // how its run ended
	KindChange  Kind = "change"  // who changed what
	KindHistory Kind = "history" // what the histories do not show
)

// Answer explains a fire.
type Answer struct {
	Job string `json:"job"`
	// Instant is that of the fire, for a trigger the time at which it was seen first.
	Instant time.Time `json:"instant,omitzero"`
	Trigger int64     `json:"trigger,omitempty"`
	// TimeZone is that of the times in the sentences: the job's, if it is known. If that is each
	// host's own, it is what the answering host's is then, such as GMT+08:00.
	TimeZone string  `json:"timeZone"`
	Verdict  Verdict `json:"verdict"`
	// Items are the verdicts on those items that were asked for, ascending.
	Items []ItemVerdict `json:"items,omitempty"`
	// Sentences say what became of each item, first of all, and what led to it.
	Sentences []Sentence `json:"sentences"`
}

// Open reports whether the verdict of any item may still change by itself; see [Verdict.Open].
func (a *Answer) Open() bool {
	open := func(i ItemVerdict) bool { return i.Verdict.Open() }
	return slices.ContainsFunc(a.Items, open) || (len(a.Items) == 0 && a.Verdict.Open())
}

// Zone is the zone of the times in the sentences.
func (a *Answer) Zone() *time.Location {
	if zone, err := schedule.Zone(a.TimeZone); err == nil && a.TimeZone != "" {
		return zone
	}
	return time.UTC
}

// ItemVerdict is the verdict on an item.
type ItemVerdict struct {
	Item    int     `json:"item"`
	Verdict Verdict `json:"verdict"`
}

// Sentence is one thing that is so, and what shows it.
type Sentence struct {
	// Time is when it was so, zero if at no certain time.
	Time time.Time `json:"time,omitzero"`
	Text string    `json:"text"`
	Kind Kind      `json:"kind"`
	// Items are those that it is about; empty if it is about the job.
	Items []int `json:"items,omitempty"`
	// Events and Changes are what it rests on, of many the first MostEvents. A
	// sentence about what is not there may have none.
	Events  []event.Event    `json:"events,omitempty"`
	Changes []history.Change `json:"changes,omitempty"`
}

// MostEvents bounds the events of a sentence, and its changes.
const MostEvents = 50

// Explain answers a question.
func Explain(q Question, f Facts) Answer {
	tl := newTimeline(q.Job, f)
	tl.language = cmp.Or(q.Language, en)
	if q.Zone != nil {
		tl.reader, tl.location = q.Zone, q.Zone
	}
	a := Answer{Job: q.Job, Sentences: []Sentence{}}
	chosen, early := tl.choose(q)
	a.TimeZone = tl.location.String()
	if early != nil {
		a.Verdict, a.Instant = early.verdict, early.instant
		a.Sentences = tl.compose([]story{early.story})
	} else {
		stories := tl.stories(tl.sinceAsked(chosen), q.Item)
		a.Instant, a.Trigger = chosen.instant, chosen.trigger
		a.Verdict = worst(stories)
		for _, s := range stories {
			if s.item >= 0 {
				a.Items = append(a.Items, ItemVerdict{s.item, s.verdict})
			}
		}
		a.Sentences = tl.compose(stories)
	}
	a.Sentences = append(a.Sentences, tl.silence()...)
	return a
}

// worst is the worst verdict of some stories.
func worst(stories []story) Verdict {
	rank := len(verdicts) - 1
	for _, s := range stories {
		rank = min(rank, s.verdict.rank())
	}
	return verdicts[rank]
}

func (v Verdict) rank() int {
	for i, w := range verdicts {
		if v == w {
			return i
		}
	}
	return 0
}
