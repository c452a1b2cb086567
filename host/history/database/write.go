package database

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// chunk is what one transaction writes.
type chunk struct {
	entries []history.Entry
	// writer and ends say how far the writer has come with each entry: the database notes
	// it in the same transaction.
	writer string
	ends   []int64
	spool  *spoolFile // nil: it never was in a spool
	old    bool       // it was read from a log
}

// memory is what the writer knows of runs and parts, so that it need not ask. What it
// has is what the database has after the last commit.
type memory struct {
	runs  map[string]*history.Run // by id
	parts map[string]*ownPart     // by fire and host
	tails map[string]*tail        // by run
}

// ownPart is a part and the runs that count for it.
type ownPart struct {
	history.Part
	runs map[string]bool // ids
	// whole: no run of the part is unknown.
	whole bool
}

// mostKnown bounds the memory: what ended goes first.
const mostKnown = 50_000

func newMemory() *memory {
	return &memory{runs: make(map[string]*history.Run), parts: make(map[string]*ownPart), tails: make(map[string]*tail)}
}

// shrink forgets what the next events are not about.
func (m *memory) shrink() {
	for id, r := range m.runs {
		if !r.Ended.IsZero() && (r.Completed || len(m.runs) > mostKnown) && m.parts[partKey(r.Key().String(), r.Host)] == nil {
			delete(m.runs, id)
		}
	}
	for key, p := range m.parts {
		if !p.Ended.IsZero() {
			delete(m.parts, key)
		}
	}
	if len(m.runs) > 2*mostKnown || len(m.parts) > mostKnown {
		clear(m.runs)
		clear(m.parts)
	}
	if len(m.tails) > mostKnown {
		clear(m.tails)
	}
}

func partKey(fire, host string) string { return fire + "\x00" + host }

// commit writes a chunk in one transaction.
func (s *loader) commit(ctx context.Context, c chunk) (err error) {
	if err := s.partitions(ctx, c.entries); err != nil {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // the first error says more
			s.memory = newMemory()
			clear(s.days) // they may have been purged
		}
	}()
	w := &writing{loader: s, tx: s.narrow(tx), memory: s.memory, runs: make(map[string]bool), parts: make(map[string]bool)}
	if err := w.write(ctx, c.entries); err != nil {
		return err
	}
	position := insert{table: "wasmjob_writers", columns: []string{"id", "position", "seen"}, keys: []string{"id"}}
	position.rows = [][]any{{c.writer, c.ends[len(c.ends)-1], time.Now().UnixNano()}}
	if err := position.run(ctx, s.dialect, w.tx, &s.fit); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.memory.shrink()
	return nil
}

// position is how far a writer has come by the database; 0 if it has not begun.
func (s *loader) position(ctx context.Context, writer string) (n int64, err error) {
	err = s.db.QueryRowContext(ctx, s.dialect.bind("SELECT COALESCE(MAX(position), 0) FROM wasmjob_writers WHERE id = ?"), writer).Scan(&n)
	return n, err
}

// writing is one transaction.
type writing struct {
	loader *loader
	tx     querier
	memory *memory
	// runs and parts that changed.
	runs, parts map[string]bool
	failed      []*history.Run // failed just now
	moved       []moved        // in the order in which they were
	// runRows and partRows are what is to be written.
	runRows, partRows [][]any
}

// moved is a run that began earlier than was known: the host that it was taken over from reports
// late.
type moved struct {
	id       string
	from, to time.Time
	lag      time.Duration
}

func (w *writing) write(ctx context.Context, entries []history.Entry) error {
	if err := w.know(ctx, entries); err != nil {
		return err
	}
	events := insert{table: "wasmjob_events", columns: eventColumns}
	lines := insert{table: "wasmjob_logs", columns: lineColumns}
	changes := insert{table: "wasmjob_audit", columns: changeColumns}
	var gone []*event.Event
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Event != nil:
			events.rows = append(events.rows, eventRow(e.Event, e.JSON))
			w.fold(e.Event)
			if history.AboutGone(*e.Event) {
				w.abandon(e.Event)
				gone = append(gone, e.Event)
			}
		case e.Line != nil:
			lines.rows = append(lines.rows, lineRow(e.Line))
		case e.Change != nil:
			changes.rows = append(changes.rows, changeRow(e.Change, e.JSON))
		}
	}
	if len(gone) > 0 {
		if err := w.abandonRows(ctx, gone); err != nil {
			return err
		}
	}
	if err := w.move(ctx); err != nil {
		return err
	}
	for id := range w.runs {
		w.runRows = append(w.runRows, runRow(w.memory.runs[id]))
	}
	if err := w.changedParts(ctx); err != nil {
		return err
	}
	runs := insert{table: "wasmjob_items", columns: runColumns, keys: []string{"id", "begun"}, fenced: true, rows: w.runRows}
	parts := insert{table: "wasmjob_executions", columns: partColumns, keys: []string{"fire", "host", "begun"}, rows: w.partRows}
	all := []*insert{&events, &lines, &changes, &runs, &parts}
	if w.loader.config.ElasticJob {
		all = append(all, w.traces(entries)...)
	}
	for _, in := range all {
		// Hosts lock rows in one order, or they lock each other out.
		if len(in.keys) > 0 {
			slices.SortFunc(in.rows, func(a, b []any) int { return strings.Compare(text(a[0]), text(b[0])) })
		}
		if err := in.run(ctx, w.loader.dialect, w.tx, &w.loader.fit); err != nil {
			return err
		}
	}
	if err := w.keepLines(ctx); err != nil {
		return err
	}
	return w.trim(ctx, entries)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// know reads the runs that the events are about and that the memory does not have.
func (w *writing) know(ctx context.Context, entries []history.Entry) error {
	wanted := make(map[string]bool)
	var ids []any
	earliest := time.Now()
	for i := range entries {
		e := entries[i].Event
		if e == nil || !history.AboutRun(*e) || wanted[e.RunID] {
			continue
		}
		// When a run began first that was taken over, its last host may report meanwhile.
		if r := w.memory.runs[e.RunID]; r != nil && (r.Source != abi.SourceFailover || !r.First.IsZero()) {
			continue
		}
		wanted[e.RunID] = true
		ids = append(ids, clip(e.RunID, mostID))
		if from := e.Instant.Add(-clockSlack); from.Before(earliest) {
			earliest = from
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), 500)
		if err := w.read(ctx, "id IN (?"+strings.Repeat(", ?", n-1)+") AND begun >= ?", append(slices.Clone(ids[:n]), nanos(earliest))...); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// clockSlack is how much earlier than its instant a run may have begun by another
// host's clock.
const clockSlack = time.Hour

// read reads runs into the memory; of those with one id, the newest.
func (w *writing) read(ctx context.Context, where string, args ...any) (err error) {
	rows, err := w.tx.QueryContext(ctx, w.loader.dialect.bind("SELECT "+strings.Join(runColumns, ", ")+" FROM wasmjob_items WHERE "+where+" ORDER BY begun"), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scanRun(rows)
		if err != nil {
			return err
		}
		w.memory.runs[r.ID] = &r
	}
	return rows.Err()
}

// fold changes runs and parts by an event.
func (w *writing) fold(e *event.Event) {
	m := w.memory
	if history.AboutRun(*e) {
		r := m.runs[e.RunID]
		if r != nil && r.Reused(*e) {
			w.runRows = append(w.runRows, runRow(r))
			r = nil
		}
		if r == nil {
			r = new(history.Run)
			m.runs[e.RunID] = r
		}
		was, at, superseded := r.Failed(), r.At(), r.Supersedes(*e)
		r.Apply(*e)
		switch {
		case !superseded:
			w.runs[e.RunID] = true
		case !r.At().Equal(at):
			w.moved = append(w.moved, moved{r.ID, at, r.At(), r.Lag})
		}
		key := partKey(r.Key().String(), r.Host)
		if r.Failed() && !was {
			w.failed = append(w.failed, r)
			w.parts[key] = true // its fire is found by that, whatever else runs
		}
		if p := m.parts[key]; p != nil {
			p.runs[r.ID] = true
		}
		if e.Kind == event.ItemSkipped || e.Kind == event.ItemHeld { // its host will not end the part
			w.parts[key] = true
		}
	}
	if history.AboutPart(*e) {
		key := partKey(history.KeyOf(*e).String(), e.Host)
		p := m.parts[key]
		if p != nil && p.Reused(&history.Part{Instant: e.Instant}) {
			w.count(p)
			w.partRows = append(w.partRows, partRow(&p.Part))
			p = nil
		}
		if p == nil {
			p = &ownPart{runs: make(map[string]bool), whole: e.Kind == event.FireStarted}
			m.parts[key] = p
		}
		p.Apply(*e)
		w.parts[key] = true
	}
}

// move changes the rows of runs that began earlier: the key, and no more, since the host that has
// the run may have written more meanwhile.
func (w *writing) move(ctx context.Context) error {
	for _, m := range w.moved {
		statement := "UPDATE wasmjob_items SET repeated = CASE WHEN repeated = 0 THEN begun ELSE repeated END, begun = ?, lag = ? WHERE id = ? AND begun = ?"
		if _, err := w.tx.ExecContext(ctx, w.loader.dialect.bind(statement), nanos(m.to), int64(m.lag), clip(m.id, mostID), nanos(m.from)); err != nil {
			return err
		}
	}
	return nil
}

// abandon ends what has not ended of hosts that are over by an event, in the memory.
func (w *writing) abandon(e *event.Event) {
	shared := w.loader.config.Shared()
	for id, r := range w.memory.runs {
		if r.Abandon(*e, shared) {
			w.runs[id] = true
			w.failed = append(w.failed, r)
		}
	}
	for key, p := range w.memory.parts {
		if p.Abandon(*e, shared) {
			w.parts[key] = true
		}
	}
}

// abandonRows does the same in the tables, for rows that the memory does not have. A row that its
// host has ended meanwhile stays as it is. The rows of all events are ended in one order.
func (w *writing) abandonRows(ctx context.Context, gone []*event.Event) error {
	shared := w.loader.config.Shared()
	runs, err := openRows(ctx, w, "wasmjob_items", runColumns, scanRun)
	if err != nil {
		return err
	}
	for i := range runs {
		r := &runs[i]
		over := func(e *event.Event) bool { return r.Abandon(*e, shared) }
		if w.memory.runs[r.ID] != nil || !slices.ContainsFunc(gone, over) {
			continue
		}
		if err := w.end(ctx, "wasmjob_items", r.Ended, r.Message, "id = ? AND begun = ?", clip(r.ID, mostID), nanos(r.At())); err != nil {
			return err
		}
		w.failed = append(w.failed, r)
	}
	parts, err := openRows(ctx, w, "wasmjob_executions", partColumns, scanPart)
	if err != nil {
		return err
	}
	for i := range parts {
		p := &parts[i]
		over := func(e *event.Event) bool { return p.Abandon(*e, shared) }
		if w.memory.parts[partKey(p.fire, p.Host)] != nil || !slices.ContainsFunc(gone, over) {
			continue
		}
		if err := w.end(ctx, "wasmjob_executions", p.Ended, p.Message, "fire = ? AND host = ? AND begun = ?", clip(p.fire, mostID), clip(p.Host, mostName), nanos(p.Begun)); err != nil {
			return err
		}
	}
	return nil
}

// openRows reads the rows of a table that have not ended, in the order in which hosts lock them.
func openRows[T any](ctx context.Context, w *writing, table string, columns []string, scan func(scanner) (T, error)) (list []T, err error) {
	rows, err := w.tx.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table+" WHERE ended = 0 ORDER BY "+columns[0])
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, rows.Err()
}

// end ends a row of which nothing else is known.
func (w *writing) end(ctx context.Context, table string, at time.Time, message, where string, key ...any) error {
	_, err := w.tx.ExecContext(ctx, w.loader.dialect.bind("UPDATE "+table+" SET ended = ?, outcome = ?, failed = 1, message = ? WHERE ended = 0 AND "+where),
		append([]any{nanos(at), string(history.Unknown), message}, key...)...)
	return err
}

// changedParts makes the rows of parts that changed.
func (w *writing) changedParts(ctx context.Context) error {
	for key := range w.parts {
		p := w.memory.parts[key]
		if p == nil || !p.whole {
			var err error
			if p, err = w.readPart(ctx, key, p); err != nil {
				return err
			}
			if p == nil {
				continue
			}
		}
		w.count(p)
		w.partRows = append(w.partRows, partRow(&p.Part))
	}
	return nil
}

// readPart reads a part whose begin the memory does not have, and its runs. now is what the
// memory has of its end, nil if nothing. It returns nil if there is no such part.
func (w *writing) readPart(ctx context.Context, key string, now *ownPart) (*ownPart, error) {
	fire, host, _ := strings.Cut(key, "\x00")
	row := w.tx.QueryRowContext(ctx, w.loader.dialect.bind("SELECT "+strings.Join(partColumns, ", ")+" FROM wasmjob_executions WHERE fire = ? AND host = ? ORDER BY begun DESC LIMIT 1"),
		clip(fire, mostID), clip(host, mostName))
	found, err := scanPart(row)
	if err == sql.ErrNoRows {
		return now, nil
	}
	if err != nil {
		return nil, err
	}
	p := &ownPart{Part: found.Part, runs: make(map[string]bool), whole: true}
	if now != nil {
		p.Ended, p.Outcome = now.Ended, now.Outcome
	}
	if err := w.read(ctx, "id > ? AND id < ? AND begun >= ?", fire+"/", fire+"0", nanos(p.Begun.Add(-clockSlack))); err != nil {
		return nil, err
	}
	for id, r := range w.memory.runs {
		if r.Host == host && strings.HasPrefix(id, fire+"/") {
			p.runs[id] = true
		}
	}
	return p, nil
}

// count makes a part's outcome and numbers from its runs.
func (w *writing) count(p *ownPart) {
	var runs []history.Run
	over := !p.Ended.IsZero()
	for id := range p.runs {
		r := w.memory.runs[id]
		if r == nil || r.Host != p.Host {
			continue
		}
		runs = append(runs, *r)
		if r.Outcome == history.Lost || r.Outcome == history.Held {
			over = true // no FireEnded comes
		}
	}
	if len(runs) == 0 {
		return
	}
	sum := history.Sum(nil, runs)
	p.Succeeded, p.Failed = sum.Succeeded, sum.Failed
	if over && sum.Running == 0 {
		p.Ended = sum.Ended
	}
	if p.Ended.IsZero() || (sum.Outcome != "" && p.Outcome != abi.OutcomeOK) {
		p.Outcome, p.Message = sum.Outcome, sum.Message
	}
}

// keepLines has the lines of runs that failed kept as long as the runs.
func (w *writing) keepLines(ctx context.Context) error {
	for _, r := range w.failed {
		_, err := w.tx.ExecContext(ctx, w.loader.dialect.bind("UPDATE wasmjob_logs SET keep = 1 WHERE run = ? AND time >= ?"), clip(r.ID, mostID), nanos(r.At().Add(-clockSlack)))
		if err != nil {
			return err
		}
	}
	return nil
}

// tail is what a run has logged: pieces of a quarter of what is kept.
type tail struct {
	pieces []piece // oldest first
}

type piece struct {
	from  int64 // time of its first line
	bytes int
}

// pieceBytes is the size of a piece, mostPieces how many a run may have before the
// oldest are deleted down to leastPieces.
const (
	pieceBytes  = history.TailBytes / 4
	leastPieces = 5 // the newest may be nearly empty
	mostPieces  = 4 * leastPieces
)

// trim deletes the beginning of the logs of runs that log on and on.
func (w *writing) trim(ctx context.Context, entries []history.Entry) error {
	for i := range entries {
		if l := entries[i].Line; l != nil {
			w.memory.noteLine(l)
		}
	}
	for run, t := range w.memory.tails {
		if len(t.pieces) < mostPieces {
			continue
		}
		t.pieces = slices.Clone(t.pieces[len(t.pieces)-leastPieces:])
		_, err := w.tx.ExecContext(ctx, w.loader.dialect.bind("DELETE FROM wasmjob_logs WHERE run = ? AND time < ?"), clip(run, mostID), t.pieces[0].from)
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) noteLine(l *history.Line) {
	t := m.tails[l.RunID]
	if t == nil {
		t = new(tail)
		m.tails[l.RunID] = t
	}
	if n := len(t.pieces); n == 0 || t.pieces[n-1].bytes >= pieceBytes {
		t.pieces = append(t.pieces, piece{from: nanos(l.Time)})
	}
	last := &t.pieces[len(t.pieces)-1]
	last.bytes += len(l.Message)
	for _, a := range l.Attrs {
		last.bytes += len(a)
	}
}
