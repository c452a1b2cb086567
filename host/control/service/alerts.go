package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// AlertFile is how a host with a file of alerts sends messages.
type AlertFile struct {
	// Current is the file in force.
	Current func() *alert.File
	// Send delivers a message.
	Send func(ctx context.Context, r alert.Receiver, m *alert.Message) error
	// Own returns the alerts about this host's session, which are not in the registry; nil: there are none.
	Own func() []alert.Alert
}

// Alerting is the part of a service that is about alerts.
type Alerting struct{ s *Service }

// Alerting is what is about alerts.
func (s *Service) Alerting() Alerting { return Alerting{s} }

// Alerts are those that stand in the registry, with the silences.
type Alerts struct {
	// Alerts are the firing alerts, including those about the answering host's session, and recently ended
	// ones.
	Alerts []Alert `json:"alerts"`
	// Silences are those in force.
	Silences []alert.Silence `json:"silences"`
	// Sender is the instance id of the host that sends messages, empty if none does.
	Sender string `json:"sender,omitempty"`
	// Judges are the instance ids of the hosts that have a file of alerts.
	Judges []string `json:"judges,omitempty"`
	// Here says that the host that answers has a file of alerts.
	Here bool `json:"here,omitempty"`
	// Version changes whenever an alert or a silence that the principal may see has changed.
	Version int64 `json:"version"`
	// Problem says why this may be outdated, empty if it is not.
	Problem string `json:"problem,omitempty"`
	// Read is when the host that answers has read all this.
	Read time.Time `json:"read"`
}

// Without returns the hosts that evaluate no alerts, because they have no file of alerts while others do.
func (a *Alerts) Without(hosts []cluster.Host) (names []string) {
	for _, h := range hosts {
		if len(a.Judges) == 0 || h.Report == nil || h.Silent != "" {
			continue
		}
		instance, file := h.Report.Status.Instance, h.Report.About.Alerts
		if instance != "" && file == "" && !slices.Contains(a.Judges, instance) { // without a session it is no judge either
			names = append(names, h.Name)
		}
	}
	return names
}

// AlertProblems lists what keeps hosts from evaluating alerts or sending messages, each with the hosts' names.
func AlertProblems(hosts []cluster.Host) []string {
	var problems []string
	names := make(map[string]string) // by problem
	for _, h := range hosts {
		if h.Report == nil || h.Silent != "" {
			continue
		}
		for _, p := range h.Report.AlertProblems {
			if names[p] == "" {
				problems, names[p] = append(problems, p), h.Name
			} else {
				names[p] += ", " + h.Name
			}
		}
	}
	for i, p := range problems {
		problems[i] = names[p] + ": " + p
	}
	return problems
}

// Alert is a problem, until it is resolved, and who gets messages about it.
type Alert struct {
	alert.Alert
	// Targets are those that its messages go to, by the file of the host that answers.
	Targets []alert.Target `json:"targets,omitempty"`
	// Silenced is the silence that covers it, the one that ends last if there are several. If the user may not
	// see that silence, only its end is set.
	Silenced *alert.Silence `json:"silenced,omitempty"`
}

// Causes groups alerts by cause: current ones apart from ended ones, and silenced ones apart from the rest.
// They are in the order of the first of each.
func Causes(list []Alert) []alert.Cause[Alert] {
	return alert.Causes(list, func(a *Alert) *alert.Alert { return &a.Alert }, func(a *Alert) string {
		silence := ""
		if a.Silenced != nil {
			silence = a.Silenced.ID
		}
		return strconv.FormatBool(a.Firing()) + silence
	})
}

// AlertsOf are alerts with their targets by a file, which may be nil, and with the silences
// that cover them.
func AlertsOf(alerts []alert.Alert, silences []alert.Silence, f *alert.File, now time.Time) []Alert {
	list := []Alert{}
	for _, a := range alerts {
		s := Alert{Alert: a}
		if f != nil {
			s.Targets = f.Targets(&a)
		}
		for i, one := range silences {
			if a.Firing() && (s.Silenced == nil || one.Until.After(s.Silenced.Until)) && one.Covers(&a, now) {
				s.Silenced = &silences[i]
			}
		}
		list = append(list, s)
	}
	return list
}

// List returns the alerts of the jobs that the principal may see. Alerts without a job need the right to see
// all.
func (g Alerting) List(ctx context.Context) (*Alerts, error) {
	if err := known(ctx); err != nil {
		return nil, err
	}
	if g.s.o.Board == nil {
		return nil, engine.ErrNotLive
	}
	stand, _ := g.s.o.Board.Stand() // before it is read: what changes meanwhile is another version
	content, at, err := g.s.o.Board.Read(ctx)
	if at.IsZero() {
		return nil, fmt.Errorf("%w: %w", engine.ErrNotLive, err)
	}
	list := &Alerts{Sender: stand.Keeper, Judges: stand.Judges, Here: g.s.o.AlertFile != nil, Read: at}
	if err != nil {
		list.Problem = err.Error()
	}
	list.Version = version(ctx, stand, content)
	list.Alerts, list.Silences = visible(ctx, g.withOwn(content), g.file())
	return list, nil
}

// withOwn is what stands on the board, and the alerts about this host's session.
func (g Alerting) withOwn(content store.Content) store.Content {
	if f := g.s.o.AlertFile; f != nil && f.Own != nil {
		content.Alerts = slices.Concat(content.Alerts, f.Own())
	}
	return content
}

// visible is what the principal may see of the board, with targets by a file, which may be nil.
func visible(ctx context.Context, content store.Content, f *alert.File) (list []Alert, silences []alert.Silence) {
	now := time.Now()
	var alerts []alert.Alert
	for _, a := range content.Alerts {
		if seen(ctx, a.Job) {
			alerts = append(alerts, a)
		}
	}
	silences = []alert.Silence{}
	for _, one := range content.Silences {
		if one.Until.After(now) && mayPattern(ctx, operation.View, one.Jobs) == nil {
			silences = append(silences, one)
		}
	}
	list = AlertsOf(alerts, content.Silences, f, now)
	for i := range list {
		if one := list[i].Silenced; one != nil && mayPattern(ctx, operation.View, one.Jobs) != nil {
			list[i].Silenced = &alert.Silence{Until: one.Until}
		}
	}
	return list, silences
}

// version returns the Alerts.Version of what the principal may see. With the right to see all it is the number
// of the last change. For others it is a hash, the same on all hosts, because that number would reveal changes
// that they may not see; it has 53 bits, as JavaScript reads numbers.
func version(ctx context.Context, stand store.Stand, content store.Content) int64 {
	if auth.From(ctx).All(operation.View) {
		return stand.Change
	}
	h := fnv.New64a()
	list, silences := visible(ctx, content, nil)
	slices.SortFunc(list, func(a, b Alert) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(silences, func(a, b alert.Silence) int { return strings.Compare(a.ID, b.ID) })
	_ = json.NewEncoder(h).Encode(Alerts{Alerts: list, Silences: silences}) // neither fails
	return int64(h.Sum64() >> 11)
}

// Count counts the causes of the alerts that go on of the jobs that the principal may see, see [Causes], with the
// Alerts.Version that they have.
func (g Alerting) Count(ctx context.Context) (n int, of int64, err error) {
	if err := known(ctx); err != nil {
		return 0, 0, err
	}
	if g.s.o.Board == nil {
		return 0, 0, engine.ErrNotLive
	}
	stand, _ := g.s.o.Board.Stand()
	content, at, err := g.s.o.Board.Read(ctx)
	if at.IsZero() {
		return 0, 0, err
	}
	list, _ := visible(ctx, g.withOwn(content), nil)
	for _, c := range Causes(list) {
		if c.First().Firing() {
			n++
		}
	}
	return n, version(ctx, stand, content), nil
}

// changedLimit is how long Changed waits for the registry at most.
const changedLimit = time.Second

// Changed returns the present Alerts.Version; more is closed when it may have changed. The error says that the
// board cannot be read within a second, which is only needed for principals that may not see all.
func (g Alerting) Changed(ctx context.Context) (now int64, more <-chan struct{}, err error) {
	if g.s.o.Board == nil {
		return 0, nil, nil
	}
	stand, more := g.s.o.Board.Stand()
	var content store.Content
	if !auth.From(ctx).All(operation.View) {
		ctx, cancel := context.WithTimeout(ctx, changedLimit)
		defer cancel()
		content, _, err = g.s.o.Board.Read(ctx)
	}
	return version(ctx, stand, content), more, err
}

// file is the file of alerts in force; nil: this host has none.
func (g Alerting) file() *alert.File {
	if g.s.o.AlertFile == nil {
		return nil
	}
	return g.s.o.AlertFile.Current()
}

// mayPattern asks whether the principal may do something to all jobs of a pattern.
func mayPattern(ctx context.Context, a operation.Action, pattern string) error {
	who := auth.From(ctx)
	if who.All(a) {
		return nil
	}
	for _, mine := range who.Patterns(a) {
		if mine == pattern {
			return nil
		}
	}
	if strings.ContainsAny(pattern, `*?[\`) {
		return auth.Require(ctx, a, "")
	}
	return auth.Require(ctx, a, pattern)
}

// MaySilence reports whether the principal may silence all jobs of a pattern.
func (g Alerting) MaySilence(ctx context.Context, pattern string) bool {
	return mayPattern(ctx, operation.Silence.May(), pattern) == nil
}

// ofHiddenSilence reports whether a change is about a silence that the principal may not see: a pattern such as
// a-? also matches the text of other patterns, such as a-*.
func ofHiddenSilence(ctx context.Context, c history.Change) bool {
	return (operation.Silence.Is(c.What) || operation.Unsilence.Is(c.What)) && mayPattern(ctx, operation.View, c.Job) != nil
}

// WantedSilence is a silence as somebody asks for it: For is a duration from 1m to 90d. No
// rules are all rules. Labels is a selector of labels, empty for any.
type WantedSilence struct {
	Jobs   string
	Labels string
	Rules  []string
	For    string
	Why    string
}

// Silence keeps alerts from being sent for a while.
func (g Alerting) Silence(ctx context.Context, wanted WantedSilence) (*alert.Silence, error) {
	d, err := times.Duration(wanted.For)
	if err != nil {
		return nil, &InputError{"body.for", fmt.Sprintf("found %q, expected a duration such as 2h or 7d", words.Clip(wanted.For))}
	}
	now := time.Now()
	made := alert.Silence{Jobs: wanted.Jobs, From: now, Until: now.Add(d), By: auth.From(ctx).String(), Why: wanted.Why}
	if made.Labels, err = labels.ParseSelector(wanted.Labels); err != nil {
		return nil, &InputError{"body.labels", err.Error()}
	}
	for _, r := range wanted.Rules {
		made.Rules = append(made.Rules, alert.Rule(r))
	}
	if field, problem := made.Check(); problem != "" {
		return nil, &InputError{"body." + field, problem}
	}
	c := &history.Change{What: operation.Silence.String(), Job: made.Jobs, Why: made.Why, After: "until " + made.Until.UTC().Format(time.RFC3339)}
	if !made.Labels.Empty() {
		c.After += ", labels " + made.Labels.String()
	}
	err = g.change(ctx, c, func(b *store.Board) (err error) {
		made, err = b.Silence(ctx, made)
		return err
	})
	switch {
	case errors.Is(err, store.ErrTooManySilences):
		return nil, &ConflictError{err.Error()}
	case err != nil:
		return nil, err
	}
	return &made, nil
}

// board is that of the alerts, for changes.
func (g Alerting) board() (*store.Board, error) {
	center := g.s.o.Session()
	if center == nil || g.s.o.Board == nil {
		return nil, engine.ErrNotLive
	}
	return store.Of(center, g.s.o.Namespace), nil
}

// change carries out and records what is about a pattern of jobs, and about the board.
func (g Alerting) change(ctx context.Context, c *history.Change, do func(b *store.Board) error) error {
	if err := g.s.begin(ctx, c, mayPattern(ctx, operation.Silence.May(), c.Job)); err != nil {
		return err
	}
	b, err := g.board()
	if err == nil {
		err = do(b)
		g.s.o.Board.Expire()
	}
	g.s.end(c, err)
	return err
}

// Unsilence ends a silence before its time.
func (g Alerting) Unsilence(ctx context.Context, id string, why Reason) error {
	if !alert.IsID(id) {
		return &InputError{"path.id", fmt.Sprintf("found %q, expected the id of a silence: 16 hexadecimal digits", words.Clip(id))}
	}
	if err := known(ctx); err != nil {
		return err
	}
	one, err := g.silence(ctx, id)
	if err != nil {
		return err
	}
	if one != nil {
		c := &history.Change{What: operation.Unsilence.String(), Job: one.Jobs, Why: why, Before: "until " + one.Until.UTC().Format(time.RFC3339)}
		err = g.change(ctx, c, func(b *store.Board) error { return b.Unsilence(ctx, id) })
		if !errors.Is(err, store.ErrNoSilence) {
			return err
		}
	}
	return &NotFoundError{fmt.Sprintf("there is no silence %s: it has ended, or somebody has ended it", id)}
}

// silence returns a silence in force that the principal may see; nil: none. It is looked up in the host's copy
// of the board, and, for principals that may silence something, then in the registry.
func (g Alerting) silence(ctx context.Context, id string) (*alert.Silence, error) {
	if g.s.o.Board == nil {
		return nil, engine.ErrNotLive
	}
	find := func(silences []alert.Silence) *alert.Silence {
		for i, one := range silences {
			if one.ID == id && one.Until.After(time.Now()) && mayPattern(ctx, operation.View, one.Jobs) == nil {
				return &silences[i]
			}
		}
		return nil
	}
	content, _, err := g.s.o.Board.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrNotLive, err)
	}
	if one := find(content.Silences); one != nil || !auth.From(ctx).Any(operation.Unsilence.May()) {
		return one, nil
	}
	b, err := g.board()
	if err != nil {
		return nil, err
	}
	silences, err := b.Silences(ctx)
	return find(silences), err
}

// Routes returns the routes of the answering host's file of alerts, if the principal may send a test to them;
// otherwise nil, as without a file.
func (g Alerting) Routes(ctx context.Context) []alert.Route {
	if f := g.file(); f != nil && auth.Require(ctx, operation.TestAlerts.May(), "") == nil {
		return f.Routes
	}
	return nil
}

// Test has this host send a message that says that it is a test to the receivers of a
// route, or with an empty name of all routes. It waits for all of them.
func (g Alerting) Test(ctx context.Context, route string, why Reason) (tried []alert.Tried, err error) {
	c := &history.Change{After: "route " + words.Clip(route), Why: why}
	if route == "" {
		c.After = "all routes"
	}
	err = g.s.change(ctx, operation.TestAlerts, c, func() error {
		f := g.file()
		if f == nil {
			return &ConflictError{"this host has no file of alerts: start it with --alerts FILE"}
		}
		routes, err := f.RoutesNamed(route)
		if err != nil {
			return &InputError{"body.route", err.Error()}
		}
		taken := 0
		for _, t := range f.Try(ctx, routes, g.s.o.AlertFile.Send, time.Now()) {
			if t.Error == "" {
				taken++
			}
			tried = append(tried, t)
		}
		c.After += fmt.Sprintf(": taken by %d of %d", taken, len(tried))
		return nil
	})
	return tried, err
}
