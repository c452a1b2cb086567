package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/history"
)

// What is looked through: very many runs, over six days and a thousand jobs, of which one in 500
// failed, and lines, events and changes of some of them.
const (
	manyJobs = 1000
	manyDays = 6
)

// fill makes the runs by SQL, and two lines, an event and a change of one in each.
func fill(tb testing.TB, s *Store, runs, each int, end time.Time) {
	tb.Helper()
	ctx := tb.Context()
	step := int64(manyDays*day) / int64(runs)
	first := nanos(end) - int64(runs)*step
	numbers := map[dialect]string{
		sqlite:   fmt.Sprintf("WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < %d)", runs-1),
		postgres: fmt.Sprintf("WITH n AS (SELECT generate_series(0, %d)::bigint AS n)", runs-1),
		mySQL:    fmt.Sprintf("WITH n AS (SELECT seq AS n FROM seq_0_to_%d)", runs-1),
	}[s.dialect]
	if s.dialect == postgres {
		for d := dayOf(first); d <= dayOf(nanos(end)); d++ {
			if err := s.loader.makeDay(ctx, d); err != nil {
				tb.Fatal(err)
			}
		}
	}
	cat := func(parts ...string) string {
		if s.dialect == mySQL {
			return "CONCAT(" + strings.Join(parts, ", ") + ")"
		}
		return strings.Join(parts, " || ")
	}
	at := fmt.Sprintf("(%d + n * %d)", first, step)
	job := cat("'job-'", fmt.Sprintf("(n %% %d)", manyJobs))
	fire := cat("'job-'", fmt.Sprintf("(n %% %d)", manyJobs), "'/t'", "(n + 1)")
	id := cat("'job-'", fmt.Sprintf("(n %% %d)", manyJobs), "'/t'", "(n + 1)", "'/0'")
	failed := "(CASE WHEN n % 500 = 7 THEN 1 ELSE 0 END)"
	outcome := "(CASE WHEN n % 500 = 7 THEN 'TRAP' ELSE 'OK' END)"
	message := "(CASE WHEN n % 500 = 7 THEN 'unreachable code was reached in the sum of a column' ELSE '' END)"
	into := func(table string, columns []string, each int, values string) {
		values += fmt.Sprintf(" FROM n WHERE n %% %d = 0", each)
		statement := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") " + numbers + " SELECT " + values
		if s.dialect != mySQL {
			statement = numbers + " INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") SELECT " + values
		}
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			tb.Fatalf("%s: %v", table, err)
		}
	}
	into("wasmjob_items", runColumns, 1, fmt.Sprintf("%s, %s, 0, %s, n + 1, 'trigger', '10.0.0.1@-@7-abc', 1, %s, 0, %s + 1000000000, 1000000000, 0, %s, %s, 1, %s, n, 'ce9461dd88ea', '', 1048576, 0, 0, 0, ''", id, job, at, at, at, outcome, failed, message))
	into("wasmjob_executions", partColumns, 1, fmt.Sprintf("%s, %s, %s, n + 1, 'trigger', '10.0.0.1@-@7-abc', '[0]', 1, %s, %s + 1000000000, 0, 1 - %s, %s, %s, %s, %s", fire, job, at, at, at, failed, failed, outcome, failed, message))
	for range 2 {
		into("wasmjob_logs", lineColumns, each, fmt.Sprintf("%s, %s, %s, 0, '10.0.0.1@-@7-abc', 0, %s, %s, '', 0", at, job, id, failed, cat("'imported '", "n", "' rows from the table of cities, in batches'")))
	}
	data := cat("'{\"job\":\"job-'", fmt.Sprintf("(n %% %d)", manyJobs), "'\"}'")
	into("wasmjob_events", eventColumns, each, fmt.Sprintf("%s, 'item.ended', '10.0.0.1@-@7-abc', %s, %s, 0, %s, n + 1, %s, %s, '', %s", at, job, id, at, outcome, failed, data))
	into("wasmjob_audit", changeColumns, each, fmt.Sprintf("%s, 'ann', '10.0.0.2', 'trigger', %s, 0, '', 0, %s", at, job, data))
	analyze := map[dialect]string{postgres: "ANALYZE", mySQL: "ANALYZE TABLE wasmjob_items, wasmjob_executions, wasmjob_logs, wasmjob_events, wasmjob_audit"}[s.dialect]
	if analyze == "" {
		return
	}
	if _, err := s.db.ExecContext(ctx, analyze); err != nil { // a server does it by itself, later
		tb.Fatal(err)
	}
}

// question is what a page asks; more says that there is a next page.
type question struct {
	name string
	ask  func(n int) (records int, more bool, err error)
}

// questions are what pages ask of what fill has made; n makes them differ.
func questions(tb testing.TB, s *Store, end time.Time) []question {
	return []question{
		{"latest runs of a job", func(n int) (int, bool, error) {
			return asked(s.Runs(tb.Context(), history.Filter{Jobs: []string{fmt.Sprint("job-", n%manyJobs)}}))
		}},
		{"latest fires of a job", func(n int) (int, bool, error) {
			return asked(s.Fires(tb.Context(), history.Filter{Jobs: []string{fmt.Sprint("job-", n%manyJobs)}}))
		}},
		{"latest fires of all jobs", func(int) (int, bool, error) { return asked(s.Fires(tb.Context(), history.Filter{})) }},
		{"failed runs of all jobs", func(n int) (int, bool, error) {
			return asked(s.Runs(tb.Context(), history.Filter{Failed: true, To: end.Add(-time.Duration(n%100) * time.Hour)}))
		}},
		{"failed fires of a pattern", func(int) (int, bool, error) {
			return asked(s.Fires(tb.Context(), history.Filter{Failed: true, Jobs: []string{"job-?07"}}))
		}},
		{"a time window", func(n int) (int, bool, error) {
			from := end.Add(-time.Duration(1+n%140) * time.Hour)
			return asked(s.Runs(tb.Context(), history.Filter{From: from, To: from.Add(10 * time.Minute), Limit: 1000}))
		}},
		{"runs of a host that has none", func(int) (int, bool, error) { return asked(s.Runs(tb.Context(), history.Filter{Host: "nowhere"})) }},
		{"a run", func(n int) (int, bool, error) {
			return asked(s.Runs(tb.Context(), history.Filter{Run: fmt.Sprintf("job-%d/t%d/0", n%manyJobs, n%manyJobs+1)}))
		}},
		{"lines of a run", func(n int) (int, bool, error) {
			return asked(s.Lines(tb.Context(), history.Filter{Run: fmt.Sprintf("job-%d/t%d/0", n%manyJobs, n%manyJobs+1)}))
		}},
		{"a text that is often in lines", func(int) (int, bool, error) { return asked(s.Lines(tb.Context(), history.Filter{Text: "CITIES"})) }},
		{"a text that is in no line", func(int) (int, bool, error) { return asked(s.Lines(tb.Context(), history.Filter{Text: "nowhere"})) }},
		{"a text in the lines of a job", func(n int) (int, bool, error) {
			return asked(s.Lines(tb.Context(), history.Filter{Text: "nowhere", Jobs: []string{fmt.Sprint("job-", n%manyJobs)}}))
		}},
		{"fires that run", func(int) (int, bool, error) { return asked(s.Fires(tb.Context(), history.Filter{Running: true})) }},
		{"runs of items that run", func(int) (int, bool, error) { return asked(s.Runs(tb.Context(), history.Filter{Running: true})) }},
		{"what is usual for a job", func(n int) (int, bool, error) {
			return asked(s.Fires(tb.Context(), history.Filter{Jobs: []string{fmt.Sprint("job-", n%manyJobs)}, Outcomes: []abi.Outcome{abi.OutcomeOK}, Limit: 25}))
		}},
		{"runs by outcome", func(int) (int, bool, error) {
			return asked(s.Runs(tb.Context(), history.Filter{Outcomes: []abi.Outcome{abi.OutcomeTrap}}))
		}},
		{"events of a job", func(n int) (int, bool, error) {
			return asked(s.Events(tb.Context(), history.Filter{Jobs: []string{fmt.Sprint("job-", n%manyJobs)}}))
		}},
		{"a text that is in no event", func(int) (int, bool, error) { return asked(s.Events(tb.Context(), history.Filter{Text: "nowhere"})) }},
		{"changes of all jobs", func(int) (int, bool, error) { return asked(s.Changes(tb.Context(), history.Filter{})) }},
		{"a text that is in no change", func(int) (int, bool, error) { return asked(s.Changes(tb.Context(), history.Filter{Text: "nowhere"})) }},
		{"the largest page of fires", func(int) (int, bool, error) {
			return asked(s.Fires(tb.Context(), history.Filter{Limit: history.MaxLimit}))
		}},
		{"fires of a host that has none", func(int) (int, bool, error) { return asked(s.Fires(tb.Context(), history.Filter{Host: "nowhere"})) }},
	}
}

func asked[T any](p history.Page[T], err error) (int, bool, error) {
	return len(p.Records), p.Next != "", err
}

// TestManyRuns: what is read for a page, and the memory that it takes, have bounds that do not depend on
// how many runs there are; and what is found only by looking at many rows is asked for in parts. The
// servers count the rows that they read; SQLite says by which index it finds them. BenchmarkPages has a
// million runs and milliseconds.
func TestManyRuns(t *testing.T) { // beside no other, for its memory
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		s := openStore(t, url, credentials, t.TempDir())
		runs, each := 100_000, 10 // of the smallest table there are 10,000 rows
		if s.dialect == sqlite {  // how it finds rows does not depend on how many there are
			runs, each = 3000, 1
		}
		end := time.Now()
		fill(t, s, runs, each, end)
		s.db.SetMaxOpenConns(1)    // the session whose rows are counted
		s.lookTime = 0             // one look is a part
		if s.dialect == postgres { // a table of this size is cheaper to read as a whole than by 500 names
			if _, err := s.db.ExecContext(t.Context(), "SET enable_seqscan = off"); err != nil {
				t.Fatal(err)
			}
		}
		plans := explain(t, s)
		for _, q := range questions(t, s, end) {
			most := 5000
			if strings.HasPrefix(q.name, "the largest page") {
				// The rows of a day and a bit for each 500 names, where a server finds that cheaper than to look up each.
				most = 80 * history.MaxLimit
			}
			rows, bytes := rowsRead(t, s), allocated()
			records, more, err := q.ask(7)
			if err != nil {
				t.Fatal(q.name, err)
			}
			if rows = rowsRead(t, s) - rows; rows > most {
				t.Errorf("%s: %d rows were read for %d records, want %d at most", q.name, rows, records, most)
			}
			if bytes = allocated() - bytes; bytes > 100<<20 {
				t.Errorf("%s: %d MiB were allocated for %d records", q.name, bytes>>20, records)
			}
			if strings.Contains(q.name, "none") && (records > 0 || !more) {
				t.Errorf("%s: %d records, and more is %v, after the first part", q.name, records, more)
			}
			part := strings.Contains(q.name, " a job") || strings.Contains(q.name, "a run") || strings.Contains(q.name, " window")
			for _, p := range plans() {
				if scans := strings.HasPrefix(p, "SCAN "); scans && (part || !strings.Contains(p, " USING ")) {
					t.Errorf("%s: %s", q.name, p)
				}
			}
		}
	})
}

// explain has SQLite say how it finds what it is asked, since it was asked last; others say nothing.
func explain(t *testing.T, s *Store) (plans func() []string) {
	t.Helper()
	var list []string
	if s.dialect == sqlite {
		p := *s.pool
		p.db = sql.OpenDB(&explainer{s.db.Driver(), s.config.path, &list})
		was := s.pool
		s.pool = &p
		t.Cleanup(func() {
			s.pool = was
			if err := p.db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return func() []string {
		said := list
		list = nil
		return said
	}
}

// explainer makes connections that note how each query is carried out.
type explainer struct {
	driver driver.Driver
	path   string
	plans  *[]string
}

func (e *explainer) Driver() driver.Driver { return e.driver }

func (e *explainer) Connect(context.Context) (driver.Conn, error) {
	c, err := e.driver.Open("file:" + e.path)
	return explained{c, e.plans}, err
}

type explained struct {
	driver.Conn
	plans *[]string
}

func (c explained) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	q, ok := c.Conn.(driver.QueryerContext)
	if !ok {
		return nil, driver.ErrSkip
	}
	rows, err := q.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args)
	if err != nil {
		return nil, err
	}
	for row := make([]driver.Value, len(rows.Columns())); rows.Next(row) == nil; {
		*c.plans = append(*c.plans, fmt.Sprint(row[len(row)-1]))
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	return q.QueryContext(ctx, query, args)
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// rowsRead is how many rows a database has read so far for all tables of the history, or entries of
// their indexes.
func rowsRead(t *testing.T, s *Store) int {
	t.Helper()
	switch s.dialect {
	case postgres:
		if _, err := s.db.ExecContext(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			t.Fatal(err)
		}
		return count(t, s, "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)")
	case mySQL:
		return count(t, s, "SELECT CAST(sum(VARIABLE_VALUE) AS UNSIGNED) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'HANDLER\\_READ%'")
	}
	return 0
}
