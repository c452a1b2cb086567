// Package run carries out a fire: its listeners, its workers, and the guests of its
// items. It reports to the job that the fire belongs to, and decides nothing for it.
package run

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/guarantee"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/slots"
)

// Owner is the job that a fire belongs to. Fires call it from their goroutines.
type Owner interface {
	// Clock is the wall clock that the host goes by.
	Clock() time.Time
	// RegistryClock is what the registry's clock shows at least, as far as it is known.
	RegistryClock() time.Time
	// Registry is the host's session, for one goroutine, and Trust says whether it
	// lives; see [registry.Center].
	Registry() registry.Center
	Trust() (registry.Trust, <-chan struct{})
	// Emit reports an event. Expired reports a wait that has taken too long, HandleError
	// hands a failure to the job's error handler.
	Emit(event.Event)
	Expired(e *event.WaitError, items ...int)
	HandleError(c jobconfig.Configuration, what string, r abi.Result, fields ...zap.Field)
	// MayLog uses the job's quota for one line of so many bytes, MayCommit that of
	// commits of offsets, for which it waits. They report false if there is none.
	MayLog(bytes int) bool
	MayCommit(context.Context) bool
	// Staged: an execution has an offset to be saved. Refused: a commit of one met
	// a conflict. Ended: a run is over. Over: the goroutine of the fire has ended.
	// Listens: a listener has run for LongListener, or has ended after that.
	Listens()
	Staged()
	Refused()
	Ended(Ended)
	Over(*Fire)
}

// Job is what the fires of a job know of it. It is not changed.
type Job struct {
	Owner
	Name   string
	Layout tree.Layout
	Log    *zap.Logger
	// Account is the job's in the host's slots, of which it may have Slots at once.
	Account *slots.Account
	Slots   int
	// HostInfo and the functions are those of the host's Config.
	HostInfo string
	OnLog    func(event.GuestLog)
	WholeLog *event.WholeLog
	OnMetric func(event.GuestMetric) abi.Code
	OnCall   func(event.GuestCall)
	// Traceparent makes the trace context of a run.
	Traceparent func(event.Run) string
}

// Begun is what was begun in one commit, and how it is to run.
type Begun struct {
	Self   tree.JobInstance
	ID     tree.Fire
	Config jobconfig.Configuration
	Guest  jobconfig.Guest
	// Exec is what runs the items. The fire has a use of it, which the owner ends.
	Exec abi.Executor
	// Absent are items of this host that are due and do not run in this fire.
	Absent tree.Items
	// At is when, by Go's own clock; Previous and Next are the instants around it.
	At             time.Time
	Previous, Next time.Time
	// Delay is by how much the job's jitter puts off the start.
	Delay time.Duration
	// Workers is how many items run at once, Places how many of the job in all its
	// fires.
	Workers, Places int
	// Announces is set if Java hosts may wait for this host's items in the phases of
	// listeners that run once over all.
	Announces bool
}

// Fire is one firing of a job on this host: items that were begun in one commit,
// the workers that run them, and what is still open.
type Fire struct {
	Begun
	Runs []*Execution // by item

	job     *Job
	taskID  string
	started time.Time
	// listened is how long the listeners took that run before the items, opened when
	// the items could begin. They are not changed once workers run.
	listened time.Duration
	opened   time.Time
	// taken is how many of Runs have been taken by workers, or handed back.
	taken atomic.Int64
	// handBack is closed when nothing more may start; see ReturnQueued.
	handBack chan struct{}
	left     left
	workers  sync.WaitGroup
	// ended is how long after started the newest attempt ended that has ended, in nanoseconds.
	ended   atomic.Int64
	orphans atomic.Bool // a worker process has ended under an item: there are no more helpers
	// lastLine is the time of the newest line of its guests, in Unix nanoseconds; see lineTime.
	lastLine atomic.Int64
	// waits is what the fire's goroutine waits for of other hosts; nil for nothing.
	waits atomic.Pointer[ListenerWait]
	// listener is the one that runs, or waits for a slot; nil for none.
	listener atomic.Pointer[Listener]

	// What the loop of the job keeps of it; nothing here uses that.
	Open       int         // runs whose completion has not taken effect
	Outcome    abi.Outcome // the worst of its runs that are over; see Note
	GuestsDone bool
	Thrown     bool // an item failed and the error handler is THROW
}

// Args are the arguments of the trigger of a fire, for events; nil if it has none.
func Args(id tree.Fire) *event.TriggerArgs {
	if !id.HasArgs() {
		return nil
	}
	args := &event.TriggerArgs{Items: id.Only, Queued: id.Queued}
	if id.WithParam {
		args.Param = &id.Param
	}
	args.At, args.Backfill = id.Given, id.Backfill
	return args
}

// Note takes an outcome into that of the fire.
func (f *Fire) Note(o abi.Outcome) {
	if tree.Worse(string(o), string(f.Outcome)) {
		f.Outcome = o
	}
}

// New returns the fire of what was begun: states are those of the items, before is what
// was known of them until then, nil if they were taken over. It does nothing until Run
// is called.
func New(job *Job, b Begun, states, before map[int]coordination.ItemState) *Fire {
	f := &Fire{Begun: b, job: job, started: time.Now(), handBack: make(chan struct{}), left: left{none: make(chan struct{})}, Open: len(states), Outcome: abi.OutcomeOK}
	parameters, err := jobconfig.ParseItemParameters(b.Config.ShardingItemParameters)
	if err != nil {
		job.Log.Error("item parameters", zap.Error(err)) // refused by Validate before
	}
	items := slices.Sorted(maps.Keys(states))
	f.taskID = tree.TaskID(job.Name, items, b.Self.ID)
	for _, n := range items {
		parameter, has := parameters[n]
		e := &Execution{fire: f, Item: n, offsets: newTurn(), state: states[n], Fence: states[n].RecordZxid, parameter: parameter, hasParameter: has,
			previous: previousRun(b.Self.ID, before[n].Record)}
		if r := before[n].Record; r.Again != 0 && (r.HandedBack() == b.ID.Instant) {
			e.postponed = true
		}
		e.queued.Store(1)
		if b.Guest.StreamingProcess {
			e.asked = make(chan struct{})
		}
		f.Runs = append(f.Runs, e)
	}
	return f
}

// Items are those that were begun, ascending.
func (f *Fire) Items() []int {
	items := make([]int, len(f.Runs))
	for i, e := range f.Runs {
		items[i] = e.Item
	}
	return items
}

// Source is what made the fire.
func (f *Fire) Source() abi.Source { return abi.Source(f.ID.Source) }

// announced reports whether the listeners that run once over all hosts run for it.
func (f *Fire) announced() bool {
	return slices.Contains([]abi.Source{abi.SourceSchedule, abi.SourceTrigger, abi.SourceBackfill}, f.Source())
}

// Started is when its begin was answered.
func (f *Fire) Started() time.Time { return f.started }

// Took is how long the fire has taken here: from its begin to the end of the newest attempt that has
// ended. What listeners do after the items, and the completion, is not in it. Without an attempt it is
// the time since the begin.
func (f *Fire) Took() time.Duration {
	if took := f.ended.Load(); took != 0 {
		return time.Duration(took)
	}
	return time.Since(f.started)
}

// Waits is what the fire waits for of other hosts; nil for nothing.
func (f *Fire) Waits() *ListenerWait { return f.waits.Load() }

// Listener is the listener that runs, or waits for a slot; nil for none.
func (f *Fire) Listener() *Listener { return f.listener.Load() }

// Run is the fire's own goroutine: listeners, workers, and the news that all of
// them are done.
func (f *Fire) Run(guests context.Context) {
	var once sync.WaitGroup
	once.Go(func() { f.announce(guests, guarantee.Started, abi.ExportBeforeOnce) })
	began := time.Now()
	f.before(guests)
	f.opened = time.Now()
	f.listened = f.opened.Sub(began)
	// One worker for each processor is enough for items that come and go: a
	// worker more is one more instance to make. The others come when items take
	// their time.
	few := min(f.Workers, runtime.GOMAXPROCS(0))
	f.spawn(guests, few)
	if few < f.Workers && f.slow(guests, few) {
		f.spawn(guests, f.Workers)
	}
	f.workers.Wait()
	once.Wait()
	f.after(guests)
	f.announce(guests, guarantee.Completed, abi.ExportAfterOnce)
	f.job.Over(f)
}

// briskItem is how long an item takes at most, if a worker for each processor
// is enough; brisk is how long it is waited to see that.
const (
	briskItem = time.Millisecond
	brisk     = 10 * time.Millisecond
)

// slow waits until all items are taken, and reports true as soon as they take
// more than briskItem each with so many workers.
func (f *Fire) slow(guests context.Context, workers int) bool {
	ticker := time.NewTicker(brisk)
	defer ticker.Stop()
	for before := int64(0); ; {
		select {
		case <-f.left.none:
			return false
		case <-guests.Done():
			return false
		case <-ticker.C:
		}
		taken := f.taken.Load()
		if taken-before < int64(workers)*int64(brisk/briskItem) {
			return true
		}
		before = taken
	}
}

// previousRun is what a record has of a run of another instance. Nil if it
// tells of none, or not of which: a takeover leaves open whether it was of the
// trigger or of the instant, and a run that was handed back is no run.
func previousRun(self string, r tree.Record) *event.PreviousRun {
	if r.Begun == 0 || r.Owner == "" || r.Owner == self || r.IsHandedBack() ||
		(r.Source == string(abi.SourceFailover) && r.Trigger != 0) {
		return nil
	}
	was := &event.PreviousRun{Host: r.Owner, Outcome: abi.Outcome(r.Outcome)}
	if r.Source == string(abi.SourceTrigger) || r.Source == string(abi.SourceBackfill) {
		was.Trigger = r.Trigger
	} else {
		was.Instant = time.UnixMilli(r.Instant).UTC()
	}
	return was
}
