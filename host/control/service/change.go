package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Reason is what people give as the reason of a change, at most event.MaxReason bytes.
type Reason = string

// change carries out an operation, and records it, even if it failed. The catalogue says who may, and what the
// record calls it; do may complete the record.
func (s *Service) change(ctx context.Context, o operation.Operation, c *history.Change, do func() error) error {
	c.What = o.String()
	return s.changeAs(ctx, o.May(), c, do)
}

// changeAs is change for what needs another action than the operation does for the most part.
func (s *Service) changeAs(ctx context.Context, a operation.Action, c *history.Change, do func() error) error {
	if err := s.begin(ctx, c, auth.Require(ctx, a, c.Job)); err != nil {
		return err
	}
	err := do()
	if errors.Is(err, errUnchanged) {
		s.logger(c).Info("nothing was to be changed")
		return nil
	}
	s.end(c, err)
	return err
}

// errUnchanged says that a change had nothing to do: it is not recorded, so that a paused job still shows who
// first paused it.
var errUnchanged = errors.New("nothing was to be changed")

// switched returns the error of an operation that may have nothing to do: an enable, a disable, a release.
func switched(did bool, err error) error {
	if err == nil && !did {
		return errUnchanged
	}
	return err
}

// begin begins the record of a change. refused, which it returns, says why the principal may not make it; then
// the record is complete. The log and the history get about 10 refusals a minute of a principal, and the number
// of the others: more would push out the records of changes that took effect.
func (s *Service) begin(ctx context.Context, c *history.Change, refused error) error {
	by := auth.Change(ctx, c.What, c.Job)
	c.Time, c.Who, c.From, c.Why = by.Time, by.Who, by.From, event.Reason(c.Why)
	if refused == nil {
		return nil
	}
	// The request was not checked: it can have any length.
	c.Job, c.Host, c.After = event.Reason(c.Job), event.Reason(c.Host), event.Reason(c.After)
	c.Error = event.Reason(refused.Error())
	ok, left := s.refusals.Take(c.Who)
	if !ok {
		return refused
	}
	s.logger(c).Warn("operation refused", zap.Error(refused), zap.Int("moreSinceLast", left))
	if left > 0 {
		c.Error += fmt.Sprintf("; %d more were refused since the last record", left)
	}
	if known(ctx) == nil {
		s.o.Store.AddChange(*c)
	}
	return refused
}

// end records a change.
func (s *Service) end(c *history.Change, err error) {
	if err != nil {
		c.Error = event.Reason(err.Error())
		s.logger(c).Warn("operation failed", zap.Error(err))
	} else {
		s.logger(c).Info("operation done", zap.String("after", c.After), zap.String("reason", c.Why))
	}
	s.o.Cluster.Note(*c)
	s.o.Store.AddChange(*c)
}

func (s *Service) logger(c *history.Change) *zap.Logger {
	return s.o.Logger.With(zap.String("operation", c.What), zap.String("job", c.Job), zap.String("by", c.Who))
}

// Trigger has a job fire now. The record says which items are asked for, and how the
// parameter begins; all of its text is in the events of the fire. It returns the number of the trigger round.
func (s *Service) Trigger(ctx context.Context, job string, args tree.TriggerArgs, why Reason) (done admin.Triggered, err error) {
	c := &history.Change{Job: job, After: args.Record(), Why: why}
	err = s.change(ctx, operation.Trigger, c, func() (err error) {
		pending := s.o.Pending()
		for _, c := range pending.Compiling {
			if slices.Contains(c.Jobs, job) {
				return &BusyError{fmt.Sprintf("job %q: its module is still being compiled; try again in a moment", job)}
			}
		}
		if s.o.Host.Status().State == engine.HostDraining {
			return fmt.Errorf("job %q: %w", job, engine.ErrDraining)
		}
		done, err = s.o.Registry.TriggerWith(ctx, job, args)
		c.Trigger = max(done.Trigger, done.Queued)
		return s.explained(ctx, job, err)
	})
	return done, err
}

// BusyError says that the request may succeed in a moment.
type BusyError struct{ What string }

func (e *BusyError) Error() string { return e.What }

// Switch is an enable or a disable.
type Switch struct {
	Enable bool
	// Until is when a disable ends by itself, as times.Instant reads it; empty: never. A time without a zone is one of Zone, which is this
	// host's if it is nil.
	Until string
	Zone  *time.Location
	Why   Reason
}

// operation is the row of the catalogue.
func (w Switch) operation() operation.Operation { return operation.Switch(w.Enable) }

// change is its record, and until when it lasts.
func (w Switch) change(job string) (c *history.Change, until time.Time, err error) {
	c = &history.Change{What: w.operation().String(), Job: job, Why: w.Why}
	if w.Until == "" {
		return c, until, nil
	}
	now := time.Now()
	if w.Zone != nil {
		now = now.In(w.Zone)
	}
	until, err = times.Instant(w.Until, now, times.Ahead)
	switch {
	case err != nil:
		return nil, until, &InputError{"query.until", err.Error()}
	case w.Enable:
		return nil, until, &InputError{"query.until", "found a time, and only a pause ends by itself"}
	case !until.After(now):
		return nil, until, &InputError{"query.until", fmt.Sprintf("found %s, expected a time that is to come", until.Format(time.RFC3339))}
	}
	c.After = admin.UntilText(until)
	return c, until, nil
}

// SetEnabled enables or disables a job on all its servers; job "" is all jobs, for who may operate all. Of all jobs the error
// is an *UnfinishedError if ctx was done before they were: the host goes on with them.
func (s *Service) SetEnabled(ctx context.Context, job string, w Switch) error {
	if job == "" {
		c, _, err := w.change("")
		if err != nil {
			return err
		}
		return s.each(ctx, c, func(ctx context.Context, name string) error { return s.setEnabled(ctx, name, w) })
	}
	s.saidOf(job)
	return s.setEnabled(ctx, job, w)
}

// setEnabled is SetEnabled for one job.
func (s *Service) setEnabled(ctx context.Context, job string, w Switch) error {
	c, until, err := w.change(job)
	if err != nil {
		return err
	}
	return s.change(ctx, w.operation(), c, func() error {
		did, err := s.o.Registry.For(c.Who, c.Why).Until(until).SetServers(ctx, job, w.Enable)
		return s.explained(ctx, job, switched(did, err))
	})
}

// SetServer enables or disables one server for a job; job "" is all jobs that know it.
func (s *Service) SetServer(ctx context.Context, job, server string, w Switch) error {
	c, until, err := w.change(job)
	if err != nil {
		return err
	}
	c.Host = server
	return s.change(ctx, w.operation(), c, func() error {
		did, err := s.o.Registry.For(c.Who, c.Why).Until(until).SetServer(ctx, job, server, w.Enable)
		return s.explained(ctx, job, switched(did, err))
	})
}

// SetItem enables or disables one item.
func (s *Service) SetItem(ctx context.Context, job string, item int, w Switch) error {
	c, until, err := w.change(job)
	if err != nil {
		return err
	}
	c.Item = &item
	return s.change(ctx, w.operation(), c, func() error {
		did, err := s.o.Registry.For(c.Who, c.Why).Until(until).SetItem(ctx, job, item, w.Enable)
		if did {
			s.o.Host.Look(job) // an owner here shows it before the item is due
		}
		return s.explained(ctx, job, switched(did, err))
	})
}

// Shutdown takes instances out of a job; see admin.Registry.Shutdown.
func (s *Service) Shutdown(ctx context.Context, job, server, instance string, why Reason) error {
	if job+server+instance == "" {
		return &InputError{"query", "found neither a job, a server nor an instance: a shutdown of all instances of all jobs is not offered"}
	}
	c := &history.Change{Job: job, Host: cmp.Or(instance, server), Why: why}
	return s.change(ctx, operation.Shutdown, c, func() error {
		return s.explained(ctx, job, s.o.Registry.For(c.Who, c.Why).Shutdown(ctx, job, server, instance))
	})
}

// Start makes this host join a job again that was shut down or removed.
func (s *Service) Start(ctx context.Context, job string, why Reason) error {
	c := &history.Change{Job: job, Why: why}
	return s.change(ctx, operation.Start, c, func() error {
		return s.explained(ctx, job, s.o.Host.Start(ctx, job, said(c)))
	})
}

// said is a change as what is wanted of a job has it.
func said(c *history.Change) tree.Word {
	return tree.Word{By: c.Who, Why: c.Why, Since: c.Time.UnixMilli()}
}

// StartOn lets hosts join again all jobs that an operator stopped there, as Shutdown of all jobs does: the
// hosts of a server, or the one with an instance. Removed jobs stay removed.
func (s *Service) StartOn(ctx context.Context, server, instance string, why Reason) (r *Restored, err error) {
	if server+instance == "" {
		return nil, &InputError{"query", "found neither a server nor an instance"}
	}
	c := &history.Change{Host: cmp.Or(instance, server), Why: why}
	err = s.change(ctx, operation.Start, c, func() error {
		s.o.Cluster.Expire()
		if err := s.o.Cluster.Refresh(ctx); err != nil {
			return err
		}
		var there, asked []cluster.Host
		for _, h := range s.o.Cluster.Hosts() {
			of := h.Report != nil && h.Report.Status.Instance == instance
			if (instance != "" && !of) || (server != "" && h.ServerIP != server) {
				continue
			}
			there = append(there, h)
			if h.Stopped+len(h.Draining) > 0 {
				asked = append(asked, h)
			}
		}
		if len(there) == 0 {
			return &NotFoundError{fmt.Sprintf("no host %s is known", cmp.Or(instance, server))}
		}
		if len(asked) == 0 {
			return &ConflictError{fmt.Sprintf("no job is stopped on %s, or not yet: 'wasmjob host list' shows when a shutdown takes effect", cmp.Or(instance, server))}
		}
		r = s.startOn(ctx, asked, "")
		c.After = r.text()
		return nil
	})
	return r, err
}

// StartHere lets this host join a job again, as Start does, for a peer that has checked the permission and
// records it. Job "" is all jobs that an operator stopped here.
func (s *Service) StartHere(ctx context.Context, job string) error {
	by := tree.Word{By: auth.From(ctx).String(), Since: time.Now().UnixMilli()}
	if job != "" {
		return s.o.Host.Start(ctx, job, by)
	}
	var problems words.Problems
	for _, j := range s.o.Host.Status().Jobs {
		if j.State != engine.JobStopped && j.State != engine.JobDraining {
			continue
		}
		if err := s.o.Host.Start(ctx, j.Name, by); !errors.Is(err, engine.ErrNoJob) { // else its files are gone
			problems.Add(err)
		}
	}
	return problems.Err()
}

// Restored is the result of a restore.
type Restored struct {
	// Hosts are those that join them again, Failed those that could not be asked, and why.
	Hosts  []string `json:"hosts"`
	Failed []string `json:"failed,omitempty"`
}

// text is what the record of it says.
func (r *Restored) text() string {
	text := words.Some(r.Hosts, ", ")
	if len(r.Failed) > 0 {
		text = strings.TrimPrefix(text+"; not "+words.Some(r.Failed, "; "), "; ")
	}
	return text
}

// Restore has all hosts join a job again that was removed or shut down on them.
func (s *Service) Restore(ctx context.Context, job string, why Reason) (r *Restored, err error) {
	c := &history.Change{Job: job, Why: why}
	err = s.change(ctx, operation.Restore, c, func() (err error) {
		s.o.Cluster.Expire()
		if err := s.o.Cluster.Refresh(ctx); err != nil {
			return err
		}
		on := s.o.Cluster.On(job)
		if len(on) == 0 {
			return s.explained(ctx, job, &NotFoundError{fmt.Sprintf("no host has a definition of job %q: put its files into the plugins directory%s", job, similar(ctx, s.o.Cluster, job))})
		}
		back, err := s.o.Registry.For(c.Who, c.Why).Restore(ctx, job)
		if err != nil && !errors.Is(err, engine.ErrNoJob) {
			return s.explained(ctx, job, err)
		}
		// Hosts of this version see it; those of the one before are asked.
		var asked []cluster.Host
		for _, h := range s.o.Cluster.Hosts() {
			if j := on[h.ID]; j != nil && (j.State == engine.JobRemoved || j.State == engine.JobStopped) {
				asked = append(asked, h)
			}
		}
		r = s.startOn(ctx, asked, job)
		c.After = r.text()
		if !back && len(r.Hosts) == 0 && len(r.Failed) == 0 {
			return &ConflictError{fmt.Sprintf("job %q is neither removed nor shut down on any host", job)}
		}
		return nil
	})
	return r, err
}

// startOn has hosts join a job again; see StartHere.
func (s *Service) startOn(ctx context.Context, asked []cluster.Host, job string) *Restored {
	ctx, cancel := context.WithTimeout(ctx, restorePatience)
	defer cancel()
	problems := make([]error, len(asked))
	var all sync.WaitGroup
	for i, h := range asked { // at once: one that hangs holds up no other
		switch {
		case h.Here:
			all.Go(func() { problems[i] = s.StartHere(ctx, job) })
		case h.Silent != "":
			problems[i] = errors.New(h.Silent)
		default:
			all.Go(func() { problems[i] = s.o.StartOn(ctx, h.Peer(), job) })
		}
	}
	all.Wait()
	r := &Restored{Hosts: []string{}}
	for i, h := range asked {
		if problems[i] != nil {
			r.Failed = append(r.Failed, h.Name+": "+problems[i].Error())
			continue
		}
		r.Hosts = append(r.Hosts, h.Name)
	}
	return r
}

// restorePatience is how long hosts have to answer that they join jobs again.
const restorePatience = 5 * time.Second

// ConflictError says that the operation conflicts with the present state.
type ConflictError struct{ What string }

func (e *ConflictError) Error() string { return e.What }

// Remove takes a job out of the registry; purge forgets its records too.
func (s *Service) Remove(ctx context.Context, job string, purge bool, why Reason) error {
	c, may := &history.Change{What: operation.Remove.String(), Job: job, Why: why}, operation.Remove.May()
	if purge {
		may = operation.Remove.Row().MayPurge
	}
	return s.changeAs(ctx, may, c, func() error {
		if purge {
			c.After = s.o.Registry.Purging(ctx, job)
		}
		return s.explained(ctx, job, s.o.Registry.For(c.Who, c.Why).Remove(ctx, job, purge))
	})
}

// Kill ends runs of a job; see admin.Registry.Kill. It is recorded with the runs when all hosts are asked,
// perhaps long before the runs have ended; not if there are none.
func (s *Service) Kill(ctx context.Context, job string, o admin.KillOptions, why Reason, progress func(*admin.Kills)) (kills *admin.Kills, err error) {
	c := &history.Change{What: operation.Kill.String(), Job: job, Host: o.Server, After: o.Run, Why: why}
	o.By = auth.From(ctx).String()
	if o.Item >= 0 {
		c.Item = &o.Item
	}
	if err := s.begin(ctx, c, auth.Require(ctx, operation.Kill.May(), job)); err != nil {
		return nil, err
	}
	asked := false
	kills, err = s.o.Registry.Kill(ctx, job, o, func(k *admin.Kills) {
		if !asked {
			asked = true
			if c.After = k.Asked(); c.After == "" {
				s.logger(c).Info("nothing was to be changed")
			} else {
				s.end(c, nil)
			}
		}
		endings(ctx, s, k)
		progress(k)
	})
	endings(ctx, s, kills)
	if err = s.explained(ctx, job, err); !asked {
		s.end(c, err)
	}
	return kills, err
}

// endings adds from the histories how runs ended whose records have been overwritten, because their items have
// begun again. A run that is not among the newest of its job stays without.
func endings(ctx context.Context, s *Service, k *admin.Kills) {
	lacks := func(r admin.Kill) bool { return r.State == admin.KillEnded && r.Outcome == "" && r.Listener == "" }
	if k == nil || !slices.ContainsFunc(k.Runs, lacks) {
		return
	}
	found, err := s.Runs(ctx, history.Filter{Jobs: []string{cluster.Literal(k.Job)}, Limit: history.MaxLimit})
	if err != nil {
		s.o.Logger.Warn("how runs that were killed have ended cannot be looked up", zap.String("job", k.Job), zap.Error(err))
		return
	}
	for n := range k.Runs {
		r := &k.Runs[n]
		at := slices.IndexFunc(found.Records, func(x history.Run) bool { return x.ID == r.RunID && x.Fence == r.Fence })
		if lacks(*r) && at >= 0 && found.Records[at].Outcome != history.Unknown {
			r.Outcome, r.Reason = string(found.Records[at].Outcome), words.FirstLine(found.Records[at].Message)
		}
	}
}

// Release lets items run again that were held back: one, or with -1 all.
func (s *Service) Release(ctx context.Context, job string, item int, why Reason) (items tree.Items, err error) {
	c := &history.Change{Job: job, Why: why}
	if item >= 0 {
		c.Item = &item
	}
	err = s.change(ctx, operation.Release, c, func() (err error) {
		if items, err = s.o.Registry.Release(ctx, job, item); err == nil {
			s.o.Host.Look(job) // an owner here reports the release
		}
		return s.explained(ctx, job, switched(len(items) > 0, err))
	})
	return items, err
}

// Kept is what items keep from run to run: one, or with -1 all.
func (s *Service) Kept(ctx context.Context, job string, item int) ([]admin.Kept, error) {
	if err := auth.Require(ctx, operation.View, job); err != nil {
		return nil, err
	}
	kept, err := s.o.Registry.Kept(ctx, job, item)
	return kept, s.explained(ctx, job, err)
}

// ChangeKept changes what an item keeps; see admin.Registry.ChangeKept.
func (s *Service) ChangeKept(ctx context.Context, job string, item int, change admin.KeptChange, why Reason) (kept *admin.Kept, err error) {
	c := &history.Change{Job: job, After: change.String(), Why: why}
	if item >= 0 {
		c.Item = &item
	}
	err = s.change(ctx, operation.ChangeKept, c, func() (err error) {
		kept, err = s.o.Registry.ChangeKept(ctx, job, item, change)
		return s.explained(ctx, job, err)
	})
	return kept, err
}

// Config is the configuration of a job in the registry. It is read now. Histories say who edited
// what differs from the definition file.
func (s *Service) Config(ctx context.Context, job string) (*admin.JobConfig, error) {
	if err := auth.Require(ctx, operation.View, job); err != nil {
		return nil, err
	}
	c, err := s.o.Registry.Config(ctx, job)
	if err != nil {
		return nil, s.explained(ctx, job, err)
	}
	_ = s.o.Cluster.Refresh(ctx) // without it, what was known last counts
	if j, _, _, ok := s.o.Cluster.Job(job); ok {
		c.File = j.File
		for setting, o := range c.Origins {
			if o.From == admin.FromFile {
				o.File = j.Inherited(setting)
				c.Origins[setting] = o
			}
		}
	}
	whoEdited(ctx, s, c)
	return c, nil
}

// whoEdited completes the origins of settings that somebody has edited. It asks no history if
// there are none.
func whoEdited(ctx context.Context, s *Service, c *admin.JobConfig) {
	unknown := slices.DeleteFunc(slices.Collect(maps.Keys(c.Origins)), func(setting string) bool { return c.Origins[setting].From != admin.FromRegistry })
	if len(unknown) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	edits := history.Filter{Jobs: []string{cluster.Literal(c.Job)}, What: []string{operation.Edit.String()}, Limit: history.MaxLimit}
	changes, err := filled(ctx, edits, s.Changes)
	if err != nil { // the configuration is known all the same
		changes.Silent = append(changes.Silent, err.Error())
	}
	for _, setting := range unknown {
		if e := editOf(changes.Records, setting, c.Settings[setting]); e != nil {
			c.Origins[setting] = admin.Origin{From: admin.FromEdit, Who: e.Who, Time: e.Time, Why: e.Why}
		} else {
			c.Silent = changes.Silent
		}
	}
}

// editOf is the newest edit of a setting, if it is the one that gave it its value.
func editOf(changes []history.Change, setting, now string) *history.Change {
	for n, c := range changes {
		var after map[string]string
		if c.Error != "" || json.Unmarshal([]byte(c.After), &after) != nil {
			continue
		}
		if value, has := after[setting]; has {
			if value != now && value != event.Cut(now, event.MaxReason) { // some records cut long values
				return nil // what changed it since is not on record
			}
			return &changes[n]
		}
	}
	return nil
}

// EditConfig edits it; a preview changes nothing. What changes nothing is not recorded.
func (s *Service) EditConfig(ctx context.Context, job string, e admin.Edit, why Reason) (edited *admin.Edited, err error) {
	do := func() (err error) {
		edited, err = s.o.Registry.EditConfig(ctx, job, e)
		return s.explained(ctx, job, err)
	}
	if e.Preview {
		if err := auth.Require(ctx, operation.Edit.May(), job); err != nil {
			return nil, err
		}
		err := do()
		return edited, err
	}
	c := &history.Change{What: admin.EditOf(e.Settings), Job: job, Why: why}
	if err := s.begin(ctx, c, auth.Require(ctx, operation.Edit.May(), job)); err != nil {
		return nil, err
	}
	if err = do(); err == nil {
		if edited.Unchanged() {
			return edited, nil
		}
		c.Before, c.After = changed(edited)
	}
	s.end(c, err)
	return edited, err
}

// PlanEdit says what an edit that was previewed does to the job within the next days; nil if unknown.
func (s *Service) PlanEdit(ctx context.Context, e *admin.Edited) *forecast.Edit {
	d := forecast.NewDurations(forecast.DefaultDuration, false)
	ctx, cancel := context.WithTimeout(ctx, reading)
	defer cancel()
	if runs, err := s.Runs(ctx, history.Filter{Jobs: []string{cluster.Literal(e.After.Job)}, Outcomes: []abi.Outcome{abi.OutcomeOK}, Limit: alert.UsualRuns}); err == nil {
		for _, run := range runs.Records {
			d.AddRun(run)
		}
		d.Missing(runs.Silent...)
	} else {
		d.Missing(err.Error())
	}
	planned, err := forecast.OfEdit(ctx, e, time.Now(), d)
	if err != nil {
		s.o.Logger.Warn("an edit cannot be planned", zap.String("job", e.After.Job), zap.Error(err))
		return nil
	}
	return planned
}

// changed are the settings that differ, before and after, as JSON.
func changed(e *admin.Edited) (before, after string) {
	old, now := make(map[string]string), make(map[string]string)
	for name, value := range e.After.Settings {
		if e.Before.Settings[name] != value {
			old[name], now[name] = e.Before.Settings[name], value
		}
	}
	return asJSON(old), asJSON(now)
}

func asJSON(v map[string]string) string {
	b, err := json.Marshal(v)
	if err != nil { // texts always marshal
		return ""
	}
	return string(b)
}

// explained adds what hosts know to the error about a job that the registry does not have.
func (s *Service) explained(ctx context.Context, job string, err error) error {
	if err == nil || job == "" || !errors.Is(err, engine.ErrNoJob) {
		return err
	}
	for _, c := range s.o.Pending().Compiling {
		if slices.Contains(c.Jobs, job) {
			return &BusyError{fmt.Sprintf("job %q: its module is still being compiled; try again in a moment", job)}
		}
	}
	st := s.o.Host.Status()
	if slices.ContainsFunc(st.Jobs, func(j *engine.JobStatus) bool { return j.Name == job }) {
		return fmt.Errorf("job %q: %w; '%s' brings it back", job, engine.ErrJobRemoved, words.Command("job restore", job))
	}
	for _, f := range st.Refused {
		if reasons := reasonsFor(f, job); len(reasons) > 0 {
			return fmt.Errorf("%w: %s is refused: %s", err, f.File, strings.Join(reasons, "; "))
		}
	}
	return fmt.Errorf("%w%s", err, similar(ctx, s.o.Cluster, job))
}

// similar suggests a job with a similar name that the principal may see; empty if there is none, or if the name
// is one of them.
func similar(ctx context.Context, c *cluster.Cluster, name string) string {
	_ = c.Refresh(ctx) // it may be the first question; what is known is better than nothing
	var names []string
	for _, j := range c.Jobs() {
		if j.Name == name {
			return ""
		}
		if seen(ctx, j.Name) {
			names = append(names, j.Name)
		}
	}
	return words.Suggest(name, names)
}

// reasonsFor are the reasons of a refused file that are about a job: those about it,
// and of the job's own file those that are about none.
func reasonsFor(f engine.Refusal, job string) []string {
	own := strings.TrimSuffix(f.File, path.Ext(f.File)) == job
	var reasons []string
	for i, reason := range f.Reasons {
		about := ""
		if i < len(f.Jobs) {
			about = f.Jobs[i]
		}
		if about == job || (about == "" && own) {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}
