package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before a test gives up.
const patience = 2 * time.Minute

// program is the built wasmjob; TestMain makes it.
var program string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "wasmjob-browser-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "wasmjob")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-X github.com/wasmjob/wasmjob/host/node/program.version=test", "-o", program, "./cmd/host")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		log.Printf("%v\n%s", err, out)
		return 1
	}
	end, err := startBrowser()
	if err != nil {
		if os.Getenv("CI") != "" {
			log.Print(err)
			return 1
		}
		log.Print(err, "; make setup installs it")
	}
	defer end()
	return m.Run()
}

// host is a host that runs.
type host struct {
	t     *testing.T
	dir   string
	url   string
	token string
	cmd   *exec.Cmd
	ended chan struct{}

	mu    sync.Mutex
	lines []string
}

// definition is a job in a definition file. Its module is the guest of test/e2e, which
// does what the job's parameter says.
func definition(name, cron, parameter string, items int, more ...string) string {
	quoted, err := json.Marshal(name) // YAML reads it as the same text
	if err != nil {
		panic(err) // a text always marshals
	}
	lines := append([]string{"jobName: " + string(quoted), "module: guest.wasm", fmt.Sprintf("shardingTotalCount: %d", items), fmt.Sprintf("jobParameter: %q", parameter)}, more...)
	if cron != "" {
		lines = append(lines, fmt.Sprintf("cron: %q", cron))
	}
	return strings.Join(lines, "\n")
}

// gate stands for the host's directory in which jobs find files.
const gate = "GATE"

// mounted are flags that let jobs see the gate.
func mounted(t *testing.T, jobs ...string) []string {
	t.Helper()
	var flags []string
	for _, j := range jobs {
		flags = append(flags, "--mount", j+"="+gate+":/gate")
	}
	return flags
}

// start starts a host with jobs, all in one file; flags come on top.
func start(t *testing.T, jobs []string, flags ...string) *host {
	t.Helper()
	h := &host{t: t, dir: t.TempDir(), ended: make(chan struct{})}
	h.put("gate/.keep", "")
	for n, f := range flags { // where the gate is
		flags[n] = strings.ReplaceAll(f, gate, h.path("gate"))
	}
	h.put("token", "0123456789abcdef0123456789abcdef")
	h.put("plugins/.keep", "")
	if len(jobs) > 0 {
		guest, err := os.ReadFile(filepath.Join("..", "e2e", "testdata", "guest.wasm"))
		if err != nil {
			t.Fatal(err)
		}
		h.put("plugins/guest.wasm", string(guest))
		h.put("plugins/jobs.yaml", strings.Join(jobs, "\n---\n")+"\n")
	}
	h.token = "0123456789abcdef0123456789abcdef"
	h.launch(flags...)
	return h
}

func (h *host) path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

func (h *host) put(name, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name+".tmp"), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(h.path(name+".tmp"), h.path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// launch starts the process, and waits until it is ready.
func (h *host) launch(flags ...string) {
	t := h.t
	t.Helper()
	args := append([]string{"run", "--plugins", h.path("plugins"), "--history", h.path("history.jsonl"), "--admin", "127.0.0.1:0", "--admin-token-file", h.path("token"),
		"--cache", h.path("cache"), "--server-ip", "127.0.0.1", "--log-format", "json", "--dead-man", "off", "--drain-timeout", "1s"}, flags...)
	if err := os.MkdirAll(h.path("cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.cmd = exec.Command(program, args...)
	h.cmd.Dir = h.dir
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "TMPDIR=" + h.dir, "TZ=UTC"}
	out, err := h.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	go func() { // joined by ended
		defer close(h.ended)
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			h.mu.Lock()
			h.lines = append(h.lines, line)
			h.mu.Unlock()
			var l struct{ Message, Admin string }
			if json.Unmarshal([]byte(line), &l) == nil && l.Admin != "" {
				select {
				case address <- l.Admin:
				default:
				}
			}
		}
		_ = h.cmd.Wait() // killed, as a rule
	}()
	t.Cleanup(func() {
		h.signal(syscall.SIGCONT)
		h.signal(syscall.SIGKILL)
		<-h.ended
		if t.Failed() {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Logf("the host's log:\n%s", strings.Join(h.lines[max(0, len(h.lines)-25):], ""))
		}
	})
	select {
	case a := <-address:
		h.url = "http://" + a
	case <-h.ended:
		t.Fatalf("the host has ended:\n%s", strings.Join(h.lines, ""))
	case <-time.After(patience):
		t.Fatal("the host does not say where it is")
	}
	h.await("/readyz", func(code int, _ string) bool { return code == http.StatusOK })
}

func (h *host) signal(s syscall.Signal) { _ = h.cmd.Process.Signal(s) } // it may have ended

// release lets the items go on that hold for a name.
func (h *host) release(t *testing.T, name string) {
	t.Helper()
	h.put("gate/"+name, "")
}

// link signs a browser in, once.
func (h *host) link() string {
	h.t.Helper()
	return strings.TrimSpace(h.command("", "access", "login", "--admin", strings.TrimPrefix(h.url, "http://"), "--token-file", h.path("token")))
}

// command runs a command of the program, and returns what it writes.
func (h *host) command(input string, args ...string) string {
	h.t.Helper()
	c := exec.CommandContext(h.t.Context(), program, args...)
	c.Dir, c.Env, c.Stdin = h.dir, h.cmd.Env, strings.NewReader(input)
	out, err := c.Output()
	if err != nil {
		h.t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

// api sends a request to the API.
func (h *host) api(method, path string, body any) (code int, text string) {
	h.t.Helper()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			h.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, h.url+path, bytes.NewReader(data))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+h.token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	out, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(out)
}

// must is api for a request that has to succeed.
func (h *host) must(method, path string, body any) string {
	h.t.Helper()
	code, text := h.api(method, path, body)
	if code < 200 || code > 299 {
		h.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

// await asks until the answer is good.
func (h *host) await(path string, good func(code int, text string) bool) {
	h.t.Helper()
	late, again := time.After(patience), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		code, text := h.api(http.MethodGet, path, nil)
		if good(code, text) {
			return
		}
		select {
		case <-again.C:
		case <-late:
			h.t.Fatalf("%s: %d %s", path, code, text)
		}
	}
}
