package database

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// The longest texts of columns that have keys, in characters; longer ones, which no host
// writes, are cut.
const (
	mostName = 200
	mostID   = 320
	mostWord = 40
	// mostText bounds the other texts, in bytes: a message has far fewer.
	mostText = 1 << 20
)

// clean is a text as all databases take it: valid, and without NUL.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// clip cuts a text to so many characters.
func clip(s string, most int) string {
	s = clean(s)
	if len(s) <= most {
		return s
	}
	n := 0
	for i := range s {
		if n == most {
			return s[:i]
		}
		n++
	}
	return s
}

// latest is the latest time that the tables have, in 2200: what is later, by a clock that
// is wrong, is as if it were then.
const latest = 230 * 365 * int64(day)

// nanos is a time as the tables have it: in nanoseconds, 0 for none and for what was
// before 1970.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return min(max(history.Nanos(t), 0), latest)
}

// instant is the time of nanoseconds.
func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// insert collects rows of one table for statements of several rows.
type insert struct {
	table   string
	columns []string
	// keys and update are for rows that may be there; fenced as in upsert.
	keys   []string
	fenced bool
	// lenient as in dialect.insert.
	lenient bool
	rows    [][]any
}

// mostParameters bounds those of one statement: SQLite takes 32,766, PostgreSQL 65,535.
const mostParameters = 8000

// run executes the inserts.
func (in *insert) run(ctx context.Context, d dialect, q querier, f *fit) error {
	end := ""
	if len(in.keys) > 0 {
		var update []string
		for _, c := range in.columns {
			if !contains(in.keys, c) {
				update = append(update, c)
			}
		}
		end = d.upsert(in.table, in.keys, update, in.fenced)
	}
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(in.columns)), ", ") + ")"
	for most := mostParameters / len(in.columns); len(in.rows) > 0; {
		n := min(len(in.rows), most)
		args := make([]any, 0, n*len(in.columns))
		for _, r := range in.rows[:n] {
			for i, v := range r {
				args = append(args, f.value(in.table, in.columns[i], v))
			}
		}
		in.rows = in.rows[n:]
		statement := d.insert(in.lenient) + in.table + " (" + strings.Join(in.columns, ", ") + ") VALUES " + strings.TrimSuffix(strings.Repeat(row+", ", n), ", ") + end
		if _, err := q.ExecContext(ctx, d.bind(statement), args...); err != nil {
			return err
		}
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

var runColumns = []string{"id", "job", "item", "instant", "trigger_round", "source", "host", "attempt", "begun", "repeated", "ended", "duration", "lag", "outcome", "failed",
	"completed", "message", "fence", "digest", "signer", "memory", "batches", "records", "dropped_lines", "outside"}

func runRow(r *history.Run) []any {
	var repeated time.Time
	if !r.First.IsZero() {
		repeated = r.Begun
	}
	outside := ""
	if len(r.Outside) > 0 {
		if data, err := json.Marshal(r.Outside); err == nil {
			outside = clean(string(data))
		}
	}
	return []any{clip(r.ID, mostID), clip(r.Job, mostName), r.Item, nanos(r.Instant), r.Trigger, clip(string(r.Source), mostWord), clip(r.Host, mostName), r.Attempt,
		nanos(r.At()), nanos(repeated), nanos(r.Ended), int64(r.Duration), int64(r.Lag), clip(string(r.Outcome), mostWord), flag(r.Failed()),
		flag(r.Completed), event.Cut(clean(r.Message), mostText), r.Fence, clip(r.Digest, mostName), clean(r.Signer), r.Memory, r.Batches, r.Records, r.DroppedLines, outside}
}

// scanner is a row.
type scanner interface{ Scan(into ...any) error }

func scanRun(row scanner) (history.Run, error) {
	var r history.Run
	var at, begun, repeated, ended int64
	var source, outcome, outside string
	var failed, completed int
	err := row.Scan(&r.ID, &r.Job, &r.Item, &at, &r.Trigger, &source, &r.Host, &r.Attempt, &begun, &repeated, &ended, &r.Duration, &r.Lag, &outcome, &failed,
		&completed, &r.Message, &r.Fence, &r.Digest, &r.Signer, &r.Memory, &r.Batches, &r.Records, &r.DroppedLines, &outside)
	if err != nil {
		return r, err
	}
	r.Instant, r.Begun, r.Ended = instant(at), instant(begun), instant(ended)
	if repeated != 0 {
		r.First, r.Begun = r.Begun, instant(repeated)
	}
	r.Source, r.Outcome, r.Completed = abi.Source(source), abi.Outcome(outcome), completed != 0
	if outside != "" {
		err = json.Unmarshal([]byte(outside), &r.Outside)
	}
	return r, err
}

var partColumns = []string{"fire", "job", "instant", "trigger_round", "source", "host", "items", "total", "begun", "ended", "lag", "succeeded", "failed_items", "outcome", "failed", "message"}

func partRow(p *history.Part) []any {
	items, err := json.Marshal(p.Items)
	if err != nil { // numbers always marshal
		items = []byte("[]")
	}
	return []any{clip(p.Key().String(), mostID), clip(p.Job, mostName), nanos(p.Instant), p.Trigger, clip(string(p.Source), mostWord), clip(p.Host, mostName), string(items), p.Total,
		nanos(p.Begun), nanos(p.Ended), int64(p.Lag), p.Succeeded, p.Failed, clip(string(p.Outcome), mostWord), flag(p.Outcome.Failed()), event.Cut(clean(p.Message), mostText)}
}

// part is a host's part of a fire, and the fire's name.
type part struct {
	history.Part
	fire string
}

func scanPart(row scanner) (part, error) {
	var p part
	var at, begun, ended int64
	var source, items, outcome string
	var failed int
	err := row.Scan(&p.fire, &p.Job, &at, &p.Trigger, &source, &p.Host, &items, &p.Total, &begun, &ended, &p.Lag, &p.Succeeded, &p.Failed, &outcome, &failed, &p.Message)
	if err != nil {
		return p, err
	}
	p.Instant, p.Begun, p.Ended = instant(at), instant(begun), instant(ended)
	p.Source, p.Outcome = abi.Source(source), abi.Outcome(outcome)
	return p, json.Unmarshal([]byte(items), &p.Items)
}

var eventColumns = []string{"time", "kind", "host", "job", "run", "item", "instant", "trigger_round", "outcome", "keep", "reason", "data"}

func eventRow(e *event.Event, data []byte) []any {
	var item any
	if e.Item != nil {
		item = *e.Item
	}
	return []any{nanos(e.Time), clip(string(e.Kind), mostWord), clip(e.Host, mostName), clip(e.Job, mostName), clip(e.RunID, mostID), item, nanos(e.Instant), e.Trigger,
		clip(string(e.Outcome), mostWord), flag(wrong(e)), event.Cut(clean(e.Reason), mostText), clean(string(data))}
}

// wrong reports whether an event says that something is wrong: it is kept as long as
// runs that failed.
func wrong(e *event.Event) bool {
	switch e.Kind {
	case event.JobError, event.JobPaused, event.Refused, event.ItemHeld, event.ItemRepaired, event.OverQuota, event.RegistryBehind, event.HistoryLost:
		return true
	}
	return e.Outcome.Failed()
}

func scanEvent(row scanner) (event.Event, history.Position, error) {
	var e event.Event
	var at, id int64
	var data string
	if err := row.Scan(&at, &id, &data); err != nil {
		return e, history.Position{}, err
	}
	return e, history.Position{Time: at, ID: strconv.FormatInt(id, 10)}, json.Unmarshal([]byte(data), &e)
}

var lineColumns = []string{"time", "job", "run", "item", "host", "level", "keep", "message", "attrs", "gap"}

func lineRow(l *history.Line) []any {
	attrs := ""
	if len(l.Attrs) > 0 {
		attrs = plainJSON(l.Attrs)
	}
	return []any{nanos(l.Time), clip(l.Job, mostName), clip(l.RunID, mostID), l.Item, clip(l.Host, mostName), l.Level, 0, event.Cut(clean(l.Message), mostText), attrs, l.Gap}
}

// plainJSON is JSON in which a text stands as it is, but for quotes, backslashes and
// control characters.
func plainJSON(list []string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(list); err != nil { // texts always marshal
		return "[]"
	}
	return clean(strings.TrimSuffix(b.String(), "\n"))
}

func scanLine(row scanner) (history.Line, history.Position, error) {
	var l history.Line
	var at, id int64
	var attrs string
	if err := row.Scan(&at, &id, &l.Job, &l.RunID, &l.Item, &l.Host, &l.Level, &l.Message, &attrs, &l.Gap); err != nil {
		return l, history.Position{}, err
	}
	l.Time = instant(at)
	p := history.Position{Time: at, ID: strconv.FormatInt(id, 10)}
	if attrs == "" {
		return l, p, nil
	}
	return l, p, json.Unmarshal([]byte(attrs), &l.Attrs)
}

var changeColumns = []string{"time", "who", "origin", "what", "job", "item", "host", "failed", "data"}

func changeRow(c *history.Change, data []byte) []any {
	var item any
	if c.Item != nil {
		item = *c.Item
	}
	return []any{nanos(c.Time), clean(c.Who), clean(c.From), clean(c.What), clip(c.Job, mostName), item, clip(c.Host, mostName), flag(c.Error != ""), clean(string(data))}
}

func scanChange(row scanner) (history.Change, history.Position, error) {
	var c history.Change
	var at, id int64
	var data string
	if err := row.Scan(&at, &id, &data); err != nil {
		return c, history.Position{}, err
	}
	return c, history.Position{Time: at, ID: strconv.FormatInt(id, 10)}, json.Unmarshal([]byte(data), &c)
}
