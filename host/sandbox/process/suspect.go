package process

import "time"

// quarantine is how long a job runs in a dedicated process after a process ended in which its guests ran.
const (
	quarantine = time.Hour
	// convicted is the same if the dedicated process ended, too.
	convicted = 24 * time.Hour
)

// suspect is a module of a job.
type suspect struct{ job, digest string }

// suspicion is why a job runs in a dedicated process.
type suspicion struct {
	until time.Time
	// alone says that its guests were alone in a process that ended.
	alone bool
}

func (x *executor) suspect() suspect { return suspect{x.settings.JobName, x.Digest()} }

// suspected notes that a process ended in which guests of the job ran; alone says that there were no others.
func (w *Workers) suspected(key suspect, alone bool) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, s := range w.suspects {
		if s.until.Before(now) {
			delete(w.suspects, k)
		}
	}
	s := w.suspects[key]
	if s == nil {
		s = &suspicion{until: now.Add(quarantine)}
		w.suspects[key] = s
	} else if alone {
		s.until, s.alone = now.Add(convicted), true
	}
}

// isSuspect reports whether the job runs in a process of its own for a while.
// Workers.mu is held.
func (x *executor) isSuspect(now time.Time) bool {
	s := x.w.suspects[x.suspect()]
	return s != nil && s.until.After(now)
}

// place is the group in which the executor's next guest runs. The caller has a
// reference to it.
func (x *executor) place() *group {
	w := x.w
	w.mu.Lock()
	if !x.isSuspect(time.Now()) {
		x.home.refs++
		w.mu.Unlock()
		return x.home
	}
	w.mu.Unlock()
	return w.alone(x.settings)
}
