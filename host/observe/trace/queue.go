package trace

import "sync"

const (
	// maxQueued bounds the spans that wait for the collector: some ten megabytes.
	maxQueued = 16 << 10
	// maxBatch is the most that one request has.
	maxBatch = 512
)

// queue has the spans that wait, the oldest first. When it is full the oldest one goes:
// after an outage the newest are what is wanted. It is safe for concurrent use.
type queue struct {
	some chan struct{} // has room for one: there are spans
	full chan struct{} // likewise: there are enough for a request

	mu      sync.Mutex
	ring    []*span
	first   int // of those that wait
	waiting int
	sent    int64
	dropped int64
	failing bool
}

func newQueue(size int) *queue {
	return &queue{some: make(chan struct{}, 1), full: make(chan struct{}, 1), ring: make([]*span, size)}
}

// add never blocks.
func (q *queue) add(s *span) {
	q.mu.Lock()
	if q.waiting == len(q.ring) {
		q.first = (q.first + 1) % len(q.ring)
		q.waiting--
		q.dropped++
	}
	q.ring[(q.first+q.waiting)%len(q.ring)] = s
	q.waiting++
	enough := q.waiting >= maxBatch
	q.mu.Unlock()
	signal(q.some)
	if enough {
		signal(q.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take takes at most a batch.
func (q *queue) take() []*span {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := make([]*span, 0, min(q.waiting, maxBatch))
	for q.waiting > 0 && len(batch) < maxBatch {
		batch = append(batch, q.ring[q.first])
		q.ring[q.first] = nil
		q.first = (q.first + 1) % len(q.ring)
		q.waiting--
	}
	return batch
}

// count counts accepted spans by result.
func (q *queue) count(sent, dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent += int64(sent)
	q.dropped += int64(dropped)
}

// fails notes whether the collector takes spans, and reports whether that is news.
func (q *queue) fails(failing bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := q.failing != failing
	q.failing = failing
	return news
}

// drain drops what waits.
func (q *queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.ring)
	q.dropped += int64(q.waiting)
	q.waiting = 0
}

func (q *queue) stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Stats{Sent: q.sent, Dropped: q.dropped, Queued: q.waiting, Failing: q.failing}
}
