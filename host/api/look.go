package api

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host"
	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/admin"
	"github.com/wasmjob/wasmjob/host/cluster"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/service"
)

// JobPath is the part of a path that names a job. (Parameters of embedded structs are found
// only if their types are exported.)
type JobPath struct {
	Job string `path:"job" doc:"the job's name"`
}

type jobsInput struct {
	Text    string   `query:"q" doc:"contained in the name or the description, regardless of case"`
	Jobs    []string `query:"job,explode" doc:"patterns of names, such as etl-*"`
	Health  []string `query:"health,explode" enum:"error,failing,late,paused,ok"`
	State   []string `query:"state,explode"`
	Outcome []string `query:"outcome,explode" doc:"of the last fire: OK, FAIL, …"`
	Host    string   `query:"host" doc:"the id of a host that has the job"`
	Sort    string   `query:"sort" doc:"name, next, last, health or duration; with - before it the last is first"`
	Limit   int      `query:"limit" minimum:"1" maximum:"1000" default:"50"`
	After   string   `query:"after" doc:"the next of the page before"`
}

func (in *jobsInput) filter() service.JobFilter {
	f := service.JobFilter{Text: in.Text, Jobs: in.Jobs, Host: in.Host, Sort: in.Sort, Limit: in.Limit, After: in.After}
	for _, h := range in.Health {
		f.Health = append(f.Health, cluster.Health(h))
	}
	for _, s := range in.State {
		f.State = append(f.State, host.JobState(s))
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
	Cron     string    `query:"cron" required:"true" maxLength:"1000"`
	TimeZone string    `query:"timeZone" maxLength:"100" doc:"empty is the zone of the host that answers"`
	From     time.Time `query:"from" doc:"now, if it is missing"`
	Limit    int       `query:"limit" minimum:"1" maximum:"1000" default:"10"`
}

type calendarInput struct {
	From time.Time `query:"from" doc:"now, if it is missing"`
	To   time.Time `query:"to" doc:"a day after from, if it is missing; at most 31"`
	Jobs []string  `query:"job,explode" doc:"patterns of names"`
}

// schedule are instants of a schedule.
type schedule struct {
	Next []time.Time `json:"next"`
}

func (a *API) looking() {
	s := a.o.Service
	look(a, "/v1/status", "getStatus", "look", "What this host does", func(ctx context.Context, in *statusInput) (admin.Report, error) {
		return a.o.Report(in.Full).For(access.From(ctx)), nil
	})
	look(a, "/v1/overview", "getOverview", "look", "What fails, what is late, what runs and what comes", func(ctx context.Context, _ *none) (*service.Overview, error) {
		return s.Overview(ctx)
	})
	look(a, "/v1/jobs", "listJobs", "look", "Jobs of all hosts", func(ctx context.Context, in *jobsInput) (*service.Jobs, error) {
		return s.Jobs(ctx, in.filter())
	})
	look(a, "/v1/jobs/{job}", "getJob", "look", "A job with its items and its hosts", func(ctx context.Context, in *JobPath) (*service.JobDetail, error) {
		return s.Job(ctx, in.Job)
	})
	look(a, "/v1/hosts", "listHosts", "look", "All hosts", func(ctx context.Context, _ *none) ([]cluster.Host, error) { return s.Hosts(ctx) })
	look(a, "/v1/modules", "listModules", "look", "All modules, and the files that hosts refused", func(ctx context.Context, _ *none) (*service.Modules, error) {
		return s.Modules(ctx)
	})
	look(a, "/v1/calendar", "getCalendar", "look", "What will fire", func(ctx context.Context, in *calendarInput) (*service.Calendar, error) {
		if in.From.IsZero() {
			in.From = time.Now()
		}
		if in.To.IsZero() {
			in.To = in.From.Add(24 * time.Hour)
		}
		return s.Calendar(ctx, in.From, in.To, in.Jobs)
	})
	look(a, "/v1/schedule", "trySchedule", "look", "When a schedule would fire", func(_ context.Context, in *scheduleInput) (schedule, error) {
		if in.From.IsZero() {
			in.From = time.Now()
		}
		next, err := admin.Next(in.Cron, in.TimeZone, in.From, in.Limit)
		return schedule{append([]time.Time{}, next...)}, placed("query.", err)
	})
	// What the registry has, read at each request.
	look(a, "/v1/registry/jobs", "listRegistryJobs", "look", "Jobs as the registry has them, also those without a host", func(ctx context.Context, _ *none) ([]admin.Brief, error) {
		return s.RegistryJobs(ctx)
	})
	look(a, "/v1/jobs/{job}/shards", "getShards", "look", "A job's items and instances as the registry has them", func(ctx context.Context, in *JobPath) (*admin.Shards, error) {
		return s.Shards(ctx, in.Job)
	})
	look(a, "/v1/jobs/{job}/kept", "getKept", "look", "Offsets and key/value state", func(ctx context.Context, in *ItemInput) ([]admin.Kept, error) {
		item, err := in.number()
		if err != nil {
			return nil, err
		}
		return s.Kept(ctx, in.Job, item)
	})
}

// historyInput is a filter; its fields only describe the query, which [cluster.ParseQuery] reads.
type historyInput struct {
	Job     []string `query:"job,explode" doc:"patterns of names, such as etl-*"`
	Host    string   `query:"host" doc:"an instance id"`
	Item    string   `query:"item" doc:"a sharding item"`
	Run     string   `query:"run" doc:"a run's id: job/instant/item"`
	Instant string   `query:"instant" doc:"the scheduled time of a fire"`
	Trigger string   `query:"trigger" doc:"the number of a trigger round"`
	Failed  string   `query:"failed" doc:"true: what ended and was not OK"`
	Outcome []string `query:"outcome,explode" doc:"OK, FAIL, RETRY, CANCELLED, TIMEOUT, TRAP, EXIT, ERROR, LOST or HELD"`
	Kind    []string `query:"kind,explode" doc:"kinds of events"`
	Level   string   `query:"level" doc:"the least level of a line"`
	Text    string   `query:"text" doc:"contained in a line or in a run's message, regardless of case"`
	From    string   `query:"from" doc:"a time, or how long ago: 90m"`
	To      string   `query:"to" doc:"a time, or how long ago; exclusive"`
	Limit   string   `query:"limit" doc:"1 to 1000, 50 if it is missing"`
	After   string   `query:"after" doc:"the next of the page before"`
	Oldest  string   `query:"oldest" doc:"true: the oldest first"`

	filter history.Filter
}

// Resolve implements [huma.Resolver].
func (in *historyInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return []error{&huma.ErrorDetail{Location: "query", Message: err.Error()}}
	}
	var problems []error
	if in.filter, err = cluster.ParseQuery(query); err != nil {
		for _, p := range parts(err) {
			problems = append(problems, p)
		}
	}
	return problems
}

// runInput names a run; its id has slashes, and is a parameter.
type runInput struct {
	ID string `query:"id" required:"true" doc:"the run's id: job/instant/item"`
}

func (a *API) histories() {
	s := a.o.Service
	look(a, "/v1/fires", "listFires", "history", "Fires, the newest first", func(ctx context.Context, in *historyInput) (cluster.Found[history.Fire], error) {
		return s.Fires(ctx, in.filter)
	})
	look(a, "/v1/runs", "listRuns", "history", "Runs of items, the newest first", func(ctx context.Context, in *historyInput) (cluster.Found[history.Run], error) {
		return s.Runs(ctx, in.filter)
	})
	look(a, "/v1/run", "getRun", "history", "A run with its events and what its guest logged", func(ctx context.Context, in *runInput) (*service.RunDetail, error) {
		return s.Run(ctx, in.ID)
	})
	look(a, "/v1/events", "listEvents", "history", "What hosts reported, the newest first", func(ctx context.Context, in *historyInput) (cluster.Found[event.Event], error) {
		return s.Events(ctx, in.filter)
	})
	look(a, "/v1/logs", "listLines", "history", "What guests logged, the newest first", func(ctx context.Context, in *historyInput) (cluster.Found[history.Line], error) {
		return s.Lines(ctx, in.filter)
	})
	look(a, "/v1/audit", "listChanges", "history", "Who changed what, the newest first", func(ctx context.Context, in *historyInput) (cluster.Found[history.Change], error) {
		return s.Changes(ctx, in.filter)
	})
}
