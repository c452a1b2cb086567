package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/login"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// page is what all pages have. Templates call its methods.
type page struct {
	// Title is the document's; Nav names the entry of the menu that it belongs to.
	Title, Nav string
	reader
	address
	Theme string
	User  string
	// SignOut is the address that ends the session, empty if there is none.
	SignOut   string
	Namespace string
	Version   string
	Assets    string
	// Live is liveAll for pages that are kept up to date, LiveJob the one job whose changes they show. Mark
	// says up to which change the page is.
	Live, LiveJob, Mark string
	// Have are the parts of the page that the browser has, empty for a request that is no update.
	Have string
	// Alerts is the version of the alerts that are in the page, empty if none are.
	Alerts string
	// Banners are above the page: they say why it may be incomplete or outdated.
	Banners []banner
	Flash   *flash
	// NoHistory: the history cannot be read, so that nothing is known of what has run.
	NoHistory bool
	// Partial: the histories of some hosts are missing in what is shown.
	Partial bool
	// Frame is that of the job that the page is about, nil if it is about none alone.
	Frame *frame
	// Nothing says why a list is empty, if that is known.
	Nothing string

	// made is the address of the fires that a form has made.
	made string
	// may says what the reader may do, for the buttons that are shown.
	may func(operation.Action, string) bool
	// hosts are named by their ids among peers, instances by their ids.
	hosts     []cluster.Host
	hostNames map[string]string
	status    int
}

// liveAll is the page.Live of pages that are kept up to date.
const liveAll = "all"

// banner is a line above a page; Kind is stale or warn.
type banner struct{ Kind, Text string }

// The themes; the third is the system's.
const (
	themeLight = "light"
	themeDark  = "dark"
)

// newPage begins the answer to a request; ctx is that of the request.
func (c *Console) newPage(ctx context.Context, r *http.Request) *page {
	who := auth.From(ctx)
	p := &page{
		reader:  reader{Lang: i18n.Chosen(cookieOf(r, cookieLang), r.Header.Get("Accept-Language")), Now: time.Now(), Zone: time.UTC, Update: r.Header.Get(headerHave) != "", texts: c.texts},
		address: address{r.URL.Path, r.URL.Query()}, Assets: c.assets.prefix, Version: c.o.Version, Namespace: c.o.Namespace,
		Theme: cookieOf(r, cookieTheme), Have: r.Header.Get(headerHave),
		User: who.Name, Flash: readFlash(r), status: http.StatusOK, hostNames: make(map[string]string), may: who.May,
	}
	if p.Theme != themeLight && p.Theme != themeDark {
		p.Theme = ""
	}
	if name := cookieOf(r, cookieZone); name != "" && name != "Local" {
		if zone, err := time.LoadLocation(name); err == nil {
			p.Zone, p.ZoneKnown = zone, true
		}
	}
	if who.Session != "" {
		p.SignOut = login.LogoutPath
	}
	return p
}

// know takes in the hosts: their names, and what is wrong with what they say.
func (p *page) know(hosts []cluster.Host) {
	p.hosts = hosts
	for _, h := range hosts {
		name := h.Name
		p.hostNames[h.ID] = name
		if h.Report != nil && h.Report.Status.Instance != "" {
			p.hostNames[h.Report.Status.Instance] = name
		}
		p.Banners = append(p.Banners, p.bannersOf(h)...)
	}
}

// bannersOf are the banners about one host.
func (p *page) bannersOf(h cluster.Host) (list []banner) {
	add := func(kind, key string, args ...any) { list = append(list, banner{kind, p.T(key, args...)}) }
	if h.Silent != "" {
		if h.Seen.IsZero() {
			add("stale", "banner.silent.never", h.Name, h.Silent)
		} else {
			add("stale", "banner.silent", h.Name, p.At(h.Seen).Text, h.Silent)
		}
	}
	if !h.Here || h.Report == nil {
		return list
	}
	report := h.Report
	if since := sessionless(report.Status); !since.IsZero() {
		add("stale", "banner.registry", p.At(since).Text, report.Reason)
	} else if report.Status.State == engine.HostSuspect {
		add("stale", "banner.suspect")
	}
	if report.Status.State == engine.HostDraining {
		add("warn", "banner.draining")
	}
	for _, c := range report.Compiling {
		if c.Since.IsZero() {
			add("warn", "banner.compiles.later", c.Module, strings.Join(c.Jobs, ", "))
		} else {
			add("warn", "banner.compiles", c.Module, strings.Join(c.Jobs, ", "), p.Since(c.Since))
		}
	}
	if report.Status.Clock != nil && report.Status.Clock.Off {
		add("warn", "banner.clock", words.Short(report.Status.Clock.Drift))
	}
	return list
}

// sessionless says since when a host has no session with the registry; zero if it has
// one.
func sessionless(s engine.Status) time.Time {
	for _, w := range s.Waits {
		if w.What == event.WaitSession {
			return w.Since
		}
	}
	if s.State == engine.HostStarting {
		return s.Started
	}
	return time.Time{}
}

// None returns a text that says that there is none of something, if nothing is missing; otherwise one that says
// that nothing is known.
func (p *page) None(key string) string {
	switch {
	case p.NoHistory:
		key = "history.unknown"
	case p.Partial:
		key = "history.partial"
	}
	return p.T(key)
}

// records finds records for a page, which says of which hosts some are missing.
func records[T any](ctx context.Context, p *page, f history.Filter, find func(context.Context, history.Filter) (cluster.Found[T], error)) (cluster.Found[T], error) {
	found, err := find(ctx, f)
	p.silence(found.Silent)
	return found, err
}

// Host is the name of a host by one of its ids. An instance that is gone is named by its
// server and its process.
func (p *page) Host(id string) string {
	if name := p.hostNames[id]; name != "" {
		return name
	}
	ip, rest, instance := strings.Cut(id, "@-@")
	if !instance {
		return id
	}
	pid, _, _ := strings.Cut(rest, "-")
	return ip + " (" + pid + ")"
}

// badge is a word with a colour.
type badge struct{ Class, Text string }

// healthBadge is a job's health.
type healthBadge struct {
	Health cluster.Health
	Text   string
}

// HealthBadge is the badge of a job's health.
func (p *page) HealthBadge(h cluster.Health) healthBadge {
	return healthBadge{h, p.Word("health", h)}
}

// entry is an entry of the menu.
type entry struct {
	Href, Text string
	Here       bool
}

// Entry is an entry of the menu.
func (p *page) Entry(nav, href string) entry { return entry{href, p.T("nav." + nav), p.Nav == nav} }

// filtered reports whether a filter leaves anything out, besides what is not of the page's job.
func (p *page) filtered() bool {
	if p.Frame != nil {
		return p.narrowed("job")
	}
	return p.narrowed()
}

// Cleared is the page's address without a filter.
func (p *page) Cleared() string {
	if p.Frame != nil {
		return p.Link(p.Path, "job", p.Pattern(p.Frame.Name))
	}
	return p.Path
}

// State is the badge of a job's state on a host.
func (p *page) State(s engine.JobState) badge {
	return badge{"state-" + strings.ReplaceAll(string(s), " ", "-"), p.Word("state", s)}
}

// Outcome is the badge of an outcome; without one it runs.
func (p *page) Outcome(o abi.Outcome) badge {
	switch outcomeClass(o) {
	case "none":
		return badge{"outcome-running", p.T("state.running")}
	default:
		return badge{"outcome-" + outcomeClass(o), p.Word("outcome", o)}
	}
}

// OutcomeOf is the badge of a run's outcome. A run that is over and asks for another attempt has none left.
func (p *page) OutcomeOf(r history.Run) badge {
	if r.Outcome == abi.OutcomeRetry && r.Completed {
		return badge{"outcome-" + outcomeClass(r.Outcome), p.T("outcome.RETRY.last", r.Attempt)}
	}
	return p.Outcome(r.Outcome)
}

// outcomeClass is good, bad, cancelled or none.
func outcomeClass(o abi.Outcome) string {
	switch o {
	case "":
		return "none"
	case abi.OutcomeOK:
		return "good"
	case abi.OutcomeCancelled, abi.OutcomeRetryAt:
		return "cancelled"
	default:
		return "bad"
	}
}

// Beyond returns what a wait's reason says besides what is waited for.
func (p *page) Beyond(w engine.WaitStatus) string {
	what := p.texts.Word(i18n.English, "wait", string(w.What))
	if w.Reason == what {
		return ""
	}
	return strings.TrimPrefix(w.Reason, what+": ")
}

func jobPath(name string, parts ...string) string {
	return strings.Join(append([]string{"/jobs/" + url.PathEscape(name)}, parts...), "/")
}

// Ten are the first ten of a list.
func (p *page) Ten(list []string) []string { return list[:min(len(list), 10)] }
