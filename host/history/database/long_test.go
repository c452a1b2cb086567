package database

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkLongFile asks the history of a file of about 200 MiB of text, or HISTORY_MIB, in which 40 jobs run, one of them
// every ten minutes. cpu-ms is the processor time of an answer, which is one page.
func BenchmarkLongFile(b *testing.B) {
	mib := 200
	if n, err := strconv.Atoi(os.Getenv("HISTORY_MIB")); err == nil {
		mib = n
	}
	c, err := InFile(filepath.Join(b.TempDir(), "h.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(b.Context(), Options{Config: c, MaxBytes: int64(mib) << 23})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	const runBytes = 1500 // of text, about
	runs := mib << 20 / runBytes
	end := time.Now()
	begun, before := end, processorTime(b)
	for n := range runs {
		job := "job-" + strconv.Itoa(n%40)
		if n%6000 == 7 {
			job = "rare"
		}
		outcome := abi.OutcomeOK
		if n%500 == 9 {
			outcome = abi.OutcomeFail
		}
		aRun(s, job, "10.0.0.1@-@7-abc", end.Add(time.Duration(n-runs)*100*time.Millisecond), outcome)
		if n%200 == 0 {
			s.feed.Sync(b.Context())
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	for state := s.State(); state.Queued+state.Spooled > 0; state = s.State() {
		<-tick.C
	}
	tick.Stop()
	b.Logf("%d runs in %s, %d µs of processor time each", runs, time.Since(begun).Round(time.Second), (processorTime(b)-before).Microseconds()/int64(runs))
	rare := []string{"rare"}
	instant := end.Add(time.Duration(7-runs+6000*(runs/12000)) * 100 * time.Millisecond)
	for _, q := range []struct {
		name string
		ask  func() (int, bool, error)
	}{
		{"runs of a rare job", func() (int, bool, error) { return asked(s.Runs(b.Context(), history.Filter{Jobs: rare})) }},
		{"fires of a rare job", func() (int, bool, error) { return asked(s.Fires(b.Context(), history.Filter{Jobs: rare})) }},
		{"failed runs of a rare job", func() (int, bool, error) {
			return asked(s.Runs(b.Context(), history.Filter{Jobs: rare, Failed: true}))
		}},
		{"why: what was of a job around a time", func() (int, bool, error) {
			return asked(s.Events(b.Context(), history.Filter{Jobs: rare, From: instant.Add(-time.Hour), To: instant.Add(time.Hour), Limit: history.MaxLimit}))
		}},
		{"why: what was of its host", func() (int, bool, error) {
			return asked(s.Events(b.Context(), history.Filter{Kinds: []event.Kind{event.HostStarted, event.HostGone, event.Session}, From: instant.Add(-time.Hour), To: instant}))
		}},
		{"a text that is in no line", func() (int, bool, error) { return asked(s.Lines(b.Context(), history.Filter{Text: "nowhere"})) }},
		{"a text in lines of a rare job", func() (int, bool, error) {
			return asked(s.Lines(b.Context(), history.Filter{Jobs: rare, Text: "nowhere"}))
		}},
		{"a text that is in no run", func() (int, bool, error) { return asked(s.Runs(b.Context(), history.Filter{Text: "nowhere"})) }},
		{"the oldest page of all", func() (int, bool, error) { return asked(s.Events(b.Context(), history.Filter{Oldest: true})) }},
	} {
		b.Run(q.name, func(b *testing.B) {
			before, records := processorTime(b), 0
			for b.Loop() {
				n, _, err := q.ask()
				if err != nil {
					b.Fatal(err)
				}
				records = n
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms")
			b.ReportMetric(float64(records), "records")
		})
	}
}
