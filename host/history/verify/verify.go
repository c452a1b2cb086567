// Package verify reads what all hosts of a cluster wrote down of their events
// and says whether the promises of delivery were kept. It believes no host: of
// the code under test it uses only names and forms, which are the form of an
// event, the id of a run, and in the registry the paths of nodes and the form
// of a list of items. No rule of the protocol is taken from there. It names the
// lines that prove what it says.
//
// # What is checked
//
//  1. No item had two live owners: guests of one item never ran on two hosts
//     at once.
//  2. Every item of every due fire ran to its own end, or a reason why not was
//     written down. A reason that announces a run ([event.Event], Owed) is kept by
//     a run for that instant or a newer one, or by a later reason that announces
//     none, within [Options.Settle] of the time at which no run of the item is
//     under way and some host with a live session has the job.
//     Each instant of a backfill that was given out is such a fire: when the next one is given out, or the backfill
//     ends with its last, each of its items has begun it, or has the reason why not. No instant between two
//     that were given out is without a line, and none is given out twice.
//  3. An item whose completion took effect did not run again in its fire.
//  4. Offsets only move forward, and not by a run whose item had been begun
//     again under a greater fence.
//  5. Every job fires again within a period ([Options.Period]), also after the
//     sessions of its hosts were lost, and the registry holds no marks of
//     hosts that are gone ([LeftBehind]).
//  6. The fences of an item strictly grow.
//
// # Clocks and crashes
//
// Events of one file are in order. Between hosts there are only clocks, so that
// 1 and 6 forgive what is shorter than [Options.Skew]; what the registry orders
// by fence and offset is judged without any clock.
//
// A host that is killed leaves runs without an end. Such a run is known to have
// gone on until the last line that its host wrote. If no host ran the item again
// for the fire, either its completion took effect and the line about it was
// lost with the process, or the item was forgotten. Which of them is shown by the
// host that begins the item next: its line says what the item's record held
// ([event.PreviousRun]). A run that was open there, and of which no line says
// that it was given up, is a violation. If the item is not begun again, or
// more hosts died before one could write that line, the files cannot show it, and
// the run is listed as unproven.
//
// A host that was halted (SIGSTOP) finds out when it goes on that its session
// is over: its guest was alive all the time, and without any effect outside.
// Such an overlap is listed as fenced, if the host wrote nothing from before the
// next owner began until two seconds at most before it said that its session
// was lost. A host that is cut off knows, and has to stop its guests in time:
// once it has said "yield", an overlap is a violation. Neither what is unproven
// nor what is fenced is a violation unless [Options.Strict] is set.
//
// A host keeps no more of a job's events than its quota allows, and says so. From
// that line on what would be a violation of the job is unproven.
//
// # Jobs of a host without a session
//
// A job that a host had when its session was lost is wanted of it as soon as it
// has a session again, until it is removed or the host ends. Nothing is asked
// while no host that has the job has a live session.
//
// # Hosts that write no history
//
// What Java hosts run is in no file ([Options.Java]). And an item that no host with a
// given history had, while each of them says which ones it has, may be in a file that
// is missing: it is unproven, unless [Options.Completed] has all.
//
// Files that begin late, because older events were dropped, and files whose
// host still writes, are normal: what was due before the first line of a job or
// less than [Options.Settle] before the last one is not judged.
//
// # Databases
//
// A history in a database ([Database]) may be that of several hosts: the events of one process are those of one file. What
// hosts have in their spools is not there yet, and counts as what was not written.
package verify

import (
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Options are what a check goes by. The zero value has the defaults.
type Options struct {
	// Skew is by how much clocks of different servers may differ. 0 is
	// DefaultSkew; negative is not at all.
	Skew time.Duration
	// Settle is how long after its instant a fire must be accounted for, with
	// the job on some host all the while. 0 is DefaultSettle.
	Settle time.Duration
	// Period is how often every job with a cron fires at least, while some host with a live
	// session has it; a fire that is skipped with a reason counts. 0 is not checked.
	Period time.Duration
	// Java are jobs in which Java hosts take part, who write no history: an item
	// that is not with a host of ours all the while is theirs.
	Java []string
	// Strict makes violations of what else is only noted.
	Strict bool
	// Completed, if not nil, has completions that took effect although
	// their host did not live to write the line. The argument is the run id. With
	// it nothing about the runs of dead hosts is unproven: of each that was not
	// completed a host must say, within twice Settle, that it took it over or that
	// it is lost.
	Completed func(runID string) bool
	// MaxFindings bounds the findings that are kept for each invariant; all
	// are counted. 0 is DefaultMaxFindings.
	MaxFindings int
}

// Defaults of Options.
const (
	DefaultSkew        = time.Second
	DefaultSettle      = 5 * time.Minute
	DefaultMaxFindings = 20
)

// Invariant is the number of one of the promises.
type Invariant int

// The invariants, as numbered in the package comment.
const (
	OneOwner Invariant = iota + 1
	Accounted
	OnceCompleted
	OffsetsForward
	Settled
	FencesGrow
)

// String is the promise in words.
func (i Invariant) String() string {
	switch i {
	case OneOwner:
		return "no item has two live owners"
	case Accounted:
		return "every item of every due fire ran, or a reason is recorded"
	case OnceCompleted:
		return "no completed item runs again in its fire"
	case OffsetsForward:
		return "offsets only move forward under growing fences"
	case Settled:
		return "every job goes on firing, and nothing is left behind in the registry"
	case FencesGrow:
		return "the fences of an item strictly grow"
	}
	return "?"
}

// Class says how bad a finding is.
type Class string

// The classes.
const (
	// Violated: a promise was broken.
	Violated Class = "violated"
	// Unproven: the lines that would show it were lost with a process.
	Unproven Class = "unproven"
	// Fenced: the guest of a former owner whose host was halted was still alive,
	// and had no effect.
	Fenced Class = "fenced"
)

// Place is where a line stands. In a database it is the number of the event among all that were read, by their times.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Line is an event that proves something, in short.
type Line struct {
	Place
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// Finding is something that is not as promised.
type Finding struct {
	Invariant Invariant `json:"invariant"`
	Class     Class     `json:"class"`
	Job       string    `json:"job,omitempty"`
	// Item is -1 if the finding is about no single item.
	Item  int    `json:"item"`
	RunID string `json:"runId,omitempty"`
	Text  string `json:"text"`
	// Lines are the proof.
	Lines []Line `json:"lines,omitempty"`
	// Nodes are the proof in the registry.
	Nodes []string `json:"nodes,omitempty"`
}

// JobReport counts what was seen of one job.
type JobReport struct {
	Job string `json:"job"`
	// Fires are the instants and triggers of which there is any line; Judged
	// those of which enough time had passed.
	Fires  int `json:"fires"`
	Judged int `json:"judged"`
	// Runs are begun items; Completed those whose completion took effect;
	// Skipped are items that did not run, with the reason.
	Runs      int `json:"runs"`
	Completed int `json:"completed"`
	Skipped   int `json:"skipped"`
	// Items is the largest number of an item, plus one.
	Items      int `json:"items"`
	Violations int `json:"violations"`
}

// Report is the result of a check.
type Report struct {
	Files []string `json:"files"`
	// Events were read; BadLines were no events and passed over.
	Events   int64 `json:"events"`
	BadLines int64 `json:"badLines"`
	// Hosts is how many processes wrote, Instances how many lives they had.
	Hosts     int         `json:"hosts"`
	Instances int         `json:"instances"`
	From      time.Time   `json:"from,omitzero"`
	To        time.Time   `json:"to,omitzero"`
	Jobs      []JobReport `json:"jobs"`
	// Violations, Unproven and Fenced count all findings, by class; Findings
	// has the first of them.
	Violations int       `json:"violations"`
	Unproven   int       `json:"unproven"`
	Fenced     int       `json:"fenced"`
	Findings   []Finding `json:"findings"`
	// Checked says how often each invariant was put to the test.
	Checked map[Invariant]int64 `json:"checked"`
	// Registry is there if the registry was looked at ([Report.AddRegistry]).
	Registry *RegistryReport `json:"registry,omitempty"`
}

// mark is what is remembered of an event.
type mark struct {
	at      Place
	time    time.Time
	kind    event.Kind
	host    string
	fence   int64
	item    int
	outcome abi.Outcome
	reason  string
}

func markOf(e *event.Event, at Place) mark {
	m := mark{at: at, time: e.Time, kind: e.Kind, host: e.Host, fence: e.Fence, item: -1, outcome: e.Outcome}
	if e.Item != nil {
		m.item = *e.Item
	}
	if e.Kind == event.ItemSkipped || e.Kind == event.FireSkipped || e.Kind == event.Session {
		m.reason = words.ClipTo(e.Reason, 160)
	}
	return m
}

func (m mark) line() Line {
	text := string(m.kind)
	if m.item >= 0 {
		text += fmt.Sprintf(" item %d", m.item)
	}
	if m.fence != 0 {
		text += fmt.Sprintf(" fence %d", m.fence)
	}
	if m.outcome != "" {
		text += " " + string(m.outcome)
	}
	if m.host != "" {
		text += " on " + m.host
	}
	if m.reason != "" {
		text += ": " + m.reason
	}
	return Line{Place: m.at, Time: m.time, Text: text}
}

func linesOf(marks ...mark) []Line {
	var list []Line
	for _, m := range marks {
		if m.kind != "" {
			list = append(list, m.line())
		}
	}
	return list
}
