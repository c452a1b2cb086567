// Package alert decides when jobs do not do what they should, who gets a message about it, and what the message
// says. Events and the clock go in, alerts come out, and messages are made from alerts. It is pure, except that
// it reads its file and sends tests of its routes through a function. Packages below it keep the alerts in the
// registry, send the messages, and run the loop.
package alert

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/labels"
)

// Rule is what an alert is about. It is named as in the file, and has its row in table.go.
type Rule string

// The rules.
const (
	// Failures: an item has failed so many times in a row.
	Failures Rule = "failures"
	// SucceedEvery: an item has not succeeded for so long.
	SucceedEvery Rule = "succeedEvery"
	// StartWithin: items have not begun so long after their instant.
	StartWithin Rule = "startWithin"
	// LongerThan: a run takes longer than it should, or much longer than usual.
	LongerThan Rule = "longerThan"
	// Lost: an item's host died while it ran, and no host repeats the run.
	Lost Rule = "lost"
	// Held: an item is held back.
	Held Rule = "held"
	// Refused: a host refuses a file, or cannot run a job.
	Refused Rule = "refused"
	// HostGone: a host's session has ended, and the host had not stopped in good order.
	HostGone Rule = "hostGone"
	// Session: a host's session with the registry is in doubt, or is lost.
	Session Rule = "session"
	// Registry: a host has found that the registry has gone back, or was copied.
	Registry Rule = "registry"
	// History: a host cannot write its history.
	History Rule = "history"
)

// Alert is a problem, until it is resolved.
type Alert struct {
	// ID names the alert. Alerts of the same rule, job, item and subject have the same.
	ID string `json:"id"`
	// Rule is the rule of the file of alerts that found it.
	Rule Rule `json:"rule"`
	// Job is the job that it is about, empty if it is about a host.
	Job string `json:"job,omitempty"`
	// Labels are those that the job had when the alert began, by name.
	Labels labels.Set `json:"labels,omitempty"`
	// Item is the sharding item that it is about, nil if it is about no single one.
	Item *int `json:"item,omitempty"`
	// Subject distinguishes alerts of one rule without job and item: a server's address, and the file if it
	// concerns one.
	Subject string `json:"subject,omitempty"`
	// Host is the instance id of the host that found it; of HostGone, of the host that is gone.
	Host string `json:"host,omitempty"`
	// OfHost is set if it is about Host itself; it is then over when that host is gone.
	OfHost bool `json:"ofHost,omitempty"`
	// Route is the only route that its messages take; empty: those that match.
	Route string `json:"route,omitempty"`
	// Text says in words what is wrong.
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
	// Resolved is when it ended, zero while it continues; Why says why it ended.
	Resolved time.Time `json:"resolved,omitzero"`
	Why      string    `json:"why,omitempty"`
	// Sent is the newest message to each receiver, by ROUTE/RECEIVER.
	Sent map[Target]Sent `json:"sent,omitempty"`
}

// Target is a receiver of a route: ROUTE/RECEIVER.
type Target string

// Sent is the newest message about an alert that a target has taken.
type Sent struct {
	// At is when it was sent.
	At time.Time `json:"at"`
	// Resolved is set if it said that the alert is over.
	Resolved bool `json:"resolved,omitempty"`
}

// Firing reports whether the alert continues.
func (a *Alert) Firing() bool { return a.Resolved.IsZero() }

// named fills the ID in.
func (a Alert) named() Alert {
	item := ""
	if a.Item != nil {
		item = strconv.Itoa(*a.Item)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(a.Rule), a.Job, item, a.Subject}, "\x00")))
	a.ID = hex.EncodeToString(sum[:8])
	return a
}

// IsID reports whether a text can be an alert's id, or a silence's.
func IsID(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 8 && s == strings.ToLower(s)
}
