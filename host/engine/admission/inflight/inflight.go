// Package inflight limits how many commits of a host are in flight, by the response time of the registry, and how many
// loops of jobs work at the same time. Groups take turns, so that a group of many jobs does not block the others.
package inflight

import (
	"context"
	"sync"
	"time"
)

const (
	// firstCommits is how many commits may be in flight before any was answered.
	firstCommits = 64
	leastCommits = 4
	mostCommits  = 1024
	// quickCommit is a response time that never counts as slow.
	quickCommit = 50 * time.Millisecond
	// slowCommits is how many times its recent shortest response time a registry may take before it counts as slow.
	slowCommits = 4
	// latencyWindow is how long the shortest response time is remembered.
	latencyWindow = time.Minute
)

// Commits limits how many commits of the host are in flight, so that a slow registry gets fewer and larger ones: a job
// that waits here has more to write at its turn, and heartbeats do not queue behind hundreds of commits. The limit grows
// while it is used up: by one for each timely answer until the first slow one, and by one for each round of answers
// afterwards. A round of slow answers halves it. It is safe for concurrent use.
type Commits struct {
	mu      sync.Mutex
	limit   float64
	under   int
	waiting line
	sent    uint64    // commits that have come so far
	lowered time.Time // what was sent before says nothing of the bound since
	// least are the shortest response times of this window and of the previous one; this window began at since.
	least [2]time.Duration
	since time.Time
}

// New returns a limit that has seen no commits.
func New() *Commits { return &Commits{limit: firstCommits} }

// Enter waits until a commit of a job may be sent, and calls late once if that takes longer than patience. Groups get the
// same share of the limit, however many jobs each has. Within a group, commits that begin or end runs (hurry) go before
// the others three times of four, and of them the job whose last commit is longest ago goes first. After an error the
// caller must not call Leave.
func (c *Commits) Enter(ctx context.Context, job *Worker, hurry bool, patience time.Duration, late func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.under < int(c.limit) { // then none waits
		c.under++
		c.sent++
		job.sent = c.sent
		c.mu.Unlock()
		return nil
	}
	c.sent++
	wait := c.waiting.push(job.Group, hurry, job.sent)
	job.sent = c.sent
	c.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for waits := true; waits; {
		select {
		case <-wait.turn:
			return nil
		case <-timer.C:
			late()
		case <-ctx.Done():
			waits = false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.waiting.remove(wait) { // its turn has come just now
		c.under--
		c.admit()
	}
	return ctx.Err()
}

// Leave records that a commit was sent at sent and answered now. answered is false if no answer came.
func (c *Commits) Leave(sent, now time.Time, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.under >= int(c.limit)
	c.under--
	took := now.Sub(sent)
	if answered {
		c.note(took, now)
	}
	switch slow := max(quickCommit, slowCommits*c.shortest()); {
	case took > slow && sent.After(c.lowered):
		c.limit, c.lowered = max(c.limit/2, leastCommits), now
	case took > slow || !full || !answered:
	case c.lowered.IsZero():
		c.limit = min(c.limit+1, mostCommits)
	default:
		c.limit = min(c.limit+1/c.limit, mostCommits)
	}
	c.admit()
}

func (c *Commits) admit() {
	for c.under < int(c.limit) && c.waiting.pop() != nil {
		c.under++
	}
}

func (c *Commits) note(took time.Duration, now time.Time) {
	if now.Sub(c.since) > latencyWindow {
		c.least, c.since = [2]time.Duration{took, c.least[0]}, now
	}
	c.least[0] = min(c.least[0], took)
}

// shortest returns the recent shortest response time; 0 if there was none.
func (c *Commits) shortest() time.Duration {
	if c.least[1] == 0 {
		return c.least[0]
	}
	return min(c.least[0], c.least[1])
}
