// Package operation is the catalogue of what people and programs do to jobs and to a cluster.
// An operation is one row: who may carry it out, what the record of the change calls it, its
// endpoints, its commands, its buttons and their texts. Lists, filters, texts and docs are made
// of the rows; package host/control/service carries the operations out.
package operation

import (
	"cmp"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// Action is a right that an operation requires. A role is a set of actions.
type Action string

// The actions; docs/access.md lists which operation needs which.
const (
	// View is to see states, runs, logs and configuration.
	View Action = "view"
	// Operate is to trigger, enable, disable, kill, release, shut down and start.
	Operate Action = "operate"
	// Author is to change configuration, offsets and key/value state, and to remove a
	// job whose records stay.
	Author Action = "edit"
	// Admin is to change who may do what, and what cannot be undone: users, tokens,
	// removal with purge, adoption of a registry, silences.
	Admin Action = "administer"
)

// Operation is a row of the catalogue.
type Operation int

// The operations, in the order in which filters list them.
const (
	Create Operation = iota
	Edit
	ChangeKept
	Trigger
	Backfill
	Disable
	Enable
	Kill
	Release
	Shutdown
	Start
	Restore
	Remove
	Silence
	Unsilence
	TestAlerts
	Backup
	SetUsers
	SignIn
	SignOut
	count
)

// Effect is what an operation means for whether its job, or all jobs of its host, begin fires.
type Effect int

// The effects.
const (
	NoEffect Effect = iota
	Pauses
	Resumes
)

// Row has the properties of an operation.
type Row struct {
	// Record is the operation's name in the record of a change. It never changes, because histories contain it.
	// An edit has the settings after it: edit cron, timeZone.
	Record string
	// English and Chinese are Record as shown to people. English is empty if it is Record itself.
	English, Chinese string
	// May is the required action; empty if none is: a sign-in, or a definition file. MayPurge is the action
	// required to delete the job's records as well; empty: the operation never does.
	May, MayPurge Action
	// Commands are the commands that request it, as typed after the program's name.
	Commands []string
	// Endpoints are the endpoints of the API that request it.
	Endpoints []Endpoint
	// Buttons are the buttons of the console that request it.
	Buttons []Button
	// Effect is what it means for whether the job begins fires; Stops: it is about the hosts that take part,
	// and not about what they begin.
	Effect Effect
	Stops  bool
}

// Endpoint is an endpoint of the API.
type Endpoint struct {
	// ID names the endpoint in the description of the API, from which programs are generated: it never changes.
	ID           string
	Method, Path string
	// Summary is a title, Text some sentences.
	Summary, Text string
}

// Button is a form of the console with one button.
type Button struct {
	// Action is the end of its path; of an item item.ACTION, of a host host.ACTION.
	Action string
	// Label is the text on the button, Text says what it does to {0}, Done confirms it. Confirmations with a
	// number or with hosts are in the console's table, as done.ACTION.
	Label, Text, Done Text
	// Danger: no other button undoes it. Until: it may end by itself.
	Danger, Until bool
}

// Text is a text in both languages.
type Text struct{ English, Chinese string }

// In is the text as a table of texts has it.
func (t Text) In() map[i18n.Language]string {
	return map[i18n.Language]string{i18n.English: t.English, i18n.Chinese: t.Chinese}
}

// All are all operations.
func All() []Operation {
	all := make([]Operation, count)
	for n := range all {
		all[n] = Operation(n)
	}
	return all
}

// Row is the row of the operation.
func (o Operation) Row() Row { return rows[o] }

// String is what the record of a change calls it.
func (o Operation) String() string { return rows[o].Record }

// Text is what people read for the operation.
func (o Operation) Text() Text {
	return Text{English: cmp.Or(rows[o].English, rows[o].Record), Chinese: rows[o].Chinese}
}

// English is what people read for what a record says; another text is returned as it is.
func English(record string) string {
	for _, r := range rows {
		if r.English != "" && r.Record == record {
			return r.English
		}
	}
	return record
}

// Record is what records have for what people read; another text is returned as it is.
func Record(english string) string {
	for _, r := range rows {
		if r.English != "" && r.English == english {
			return r.Record
		}
	}
	return english
}

// May is what it needs of who asks.
func (o Operation) May() Action { return rows[o].May }

// Is reports whether the text is what a record calls the operation; of an edit, with its settings.
func (o Operation) Is(record string) bool {
	return record == rows[o].Record || (o == Edit && strings.HasPrefix(record, rows[o].Record+" "))
}

// Of is the operation of a record; ok is false for one of another version.
func Of(record string) (o Operation, ok bool) {
	n := slices.IndexFunc(All(), func(o Operation) bool { return o.Is(record) })
	return Operation(n), n >= 0
}

// Records are what records call the operations, in the order of the catalogue.
func Records() []string {
	list := make([]string, count)
	for n := range list {
		list[n] = rows[n].Record
	}
	return list
}

// Endpoint is the endpoint with an id; the zero value if the operation has none.
func (o Operation) Endpoint(id string) Endpoint {
	for _, e := range rows[o].Endpoints {
		if e.ID == id {
			return e
		}
	}
	return Endpoint{}
}

// ButtonOf is the button with an action and its operation; ok is false if there is none.
func ButtonOf(action string) (b Button, o Operation, ok bool) {
	for _, o := range All() {
		for _, b := range rows[o].Buttons {
			if b.Action == action {
				return b, o, true
			}
		}
	}
	return Button{}, 0, false
}

// Switch is Enable or Disable.
func Switch(enable bool) Operation {
	if enable {
		return Enable
	}
	return Disable
}
