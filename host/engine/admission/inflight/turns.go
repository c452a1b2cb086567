package inflight

import (
	"runtime"
	"sync"
)

// Turns lets the loops of a host's jobs work a few at a time. If thousands of loops were ready at once, the scheduler
// would give each the processor equally often, and a fire, which needs the processor several times in a row, would take
// several times as long as all of them. Turns is safe for concurrent use. The methods of one Worker must be called by one
// goroutine; a Worker may enter [Commits] from any.
type Turns struct {
	mu    sync.Mutex
	free  int
	given uint64
	line  line
}

// NewTurns returns turns for n workers at a time.
func NewTurns(n int) *Turns { return &Turns{free: n} }

// Worker is the loop of one job.
type Worker struct {
	turns *Turns
	// Group is the group with which the worker shares turns. Groups get the same share of turns, however many workers
	// each has. Within a group the worker whose last turn is longest ago comes next.
	Group string
	// Hurry is set while the worker begins or ends runs: it goes before workers of its group without it.
	Hurry bool
	last  uint64
	has   bool
	done  int    // pieces of work since the turn began, or since others could go
	sent  uint64 // when it last came to commit; of Commits
}

// Worker returns a new worker of a group.
func (t *Turns) Worker(group string) *Worker { return &Worker{turns: t, Group: group} }

// Take waits for the worker's turn. It returns without a turn when done is closed.
func (w *Worker) Take(done <-chan struct{}) {
	t := w.turns
	t.mu.Lock()
	if t.free > 0 { // then none waits
		t.free--
		w.mark()
		t.mu.Unlock()
		return
	}
	wait := t.line.push(w.Group, w.Hurry, w.last)
	t.mu.Unlock()
	select {
	case <-wait.turn:
	case <-done:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.line.remove(wait) {
		w.mark()
	}
}

// mark records that the worker has a turn. The caller holds turns.mu.
func (w *Worker) mark() {
	w.turns.given++
	w.last, w.has, w.done = w.turns.given, true, 0
}

// Give ends the worker's turn, if it has one.
func (w *Worker) Give() {
	if !w.has {
		return
	}
	w.has = false
	t := w.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line.pop() == nil {
		t.free++
	}
}

// turnWork is how many pieces of work a worker does before others go, if any wait.
const turnWork = 128

// Worked records that the worker has done a piece of work in its turn, such as one item. After turnWork pieces it gives
// the turn to waiting workers, and takes another; if none waits, other goroutines go first. So a job of many items blocks
// the others only for some of its items. The caller must hold no lock.
func (w *Worker) Worked(done <-chan struct{}) {
	if !w.has {
		return
	}
	if w.done++; w.done < turnWork {
		return
	}
	w.done = 0
	t := w.turns
	t.mu.Lock()
	waits := len(t.line.heap) > 0
	t.mu.Unlock()
	if waits {
		w.Give()
		w.Take(done)
		return
	}
	runtime.Gosched()
}

// Rest gives up the turn while f waits for something else, such as the registry, and takes another turn after f.
func (w *Worker) Rest(done <-chan struct{}, f func()) {
	if !w.has {
		f()
		return
	}
	w.Give()
	defer w.Take(done)
	f()
}
