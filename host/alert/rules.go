package alert

import (
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/internal/labels"
)

// Rules are the rules of a job. Zero and false mean off.
type Rules struct {
	// Failures is how many failures of an item in a row are too many.
	Failures int
	// SucceedEvery is the longest time between two successes of an item, StartWithin
	// how late an item may begin, LongerThan how long a run may take.
	SucceedEvery, StartWithin, LongerThan time.Duration
	// LongerThanUsual is how many times the median of the latest runs a run may take.
	LongerThanUsual     float64
	Lost, Held, Refused bool
}

// Hosts are the rules about hosts.
type Hosts struct{ Gone, Session, Registry, History bool }

// File says what an operator wants messages about, and how. It is immutable.
type File struct {
	// entries are the rules of jobs; later ones take precedence.
	entries []entry
	// Hosts are the rules about hosts.
	Hosts Hosts
	// Receivers are by name.
	Receivers map[string]Receiver
	Routes    []Route
	// Handlers are the routes for jobs whose error handler sends messages: ElasticJob's EMAIL, WECHAT and
	// DINGTALK.
	Handlers map[string]string
	sum      [32]byte
}

// entry sets rules for jobs that match patterns and labels: each func sets one field.
type entry struct {
	jobs   []string // none: all
	labels labels.Selector
	set    []func(*Rules)
	fields []string // that are set
}

// sets reports whether the entry sets a field.
func (e *entry) sets(field string) bool { return slices.Contains(e.fields, field) }

// Standard are the rules of a job for which nothing is set.
func Standard() Rules { return Rules{Failures: 1, Lost: true, Held: true, Refused: true} }

// of reports whether the entry applies to a job with these labels. One with conditions for labels does not
// apply to a job without a name.
func (e *entry) of(job string, labels labels.Set) bool {
	named := len(e.jobs) == 0 || slices.ContainsFunc(e.jobs, func(p string) bool { return matches(p, job) })
	return named && (e.labels.Empty() || (job != "" && e.labels.Matches(labels)))
}

// For are the rules of a job that has labels.
func (f *File) For(job string, labels labels.Set) Rules {
	r := Standard()
	for _, e := range f.entries {
		if e.of(job, labels) {
			for _, set := range e.set {
				set(&r)
			}
		}
	}
	return r
}

// wants reports whether the rule of an alert is on.
func (f *File) wants(a *Alert) bool {
	on := rowOf(a.Rule).on
	return on != nil && on(f, f.For(a.Job, a.Labels), a)
}

// handlers are ElasticJob's error handlers that send something.
var handlers = []string{"EMAIL", "WECHAT", "DINGTALK"}

// Unrouted reports whether an error handler sends messages and has no route.
func (f *File) Unrouted(handler string) bool {
	handler = strings.ToUpper(handler)
	return slices.Contains(handlers, handler) && f.Handlers[handler] == ""
}

// Receiver is who takes messages, and how.
type Receiver struct {
	Name string
	Kind Kind
	// URL is where a message is posted, if it is not secret; otherwise URLFile is the file with it.
	URL, URLFile string
	// SecretFile is the file with the signing key (DingTalk, Feishu), the token (Telegram, webhook), or the
	// password (e-mail).
	SecretFile string
	// Chat is Telegram's.
	Chat string
	// Server, User, From, To and Plain are for e-mail: HOST:PORT, the login, the addresses, and whether the
	// connection is without TLS.
	Server, User, From string
	To                 []string
	Plain              bool
}

// Kind is how a receiver is reached.
type Kind string

// The kinds.
const (
	Email    Kind = "email"
	Slack    Kind = "slack"
	DingTalk Kind = "dingtalk"
	WeCom    Kind = "wecom"
	Feishu   Kind = "feishu"
	Telegram Kind = "telegram"
	Webhook  Kind = "webhook"
)

// Kinds are all kinds.
func Kinds() []Kind { return []Kind{Email, Slack, DingTalk, WeCom, Feishu, Telegram, Webhook} }

// Route says which alerts go to whom.
type Route struct {
	Name string
	// Jobs are patterns; none: all alerts, also those without a job. Rules are the selected rules; none is all.
	Jobs  []string
	Rules []Rule
	// Labels selects jobs by their labels; with conditions it excludes alerts without a job.
	Labels labels.Selector
	// To are names of receivers.
	To []string
	// Group are the alerts that go into one message: those of the same job, rule, both,
	// or all.
	Group []string
	// Wait is how long a first alert waits for others, Repeat how soon one that goes on
	// is sent again.
	Wait, Repeat time.Duration
	// Resolved: the ends of alerts are sent, too.
	Resolved bool
	// Continue: the next matching route also gets the alert.
	Continue bool
}

// What a route has if the file does not say otherwise.
const (
	DefaultWait   = 2 * time.Second
	DefaultRepeat = 4 * time.Hour
)

// routes returns the routes of an alert.
func (f *File) routes(a *Alert) (taken []*Route) {
	for i := range f.Routes {
		r := &f.Routes[i]
		if a.Route != "" {
			if r.Name == a.Route {
				return []*Route{r}
			}
			continue
		}
		ofJob := len(r.Jobs) == 0 || slices.ContainsFunc(r.Jobs, func(p string) bool { return a.Job != "" && matches(p, a.Job) })
		if !ofJob || !anyRule(r.Rules, a.Rule) || !a.selected(r.Labels) {
			continue
		}
		taken = append(taken, r)
		if !r.Continue {
			break
		}
	}
	return taken
}

// matches reports whether a pattern applies to a job; without a job only "*" does.
func matches(pattern, job string) bool {
	if job == "" {
		return pattern == "*"
	}
	return ceiling.Matches(pattern, job)
}

// selected reports whether a selector of labels is for the alert: with conditions none of no job.
func (a *Alert) selected(s labels.Selector) bool {
	return s.Empty() || (a.Job != "" && s.Matches(a.Labels))
}

func anyRule(rules []Rule, r Rule) bool { return len(rules) == 0 || slices.Contains(rules, r) }
