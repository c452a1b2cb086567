package database

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/history"
)

// killedURL has TestKilledHost be the process that TestKilledWhileAway kills, killedCredentials
// and killedSpool say what else it opens.
const killedURL, killedCredentials, killedSpool = "WASMJOB_TEST_KILLED_URL", "WASMJOB_TEST_KILLED_CREDENTIALS", "WASMJOB_TEST_KILLED_SPOOL"

// TestKilledHost is a host that writes as many records as each line of its input says, numbered from 0
// on, and says so. It does nothing by itself.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	url := os.Getenv(killedURL)
	if url == "" {
		t.SkipNow()
	}
	s := openStore(t, url, os.Getenv(killedCredentials), os.Getenv(killedSpool))
	fmt.Println("ready")
	n := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var more int
		if _, err := fmt.Sscan(lines.Text(), &more); err != nil {
			t.Fatal(err)
		}
		for range more {
			s.AddEvent(number(n))
			n++
		}
		fmt.Println("added", n)
	}
}

// TestKilledWhileAway: a host that is killed while the database is away has left all its records
// to the next one, in their order and once.
func TestKilledWhileAway(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		p := newProxy(t, addressOf(url))
		spool := t.TempDir()
		host := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledHost$")
		host.Env = append(os.Environ(), killedURL+"="+p.through(url), killedCredentials+"="+credentials, killedSpool+"="+spool)
		host.Stderr = os.Stderr
		in, err := host.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := host.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = host.Wait() }() // it was killed
		defer func() { _ = host.Process.Kill() }()
		lines := bufio.NewScanner(out)
		expect := func(want string) {
			t.Helper()
			for lines.Scan() {
				if lines.Text() == want {
					return
				}
			}
			t.Fatalf("the host ended before it said %q", want)
		}
		add := func(more, all int) {
			t.Helper()
			if _, err := fmt.Fprintln(in, more); err != nil {
				t.Fatal(err)
			}
			expect(fmt.Sprint("added ", all))
		}
		s := openStore(t, url, credentials, t.TempDir())
		expect("ready")
		add(100, 100)
		await(t, "the first", func() bool { return len(messages(t, s)) == 100 })
		p.refuse.Store(true)
		p.cut()
		add(50, 150)
		await(t, "spooled records", func() bool { return spooledLines(t, spool) == 50 })
		add(250, 400)
		await(t, "all spooled", func() bool { return spooledLines(t, spool) == 300 })
		if err := host.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, out); err != nil { // to its end
			t.Fatal(err)
		}
		p.refuse.Store(false)
		next := openStore(t, p.through(url), credentials, spool)
		await(t, "what was left", func() bool { return next.State().Spooled == 0 && len(messages(t, next)) == 400 })
		inOrder(t, next, 400)
		if page, err := next.Events(t.Context(), history.Filter{Limit: 1}); err != nil || page.Records[0].Reason != "399" {
			t.Errorf("the last is %v, %v", page.Records, err)
		}
	})
}

// spooledLines is how many records a directory has on the disk.
func spooledLines(t *testing.T, dir string) (n int) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(data), "\n")
	}
	return n
}
