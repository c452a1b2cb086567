package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// plan deals out kinds: all of them in a random order, then again. What cannot
// be made here is left out, and the report says why.
type plan struct{ all, deck []Kind }

func (s *stage) newPlan() *plan {
	p := &plan{}
	wanted := s.o.Kinds
	if wanted == nil {
		wanted = sorted(kinds())
	}
	for _, k := range wanted {
		if why := s.possible(k); why != "" {
			s.report.Skipped[k] = why
			continue
		}
		p.all = append(p.all, k)
	}
	return p
}

// next is the next kind; round is true when the first of a new order is dealt.
func (p *plan) next(s *stage) (k Kind, round bool) {
	if len(p.deck) == 0 {
		p.deck = slices.Clone(p.all)
		s.random.Shuffle(len(p.deck), func(i, k int) { p.deck[i], p.deck[k] = p.deck[k], p.deck[i] })
		round = true
	}
	k, p.deck = p.deck[0], p.deck[1:]
	return k, round
}

// attack makes faults until the time is over, and brings all to rest.
func (s *stage) attack(ctx context.Context) error {
	deadline := time.Now().Add(s.o.Duration)
	p := s.newPlan()
	if len(p.all) == 0 {
		return errors.New("there is no fault that can be made here")
	}
	for rounds := 0; ctx.Err() == nil; {
		k, round := p.next(s)
		if round {
			rounds++
		}
		if s.o.Duration < 0 && rounds > 1 || s.o.Duration > 0 && time.Now().After(deadline) {
			break
		}
		if err := s.operate(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if err := s.inflict(ctx, k); err != nil {
			if ctx.Err() != nil {
				break
			}
			return fmt.Errorf("%s: %w", k, err)
		}
		if len(s.report.Violations) > 20 {
			s.say("too many violations to go on")
			break
		}
	}
	if ctx.Err() != nil {
		s.report.Interrupted = true
	}
	return s.rest(context.WithoutCancel(ctx))
}

// Event is a fault that was made, and what came of it.
type Event struct {
	Kind   Kind      `json:"kind"`
	Target string    `json:"target"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"` // healed
	// Word is what an operator said in the middle of it, and that stood until all hosts were back; empty for nothing.
	Word string `json:"word,omitempty"`
	// Recovery is from the fault until every item of the jobs that fire each
	// second or two begins as often as it should.
	Recovery time.Duration `json:"recoveryNs"`
	// Retaken is from the fault until the last crashed item ran again; Crashed
	// is how many there were.
	Retaken time.Duration `json:"retakenNs,omitempty"`
	Crashed int           `json:"crashed,omitempty"`
	// Outage is how long ZooKeeper did not serve: no server led, or there was no
	// majority. It was looked at if Watched is set.
	Outage  time.Duration `json:"outageNs,omitempty"`
	Watched bool          `json:"watched,omitempty"`
	// Cancelled is how many guests were told to stop meanwhile; Refused how
	// many commits were. Lost are those of them that were told that their items
	// are lost, and Hasty the ones among those for which there was no reason.
	Cancelled int `json:"cancelled"`
	Refused   int `json:"refused"`
	Lost      int `json:"lost,omitempty"`
	Hasty     int `json:"hasty,omitempty"`
	// Whole is when all hosts were at work and nothing in the registry was a
	// dead one's any more.
	Whole time.Time `json:"whole,omitzero"`

	crashed []*stint
	settled time.Time
}

// inflict makes one fault, lets it last, ends it, and waits until all is well.
func (s *stage) inflict(ctx context.Context, k Kind) error {
	e := Event{Kind: k, From: time.Now()}
	n, err := kinds()[k].make(ctx, s)
	if err != nil {
		return err
	}
	if !n.from.IsZero() {
		e.From = n.from
	}
	var watched *service
	if n.servers {
		watched = s.watchService(e.From)
		defer watched.end()
	}
	e.Target, e.crashed = n.text, n.crashed
	s.say("%s: %s (%s)", k, kinds()[k].what, n.text)
	meddle, speak, item := s.random.IntN(2) == 0, s.random.IntN(3) == 0, s.random.IntN(flexItems[0])
	said := orders()[s.random.IntN(len(orders()))]
	pause(ctx, n.hold/2)
	var word *standing
	if speak {
		if word = s.sayWord(ctx, n, said, item); word != nil { // what crashed of that job waits until the word is taken back
			e.crashed = slices.DeleteFunc(slices.Clone(e.crashed), func(c *stint) bool { return c.id.job == flexJob })
		}
	}
	if meddle {
		s.meddle(ctx, n)
	}
	pause(ctx, n.hold-n.hold/2)
	if err := n.heal(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("ending it: %w", err)
	}
	e.To = time.Now()
	patience := time.Minute + 3*s.o.SessionTimeout
	err = until(ctx, 50*time.Millisecond, patience, func() error { return s.whole(ctx) })
	if err == nil {
		e.Whole = time.Now()
		err = s.settle(ctx, e.To, patience)
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.violate("%s of %s: the cluster did not recover: %v", k, n.text, err)
	}
	settled := time.Now()
	e.settled = settled
	if word != nil {
		e.Word = word.name
		if err := s.keepWord(ctx, word); err != nil {
			return fmt.Errorf("taking back the word of an operator: %w", err)
		}
	}
	e.Recovery = s.recovery(e.From, settled)
	e.Crashed, e.Retaken = s.retaken(e.crashed, e.From)
	e.Cancelled, e.Refused = s.evidence.said("cancelled", e.From, settled), s.evidence.said("refused", e.From, settled)
	if watched != nil {
		gaps := watched.end()
		stopped := s.evidence.stopped(e.From, settled)
		e.Watched, e.Outage, e.Lost = true, silent(gaps, e.From, settled), len(stopped)
		e.Hasty = hasty(stopped, e.From, gaps, s.o.SessionTimeout)
	}
	s.report.Events = append(s.report.Events, e)
	text := fmt.Sprintf("%s: over after %s; recovered %s after its begin", k, round(e.To.Sub(e.From)), round(e.Recovery))
	if e.Crashed > 0 {
		text += fmt.Sprintf(", %d crashed items ran again after %s", e.Crashed, round(e.Retaken))
	}
	if e.Watched {
		text += fmt.Sprintf(", ZooKeeper did not serve for %s", round(e.Outage))
	}
	if e.Cancelled+e.Refused > 0 {
		text += fmt.Sprintf(", %d guests told to stop, %d commits refused", e.Cancelled, e.Refused)
	}
	s.say("%s", text)
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// whole says why the cluster is not: a host is not at work, or another instance
// than those that live is still one of a job.
func (s *stage) whole(ctx context.Context) error {
	for _, h := range s.hosts {
		if err := h.live(ctx); err != nil {
			return err
		}
	}
	r, err := s.looked(ctx)
	if err != nil {
		return err
	}
	var queries []registry.Query
	for _, j := range jobs() {
		if s.standing != nil && s.standing.absent && j.name == flexJob {
			continue // an operator has hosts stay out of it
		}
		queries = append(queries, registry.Children(tree.NewLayout(s.o.Namespace, j.name).Root()+"/instances"))
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nodes, err := r.Read(ctx, queries...)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		ours := slices.DeleteFunc(slices.Clone(n.Names), func(id string) bool {
			return !slices.ContainsFunc(s.hosts, func(h *node) bool { return strings.HasPrefix(id, h.instance()) })
		})
		if len(ours) != len(n.Names) || len(ours) != len(s.hosts) {
			return fmt.Errorf("%s are %v", n.Path, n.Names)
		}
	}
	return nil
}

// settle waits until all hosts are at work and every item of the fast jobs has
// begun twice since.
func (s *stage) settle(ctx context.Context, since time.Time, patience time.Duration) error {
	return until(ctx, 100*time.Millisecond, patience, func() error {
		for _, h := range s.hosts {
			if err := h.live(ctx); err != nil {
				return err
			}
		}
		for _, j := range jobs() {
			if !j.fast {
				continue
			}
			for i := range j.items {
				if n := s.begunSince(itemID{j.name, i}, since); n < 2 {
					return fmt.Errorf("item %d of %s began %d times since %s", i, j.name, n, clock(since))
				}
			}
		}
		return nil
	})
}

func (s *stage) begunSince(id itemID, since time.Time) int {
	n := 0
	for _, t := range s.evidence.begins(id) {
		if t.After(since) {
			n++
		}
	}
	return n
}

// recovery is how long after the fault the last of the gaps ended in which an
// item of a fast job did not begin although it should have. A gap is longer than
// two periods and a half.
func (s *stage) recovery(from, settled time.Time) (longest time.Duration) {
	for _, j := range jobs() {
		if !j.fast {
			continue
		}
		for i := range j.items {
			var last time.Time
			for _, t := range s.evidence.begins(itemID{j.name, i}) {
				if t.After(from) && !t.After(settled) && !last.IsZero() && t.Sub(last) > j.period*5/2 {
					longest = max(longest, t.Sub(from))
				}
				last = t
			}
		}
	}
	return longest
}

// retaken is when the last of the crashed runs that have to run again did.
// Whether all did is judged at the end: some had ended without a word.
func (s *stage) retaken(crashed []*stint, from time.Time) (n int, last time.Duration) {
	for _, c := range crashed {
		if t, ok := s.evidence.again(c); ok && t.After(from) {
			n++
			last = max(last, t.Sub(from))
		}
	}
	return n, last
}

// operate does what operators do, once.
func (s *stage) operate(ctx context.Context) error {
	what := s.random.IntN(4)
	item := s.random.IntN(flexItems[0])
	h := s.anyHost()
	ask := func(do func(c *client.Client) error) error { return h.insist(ctx, do) }
	name := ""
	var err error
	switch what {
	case 0:
		name = "trigger"
		err = ask(func(c *client.Client) error { return c.Trigger(ctx, triggerJob) })
	case 1:
		name = "disable-job"
		if err = ask(func(c *client.Client) error { return c.Disable(ctx, flexJob) }); err == nil {
			pause(ctx, 2*time.Second)
			err = ask(func(c *client.Client) error { return c.Enable(ctx, flexJob) })
		}
	case 2:
		name = "disable-item"
		if err = ask(func(c *client.Client) error { return c.DisableItem(ctx, flexJob, item) }); err == nil {
			pause(ctx, 2*time.Second)
			err = ask(func(c *client.Client) error { return c.EnableItem(ctx, flexJob, item) })
		}
	case 3:
		name = "total-count"
		s.flex = !s.flex
		for _, each := range s.hosts {
			for _, j := range jobs() {
				if j.name == flexJob {
					if s.flex {
						j.items = flexItems[1]
					}
					err = errors.Join(err, each.define(j))
				}
			}
		}
	}
	if err != nil {
		return fmt.Errorf("operator's %s at %s: %w", name, h.name, err)
	}
	s.report.Operations[name]++
	s.say("operator: %s", name)
	return nil
}

// meddle triggers a job in the middle of a fault, on a host that does not
// suffer it. It may well fail: then nothing was triggered.
func (s *stage) meddle(ctx context.Context, n *injury) {
	for _, h := range s.hosts {
		if slices.Contains(n.hosts, h) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if c, err := h.client(ctx); err == nil && c.Trigger(ctx, triggerJob) == nil {
			s.report.Operations["trigger-amid"]++
		}
		return
	}
}

// rest ends the attack: every job has to fire again, the registry has to be in
// order while all hosts live, and bare when all have drained.
func (s *stage) rest(ctx context.Context) error {
	s.say("the faults are over; all jobs have to go on")
	calm := time.Now()
	if s.own != nil {
		if err := s.awaitServers(ctx); err != nil {
			return err
		}
	}
	if s.standing != nil {
		if err := s.takeBack(ctx, s.standing); err != nil {
			return err
		}
	}
	if s.report.Interrupted { // perhaps before an operator had enabled again what he had disabled
		for i := range flexItems[1] {
			_ = s.hosts[0].insist(ctx, func(c *client.Client) error { return c.EnableItem(ctx, flexJob, i) })
		}
		if err := s.hosts[0].insist(ctx, func(c *client.Client) error { return c.Enable(ctx, flexJob) }); err != nil {
			return err
		}
	}
	if err := s.allFire(ctx, calm); err != nil {
		s.violate("a job did not go on after the last fault: %v", err)
	}
	if err := s.inOrder(ctx); err != nil {
		return err
	}
	s.report.Hosts = s.measure(ctx)
	return s.shutDown(ctx, jobs())
}

// inOrder waits until nothing is left behind in the registry, while all jobs
// run.
func (s *stage) inOrder(ctx context.Context) error {
	const patience = sweepInterval + 30*time.Second
	var left []verify.Finding
	err := until(ctx, 500*time.Millisecond, 2*patience, func() error {
		r, err := s.looked(ctx)
		if err == nil {
			_, left, err = verify.LeftBehind(ctx, r, s.o.Namespace, patience)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("look at the registry: %w", err)
	}
	for _, f := range left {
		s.violate("left behind in the registry while all hosts live: job %s, item %d, %v: %s", f.Job, f.Item, f.Nodes, f.Text)
	}
	return nil
}

// allFire waits until every item of every scheduled job has begun again.
func (s *stage) allFire(ctx context.Context, since time.Time) error {
	var slowest time.Duration
	for _, j := range jobs() {
		slowest = max(slowest, j.period)
	}
	return until(ctx, 200*time.Millisecond, 3*slowest+30*time.Second, func() error {
		for _, j := range jobs() {
			for i := range j.items {
				if j.cron != "" && s.begunSince(itemID{j.name, i}, since) == 0 {
					return fmt.Errorf("item %d of %s", i, j.name)
				}
			}
		}
		return nil
	})
}

// measure is what the hosts use now.
func (s *stage) measure(ctx context.Context) []Usage {
	var list []Usage
	for _, h := range s.hosts {
		v, err := h.gauges(ctx, "go_goroutines", "process_resident_memory_bytes", "process_open_fds")
		if err != nil {
			s.violate("%s does not show its metrics: %v", h.name, err)
			continue
		}
		list = append(list, Usage{Host: h.name, Lives: h.lives, Goroutines: int(v["go_goroutines"]),
			Memory: int64(v["process_resident_memory_bytes"]), Files: int(v["process_open_fds"])})
	}
	return list
}

// shutDown disables all jobs, waits until nothing runs, and drains all hosts.
func (s *stage) shutDown(ctx context.Context, list []job) error {
	s.calm = time.Now()
	// A host goes on with that for five minutes, and the same request joins it.
	err := until(ctx, time.Second, 5*time.Minute, func() error {
		return s.hosts[0].insist(ctx, func(c *client.Client) error { return c.Disable(ctx, "") })
	})
	if err != nil {
		return fmt.Errorf("disable all jobs: %w", err)
	}
	err = until(ctx, 100*time.Millisecond, time.Minute, func() error {
		for _, h := range s.hosts {
			r, err := h.status(ctx)
			if err != nil {
				return err
			}
			for _, j := range r.Status.Jobs {
				if i := slices.IndexFunc(j.Items, func(i engine.ItemStatus) bool { return i.Running }); i >= 0 {
					return fmt.Errorf("item %d of %s runs on %s", j.Items[i].Item, j.Name, h.name)
				}
			}
		}
		return nil
	})
	if err != nil {
		s.violate("all jobs are disabled, but: %v", err)
	}
	for _, h := range s.hosts {
		if err := h.drain(drainTimeout + 20*time.Second); err != nil {
			s.violate("%v", err)
		}
	}
	return s.bare(ctx, list)
}
