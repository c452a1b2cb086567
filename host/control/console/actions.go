package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// actionTimeout bounds what a form does; it is that of the API's operations.
const actionTimeout = 15 * time.Second

// actor carries out a form. It returns what was done, for people; also with an error, if a part was done.
// Empty: nothing was done.
type actor func(ctx context.Context, s *service.Service, r *http.Request, p *page) (done string, err error)

// act carries out a form, and goes back to a page that says what came of it.
func (c *Console) act(w http.ResponseWriter, r *http.Request, do actor) {
	ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
	defer cancel()
	p := c.newPage(ctx, r)
	if err := r.ParseForm(); err != nil {
		c.render(w, p, p.problem(r, &formError{"form", err.Error()}))
		return
	}
	done, err := do(ctx, c.o.Service, r, p)
	f := flash{"done", done, p.made}
	if err != nil {
		if kind := kindOf(err); done == "" && (kind.name == "forbidden" || kind.name == "input") {
			c.render(w, p, p.problem(r, err))
			return
		}
		c.o.Logger.Debug("a form failed", zap.String("path", r.URL.Path), zap.Error(err))
		f = flash{"failed", strings.TrimSpace(done + " " + err.Error()), ""}
	}
	setFlash(w, f)
	http.Redirect(w, r, local(r.PostForm.Get("back"), "/"), http.StatusSeeOther)
}

// act is a form of one button, with a reason.
type act struct {
	P *page
	// To is where it goes. Text says what it does.
	To, Label, Text string
	Fields          []field
	Danger          bool
	// Page: To is a page that asks for more before anything is done.
	Page bool
	// Confirm is what has to be typed first; empty for nothing. Purge: the reader may
	// remove the job's records, too.
	Confirm string
	Purge   bool
	// Args: a trigger may be for some items, or give a parameter. Until: it may end by itself.
	Args, Until bool
	// Arguments are those that the job declares: the form has a field for each.
	Arguments jobconfig.Arguments
}

type field struct{ Name, Value string }

// Key distinguishes an action's form from its neighbours: a form that a reader has opened stays the same action
// when others come or go on a live page.
func (a act) Key() string {
	key := a.To
	for _, f := range a.Fields {
		key += " " + f.Name + "=" + f.Value
	}
	return key
}

// act is the form of an action on something. The catalogue says what is on its button.
func (p *page) act(on, action, to string, fields ...field) act {
	button, _, _ := operation.ButtonOf(action)
	return act{P: p, To: to, Label: p.T("act." + action), Text: p.T("act."+action+".text", on), Fields: fields, Danger: button.Danger, Until: button.Until}
}

// mayAct reports whether the reader may carry out an action on a job, or with "" on all.
func (p *page) mayAct(action, job string) bool {
	_, o, known := operation.ButtonOf(action)
	return known && p.may(o.May(), job)
}

// jobActs are what the reader may do to a job as it is.
func (p *page) jobActs(j *cluster.Job) (acts []act) {
	offer := func(action string, as ...func(*act)) {
		if p.mayAct(action, j.Name) {
			a := p.act(j.Name, action, jobPath(j.Name, action))
			for _, change := range as {
				change(&a)
			}
			acts = append(acts, a)
		}
	}
	if j.State == engine.JobRemoved { // on all its hosts: nothing else can be done to it
		offer("restore")
		return acts
	}
	offer("trigger", func(a *act) { a.Args, a.Arguments = true, j.Arguments })
	if j.Health != cluster.HealthPaused {
		offer("pause")
	}
	if j.Health == cluster.HealthPaused || j.State == engine.JobDisabled {
		offer("resume")
	}
	if j.Running+j.Queued+j.Listening > 0 {
		offer("kill")
	}
	if j.Held > 0 {
		offer("release")
	}
	if j.Backfill != nil {
		offer("cancelBackfill")
	} else {
		offer("backfill", func(a *act) { a.Page = true })
	}
	if j.State == engine.JobStopped {
		offer("restore")
	}
	offer("remove", func(a *act) {
		a.Confirm, a.Purge = j.Name, p.may(operation.Remove.Row().MayPurge, j.Name)
	})
	return acts
}

// itemActs are what the reader may do to an item as it is.
func (p *page) itemActs(job string, item int, s *engine.ItemStatus) (acts []act) {
	offer := func(action string) {
		if p.mayAct("item."+action, job) {
			acts = append(acts, p.act(strconv.Itoa(item), "item."+action, jobPath(job, "items", strconv.Itoa(item), action)))
		}
	}
	if s.Disabled {
		offer("resume")
	} else {
		offer("pause")
	}
	if s.Begun() {
		offer("kill")
	}
	if !s.Held.IsZero() {
		offer("release")
	}
	return acts
}

// typed is a text as it was typed, or as the page had it: a browser sends each end of a line as two characters.
func typed(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// reasonOf is the reason that the form gives.
func reasonOf(r *http.Request) string { return strings.TrimSpace(r.PostForm.Get("reason")) }

// switchOf is the pause, or the end of one, that a form asks for.
func switchOf(r *http.Request, p *page, action string) service.Switch {
	w := service.Switch{Enable: action == "resume", Zone: p.Zone, Why: reasonOf(r)}
	if !w.Enable {
		w.Until = strings.TrimSpace(r.PostForm.Get("until"))
	}
	return w
}

// actOnJob does something to one job.
func actOnJob(ctx context.Context, s *service.Service, r *http.Request, p *page) (string, error) {
	job, why := r.PathValue("job"), reasonOf(r)
	var err error
	action := r.PathValue("action")
	switch action {
	case "trigger":
		return trigger(ctx, s, job, r, p)
	case "pause", "resume":
		err = s.SetEnabled(ctx, job, switchOf(r, p, action))
	case "kill":
		return kill(ctx, s, job, admin.KillOptions{Item: -1, Server: r.PostForm.Get("server"), Run: r.PostForm.Get("run")}, r, p)
	case "release":
		return release(ctx, s, job, -1, r, p)
	case "restore":
		return restore(ctx, s, job, why, p)
	case "backfill":
		return startBackfill(ctx, s, job, r, p)
	case "cancelBackfill":
		err = s.CancelBackfill(ctx, job, why)
	case "shutdown":
		err = s.Shutdown(ctx, job, r.PostForm.Get("server"), r.PostForm.Get("instance"), why)
	case "remove":
		if r.PostForm.Get("name") != job {
			return "", &formError{"name", p.T("remove.name", job, r.PostForm.Get("name"))}
		}
		err = s.Remove(ctx, job, r.PostForm.Get("purge") == "true", why)
	default:
		return "", &service.NotFoundError{What: p.T("problem.address", r.URL.Path)}
	}
	if err != nil {
		return "", err
	}
	return p.T("done."+action, job), nil
}

// trigger triggers a job with the items and the parameter of a form: the typed text, or the empty one if a box
// is ticked. Without either the job's own parameter is used.
func trigger(ctx context.Context, s *service.Service, job string, r *http.Request, p *page) (string, error) {
	var param *string
	text, empty := typed(r.PostForm.Get("param")), r.PostForm.Get("emptyParam") == "true"
	switch {
	case text != "" && empty:
		return "", &formError{"param", "found a parameter, and that it is to be empty; expected one of the two"}
	case text != "" || empty:
		param = &text
	}
	args, err := tree.NewTriggerArgs(r.PostForm.Get("items"), param)
	if named := namedArguments(r); named != nil {
		args, err = named.args(r.PostForm.Get("items"), param)
	}
	if err != nil {
		return "", err
	}
	done, err := s.Trigger(ctx, job, args, reasonOf(r))
	if err != nil {
		return "", err
	}
	if done.Queued != 0 {
		return p.T("done.trigger.queued", job, done.Ahead), nil
	}
	p.made = p.Triggered(job, done.Trigger)
	if done.Earlier != 0 {
		return p.T("done.trigger.both", job, done.Earlier, done.Trigger), nil
	}
	return p.T("done.trigger", job), nil
}

// argumentField begins the names of the form's fields for the job's arguments.
const argumentField = "arg."

// named are the texts of arguments, by name.
type named map[string]string

// namedArguments returns the arguments of a form; nil if it has no fields for them. An empty field sets a
// string argument to the empty text, and omits others.
func namedArguments(r *http.Request) named {
	var out named
	for name, values := range r.PostForm {
		name, is := strings.CutPrefix(name, argumentField)
		if !is || len(values) == 0 {
			continue
		}
		if out == nil {
			out = make(named)
		}
		name, isText := strings.CutPrefix(name, "text.")
		if text := typed(values[0]); text != "" || isText {
			out[name] = text
		}
	}
	return out
}

func (n named) args(items string, param *string) (tree.TriggerArgs, error) {
	if param != nil {
		return tree.TriggerArgs{}, &formError{"param", "found a parameter beside arguments, expected one of the two"}
	}
	text, err := json.Marshal(n)
	if err != nil {
		return tree.TriggerArgs{}, err
	}
	return tree.NewNamedArgs(items, string(text))
}

// ArgumentField is a field of a form for an argument. It is called by templates.
func (p *page) ArgumentField(a jobconfig.Argument) argumentInput {
	in := argumentInput{Argument: a, Field: argumentField + a.Name, Required: a.Default == nil}
	if a.Default != nil {
		in.Text = *a.Default
	}
	switch a.Type {
	case jobconfig.ArgInteger:
		in.Input, in.Step = "number", "1"
	case jobconfig.ArgNumber:
		in.Input, in.Step = "number", "any"
	case jobconfig.ArgDate:
		in.Input = "date"
	case jobconfig.ArgBoolean:
		in.Choices = []string{"true", "false"}
	case jobconfig.ArgEnum:
		in.Choices = a.Values
	default:
		in.Input, in.Field = "text", argumentField+"text."+a.Name
	}
	return in
}

// argumentInput is a field of a form for an argument.
type argumentInput struct {
	jobconfig.Argument
	// Field is its name, Text what it has at first, Input the type of an input and Step its step.
	Field, Text, Input, Step string
	Required                 bool
	// Choices are those of a list; nil for an input.
	Choices []string
}

// actOnItem does something to one item.
func actOnItem(ctx context.Context, s *service.Service, r *http.Request, p *page) (string, error) {
	job, why := r.PathValue("job"), reasonOf(r)
	item, err := strconv.Atoi(r.PathValue("item"))
	if err != nil || item < 0 {
		return "", &formError{"item", fmt.Sprintf("found %q, expected a number from 0", r.PathValue("item"))}
	}
	action := r.PathValue("action")
	switch action {
	case "pause", "resume":
		err = s.SetItem(ctx, job, item, switchOf(r, p, action))
	case "kill":
		return kill(ctx, s, job, admin.KillOptions{Item: item}, r, p)
	case "release":
		return release(ctx, s, job, item, r, p)
	case "offset":
		_, err = s.ChangeKept(ctx, job, item, keptChange(r), why)
	default:
		return "", &service.NotFoundError{What: p.T("problem.address", r.URL.Path)}
	}
	if err != nil {
		return "", err
	}
	return p.T("done.item."+action, job, item), nil
}

// keptChange is the change of an item's offset and keys that a form asks for.
func keptChange(r *http.Request) admin.KeptChange {
	c := admin.KeptChange{ResetOffset: r.PostForm.Get("do") == "reset", ResetState: r.PostForm.Get("keys") == "reset"}
	if r.PostForm.Get("do") == "set" {
		offset := admin.Bytes(typed(r.PostForm.Get("offset")))
		c.Offset = &offset
	}
	return c
}

// kill asks hosts to end runs, and does not wait for that: the page shows it.
func kill(ctx context.Context, s *service.Service, job string, o admin.KillOptions, r *http.Request, p *page) (string, error) {
	kills, err := s.Kill(ctx, job, o, reasonOf(r), func(*admin.Kills) {})
	if err != nil {
		return "", err
	}
	return p.T("done.kill", len(kills.Runs), job), nil
}

func release(ctx context.Context, s *service.Service, job string, item int, r *http.Request, p *page) (string, error) {
	items, err := s.Release(ctx, job, item, reasonOf(r))
	if err != nil {
		return "", err
	}
	if len(items) == 0 {
		return p.T("done.release.none", job), nil
	}
	return p.T("done.release", items.String(), job), nil
}

// restore has all hosts join a job again.
func restore(ctx context.Context, s *service.Service, job, why string, p *page) (string, error) {
	r, err := s.Restore(ctx, job, why)
	if err != nil {
		return "", err
	}
	if len(r.Failed) > 0 {
		err = errors.New(strings.Join(r.Failed, "; "))
	}
	return p.T("done.restore", job, strings.Join(r.Hosts, ", ")), err
}

// actOnHost does something to all jobs of a host.
func actOnHost(ctx context.Context, s *service.Service, r *http.Request, p *page) (string, error) {
	server, instance, why := r.PostForm.Get("server"), r.PostForm.Get("instance"), reasonOf(r)
	if server == "" && instance == "" {
		return "", &formError{"server", "found nothing, expected a server or an instance"}
	}
	var err error
	action := r.PathValue("action")
	switch action {
	case "pause", "resume":
		err = s.SetServer(ctx, "", server, switchOf(r, p, action))
	case "shutdown":
		err = s.Shutdown(ctx, "", "", instance, why)
	case "start":
		var r *service.Restored
		if r, err = s.StartOn(ctx, server, instance, why); err == nil && len(r.Failed) > 0 {
			err = errors.New(strings.Join(r.Failed, "; "))
		}
	default:
		return "", &service.NotFoundError{What: p.T("problem.address", r.URL.Path)}
	}
	if err != nil {
		return "", err
	}
	return p.T("done.host."+action, server), nil
}

// bulk does something to several jobs.
func bulk(ctx context.Context, s *service.Service, r *http.Request, p *page) (string, error) {
	jobs, why := slices.Compact(slices.Sorted(slices.Values(r.PostForm["job"]))), reasonOf(r)
	if len(jobs) == 0 {
		return "", errors.New(p.T("bulk.none"))
	}
	action := r.PostForm.Get("do")
	do, known := map[string]func(job string) error{
		"trigger": func(job string) error { _, err := s.Trigger(ctx, job, tree.TriggerArgs{}, why); return err },
		"pause":   func(job string) error { return s.SetEnabled(ctx, job, switchOf(r, p, "pause")) },
		"resume":  func(job string) error { return s.SetEnabled(ctx, job, switchOf(r, p, "resume")) },
	}[action]
	if !known {
		return "", &formError{"do", fmt.Sprintf("found %q, expected trigger, pause or resume", action)}
	}
	var problems words.Problems
	failed := 0
	for _, job := range jobs {
		if err := do(job); err != nil {
			problems.Add(err)
			failed++
		}
	}
	if failed == len(jobs) {
		return "", problems.Err()
	}
	return p.T("done.bulk."+action, len(jobs)-failed), problems.Err()
}
