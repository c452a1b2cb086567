package database

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/test/mariadbserver"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// What the benchmarks look through: runs of a million, over six days and a thousand jobs,
// of which one in 500 failed and each has logged two lines.
const (
	benchRuns = 1_000_000
	benchJobs = 1000
	benchDays = 6
)

// fill makes the runs by SQL.
func fill(b *testing.B, s *Store, runs int, end time.Time) {
	b.Helper()
	ctx := context.Background()
	step := int64(benchDays*day) / int64(runs)
	first := nanos(end) - int64(runs)*step
	numbers := map[kind]string{
		sqlite:   fmt.Sprintf("WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < %d)", runs-1),
		postgres: fmt.Sprintf("WITH n AS (SELECT generate_series(0, %d)::bigint AS n)", runs-1),
		mySQL:    fmt.Sprintf("WITH n AS (SELECT seq AS n FROM seq_0_to_%d)", runs-1),
	}[s.kind]
	if s.kind == postgres {
		for d := dayOf(first); d <= dayOf(nanos(end)); d++ {
			if err := s.loader.makeDay(ctx, d); err != nil {
				b.Fatal(err)
			}
		}
	}
	cat := func(parts ...string) string {
		if s.kind == mySQL {
			return "CONCAT(" + strings.Join(parts, ", ") + ")"
		}
		return strings.Join(parts, " || ")
	}
	at := fmt.Sprintf("(%d + n * %d)", first, step)
	job := cat("'job-'", fmt.Sprintf("(n %% %d)", benchJobs))
	fire := cat("'job-'", fmt.Sprintf("(n %% %d)", benchJobs), "'/t'", "(n + 1)")
	id := cat("'job-'", fmt.Sprintf("(n %% %d)", benchJobs), "'/t'", "(n + 1)", "'/0'")
	failed := "(CASE WHEN n % 500 = 7 THEN 1 ELSE 0 END)"
	outcome := "(CASE WHEN n % 500 = 7 THEN 'TRAP' ELSE 'OK' END)"
	message := "(CASE WHEN n % 500 = 7 THEN 'unreachable code was reached in the sum of a column' ELSE '' END)"
	into := func(table string, columns []string, values string) {
		statement := "INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") " + numbers + " SELECT " + values + " FROM n"
		if s.kind != mySQL {
			statement = numbers + " INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") SELECT " + values + " FROM n"
		}
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			b.Fatalf("%s: %v", table, err)
		}
	}
	into("wasmjob_items", runColumns, fmt.Sprintf("%s, %s, 0, %s, n + 1, 'trigger', '10.0.0.1@-@7-abc', 1, %s, %s + 1000000000, 1000000000, 0, %s, %s, 1, %s, n, 'ce9461dd88ea', '', 1048576, 0, 0, 0, ''", id, job, at, at, at, outcome, failed, message))
	into("wasmjob_executions", partColumns, fmt.Sprintf("%s, %s, %s, n + 1, 'trigger', '10.0.0.1@-@7-abc', '[0]', 1, %s, %s + 1000000000, 0, 1 - %s, %s, %s, %s, %s", fire, job, at, at, at, failed, failed, outcome, failed, message))
	for range 2 {
		into("wasmjob_logs", lineColumns, fmt.Sprintf("%s, %s, %s, 0, '10.0.0.1@-@7-abc', 0, %s, %s, '', 0", at, job, id, failed, cat("'imported '", "n", "' rows from the table of cities, in batches'")))
	}
	if s.kind == postgres {
		if _, err := s.db.ExecContext(ctx, "ANALYZE"); err != nil {
			b.Fatal(err)
		}
	}
}

// onEach runs a benchmark on each database.
func onEach(b *testing.B, run func(b *testing.B, s *Store)) {
	open := func(b *testing.B, url, credentials string) *Store {
		c, err := Parse(url, credentials)
		if err != nil {
			b.Fatal(err)
		}
		s, err := Open(b.Context(), Options{Config: c, Spool: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		return s
	}
	b.Run("SQLite", func(b *testing.B) { run(b, open(b, "sqlite:"+b.TempDir()+"/h.db", "")) })
	b.Run("PostgreSQL", func(b *testing.B) {
		p := pgserver.ForTest(b)
		run(b, open(b, p.URL(), pgserver.User+":"+p.Password))
	})
	b.Run("MariaDB", func(b *testing.B) {
		m := mariadbserver.ForTest(b)
		run(b, open(b, m.URL(), mariadbserver.User+":"+m.Password))
	})
}

// BenchmarkPages asks what pages ask, of a million runs. p95-ms is to be under 300.
func BenchmarkPages(b *testing.B) {
	onEach(b, func(b *testing.B, s *Store) {
		end := time.Now()
		fill(b, s, benchRuns, end)
		for _, q := range []struct {
			name string
			ask  func(n int) (int, error)
		}{
			{"latest runs of a job", func(n int) (int, error) {
				return asked(s.Runs(b.Context(), history.Filter{Jobs: []string{fmt.Sprint("job-", n%benchJobs)}}))
			}},
			{"latest fires of a job", func(n int) (int, error) {
				return asked(s.Fires(b.Context(), history.Filter{Jobs: []string{fmt.Sprint("job-", n%benchJobs)}}))
			}},
			{"latest fires of all jobs", func(int) (int, error) { return asked(s.Fires(b.Context(), history.Filter{})) }},
			{"failed runs of all jobs", func(n int) (int, error) {
				return asked(s.Runs(b.Context(), history.Filter{Failed: true, To: end.Add(-time.Duration(n%100) * time.Hour)}))
			}},
			{"failed fires of a pattern", func(int) (int, error) {
				return asked(s.Fires(b.Context(), history.Filter{Failed: true, Jobs: []string{"job-?07"}}))
			}},
			{"a time window", func(n int) (int, error) {
				from := end.Add(-time.Duration(1+n%140) * time.Hour)
				return asked(s.Runs(b.Context(), history.Filter{From: from, To: from.Add(10 * time.Minute), Limit: 1000}))
			}},
			{"runs of a host that has none", func(int) (int, error) { return asked(s.Runs(b.Context(), history.Filter{Host: "nowhere"})) }},
			{"a run", func(n int) (int, error) {
				return asked(s.Runs(b.Context(), history.Filter{Run: fmt.Sprintf("job-%d/t%d/0", n%benchJobs, n%benchJobs+1)}))
			}},
			{"lines of a run", func(n int) (int, error) {
				return asked(s.Lines(b.Context(), history.Filter{Run: fmt.Sprintf("job-%d/t%d/0", n%benchJobs, n%benchJobs+1)}))
			}},
			{"a text that is often in lines", func(int) (int, error) { return asked(s.Lines(b.Context(), history.Filter{Text: "CITIES"})) }},
			{"a text that is in no line", func(int) (int, error) { return asked(s.Lines(b.Context(), history.Filter{Text: "nowhere"})) }},
			{"a text in the lines of a job", func(n int) (int, error) {
				return asked(s.Lines(b.Context(), history.Filter{Text: "nowhere", Jobs: []string{fmt.Sprint("job-", n%benchJobs)}}))
			}},
			{"runs by outcome", func(int) (int, error) {
				return asked(s.Runs(b.Context(), history.Filter{Outcomes: []abi.Outcome{abi.OutcomeTrap}}))
			}},
		} {
			b.Run(strings.ReplaceAll(q.name, " ", "-"), func(b *testing.B) {
				var took []time.Duration
				found := 0
				for n := 0; b.Loop(); n++ {
					began := time.Now()
					records, err := q.ask(n)
					if err != nil {
						b.Fatal(err)
					}
					found += records
					took = append(took, time.Since(began))
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
				b.ReportMetric(float64(found)/float64(len(took)), "records")
			})
		}
	})
}

func asked[T any](p history.Page[T], err error) (int, error) { return len(p.Records), err }

// BenchmarkPurge deletes what ten million rows have that is too old: first the successes, of
// which one row in 500 stays, then the rest. One operation is both.
func BenchmarkPurge(b *testing.B) {
	p := pgserver.ForTest(b)
	c, err := Parse(p.URL(), pgserver.User+":"+p.Password)
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), Options{Config: c, Spool: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	now := time.Now()
	for b.Loop() {
		b.StopTimer()
		fill(b, s, 2_500_000, now.Add(-9*day)) // two rows each, and two lines
		b.StartTimer()
		began := time.Now()
		if err := s.cleaner.round(b.Context(), now); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "successes-s")
		began = time.Now()
		if err := s.cleaner.round(b.Context(), now.Add(100*day)); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "failures-s")
	}
}
