package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// MaxTriggerArg bounds each argument of a trigger, in bytes of its text: hosts write the
// parameter with every commit of the fire.
const MaxTriggerArg = jobconfig.MaxParameter

// mostShown bounds the items of a trigger in sentences, and its parameter in records, in bytes.
const mostShown = 200

// The data of an instance's trigger made by a program of ours, which records the trigger: it shows without
// another read whether the trigger has arguments. ElasticJob and other programs leave the node empty.
const (
	TriggerPlain    = "plain"
	TriggerWithArgs = "args"
)

// ItemMarked is the data of an item's "disabled" mark made by a program of ours of an earlier version, which
// records it. This version writes [Word.Mark]; ElasticJob and other programs leave the node empty.
const ItemMarked = "recorded"

// TriggerArgs are a trigger's arguments: the data of node trigger. The zero value is a plain trigger of all
// items, with an empty node.
type TriggerArgs struct {
	// Items are those that run; nil is all of them.
	Items Ranges `json:"items,omitempty"`
	// Param is the job's parameter in this fire; nil is that of the configuration.
	Param *string `json:"param,omitempty"`
	// At is the instant that the runs have, Unix milliseconds; 0 is when each host begins the round.
	At int64 `json:"at,omitempty"`
	// Backfill is set if the round belongs to a backfill. SkipBusy then skips the instant of an item that runs
	// for something else when its turn comes.
	Backfill bool `json:"backfill,omitempty"`
	SkipBusy bool `json:"skipBusy,omitempty"`
	// Queued is the number under which the trigger was queued; 0 if it was not. A queued trigger is not plain,
	// so that no other trigger can stand for it.
	Queued int64 `json:"queued,omitempty"`
	// Named is set, before the trigger is written, if Param is a JSON object with some of the arguments that
	// the job declares; see [jobconfig.Arguments]. The written node has all of them.
	Named bool `json:"-"`
}

// MaxInstant is the latest instant that a trigger may give, Unix milliseconds: schedules end with the year 9999.
var MaxInstant = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMilli()

// WithInstant is a trigger that gives an instant, in Unix milliseconds.
func (a TriggerArgs) WithInstant(at int64) (TriggerArgs, error) {
	if at <= 0 || at > MaxInstant {
		return a, &ArgError{"at", fmt.Sprintf("found %s, expected a time from 1970 to 9999", time.UnixMilli(at).UTC().Format(time.RFC3339))}
	}
	a.At = at
	return a, nil
}

// ArgError is an argument of a trigger that is not accepted.
type ArgError struct {
	Arg     string // items, param, at, arguments or arguments.NAME
	Problem string
}

func (e *ArgError) Error() string { return e.Arg + ": " + e.Problem }

// NewTriggerArgs reads the arguments as people write them; items "" are all.
func NewTriggerArgs(items string, param *string) (TriggerArgs, error) {
	args := TriggerArgs{Param: param}
	if text := strings.ReplaceAll(strings.TrimSpace(items), ", ", ","); text != "" {
		if len(text) > MaxTriggerArg {
			return TriggerArgs{}, tooLong("items", len(text))
		}
		r, err := ParseRanges(text)
		if err != nil {
			return TriggerArgs{}, &ArgError{"items", fmt.Sprintf("found %q, expected numbers and ranges such as 0,3-5, below %d", jobconfig.Clip(text), MaxItems)}
		}
		args.Items = r
	}
	switch {
	case param == nil:
	case len(*param) > MaxTriggerArg:
		return TriggerArgs{}, tooLong("param", len(*param))
	case !utf8.ValidString(*param) || strings.ContainsRune(*param, 0):
		return TriggerArgs{}, &ArgError{"param", "found bytes that are no text, expected UTF-8 without NUL"}
	}
	return args, nil
}

// NewNamedArgs is NewTriggerArgs for a JSON object of arguments that the job declares. Names and values are
// checked later, by [TriggerArgs.In].
func NewNamedArgs(items, arguments string) (TriggerArgs, error) {
	args, err := NewTriggerArgs(items, &arguments)
	if bad, of := errors.AsType[*ArgError](err); of && bad.Arg == "param" {
		bad.Arg = "arguments"
	}
	args.Named = err == nil
	return args, err
}

// In returns the arguments as a job with this configuration runs with them, checked and complete. The error is,
// or joins, an [*ArgError] for each problem.
func (a TriggerArgs) In(c jobconfig.Configuration) (TriggerArgs, error) {
	if err := a.Fits(c.ShardingTotalCount); err != nil {
		return a, err
	}
	g, _ := c.Guest() // what cannot be read has its default
	if len(g.Arguments) == 0 {
		if a.Named {
			return a, &ArgError{"arguments", "found some, expected none: the job declares no arguments"}
		}
		return a, nil
	}
	text, err := g.Parameter(c, a.Param)
	if err != nil {
		var problems []error
		for _, f := range jobconfig.FieldErrors(err) {
			problems = append(problems, &ArgError{f.Field, f.Problem})
		}
		return a, errors.Join(problems...)
	}
	if a.Param != nil {
		a.Param = &text
	}
	return a, nil
}

func tooLong(arg string, n int) error {
	return &ArgError{arg, fmt.Sprintf("found %d bytes, expected at most %d", n, MaxTriggerArg)}
}

// ParseTriggerArgs reads the data of node trigger. Unreadable data selects no item, since nothing is known
// about the request.
func ParseTriggerArgs(data []byte) TriggerArgs {
	if len(data) == 0 {
		return TriggerArgs{}
	}
	var text struct {
		Items    string  `json:"items"`
		Param    *string `json:"param"`
		At       int64   `json:"at"`
		Backfill bool    `json:"backfill"`
		SkipBusy bool    `json:"skipBusy"`
		Queued   int64   `json:"queued"`
	}
	err := json.Unmarshal(data, &text)
	var args TriggerArgs
	if err == nil {
		args, err = NewTriggerArgs(text.Items, text.Param)
		args.Queued = text.Queued
	}
	if err == nil && (text.At != 0 || text.Backfill) {
		args, err = args.WithInstant(text.At)
		args.Backfill, args.SkipBusy = text.Backfill, text.SkipBusy
	}
	if err != nil || args.Plain() {
		return TriggerArgs{Items: Ranges{}}
	}
	return args
}

// UnmarshalJSON reads arguments as ParseTriggerArgs does, so that unreadable arguments do not make the rest of
// a node unreadable.
func (a *TriggerArgs) UnmarshalJSON(data []byte) error {
	*a = ParseTriggerArgs(data)
	return nil
}

// Data is what the node holds, JSON; nil of a plain trigger.
func (a TriggerArgs) Data() []byte {
	if a.Plain() {
		return nil
	}
	b, err := json.Marshal(a)
	if err != nil { // texts always marshal
		return nil
	}
	return b
}

// Plain reports whether all items run now with the configured parameter.
func (a TriggerArgs) Plain() bool {
	return a.Items == nil && a.Param == nil && a.At == 0 && a.Queued == 0
}

// Unreadable reports whether ParseTriggerArgs could not read the arguments.
func (a TriggerArgs) Unreadable() bool { return a.Items != nil && len(a.Items) == 0 }

// Has reports whether an item is to run.
func (a TriggerArgs) Has(item int) bool { return a.Items == nil || a.Items.Contains(item) }

// Same reports whether both have the same arguments.
func (a TriggerArgs) Same(b TriggerArgs) bool {
	if a.Queued != b.Queued || a.At != b.At || a.Backfill != b.Backfill || (a.Items == nil) != (b.Items == nil) || (a.Param == nil) != (b.Param == nil) {
		return false
	}
	return slices.Equal(a.Items, b.Items) && (a.Param == nil || *a.Param == *b.Param)
}

// Fits refuses items that a job of total items does not have.
func (a TriggerArgs) Fits(total int) error {
	if n := len(a.Items); n > 0 && a.Items[n-1].To >= total {
		return &ArgError{"items", fmt.Sprintf("found %d, expected 0 to %d: the job has %d", a.Items[n-1].To, total-1, total)}
	}
	return nil
}

// String describes the arguments, without the parameter's text.
func (a TriggerArgs) String() string {
	if a.Named {
		return a.words("arguments")
	}
	return a.words("a parameter")
}

// Record describes the arguments, with the beginning of the parameter's text.
func (a TriggerArgs) Record() string {
	if a.Param == nil {
		return a.String()
	}
	text := *a.Param
	if len(text) > mostShown {
		text = strings.ToValidUTF8(text[:mostShown], "") + "…"
	}
	if a.Named {
		return a.words("arguments " + text)
	}
	return a.words("parameter " + strconv.Quote(text))
}

// words describes the arguments; param describes the parameter.
func (a TriggerArgs) words(param string) string {
	var words []string
	if a.Items != nil {
		text := a.Items.String()
		if len(text) > mostShown {
			text = text[:mostShown] + "…"
		}
		words = append(words, "items "+text)
	}
	if a.Param != nil {
		words = append(words, param)
	}
	if a.At != 0 {
		text := "the instant " + time.UnixMilli(a.At).UTC().Format(time.RFC3339)
		if a.Backfill {
			text += " of a backfill"
		}
		words = append(words, text)
	}
	return strings.Join(words, " and ")
}

// Fire returns the fire of a round that a trigger with these arguments starts.
func (a TriggerArgs) Fire(round, instant int64, source string) Fire {
	f := Fire{Instant: instant, Trigger: round, Source: source, Only: a.Items.String(), Queued: a.Queued}
	if a.Param != nil {
		f.WithParam, f.Param = true, *a.Param
	}
	if a.At != 0 {
		f.Instant, f.Given, f.Backfill = a.At, true, a.Backfill
	}
	if a.Backfill && source == sourceTrigger {
		f.Source = SourceBackfill
	}
	return f
}
