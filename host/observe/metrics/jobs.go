package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Jobs says how many jobs have series of their own; the rest are summed as [Other].
type Jobs int

// Values of Jobs that are not numbers.
const (
	AllJobs Jobs = 0
	NoJobs  Jobs = -1
)

// Other is the job_name of the series that sum all jobs without series of their own.
const Other = "other"

// The words of Jobs.
const (
	allJobs = "all"
	noJobs  = "none"
)

// ParseJobs reads all, none or a number.
func ParseJobs(text string) (Jobs, error) {
	switch text {
	case allJobs:
		return AllJobs, nil
	case noJobs, "0":
		return NoJobs, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is neither all nor none nor a number of jobs", text)
	}
	return Jobs(n), nil
}

// String is the text that ParseJobs reads.
func (j Jobs) String() string {
	switch j {
	case AllJobs:
		return allJobs
	case NoJobs:
		return noJobs
	}
	return strconv.Itoa(int(j))
}

// chooseEvery is how often the busiest jobs are chosen.
const chooseEvery = 5 * time.Minute

// shown knows which jobs have their own series: the busiest, by the attempts of items that ended. Each choice halves the
// earlier counts, and a job replaces another one only if it is twice as busy, because series that come and go are of
// little use. It is safe for concurrent use.
type shown struct {
	limit Jobs // not changed

	mu    sync.RWMutex
	names map[string]bool
	// runs has all jobs of the host.
	runs   map[string]float64
	looked time.Time
}

func newShown(limit Jobs) *shown {
	return &shown{limit: limit, names: make(map[string]bool), runs: make(map[string]float64)}
}

// has reports whether a job has series of its own.
func (s *shown) has(job string) bool {
	if s.limit == AllJobs {
		return true
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.names[job]
}

// gone reports whether a job would have its own series, but the host does not have the job: its last runs may end after
// its removal.
func (s *shown) gone(job string) bool {
	if s.limit != AllJobs || job == "" {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, known := s.runs[job]
	return !known
}

// label is what job_name says of a job.
func (s *shown) label(job string) string {
	if s.has(job) {
		return job
	}
	return Other
}

// add adds a job of the host. It has series of its own while there is room; one that is
// called as the sum is a part of that.
func (s *shown) add(job string) {
	if s.limit != AllJobs && job == Other {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.runs[job]; known {
		return
	}
	s.runs[job] = 0
	if len(s.names) < int(s.limit) {
		s.names[job] = true
	}
}

// remove removes it.
func (s *shown) remove(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, job)
	delete(s.names, job)
}

// ran counts an attempt of an item.
func (s *shown) ran(job string) {
	if s.limit == AllJobs {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.runs[job]; known {
		s.runs[job]++
	}
}

// look chooses again if it is time: come are the jobs that have series of their own from
// now on, gone those that have none any more.
func (s *shown) look(now time.Time) (come, gone []string) {
	if s.limit == AllJobs {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looked.IsZero() || now.Before(s.looked) {
		s.looked = now
	}
	if now.Sub(s.looked) < chooseEvery {
		return nil, nil
	}
	s.looked = now
	var inside, outside []string
	for job := range s.runs {
		if s.names[job] {
			inside = append(inside, job)
		} else {
			outside = append(outside, job)
		}
	}
	busier := func(a, b string) int {
		if s.runs[a] != s.runs[b] {
			return cmp.Compare(s.runs[b], s.runs[a])
		}
		return strings.Compare(a, b)
	}
	slices.SortFunc(inside, busier)
	slices.SortFunc(outside, busier)
	for _, job := range outside {
		if len(s.names) >= int(s.limit) {
			if len(inside) == 0 || s.runs[job] <= 2*s.runs[inside[len(inside)-1]] {
				break
			}
			least := inside[len(inside)-1]
			inside = inside[:len(inside)-1]
			delete(s.names, least)
			gone = append(gone, least)
		}
		s.names[job] = true
		come = append(come, job)
	}
	for job := range s.runs {
		s.runs[job] /= 2
	}
	return come, gone
}
