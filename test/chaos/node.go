package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/control/client"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// node is a host: a machine with its files and its ways to the servers, and the
// process that runs there now.
type node struct {
	s       *stage
	number  int
	name    string // h1, …
	ip      string
	dir     string
	proxies []*zkserver.Proxy // one for each server
	token   string

	mu    sync.Mutex
	proc  *life // the newest; nil before the first
	lives int
}

// life is one process.
type life struct {
	cmd     *exec.Cmd
	pid     int
	began   time.Time
	address chan struct{} // closed when admin is known
	admin   string        // valid then
	ended   chan struct{} // closed when it has ended and all it wrote was read
	err     error         // valid then
}

func newNode(s *stage, number int) (*node, error) {
	h := &node{s: s, number: number, name: "h" + strconv.Itoa(number+1), ip: fmt.Sprintf("127.0.0.%d", 11+number), token: server.NewToken()}
	h.dir = filepath.Join(s.dir, h.name)
	for _, d := range []string{"plugins", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(h.dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, "token"), []byte(h.token+"\n"), 0o600); err != nil {
		return nil, err
	}
	for _, server := range s.servers {
		p, err := zkserver.NewProxy(server)
		if err != nil {
			return nil, err
		}
		h.proxies = append(h.proxies, p)
	}
	return h, nil
}

// equip gives the host its module and its jobs.
func (h *node) equip(module []byte, list []job) error {
	err := h.install(module)
	for _, j := range list {
		err = errors.Join(err, h.define(j))
	}
	return err
}

// install replaces the module of all jobs.
func (h *node) install(module []byte) error { return h.put(moduleFile, module) }

func (h *node) define(j job) error {
	return h.put(j.name+".yaml", []byte(j.definition()+"description: "+ourMark+"\n"))
}

// put puts a file into the plugins directory, whole.
func (h *node) put(name string, data []byte) error {
	temporary := filepath.Join(h.dir, "tmp", name)
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(h.dir, "plugins", name))
}

func (h *node) history() string { return filepath.Join(h.dir, "history.jsonl") }

// start starts the process.
func (h *node) start() error {
	var servers []string
	for _, p := range h.proxies {
		servers = append(servers, p.Addr())
	}
	flags := h.s.o.HostFlags
	if h.number%3 == 2 { // the host's own fence, without the kernel's
		flags = slices.Concat([]string{"--dead-man", "off"}, flags)
	}
	args := append([]string{
		"run", "--plugins", filepath.Join(h.dir, "plugins"), "--history", h.history(), "--history-size", "1GiB",
		"--admin", "127.0.0.1:0", "--admin-token-file", filepath.Join(h.dir, "token"),
		"--cache", filepath.Join(h.s.dir, "cache"), "--server-ip", h.ip, "--log-format", "json", "--drain-timeout", drainTimeout.String(),
		"--zk", strings.Join(servers, ",") + h.s.chroot, "--namespace", h.s.o.Namespace, "--session-timeout", h.s.o.SessionTimeout.String(),
	}, flags...)
	cmd := exec.Command(h.s.o.Program, args...)
	cmd.Dir = h.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(h.dir, "home"), "TMPDIR=" + filepath.Join(h.dir, "tmp")}, h.s.o.HostEnv...)
	alone(cmd)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(h.dir, "host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l := &life{cmd: cmd, began: time.Now(), address: make(chan struct{}), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	l.pid = cmd.Process.Pid
	h.mu.Lock()
	h.proc = l
	h.lives++
	h.mu.Unlock()
	go func() { // joined by ended
		defer close(l.ended)
		h.read(l, stderr, log)
		l.err = errors.Join(cmd.Wait(), log.Close())
	}()
	return nil
}

// logLine is what is read of a line of a host's log.
type logLine struct {
	Message string            `json:"message"`
	Level   string            `json:"level"`
	Admin   string            `json:"admin"`
	Task    string            `json:"taskId"`
	Attrs   map[string]string `json:"attrs"`
}

// read takes what a process writes until it ends.
func (h *node) read(l *life, stderr io.Reader, log io.Writer) {
	lines := bufio.NewReaderSize(stderr, 64<<10)
	known := false
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			arrived := time.Now()
			var parsed logLine
			jerr := json.Unmarshal(line, &parsed)
			guest := jerr == nil && parsed.Attrs["run"] != "" && parsed.Attrs["fence"] != ""
			if !guest || !h.s.deaf {
				_, _ = log.Write(line) // for people
			}
			switch {
			case jerr != nil:
				h.s.evidence.strange(h.name, string(line))
			case guest && !h.s.deaf:
				h.s.evidence.add(h, l.pid, arrived, parsed)
			case parsed.Admin != "" && !known:
				l.admin, known = parsed.Admin, true
				close(l.address)
			}
		}
		if err != nil {
			return
		}
	}
}

// life is the newest process; nil if none was started.
func (h *node) life() *life {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.proc
}

// instance is how the id of the newest process in the registry begins.
func (h *node) instance() string {
	l := h.life()
	if l == nil {
		return ""
	}
	return h.ip + "@-@" + strconv.Itoa(l.pid) + "-"
}

// runs reports whether the process has not ended.
func (h *node) runs() bool {
	l := h.life()
	if l == nil {
		return false
	}
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

func (h *node) signal(sig os.Signal) error {
	l := h.life()
	if err := l.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	return nil
}

// kill is kill -9.
func (h *node) kill() error {
	if err := h.signal(os.Kill); err != nil {
		return err
	}
	<-h.life().ended
	return nil
}

// drain ends the process as an operator does, which has to go well.
func (h *node) drain(patience time.Duration) error {
	if err := h.signal(terminateSignal); err != nil {
		return err
	}
	l := h.life()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-l.ended:
	case <-t.C:
		return fmt.Errorf("%s has not ended %s after SIGTERM", h.name, patience)
	}
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM, expected 0", h.name, code)
	}
	return nil
}

// close ends whatever runs.
func (h *node) close() {
	if h.runs() {
		_ = resumeProcess(h.life().cmd.Process)
		_ = h.kill()
	}
	for _, p := range h.proxies {
		p.Close()
	}
}

// client asks the process that runs now.
func (h *node) client(ctx context.Context) (*client.Client, error) {
	l := h.life()
	select {
	case <-l.address:
	case <-l.ended:
		return nil, fmt.Errorf("%s has ended", h.name)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s has not said where it listens: %w", h.name, ctx.Err())
	}
	a, err := server.ParseAddress(l.admin)
	if err != nil {
		return nil, err
	}
	return client.NewClient(a, h.token), nil
}

// insist asks the host to do something, again if it cannot do it just now: on a
// busy machine its session may be in doubt for a moment.
func (h *node) insist(ctx context.Context, do func(c *client.Client) error) error {
	return until(ctx, 300*time.Millisecond, 30*time.Second, func() error {
		c, err := h.client(ctx)
		if err != nil {
			return err
		}
		return do(c)
	})
}

// status is what the host says of itself.
func (h *node) status(ctx context.Context) (*report.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := h.client(ctx)
	if err != nil {
		return nil, err
	}
	return c.Status(ctx)
}

// live says why the host is not at work; nil if it is.
func (h *node) live(ctx context.Context) error {
	r, err := h.status(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", h.name, err)
	case r.Status.State != engine.HostLive:
		return fmt.Errorf("%s is %s", h.name, r.Status.State)
	case len(r.Status.Jobs) < h.s.expected:
		return fmt.Errorf("%s has %d jobs of %d", h.name, len(r.Status.Jobs), h.s.expected)
	}
	return nil
}

// gauges reads some of a host's metrics.
func (h *node) gauges(ctx context.Context, names ...string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := h.client(ctx); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.life().admin+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	values := make(map[string]float64)
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, text, _ := strings.Cut(lines.Text(), " ")
		for _, wanted := range names {
			if v, err := strconv.ParseFloat(text, 64); name == wanted && err == nil {
				values[name] = v
			}
		}
	}
	return values, nil
}
