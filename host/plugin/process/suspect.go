package process

import "time"

// quarantine is how long a job runs in a process of its own after the end of a process
// in which its guests ran.
const (
	quarantine = time.Hour
	// convicted is how long it does if that process ends, too.
	convicted = 24 * time.Hour
)

// suspect is a module of a job.
type suspect struct{ job, digest string }

// suspicion is why a job runs in a process of its own.
type suspicion struct {
	until time.Time
	// alone says that its guests have ended a process in which there were no others.
	alone bool
}

// suspected notes that a process ended in which guests of the executor ran.
func (x *executor) suspected() {
	w, now := x.w, time.Now()
	key := suspect{x.settings.JobName, x.Digest()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, s := range w.suspects {
		if s.until.Before(now) {
			delete(w.suspects, k)
		}
	}
	switch s := w.suspects[key]; {
	case s == nil:
		w.suspects[key] = &suspicion{until: now.Add(quarantine)}
	default:
		s.until, s.alone = now.Add(convicted), true
	}
}

// place is the group in which the executor's next guest runs. The caller has a
// reference to it.
func (x *executor) place() *group {
	w := x.w
	w.mu.Lock()
	s := w.suspects[suspect{x.settings.JobName, x.Digest()}]
	alone := s != nil && s.until.After(time.Now())
	if !alone {
		x.home.refs++
		w.mu.Unlock()
		return x.home
	}
	w.mu.Unlock()
	return w.alone(x.settings)
}
