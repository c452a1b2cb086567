package database

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// A query is a series of looks. Each goes through a number of rows in the order of the page, selected by
// indexed conditions, and reads those that meet the further conditions.
const (
	// firstRows is how many rows the first look goes through. Each further look goes through growth times as
	// many, up to mostRows.
	firstRows, growth, mostRows = 1000, 2, 4000
	// lookTime bounds a query whose page is not full; then it answers with what it has.
	lookTime = 100 * time.Millisecond
)

// conditions are joined by AND.
type conditions struct {
	texts []string
	args  []any
}

func (c *conditions) add(text string, args ...any) {
	c.texts = append(c.texts, text)
	c.args = append(c.args, args...)
}

func (c *conditions) where() string {
	if len(c.texts) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.texts, " AND ")
}

// in adds a condition: a column has one of the values.
func (c *conditions) in(column string, values []any) {
	c.add(column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
}

// list describes a table for queries.
type list[R any] struct {
	kind    byte // of cursors
	table   string
	columns string
	time    string   // the column with the time
	ids     []string // the columns of the order after time
	// indexed are conditions whose columns an index begins with, followed by time and ids; filter are others.
	indexed, filter conditions
	scan            func(scanner) (R, history.Position, error)
	// id returns the values of ids from a position's ID.
	id func(string) ([]any, error)
	// take takes the records that meet the conditions, in order. It returns false when the page is full.
	take func(ctx context.Context, records []R, at []history.Position) (more bool, err error)
}

// numbered parses the ID of a position in a table whose rows have numbers.
func numbered(id string) ([]any, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: after: found an unknown position, expected the next of a page of the same list", history.ErrFilter)
	}
	return []any{n}, nil
}

// query looks until the page is full, the table ends, or time is up. next is where the following page begins.
func query[R any](ctx context.Context, s *Store, f *history.Filter, l *list[R]) (next history.Position, more bool, err error) {
	from, some, err := history.ParseCursor(l.kind, f.After)
	if err != nil {
		return from, false, err
	}
	if !f.From.IsZero() {
		l.indexed.add(l.time+" >= ?", history.Nanos(f.From))
	}
	switch {
	case !f.To.IsZero():
		l.indexed.add(l.time+" < ?", history.Nanos(f.To))
	case s.dialect.bounded():
		l.indexed.add(l.time+" <= ?", math.MaxInt64)
	}
	rows := firstRows
	for end := time.Now().Add(s.lookTime); ; {
		full, last, err := look(ctx, s, f, l, rows, from, some)
		if err != nil || full || last == nil {
			return from, false, err
		}
		from, some, rows = *last, true, min(growth*rows, mostRows)
		if time.Now().After(end) {
			return from, true, nil
		}
	}
}

// order returns the ORDER BY of the page.
func (l *list[R]) order(f *history.Filter) string {
	direction := " DESC"
	if f.Oldest {
		direction = ""
	}
	return " ORDER BY " + l.time + direction + ", " + strings.Join(l.ids, direction+", ") + direction
}

// beyond adds a condition: rows are behind a position in the page's order, or, with or, at it.
func (l *list[R]) beyond(c *conditions, p history.Position, forward bool, or string) error {
	id, err := l.id(p.ID)
	if err != nil {
		return err
	}
	sign := "<"
	if forward {
		sign = ">"
	}
	// The first condition uses the index.
	c.add(l.time+" "+sign+"= ?", p.Time)
	c.add("("+l.time+", "+strings.Join(l.ids, ", ")+") "+sign+or+" (?"+strings.Repeat(", ?", len(id))+")", append([]any{p.Time}, id...)...)
	return nil
}

// look goes through some rows behind a position. last is where it stopped; nil if no row was left.
func look[R any](ctx context.Context, s *Store, f *history.Filter, l *list[R], rows int, from history.Position, some bool) (full bool, last *history.Position, err error) {
	c := conditions{slices.Clone(l.indexed.texts), slices.Clone(l.indexed.args)}
	if some {
		if err := l.beyond(&c, from, f.Oldest, ""); err != nil {
			return false, nil, err
		}
	}
	if len(l.filter.texts) > 0 {
		if last, err = s.end(ctx, "SELECT "+l.time+", "+strings.Join(l.ids, ", ")+" FROM "+l.table+c.where()+l.order(f)+" LIMIT 2 OFFSET "+strconv.Itoa(rows-1), c.args, len(l.ids)); err != nil {
			return false, nil, err
		}
		if last != nil {
			if err := l.beyond(&c, *last, !f.Oldest, "="); err != nil {
				return false, nil, err
			}
		}
		c.add(strings.Join(l.filter.texts, " AND "), l.filter.args...)
	}
	most := 2 * (f.Limit + 1) // the filter refuses some
	records, at, err := fetch(ctx, s, "SELECT "+l.columns+" FROM "+l.table+c.where()+l.order(f)+" LIMIT "+strconv.Itoa(most+1), c.args, l.scan)
	if err != nil {
		return false, nil, err
	}
	if len(records) > most { // that one is only there to say that there are more
		records, last = records[:most], &at[most-1]
	}
	more, err := l.take(ctx, records, at)
	if err != nil || !more {
		return !more, nil, err
	}
	return false, last, nil
}

// fetch reads rows.
func fetch[R any](ctx context.Context, s *Store, statement string, args []any, scan func(scanner) (R, history.Position, error)) (records []R, at []history.Position, err error) {
	if err := s.presence.err(); err != nil {
		return nil, nil, err
	}
	rows, err := s.db.QueryContext(ctx, s.dialect.bind(statement), args...)
	s.presence.note(ctx, err)
	if err != nil {
		return nil, nil, s.unavailable(err)
	}
	defer rows.Close()
	for rows.Next() {
		r, p, err := scan(rows)
		if err != nil {
			return nil, nil, s.unavailable(err)
		}
		records, at = append(records, r), append(at, p)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, s.unavailable(err)
	}
	return records, at, nil
}

// end is the position of the last row that a look goes through, by a statement that asks for it and for
// the one behind it; nil if there is none behind it.
func (s *Store) end(ctx context.Context, statement string, args []any, ids int) (*history.Position, error) {
	ends, _, err := fetch(ctx, s, statement, args, func(row scanner) (p history.Position, at history.Position, err error) {
		into := []any{&p.Time}
		parts := make([]string, ids)
		for i := range parts {
			into = append(into, &parts[i])
		}
		err = row.Scan(into...)
		p.ID = strings.Join(parts, "\x00")
		return p, p, err
	})
	if err != nil || len(ends) < 2 {
		return nil, err
	}
	return &ends[0], nil
}

func (s *Store) unavailable(err error) error {
	return fmt.Errorf("%w: %w", history.ErrUnavailable, s.config.hide(err))
}

// common adds the conditions that all lists have.
func (s *Store) common(f *history.Filter, indexed, filter *conditions) {
	if name, ok := f.OnlyJob(); ok {
		indexed.add("job = ?", clip(name, mostName))
	} else if len(f.Jobs) > 0 {
		var texts []string
		var args []any
		for _, p := range f.Jobs {
			texts, args = append(texts, "job LIKE ? ESCAPE '!'"), append(args, jobPattern(p))
		}
		filter.add("("+strings.Join(texts, " OR ")+")", args...)
	}
	if f.Host != "" {
		filter.add("host LIKE ? ESCAPE '!'", begins(clip(f.Host, mostName))) // all that it may name
	}
}

// begins is a pattern for LIKE that matches what begins with a text.
func begins(text string) string {
	return clean(strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text)) + "%"
}

// jobPattern is a pattern for LIKE that matches at least what a pattern of names does.
func jobPattern(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '*':
			b.WriteByte('%')
		case '?':
			b.WriteByte('_')
		case '[', '\\': // whatever it is, and what comes after it
			b.WriteByte('%')
			return clean(b.String())
		case '%', '_', '!':
			b.WriteByte('!')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return clean(b.String())
}

// page collects what a filter finds.
type page[R any] struct {
	history.Page[R]
	limit int
	last  history.Position
}

func newPage[R any](f *history.Filter) *page[R] {
	return &page[R]{Page: history.Page[R]{Records: []R{}}, limit: f.Limit}
}

// add adds a record. It returns false if the page is full: then there is a next one.
func (p *page[R]) add(r R, at history.Position, list byte) bool {
	if len(p.Records) == p.limit {
		p.Next = p.last.Cursor(list)
		return false
	}
	p.Records = append(p.Records, r)
	p.last = at
	return true
}

// simple asks a list whose rows are records.
func simple[R any](ctx context.Context, s *Store, f *history.Filter, l *list[R], match func(*R) bool) (history.Page[R], error) {
	p := newPage[R](f)
	l.take = func(_ context.Context, records []R, at []history.Position) (bool, error) {
		for i := range records {
			if match(&records[i]) && !p.add(records[i], at[i], l.kind) {
				return false, nil
			}
		}
		return true, nil
	}
	next, more, err := query(ctx, s, f, l)
	if err != nil {
		return history.Page[R]{}, err
	}
	if more {
		p.Next = next.Cursor(l.kind)
	}
	return p.Page, nil
}

// runs asks the database for runs.
func (s *Store) runs(ctx context.Context, f history.Filter) (history.Page[history.Run], error) {
	if err := s.check(ctx, &f); err != nil {
		return history.Page[history.Run]{}, err
	}
	l := &list[history.Run]{kind: history.ListRuns, table: "wasmjob_items", columns: strings.Join(runColumns, ", "), time: "begun", ids: []string{"id"},
		id: func(id string) ([]any, error) { return []any{clean(id)}, nil },
		scan: func(row scanner) (history.Run, history.Position, error) {
			r, err := scanRun(row)
			return r, history.PositionOf(r.At(), r.ID), err
		}}
	if f.Run != "" {
		l.indexed.add("id = ?", clip(f.Run, mostID))
	} else {
		s.ofFire(&f, "id", l)
		s.common(&f, &l.indexed, &l.filter)
	}
	if f.Failed {
		l.indexed.add("failed = 1")
	}
	if f.Running {
		l.indexed.add("ended = 0")
	}
	s.outcomes(&f, &l.filter)
	if f.Item != nil {
		l.filter.add("item = ?", *f.Item)
	}
	if f.Text != "" {
		l.filter.add(s.dialect.like("message"), pattern(f.Text))
	}
	return simple(ctx, s, &f, l, f.MatchRun)
}

// ofFire adds the condition that a run is of the filter's fire, which has an index if the
// job is known.
func (s *Store) ofFire(f *history.Filter, column string, l *list[history.Run]) {
	if f.Instant.IsZero() && f.Trigger == 0 {
		return
	}
	if job, ok := f.OnlyJob(); ok {
		fire := fireOf(job, f)
		l.indexed.add(column+" > ? AND "+column+" < ?", clip(fire+"/", mostID), clip(fire+"0", mostID))
		return
	}
	s.instant(f, &l.filter)
}

func fireOf(job string, f *history.Filter) string {
	fire := history.Fire{Job: job, Instant: f.Instant, Trigger: f.Trigger}
	return fire.Key().String()
}

func (s *Store) instant(f *history.Filter, c *conditions) {
	if f.Trigger != 0 {
		c.add("trigger_round = ?", f.Trigger)
	} else if !f.Instant.IsZero() {
		ms := f.Instant.UnixMilli() * int64(time.Millisecond)
		c.add("instant >= ? AND instant < ?", ms, ms+int64(time.Millisecond))
	}
}

func (s *Store) outcomes(f *history.Filter, c *conditions) {
	if len(f.Outcomes) == 0 {
		return
	}
	var values []any
	for _, o := range f.Outcomes {
		values = append(values, clip(string(o), mostWord))
	}
	c.in("outcome", values)
}

// events asks the database for events.
func (s *Store) events(ctx context.Context, f history.Filter) (history.Page[event.Event], error) {
	if err := s.check(ctx, &f); err != nil {
		return history.Page[event.Event]{}, err
	}
	l := &list[event.Event]{kind: history.ListEvents, table: "wasmjob_events", time: "time", ids: []string{"id"}, id: numbered, scan: scanEvent,
		columns: "time, id, data"}
	if f.Run != "" {
		l.indexed.add("run = ?", clip(f.Run, mostID))
	} else {
		s.common(&f, &l.indexed, &l.filter)
	}
	s.instant(&f, &l.filter)
	s.outcomes(&f, &l.filter)
	if f.Failed {
		l.filter.add("keep = 1")
	}
	if seldom(f.Kinds) {
		l.indexed.add(s.dialect.seldom())
	}
	if len(f.Kinds) > 0 {
		var values []any
		for _, k := range f.Kinds {
			values = append(values, clip(string(k), mostWord))
		}
		l.filter.in("kind", values)
	}
	if f.Text != "" {
		l.filter.add(s.dialect.like("reason"), pattern(f.Text))
	}
	return simple(ctx, s, &f, l, f.MatchEvent)
}

// seldom reports whether kinds are all of those that are reported seldom, for which there is an index.
func seldom(kinds []event.Kind) bool {
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k event.Kind) bool {
		return strings.HasPrefix(string(k), "fire.") || strings.HasPrefix(string(k), "item.") || k == event.Listener
	})
}

// seldomKinds is the condition of the index of seldom kinds, as it stands in the migration.
const seldomKinds = "(kind < 'fire.' OR kind >= 'fire/') AND (kind < 'item.' OR kind >= 'item/') AND kind <> 'listener'"

// lines asks the database for lines.
func (s *Store) lines(ctx context.Context, f history.Filter) (history.Page[history.Line], error) {
	if err := s.check(ctx, &f); err != nil {
		return history.Page[history.Line]{}, err
	}
	l := &list[history.Line]{kind: history.ListLines, table: "wasmjob_logs", time: "time", ids: []string{"id"}, id: numbered, scan: scanLine,
		columns: "time, id, job, run, item, host, level, message, attrs, gap"}
	if f.Run != "" {
		l.indexed.add("run = ?", clip(f.Run, mostID))
	} else {
		s.common(&f, &l.indexed, &l.filter)
	}
	if f.Item != nil {
		l.filter.add("item = ?", *f.Item)
	}
	l.filter.add("level >= ?", f.Level)
	if f.Text != "" {
		l.filter.add("("+s.dialect.like("message")+" OR "+s.dialect.like("attrs")+")", pattern(f.Text), pattern(f.Text))
	}
	return simple(ctx, s, &f, l, f.MatchLine)
}

// settle has what is queued written, and waits for that, but not for long.
func (s *Store) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	s.Sync(ctx)
}

// Sync returns when what was added before is written, or does not come to be soon, or ctx is done. Lines of runs may wait on:
// see [history.Feed.Sync].
func (s *Store) Sync(ctx context.Context) {
	s.feed.Sync(ctx)
	s.queue.settle(ctx)
}

// check checks a filter, and has what is queued on this machine written before its first page.
func (s *Store) check(ctx context.Context, f *history.Filter) error {
	if err := f.Check(); err != nil {
		return err
	}
	if f.After == "" && s.config.local() {
		s.settle(ctx)
	}
	return nil
}

// changes asks the database for changes, when what is pending is written.
func (s *Store) changes(ctx context.Context, f history.Filter) (history.Page[history.Change], error) {
	if err := s.check(ctx, &f); err != nil {
		return history.Page[history.Change]{}, err
	}
	if f.After == "" {
		s.settle(ctx)
	}
	l := &list[history.Change]{kind: history.ListChanges, table: "wasmjob_audit", time: "time", ids: []string{"id"}, id: numbered, scan: scanChange,
		columns: "time, id, data"}
	s.common(&f, &l.indexed, &l.filter)
	if f.Item != nil {
		l.filter.add("item = ?", *f.Item)
	}
	if f.Failed {
		l.filter.add("failed = 1")
	}
	if f.Trigger != 0 {
		number := fmt.Sprintf(`%%"trigger":%d`, f.Trigger)
		l.filter.add("("+s.dialect.like("data")+" OR "+s.dialect.like("data")+")", number+",%", number+"}%")
	}
	if f.Text != "" {
		l.filter.add(s.dialect.like("data"), pattern(f.Text))
	}
	return simple(ctx, s, &f, l, f.MatchChange)
}
