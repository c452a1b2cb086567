package program

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
)

// TestRunWithADatabase runs a host whose history is in SQLite, and one whose database is not
// there: both fire, and the records are in the database, or in the spool. A file that everybody
// can read is pointed out.
func TestRunWithADatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, url, shown string }{
		{"SQLite", "sqlite:HOME/h.db", `"file": "sqlite:HOME/h.db"`},
		{"dead", "postgres://ann@127.0.0.1:1/jobs?sslmode=disable", `"problem": "failed to connect to `},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := jobDir(t, "type: SIMPLE\nshardingTotalCount: 3\njobParameter: attrs\n")
			home := t.TempDir()
			in := func(text string) string { return filepath.ToSlash(strings.ReplaceAll(text, "HOME", home)) }
			socket := filepath.Join(home, "s")
			if c.name == "SQLite" { // an empty file is a database
				if err := errors.Join(os.WriteFile(filepath.Join(home, "h.db"), nil, 0o600), os.Chmod(filepath.Join(home, "h.db"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			signals := make(chan os.Signal, 2)
			out, logs := lineByLine{make(chan string, 10_000)}, lineByLine{make(chan string, 10_000)}
			p := &program{Program: command.Program{Out: out, Err: logs, OutTTY: true, Environ: []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "NO_COLOR=1", "WASMJOB_HISTORY_CREDENTIALS="}, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }}, self: thisProgram()}
			ended := make(chan int)
			go func() {
				ended <- p.main(context.Background(), []string{"run", "--plugins", dir, "--admin", socket, "--history", in(c.url), "--server-ip", "127.0.0.1"})
			}()
			out.await(t, "history   "+in(c.url))
			if c.name == "SQLite" {
				logs.await(t, "the history can be read by everybody")
			}
			out.await(t, "this host runs items 0-2")
			client := []string{"WASMJOB_ADMIN=" + socket, "XDG_RUNTIME_DIR=" + home, "HOME=" + home}
			runCLI(t, client, "job", "run", "cities").expect(t, exitOK, "triggered cities")
			out.await(t, "fire  cities")
			runCLI(t, client, "status", "--json").expect(t, exitOK, in(c.shown))
			signals <- syscall.SIGTERM
			if code := <-ended; code != exitOK {
				t.Errorf("exit code %d", code)
			}
			spool := filepath.Join(home, ".cache", "wasmjob", "modules", "history-spool")
			left, err := filepath.Glob(filepath.Join(spool, "*.jsonl"))
			if err != nil || (len(left) > 0) != (c.name == "dead") {
				t.Errorf("the spool %s has %v, %v", spool, left, err)
			}
			if c.name == "dead" {
				return
			}
			config, err := database.Parse(in(c.url), "")
			if err != nil {
				t.Fatal(err)
			}
			s, err := database.Open(t.Context(), database.Options{Config: config, Spool: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			runs, err := s.Runs(t.Context(), history.Filter{Jobs: []string{"cities"}})
			if err != nil || len(runs.Records) != 3 || !runs.Records[0].Completed {
				t.Errorf("runs %+v, %v", runs, err)
			}
			lines, err := s.Lines(t.Context(), history.Filter{Run: runs.Records[0].ID})
			if err != nil || len(lines.Records) == 0 || lines.Records[0].Host != runs.Records[0].Host || lines.Records[0].Time.IsZero() {
				t.Errorf("lines %+v, %v", lines, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
