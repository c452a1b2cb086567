package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// settingRow is a setting of a job in the form.
type settingRow struct {
	jobconfig.Setting
	// Help is the setting's, in the reader's language, as pieces of text and code.
	Help []piece
	// Now is the value in the registry, Given that of the form.
	Now, Given string
	// Problem says what is wrong with what was given.
	Problem string
	// Changed: the form's value differs from the registry's. Stale: the registry's value has changed since the
	// form was made, from Was.
	Changed, Stale bool
	Was            string
	Origin         admin.Origin
}

// piece is a piece of text; Code is in the letters of a program.
type piece struct {
	Text string
	Code bool
}

// Input is the kind of the setting's input: choice, number, lines or text. A browser takes the ends of lines out of an
// input of one line.
func (s settingRow) Input() string {
	switch {
	case s.Type == jobconfig.Boolean || s.Type == jobconfig.Word:
		return "choice"
	case s.Type == jobconfig.Number:
		return "number"
	case s.Type == jobconfig.ItemList || strings.Contains(s.Given, "\n"):
		return "lines"
	default:
		return "text"
	}
}

// Bounded reports whether the input has the setting's bounds. A browser does not send a form with a number
// beyond them, and another program may have written one.
func (s settingRow) Bounded() bool {
	n, err := strconv.ParseInt(s.Given, 10, 64)
	return s.Min != s.Max && (s.Given == "" || (err == nil && n >= s.Min && n <= s.Max))
}

// Hint is the setting's default, for an input without a value.
func (s settingRow) Hint() string {
	if s.Setting.Default == "none" || s.Required {
		return ""
	}
	return strings.NewReplacer("`", "", "*", "").Replace(s.Setting.Default)
}

// Choices are the values that can be chosen. The present one is among them, whatever it is: a browser sends the first
// choice where none is selected.
func (s settingRow) Choices() []string {
	choices := slices.Clone(s.Words)
	switch {
	case s.Type == jobconfig.Boolean:
		choices = []string{"true", "false"}
	case !slices.Contains(s.Words, s.Hint()):
		choices = slices.Concat([]string{""}, s.Words) // what it is without a value follows from another setting, or from the module
	}
	if !slices.Contains(choices, s.Given) {
		choices = append(choices, s.Given)
	}
	return choices
}

// configView is the configuration of a job, and the form that edits it.
type configView struct {
	P          *page
	Name, File string
	Version    int64
	Rows       []settingRow
	Reason     string
	// Preview is what an edit would change, nil if none was tried.
	Preview *previewed
	// Stale: the configuration was changed while it was being edited.
	Stale bool
	// Editable: the reader may edit it.
	Editable bool
	// Problems are about no setting in particular.
	Problems []string
}

// previewed is what an edit would change.
type previewed struct {
	Changes []settingRow // Now is before, Given after
	// Before and After are the next instants, if the schedule or its zone differ.
	Reschedules   bool
	Before, After []instants
	Words         string
	Other         string // the zone beside the job's
	// Plan are lines about what the edit does within the next days; nil if that is not known.
	Plan []string
}

func configPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	v, err := newConfigView(ctx, c, p, r.PathValue("job"))
	if err != nil {
		return view{}, err
	}
	return view{"config", v}, nil
}

// newConfigView reads the configuration.
func newConfigView(ctx context.Context, c *Console, p *page, job string) (*configView, error) {
	p.Title = p.T("config.title", job)
	config, err := c.o.Service.Config(ctx, job)
	if err != nil {
		return nil, err
	}
	if err := c.frame(ctx, p, job, "config"); err != nil {
		return nil, err
	}
	p.silence(config.Silent)
	v := &configView{P: p, Name: job, File: config.File, Version: config.Version, Editable: p.may(operation.Author, job)}
	for _, s := range operate.Editable() {
		now := shown(s, config.Settings[s.Name])
		v.Rows = append(v.Rows, settingRow{Setting: s, Now: now, Given: now, Was: now, Help: p.help(s), Origin: config.Origins[s.Name]})
	}
	return v, nil
}

// shown is the value of a setting as people write it: 5m, not 5m0s.
func shown(s jobconfig.Setting, value string) string {
	if d, err := time.ParseDuration(value); s.Type == jobconfig.Duration && err == nil {
		return words.Duration(d)
	}
	return value
}

var (
	markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	settingsKey  = "setting."
)

// help is the help of a setting: the table of texts has the Chinese.
func (p *page) help(s jobconfig.Setting) []piece {
	text := markdownLink.ReplaceAllString(s.Help, "$1")
	if p.Lang != i18n.English {
		text = p.T(settingsKey + s.Name)
	}
	var pieces []piece
	for n, part := range strings.Split(text, "`") {
		if part != "" {
			pieces = append(pieces, piece{part, n%2 == 1})
		}
	}
	return pieces
}

// editPage previews or saves an edit.
func editPage(ctx context.Context, c *Console, r *http.Request, p *page) (view, error) {
	job := r.PathValue("job")
	if err := r.ParseForm(); err != nil {
		return view{}, &formError{"form", err.Error()}
	}
	v, err := newConfigView(ctx, c, p, job)
	if err != nil {
		return view{}, err
	}
	version, err := strconv.ParseInt(r.PostForm.Get("version"), 10, 64)
	if err != nil {
		return view{}, &formError{"version", err.Error()}
	}
	v.Reason = r.PostForm.Get("reason")
	e := admin.Edit{Version: version, Settings: v.take(r.PostForm), Preview: r.PostForm.Get("do") != "save"}
	if len(e.Settings) == 0 {
		v.Problems = []string{p.T("config.nothing")}
		p.status = http.StatusUnprocessableEntity
		return view{"config", v}, nil
	}
	done, err := c.o.Service.EditConfig(ctx, job, e, v.Reason)
	if err != nil {
		return v.refused(err)
	}
	if e.Preview || done.Unchanged() {
		v.Preview = p.previewed(v.Rows, done)
		if !done.Unchanged() {
			plan := c.o.Service.PlanEdit(ctx, done)
			v.Preview.Plan = p.planLines(plan)
			if plan != nil {
				p.silence(plan.Silent)
			}
		}
		return view{"config", v}, nil
	}
	return view{"", redirect{jobPath(job, "config"), p.T("config.done", strings.Join(slices.Sorted(maps.Keys(e.Settings)), ", "))}}, nil
}

// take reads a form. It returns the settings that the reader has changed since the form was made.
func (v *configView) take(form map[string][]string) map[string]string {
	text := func(name string) (string, bool) {
		values, given := form[name]
		if !given || len(values) == 0 {
			return "", false
		}
		return typed(values[0]), true
	}
	edits := make(map[string]string)
	for n := range v.Rows {
		row := &v.Rows[n]
		given, has := text("set." + row.Name)
		was, had := text("was." + row.Name)
		if !had {
			continue
		}
		row.Was, row.Stale = was, was != typed(row.Now)
		if has && given != was {
			edits[row.Name] = given
			row.Given, row.Changed = given, true
		}
	}
	return edits
}

// refused shows the form again with what is wrong.
func (v *configView) refused(err error) (view, error) {
	var stale *admin.StaleError
	fields := jobconfig.FieldErrors(err)
	switch {
	case errors.As(err, &stale):
		v.Stale, v.P.status = true, http.StatusConflict
	case len(fields) > 0:
		v.P.status = http.StatusUnprocessableEntity
		for _, f := range fields {
			at := slices.IndexFunc(v.Rows, func(s settingRow) bool { return f.Field == s.Name })
			if at < 0 {
				v.Problems = append(v.Problems, f.Error())
				continue
			}
			v.Rows[at].Problem = f.Problem
		}
	default:
		return view{}, err
	}
	return view{"config", v}, nil
}

// mostPreviewed is how many instants a preview has.
const mostPreviewed = 5

func (p *page) previewed(rows []settingRow, e *admin.Edited) *previewed {
	out := &previewed{}
	for _, row := range rows {
		row.Now, row.Given = shown(row.Setting, e.Before.Settings[row.Name]), shown(row.Setting, e.After.Settings[row.Name])
		if row.Now != row.Given {
			out.Changes = append(out.Changes, row)
			out.Reschedules = out.Reschedules || row.Name == "cron" || row.Name == "timeZone" || row.Instants()
		}
	}
	next := func(c *admin.JobConfig) []instants {
		times, err := admin.Next(admin.Schedule{Cron: c.Settings["cron"], TimeZone: c.Settings["timeZone"], Terms: c.Terms}, p.Now, mostPreviewed)
		if err != nil {
			return nil // the form says so
		}
		var list []instants
		list, out.Other = p.instants(times, c.Settings["timeZone"])
		return list
	}
	if out.Reschedules {
		out.Before, out.After = next(e.Before), next(e.After)
		out.Words = p.scheduleWords(e.After.Settings["cron"], e.After.Terms)
	}
	return out
}

// planLines are what an edit does within the next days.
func (p *page) planLines(e *forecast.Edit) []string {
	if e == nil {
		return nil
	}
	number := strconv.Itoa
	takes := "config.plan.known"
	if !e.Known {
		takes = "config.plan.assumed"
	}
	return []string{
		p.T("config.plan.fires", number(forecast.EditDays), number(e.FiresBefore), number(e.FiresAfter), number(e.FiresAdded), number(e.FiresGone)),
		p.T("config.plan.lost", number(e.OverlapsBefore), number(e.OverlapsAfter), number(e.LostBefore), number(e.LostAfter)),
		p.T(takes, words.Duration(e.Takes)),
	}
}

// redirect sends the reader to another page with a word of what was done.
type redirect struct{ to, done string }
