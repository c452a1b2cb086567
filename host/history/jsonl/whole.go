package jsonl

import (
	"context"
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
	// wholeBuffer is how much of one run may wait for the disk, in bytes, and wholeWaiting that of all
	// runs together: while a disk hangs runs end, and others begin.
	wholeBuffer, wholeWaiting = 256 << 10, 32 << 20
	// wholeRuns bounds the runs with missing lines that are not reported yet.
	wholeRuns = 1000
	// wholePatience bounds a guest's wait for a disk that does not take its lines.
	wholePatience = time.Second
	// wholePause is the time within which missing lines of a run are reported.
	wholePause = time.Minute
	// gapBytes is what the line about missing lines takes, about. gapsPerSecond and gapBurst bound those
	// of a job that may write nothing else.
	gapBytes, gapsPerSecond, gapBurst = 512, 1, 100
)

// Whole keeps all that the guests of a host log, in a file with older ones beside it, as a
// history file without events. It is for what a history has no room for.
//
// No guest harms another one there. Each run has a buffer of its own; a guest that
// fills it faster than the disk takes it waits, and if the disk takes nothing for a second lines for which there
// is no room are dropped until it does. A job may write the size of all files a day, and a quarter of it at once, or it would
// drive out what the others log; its lines beyond that are dropped. How many lines of a run
// are missing stands in their place; of a job of which too many runs miss some, it stands there without
// their names.
//
// It is safe for concurrent use.
type Whole struct {
	writer   *writer
	size     int64
	patience time.Duration // wholePatience, but for tests
	lost     atomic.Int64
	failed   int64         // lines that are missing, of any runs, since the last were written; run's
	news     chan struct{} // has room for one
	done     chan struct{} // closed when run has returned

	mu      sync.Mutex
	closed  bool
	runs    map[string]*wholeRun // those with lines that wait or are missing
	jobs    map[string]wholeJob
	waiting int           // bytes of the texts of all runs
	room    chan struct{} // closed and replaced when they were taken
	stuck   bool          // a guest has waited for wholePatience, and they were not since
	unsaid  int64         // for failed
}

// wholeJob has the quotas of a job: of bytes, and of lines about missing lines.
type wholeJob struct{ bytes, gaps *rate.Limiter }

// wholeRun has the state of a run.
type wholeRun struct {
	last  history.Line // without its text
	text  []byte       // waits for the disk
	count int64        // lines of text
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
	file, err := openWriter("the file of guests' logs", path, maxBytes, log)
	if err != nil {
		return nil, fmt.Errorf("log of guests: %w", err)
	}
	w := newWhole(file)
	go w.run()
	return w, nil
}

func newWhole(file *writer) *Whole {
	return &Whole{writer: file, size: file.cap, patience: wholePatience, news: make(chan struct{}, 1), done: make(chan struct{}), room: make(chan struct{}),
		runs: make(map[string]*wholeRun), jobs: make(map[string]wholeJob)}
}

// Path returns the absolute name of the file.
func (w *Whole) Path() string { return w.writer.path }

// Lost returns how many lines are not in the file.
func (w *Whole) Lost() int64 { return w.lost.Load() }

// Close writes the waiting lines, joins the goroutine and closes the file.
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

// Add takes a line. It blocks until ctx has ended, and for wholePatience at most.
func (w *Whole) Add(ctx context.Context, l history.Line) {
	e, err := history.NewEntry(history.Record{Line: &l})
	if err != nil { // texts and numbers always marshal
		w.lost.Add(1)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.await(ctx, &l, len(e.JSON)+1) {
		w.put(&l, e.JSON)
	}
}

// await waits until there is room for a line of so many bytes. It reports false if the line was
// dropped instead. It lets go of the lock while it waits.
func (w *Whole) await(ctx context.Context, l *history.Line, size int) bool {
	var patience <-chan time.Time
	for !w.closed && !w.fits(w.runOf(l), size) {
		if w.stuck || ctx.Err() != nil {
			w.drop(l, size, "the disk did not take them in time")
			return false
		}
		if patience == nil {
			timer := time.NewTimer(w.patience)
			defer timer.Stop()
			patience = timer.C
		}
		room, expired := w.room, false
		w.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		case <-patience:
			expired = true
		}
		w.mu.Lock()
		w.stuck = w.stuck || expired
	}
	if w.closed {
		w.lost.Add(1)
	}
	return !w.closed
}

func (w *Whole) fits(r *wholeRun, size int) bool {
	return w.waiting+size <= wholeWaiting && (len(r.text) == 0 || len(r.text)+size <= wholeBuffer)
}

// put adds a line to its run's, if the job may write it.
func (w *Whole) put(l *history.Line, text []byte) {
	r, size := w.runOf(l), len(text)+1
	cost := size
	if r.missing > 0 {
		cost += gapBytes
	}
	if !w.job(l.Job).bytes.AllowN(time.Now(), cost) {
		w.drop(l, size, "the job has written its part of this file for now")
		return
	}
	if r.count == 0 {
		w.wake()
	}
	w.say(r)
	w.add(r, text)
}

func (w *Whole) add(r *wholeRun, text []byte) {
	r.text = append(append(r.text, text...), '\n')
	r.count++
	w.waiting += len(text) + 1
}

// runOf returns the run of a line.
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

func (w *Whole) job(name string) wholeJob {
	j, ok := w.jobs[name]
	if !ok {
		j = wholeJob{rate.NewLimiter(rate.Limit(float64(w.size)/(24*time.Hour).Seconds()), int(w.size/4)), rate.NewLimiter(gapsPerSecond, gapBurst)}
		w.jobs[name] = j
	}
	return j
}

// drop counts a missing line.
func (w *Whole) drop(l *history.Line, bytes int, why string) {
	w.lost.Add(1)
	r := w.runOf(l)
	r.missing, r.missingBytes, r.why = r.missing+1, r.missingBytes+int64(bytes), why
	if r.count == 0 && len(w.runs) > wholeRuns {
		w.unsaid += r.missing
		delete(w.runs, l.RunID)
	}
}

// say adds the line about missing lines.
func (w *Whole) say(r *wholeRun) {
	if r.missing == 0 {
		return
	}
	l := r.last
	l.Level, l.Gap = abi.LevelWarn, r.missing
	l.Message = "lines are missing here: " + r.why
	l.Attrs = []string{"missing_lines", strconv.FormatInt(r.missing, 10), "missing_bytes", strconv.FormatInt(r.missingBytes, 10)}
	if e, err := history.NewEntry(history.Record{Line: &l}); err == nil {
		w.add(r, e.JSON)
	}
	r.missing, r.missingBytes = 0, 0
}

// sum reports missing lines of a run that are followed by none, or none yet.
func (w *Whole) sum(r *wholeRun) {
	if r.missing > 0 && !w.job(r.last.Job).gaps.Allow() {
		w.unsaid += r.missing
		r.missing, r.missingBytes = 0, 0
	}
	w.say(r)
}

// Ended reports missing lines of the run that the event ends, if any.
func (w *Whole) Ended(e *event.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.runs[history.RunEnded(e)]; r != nil && !w.closed {
		r.ended = true
		w.wake()
	}
}

// wake wakes the goroutine. The caller holds the lock.
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
			w.sum(r)
		}
		if r.count > 0 {
			list = append(list, taken{r.text, r.count})
			r.text, r.count = nil, 0
		}
		if r.missing == 0 {
			delete(w.runs, id)
		}
	}
	w.failed, w.unsaid, w.waiting = w.failed+w.unsaid, 0, 0
	close(w.room)
	w.room, w.stuck = make(chan struct{}), false
	if all {
		w.forget()
	}
	w.mu.Unlock()
	for _, t := range list {
		w.write(t.text, t.count)
	}
	return len(list) > 0
}

// write writes lines, and before them how many are missing since the last ones, of any runs.
func (w *Whole) write(text []byte, count int64) {
	now := time.Now()
	if w.failed > 0 {
		l := history.Line{Time: now, Item: -1, Level: abi.LevelWarn, Gap: w.failed, Message: "lines of guests are missing here: they could not be written, or their job had written its part of this file"}
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

// forget drops the quotas of jobs that have long been silent.
func (w *Whole) forget() {
	for job, quota := range w.jobs {
		if quota.bytes.Tokens() >= float64(quota.bytes.Burst()) && quota.gaps.Tokens() >= gapBurst {
			delete(w.jobs, job)
		}
	}
}
