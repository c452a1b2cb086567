package history

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// DefaultQueue is how many records may wait if that is not said.
	DefaultQueue = 8192

	// batchRecords and batchBytes bound a batch.
	batchRecords = 4096
	batchBytes   = 1 << 20
)

// FeedOptions say what a store takes.
type FeedOptions struct {
	// Queue is how many records may wait; 0 is DefaultQueue.
	Queue int
	// Ceilings have ceiling.HistoryBytes of each job: what its records take beyond that
	// is dropped, and an event says so. A quarter of a day's may be taken at once, of
	// which lines take half at most. The empty list is no limit.
	Ceilings ceiling.List
	// OnOverQuota is called for every record that is dropped for its job's quota, from
	// one goroutine. It must not block. nil is none.
	OnOverQuota func(job string)
	// Linger is how long the first record of a batch waits for more, unless the queue is half full.
	Linger time.Duration
	// WholeLog says where lines of guests are that are not kept, for people; empty: that is
	// not known.
	WholeLog string
	Logger   *zap.Logger
}

// Feed is the way of records into a store: a bounded queue, behind which one goroutine
// holds jobs to their quotas, keeps the last lines of each run, and writes batches.
// It is safe for concurrent use.
type Feed struct {
	write   func(batch []Entry) (lost int64)
	linger  time.Duration
	log     *zap.Logger
	dropped atomic.Int64
	// lostAt is when the first record was lost that no event has reported, in Unix nanoseconds; 0 for none.
	lostAt atomic.Int64
	done   chan struct{} // closed when run has returned

	mu     sync.Mutex // guards closed and the sending side of queue
	closed bool
	queue  chan Record
	synced chan chan struct{} // each is closed when what was queued before is written
	// pressed has room for one: the queue is half full, or closed.
	pressed chan struct{}

	// Owned by run.
	quotas quotas
	tails  tails
	batch  []Entry
	size   int64
	sync   []chan struct{} // who waits until what is queued is written
	// host is the process that reports, as far as it is known; reported counts the lost records that the history has an
	// event about, toldAt is when it got the last one.
	host     string
	reported int64
	toldAt   time.Time
}

// NewFeed starts one goroutine, which Close joins. It calls write with what was added,
// in order; write may keep the entries, but not the slice, and returns how many of them are lost. An event says how many
// records were lost, for whatever reason, as soon as one is written again.
func NewFeed(o FeedOptions, write func(batch []Entry) (lost int64)) *Feed {
	if o.Queue <= 0 {
		o.Queue = DefaultQueue
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	f := &Feed{
		write: write, linger: o.Linger, log: o.Logger, done: make(chan struct{}), queue: make(chan Record, o.Queue), synced: make(chan chan struct{}), pressed: make(chan struct{}, 1),
		quotas: quotas{ceilings: o.Ceilings, onOver: o.OnOverQuota, log: o.Logger, jobs: make(map[string]*quota)},
		tails:  tails{whole: o.WholeLog, runs: make(map[string]*tail)},
	}
	go f.run()
	return f
}

// AddEvent notes an event. It never blocks: if the queue is full, or the feed is closed,
// the event is dropped and counted.
func (f *Feed) AddEvent(e event.Event) { f.add(Record{Event: &e}) }

// AddLine notes a line, likewise.
func (f *Feed) AddLine(l Line) { f.add(Record{Line: &l}) }

// AddChange notes a change, likewise.
func (f *Feed) AddChange(c Change) { f.add(Record{Change: &c}) }

func (f *Feed) add(r Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		f.Drop(1)
		return
	}
	select {
	case f.queue <- r:
	default:
		f.Drop(1)
	}
	if len(f.queue) >= cap(f.queue)/2 {
		f.press()
	}
}

// press ends a wait, or the next.
func (f *Feed) press() {
	select {
	case f.pressed <- struct{}{}:
	default:
	}
}

// Dropped is how many records were not written: the queue was full, or Drop was called.
func (f *Feed) Dropped() int64 { return f.dropped.Load() }

// Drop counts records that could not be written.
func (f *Feed) Drop(n int64) {
	if n > 0 {
		f.lostAt.CompareAndSwap(0, time.Now().UnixNano())
		f.dropped.Add(n)
	}
}

// Queued is how many records wait.
func (f *Feed) Queued() int64 { return int64(len(f.queue)) }

// Sync returns when what was added before was given to write, or ctx is done. Lines may still
// wait: see tails.
func (f *Feed) Sync(ctx context.Context) {
	written := make(chan struct{})
	select {
	case f.synced <- written:
	case <-f.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-written:
	case <-f.done:
	case <-ctx.Done():
	}
}

// Close writes what is queued and waits for the goroutine. Further calls return when
// the first has.
func (f *Feed) Close() {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.queue)
		f.press()
	}
	f.mu.Unlock()
	<-f.done
}

func (f *Feed) run() {
	defer close(f.done)
	tick := time.NewTicker(tailPause)
	defer tick.Stop()
	for open := true; open; {
		select {
		case r, ok := <-f.queue:
			if open = ok; ok {
				f.take(r)
				f.gather()
			}
		case written := <-f.synced:
			f.sync = append(f.sync, written)
		case now := <-tick.C:
			f.tails.due(now, f.line)
		}
		f.drain()
		f.flush()
	}
	f.tails.end(f.line)
	f.quotas.end(f.put)
	f.toldAt = time.Time{}
	f.flush()
}

// drain writes what is queued for those who wait for that.
func (f *Feed) drain() {
	if len(f.sync) == 0 {
		return
	}
	for n := len(f.queue); n > 0; n-- {
		if r, ok := <-f.queue; ok {
			f.take(r)
		}
		if len(f.batch) >= batchRecords || f.size >= batchBytes {
			f.flush()
		}
	}
	f.flush()
	for _, written := range f.sync {
		close(written)
	}
	clear(f.sync)
	f.sync = f.sync[:0]
}

// gather takes what else is queued, up to a batch, when more has had time to come.
func (f *Feed) gather() {
	f.wait()
	for len(f.batch) < batchRecords && f.size < batchBytes {
		select {
		case r, ok := <-f.queue:
			if !ok {
				return // run sees it, too
			}
			f.take(r)
		default:
			return
		}
	}
	f.press() // what is left has lingered
}

// wait lets records come: those of fires at one instant are encoded when all have begun.
func (f *Feed) wait() {
	if f.linger == 0 {
		return
	}
	timer := time.NewTimer(f.linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.pressed:
	case written := <-f.synced:
		f.sync = append(f.sync, written)
	}
}

func (f *Feed) flush() {
	before, since := f.tellLost()
	if len(f.batch) > 0 {
		lost := f.write(f.batch)
		switch {
		case before == 0:
		case lost == 0:
			f.reported, f.toldAt = f.reported+before, time.Now()
		default: // the event about it as well, which comes again
			f.lostAt.Store(since)
			lost--
		}
		f.Drop(lost)
	}
	clear(f.batch)
	f.batch, f.size = f.batch[:0], 0
}

// tellAgain is how long after an event about lost records the next one comes at the earliest: in an overload each batch may
// lose some.
const tellAgain = 10 * time.Second

// tellLost puts an event into the batch that says how many records were lost since the last such event. It returns that
// number, 0 if there is nothing to say now, and when the first of them was lost, in Unix nanoseconds. While nothing can be written
// the event is lost, too, and comes again with the next batch.
func (f *Feed) tellLost() (lost, since int64) {
	lost = f.dropped.Load() - f.reported
	if lost == 0 || time.Since(f.toldAt) < tellAgain {
		return 0, 0
	}
	since = f.lostAt.Swap(0)
	at := time.Unix(0, since).UTC()
	f.put(event.Event{Time: time.Now(), Kind: event.HistoryLost, Host: f.host, Instant: at, Count: lost,
		Reason: fmt.Sprintf("%s of this host could not be written since %s, and are in no history", words.Count(int(lost), "record"), at.Format(time.RFC3339))})
	return lost, since
}

func (f *Feed) take(r Record) {
	switch {
	case r.Line != nil:
		f.tails.add(r.Line, time.Now(), f.line)
		return
	case r.Event != nil:
		f.host = event.ProcessOf(r.Event.Host)
		f.tails.ended(r.Event, f.line)
	}
	f.admit(r)
}

// line takes a line that is to be written now.
func (f *Feed) line(l *Line) { f.admit(Record{Line: l}) }

// admit encodes a record and puts it into the batch, if the job's quota allows it.
func (f *Feed) admit(r Record) {
	e, err := NewEntry(r)
	if err != nil { // texts and numbers always marshal
		f.Drop(1)
		f.log.Warn("record does not fit the history", zap.Error(err))
		return
	}
	if f.quotas.admit(r, len(e.JSON)+1, f.put) {
		f.append(e)
	}
}

// put puts an event of the feed itself into the batch.
func (f *Feed) put(e event.Event) {
	if entry, err := NewEntry(Record{Event: &e}); err == nil {
		f.append(entry)
	}
}

func (f *Feed) append(e Entry) {
	f.batch = append(f.batch, e)
	f.size += int64(len(e.JSON)) + 1
}

// quotas are what jobs may still take. They belong to the feed's goroutine.
type quotas struct {
	ceilings ceiling.List
	onOver   func(job string)
	log      *zap.Logger
	jobs     map[string]*quota
}

// end reports what was dropped of jobs that are beyond their quotas.
func (q *quotas) end(say func(event.Event)) {
	for _, job := range slices.Sorted(maps.Keys(q.jobs)) {
		if one := q.jobs[job]; one.beyond {
			say(one.end(job, "", time.Now()))
		}
	}
}
