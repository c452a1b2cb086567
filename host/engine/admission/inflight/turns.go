package inflight

import (
	"runtime"
	"sync"
)

// Turns has the loops of a host's jobs work a few at a time. If thousands of them were ready at
// once, the scheduler would give each the processor as often as any other, and a fire, which
// needs it several times in a row, would take several times as long as all of them. All methods of
// Turns are safe for concurrent use, those of one Worker are called by one goroutine. A Worker may enter
// [Commits] from any.
type Turns struct {
	mu    sync.Mutex
	free  int
	given uint64
	line  line
}

// NewTurns returns turns of which n are taken at once.
func NewTurns(n int) *Turns { return &Turns{free: n} }

// Worker is the loop of one job.
type Worker struct {
	turns *Turns
	// Group is whom the worker shares turns with: groups have the same part of them, however many
	// workers each has. Within a group the next turn is of the worker whose last is longest ago.
	Group string
	// Hurry is set while the worker begins or ends runs: it goes before those of its group that do not.
	Hurry bool
	last  uint64
	has   bool
	done  int    // pieces of work since the turn began, or since others could go
	sent  uint64 // when it last came to commit; of Commits
}

// Worker returns one more worker of a group.
func (t *Turns) Worker(group string) *Worker { return &Worker{turns: t, Group: group} }

// Take waits for the worker's turn, until done is closed: then it returns without one.
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

// mark notes that the worker has a turn. turns.mu is held.
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

// Worked notes that the worker has done a piece of work in its turn, such as one item. After turnWork of them it
// gives up the turn to those who wait for one, and takes another; if none waits, other goroutines go first. So a job of
// many items holds up the others for as long as some of its items take, and not all. The caller must hold no lock.
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

// Rest gives up the turn while f waits for others, such as the registry.
func (w *Worker) Rest(done <-chan struct{}, f func()) {
	if !w.has {
		f()
		return
	}
	w.Give()
	defer w.Take(done)
	f()
}
