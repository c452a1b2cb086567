package trace

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/event"
)

// Options say what is traced, and where the spans go.
type Options struct {
	Settings
	// Ratio is the part of the fires that is recorded: 1 is all.
	Ratio float64
	// Namespace is the cluster's, Version the program's, Instance what distinguishes this
	// process from others.
	Namespace, Version, Instance string
	Logger                       *zap.Logger

	// Of tests, which do not depend on a machine's speed; 0 is as it should be.
	queued      int           // maxQueued
	flushWithin time.Duration // flushWithin
}

// Tracer makes spans and sends them. Its methods are safe for concurrent use and do not
// block, but for Close.
type Tracer struct {
	o     Options
	queue *queue
	stop  chan struct{} // closed by Close
	end   context.CancelFunc
	done  chan struct{} // closed when the sender has ended

	mu    sync.Mutex
	fires map[key][]*fire // under way, that are recorded
}

// fire is this host's part of one.
type fire struct {
	trace    traceID
	span     spanID
	started  event.Event
	items    map[int]*item // that have not ended
	listener spanID        // of the one that runs, or is the next to run
}

// item is one item of a fire.
type item struct {
	span    spanID
	attempt spanID    // of the one that runs, or is the next to run; 0: none yet
	began   time.Time // the attempt
}

// Open begins to send. The caller ends it with Close.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	t := &Tracer{o: o, queue: newQueue(cmp.Or(o.queued, maxQueued)), stop: make(chan struct{}), end: end, done: make(chan struct{}), fires: make(map[key][]*fire)}
	s := &sender{o: o, client: client, queue: t.queue, stop: t.stop, frame: o.resource()}
	go func() { // joined by Close
		defer close(t.done)
		s.run(ctx)
	}()
	return t, nil
}

// flushWithin is how long Close waits for the collector.
const flushWithin = time.Second

// Close sends what is queued, within a second, and drops what the collector does not take.
func (t *Tracer) Close() error {
	before := t.Stats().Dropped
	close(t.stop)
	timer := time.AfterFunc(cmp.Or(t.o.flushWithin, flushWithin), t.end)
	<-t.done
	timer.Stop()
	t.end()
	t.queue.drain()
	if n := t.Stats().Dropped - before; n > 0 {
		return fmt.Errorf("%d spans are not sent: the collector at %s does not take them", n, t.o.Endpoint)
	}
	return nil
}

// Stats are how the spans fare.
type Stats struct {
	// Sent were taken by the collector, Dropped were not; Queued wait.
	Sent, Dropped int64
	Queued        int
	// Failing is set while the collector does not take spans.
	Failing bool
}

// Stats counts since Open.
func (t *Tracer) Stats() Stats { return t.queue.stats() }

// TraceID names the trace of the fire that an event is about, empty if it is not recorded.
func (t *Tracer) TraceID(e event.Event) string {
	if e.Job == "" {
		return ""
	}
	id := traceOf(t.o.Namespace, keyOf(e))
	if !sampled(id, t.o.Ratio) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// Observe takes an event of the host.
func (t *Tracer) Observe(e event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e.Kind {
	case event.FireStarted:
		t.begin(e)
	case event.FireEnded:
		t.finish(e)
	case event.ItemStarted:
		if _, it := t.item(keyOf(e), e.Item); it != nil {
			it.began = e.Time
		}
	case event.ItemEnded:
		t.attempt(e)
	case event.ItemCompleted, event.ItemSkipped, event.ItemHeld:
		if f, it := t.item(keyOf(e), e.Item); it != nil {
			delete(f.items, *e.Item)
			t.queue.add(&span{trace: f.trace, id: it.span, parent: f.span, start: f.started.Time, end: e.Time, event: e})
		}
	case event.Listener:
		t.listened(e)
	}
}

// begin takes a fire that began.
func (t *Tracer) begin(e event.Event) {
	k := keyOf(e)
	id := traceOf(t.o.Namespace, k)
	if !sampled(id, t.o.Ratio) {
		return
	}
	f := &fire{trace: id, span: newSpanID(), started: e, items: make(map[int]*item, len(e.Items))}
	for _, n := range e.Items {
		f.items[n] = &item{span: newSpanID()}
	}
	t.fires[k] = append(t.fires[k], f)
}

// item finds an item of a fire under way; nil if there is none that is recorded.
func (t *Tracer) item(k key, number *int) (*fire, *item) {
	if number == nil {
		return nil, nil
	}
	for _, f := range t.fires[k] {
		if it := f.items[*number]; it != nil {
			return f, it
		}
	}
	return nil, nil
}

// last is the newest fire under way of that name; nil if there is none that is recorded.
func (t *Tracer) last(k key) *fire {
	if list := t.fires[k]; len(list) > 0 {
		return list[len(list)-1]
	}
	return nil
}

// finish takes the end of a fire. Items that have not ended do not any more here.
func (t *Tracer) finish(e event.Event) {
	k := keyOf(e)
	i := slices.IndexFunc(t.fires[k], func(f *fire) bool { return slices.Equal(f.started.Items, e.Items) })
	if i < 0 {
		return
	}
	f := t.fires[k][i]
	if t.fires[k] = slices.Delete(t.fires[k], i, i+1); len(t.fires[k]) == 0 {
		delete(t.fires, k)
	}
	for n, it := range f.items {
		t.queue.add(&span{trace: f.trace, id: it.span, parent: f.span, start: f.started.Time, end: e.Time,
			event: event.Event{Kind: event.ItemSkipped, Job: e.Job, Host: e.Host, Instant: e.Instant, Trigger: e.Trigger, Source: e.Source, Item: &n, Cause: event.SkipUnfinished}})
	}
	e.Lag, e.Total, e.Next = f.started.Lag, f.started.Total, f.started.Next
	t.queue.add(&span{trace: f.trace, id: f.span, start: f.started.Time, end: e.Time, event: e})
}

// attempt takes the end of an attempt.
func (t *Tracer) attempt(e event.Event) {
	f, it := t.item(keyOf(e), e.Item)
	if it == nil {
		return
	}
	id, start := it.attempt, it.began
	it.attempt, it.began = spanID{}, time.Time{}
	if id == (spanID{}) {
		id = newSpanID()
	}
	if start.IsZero() {
		start = e.Time.Add(-e.Duration)
	}
	t.queue.add(&span{trace: f.trace, id: id, parent: it.span, start: start, end: start.Add(e.Duration), event: e})
}

// listened takes the end of a listener.
func (t *Tracer) listened(e event.Event) {
	f := t.last(keyOf(e))
	if f == nil {
		return
	}
	id := f.listener
	f.listener = spanID{}
	if id == (spanID{}) {
		id = newSpanID()
	}
	t.queue.add(&span{trace: f.trace, id: id, parent: f.span, start: e.Time.Add(-e.Duration), end: e.Time, event: e})
}

// Traceparent begins an attempt of an item, or a listener, and returns the trace context
// that its guest sees. What it sends to others has it as its parent.
func (t *Tracer) Traceparent(r event.Run) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := keyOfRun(r)
	if r.Item < 0 {
		if f := t.last(k); f != nil {
			f.listener = newSpanID()
			return traceparent(f.trace, f.listener, true)
		}
	}
	if f, it := t.item(k, &r.Item); it != nil {
		it.attempt = newSpanID()
		return traceparent(f.trace, it.attempt, true)
	}
	return traceparent(traceOf(t.o.Namespace, k), newSpanID(), false)
}

// Called takes a request or a connection of a guest.
func (t *Tracer) Called(c event.GuestCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := keyOfRun(c.Run)
	s := &span{id: parseSpanID(c.SpanID), start: c.Time.Add(-c.Took), end: c.Time, call: &c}
	if c.Item < 0 {
		f := t.last(k)
		if f == nil {
			return
		}
		s.trace, s.parent = f.trace, f.listener
	} else {
		f, it := t.item(k, &c.Item)
		if it == nil {
			return
		}
		s.trace, s.parent = f.trace, it.attempt
	}
	t.queue.add(s)
}
