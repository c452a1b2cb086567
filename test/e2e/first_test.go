package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shown is a program that runs, and the lines that it has written.
type shown struct {
	*exec.Cmd
	t     *testing.T
	lines chan string
	read  sync.WaitGroup
	ended bool
}

// begin starts the program in the place.
func (p *place) begin(env []string, args ...string) *shown {
	p.t.Helper()
	c := exec.Command(wasmjob(p.t), args...)
	c.Env, c.Dir = p.env(env...), p.dir
	s := &shown{Cmd: c, t: p.t, lines: make(chan string, 10_000)}
	for _, pipe := range []func() (io.ReadCloser, error){c.StdoutPipe, c.StderrPipe} {
		r, err := pipe()
		if err != nil {
			p.t.Fatal(err)
		}
		s.read.Go(func() { // ends with the program
			for b := bufio.NewScanner(r); b.Scan(); {
				s.lines <- b.Text()
			}
		})
	}
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if !s.ended {
			_ = c.Process.Kill() // the test has failed already
			_ = s.wait()
		}
	})
	return s
}

// await returns the next line that has the text, and fails without one.
func (s *shown) await(text string) string {
	s.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	var all []string
	for {
		select {
		case line := <-s.lines:
			if all = append(all, line); strings.Contains(line, text) {
				return line
			}
		case <-limit.C:
			s.t.Fatalf("%q is not in\n%s", text, strings.Join(all, "\n"))
		}
	}
}

func (s *shown) wait() error {
	s.ended = true
	s.read.Wait()
	return s.Wait()
}

// interrupt is Ctrl-C.
func (s *shown) interrupt() {
	s.t.Helper()
	if err := s.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	if err := s.wait(); err != nil {
		s.t.Errorf("after Ctrl-C: %v", err)
	}
}

// listing are the names of a directory's entries.
func listing(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestDemo: the first command after a download shows fires and a console, whatever the
// environment says and whatever has the usual port, and leaves nothing.
func TestDemo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if l, err := net.Listen("tcp", "127.0.0.1:9770"); err == nil { // else something else has it
		defer l.Close()
	}
	wasmjob(t) // is built before the time counts
	begun := time.Now()
	s := p.begin([]string{"WASMJOB_ZK=127.0.0.1:1", "WASMJOB_PLUGINS=/nowhere", "WASMJOB_CONFIG=/nowhere"}, "demo")
	console := s.await("  console")
	dir := strings.Fields(s.await("  files"))[1]
	s.await("hello, ")
	t.Logf("the first fire was shown after %s", time.Since(begun).Round(10*time.Millisecond))
	s.await("took the orders ") // the first may have come before that

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: patience}
	link := strings.Fields(console)[1]
	page, err := browser.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(page.Body)
	if err != nil || page.Body.Close() != nil || page.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s, %v", link, page.Status, err)
	}
	for _, want := range []string{"hello", "orders"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in the console's page\n%s", want, text)
		}
	}
	if !strings.HasPrefix(dir, p.path("tmp")) {
		t.Errorf("the files are in %s", dir)
	}
	s.interrupt()
	if left := listing(t, p.path("tmp")); len(left) > 0 {
		t.Errorf("the demo leaves %q in the directory for temporary files", left)
	}
}

// TestDemoGoesOn: with a directory the demo keeps its registry, and files that were
// changed there.
func TestDemoGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	s := p.begin(nil, "demo", "--dir", "kept")
	s.await("took the orders 1 to 10")
	s.interrupt()
	hello := filepath.Join("kept", "plugins", "hello.yaml")
	p.put(hello, []byte("cron: \"@every 2s\"\nshardingTotalCount: 1\nshardingItemParameters: 0=Lima\n"))
	s = p.begin(nil, "demo", "--dir", "kept")
	s.await("hello, Lima")
	if line := s.await("took the orders "); strings.Contains(line, "took the orders 1 to 10") {
		t.Error("the second demo begins anew")
	}
	s.interrupt()
	if got := string(read(t, p.path(hello))); !strings.Contains(got, "Lima") {
		t.Errorf("the changed file is\n%s", got)
	}
	p.refused(1, []string{"kept/plugins/hello.yaml", "not a directory"}, "demo", "--dir", p.path(hello))
}

// TestInit: what init makes is a host's, as it stands.
func TestInit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	said := p.must("init", "my jobs")
	dir := p.path("my jobs")
	start := regexp.MustCompile(`(?m)^  (wasmjob run --config .*)$`).FindStringSubmatch(said)
	if start == nil {
		t.Fatalf("init does not say how to start\n%s", said)
	}
	config := filepath.Join(dir, "wasmjob.yaml")
	if want := `wasmjob run --config "` + config + `"`; start[1] != want {
		t.Errorf("init says %s, want %s", start[1], want)
	}
	p.put(filepath.Join("my jobs", "plugins", "hello.wasm"), read(t, "../../host/node/program/demo/hello.wasm"))
	p.put(filepath.Join("my jobs", "plugins", "hello.yaml"), read(t, "../../host/node/program/demo/hello.yaml"))
	s := p.begin([]string{"WASMJOB_ADMIN=127.0.0.1:0"}, "run", "--config", config)
	s.await("hello, ")
	s.interrupt()
	for _, file := range []string{"data/events.jsonl", "data/admin-token"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Error(err)
		}
	}
	before := listing(t, dir)
	p.refused(1, []string{config, "already"}, "init", "my jobs")
	p.refused(1, []string{config, "not a directory"}, "init", config)
	p.refused(2, []string{"directory", "is missing"}, "init")
	p.refused(2, []string{"cannot name"}, "init", "50%")
	if after := listing(t, dir); len(after) != len(before) {
		t.Errorf("a refused init changes %q into %q", before, after)
	}
	if _, err := os.Stat(p.path("50%")); err == nil {
		t.Error("a refused init makes its directory")
	}
}

// TestVersion: what was linked into a program can be asked of it.
func TestVersion(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	text := p.must("version")
	for _, want := range []string{"wasmjob e2e ", "CGO_ENABLED=0 -trimpath=true", "github.com/tetratelabs/wazero v"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if line := p.must("--version"); !strings.HasPrefix(text, line) || strings.Count(line, "\n") != 1 {
		t.Errorf("--version is %q, version begins with\n%s", line, text)
	}
	if data := p.must("version", "--json"); !strings.Contains(data, `"sum": "h1:`) {
		t.Errorf("no sums in\n%s", data)
	}
}
