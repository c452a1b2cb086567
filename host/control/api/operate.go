package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/times"
)

// Why is the reason of a change, for the audit.
type Why struct {
	Reason string `query:"reason" maxLength:"1000" doc:"Why, for the record of the change."`
}

// Until says when a disable ends by itself.
type Until struct {
	Until string `query:"until" maxLength:"50" doc:"When it ends by itself: RFC 3339, or a duration from now such as 2h or 7d. Only of a disable; it lasts until it is enabled if this is missing."`
}

type switchAllInput struct {
	Why
	Until
}

type switchJobInput struct {
	JobPath
	Why
	Until
}

// JobInput names a job.
type JobInput struct {
	JobPath
	Why
}

// ItemInput names a job and perhaps an item.
type ItemInput struct {
	JobPath
	Item string `query:"item" maxLength:"10" doc:"One item; all if it is missing."`
}

// number is the item, -1 for none.
func (in *ItemInput) number() (int, error) {
	if in.Item == "" {
		return -1, nil
	}
	return itemNumber("query.item", in.Item)
}

func itemNumber(where, text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, &service.InputError{Where: where, Problem: fmt.Sprintf("found %q, expected a number from 0", text)}
	}
	return n, nil
}

type switchItemInput struct {
	JobPath
	Why
	Until
	Item string `path:"item" maxLength:"10" doc:"The number of a sharding item."`
}

type switchServerInput struct {
	JobPath
	Server string `path:"ip" maxLength:"100" doc:"The IP address of a server."`
	Why
	Until
}

type switchAllServerInput struct {
	Server string `path:"ip" maxLength:"100" doc:"The IP address of a server."`
	Why
	Until
}

// ShutdownInput names instances.
type ShutdownInput struct {
	Server   string `query:"server" maxLength:"100" doc:"All instances of the server with this IP address."`
	Instance string `query:"instance" maxLength:"200" doc:"The instance with this id."`
	Why
}

type jobShutdownInput struct {
	JobPath
	ShutdownInput
}

type removeInput struct {
	JobInput
	Purge bool `query:"purge" doc:"Remove its records and offsets, too."`
}

type triggerInput struct {
	JobInput
	Key string `header:"Idempotency-Key" maxLength:"200" doc:"A name of this request: one with the same name that is sent to the same host within a day triggers nothing more."`
	// A plain trigger has no body.
	Body *triggerBody
}

type triggerBody struct {
	Items     string         `json:"items,omitempty" maxLength:"4096" doc:"Only these items run: numbers and ranges, such as 0,3-5. All if it is missing."`
	Param     *string        `json:"param,omitempty" maxLength:"4096" doc:"The job's parameter in this fire, in place of the configured one; at most 4096 bytes."`
	At        time.Time      `json:"at,omitzero" doc:"The instant that the runs have, in place of the time of the trigger."`
	Arguments map[string]any `json:"arguments,omitempty" maxProperties:"50" doc:"The arguments of this fire, by name, of a job that declares some. Each is a value of its type, or a text of it. What is missing has its default."`
}

// args are the arguments of the trigger.
func (in *triggerInput) args() (tree.TriggerArgs, error) {
	if in.Body == nil {
		return tree.TriggerArgs{}, nil
	}
	args, err := in.named()
	if err != nil || in.Body.At.IsZero() {
		return args, err
	}
	return args.WithInstant(in.Body.At.UnixMilli())
}

// named are the arguments without the instant.
func (in *triggerInput) named() (tree.TriggerArgs, error) {
	if in.Body.Arguments == nil {
		return tree.NewTriggerArgs(in.Body.Items, in.Body.Param)
	}
	if in.Body.Param != nil {
		return tree.TriggerArgs{}, &tree.ArgError{Arg: "param", Problem: "found a parameter beside arguments, expected one of the two"}
	}
	text, err := json.Marshal(in.Body.Arguments)
	if err != nil {
		return tree.TriggerArgs{}, &tree.ArgError{Arg: "arguments", Problem: "found what is no JSON, expected an object of arguments"}
	}
	return tree.NewNamedArgs(in.Body.Items, string(text))
}

// BackfillRange is the range of a backfill that a question is about.
type BackfillRange struct {
	From    time.Time `query:"from" doc:"The first instant that may run; with to, the answer has what would run."`
	To      time.Time `query:"to" doc:"The last instant that may run; it has to be past."`
	Items   string    `query:"items" maxLength:"4096" doc:"Only these items would run."`
	Overlap string    `query:"overlap" maxLength:"20" doc:"queue_all or skip."`
}

type backfillsInput struct {
	JobPath
	BackfillRange
}

type backfillInput struct {
	JobInput
	Body struct {
		From    time.Time `json:"from" doc:"The first instant that may run; it counts."`
		To      time.Time `json:"to" doc:"The last instant that may run; it counts, and has to be past."`
		Items   string    `json:"items,omitempty" maxLength:"4096" doc:"Only these items run: numbers and ranges, such as 0,3-5. All if it is missing."`
		Every   int64     `json:"everySeconds,omitempty" minimum:"1" maximum:"86400" doc:"The least time between two instants, in seconds; 1 if it is missing."`
		Overlap string    `json:"overlap,omitempty" enum:"queue_all,skip" doc:"What becomes of an item that runs for something else when its turn comes: queue_all, it runs after that; skip, it leaves the instant out. queue_all if it is missing."`
	}
}

// releasedItems is the answer of release.
type releasedItems struct {
	Items tree.Items `json:"items" doc:"Those that were held back, as ranges: 0-3,7."`
}

type releaseInput struct {
	ItemInput
	Why
}

// maxChange bounds the body of a change: an offset and a state, which JSON may make six times as large.
const maxChange = 6 * (abi.MaxOffset + 2*abi.MaxValue)

type changeInput struct {
	ItemInput
	Why
	Body admin.KeptChange
}

type editInput struct {
	JobInput
	IfMatch string `header:"If-Match" maxLength:"24" doc:"The ETag of the configuration that the edit was made from, or * for whichever there is."`
	Preview bool   `query:"preview" doc:"Change nothing, and answer with what would be."`
	Body    struct {
		Settings map[string]string `json:"settings" maxProperties:"100" doc:"New values as texts, by the names of a definition file. An empty one takes the setting back to its default."`
	}
}

// tagged is an answer with the version of what it shows.
type tagged[T any] struct {
	ETag string `header:"ETag" doc:"The version of the configuration, for If-Match of an edit."`
	Body T
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

func (a *API) operating() {
	s := a.o.Service
	for _, enable := range []bool{true, false} {
		o := operation.Switch(enable)
		how := func(why Why, until Until) service.Switch {
			return service.Switch{Enable: enable, Until: until.Until, Why: why.Reason}
		}
		act(a, o, o.String()+"All", func(ctx context.Context, in *switchAllInput) error {
			return s.SetEnabled(ctx, "", how(in.Why, in.Until))
		})
		act(a, o, o.String()+"ServerForAll", func(ctx context.Context, in *switchAllServerInput) error {
			return s.SetServer(ctx, "", in.Server, how(in.Why, in.Until))
		})
		act(a, o, o.String()+"Job", func(ctx context.Context, in *switchJobInput) error {
			return s.SetEnabled(ctx, in.Job, how(in.Why, in.Until))
		})
		act(a, o, o.String()+"Server", func(ctx context.Context, in *switchServerInput) error {
			return s.SetServer(ctx, in.Job, in.Server, how(in.Why, in.Until))
		})
		act(a, o, o.String()+"Item", func(ctx context.Context, in *switchItemInput) error {
			n, err := itemNumber("path.item", in.Item)
			if err != nil {
				return err
			}
			return s.SetItem(ctx, in.Job, n, how(in.Why, in.Until))
		})
	}
	trigger := ofCatalogue(operation.Trigger, "triggerJob", answers(http.StatusConflict))
	register(a, trigger, func(ctx context.Context, in *triggerInput) (*body[admin.Triggered], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		args, err := in.args()
		if err != nil {
			return nil, problem(err)
		}
		once := key{auth.From(ctx).String(), in.Job, in.Key}
		done, err := a.keys.once(ctx, once, string(args.Data()), func() (admin.Triggered, error) {
			if in.Key != "" { // its sender may disconnect and send it again
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), operationTimeout)
				defer cancel()
			}
			return s.Trigger(ctx, in.Job, args, in.Reason)
		})
		if err != nil {
			return nil, problem(err)
		}
		return &body[admin.Triggered]{done}, nil
	})
	look(a, "/v1/jobs/{job}/backfill", "getBackfill", "look", "The backfills of a job, and what a range would run", func(ctx context.Context, in *backfillsInput) (*service.Backfills, error) {
		var of *service.Backfill
		if !in.From.IsZero() || !in.To.IsZero() {
			of = &service.Backfill{From: in.From, To: in.To, Items: in.Items, Overlap: in.Overlap}
		}
		all, err := s.Backfills(ctx, in.Job, of)
		return all, placed("query.", err)
	}, answers(http.StatusConflict))
	backfill := ofCatalogue(operation.Backfill, "startBackfill", answers(http.StatusConflict))
	register(a, backfill, func(ctx context.Context, in *backfillInput) (*body[*service.BackfillPlan], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		of := service.Backfill{From: in.Body.From, To: in.Body.To, Items: in.Body.Items, Every: time.Duration(in.Body.Every) * time.Second, Overlap: in.Body.Overlap}
		plan, err := s.StartBackfill(ctx, in.Job, of, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		return &body[*service.BackfillPlan]{plan}, nil
	})
	act(a, operation.Backfill, "cancelBackfill", func(ctx context.Context, in *JobInput) error {
		return s.CancelBackfill(ctx, in.Job, in.Reason)
	})
	act(a, operation.Start, "startJob", func(ctx context.Context, in *JobInput) error {
		return s.Start(ctx, in.Job, in.Reason)
	})
	act(a, operation.Shutdown, "shutdownInstances", func(ctx context.Context, in *ShutdownInput) error {
		return s.Shutdown(ctx, "", in.Server, in.Instance, in.Reason)
	}, answers(http.StatusNotFound))
	act(a, operation.Shutdown, "shutdownJob", func(ctx context.Context, in *jobShutdownInput) error {
		return s.Shutdown(ctx, in.Job, in.Server, in.Instance, in.Reason)
	})
	act(a, operation.Remove, "removeJob", func(ctx context.Context, in *removeInput) error {
		return s.Remove(ctx, in.Job, in.Purge, in.Reason)
	})
	start := ofCatalogue(operation.Start, "startInstances",
		answers(http.StatusNotFound), answers(http.StatusConflict))
	register(a, start, func(ctx context.Context, in *ShutdownInput) (*body[*service.Restored], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		r, err := s.StartOn(ctx, in.Server, in.Instance, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		return &body[*service.Restored]{r}, nil
	})
	a.configuring()
	a.keeping()
	a.killing()
}

// configuring has a job's configuration read and edited.
func (a *API) configuring() {
	s := a.o.Service
	read := looked("/v1/jobs/{job}/config", "getConfig", "look", "A job's configuration", answers(http.StatusConflict))
	register(a, read, func(ctx context.Context, in *JobPath) (*tagged[*admin.JobConfig], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		c, err := s.Config(ctx, in.Job)
		if err != nil {
			return nil, problem(err)
		}
		return &tagged[*admin.JobConfig]{etag(c.Version), c}, nil
	})
	edit := ofCatalogue(operation.Edit, "editConfig",
		answers(http.StatusConflict, http.StatusPreconditionRequired), func(o *huma.Operation) {
			now := a.huma.OpenAPI().Components.Schemas.Schema(typeOf[conflict](), true, "Conflict")
			o.Responses = map[string]*huma.Response{"412": {Description: "It was changed since the version that If-Match names.",
				Content: map[string]*huma.MediaType{"application/problem+json": {Schema: now}}}}
		})
	register(a, edit, func(ctx context.Context, in *editInput) (*tagged[*admin.Edited], error) {
		version, err := ifMatch(in.IfMatch)
		if err != nil {
			return nil, problem(err)
		}
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		e, err := s.EditConfig(ctx, in.Job, admin.Edit{Version: version, Settings: in.Body.Settings, Preview: in.Preview}, in.Reason)
		if err != nil {
			return nil, problem(placed("body.settings.", err))
		}
		return &tagged[*admin.Edited]{etag(e.After.Version), e}, nil
	})
}

// ifMatch is the version that an edit was made from; -1 for *.
func ifMatch(text string) (int64, error) {
	const expected = "expected the ETag of GET /v1/jobs/{job}/config, or * to edit whatever there is"
	switch text {
	case "*":
		return -1, nil
	case "":
		code := http.StatusPreconditionRequired
		return 0, &huma.ErrorModel{Status: code, Title: http.StatusText(code), Detail: "the request has no If-Match, " + expected}
	}
	n, err := strconv.ParseInt(strings.Trim(text, `"`), 10, 64)
	if err != nil || n < 0 {
		return 0, &service.InputError{Where: "header.If-Match",
			Problem: fmt.Sprintf("found %q, %s", text, expected)}
	}
	return n, nil
}

// keeping restores jobs, and changes what items keep.
func (a *API) keeping() {
	s := a.o.Service
	restore := ofCatalogue(operation.Restore, "restoreJob", answers(http.StatusConflict))
	register(a, restore, func(ctx context.Context, in *JobInput) (*body[*service.Restored], error) {
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		r, err := s.Restore(ctx, in.Job, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		return &body[*service.Restored]{r}, nil
	})
	release := ofCatalogue(operation.Release, "releaseItems", answers(http.StatusConflict))
	register(a, release, func(ctx context.Context, in *releaseInput) (*body[releasedItems], error) {
		item, err := in.number()
		if err != nil {
			return nil, problem(err)
		}
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		items, err := s.Release(ctx, in.Job, item, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		return &body[releasedItems]{releasedItems{items}}, nil
	})
	change := ofCatalogue(operation.ChangeKept, "changeKept",
		func(o *huma.Operation) { o.MaxBodyBytes, o.Errors = maxChange, append(o.Errors, http.StatusConflict) })
	register(a, change, func(ctx context.Context, in *changeInput) (*body[*admin.Kept], error) {
		item, err := in.number()
		if err != nil {
			return nil, problem(err)
		}
		ctx, cancel := context.WithTimeout(ctx, operationTimeout)
		defer cancel()
		k, err := s.ChangeKept(ctx, in.Job, item, in.Body, in.Reason)
		if err != nil {
			return nil, problem(err)
		}
		return &body[*admin.Kept]{k}, nil
	})
}

type killInput struct {
	JobPath
	Item   string `query:"item" maxLength:"10" doc:"Only this item."`
	Run    string `query:"run" maxLength:"400" doc:"Only the run with this id."`
	Server string `query:"server" maxLength:"100" doc:"Only what runs on the server with this IP address."`
	Grace  string `query:"grace" maxLength:"20" doc:"How long guests may go on after they were asked to end, such as 5s; they are stopped by force then. 0 to 24h."`
	Wait   string `query:"wait" maxLength:"20" doc:"How long the answer waits for the ends. 0 to 24h."`
	Why
}

func (in *killInput) options() (o admin.KillOptions, err error) {
	o = admin.KillOptions{Item: -1, Run: in.Run, Server: in.Server}
	if in.Item != "" {
		if o.Item, err = itemNumber("query.item", in.Item); err != nil {
			return o, err
		}
	}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
	}{{"grace", in.Grace, &o.Grace}, {"wait", in.Wait, &o.Wait}} {
		if d.text == "" {
			continue
		}
		if *d.into, err = times.Duration(d.text); err != nil {
			return o, &service.InputError{Where: "query." + d.name, Problem: err.Error()}
		}
	}
	return o, o.Check()
}

// KillLine is one line of the answer of a kill: the whole state, or an error that came
// after the first.
type KillLine struct {
	*admin.Kills
	Error string `json:"error,omitempty" doc:"Why no more is known; the last line then."`
}

// killing answers with one line when all hosts are asked, and one for each change until nothing runs any more,
// or the time is up.
func (a *API) killing() {
	line := a.huma.OpenAPI().Components.Schemas.Schema(typeOf[KillLine](), true, "KillLine")
	kill := ofCatalogue(operation.Kill, "killRuns", func(o *huma.Operation) {
		o.Responses = map[string]*huma.Response{"200": {Description: "One JSON object a line, each the whole state.", Content: map[string]*huma.MediaType{"application/x-ndjson": {Schema: line}}}}
		o.Errors = append(o.Errors, http.StatusConflict)
	})
	register(a, kill, func(ctx context.Context, in *killInput) (*huma.StreamResponse, error) {
		o, err := in.options()
		if err != nil {
			return nil, problem(err)
		}
		return &huma.StreamResponse{Body: func(c huma.Context) { a.kill(c, in, o) }}, nil
	})
}

func (a *API) kill(c huma.Context, in *killInput, o admin.KillOptions) {
	_, w := humago.Unwrap(c)
	limit := o.Wait + operationTimeout
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	ctx, end := a.until(ctx)
	defer end()
	conn := http.NewResponseController(w)
	deadline := time.Now().Add(limit + operationTimeout)
	_, _ = conn.SetReadDeadline(deadline), conn.SetWriteDeadline(deadline) // a connection without deadlines has none to reach
	begun := false
	say := func(line KillLine) {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		writeLine(w, line)
		_ = conn.Flush() // the client notices
	}
	kills, err := a.o.Service.Kill(ctx, in.Job, o, in.Reason, func(k *admin.Kills) { say(KillLine{Kills: k}) })
	var outdated *auth.Problem
	if err != nil && errors.As(context.Cause(ctx), &outdated) {
		kills, err = nil, outdated // it is not for them any more
	}
	switch {
	case err != nil && begun:
		say(KillLine{Kills: kills, Error: err.Error()})
	case err != nil:
		writeError(w, err)
	case !begun:
		say(KillLine{Kills: kills})
	}
}

// writeLine writes a value as a line of JSON.
func writeLine(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil { // values of ours always marshal
		return
	}
	_, _ = w.Write(append(b, '\n')) // an error of the connection is the client's to notice
}
