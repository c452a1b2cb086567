// Package inflight bounds how many commits of a host are under way at once, by how long
// the registry takes to answer them, and how many loops of jobs work at once. Those who wait
// are served group by group in turn, so that a group of many jobs does not hold up the others.
package inflight

import (
	"context"
	"sync"
	"time"
)

const (
	// firstCommits is how many commits may be under way before any was answered.
	firstCommits = 64
	leastCommits = 4
	mostCommits  = 1024
	// quickCommit is a time that no registry has to explain.
	quickCommit = 50 * time.Millisecond
	// slowCommits is how many times its shortest answer of late a registry may
	// take before it counts as slow.
	slowCommits = 4
	// latencyWindow is how long the shortest answer counts.
	latencyWindow = time.Minute
)

// Commits bounds how many commits of the host are under way at once, so that a slow
// registry is given fewer and larger ones: who waits here has more to write when its
// turn comes, and answers that prove the session alive do not queue behind hundreds.
// The bound grows while it is used up: by one for each answer in time until one was
// slow, and by one for each round of them from then on. It is halved for a round of
// slow ones. It is safe for concurrent use.
type Commits struct {
	mu      sync.Mutex
	limit   float64
	under   int
	waiting line
	sent    uint64    // commits that have come so far
	lowered time.Time // what was sent before says nothing of the bound since
	// least are the shortest answers of this window and of the one before, which
	// began at since.
	least [2]time.Duration
	since time.Time
}

// New returns a bound that no commit has met.
func New() *Commits { return &Commits{limit: firstCommits} }

// Enter waits until a commit of a job may be sent, and calls late once if that takes longer
// than patience. Groups have the same part of the bound, however many jobs each has; within a
// group commits in a hurry, which begin or end runs, go before the others, three of four, and of them the job goes first
// whose last commit is longest ago. After an error there is nothing to leave.
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

// Leave notes when a commit was sent, and that its answer came now. answered is false
// if none did.
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

// shortest is the shortest answer of late; 0 if there was none.
func (c *Commits) shortest() time.Duration {
	if c.least[1] == 0 {
		return c.least[0]
	}
	return min(c.least[0], c.least[1])
}
