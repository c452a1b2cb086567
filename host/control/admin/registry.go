package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/coordination/admin/changelog"
	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/fence"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Registry operates the jobs of a namespace through the registry alone, whether a host runs or not;
// ElasticJob's console writes the same nodes. The caller records its changes, unless it leaves records. It is
// safe for concurrent use.
type Registry struct {
	namespace string
	center    func() registry.Center
	leaves    bool      // records of changes, in the registry
	who, why  string    // of these, and of what is wanted of jobs
	until     time.Time // when what is disabled ends by itself; zero: never
	ceilings  ceiling.List
	refuses   func(jobconfig.Configuration) []*jobconfig.FieldError
}

// NewRegistry returns the operations on a namespace. center is the session
// that they use; it is asked each time and is nil while there is none. What operators ask of it is urgent.
func NewRegistry(namespace string, center func() registry.Center) *Registry {
	urgent := func() registry.Center { return registry.ForOperators(center()) }
	return &Registry{namespace: namespace, center: urgent, refuses: func(jobconfig.Configuration) []*jobconfig.FieldError { return nil }}
}

// OnHost returns the same operations for a host. Its ceilings bound defaults, and an edit is refused that the
// host would refuse to run.
func (r *Registry) OnHost(ceilings ceiling.List, refuses func(jobconfig.Configuration) []*jobconfig.FieldError) *Registry {
	on := *r
	on.ceilings, on.refuses = ceilings, refuses
	return &on
}

// LeavingRecords returns the same operations for a caller without a host: each leaves its record in the
// registry, for a host to move into its history. who is as from command.WhoAsks, why is the given reason.
func (r *Registry) LeavingRecords(who, why string) *Registry {
	leaving := *r
	leaving.leaves, leaving.who, leaving.why = true, who, event.Reason(why)
	return &leaving
}

// For returns the same operations in the name of an operator with a reason: tree.Wanted records both.
func (r *Registry) For(who, why string) *Registry {
	of := *r
	of.who, of.why = who, event.Reason(why)
	return &of
}

// Until returns the same operations with an end: what they disable is enabled at that time, by the registry's
// clock. Zero is never.
func (r *Registry) Until(at time.Time) *Registry {
	of := *r
	of.until = at
	return &of
}

// said returns the caller's word for tree.Wanted.
func (r *Registry) said() tree.Word {
	word := tree.Word{By: r.who, Why: r.why, Since: time.Now().UnixMilli()}
	if !r.until.IsZero() {
		word.Until = r.until.UnixMilli()
	}
	return word
}

// switching is the record of an enable or a disable.
func (r *Registry) switching(enable bool) changelog.Record {
	change := changelog.Record{What: operation.Switch(enable).String()}
	if !enable {
		change.After = UntilText(r.until)
	}
	return change
}

// UntilText is how a record says until when something is disabled; empty for no time.
func UntilText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return "until " + at.UTC().Format(time.RFC3339)
}

// recorded returns a session that records a change of a job. change may be completed until the commit.
func (r *Registry) recorded(c registry.Center, l tree.Layout, change *changelog.Record) registry.Center {
	if !r.leaves {
		return changelog.By(c, l)
	}
	change.Time, change.Job, change.Who, change.From, change.Why = time.Now(), l.Job, r.who, event.FromRegistry, r.why
	return changelog.Leaving(c, l, func() changelog.Record { return *change })
}

// change is perform for a step that changes the job.
func (r *Registry) change(ctx context.Context, job string, change changelog.Record, step func(context.Context, registry.Center, tree.Layout) error) error {
	return r.perform(ctx, job, func(ctx context.Context, c registry.Center, l tree.Layout) error {
		return step(ctx, r.recorded(c, l, &change), l)
	})
}

// changed is change for a step with a result.
func changed[T any](ctx context.Context, r *Registry, job string, change changelog.Record, step func(context.Context, registry.Center, tree.Layout) (T, error)) (T, error) {
	return query(ctx, r, job, func(ctx context.Context, c registry.Center, l tree.Layout) (T, error) {
		return step(ctx, r.recorded(c, l, &change), l)
	})
}

// oneItem is an item as a record has it; nil for all.
func oneItem(item int) *int {
	if item < 0 {
		return nil
	}
	return &item
}

// perform runs an operator's step on a job.
func (r *Registry) perform(ctx context.Context, job string, step func(context.Context, registry.Center, tree.Layout) error) error {
	c := r.center()
	if c == nil {
		return engine.ErrNotLive
	}
	if err := jobconfig.CheckJobName(job); err != nil {
		return fmt.Errorf("job %q: %w: %w", job, engine.ErrNoJob, err)
	}
	c, err := fence.Raised(ctx, c, r.namespace)
	if err == nil {
		err = step(ctx, c, tree.NewLayout(r.namespace, job))
	}
	if errors.Is(err, tree.ErrRemoved) {
		return fmt.Errorf("namespace %s: %w", r.namespace, &noJobError{job})
	}
	if err != nil {
		return fmt.Errorf("job %q: %w", job, err)
	}
	return nil
}

// query is perform for a step with a result.
func query[T any](ctx context.Context, r *Registry, job string, step func(context.Context, registry.Center, tree.Layout) (T, error)) (out T, err error) {
	err = r.perform(ctx, job, func(ctx context.Context, c registry.Center, l tree.Layout) (err error) {
		out, err = step(ctx, c, l)
		return err
	})
	return out, err
}

// noJobError: the registry has no such job.
type noJobError struct{ job string }

func (e *noJobError) Error() string { return fmt.Sprintf("there is no job %q", e.job) }

// Is makes it a host.ErrNoJob.
func (e *noJobError) Is(target error) bool { return target == engine.ErrNoJob }

// Jobs lists the jobs of the namespace, by name.
func (r *Registry) Jobs(ctx context.Context) ([]Brief, error) {
	c := r.center()
	if c == nil {
		return nil, engine.ErrNotLive
	}
	list, err := inspect.ReadJobs(ctx, c, r.namespace)
	if err != nil {
		return nil, err
	}
	out := []Brief{}
	for _, b := range list {
		out = append(out, Brief{
			Name: b.Name, Description: b.Description, Cron: b.Cron, TimeZone: b.TimeZone, Terms: b.Terms, Labels: b.Labels, ShardingTotalCount: b.Total, Held: b.Held,
			Status: string(b.Status), Instances: b.Instances, Java: b.Java, Leader: b.Leader, LastOutcome: b.LastOutcome, LastReason: b.LastReason, LastEnded: b.LastEnded, Error: b.Error,
		})
	}
	return out, nil
}

// Namespaces are those with jobs, as far as a host of ours was there.
func (r *Registry) Namespaces(ctx context.Context) ([]string, error) {
	c := r.center()
	if c == nil {
		return nil, engine.ErrNotLive
	}
	return inspect.Namespaces(ctx, c)
}

// Adopt raises the namespace's base, for a registry that was copied from another one, or has gone back; see
// [fence.Adopt].
func (r *Registry) Adopt(ctx context.Context, above int64) (fence.Adoption, error) {
	c := r.center()
	if c == nil {
		return fence.Adoption{}, engine.ErrNotLive
	}
	return fence.Adopt(ctx, c, r.namespace, above, cmp.Or(r.who, "operator"))
}

// Purged is what the record of a removal says of the job's records if they are removed, too.
const Purged = "its records are removed, too"

// Shards returns a job item by item and instance by instance.
func (r *Registry) Shards(ctx context.Context, job string) (*Shards, error) {
	s, err := query(ctx, r, job, inspect.ReadShards)
	if err != nil {
		return nil, err
	}
	out := newShards(&s)
	var hidden *registry.UnreadableError
	if out.Triggers, err = r.Triggers(ctx, job); err != nil && !errors.As(err, &hidden) { // the items can be shown all the same
		return nil, err
	}
	if !slices.ContainsFunc(out.Items, func(i Shard) bool { return i.Moves }) {
		return out, nil
	}
	c := r.center()
	if c == nil {
		return nil, engine.ErrNotLive
	}
	division, err := c.Read(ctx, registry.Data(tree.NewLayout(r.namespace, job).Sibling()+"/assignment"))
	if err != nil {
		return nil, fmt.Errorf("job %q: %w", job, err)
	}
	for n := range out.Items {
		if i := &out.Items[n]; i.Moves && division[0].Exists {
			i.MovesSince = division[0].Mtime
		}
	}
	return out, nil
}

// The bounds of the triggers that are shown: how many of the queue, and how many bytes of a parameter.
const mostQueued, mostParam = 20, 400

// Triggers are those of a job that have not begun.
type Triggers struct {
	// First is the trigger that hosts have not begun, because items of the job still run; missing if there is
	// none.
	First *FirstTrigger `json:"first,omitempty"`
	// Length is how many are queued behind it. Each waits for the one before it.
	Length int `json:"length"`
	// Queue are the first 20 of them, in the order in which they begin.
	Queue []QueuedTrigger `json:"queue"`
}

// FirstTrigger is a trigger that hosts have not begun.
type FirstTrigger struct {
	// Trigger is its number, Since when it was made.
	Trigger int64     `json:"trigger"`
	Since   time.Time `json:"since"`
	// Asked are its arguments.
	Asked Asked `json:"asked"`
	// Hosts are the instances that have not begun it, Items those that moved before they began it, as ranges: their new owner
	// begins them.
	Hosts []string `json:"hosts,omitempty"`
	Items string   `json:"items,omitempty"`
}

// QueuedTrigger is a trigger that is queued.
type QueuedTrigger struct {
	// Queued is the number under which it is queued.
	Queued int64 `json:"queued"`
	// Asked are its arguments.
	Asked Asked `json:"asked"`
}

// Asked are a trigger's arguments.
type Asked struct {
	// Items are those that run, as ranges; missing for all.
	Items string `json:"items,omitempty"`
	// Param is the job's parameter in the fire, or its arguments as JSON; missing if it is the configured one. It ends with … beyond
	// 400 bytes.
	Param *string `json:"param,omitempty"`
	// At is the instant of the runs, missing if it is when they begin; Backfill: the trigger belongs to a
	// backfill.
	At       time.Time `json:"at,omitzero"`
	Backfill bool      `json:"backfill,omitempty"`
}

// askedOf is what a trigger with these arguments asks for.
func askedOf(args tree.TriggerArgs) Asked {
	a := Asked{Items: args.Items.String(), Backfill: args.Backfill}
	if args.Param != nil {
		text := words.ClipTo(*args.Param, mostParam)
		a.Param = &text
	}
	if args.At != 0 {
		a.At = time.UnixMilli(args.At).UTC()
	}
	return a
}

// Triggers are the triggers of the job that have not begun; nil if there are none.
func (r *Registry) Triggers(ctx context.Context, job string) (*Triggers, error) {
	read, err := query(ctx, r, job, operate.ReadTriggers)
	if err != nil || (read.First == nil && len(read.Queue) == 0) {
		return nil, err
	}
	out := &Triggers{Length: len(read.Queue), Queue: []QueuedTrigger{}}
	if f := read.First; f != nil {
		out.First = &FirstTrigger{Trigger: f.Round, Since: f.Since.UTC(), Asked: askedOf(f.Args), Hosts: f.Hosts, Items: f.Items.String()}
	}
	for _, q := range read.Queue[:min(len(read.Queue), mostQueued)] {
		out.Queue = append(out.Queue, QueuedTrigger{q.Number, askedOf(q.Args)})
	}
	return out, nil
}

// Trigger makes every instance of the job run its items once, now.
func (r *Registry) Trigger(ctx context.Context, job string) error {
	_, err := r.TriggerWith(ctx, job, tree.TriggerArgs{})
	return err
}

// Triggered is the answer of a trigger.
type Triggered struct {
	// Trigger is the number of the trigger round, which its fire has; 0 if the trigger is queued.
	Trigger int64 `json:"trigger"`
	// Queued is the number under which the trigger is queued, because an earlier one has not begun everywhere.
	// Its fire gets a number of its own, with this one in its arguments.
	Queued int64 `json:"queued,omitempty"`
	// Ahead is how many triggers are before a queued one.
	Ahead int `json:"ahead,omitempty"`
	// Earlier is the previous trigger, if some host has not begun it: that host runs once for both, in the new
	// round.
	Earlier int64 `json:"earlier,omitempty"`
}

// TriggerWith is Trigger for some of the items, or with another parameter. It returns the number of
// the trigger round.
func (r *Registry) TriggerWith(ctx context.Context, job string, args tree.TriggerArgs) (Triggered, error) {
	return changed(ctx, r, job, changelog.Record{What: operation.Trigger.String(), Trigger: changelog.OfThisCommit, After: args.Record()}, func(ctx context.Context, c registry.Center, l tree.Layout) (Triggered, error) {
		made, err := operate.TriggerWith(ctx, c, l, args)
		return Triggered{Trigger: made.Round, Earlier: made.Earlier, Queued: made.Queued, Ahead: made.Ahead}, err
	})
}

// Backfill has past instants of a job run again; see [operate.StartBackfill].
func (r *Registry) Backfill(ctx context.Context, job string, b tree.Backfill) error {
	b.By, b.Why = r.who, r.why
	return r.change(ctx, job, changelog.Record{What: operation.Backfill.String(), After: b.Record()}, func(ctx context.Context, c registry.Center, l tree.Layout) error {
		return operate.StartBackfill(ctx, c, l, b)
	})
}

// CancelBackfill ends the job's backfill, and returns it as it has ended.
func (r *Registry) CancelBackfill(ctx context.Context, job string) (tree.Backfill, error) {
	now := time.Now()
	return changed(ctx, r, job, changelog.Record{What: operation.Backfill.String(), After: "cancelled"}, func(ctx context.Context, c registry.Center, l tree.Layout) (tree.Backfill, error) {
		return operate.CancelBackfill(ctx, c, l, cmp.Or(r.who, "operator"), now)
	})
}

// Backfills are the backfill of a job that goes on, and the last that has ended.
func (r *Registry) Backfills(ctx context.Context, job string) (operate.Backfills, error) {
	return query(ctx, r, job, operate.ReadBackfills)
}

// CheckArgs returns the error with which a trigger or backfill with these arguments would be refused, and
// writes nothing; see [operate.CheckArgs].
func (r *Registry) CheckArgs(ctx context.Context, job string, args tree.TriggerArgs) error {
	_, err := query(ctx, r, job, func(ctx context.Context, c registry.Center, l tree.Layout) (struct{}, error) {
		return struct{}{}, operate.CheckArgs(ctx, c, l, args)
	})
	return err
}

// Enable lets all servers run the job again; job "" is all jobs.
func (r *Registry) Enable(ctx context.Context, job string) error {
	_, err := r.SetServers(ctx, job, true)
	return err
}

// Disable keeps all servers from running the job; job "" is all jobs.
func (r *Registry) Disable(ctx context.Context, job string) error {
	_, err := r.SetServers(ctx, job, false)
	return err
}

// SetServers is Enable or Disable. did is false if nothing changed; then nothing is recorded.
func (r *Registry) SetServers(ctx context.Context, job string, enable bool) (did bool, err error) {
	var mu sync.Mutex // of did
	err = r.each(ctx, job, func(ctx context.Context, name string) error {
		some, err := changed(ctx, r, name, r.switching(enable), func(ctx context.Context, c registry.Center, l tree.Layout) (bool, error) {
			return operate.SetServers(ctx, c, l, r.said(), enable)
		})
		mu.Lock()
		defer mu.Unlock()
		did = did || some
		return err
	})
	return did, err
}

// EnableServer lets one server run the job again; job "" is all jobs that know
// the server.
func (r *Registry) EnableServer(ctx context.Context, job, server string) error {
	_, err := r.SetServer(ctx, job, server, true)
	return err
}

// DisableServer keeps one server from running the job; job "" is all jobs that
// know the server.
func (r *Registry) DisableServer(ctx context.Context, job, server string) error {
	_, err := r.SetServer(ctx, job, server, false)
	return err
}

// SetServer is EnableServer or DisableServer. did is as that of SetServers.
func (r *Registry) SetServer(ctx context.Context, job, server string, enable bool) (did bool, err error) {
	var mu sync.Mutex // of what follows, and did
	known, all := 0, make(map[string]bool)
	err = r.each(ctx, job, func(ctx context.Context, name string) error {
		c := r.center()
		if c == nil {
			return engine.ErrNotLive
		}
		l := tree.NewLayout(r.namespace, name)
		nodes, err := c.Read(ctx, registry.Children(l.Servers()))
		if err != nil {
			return fmt.Errorf("job %q: %w", name, err)
		}
		has := slices.Contains(nodes[0].Names, server)
		mu.Lock()
		for _, ip := range nodes[0].Names {
			all[ip] = true
		}
		if has {
			known++
		}
		mu.Unlock()
		if !has {
			return nil
		}
		change := r.switching(enable)
		change.Host = server
		some, err := changed(ctx, r, name, change, func(ctx context.Context, c registry.Center, l tree.Layout) (bool, error) {
			return operate.SetServers(ctx, c, l, r.said(), enable, server)
		})
		mu.Lock()
		defer mu.Unlock()
		did = did || some
		return err
	})
	switch {
	case err != nil:
		return did, err
	case known > 0:
		return did, nil
	case job != "" && len(all) == 0:
		// A job that exists has servers, unless no host ever ran it.
		if _, err := r.Shards(ctx, job); err != nil {
			return false, err
		}
	}
	return false, &noTargetError{fmt.Sprintf("no server %s", server), sortedKeys(all)}
}

// EnableItem lets the item run again.
func (r *Registry) EnableItem(ctx context.Context, job string, item int) error {
	_, err := r.SetItem(ctx, job, item, true)
	return err
}

// DisableItem keeps the item from running.
func (r *Registry) DisableItem(ctx context.Context, job string, item int) error {
	_, err := r.SetItem(ctx, job, item, false)
	return err
}

// SetItem is EnableItem or DisableItem. did is as that of SetServers.
func (r *Registry) SetItem(ctx context.Context, job string, item int, enable bool) (did bool, err error) {
	if err := r.hasItem(ctx, job, item); err != nil {
		return false, err
	}
	change := r.switching(enable)
	change.Item = &item
	return changed(ctx, r, job, change, func(ctx context.Context, c registry.Center, l tree.Layout) (bool, error) {
		return operate.SetItem(ctx, c, l, r.said(), item, enable)
	})
}

// hasItem returns an error if the job, or the item, is not there.
func (r *Registry) hasItem(ctx context.Context, job string, item int) error {
	s, err := r.Shards(ctx, job)
	if err != nil {
		return err
	}
	return hasNumber(job, item, s.numbers())
}

// hasNumber is hasItem for the numbers of the job's items.
func hasNumber(job string, item int, numbers tree.Items) error {
	if numbers.Contains(item) {
		return nil
	}
	var have []string
	if len(numbers) > 0 {
		have = []string{numbers.String()}
	}
	if item < 0 {
		return &noTargetError{fmt.Sprintf("job %q has no item yet", job), have}
	}
	return &noTargetError{fmt.Sprintf("job %q has no item %d", job, item), have}
}

// Shutdown stops instances in a job: they finish what they run and stay out until they are started again. It
// stops the named instance, or those of a server, or all if neither is given. job "" is all jobs. Java hosts
// that run items with failover are refused: operate.ErrJavaRuns.
func (r *Registry) Shutdown(ctx context.Context, job, server, instance string) error {
	d := shutdown{server: server, instance: instance, all: make(map[string]bool)}
	if err := r.each(ctx, job, func(ctx context.Context, name string) error { return d.of(ctx, r, name) }); err != nil {
		return err
	}
	if len(d.refused) > 0 {
		slices.SortFunc(d.refused, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) }) // jobs come in any order
		return errors.Join(d.refused...)
	}
	if d.stopped > 0 {
		return nil
	}
	what := "no instance"
	if instance != "" {
		what += " " + instance
	} else if server != "" {
		what += " on server " + server
	}
	return &noTargetError{what, sortedKeys(d.all)}
}

// shutdown is which instances are to stop, and what came of it.
type shutdown struct {
	server, instance string // empty: any

	mu      sync.Mutex // guards what follows
	stopped int
	all     map[string]bool // that are there
	refused []error
}

// of stops the instances of one job.
func (d *shutdown) of(ctx context.Context, r *Registry, job string) error {
	s, err := r.Shards(ctx, job)
	if err != nil {
		return err
	}
	return r.change(ctx, job, changelog.Record{What: operation.Shutdown.String(), Host: cmp.Or(d.instance, d.server)}, func(ctx context.Context, c registry.Center, l tree.Layout) error {
		return d.stop(ctx, c, l, r.said(), s.Instances)
	})
}

// stop stops those of the instances of a job that are meant.
func (d *shutdown) stop(ctx context.Context, c registry.Center, l tree.Layout, said tree.Word, instances []Instance) error {
	var ours, java []string
	for _, i := range instances {
		if i.Gone {
			continue
		}
		d.note(i.ID, 0)
		switch {
		case (d.instance != "" && i.ID != d.instance) || (d.server != "" && i.Server != d.server):
		case i.Java:
			java = append(java, i.ID)
		default:
			ours = append(ours, i.ID)
		}
	}
	of := d.server
	if d.instance != "" {
		of = tree.ProcessOf(d.instance)
	}
	if len(ours) > 0 {
		stopped, err := operate.Stop(ctx, c, l, said, of, ours)
		if err != nil {
			return err
		}
		d.note("", stopped)
	}
	for _, id := range java {
		err := operate.StopJava(ctx, c, l, id)
		var conflict *registry.OpError
		switch {
		case errors.As(err, &conflict): // it has gone by itself
		case errors.Is(err, operate.ErrJavaRuns):
			d.mu.Lock()
			d.refused = append(d.refused, fmt.Errorf("job %q: %w", l.Job, err))
			d.mu.Unlock()
		case err != nil:
			return err
		default:
			d.note("", 1)
		}
	}
	return nil
}

// note notes an instance that is there, unless its id is empty, and so many more that were stopped.
func (d *shutdown) note(id string, stopped int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id != "" {
		d.all[id] = true
	}
	d.stopped += stopped
}

// Restore brings a job back that was removed, and has all hosts come back that were stopped
// in it. back is false if it was neither.
func (r *Registry) Restore(ctx context.Context, job string) (back bool, err error) {
	err = r.change(ctx, job, changelog.Record{What: operation.Restore.String()}, func(ctx context.Context, c registry.Center, l tree.Layout) error {
		return operate.Restore(ctx, c, l, r.said())
	})
	if errors.Is(err, operate.ErrNotAway) {
		return false, nil
	}
	return err == nil, err
}

// KillOptions say what is to end, and how.
type KillOptions struct {
	// Item is one item, -1 all. Run is one run by its id, "" any; Server is the
	// server of the instances that are meant, "" any.
	Item        int
	Run, Server string
	// By names the requester, for the record. The API knows the user.
	By string
	// Grace is how long guests may continue after they have been asked to end, 0 to MaxGrace. Wait is how long
	// Kill waits for the ends, 0 to MaxGrace.
	Grace, Wait time.Duration
}

// MaxGrace bounds Grace and Wait.
const MaxGrace = 24 * time.Hour

// Check refuses what is out of bounds.
func (o KillOptions) Check() error {
	switch {
	case o.Item < -1:
		return &BadRequestError{"query.item", fmt.Sprintf("item %d is not a number from 0", o.Item)}
	case o.Grace < 0 || o.Grace > MaxGrace:
		return &BadRequestError{"query.grace", fmt.Sprintf("grace %s is not from 0 to %s", o.Grace, MaxGrace)}
	case o.Wait < 0 || o.Wait > MaxGrace:
		return &BadRequestError{"query.wait", fmt.Sprintf("wait %s is not from 0 to %s", o.Wait, MaxGrace)}
	}
	return nil
}

// Kills are the runs and listeners of a job that were to end.
type Kills struct {
	Job  string `json:"job"`
	Runs []Kill `json:"runs"` // what was to end: listeners, and runs by item
}

// Open counts the runs that may go on.
func (k *Kills) Open() int {
	n := 0
	for _, r := range k.Runs {
		if r.State != KillEnded && r.State != KillGone {
			n++
		}
	}
	return n
}

// Asked names the runs whose hosts were asked to end them, by fire: cities/t7/0, or cities/t7 items 0-3,5. It is empty
// if there are none.
func (k *Kills) Asked() string {
	fires := make(map[string]tree.Items)
	var list []string
	for _, r := range k.Runs {
		at := strings.LastIndexByte(r.RunID, '/')
		switch {
		case at < 0:
		case r.Listener != "":
			list = append(list, r.RunID[:at]+" listener "+r.Listener)
		default:
			fires[r.RunID[:at]] = append(fires[r.RunID[:at]], r.Item)
		}
	}
	for _, fire := range sortedKeys(fires) {
		text := "/"
		if len(fires[fire]) > 1 {
			text = " items "
		}
		list = append(list, fire+text+fires[fire].String())
	}
	return event.Reason(strings.Join(list, ", "))
}

// Kill is one run that was to end, or a listener.
type Kill struct {
	// Item is -1 for a listener, of which Listener is the export.
	Item     int    `json:"item"`
	Listener string `json:"listener,omitempty"`
	// RunID is empty for a Java host.
	RunID string    `json:"runId,omitempty"`
	Host  string    `json:"host"`
	State KillState `json:"state"`
	// Outcome and Reason are how it ended; Outcome is empty for a listener, and if the end is unknown: the item
	// has begun again, and no history has it.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
}

// KillState is what has become of a run that was to end.
type KillState string

// The states.
const (
	KillAsked KillState = "asked" // its host has not recorded its end
	KillEnded KillState = "ended"
	// KillGone: its host has died, and the run is not to be taken over.
	KillGone KillState = "host gone"
	// KillJava: it runs on a Java host, which cannot be asked.
	KillJava KillState = "on a Java host"
	// KillOlder: it runs on a host of a version that does not find the kill.
	KillOlder KillState = "on an older host"
)

// Kill asks the hosts of a job to end their runs, and waits for that. progress, if not nil, gets the whole
// state when all hosts are asked, and after each change; Kill returns the last one. A killed run is completed
// as CANCELLED: it is not retried, taken over or caught up. Later runs are not affected.
func (r *Registry) Kill(ctx context.Context, job string, o KillOptions, progress func(*Kills)) (*Kills, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Item >= 0 {
		if err := r.hasItem(ctx, job, o.Item); err != nil {
			return nil, err
		}
	}
	layout := tree.NewLayout(r.namespace, job)
	k := operate.Killing{Layout: layout, Item: o.Item, Run: o.Run, Server: o.Server, By: o.By, Grace: o.Grace, Now: time.Now()}
	record := changelog.Record{What: operation.Kill.String(), Item: oneItem(o.Item), Host: o.Server}
	w := &killWait{job: job, layout: layout}
	k.Found = func(targets []operate.KillTarget) {
		w.targets, w.endings = targets, make([]operate.Ending, len(targets))
		for n := range w.endings {
			w.endings[n].Open = true
		}
		record.After = w.kills().Asked()
	}
	askKill := func(ctx context.Context, c registry.Center, l tree.Layout) ([]operate.KillTarget, error) {
		return operate.AskKill(ctx, r.recorded(c, l, &record), k)
	}
	targets, err := query(ctx, r, job, askKill)
	if err != nil {
		return nil, err
	}
	w.targets = targets
	if o.Run != "" && len(targets) == 0 {
		return nil, r.notRunning(ctx, k)
	}
	if progress == nil {
		progress = func(*Kills) {}
	}
	progress(w.kills())
	if o.Wait > 0 && len(targets) > 0 {
		err = w.wait(ctx, r, o.Wait, progress)
	}
	return w.kills(), err
}

// notRunning says that a run does not run, and which do.
func (r *Registry) notRunning(ctx context.Context, k operate.Killing) error {
	run := k.Run
	k.Run, k.Look = "", true
	look := func(ctx context.Context, c registry.Center, _ tree.Layout) ([]operate.KillTarget, error) {
		return operate.AskKill(ctx, c, k)
	}
	targets, err := query(ctx, r, k.Layout.Job, look)
	if err != nil {
		return err
	}
	var have []string
	for _, t := range targets {
		if !t.Java && t.Listener == "" {
			have = append(have, tree.RunID(k.Layout.Job, t.Fire, t.Item))
		}
	}
	return &noTargetError{fmt.Sprintf("run %s is not running", run), have}
}

// killWait is a kill on its way.
type killWait struct {
	job     string
	layout  tree.Layout
	targets []operate.KillTarget
	endings []operate.Ending // of targets
}

// wait reads the endings whenever a host's list of runs has changed, until all that can end have ended, or the
// time is up. It follows runs that other hosts take over.
func (w *killWait) wait(ctx context.Context, r *Registry, limit time.Duration, progress func(*Kills)) error {
	c := r.center()
	if c == nil {
		return engine.ErrNotLive
	}
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		watch := operate.KillWatch(w.layout, w.targets)
		if len(watch) == 0 {
			return nil // all on hosts that cannot be asked
		}
		done, err := w.follow(ctx, waiting, r, c, watch, progress)
		if done || err != nil {
			return err
		}
	}
}

// follow looks whenever one of the watched lists has changed. done is false if other lists
// are to be watched from now on.
func (w *killWait) follow(ctx, waiting context.Context, r *Registry, c registry.Center, watch []registry.Query, progress func(*Kills)) (done bool, err error) {
	watching, end := context.WithCancel(waiting)
	defer end()
	changes, err := c.Watch(watching, watch...)
	if err != nil {
		return false, fmt.Errorf("job %q: %w", w.job, err)
	}
	for {
		select {
		case s, ok := <-changes:
			switch {
			case !ok && waiting.Err() != nil && ctx.Err() == nil:
				return true, nil // the time is over
			case !ok:
				return false, errors.Join(ctx.Err(), engine.ErrNotLive)
			}
			open, err := w.look(ctx, r, s)
			if err != nil {
				return false, err
			}
			progress(w.kills())
			if open == 0 {
				return true, nil
			}
			if !slices.Equal(watch, operate.KillWatch(w.layout, w.targets)) {
				return false, nil
			}
		case <-waiting.Done():
			return true, ctx.Err()
		}
	}
}

// look reads how those have ended that are in no list any more. It returns how
// many have not, apart from those whose hosts cannot be asked.
func (w *killWait) look(ctx context.Context, r *Registry, s registry.Snapshot) (open int, err error) {
	var left []operate.KillTarget
	var at []int
	for n, t := range w.targets {
		if w.endings[n].Open && !t.Java && !t.Older {
			left, at = append(left, t), append(at, n)
		}
	}
	gone := operate.Unlisted(w.layout, s, left)
	var ended []operate.KillTarget
	for _, k := range gone {
		ended = append(ended, left[k])
	}
	var endings []operate.Ending
	if len(ended) > 0 {
		var err error
		endings, err = query(ctx, r, w.job, func(ctx context.Context, c registry.Center, l tree.Layout) ([]operate.Ending, error) {
			return operate.ReadEndings(ctx, c, l, ended)
		})
		if err != nil {
			return 0, err
		}
	}
	for i, k := range gone {
		w.endings[at[k]] = endings[i]
		if endings[i].Open {
			w.targets[at[k]] = endings[i].Now
		}
	}
	for _, k := range at {
		if w.endings[k].Open {
			open++
		}
	}
	return open, nil
}

func (w *killWait) kills() *Kills {
	out := &Kills{Job: w.job, Runs: []Kill{}}
	for n, t := range w.targets {
		e := w.endings[n]
		k := Kill{Item: t.Item, Listener: t.Listener, Host: t.Host, Fence: t.Fence, State: KillAsked, Outcome: e.Outcome, Reason: e.Reason}
		if !t.Java {
			k.RunID = tree.RunID(w.job, t.Fire, t.Item)
		}
		switch {
		case t.Java:
			k.State = KillJava
		case !e.Open:
			k.State = KillEnded
		case t.Older:
			k.State = KillOlder
		case t.Gone:
			k.State = KillGone
		}
		out.Runs = append(out.Runs, k)
	}
	return out
}

// Release lets items run again that were held back because hosts died in their
// runs: one, or with -1 all. It returns those that were.
func (r *Registry) Release(ctx context.Context, job string, item int) (tree.Items, error) {
	now, err := query(ctx, r, job, coordination.RegistryTime)
	if err != nil {
		return nil, err
	}
	out, err := changed(ctx, r, job, changelog.Record{What: operation.Release.String(), Item: oneItem(item)}, func(ctx context.Context, c registry.Center, l tree.Layout) (operate.Released, error) {
		return operate.Release(ctx, c, l, item, now)
	})
	if err == nil && out.Missing {
		err = r.hasItem(ctx, job, item)
	}
	return out.Items, err
}

// Purging describes in the record of a removal what is removed with the job's records, including how many
// triggers have not begun: there may be no host to report them.
func (r *Registry) Purging(ctx context.Context, job string) string {
	w, err := r.Triggers(ctx, job)
	if err != nil || w == nil { // the removal says what is wrong
		return Purged
	}
	n := w.Length
	if w.First != nil {
		n++
	}
	return Purged + ", and " + words.Count(n, "trigger") + " that had not begun"
}

// Remove takes the job out of the registry; purge forgets its offsets and
// records too.
func (r *Registry) Remove(ctx context.Context, job string, purge bool) error {
	change := changelog.Record{What: operation.Remove.String()}
	if purge {
		change.After = r.Purging(ctx, job)
	}
	return r.change(ctx, job, change, func(ctx context.Context, c registry.Center, l tree.Layout) error {
		return operate.Remove(ctx, c, l, r.said(), purge)
	})
}

// BadRequestError says which part of a request is wrong. Where is its place, such as query.grace or
// body.offset.
type BadRequestError struct{ Where, Problem string }

func (e *BadRequestError) Error() string { return e.Problem }

// ErrNoTarget says that what was to be operated is not there.
var ErrNoTarget = errors.New("no such target")

// noTargetError: the target does not exist, and these do.
type noTargetError struct {
	what string
	have []string
}

// Is makes it an ErrNoTarget.
func (e *noTargetError) Is(target error) bool { return target == ErrNoTarget }

func (e *noTargetError) Error() string {
	const most = 20
	have := e.have
	switch {
	case len(have) == 0:
		return e.what + "; there is none"
	case len(have) > most:
		return fmt.Sprintf("%s; there are %d, such as %s", e.what, len(have), strings.Join(have[:most], ", "))
	}
	return e.what + "; there is " + strings.Join(have, ", ")
}

func sortedKeys[T any](set map[string]T) []string {
	var list []string
	for k := range set {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// Brief is a job in a line, as the registry has it.
type Brief struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Cron        string `json:"cron"`
	TimeZone    string `json:"timeZone,omitempty"`
	// Terms are the settings besides cron and zone that determine the schedule, for programs of this project;
	// empty for none.
	Terms string `json:"terms,omitempty"`
	// Labels are those of the job's definition, by name.
	Labels             labels.Set `json:"labels,omitempty"`
	ShardingTotalCount int        `json:"shardingTotalCount"`
	// Held counts the items that are held back.
	Held int `json:"held,omitempty"`
	// Status is OK, DISABLED, CRASHED (no instance), SHARDING_FLAG, or 1.x for a job of
	// that version.
	Status string `json:"status"`
	// Instances counts all instances, Java those that are hosts of ElasticJob.
	Instances int    `json:"instances"`
	Java      int    `json:"java,omitempty"`
	Leader    string `json:"leader,omitempty"`
	// LastOutcome is the worst outcome of the newest fire's items, LastEnded when
	// the last of them ended.
	LastOutcome string    `json:"lastOutcome,omitempty"`
	LastEnded   time.Time `json:"lastEnded,omitzero"`
	// LastReason is the reason of an item with that outcome, if it failed.
	LastReason string `json:"lastReason,omitempty"`
	// Error says why the configuration cannot be read.
	Error string `json:"error,omitempty"`
}

// Shards is a job, item by item and instance by instance, as the registry has
// it.
type Shards struct {
	Job      string `json:"job"`
	Cron     string `json:"cron"`
	TimeZone string `json:"timeZone,omitempty"`
	// Terms are the settings besides cron and zone that determine the schedule, for programs of this project;
	// empty for none.
	Terms string `json:"terms,omitempty"`
	// Labels are those of the job's definition, by name.
	Labels             labels.Set `json:"labels,omitempty"`
	ShardingTotalCount int        `json:"shardingTotalCount"`
	Leader             string     `json:"leader,omitempty"`
	// Sharding is set while a resharding is due.
	Sharding bool `json:"sharding,omitempty"`
	// Digests are the modules that instances run for the job, ascending: more
	// than one while a new version is being rolled out.
	Digests   []string   `json:"digests"`
	Instances []Instance `json:"instances"` // the instances of the job, by id
	Items     []Shard    `json:"items"`     // its sharding items, by number
	// DisabledServers are disabled for the job, ascending, whether an instance is on them or not.
	DisabledServers []string `json:"disabledServers,omitempty"`
	// Triggers are those that have not begun; missing if there are none.
	Triggers *Triggers `json:"triggers,omitempty"`
	// Said is who has disabled them, as far as the registry says it.
	Said []ServersSaid `json:"said,omitempty"`
	// LastOutcome is the worst outcome of the newest fire's items, LastEnded when the last of them ended,
	// LastReason the reason of an item with that outcome, if it failed.
	LastOutcome string    `json:"lastOutcome,omitempty"`
	LastEnded   time.Time `json:"lastEnded,omitzero"`
	LastReason  string    `json:"lastReason,omitempty"`
}

// ServersSaid is who has disabled servers for a job.
type ServersSaid struct {
	// Servers are those that are disabled by it.
	Servers []string `json:"servers"`
	engine.Said
}

// serversSaid returns who has disabled servers, single servers first.
func serversSaid(ips []string, w tree.Words) (list []ServersSaid) {
	for _, ip := range ips {
		word, _ := w.Of(ip)
		said := engine.SaidBy(word)
		if said == nil || !word.Off {
			continue
		}
		if at := slices.IndexFunc(list, func(s ServersSaid) bool { return s.Said == *said }); at >= 0 {
			list[at].Servers = append(list[at].Servers, ip)
		} else {
			list = append(list, ServersSaid{[]string{ip}, *said})
		}
	}
	return list
}

// numbers are those of the items.
func (s *Shards) numbers() tree.Items {
	list := make(tree.Items, len(s.Items))
	for n, i := range s.Items {
		list[n] = i.Item
	}
	return list
}

// Instance is one instance of a job.
type Instance struct {
	ID     string `json:"id"`
	Server string `json:"server"`
	// State is READY, RUNNING, DRAINING or, of one that died and whose items
	// are not settled yet, GONE. Of a host of ElasticJob it is JAVA.
	State    string `json:"state"`
	Gone     bool   `json:"gone,omitempty"`
	Java     bool   `json:"java,omitempty"`     // it is a host of ElasticJob
	Disabled bool   `json:"disabled,omitempty"` // an operator keeps its server from running the job
	Leader   bool   `json:"leader,omitempty"`
	Digest   string `json:"digest,omitempty"`
	TimeZone string `json:"timeZone,omitempty"`
	Admin    string `json:"admin,omitempty"`
	// Items are the items that it owns, Running those that it has begun and not completed, Queued those of them
	// that wait for a slot; as ranges: "0-3,7". Running excludes Queued. The registry alone does not know
	// Queued.
	Items     string    `json:"items"`
	Running   string    `json:"running,omitempty"`
	Queued    string    `json:"queued,omitempty"`
	Begun     time.Time `json:"begun,omitzero"`
	Completed time.Time `json:"completed,omitzero"`
}

// ShardQueued is the state of an item that has begun and waits for a slot.
const ShardQueued = "QUEUED"

// Shard is one sharding item.
type Shard struct {
	Item      int    `json:"item"`
	Parameter string `json:"parameter,omitempty"`
	Owner     string `json:"owner,omitempty"`
	// State is PENDING, RUNNING, QUEUED, DISABLED, FAILOVER, HELD or SHARDING_FLAG. The registry alone does not know
	// QUEUED, an item that has begun and waits for a slot of its host: it says RUNNING.
	State    string `json:"state"`
	Disabled bool   `json:"disabled,omitempty"`
	// Said is who has disabled it, if the registry says so.
	Said     *engine.Said `json:"said,omitempty"`
	Misfired bool         `json:"misfired,omitempty"`
	// Unreadable says why the registry does not permit to read something of the item.
	Unreadable string `json:"unreadable,omitempty"`
	Failover   bool   `json:"failover,omitempty"`
	// Moves is set if it goes to its new owner when it is completed.
	Moves bool `json:"moves,omitempty"`
	// MovesSince is when the items were last sharded, if it moves.
	MovesSince time.Time `json:"movesSince,omitzero"`
	RunningOn  string    `json:"runningOn,omitempty"`
	Fence      int64     `json:"fence,omitempty"`
	// Begun is when its newest run began, on whatever host.
	Begun   time.Time `json:"begun,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Source  string    `json:"source,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	// Reason says why, where the outcome alone does not: who killed it, or the
	// first line of what a run that failed said.
	Reason string `json:"reason,omitempty"`
	// Deaths counts the hosts in a row that died in its runs, Died names the
	// newest. Held is since when the item is held back for that.
	Deaths int       `json:"deaths,omitempty"`
	Died   []string  `json:"died,omitempty"`
	Held   time.Time `json:"held,omitzero"`
	// NotBefore is before when the item does not begin, because its guest asked to be run again then; missing if that is not so.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

// Queue marks the begun items that wait for a slot. runs are the fences of those runs, by item, as their hosts
// report them: a run that has ended since is left out.
func (s *Shards) Queue(runs map[int]int64) {
	waits, waiting := make(map[int]bool), make(map[string]tree.Items) // by instance
	for n := range s.Items {
		i := &s.Items[n]
		if fence, ok := runs[i.Item]; ok && fence == i.Fence && i.State == string(inspect.ShardRunning) {
			i.State, waits[i.Item] = ShardQueued, true
			waiting[i.RunningOn] = append(waiting[i.RunningOn], i.Item)
		}
	}
	for n := range s.Instances {
		i := &s.Instances[n]
		begun, err := tree.ParseItems(i.Running)
		if len(waiting[i.ID]) == 0 || err != nil {
			continue
		}
		begun = slices.DeleteFunc(begun, func(item int) bool { return waits[item] })
		i.Running, i.Queued = begun.String(), waiting[i.ID].String()
	}
}

func newShards(s *inspect.Shards) *Shards {
	c := s.Configuration
	out := &Shards{
		Job: s.Job, Cron: c.Cron, TimeZone: c.TimeZone, Terms: c.Terms(), Labels: c.Labels(), ShardingTotalCount: c.ShardingTotalCount, Leader: s.Leader,
		Sharding: s.Sharding, Digests: []string{}, Instances: []Instance{}, Items: []Shard{}, DisabledServers: s.DisabledServers,
		Said: serversSaid(s.DisabledServers, s.Words),
	}
	java := make(map[string]bool)
	digests := make(map[string]bool)
	for _, i := range s.Instances {
		state := i.State
		switch {
		case i.Gone:
			state = "GONE"
		case i.Java:
			state, java[i.ID] = "JAVA", true
		case i.Detail.Digest != "":
			digests[i.Detail.Digest] = true
		}
		out.Instances = append(out.Instances, Instance{
			ID: i.ID, Server: i.ServerIP, State: state, Gone: i.Gone, Java: i.Java, Disabled: i.Disabled, Leader: i.ID == s.Leader,
			Digest: i.Detail.Digest, TimeZone: i.Detail.TimeZone, Admin: i.Detail.Admin, Items: i.Items.String(), Running: i.Runs.String(),
			Begun: i.Begun, Completed: i.Completed,
		})
	}
	if len(digests) > 0 {
		out.Digests = sortedKeys(digests)
	}
	at := func(ms int64) time.Time {
		if ms == 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
	now := time.Now().UnixMilli()
	records := make(map[int]tree.Record)
	for _, i := range s.Items {
		if java[i.RunningOn] || (i.RunningOn == "" && java[i.Owner]) {
			// What is recorded is of a run before: Java hosts keep no record.
			i.Record.Begun, i.Record.Ended, i.Record.Source, i.Record.Outcome, i.Record.Reason, i.Record.Again = 0, 0, "", "", "", 0
		}
		records[i.Item] = i.Record
		out.Items = append(out.Items, Shard{
			Item: i.Item, Parameter: i.Parameter, Owner: i.Owner, State: string(i.State), Disabled: i.Disabled, Said: engine.SaidBy(i.Said), Misfired: i.Misfired, Unreadable: i.Unreadable,
			Failover: i.Failover, Moves: i.Moves, RunningOn: i.RunningOn, Fence: i.Fence,
			Begun: at(i.Record.Begun), Ended: at(i.Record.Ended), Source: i.Record.Source, Outcome: i.Record.LastOutcome(), Reason: i.Record.Reason, NotBefore: at(i.Record.NotBefore(now)),
			Deaths: i.Record.Deaths, Died: strings.Fields(i.Record.Died), Held: at(i.Record.Held),
		})
	}
	if fire, ok := inspect.NewestFire(records); ok {
		out.LastOutcome, out.LastReason, out.LastEnded = fire.Outcome, fire.Reason, fire.Ended
	}
	return out
}
