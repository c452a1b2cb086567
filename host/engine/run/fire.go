// Package run carries out a fire: its listeners, its workers, and the guests of its items. It reports to the job of the
// fire, and makes no decisions for it.
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

// Owner is the job of a fire. Fires call it from their goroutines.
type Owner interface {
	// Clock returns the wall clock that the host uses.
	Clock() time.Time
	// RegistryClock returns the earliest time that the registry's clock can show; zero if unknown.
	RegistryClock() time.Time
	// Registry returns the host's session, for one goroutine. Trust returns how far the session is trusted; see
	// [registry.Center].
	Registry() registry.Center
	Trust() (registry.Trust, <-chan struct{})
	// Emit reports an event. Expired reports a wait that took too long. HandleError gives a failure to the job's error
	// handler.
	Emit(event.Event)
	Expired(e *event.WaitError, items ...int)
	HandleError(c jobconfig.Configuration, what string, r abi.Result, fields ...zap.Field)
	// MayLog uses the job's quota for one line of bytes bytes. MayCommit waits for the job's quota of offset commits.
	// They return false without one.
	MayLog(bytes int) bool
	MayCommit(context.Context) bool
	// Staged: an execution has an offset to save. Refused: a commit of an offset met a conflict. Ended: a run has ended.
	// Over: the goroutine of the fire has ended. Listens: a listener has run for LongListener, or has ended after that.
	Listens()
	Staged()
	Refused()
	Ended(Ended)
	Over(*Fire)
}

// Job is what the fires of a job know of it. It is immutable.
type Job struct {
	Owner
	Name   string
	Layout tree.Layout
	Log    *zap.Logger
	// Account is the job's account of the host's slots; the job may have Slots at the same time.
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

// Begun is what one commit has begun, and how it is to run.
type Begun struct {
	Self   tree.JobInstance
	ID     tree.Fire
	Config jobconfig.Configuration
	Guest  jobconfig.Guest
	// Exec runs the items. The fire has a use of it, which the owner ends.
	Exec abi.Executor
	// Absent are items of this host that are due and do not run in this fire.
	Absent tree.Items
	// At is when the fire began, by Go's own clock; Previous and Next are the instants around it.
	At             time.Time
	Previous, Next time.Time
	// Delay is how long the job's jitter delays the start.
	Delay time.Duration
	// Workers is how many items run at the same time in this fire, Places how many of the job in all its fires.
	Workers, Places int
	// Announces is set if Java hosts may wait for this host's items in the phases of listeners that run once over all
	// hosts.
	Announces bool
}

// Fire is one fire of a job on this host: the items that one commit has begun, the workers that run them, and what is
// still open.
type Fire struct {
	Begun
	Runs []*Execution // by item

	job     *Job
	taskID  string
	started time.Time
	// listened is how long the listeners before the items took; opened is when the items could begin. They do not change
	// once workers run.
	listened time.Duration
	opened   time.Time
	// taken is how many of Runs workers have taken, or were handed back.
	taken atomic.Int64
	// handBack is closed when no more items may start; see ReturnQueued.
	handBack chan struct{}
	left     left
	workers  sync.WaitGroup
	// ended is the end of the attempt that ended last, in nanoseconds after started.
	ended   atomic.Int64
	orphans atomic.Bool // a worker process has ended under an item: there are no more helpers
	// lastLine is the time of the newest line of its guests, in Unix nanoseconds; see lineTime.
	lastLine atomic.Int64
	// waits is the wait of the fire's goroutine for other hosts; nil without one.
	waits atomic.Pointer[ListenerWait]
	// listener is the listener that runs, or waits for a slot; nil without one.
	listener atomic.Pointer[Listener]

	// State that the loop of the job keeps; this package does not use it.
	Open       int         // runs whose completion has not taken effect
	Outcome    abi.Outcome // the worst of its runs that are over; see Note
	GuestsDone bool
	Thrown     bool // an item failed and the error handler is THROW
}

// Args returns the arguments of a fire's trigger, for events; nil without any.
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

// Note includes an outcome in that of the fire.
func (f *Fire) Note(o abi.Outcome) {
	if tree.Worse(string(o), string(f.Outcome)) {
		f.Outcome = o
	}
}

// New returns the fire of begun items. states are the items' states; before are their states before the begin, or nil if
// the items were taken over. The fire does nothing until Run.
func New(job *Job, b Begun, states, before map[int]coordination.ItemState) *Fire {
	f := &Fire{Begun: b, job: job, started: time.Now(), handBack: make(chan struct{}), left: left{none: make(chan struct{})}, Open: len(states), Outcome: abi.OutcomeOK}
	parameters, err := jobconfig.ParseItemParameters(b.Config.ShardingItemParameters)
	if err != nil {
		job.Log.Error("the item parameters are invalid", zap.Error(err)) // refused by Validate before
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

// Items returns the begun items, ascending.
func (f *Fire) Items() []int {
	items := make([]int, len(f.Runs))
	for i, e := range f.Runs {
		items[i] = e.Item
	}
	return items
}

// Source returns what made the fire.
func (f *Fire) Source() abi.Source { return abi.Source(f.ID.Source) }

// announced reports whether the listeners that run once over all hosts run for it.
func (f *Fire) announced() bool {
	return slices.Contains([]abi.Source{abi.SourceSchedule, abi.SourceTrigger, abi.SourceBackfill}, f.Source())
}

// Started returns when its begin was answered.
func (f *Fire) Started() time.Time { return f.started }

// Took returns how long the fire has taken on this host: from its begin to the end of the attempt that ended last,
// without the listeners after the items and the completion. Before the end of any attempt it is the time since the begin.
func (f *Fire) Took() time.Duration {
	if took := f.ended.Load(); took != 0 {
		return time.Duration(took)
	}
	return time.Since(f.started)
}

// Waits returns the fire's wait for other hosts; nil without one.
func (f *Fire) Waits() *ListenerWait { return f.waits.Load() }

// Listener returns the listener that runs, or waits for a slot; nil without one.
func (f *Fire) Listener() *Listener { return f.listener.Load() }

// Run is the fire's own goroutine: it runs listeners and workers, and reports when all of them are done.
func (f *Fire) Run(guests context.Context) {
	var once sync.WaitGroup
	once.Go(func() { f.announce(guests, guarantee.Started, abi.ExportBeforeOnce) })
	began := time.Now()
	f.before(guests)
	f.opened = time.Now()
	f.listened = f.opened.Sub(began)
	// One worker for each processor is enough for short items: each further worker needs another instance. More workers
	// come when items take long.
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

// briskItem is the longest duration of an item for which a worker per processor is enough; brisk is how long to wait to
// see that.
const (
	briskItem = time.Millisecond
	brisk     = 10 * time.Millisecond
)

// slow waits until all items are taken. It returns true as soon as they take more than briskItem each with so many
// workers.
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

// previousRun returns the run of another instance in a record. It returns nil if the record has none, or does not
// identify it: a takeover does not record whether the run was of a trigger or of an instant, and a run that was handed
// back does not count.
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
