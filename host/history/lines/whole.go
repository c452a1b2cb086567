package lines

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

const (
	// wholeBuffer is how much of one run may wait for the disk, in bytes.
	wholeBuffer = 256 << 10
	// wholePatience is how long a guest waits for a disk that does not take its lines.
	wholePatience = time.Second
	// wholePause is how soon it is said, at the latest, that lines of a run are missing.
	wholePause = time.Minute
	// gapBytes is what the line about missing lines takes, about.
	gapBytes = 512
)

// Whole keeps all that the guests of a host log, in a file with older ones beside it, as a
// history file without events. It is for what a history has no room for.
//
// No guest harms another one there. Each run has a buffer of its own; a guest that
// fills it faster than the disk takes it waits, and if the disk takes nothing for a second its lines are
// dropped. A job may write the size of all files a day, and a quarter of it at once, or it would
// drive out what the others log; its lines beyond that are dropped. How many lines of a run
// are missing stands in their place.
//
// It is safe for concurrent use.
type Whole struct {
	writer   *writer
	size     int64
	patience time.Duration // wholePatience, but for tests
	lost     atomic.Int64
	failed   int64         // lines that could not be written since the last that were; run's
	news     chan struct{} // has room for one
	done     chan struct{} // closed when run has returned

	mu     sync.Mutex
	closed bool
	runs   map[string]*wholeRun // those with lines that wait or are missing
	jobs   map[string]*rate.Limiter
}

// wholeRun is what there is of a run.
type wholeRun struct {
	last  history.Line  // without its text
	text  []byte        // waits for the disk
	count int64         // lines of text
	room  chan struct{} // closed when text was taken; nil: no guest waits
	stuck bool          // the disk has taken nothing for wholePatience
	ended bool

	missing, missingBytes int64
	why                   string
}

// OpenWhole opens the file for appending, or makes it, mode 0600. One that another host
// writes is refused. maxBytes bounds it and its older ones together, as for a history. It
// starts a goroutine, which Close joins.
func OpenWhole(path string, maxBytes int64, log *zap.Logger) (*Whole, error) {
	path, err := filepath.Abs(path) // the working directory may change
	if err != nil {
		return nil, fmt.Errorf("log of guests: %w", err)
	}
	w := &Whole{size: maxBytes, patience: wholePatience, news: make(chan struct{}, 1), done: make(chan struct{}), runs: make(map[string]*wholeRun), jobs: make(map[string]*rate.Limiter)}
	if w.writer, err = openWriter("the file of guests' logs", path, maxBytes, log); err != nil {
		return nil, fmt.Errorf("log of guests: %w", err)
	}
	go w.run()
	return w, nil
}

// Path is the absolute name of the file.
func (w *Whole) Path() string { return w.writer.path }

// Lost is how many lines are not in the file.
func (w *Whole) Lost() int64 { return w.lost.Load() }

// Close writes what waits, joins the goroutine and closes the file.
func (w *Whole) Close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.news)
	}
	w.mu.Unlock()
	<-w.done
	return w.writer.close()
}

// Add takes a line. It blocks for wholePatience at most.
func (w *Whole) Add(l history.Line) {
	e, err := history.NewEntry(history.Record{Line: &l})
	if err != nil { // texts and numbers always marshal
		w.lost.Add(1)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		w.lost.Add(1)
	case w.await(&l, len(e.JSON)+1):
		w.put(&l, e.JSON)
	}
}

// await waits until there is room for a line of so many bytes. It reports false if the line was
// dropped instead. It lets go of the lock while it waits.
func (w *Whole) await(l *history.Line, size int) bool {
	var patience <-chan time.Time
	for {
		r := w.runOf(l)
		if len(r.text) == 0 || len(r.text)+size <= wholeBuffer {
			return true
		}
		if r.stuck {
			w.drop(r, int64(size), 1, "the disk did not take them in time")
			return false
		}
		if patience == nil {
			timer := time.NewTimer(w.patience)
			defer timer.Stop()
			patience = timer.C
		}
		if r.room == nil {
			r.room = make(chan struct{})
		}
		room := r.room
		w.mu.Unlock()
		expired := false
		select {
		case <-room:
		case <-patience:
			expired = true
		}
		w.mu.Lock()
		if w.closed {
			w.lost.Add(1)
			return false
		}
		r.stuck = expired && r.room == room
	}
}

// put adds a line to its run's, if the job may write it.
func (w *Whole) put(l *history.Line, text []byte) {
	r, size := w.runOf(l), len(text)+1
	cost := size
	if r.missing > 0 {
		cost += gapBytes
	}
	if !w.mayWrite(l.Job, cost) {
		w.drop(r, int64(size), 1, "the job has written its part of this file for now")
		return
	}
	w.say(r)
	r.add(text)
	if r.count == 1 {
		w.wake()
	}
}

func (r *wholeRun) add(text []byte) {
	r.text = append(append(r.text, text...), '\n')
	r.count++
}

// runOf is the run of a line.
func (w *Whole) runOf(l *history.Line) *wholeRun {
	r := w.runs[l.RunID]
	if r == nil {
		r = &wholeRun{}
		w.runs[l.RunID] = r
	}
	r.last = *l
	r.last.Message, r.last.Attrs = "", nil
	return r
}

func (w *Whole) mayWrite(job string, bytes int) bool {
	quota := w.jobs[job]
	if quota == nil {
		quota = rate.NewLimiter(rate.Limit(float64(w.size)/(24*time.Hour).Seconds()), int(w.size/4))
		w.jobs[job] = quota
	}
	return quota.AllowN(time.Now(), bytes)
}

func (w *Whole) drop(r *wholeRun, bytes, lines int64, why string) {
	r.missing, r.missingBytes, r.why = r.missing+lines, r.missingBytes+bytes, why
	w.lost.Add(lines)
}

// say adds the line about what is missing.
func (w *Whole) say(r *wholeRun) {
	if r.missing == 0 {
		return
	}
	l := r.last
	l.Level, l.Gap = abi.LevelWarn, r.missing
	l.Message = "lines are missing here: " + r.why
	l.Attrs = []string{"missing_lines", strconv.FormatInt(r.missing, 10), "missing_bytes", strconv.FormatInt(r.missingBytes, 10)}
	if e, err := history.NewEntry(history.Record{Line: &l}); err == nil {
		r.add(e.JSON)
	}
	r.missing, r.missingBytes = 0, 0
}

// Ended says what is missing of a run that the event ends; it may end none.
func (w *Whole) Ended(e *event.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[history.RunEnded(e)]; r != nil && !w.closed {
		r.ended = true
		w.wake()
	}
}

// wake has the goroutine look; it is called under the lock.
func (w *Whole) wake() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *Whole) run() {
	defer close(w.done)
	tick := time.NewTicker(wholePause)
	defer tick.Stop()
	for open := true; open; {
		all := false
		select {
		case _, open = <-w.news:
			all = !open
		case <-tick.C:
			all = true
		}
		for w.drain(all) {
			all = false
		}
	}
}

// drain writes what waits, run by run. It says of those that have ended, or of all, what is missing.
// It reports false if there was nothing.
func (w *Whole) drain(all bool) bool {
	type taken struct {
		text  []byte
		count int64
	}
	var list []taken
	w.mu.Lock()
	for id, r := range w.runs {
		if r.ended || all {
			w.say(r)
		}
		if r.count > 0 {
			list = append(list, taken{r.text, r.count})
			r.text, r.count = nil, 0
		}
		if r.missing == 0 {
			delete(w.runs, id)
		}
		if r.room != nil {
			close(r.room)
			r.room, r.stuck = nil, false
		}
	}
	if all {
		w.forget()
	}
	w.mu.Unlock()
	for _, t := range list {
		w.write(t.text, t.count)
	}
	return len(list) > 0
}

// write writes lines, and before them how many could not be written since the last ones.
func (w *Whole) write(text []byte, count int64) {
	now := time.Now()
	if w.failed > 0 {
		l := history.Line{Time: now, Item: -1, Level: abi.LevelWarn, Gap: w.failed, Message: "lines of guests are missing here: they could not be written"}
		if e, err := history.NewEntry(history.Record{Line: &l}); err == nil {
			text = append(append(e.JSON, '\n'), text...)
		}
	}
	n := w.writer.write(text, count, now, now)
	w.lost.Add(n)
	if w.failed += n; n == 0 {
		w.failed = 0
	}
}

// forget drops the quotas of jobs that have not written for long.
func (w *Whole) forget() {
	for job, quota := range w.jobs {
		if quota.Tokens() >= float64(quota.Burst()) {
			delete(w.jobs, job)
		}
	}
}
