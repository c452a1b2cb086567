package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/explain"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/times"
)

// JobPath is the part of a path that names a job. (Parameters of embedded structs are found
// only if their types are exported.)
type JobPath struct {
	Job string `path:"job" maxLength:"255" doc:"The job's name. What has a meaning in a path is escaped: %2F, %3F, %25."`
}

type jobsInput struct {
	Text    string   `query:"q" maxLength:"200" doc:"Only jobs whose name or description contains it, regardless of case."`
	Jobs    []string `query:"job,explode" maxItems:"100" doc:"Only jobs whose name matches one of these patterns, such as etl-*."`
	Labels  []string `query:"label,explode" maxItems:"20" doc:"Only jobs with these labels: conditions with commas between, team=billing, tier!=test, critical (it has the label), !critical; all have to hold."`
	Health  []string `query:"health,explode" enum:"error,failing,late,paused,ok" doc:"Only jobs of that health; several are alternatives."`
	State   []string `query:"state,explode" maxItems:"20" doc:"Only jobs in that state, such as running; several are alternatives."`
	Outcome []string `query:"outcome,explode" maxItems:"20" doc:"Only jobs whose last fire has that outcome, such as OK or FAIL; several are alternatives."`
	Host    string   `query:"host" maxLength:"200" doc:"Only jobs that this host has: its name or its id as in the list of hosts, its server's address, its process, or an instance's id."`
	Sort    string   `query:"sort" maxLength:"20" doc:"name, next, last, health or duration; with - before it the last is first. Equal ones are by name."`
	Limit   int      `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The most jobs of a page."`
	After   string   `query:"after" maxLength:"400" doc:"The next of the page before."`
}

func (in *jobsInput) filter() service.JobFilter {
	f := service.JobFilter{Text: in.Text, Jobs: in.Jobs, Labels: in.Labels, Host: in.Host, Sort: in.Sort, Limit: in.Limit, After: in.After}
	for _, h := range in.Health {
		f.Health = append(f.Health, cluster.Health(h))
	}
	for _, s := range in.State {
		f.State = append(f.State, engine.JobState(s))
	}
	for _, o := range in.Outcome {
		f.Outcome = append(f.Outcome, abi.Outcome(strings.ToUpper(o)))
	}
	return f
}

type statusInput struct {
	Full bool `query:"full" doc:"Read from the registry now which items are disabled, and what the other hosts of each job publish: two requests a job."`
}

type scheduleInput struct {
	Cron     string    `query:"cron" required:"true" maxLength:"1000" doc:"A cron expression, as a definition has it."`
	TimeZone string    `query:"timeZone" maxLength:"100" doc:"An IANA name, such as Europe/Berlin, or GMT+08:00; empty is the zone of the host that answers."`
	From     time.Time `query:"from" doc:"The instants after this time; now, if it is missing."`
	Limit    int       `query:"limit" minimum:"1" maximum:"1000" default:"10" doc:"How many instants."`
}

type calendarInput struct {
	From   time.Time `query:"from" doc:"The beginning; now, if it is missing or has been."`
	To     time.Time `query:"to" doc:"The end, exclusively; a day after from, if it is missing, and at most 31."`
	Jobs   []string  `query:"job,explode" maxItems:"100" doc:"Only jobs whose name matches one of these patterns."`
	Labels []string  `query:"label,explode" maxItems:"20" doc:"Only jobs with these labels: conditions as those of listJobs."`
}

type restartInput struct {
	Host string `query:"host" maxLength:"200" doc:"A host by its name or its id as in the list of hosts, or its server's address; the one that answers if it is missing."`
}

// schedule are instants of a schedule.
type schedule struct {
	Next []time.Time `json:"next" doc:"The next instants; none without a schedule, or if it never fires again."`
}

func (a *API) looking() {
	s := a.o.Service
	look(a, "/v1/status", "getStatus", "look", "What this host does", func(ctx context.Context, in *statusInput) (report.Report, error) {
		return a.o.Report(in.Full).For(auth.From(ctx)), nil
	}, a.large)
	look(a, "/v1/overview", "getOverview", "look", "What fails, what is late, what runs and what comes", func(ctx context.Context, _ *none) (*service.Overview, error) {
		return s.Overview(ctx)
	}, a.large)
	look(a, "/v1/jobs", "listJobs", "look", "Jobs of all hosts", func(ctx context.Context, in *jobsInput) (*service.Jobs, error) {
		return s.Jobs(ctx, in.filter())
	}, a.large)
	look(a, "/v1/jobs/{job}", "getJob", "look", "A job with its items and its hosts", func(ctx context.Context, in *JobPath) (*service.JobDetail, error) {
		return s.Job(ctx, in.Job)
	}, a.large)
	look(a, "/v1/hosts", "listHosts", "look", "All hosts", func(ctx context.Context, _ *none) ([]cluster.Host, error) { return s.Hosts(ctx) }, a.large)
	look(a, "/v1/hosts/gone", "listGoneHosts", "look", "Hosts that are gone", func(ctx context.Context, _ *none) ([]service.GoneHost, error) { return s.Gone(ctx) }, a.large)
	look(a, "/v1/hosts/restart", "getRestart", "look", "Whether a host may restart", func(ctx context.Context, in *restartInput) (*service.Restart, error) {
		return s.Restart(ctx, in.Host)
	}, answers(http.StatusNotFound), a.large)
	look(a, "/v1/modules", "listModules", "look", "All modules, and the files that hosts refused", func(ctx context.Context, _ *none) (*service.Modules, error) {
		return s.Modules(ctx)
	}, a.large)
	look(a, "/v1/calendar", "getCalendar", "look", "What will fire", func(ctx context.Context, in *calendarInput) (*service.Calendar, error) {
		if in.From.IsZero() {
			in.From = time.Now()
		}
		if in.To.IsZero() {
			in.To = in.From.Add(24 * time.Hour)
		}
		return s.Calendar(ctx, in.From, in.To, service.JobFilter{Jobs: in.Jobs, Labels: in.Labels})
	}, a.large)
	look(a, "/v1/schedule", "trySchedule", "look", "When a schedule would fire", func(_ context.Context, in *scheduleInput) (schedule, error) {
		if in.From.IsZero() {
			in.From = time.Now()
		}
		next, err := admin.Next(admin.Schedule{Cron: in.Cron, TimeZone: in.TimeZone}, in.From, in.Limit)
		return schedule{append([]time.Time{}, next...)}, placed("query.", err)
	})
	// What the registry has, read at each request.
	look(a, "/v1/registry/jobs", "listRegistryJobs", "look", "Jobs as the registry has them, also those without a host", func(ctx context.Context, _ *none) ([]admin.Brief, error) {
		return s.RegistryJobs(ctx)
	}, a.large)
	look(a, "/v1/limits", "listLimits", "look", "Who runs and who waits under the limits over the cluster", func(ctx context.Context, _ *none) (*admin.Limits, error) {
		return s.Limits(ctx)
	}, a.large)
	look(a, "/v1/jobs/{job}/shards", "getShards", "look", "A job's items and instances as the registry has them", func(ctx context.Context, in *JobPath) (*admin.Shards, error) {
		return s.Shards(ctx, in.Job)
	}, answers(http.StatusConflict), a.large)
	look(a, "/v1/jobs/{job}/kept", "getKept", "look", "Offsets and key/value state", func(ctx context.Context, in *ItemInput) ([]admin.Kept, error) {
		item, err := in.number()
		if err != nil {
			return nil, err
		}
		return s.Kept(ctx, in.Job, item)
	}, answers(http.StatusConflict), a.large)
}

// ListInput are the parameters of all lists of histories; its fields, except Limit, only describe the query,
// which [cluster.ParseQuery] reads. A list's further parameters are in its own input: other parameters are
// refused.
type ListInput struct {
	Job    []string `query:"job,explode" maxItems:"100" doc:"Only jobs whose name matches one of these patterns, such as etl-*."`
	Label  []string `query:"label,explode" maxItems:"20" doc:"Only what is of jobs that have these labels now: conditions as those of listJobs."`
	Host   string   `query:"host" maxLength:"200" doc:"Only what was on this host: its server's address, IP, its process, IP@-@PID, an instance's id, IP@-@PID-TOKEN, or a name or an id of the list of hosts."`
	Item   int      `query:"item" minimum:"0" maximum:"2147483647" doc:"Only this sharding item."`
	Text   string   `query:"text" maxLength:"1000" doc:"Only what contains it, regardless of case: lines, messages of runs, reasons of events, all texts of changes."`
	From   string   `query:"from" maxLength:"50" doc:"Only what is not earlier: a time, or how long ago, such as 90m or 7d."`
	To     string   `query:"to" maxLength:"50" doc:"Only what is earlier: a time, or how long ago."`
	Limit  int      `query:"limit" minimum:"1" maximum:"1000" default:"50" doc:"The most records of a page."`
	After  string   `query:"after" maxLength:"1000" doc:"The next of the page before."`
	Oldest bool     `query:"oldest" doc:"true: the oldest first."`

	filter history.Filter
}

// OfRun selects a run's records.
type OfRun struct {
	Run string `query:"run" maxLength:"400" doc:"Only this run: JOB/INSTANT/ITEM."`
}

// OfTrigger selects the records of a trigger.
type OfTrigger struct {
	Trigger int64 `query:"trigger" minimum:"0" doc:"Only the fire of this trigger round; of changes, who asked for it."`
}

// OfFailed selects failures.
type OfFailed struct {
	Failed bool `query:"failed" doc:"true: only what failed, or of which that is not known, and not what was stopped; of changes, what did not take effect."`
}

// OfFire selects fires by their result.
type OfFire struct {
	OfRun
	OfTrigger
	OfFailed
	Instant string   `query:"instant" maxLength:"50" doc:"Only the fire of this scheduled time."`
	Outcome []string `query:"outcome,explode" maxItems:"20" doc:"Only these outcomes: OK, FAIL, RETRY, CANCELLED, TIMEOUT, TRAP, EXIT, ERROR, WORKER, LOST, HELD."`
}

type runsInput struct {
	ListInput
	OfFire
	Running bool `query:"running" doc:"true: only runs and fires that have not ended, each with how long those of its job take (of the first 50 jobs)."`
}

type eventsInput struct {
	ListInput
	OfFire
	Kind []string `query:"kind,explode" maxItems:"50" doc:"Only these kinds of events, such as item.ended."`
}

type linesInput struct {
	ListInput
	OfRun
	Level int `query:"level" minimum:"-100" maximum:"100" doc:"Only lines of that level or above: -4 debug, 0 info, 4 warn, 8 error; 0 if it is missing."`
}

type changesInput struct {
	ListInput
	OfTrigger
	OfFailed
	Who  string   `query:"who" maxLength:"100" doc:"Only changes by a user whose name contains it, regardless of case."`
	What []string `query:"what,explode" maxItems:"50" doc:"Only changes of these operations, whole or by their first words: disable, edit, edit cron, sign in, sign (in and out). With ! before it, one is left out."`
}

// typed reports whether a list's parameter is a number or a flag: its mistakes were reported before Resolve is
// called, which reads it because 0 and missing differ.
func typed(location string) bool {
	switch strings.TrimPrefix(location, "query.") {
	case "item", "trigger", "level", "failed", "running", "oldest":
		return true
	}
	return false
}

// Resolve implements [huma.Resolver].
func (in *ListInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return []error{&huma.ErrorDetail{Location: "query", Message: err.Error()}}
	}
	var problems []error
	query.Del("limit") // which is read already
	if in.filter, err = cluster.ParseQuery(query); err != nil {
		for _, p := range parts(err) {
			if !typed(p.Location) {
				problems = append(problems, p)
			}
		}
	}
	in.filter.Limit = in.Limit
	return problems
}

// runInput names a run; its id has slashes, and is a parameter.
type runInput struct {
	ID string `query:"id" required:"true" maxLength:"400" doc:"The run's id: JOB/INSTANT/ITEM, or JOB/tROUND/ITEM of a trigger."`
}

type explainInput struct {
	JobPath
	At     time.Time `query:"at" doc:"The instant of the fire that is meant; of a trigger, the second in which a host saw it first. The newest fire that was due, if it is missing."`
	Before time.Time `query:"before" doc:"The newest fire at this time or before it, in place of at."`
	Run    string    `query:"run" maxLength:"400" doc:"A run by its id, in place of at and item: JOB/INSTANT/ITEM, or JOB/tROUND/ITEM of a trigger."`
	// Trigger is a text, since forms send what is empty.
	Trigger string `query:"trigger" maxLength:"20" doc:"The fire of this trigger round, in place of at."`
	Item    string `query:"item" maxLength:"10" doc:"Only this sharding item."`
	Wait    string `query:"wait" maxLength:"20" doc:"How long to wait for the end of the fire, over all items and hosts, such as 10s: 0s to 10s. The answer comes when no item is pending, running, elsewhere or unknown any more, or with what is known then; ask again. None if it is missing."`
	Accept  string `header:"Accept-Language" doc:"The language of the sentences: en or zh."`
}

// question is what is asked.
func (in *explainInput) question() (explain.Question, error) {
	q := explain.Question{Job: in.Job, At: in.At}
	switch {
	case in.Run != "":
		if !in.At.IsZero() || !in.Before.IsZero() || in.Item != "" || in.Trigger != "" {
			return q, &service.InputError{Where: "query.run", Problem: "found it beside at, before, trigger or item, expected one of them: a run has its instant and its item"}
		}
		return service.QuestionOfRun(in.Job, in.Run)
	case in.Trigger != "":
		if !in.At.IsZero() || !in.Before.IsZero() {
			return q, &service.InputError{Where: "query.trigger", Problem: "found it beside at or before, expected one of them: they mean different fires"}
		}
		n, err := strconv.ParseInt(in.Trigger, 10, 64)
		if err != nil || n <= 0 {
			return q, &service.InputError{Where: "query.trigger", Problem: fmt.Sprintf("found %q, expected the number of a trigger", in.Trigger)}
		}
		q.Trigger = n
	case !in.Before.IsZero() && !in.At.IsZero():
		return q, &service.InputError{Where: "query.before", Problem: "found it beside at, expected one of the two: they mean different fires"}
	case !in.Before.IsZero():
		q.At, q.Nearest = in.Before, true
	}
	if in.Item != "" {
		n, err := itemNumber("query.item", in.Item)
		if err != nil {
			return q, err
		}
		q.Item = &n
	}
	return q, nil
}

// mostWait is how long an answer may wait for the end of a fire. Together with the reading it is less than
// operationTimeout.
const mostWait = 10 * time.Second

// waitOf reads how long to wait.
func waitOf(text string) (wait time.Duration, err error) {
	if text == "" {
		return 0, nil
	}
	if wait, err = times.Duration(text); err == nil && (wait < 0 || wait > mostWait) {
		err = fmt.Errorf("found %q, expected a duration from 0s to %s", text, mostWait)
	}
	if err != nil {
		return 0, &service.InputError{Where: "query.wait", Problem: err.Error()}
	}
	return wait, nil
}

func (a *API) histories() {
	s := a.o.Service
	look(a, "/v1/jobs/{job}/explain", "explainFire", "history", "Why a fire was late, ran elsewhere, again, or not at all", func(ctx context.Context, in *explainInput) (*explain.Answer, error) {
		q, err := in.question()
		if err != nil {
			return nil, err
		}
		q.Language = i18n.Chosen("", in.Accept)
		wait, err := waitOf(in.Wait)
		if err != nil {
			return nil, err
		}
		return s.ExplainEnded(ctx, q, wait)
	})
	look(a, "/v1/fires", "listFires", "history", "Fires, the newest first", func(ctx context.Context, in *runsInput) (cluster.Found[history.Fire], error) {
		return s.Fires(ctx, in.filter)
	})
	look(a, "/v1/runs", "listRuns", "history", "Runs of items, the newest first", func(ctx context.Context, in *runsInput) (cluster.Found[history.Run], error) {
		return s.Runs(ctx, in.filter)
	})
	look(a, "/v1/run", "getRun", "history", "A run with its events and what its guest logged", func(ctx context.Context, in *runInput) (*service.RunDetail, error) {
		return s.Run(ctx, in.ID)
	}, answers(http.StatusNotFound))
	look(a, "/v1/events", "listEvents", "history", "What hosts reported, the newest first", func(ctx context.Context, in *eventsInput) (cluster.Found[event.Event], error) {
		return s.Events(ctx, in.filter)
	})
	look(a, "/v1/logs", "listLines", "history", "What guests logged, the newest first", func(ctx context.Context, in *linesInput) (cluster.Found[history.Line], error) {
		return s.Lines(ctx, in.filter)
	})
	look(a, "/v1/audit", "listChanges", "history", "Who changed what, the newest first", func(ctx context.Context, in *changesInput) (cluster.Found[history.Change], error) {
		return s.Changes(ctx, in.filter)
	})
}
