package database

import (
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/mariadbserver"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// benchRuns is how many runs the benchmarks look through.
const benchRuns = 1_000_000

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
		fill(b, s, benchRuns, 1, end)
		for _, q := range questions(b, s, end) {
			b.Run(strings.ReplaceAll(q.name, " ", "-"), func(b *testing.B) {
				var took []time.Duration
				found := 0
				for n := 0; b.Loop(); n++ {
					began := time.Now()
					records, _, err := q.ask(n)
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
		// As if another host purged: else the store begins to while it is filled.
		if ok, err := s.dialect.locked(b.Context(), s.db, false, func(*sql.Conn) error {
			fill(b, s, 2_000_000, 1, now.Add(-9*day)) // two rows each, an event, and two lines
			return nil
		}); !ok || err != nil {
			b.Fatal(ok, err)
		}
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
