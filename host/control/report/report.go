package report

import (
	"time"

	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// About is what a host's process reports about itself.
type About struct {
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// TimeZone is the host's own zone and its offset when it started, for people.
	TimeZone string `json:"timeZone,omitempty"`
	// Plugins is the directory that the host watches.
	Plugins string `json:"plugins"`
	// Registry says in words where the registry is.
	Registry string `json:"registry"`
	// History is the history file, empty if there is none.
	History string `json:"history,omitempty"`
	// Grants is the file or directory with the grants, empty if there is none.
	Grants string `json:"grants,omitempty"`
	// Alerts is the file with the rules of alerts, empty if there is none.
	Alerts string `json:"alerts,omitempty"`
	// Users is the file with users and tokens, whether it is there or not; empty if none is read.
	Users string `json:"users,omitempty"`
	// GuestLog is the file for all that jobs log, empty if there is none.
	GuestLog string `json:"guestLog,omitempty"`
}

// History is how the history file fares.
type History struct {
	// File is the file's name, or the URL of the database without a password; for who does
	// not operate all jobs, its kind.
	File string `json:"file"`
	// Dropped is how many events are lost since the host began, Spooled how many wait on
	// the disk for the database.
	Dropped int64 `json:"dropped"`
	Spooled int64 `json:"spooled,omitempty"`
	// Problem says why the last events could not be written, empty if they
	// could; Since is when the first of them was lost, or spooled.
	Problem string    `json:"problem,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Pending says what the host lacks before it has all its jobs.
type Pending struct {
	// Starting says that the plugins directory has not been read completely: the host is not ready then.
	Starting bool
	// Compiling are the modules that are not compiled yet.
	Compiling []Compiling
}

// Compiling is a module that is being compiled, or waits for its turn.
type Compiling struct {
	Module string `json:"module"`
	// Jobs are those that run nothing before the module is ready.
	Jobs []string `json:"jobs"`
	// Since is when it was begun; zero if it was not yet.
	Since time.Time `json:"since,omitzero"`
}

// reason says in words why the host is not ready.
func (p Pending) reason() string {
	if len(p.Compiling) == 0 {
		return "the plugins directory is being read"
	}
	names := make([]string, len(p.Compiling))
	for i, c := range p.Compiling {
		names[i] = c.Module
	}
	return "compiling: " + words.Some(names, ", ")
}

// Host is what a report shows; [engine.Host] is one.
type Host interface {
	StatusWithin(wait time.Duration) engine.Status
	FullStatus() engine.Status
	Ready() (ready bool, missing string)
}

// Report is the answer of GET /v1/status.
type Report struct {
	About About     `json:"about"`
	Now   time.Time `json:"now"`
	Ready bool      `json:"ready"`
	// Reason says why it is not ready, if that is known.
	Reason string        `json:"reason,omitempty"`
	Status engine.Status `json:"status"`
	// Session is missing while there is none, and for a registry that has no
	// sessions to speak of.
	Session *Session `json:"session,omitempty"`
	// Compiling are the modules that are not compiled yet, by file.
	Compiling []Compiling `json:"compiling,omitempty"`
	// History is missing if there is no history file.
	History *History `json:"history,omitempty"`
	// Warnings are about the host's settings, in words.
	Warnings []string `json:"warnings,omitempty"`
	// AlertProblems are those of Warnings about alerts: the host's file, and receivers that do not take
	// messages.
	AlertProblems []string `json:"alertProblems,omitempty"`
}

// Reporter makes a host's report. Its functions are called for each report, from many goroutines; nil ones are
// skipped.
type Reporter struct {
	Host  Host
	About About
	// Pending says what the host still waits for.
	Pending func() Pending
	// Session describes the host's session; it returns nil while there is none.
	Session func() *Session
	// Waiting says what the host waits for to get a session, empty for nothing.
	Waiting func() string
	// History describes the history file.
	History func() *History
	// Warnings say what is wrong with the host's settings.
	Warnings func() []string
	// Alerts say what is wrong with how the host looks for alerts.
	Alerts func() []string
}

// Within is how long a report waits for busy jobs: after that it has their last state. It is much shorter than
// others wait for the report.
const Within = 100 * time.Millisecond

// Report returns the host's report; full reads the registry now.
func (r *Reporter) Report(full bool) Report {
	p := r.pending() // first: what ends meanwhile is in the status
	ready, reason := r.ready(p)
	report := Report{About: r.About, Now: time.Now(), Ready: ready, Reason: reason, Compiling: p.Compiling}
	if full {
		report.Status = r.Host.FullStatus()
	} else {
		report.Status = r.Host.StatusWithin(Within)
	}
	if r.Session != nil {
		report.Session = r.Session()
	}
	if r.History != nil {
		report.History = r.History()
	}
	if r.Warnings != nil {
		report.Warnings = r.Warnings()
	}
	if r.Alerts != nil {
		report.AlertProblems = r.Alerts()
		report.Warnings = append(report.Warnings, report.AlertProblems...)
	}
	return report
}

// Ready says whether the host is ready, and why not if that is known.
func (r *Reporter) Ready() (ok bool, reason string) { return r.ready(r.pending()) }

func (r *Reporter) pending() Pending {
	if r.Pending == nil {
		return Pending{}
	}
	return r.Pending()
}

func (r *Reporter) ready(p Pending) (ok bool, reason string) {
	if r.Waiting != nil {
		if reason := r.Waiting(); reason != "" {
			return false, reason
		}
	}
	if p.Starting {
		return false, p.reason()
	}
	return r.Host.Ready()
}

// Session is what a host's process knows of its session with a registry of
// servers.
type Session struct {
	// Server is the address of the connected server, empty without a connection.
	Server string `json:"server,omitempty"`
	// ID is the session's number, as the servers write it: 0x100a….
	ID string `json:"id"`
	// Timeout is the session timeout that the servers granted.
	Timeout time.Duration `json:"timeoutNs"`
	// Answered is when the last answered question was sent: since then the session is trusted for a while.
	Answered time.Time `json:"answered,omitzero"`
	// Trust is live, suspect, yield or lost.
	Trust string `json:"trust"`
	// Reconnects counts the connections that this session has had besides
	// the first.
	Reconnects int64 `json:"reconnects"`
}
