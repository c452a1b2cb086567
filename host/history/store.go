package history

import (
	"context"
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Store keeps what hosts report, and finds it again: events, fires and runs made from
// them, the lines that guests log, and changes. It is safe for concurrent use.
//
// Adding never blocks and never fails: what a store cannot take at once waits in a
// bounded queue, and what does not fit there is counted in State. Reading returns
// what was written a moment ago, newest first.
type Store interface {
	AddEvent(e event.Event)
	AddLine(l Line)
	AddChange(c Change)

	Fires(ctx context.Context, f Filter) (Page[Fire], error)
	Runs(ctx context.Context, f Filter) (Page[Run], error)
	Events(ctx context.Context, f Filter) (Page[event.Event], error)
	Lines(ctx context.Context, f Filter) (Page[Line], error)
	Changes(ctx context.Context, f Filter) (Page[Change], error)

	State() State
	// Close writes what is queued.
	Close() error
}

// MaxLimit is the largest limit of a page, DefaultLimit the limit if none is set.
const MaxLimit, DefaultLimit = 1000, 50

// Filter selects records that meet all of its conditions. The zero value selects all.
type Filter struct {
	// Jobs are patterns of names, as path.Match has them; none is all jobs. Events of
	// a host, which have no job, are found if there is no pattern.
	Jobs []string
	// Labels selects records of jobs that have these labels now. Callers resolve it into Jobs before they query
	// a store; stores ignore it.
	Labels labels.Selector
	Host   string // an instance's id, its process, or its server; see [event.Names]
	Item   *int
	// Run is a run's id, as [tree.RunID] makes it.
	Run string
	// Instant is the scheduled time of one fire, Trigger its trigger round, which finds the change that asked for it, too.
	Instant time.Time
	Trigger int64
	// Failed selects failures and unknown outcomes, without cancelled runs; Outcomes are alternatives.
	Failed   bool
	Outcomes []abi.Outcome
	// Running selects runs and fires that have not ended.
	Running bool
	Kinds   []event.Kind
	// Level is the least level of a line, as abi.LevelInfo, which is 0: lines of lower
	// levels are found only if it is set. Text is contained in it, or
	// in the message of a run, regardless of case.
	Level int
	Text  string
	// Who is contained in the user of a change, regardless of case. What are operations,
	// whole or by their first words: "edit" is an edit of whatever setting, "edit cron" of that one,
	// "sign" signing in and out; see [CheckOperation]. They are alternatives; with a "!" before it, one is left out.
	Who  string
	What []string
	// From and To bound the time of the record, To exclusively; zero is no bound.
	// A fire and a run have the time at which they began.
	From, To time.Time
	// Limit is 1 to MaxLimit, 0 is DefaultLimit. After is the Next of the page before.
	Limit int
	After string
	// Oldest sorts the oldest first.
	Oldest bool
	// Unwritten selects only records that a store has not yet written to the hosts' common database, while that
	// does not answer.
	Unwritten bool
}

// Page is a part of what a filter finds.
type Page[T any] struct {
	Records []T `json:"records"`
	// Next is the after of a request for the next page, empty if there is none. A page may have
	// fewer records than the limit, even none, and a next: the store had to look through so
	// much that it answers with what it has.
	Next string `json:"next,omitempty"`
	// Missing says what does not answer, and why: what it has is missing in the page. It is empty if nothing is known to be.
	Missing string `json:"missing,omitempty"`
}

// Fire is a job's fire over all hosts that are known to the store.
type Fire struct {
	Job string `json:"job"`
	// Labels are the job's present labels; only lists have them, stores do not.
	Labels  labels.Set `json:"labels,omitempty"`
	Instant time.Time  `json:"instant"`
	Trigger int64      `json:"trigger,omitempty"`
	Source  abi.Source `json:"source"`
	Hosts   []string   `json:"hosts"`
	// Items are the items that began; Total is how many the fire has over all hosts, 0 if unknown.
	Items []int `json:"items"`
	Total int   `json:"total,omitempty"`
	// Succeeded, Failed and Running count items. Running have not ended; Queued of them have not begun
	// to run, as far as is known: they wait for a slot, or for memory.
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
	Running   int `json:"running"`
	Queued    int `json:"queued,omitempty"`
	// Cancelled counts cancelled items, such as by an operator's kill.
	Cancelled int `json:"cancelled,omitempty"`
	// Unknown counts items with an unknown outcome, whose host is gone.
	Unknown int       `json:"unknown,omitempty"`
	Begun   time.Time `json:"begun"`
	// Ended is when the last item ended, zero while one runs.
	Ended    time.Time     `json:"ended,omitzero"`
	Duration time.Duration `json:"durationNs"` // from the begin to the end of the last item, in nanoseconds; 0 if some are of unknown end
	// Usual is how long fires of the job take, in nanoseconds: the median of the latest that were
	// OK, 0 if that is not known of five. Only a list of what runs has it.
	Usual time.Duration `json:"usualNs,omitempty"`
	// Lag is how much later than Instant the first of its items began, in nanoseconds; 0 for a
	// trigger.
	Lag time.Duration `json:"lagNs"`
	// Outcome is the worst of the items, empty while one runs; Message is what such an item said.
	Outcome abi.Outcome `json:"outcome,omitempty"`
	Message string      `json:"message,omitempty"`
}

// Run is one item of one fire, with its last attempt.
type Run struct {
	ID  string `json:"id"`
	Job string `json:"job"`
	// Labels are the job's present labels.
	Labels  labels.Set `json:"labels,omitempty"`
	Item    int        `json:"item"`
	Instant time.Time  `json:"instant"`
	Trigger int64      `json:"trigger,omitempty"`
	Source  abi.Source `json:"source"`
	Host    string     `json:"host"`
	Attempt int        `json:"attempt"`
	// Begun is when the run began on Host.
	Begun time.Time `json:"begun"`
	// First is when it began first, if it was taken over from another host; else zero. A list
	// has it in the place of its first begin.
	First time.Time `json:"firstBegun,omitzero"`
	// Ended is when the run ended, zero while it runs.
	Ended time.Time `json:"ended,omitzero"`
	// Duration is how long its last attempt took, in nanoseconds, 0 if that is not known. All attempts
	// on Host took from Begun to Ended.
	Duration time.Duration `json:"durationNs"`
	// Usual is how long runs of the job take, as that of a fire.
	Usual time.Duration `json:"usualNs,omitempty"`
	// Lag is how much later than Instant it began first, in nanoseconds, whatever made it begin;
	// 0 for a trigger.
	Lag time.Duration `json:"lagNs"`
	// Outcome is empty while it runs; in the pause before another attempt, Message says how the last one
	// ended. Completed: the completion took effect in the registry.
	Outcome      abi.Outcome                 `json:"outcome,omitempty"`
	Completed    bool                        `json:"completed"`
	Message      string                      `json:"message,omitempty"`
	Fence        int64                       `json:"fence,omitempty"`
	Digest       string                      `json:"digest,omitempty"`
	Signer       string                      `json:"signer,omitempty"`
	Memory       int64                       `json:"memoryBytes,omitempty"`
	Batches      int64                       `json:"batches,omitempty"`
	Records      int64                       `json:"records,omitempty"`
	DroppedLines int64                       `json:"droppedLines,omitempty"`
	Outside      map[string]abi.OutsideCount `json:"outside,omitempty"`
}

// Line is one line that a guest logged, or one of its host's about lines that are not kept.
type Line struct {
	Time time.Time `json:"time"`
	Job  string    `json:"job"`
	// Labels are the job's present labels; a followed line has none.
	Labels labels.Set `json:"labels,omitempty"`
	RunID  string     `json:"runId"`
	// Item is -1 in a listener.
	Item    int      `json:"item"`
	Host    string   `json:"host"`
	Level   int      `json:"level"` // -4 is debug, 0 info, 4 warn, 8 error
	Message string   `json:"message"`
	Attrs   []string `json:"attrs,omitempty"` // keys and values in turns: key, value, key, value
	// Gap counts the lines of the run that are not kept, for a line of the host about them.
	Gap int64 `json:"gap,omitempty"`
}

// Place is where the line stands among those of its run: no other has it, and as texts places are in
// the order of the lines. That is as hosts number them: by times, of which a host gives none twice in
// a run. A line about missing ones stands before the one behind them, whose time it has.
func (l *Line) Place() string {
	kind := 1
	if l.Gap > 0 {
		kind = 0
	}
	return fmt.Sprintf("%019d.%d %s", max(Nanos(l.Time), 0), kind, l.Host)
}

// Change is one change that a user made to a job or to a host: an audit record.
type Change struct {
	Time time.Time `json:"time"`
	// Who is the user; From is where the request came from: an address, "file",
	// "registry" for what was written to the registry itself, by a command or another program.
	Who  string `json:"who"`
	From string `json:"from"`
	// What is the operation: "disable", "trigger", "edit cron", …
	What string `json:"what"`
	Job  string `json:"job,omitempty"`
	Item *int   `json:"item,omitempty"`
	Host string `json:"host,omitempty"`
	// Trigger is the number of the trigger round that a trigger made.
	Trigger int64 `json:"trigger,omitempty"`
	// Before and After are the changed value, as text; both may be empty.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Why is the reason that the user gave.
	Why string `json:"why,omitempty"`
	// Error says why the change did not take effect, empty if it did.
	Error string `json:"error,omitempty"`
}

// State is the condition of a store.
type State struct {
	// Where names the store without a password.
	Where string `json:"where"`
	// Shared: all hosts of the cluster write to the store, so that it answers for all.
	Shared bool `json:"shared"`
	// Queued records wait in memory, Spooled ones on the disk; Dropped counts those lost since the host began.
	Queued  int64 `json:"queued"`
	Spooled int64 `json:"spooled"`
	Dropped int64 `json:"dropped"`
	// Problem says why the last records could not be written, empty if they could;
	// Since is when the first of them waited.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}
