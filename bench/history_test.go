package bench_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/test/mariadbserver"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// BenchmarkHistory is a host with 143 jobs that all fire at every full second, each with 4
// items, which are 2,000 events a second, with each kind of history and with none. The
// database servers are on the same machine, and take of it what they need. One operation is
// 20 seconds, or HISTORY_SECONDS.
func BenchmarkHistory(b *testing.B) {
	seconds := 20
	if n, err := strconv.Atoi(os.Getenv("HISTORY_SECONDS")); err == nil {
		seconds = n
	}
	asTheProgram(b)
	g := cGuest(b)
	inDatabase := func(b *testing.B, url, credentials string) history.Store {
		config, err := database.Parse(url, credentials)
		if err != nil {
			b.Fatal(err)
		}
		s, err := database.Open(b.Context(), database.Options{Config: config, Spool: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	onHost := func(b *testing.B, config *database.Config, err error) history.Store {
		if err != nil {
			b.Fatal(err)
		}
		s, err := database.Open(b.Context(), database.Options{Config: config})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	for _, h := range []struct {
		name string
		open func(*testing.B) history.Store
	}{
		{"none", nil},
		{"memory", func(b *testing.B) history.Store { return onHost(b, database.InMemory(), nil) }},
		{"file", func(b *testing.B) history.Store {
			config, err := database.InFile(filepath.Join(b.TempDir(), "h.jsonl"))
			return onHost(b, config, err)
		}},
		{"SQLite", func(b *testing.B) history.Store {
			return inDatabase(b, "sqlite:"+filepath.Join(b.TempDir(), "h.db"), "")
		}},
		{"PostgreSQL", func(b *testing.B) history.Store {
			p := pgserver.ForTest(b)
			return inDatabase(b, p.URL(), pgserver.User+":"+p.Password)
		}},
		{"MariaDB", func(b *testing.B) history.Store {
			m := mariadbserver.ForTest(b)
			return inDatabase(b, m.URL(), mariadbserver.User+":"+m.Password)
		}},
		{"dead", func(b *testing.B) history.Store {
			return inDatabase(b, "postgres://127.0.0.1:1/x?sslmode=disable", "u:p")
		}},
	} {
		b.Run("history="+h.name, func(b *testing.B) {
			var keep func(event.Event)
			var s history.Store
			if h.open != nil {
				s = h.open(b)
				b.Cleanup(func() { _ = s.Close() })
				keep = s.AddEvent
			}
			for b.Loop() {
				l := loadKeeping(b, g, memory, 143, seconds, keep)
				tenth := len(l.start) / 10
				slices.Clone(l.start[:tenth]).report(b, "first-tenth-start")
				slices.Clone(l.start[len(l.start)-tenth:]).report(b, "last-tenth-start")
				l.report(b)
			}
			if s != nil {
				b.ReportMetric(float64(s.State().Dropped), "dropped")
				b.ReportMetric(float64(s.State().Queued+s.State().Spooled), "waiting")
			}
		})
	}
}
