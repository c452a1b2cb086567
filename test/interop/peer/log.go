// Package peer runs hosts of both kinds as processes, wasmjob's and
// ElasticJob's, and gathers what they run in one log. Tests and benchmarks that
// put them beside each other stand on it.
//
// Nothing here waits for a time to pass: every wait is for something that a
// process says, or for its end, and is bounded by a context.
package peer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Run is one run of one item of a job on one host.
type Run struct {
	// Host is the name that the test gave the process.
	Host string
	Job  string
	Item int
	// Total is the sharding total count that the host saw; 0 if not known.
	Total int
	// Begin and End are by the clock of this machine. End is zero while the
	// run goes on; that of a killed host ends when it was killed.
	Begin, End time.Time
	// Source is "schedule", "trigger", …; empty on an ElasticJob host, which
	// does not tell.
	Source string
	// Cut is set for a run that its host's end, or a stop, cut short.
	Cut bool
}

func (r Run) String() string {
	end := "…"
	if !r.End.IsZero() {
		end = r.End.Format("05.000")
	}
	if r.Cut {
		end += " cut"
	}
	return fmt.Sprintf("%s[%d] on %s %s %s–%s", r.Job, r.Item, r.Host, r.Source, r.Begin.Format("15:04:05.000"), end)
}

// Log is what all hosts of a test run, in the order in which it was heard of.
// The zero value is ready. It is safe for concurrent use.
type Log struct {
	mu   sync.Mutex
	runs []Run
	news chan struct{} // closed, and made anew, when there is more
}

func (l *Log) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	if l.news != nil {
		close(l.news)
	}
	l.news = make(chan struct{})
}

func (l *Log) begin(r Run) { l.change(func() { l.runs = append(l.runs, r) }) }

// end ends the oldest run of the item that goes on.
func (l *Log) end(host, job string, item int, at time.Time, cut bool) {
	l.change(func() {
		i := slices.IndexFunc(l.runs, func(r Run) bool {
			return r.Host == host && r.Job == job && r.Item == item && r.End.IsZero()
		})
		if i >= 0 {
			l.runs[i].End, l.runs[i].Cut = at, cut
		}
	})
}

// gone ends all runs of a host.
func (l *Log) gone(host string, at time.Time) {
	l.change(func() {
		for i, r := range l.runs {
			if r.Host == host && r.End.IsZero() {
				l.runs[i].End, l.runs[i].Cut = at, true
			}
		}
	})
}

// Mark is the number of runs so far: a place to look from.
func (l *Log) Mark() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs)
}

// Runs are the job's runs from the mark on.
func (l *Log) Runs(job string, mark int) []Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of(job, mark)
}

func (l *Log) of(job string, mark int) (list []Run) {
	for _, r := range l.runs[mark:] {
		if r.Job == job {
			list = append(list, r)
		}
	}
	return list
}

// Await calls ok with the job's runs from the mark on, each time that there is
// news, until it reports true. It fails with what there is when ctx is done.
func (l *Log) Await(ctx context.Context, what, job string, mark int, ok func([]Run) bool) error {
	for {
		l.mu.Lock()
		runs := l.of(job, mark)
		if l.news == nil {
			l.news = make(chan struct{})
		}
		news := l.news
		l.mu.Unlock()
		if ok(runs) {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s (%w); runs:\n%s", what, ctx.Err(), Text(runs))
		}
	}
}

// Text is the runs, one a line.
func Text(runs []Run) string {
	var b strings.Builder
	for _, r := range runs {
		b.WriteString("  " + r.String() + "\n")
	}
	return b.String()
}

// Overlaps are the pairs of runs of one item that went on at the same time.
func Overlaps(runs []Run) (pairs [][2]Run) {
	for i, a := range runs {
		for _, b := range runs[:i] {
			if a.Job == b.Job && a.Item == b.Item &&
				(b.End.IsZero() || a.Begin.Before(b.End)) && (a.End.IsZero() || b.Begin.Before(a.End)) {
				pairs = append(pairs, [2]Run{b, a})
			}
		}
	}
	return pairs
}
