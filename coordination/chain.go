package coordination

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Jobs that come after other jobs.
//
// A job that comes after another one adds itself to that job's node "ends" ([Follow]), and raises the sharding
// flag. That job's leader then notes in the division that fires are followed, and raises the epoch: no host
// begins a fire without knowing it. From then on each commit that completes items also writes their ends to the
// node "ends", whose version it proves. The commit that completes the last item also says how the fire has
// ended: no crash can come between. Hosts of the later job watch that node. The instants of the later job's
// fires are those of the earlier job, so that the records of its items refuse an instant that was begun, as
// with any schedule. Triggers have no instant of their own: the later job's leader makes a round for each
// trigger, in one commit with the node "after", which names the consumed triggers.

// knownEnds is what a host knows of a job's node "ends"; read is set once the node was read.
type knownEnds struct {
	read    bool
	ends    tree.Ends
	version int32
	exists  bool
}

// size is about how many bytes it takes in a commit.
func (k knownEnds) size() int {
	if !k.exists {
		return 0
	}
	return min(len(k.ends.Data())+1024, step.Budget/2)
}

// Followed reports whether other jobs come after this one, so that ends of fires are noted.
func (m *Member) Followed() bool { return m.Share.Followed || m.View.Division.Followed }

// Ends returns how fires of the job have ended, as far as this host knows.
func (m *Member) Ends() tree.Ends { return m.ends.ends }

// SeeEnds stores the node "ends" as a watch has shown it.
func (m *Member) SeeEnds(n registry.Node) {
	if !n.Exists || n.Version >= m.ends.version || !m.ends.exists {
		m.ends = knownEnds{true, tree.ParseEnds(n.Data), n.Version, n.Exists}
	}
}

// readEnds reads the node if ends of fires are to be noted and the known version is missing or outdated.
func (c *completion) readEnds(ctx context.Context, x *step.Exchange, again bool) error {
	if !c.Followed() || (c.ends.read && !again) {
		return nil
	}
	return c.ends.readFrom(ctx, x, c.Layout)
}

func (k *knownEnds) readFrom(ctx context.Context, x *step.Exchange, l tree.Layout) error {
	n, err := x.Read(ctx, registry.Data(l.Ends()))
	if err != nil {
		return err
	}
	node := n.Data(l.Ends())
	*k = knownEnds{true, tree.ParseEnds(node.Data), node.Version, node.Exists}
	return nil
}

// settle returns how fires have ended once these items are completed; changed is false if nothing has to be
// noted.
func (c *completion) settle(items tree.Items) (ends tree.Ends, changed bool) {
	if !c.ends.exists || len(items) == 0 {
		return ends, false
	}
	byFire := make(map[string]*tree.Settled)
	var order []string
	for _, i := range items {
		e := c.Items[i]
		outcome := e.Outcome
		if e.HandBack != nil {
			if !e.State.Record.Kill.Asked() {
				continue // it will begin once more
			}
			outcome = tree.OutcomeCancelled
		}
		id := e.Fire
		if id.Instant == 0 && id.Trigger == 0 {
			id = e.State.Record.Fire()
		}
		if id.Given { // its instant is not the next one of the chain
			continue
		}
		s := byFire[id.ID()]
		if s == nil {
			s = &tree.Settled{Fire: id, Root: e.Root, Total: c.total(id, i)}
			byFire[id.ID()] = s
			order = append(order, id.ID())
		}
		one := tree.Ranges{{From: i, To: i}}
		if tree.IsOK(outcome) {
			s.OK = s.OK.With(one)
		} else {
			s.Failed = s.Failed.With(one)
		}
	}
	var settled []tree.Settled
	for _, id := range order {
		settled = append(settled, *byFire[id])
	}
	return c.ends.ends.Settle(c.Now.UnixMilli(), settled...)
}

// total is how many items a fire has.
func (m *Member) total(id tree.Fire, highest int) int {
	if m.Share.Counts.Total > 0 {
		return m.Share.Counts.TotalOf(id, highest)
	}
	return m.View.Config.ShardingTotalCount
}

// SettleItems notes ends of items that have no completion because they do not run in a fire. It proves that
// this host owns the items. done is false if it does not, or if nothing is new.
func (m *Member) SettleItems(ctx context.Context, now time.Time, settled ...tree.Settled) (done bool, err error) {
	known := m.ends
	err = m.perform(ctx, "note ends", func(ctx context.Context, x *step.Exchange) error {
		for {
			if !known.read {
				if err := known.readFrom(ctx, x, m.Layout); err != nil {
					return err
				}
			}
			ends, changed := known.ends.Settle(now.UnixMilli(), settled...)
			if !known.exists || !changed {
				return nil
			}
			c := m.guarded(6, registry.AnyVersion)
			c.add(roleEnds, -1, registry.Set(m.Layout.Ends(), ends.Data(), known.version))
			results, err := x.Commit(ctx, c.ops...)
			if conflict := step.ConflictOf(err); conflict != nil && c.roles[conflict.Index] != roleEnds {
				return nil // the share is another one, or the job was removed
			}
			if step.Contested(err) {
				known.read = false
				continue
			}
			if err == nil {
				known.ends, known.version, done = ends, results[len(results)-1].Version, true
			}
			return err
		}
	})
	if err == nil {
		m.ends = known
	}
	return done, err
}

// ChainError says why a job cannot come after another one: Path leads from the job to the missing or repeated
// one.
type ChainError struct {
	Path    []string
	Missing bool // the last job of Path does not exist; otherwise it equals the first
}

func (e *ChainError) Error() string {
	path := strings.Join(e.Path, " -> ")
	if e.Missing {
		return fmt.Sprintf("after: job %q is not in the registry (%s)", jobconfig.Clip(e.Path[len(e.Path)-1]), jobconfig.Clip(path))
	}
	return "after: the jobs would come after each other: " + clipPath(e.Path)
}

// clipPath shortens a long path for people.
func clipPath(path []string) string {
	const most = 12
	if len(path) > most {
		path = slices.Concat(path[:most/2], []string{"…"}, path[len(path)-most/2:])
	}
	return strings.Join(path, " -> ")
}

// Cycle finds a shortest path from a job back to itself along what each job comes after; nil if there is none.
func Cycle(job string, after func(job string) []string) []string {
	from := map[string]string{} // the predecessor of each job on the path
	next := []string{job}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for _, before := range after(at) {
			if before == job {
				path := []string{job}
				for ; at != job; at = from[at] {
					path = append(path, at)
				}
				slices.Reverse(path[1:])
				return append(path, job)
			}
			if _, seen := from[before]; !seen {
				from[before] = at
				next = append(next, before)
			}
		}
	}
	return nil
}

// Circular returns the jobs of after that can be part of a cycle. after has the jobs that each job comes after.
// It leaves out each job that comes after none, or only after jobs that are left out.
func Circular(after map[string][]string) map[string][]string {
	waits, followers := make(map[string]int), make(map[string][]string)
	var free []string
	for job, before := range after {
		for _, b := range before {
			if _, has := after[b]; has {
				waits[job]++
				followers[b] = append(followers[b], job)
			}
		}
		if waits[job] == 0 {
			free = append(free, job)
		}
	}
	rest := maps.Clone(after)
	for len(free) > 0 {
		job := free[len(free)-1]
		free = free[:len(free)-1]
		delete(rest, job)
		for _, f := range followers[job] {
			if waits[f]--; waits[f] == 0 {
				free = append(free, f)
			}
		}
	}
	return rest
}

// CheckChain checks the jobs that a job comes after, directly and indirectly. known returns what a job comes
// after if the caller knows it; the registry is read for the other jobs. The error is a [*ChainError] if a
// direct predecessor does not exist, or if there is a cycle.
func CheckChain(ctx context.Context, r registry.Center, l tree.Layout, after []jobconfig.After, known func(job string) (before []string, ok bool)) error {
	return step.Perform(ctx, r, "read the jobs before", func(ctx context.Context, x *step.Exchange) error {
		direct := jobNames(after)
		jobs := map[string][]string{l.Job: direct}
		for found := direct; len(found) > 0; {
			var next, asked []string
			note := func(job string, before []string) {
				jobs[job] = before
				next = append(next, before...)
			}
			for _, job := range found {
				if _, has := jobs[job]; has {
					continue
				}
				if before, ok := known(job); ok {
					note(job, before)
				} else {
					jobs[job] = nil
					asked = append(asked, job)
				}
			}
			if found = next; len(asked) == 0 {
				continue
			}
			read := make([]registry.Query, len(asked))
			for k, job := range asked {
				read[k] = registry.Data(tree.NewLayout(l.Namespace, job).Config())
			}
			n, err := x.Read(ctx, read...)
			if err != nil {
				return err
			}
			for k, job := range asked {
				node := n[read[k]]
				if !node.Exists && slices.Contains(direct, job) {
					return &ChainError{[]string{l.Job, job}, true}
				}
				note(job, afterOf(node))
			}
			found = next
		}
		if path := Cycle(l.Job, func(job string) []string { return jobs[job] }); path != nil {
			return &ChainError{path, false}
		}
		return nil
	})
}

func jobNames(after []jobconfig.After) (jobs []string) {
	for _, a := range after {
		jobs = append(jobs, a.Job)
	}
	return jobs
}

// afterOf returns the jobs that a job comes after, by its configuration.
func afterOf(config registry.Node) []string {
	c, _, err := jobconfig.Parse(config.Data)
	if err != nil || !config.Exists || c.InstantProps() == nil {
		return nil
	}
	g, _ := c.Guest() // an unreadable configuration names none
	return jobNames(g.When.After)
}

// Follow adds a job to the followers of other jobs, unless it is one: in one commit, or several if they do not
// fit one. It asks the leader of each job that gets its first follower to notify its hosts. The error is a
// [*ChainError] if one of the jobs does not exist.
func Follow(ctx context.Context, r registry.Center, job string, causes ...tree.Layout) error {
	return step.Perform(ctx, r, "follow other jobs", func(ctx context.Context, x *step.Exchange) error {
		for {
			var read []registry.Query
			for _, l := range causes {
				read = append(read, registry.Data(l.Config()), registry.Data(l.Ends()), registry.Data(l.Necessary()))
			}
			n, err := x.Read(ctx, read...)
			if err != nil {
				return err
			}
			var ops []registry.Op
			rest := false
			for _, l := range causes {
				if !n.Data(l.Config()).Exists {
					return &ChainError{[]string{job, l.Job}, true}
				}
				more := follow(job, l, n)
				if len(ops) > 0 && step.Size(ops)+step.Size(more) > step.Budget {
					rest = true // of them when these are entered
					break
				}
				ops = append(ops, more...)
			}
			if len(ops) == 0 {
				return nil
			}
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) && (err != nil || !rest) {
				return err
			}
		}
	})
}

// follow returns the ops that add a job to the followers of another one, whose nodes are n; none if it is one.
func follow(job string, cause tree.Layout, n registry.Snapshot) []registry.Op {
	node := n.Data(cause.Ends())
	ends, changed := tree.ParseEnds(node.Data).WithFollower(job)
	if !changed {
		return nil
	}
	ops := []registry.Op{registry.Check(cause.Config(), registry.AnyVersion)}
	if node.Exists {
		return append(ops, registry.Set(cause.Ends(), ends.Data(), node.Version))
	}
	ops = append(ops, registry.Ensure(cause.Records()), registry.Create(cause.Ends(), ends.Data()))
	return append(ops, askLeader(cause, n.Data(cause.Necessary()))...)
}

// askLeader returns the ops that raise the flag.
func askLeader(l tree.Layout, flag registry.Node) []registry.Op {
	if flag.Exists {
		return []registry.Op{registry.Check(l.Necessary(), registry.AnyVersion)}
	}
	return []registry.Op{registry.Ensure(l.ShardingFlags()), registry.Create(l.Necessary(), nil)}
}

// Unfollow removes jobs from the followers of a job. If none remains it deletes the node and asks the leader to
// notify the hosts that ends need not be noted.
func Unfollow(ctx context.Context, r registry.Center, cause tree.Layout, jobs ...string) error {
	return step.Perform(ctx, r, "unfollow "+cause.Job, func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(cause.Config()), registry.Data(cause.Ends()), registry.Data(cause.Necessary()))
			if err != nil {
				return err
			}
			node := n.Data(cause.Ends())
			ends := tree.ParseEnds(node.Data)
			before := len(ends.Followers)
			for _, job := range jobs {
				ends = ends.WithoutFollower(job)
			}
			if !node.Exists || len(ends.Followers) == before {
				return nil
			}
			ops := []registry.Op{registry.Set(cause.Ends(), ends.Data(), node.Version)}
			if len(ends.Followers) == 0 {
				ops = []registry.Op{registry.Delete(cause.Ends(), node.Version)}
				if n.Data(cause.Config()).Exists {
					ops = append(ops, askLeader(cause, n.Data(cause.Necessary()))...)
				}
			}
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
				return err
			}
		}
	})
}

// Strays returns the followers of a job that no longer come after it, or were removed.
func Strays(ctx context.Context, r registry.Center, l tree.Layout, followers []string) (strays []string, err error) {
	err = step.Perform(ctx, r, "read the jobs after", func(ctx context.Context, x *step.Exchange) error {
		var read []registry.Query
		for _, job := range followers {
			read = append(read, registry.Data(tree.NewLayout(l.Namespace, job).Config()))
		}
		n, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		for k, job := range followers {
			if !slices.Contains(afterOf(n[read[k]]), l.Job) {
				strays = append(strays, job)
			}
		}
		return nil
	})
	return strays, err
}
