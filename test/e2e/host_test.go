package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// place is where one test's hosts live: a plugins directory, a directory that
// is mounted as the gate, and an environment of its own, in which "the host
// that runs here" is this test's.
type place struct {
	t   *testing.T
	dir string
	// program is what its hosts run; empty is wasmjob.
	program string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir()}
	for _, d := range []string{"plugins", "gate", "home", "tmp", "events"} {
		if err := os.Mkdir(p.path(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *place) path(elem ...string) string {
	return filepath.Join(append([]string{p.dir}, elem...)...)
}

// drop puts a file into the plugins directory, as a careful user does.
func (p *place) drop(name string, data []byte) {
	p.t.Helper()
	p.put(filepath.Join("plugins", name), data)
}

func (p *place) put(name string, data []byte) {
	p.t.Helper()
	temporary := p.path(name + ".tmp")
	if err := os.WriteFile(temporary, data, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(temporary, p.path(name)); err != nil {
		p.t.Fatal(err)
	}
}

// define drops the definition of a job.
func (p *place) define(name string, lines ...string) {
	p.t.Helper()
	p.drop(name+".yaml", []byte(strings.Join(lines, "\n")+"\n"))
}

// guestJob drops version 1 of the guest and a definition under a name.
func (p *place) guestJob(name string, lines ...string) {
	p.t.Helper()
	p.drop(name+".wasm", guest(p.t, 1))
	p.define(name, lines...)
}

func (p *place) remove(name string) {
	p.t.Helper()
	if err := os.Remove(p.path("plugins", name)); err != nil {
		p.t.Fatal(err)
	}
}

// open lets items go on that hold for the name.
func (p *place) open(name string) {
	p.t.Helper()
	p.put(filepath.Join("gate", name), nil)
}

// env is the environment of all commands: nothing of this process's own but
// where programs are.
func (p *place) env(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.path("home"), "TMPDIR=" + p.path("tmp")}, more...)
}

// answer is what a command that ended has left.
type answer struct {
	out, err string
	code     int
}

// cli runs a command to its end.
func (p *place) cli(args ...string) answer {
	p.t.Helper()
	return p.cliEnv(nil, args...)
}

func (p *place) cliEnv(env []string, args ...string) answer {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*patience)
	defer cancel()
	c := exec.CommandContext(ctx, wasmjob(p.t), args...)
	c.Env, c.Dir = p.env(env...), p.dir
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		p.t.Fatalf("wasmjob %s: %v %v\n%s%s", strings.Join(args, " "), err, ctx.Err(), &out, &errs)
	}
	return answer{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// must runs a command that has to end well, and returns what it wrote.
func (p *place) must(args ...string) string {
	p.t.Helper()
	a := p.cli(args...)
	if a.code != 0 {
		p.t.Fatalf("wasmjob %s: exit code %d\n%s%s", strings.Join(args, " "), a.code, a.out, a.err)
	}
	return a.out
}

// refused runs a command that has to fail with the exit code, and with texts in
// what it says.
func (p *place) refused(code int, texts []string, args ...string) {
	p.t.Helper()
	p.cli(args...).mustSay(p.t, code, texts, args...)
}

func (a answer) mustSay(t *testing.T, code int, texts []string, args ...string) {
	t.Helper()
	if a.code != code {
		t.Errorf("wasmjob %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), a.code, code, a.out, a.err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(a.out+a.err, text) {
			t.Errorf("wasmjob %s: %q is not in\n%s%s", strings.Join(args, " "), text, a.out, a.err)
		}
	}
	if strings.Contains("\n"+a.err, "\ngoroutine ") { // a guest's stack is indented
		t.Errorf("wasmjob %s: panicked\n%s", strings.Join(args, " "), a.err)
	}
}

// status is what `wasmjob status --json` says.
func (p *place) status() report.Report {
	p.t.Helper()
	var r report.Report
	if err := json.Unmarshal([]byte(p.must("status", "--json")), &r); err != nil {
		p.t.Fatal(err)
	}
	return r
}

// job is a job's status; it fails if there is no such job.
func (p *place) job(name string) *engine.JobStatus {
	p.t.Helper()
	r := p.status()
	i := slices.IndexFunc(r.Status.Jobs, func(j *engine.JobStatus) bool { return j.Name == name })
	if i < 0 {
		p.t.Fatalf("status has no job %s: %+v", name, r.Status.Jobs)
	}
	return r.Status.Jobs[i]
}

// refusal is why a file is refused; nil if it is not.
func (p *place) refusal(file string) *engine.Refusal {
	p.t.Helper()
	for _, r := range p.status().Status.Refused {
		if r.File == file {
			return &r
		}
	}
	return nil
}

// process is a host that was started. Its log and its history are gathered as
// they are written.
type process struct {
	p       *place
	t       *testing.T
	cmd     *exec.Cmd
	history string
	address string
	ended   chan struct{} // closed when the process has ended and all was read
	waited  error

	mu      sync.Mutex
	news    chan struct{} // closed, and made anew, when there is more
	events  []event.Event
	lines   []logLine
	strange []string // on stderr, and not of the log
}

// logLine is one line of the log.
type logLine struct {
	Level   string            `json:"level"`
	Message string            `json:"message"`
	Job     string            `json:"job"`
	Item    *int              `json:"item"`
	Attrs   map[string]string `json:"attrs"` // of a guest
	Admin   string            `json:"admin"`
	raw     string
}

// start starts a host on the place's plugins directory. Flags that are given
// come on top, and win.
func (p *place) start(flags ...string) *process {
	p.t.Helper()
	return p.startEnv(nil, flags...)
}

func (p *place) startEnv(env []string, flags ...string) *process {
	t := p.t
	t.Helper()
	h := &process{p: p, t: t, history: p.path("events", "history.jsonl"), ended: make(chan struct{}), news: make(chan struct{})}
	args := append([]string{
		"run", "--plugins", p.path("plugins"), "--history", h.history, "--admin", "127.0.0.1:0",
		"--cache", cache(t), "--server-ip", "127.0.0.1", "--log-format", "json",
	}, flags...)
	h.cmd = exec.Command(cmp.Or(p.program, wasmjob(t)), args...)
	h.cmd.Env, h.cmd.Dir = p.env(env...), p.dir
	stderr, err := h.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	tail, err := newTail(h.history)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(errors.Join(err, tail.close()))
	}
	logged := make(chan struct{})
	go func() { // joined by logged
		defer close(logged)
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				h.log(line)
			}
			if err != nil {
				return
			}
		}
	}()
	stop, tailed := make(chan struct{}), make(chan struct{})
	go func() { // joined by tailed
		defer close(tailed)
		tail.run(stop, h.event)
	}()
	go func() { // joined by ended
		defer close(h.ended)
		<-logged
		h.waited = h.cmd.Wait()
		close(stop)
		<-tailed
		if err := tail.close(); err != nil {
			h.waited = errors.Join(h.waited, err)
		}
	}()
	t.Cleanup(h.cleanup)
	h.address = h.line(0, "host starts").Admin
	return h
}

func (h *process) cleanup() {
	select {
	case <-h.ended:
	default:
		_ = h.cmd.Process.Kill() // if it has just ended, all the better
		<-h.ended
	}
	for _, line := range h.strange {
		h.t.Errorf("on stderr, and not a line of the log: %s", line)
	}
	if h.t.Failed() {
		h.t.Logf("the host's log:\n%s\nits events:\n%s", tailOf(h.lines, func(l logLine) string { return l.raw }),
			tailOf(h.events, func(e event.Event) string { b, _ := json.Marshal(e); return string(b) }))
	}
}

func tailOf[T any](list []T, text func(T) string) string {
	const most = 120
	var b strings.Builder
	if len(list) > most {
		fmt.Fprintf(&b, "… %d before\n", len(list)-most)
		list = list[len(list)-most:]
	}
	for _, e := range list {
		b.WriteString(text(e) + "\n")
	}
	return b.String()
}

func (h *process) log(line string) {
	l := logLine{raw: strings.TrimSuffix(line, "\n")}
	err := json.Unmarshal([]byte(line), &l)
	h.tell(func() {
		if err != nil {
			h.strange = append(h.strange, l.raw)
			return
		}
		h.lines = append(h.lines, l)
	})
}

func (h *process) event(e event.Event) {
	h.tell(func() { h.events = append(h.events, e) })
}

func (h *process) tell(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.news)
	h.news = make(chan struct{})
}

// await calls look, which holds the lock, each time that there is more, until
// it reports true.
func (h *process) await(what string, look func() bool) {
	h.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for last := false; ; {
		h.mu.Lock()
		ok, news := look(), h.news
		h.mu.Unlock()
		if ok {
			return
		}
		if last {
			h.t.Fatalf("the host has ended (%v) without %s", h.waited, what)
		}
		select {
		case <-news:
		case <-h.ended:
			last = true
		case <-timer.C:
			h.t.Fatalf("waited %s in vain for %s", patience, what)
		}
	}
}

// seen is an event, and its place among all.
type seen struct {
	event.Event
	at int
}

// test is a condition on an event, with its description.
type test struct {
	text string
	ok   func(event.Event) bool
}

func kind(k event.Kind) test {
	return test{string(k), func(e event.Event) bool { return e.Kind == k }}
}

func item(n int) test {
	return test{fmt.Sprintf("item %d", n), func(e event.Event) bool { return e.Item != nil && *e.Item == n }}
}

func source(s abi.Source) test {
	return test{"source " + string(s), func(e event.Event) bool { return e.Source == s }}
}

func because(text string) test {
	return test{fmt.Sprintf("reason %q", text), func(e event.Event) bool { return strings.Contains(e.Reason, text) }}
}

func outcome(o abi.Outcome) test {
	return test{"outcome " + string(o), func(e event.Event) bool { return e.Outcome == o }}
}

func ofFire(f seen) test {
	return test{"fire " + f.Instant.String(), func(e event.Event) bool { return e.Instant.Equal(f.Instant) && e.Trigger == f.Trigger }}
}

func digestOf(wasm []byte) test {
	sum := sha256.Sum256(wasm)
	digest := hex.EncodeToString(sum[:])
	return test{"digest " + digest[:12], func(e event.Event) bool { return e.Digest == digest }}
}

// owned: this host has the items of the job.
func owned() test {
	return test{"owned items", func(e event.Event) bool { return e.Kind == event.Assigned && len(e.Items) > 0 }}
}

func describe(job string, tests []test) string {
	texts := []string{"an event of " + job}
	for _, c := range tests {
		texts = append(texts, c.text)
	}
	return strings.Join(texts, ", ")
}

func fits(e event.Event, job string, tests []test) bool {
	return e.Job == job && !slices.ContainsFunc(tests, func(c test) bool { return !c.ok(e) })
}

// of waits for the first event of the job, from the given place on, that
// passes all tests.
func (h *process) of(job string, from int, tests ...test) (found seen) {
	h.t.Helper()
	h.await(fmt.Sprintf("%s, from event %d on", describe(job, tests), from), func() bool {
		for ; from < len(h.events); from++ {
			if fits(h.events[from], job, tests) {
				found = seen{h.events[from], from}
				return true
			}
		}
		return false
	})
	return found
}

// all are the events so far, from the given place on, that pass all tests.
func (h *process) all(job string, from int, tests ...test) (list []seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for at := from; at < len(h.events); at++ {
		if fits(h.events[at], job, tests) {
			list = append(list, seen{h.events[at], at})
		}
	}
	return list
}

// count is how many events so far pass all tests.
func (h *process) count(job string, tests ...test) int { return len(h.all(job, 0, tests...)) }

// mark is the place of the next event.
func (h *process) mark() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events)
}

// line waits for a line of the log with all the texts, from the given line on.
func (h *process) line(from int, texts ...string) (found logLine) {
	h.t.Helper()
	h.await(fmt.Sprintf("a log line with %q", texts), func() bool {
		for ; from < len(h.lines); from++ {
			if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(h.lines[from].raw, s) }) {
				found = h.lines[from]
				return true
			}
		}
		return false
	})
	return found
}

// logMark is the place of the next line.
func (h *process) logMark() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lines)
}

// guestLines are what the guests of a job have logged so far.
func (h *process) guestLines(job string) (list []logLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if l.Job == job && strings.Contains(l.raw, `"taskId":`) {
			list = append(list, l)
		}
	}
	return list
}

func (h *process) signal(s os.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
}

// kill is kill -9. A host that was stopped may have been ended by its dead man's timer meanwhile.
func (h *process) kill() {
	h.t.Helper()
	if err := h.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		h.t.Fatal(err)
	}
	<-h.ended
}

// exit waits for the end of the process and returns its exit code.
func (h *process) exit() int {
	h.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-h.ended:
	case <-timer.C:
		h.t.Fatalf("the host has not ended within %s", patience)
	}
	return h.cmd.ProcessState.ExitCode()
}

// stop drains the host, which has to end well, and leave a history that can be
// read: the same events as were gathered.
func (h *process) stop() {
	h.t.Helper()
	h.signal(syscall.SIGTERM)
	if code := h.exit(); code != 0 {
		h.t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	n := 0
	for _, err := range jsonl.Read(h.history) {
		if err != nil {
			h.t.Error(err)
		}
		n++
	}
	if n < len(h.events) || len(h.events) == 0 || h.events[len(h.events)-1].Kind != event.HostStopped {
		h.t.Errorf("the history has %d events, %d were seen; the last should be that the host stopped", n, len(h.events))
	}
}

// get asks the admin address.
func (h *process) get(path string) (code int, body string) {
	h.t.Helper()
	request, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+h.address+path, http.NoBody)
	if err != nil {
		h.t.Fatal(err)
	}
	client := http.Client{Timeout: patience}
	response, err := client.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

// tail reads what is appended to a history file, from the end that it has now.
type tail struct {
	file    string
	offset  int64
	watcher *fsnotify.Watcher
}

func newTail(file string) (*tail, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(file)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, errors.Join(err, w.Close())
	}
	// A line that was cut short will be taken off.
	return &tail{file, int64(bytes.LastIndexByte(data, '\n') + 1), w}, nil
}

func (t *tail) close() error { return t.watcher.Close() }

// run reads on each change, and a last time when stop is closed.
func (t *tail) run(stop <-chan struct{}, each func(event.Event)) {
	for {
		select {
		case <-t.watcher.Events:
		case <-t.watcher.Errors:
		case <-stop:
			t.read(each)
			return
		}
		t.read(each)
	}
}

func (t *tail) read(each func(event.Event)) {
	f, err := os.Open(t.file)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.Seek(t.offset, io.SeekStart); err != nil {
		return
	}
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		t.offset += int64(len(line))
		var e event.Event
		if json.Unmarshal(line, &e) != nil {
			e = event.Event{Kind: "not an event", Reason: string(line)}
		}
		if e.Kind != history.KindLine && e.Kind != history.KindChange {
			each(e)
		}
	}
}
