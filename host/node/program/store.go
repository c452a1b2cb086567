package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// historyCredentialsVariable is the environment variable with the credentials of the
// history's database. There is no flag for them: everybody on a machine can read command lines.
const historyCredentialsVariable = command.EnvPrefix + "HISTORY_CREDENTIALS"

// historySettings say where the host's history is kept.
func historySettings() []setting {
	where := textSetting("history", "FILE|URL", "", "keep what happens: in a file, one JSON object per line, or in a database: sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE (docs/history.md); without it the newest is kept in memory", func(c *Config) *string { return &c.History })
	where.set = checked(where.set, func(s string) error {
		if s == "" {
			return nil
		}
		if database.IsURL(s) {
			c, err := database.Parse(s, "")
			if err == nil && c.Path() != "" {
				err = directory(filepath.Dir(c.Path()))
			}
			return err
		}
		return directory(filepath.Dir(s))
	})
	where.show = func(c *Config) string { return database.Redact(c.History) }
	return []setting{
		where,
		{
			key: "historySize", arg: "SIZE", standard: "auto",
			help: "most that the history may take on this disk: the file with its older ones, SQLite's database, or what waits for a server; auto is 2 % of the disk, 64MiB to 4GiB",
			set:  setHistorySize,
			show: func(c *Config) string { return jobconfig.ShowSize(c.HistorySize) },
		},
		guestLogSetting(),
		textSetting("historyCredentialsFile", "FILE", "", "file with user:password for the history's database, or "+historyCredentialsVariable+" in the environment", func(c *Config) *string { return &c.HistoryCredentialsFile }),
	}
}

// guestLogSetting says where all that jobs log is kept.
func guestLogSetting() setting {
	s := textSetting("guestLog", "FILE", "", "keep all that jobs log in FILE, also what is beyond the limits of the history and of the host's own log; the file and its older ones take 2 % of the disk, 64MiB to 4GiB", func(c *Config) *string { return &c.GuestLog })
	s.set = checked(s.set, func(text string) error {
		if text == "" {
			return nil
		}
		return directory(filepath.Dir(text))
	})
	return s
}

// chooseHistory fits together what was said about the history.
func (l *loader) chooseHistory(c *Config, secret string) {
	if !database.IsURL(c.History) {
		if c.HistoryCredentialsFile != "" {
			l.bad("historyCredentialsFile", "has a meaning for databases only; name one with --history")
		}
		return
	}
	from, credentials := historyCredentialsVariable, secret
	if c.HistoryCredentialsFile != "" {
		if secret != "" {
			l.bad("historyCredentialsFile", "credentials are in %s, too; give them once", historyCredentialsVariable)
			return
		}
		read, warning, err := ensemble.ReadCredentials(c.HistoryCredentialsFile, "the history's")
		if err != nil {
			l.bad("historyCredentialsFile", "%w", err)
			return
		}
		if warning != "" {
			l.warnings = append(l.warnings, warning)
		}
		credentials, from = read, c.HistoryCredentialsFile
	}
	if credentials != "" {
		if err := ensemble.CheckCredentials(credentials, from); err != nil {
			l.problems.Add(err)
			return
		}
	}
	parsed, err := database.Parse(c.History, credentials)
	if err != nil {
		l.bad("history", "%w", err)
		return
	}
	switch {
	case parsed.Password && credentials != "":
		l.bad("history", "the URL has a password, and there are credentials in %s, too; give them once", from)
		return
	case parsed.Password && strings.HasPrefix(l.origins["history"], "--"):
		l.warnings = append(l.warnings, "the password of the history's database is in the command line, which everybody on this machine can read; give it with --history-credentials-file")
	}
	c.HistoryDatabase = parsed
	if parsed.Spool = cmp.Or(parsed.Spool, spoolDirectory(c)); parsed.Spool == "" {
		l.bad("history", "what the database does not take in time waits on the disk, and there is no place for it; give --cache, --data, or ?spool=DIRECTORY in the URL")
	}
}

// checkGuestLog refuses the history's own file for all that jobs log: either would cut off what the
// other has written.
func (l *loader) checkGuestLog(c *Config) {
	file := c.History
	if c.HistoryDatabase != nil {
		file = c.HistoryDatabase.Path()
	}
	if c.GuestLog != "" && absolute(c.GuestLog) == absolute(file) {
		l.bad("guestLog", "the history is in that file; name another one")
	}
}

// spoolDirectory is where records wait if the URL does not say it.
func spoolDirectory(c *Config) string {
	switch {
	case c.Registry != registryZooKeeper && c.Data != "":
		return filepath.Join(c.Data, "history-spool")
	case c.Cache != "":
		return filepath.Join(c.Cache, "history-spool")
	}
	return ""
}

// historyPath is a file on the disk that the history's size is about.
func historyPath(c *Config) string {
	if c.HistoryDatabase != nil {
		return cmp.Or(c.HistoryDatabase.Path(), c.HistoryDatabase.Spool)
	}
	return c.History
}

// wireHistory makes where events and lines are kept.
func (s *system) wireHistory(ctx context.Context) (err error) {
	l := s.loaded
	if err := s.wireGuestLog(); err != nil {
		return err
	}
	whole := "what its host wrote to stderr"
	if s.whole != nil {
		whole = s.whole.Path()
	}
	over := func(job string) {
		s.metrics.Observe(event.Event{Kind: event.OverQuota, Job: job, Ceiling: ceiling.HistoryBytes, Count: 1})
	}
	where := l.HistoryDatabase
	switch {
	case where != nil:
	case l.History == "":
		where = database.InMemory()
	default:
		if where, err = database.InFile(l.History); err != nil {
			return err
		}
	}
	s.history, err = database.Open(ctx, database.Options{Config: where, Spool: where.Spool, SpoolBytes: l.HistorySize, MaxBytes: l.HistorySize,
		Ceilings: l.Ceilings, OnOverQuota: over, WholeLog: whole, Wait: s.imminent.Wait, Logger: s.log})
	if errors.Is(err, database.ErrNewer) {
		return command.Usage(err)
	}
	if err != nil {
		return err
	}
	s.onClose("history", s.history.Close)
	if info, err := os.Stat(historyPath(&l.Config)); err == nil && info.Mode().Perm()&0o004 != 0 {
		s.log.Warn("the history can be read by everybody on this machine: it has what guests logged and who changed what", zap.String("file", historyPath(&l.Config)), zap.String("mode", fmt.Sprintf("%04o", info.Mode().Perm())), zap.String("expected", "0600"))
	}
	if l.History == "" {
		return nil
	}
	return historyMetrics(s.metrics, s.history.State)
}

// wireGuestLog opens the file for all that jobs log.
func (s *system) wireGuestLog() (err error) {
	file := s.loaded.GuestLog
	if file == "" {
		return nil
	}
	if s.whole, err = jsonl.OpenWhole(file, jsonl.SizeFor(file), s.log); err != nil {
		return err
	}
	s.onClose("log of guests", s.whole.Close)
	return s.metrics.CounterFunc("guest_log_lines_lost_total", "Lines of guests that are not in the file of guestLog: their job had written its part of it, or the disk did not take them.",
		func() float64 { return float64(s.whole.Lost()) })
}

// wholeLog has all that guests log written to the file; nil if there is none.
func (s *system) wholeLog() *event.WholeLog {
	if s.whole == nil {
		return nil
	}
	return &event.WholeLog{Where: s.whole.Path(), Add: func(ctx context.Context, g event.GuestLog) { s.whole.Add(ctx, lineOf(g)) }}
}

// historyMetrics shows how the history fares.
func historyMetrics(m *metrics.Metrics, state func() history.State) error {
	return errors.Join(
		m.CounterFunc("history_events_dropped_total", "Records that are not in the history: events, lines of guests, changes.",
			func() float64 { return float64(state().Dropped) }),
		m.GaugeFunc("history_queued_records", "Records that wait in memory for the history.", func() float64 { return float64(state().Queued) }),
		m.GaugeFunc("history_spooled_records", "Records that wait on the disk for the history's database.", func() float64 { return float64(state().Spooled) }),
		m.GaugeFunc("history_failing", "1 while the history cannot be written.", func() float64 {
			if state().Problem != "" {
				return 1
			}
			return 0
		}))
}

// historyState describes the history; nil if the host has none but its memory.
func (s *system) historyState() *report.History {
	if s.loaded.History == "" {
		return nil
	}
	return historyState(s.history.State())
}

func historyState(h history.State) *report.History {
	return &report.History{File: h.Where, Dropped: h.Dropped, Spooled: h.Spooled, Problem: h.Problem, Since: h.Since}
}

// historyText names the history for people; empty if there is none but memory.
func (s *system) historyText() string {
	if s.loaded.History == "" {
		return ""
	}
	return words.Printable(s.history.State().Where)
}

// addLine keeps a guest's line, and passes it on to who follows.
func (s *system) addLine(g event.GuestLog) {
	l := lineOf(g)
	s.history.AddLine(l)
	s.tail.Add(l)
}

func lineOf(g event.GuestLog) history.Line {
	return history.Line{Time: g.Time, Job: g.Job, RunID: g.RunID, Item: g.Item, Host: g.Host, Level: g.Level, Message: g.Message, Attrs: g.Attrs}
}

func setHistorySize(c *Config, s string) error {
	if s == "auto" {
		c.HistorySize = 0
		return nil
	}
	n, err := parseSize(s)
	if err != nil {
		return err
	}
	if n < jsonl.MinMaxBytes {
		return fmt.Errorf("%s is too small; want at least 64KiB", s)
	}
	c.HistorySize = n
	return nil
}
