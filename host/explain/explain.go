// Package explain explains in sentences, from the events of hosts, why an item of a job ran late, on another host, again,
// or not at all. It is pure: it turns events into sentences, and claims nothing that the events do not show.
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

// Question is a question about a job.
type Question struct {
	Job string
	// At is the instant of the fire; for a trigger, a time in the second in which a host first saw it. Zero asks for the
	// newest due fire.
	At time.Time
	// Nearest asks for the newest fire at or before At.
	Nearest bool
	// Trigger is the round of a trigger, 0 for a fire by its instant.
	Trigger int64
	// Item is the item to explain; nil means all.
	Item *int
	// Language is the language of the sentences; empty means English. Texts of people, guests and hosts stay in their
	// language.
	Language i18n.Language
	// Zone is the reader's zone, for the times of a job whose hosts each use their own zone, or whose zone is unknown.
	// Nil means the zone of the answering host, or UTC.
	Zone *time.Location
}

// Facts are the facts for an answer.
type Facts struct {
	// Events are those of all hosts, in any order: the events of the job, and those of hosts and sessions, which have no
	// job.
	Events []event.Event
	// Changes are the users' changes, in any order.
	Changes []history.Change
	// Wanted are the registry's words by which the job, servers and items are disabled, stopped or removed now, for what
	// the histories do not have.
	Wanted []history.Change
	// Settings are in force now; nil if only the events show them.
	Settings *event.Settings
	// Idle is why the job does not fire now; empty if it does, or if that is unknown.
	Idle Idle
	// From is since when the histories are complete; zero means since the oldest event.
	From time.Time
	// Silent names hosts whose histories could not be read.
	Silent []string
	// Unanswering are hosts of the job that do not answer, although their session has not ended.
	Unanswering []Unanswering
	// Departed names servers of the job on which no host runs now, so that their histories are missing.
	Departed []string
	// Files: the events are from files that a user named; other hosts may have further files.
	Files bool
	// Partial: the histories have more records that may belong to the answer.
	Partial bool
	Now     time.Time
}

// Unanswering is a host that does not answer.
type Unanswering struct {
	// Host is its instance id, Seen is when it last answered.
	Host string
	Seen time.Time
	// Items are the items that it had then and that no other host has now.
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

// The verdicts on an item, or on a fire, which has the verdict of its worst item. They are ordered from bad to good.
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

// Open reports whether the verdict may still change by itself: the item has not begun, or runs, or the histories do not
// show its result yet.
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
	// Instant is the instant of the fire; for a trigger, the time at which it was first seen.
	Instant time.Time `json:"instant,omitzero"`
	Trigger int64     `json:"trigger,omitempty"`
	// TimeZone is the zone of the times in the sentences: the job's, if known. If each host uses its own, it is the
	// answering host's zone at that time, such as GMT+08:00.
	TimeZone string  `json:"timeZone"`
	Verdict  Verdict `json:"verdict"`
	// Items are the verdicts on the requested items, ascending.
	Items []ItemVerdict `json:"items,omitempty"`
	// Sentences say first what happened to each item, then its causes.
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

// Sentence is one fact, with its proof.
type Sentence struct {
	// Time is when it was true, zero without a certain time.
	Time time.Time `json:"time,omitzero"`
	Text string    `json:"text"`
	Kind Kind      `json:"kind"`
	// Items are the items that it is about; empty if it is about the job.
	Items []int `json:"items,omitempty"`
	// Events and Changes prove it; of many only the first MostEvents. A sentence about something missing may have none.
	Events  []event.Event    `json:"events,omitempty"`
	Changes []history.Change `json:"changes,omitempty"`
}

// MostEvents is how many events, and how many changes, a sentence has at most.
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

// worst returns the worst verdict of some stories.
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
