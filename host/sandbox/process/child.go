package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// child is a worker process as the host sees it. It is safe for concurrent use.
type child struct {
	w     *Workers
	label string // for people
	alone bool   // it is of one job
	cmd   *exec.Cmd
	out   *writer // to it
	pid   int

	readies chan ready      // start starts a process of the group. The caller must end it.
	dead    chan struct{}   // closed when the process has ended and was waited for
	life    context.Context // ends when the process is to end, or has ended, by over
	over    context.CancelFunc
	state   *os.ProcessState
	stderr  head
	limits  limits // set before it has a module

	order sync.Mutex // of opens and drops on their way to the process; it is not held while the process is waited for

	mu       sync.Mutex
	opened   map[*executor]*opening
	openings map[int64]*opening    // that it has not answered
	runs     map[int64]*invocation // that it has not ended
	why      string                // it was killed; empty: it was not
	culprit  *executor             // whose guest it was killed for; nil: that is not known
	asked    bool                  // its end was asked for
}

// start starts a process of the group. Somebody ends it.
func (w *Workers) start(ctx context.Context, g *group, q *start) (*child, error) {
	label := g.label
	c := &child{w: w, label: label, alone: g.alone, readies: make(chan ready, 1), dead: make(chan struct{}),
		opened: map[*executor]*opening{}, openings: map[int64]*opening{}, runs: map[int64]*invocation{}}
	c.life, c.over = context.WithCancel(context.Background())
	c.cmd = w.o.Command(label)
	c.cmd.Env = []string{}
	c.cmd.Dir = "/"
	c.cmd.Stderr = &c.stderr
	c.cmd.WaitDelay = time.Second // no other process should have its streams
	bind(c.cmd)

	// Close finds it among the children, or it is not started.
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, errClosed
	}
	w.joined.Add(1)
	w.mu.Unlock()
	var out io.Reader
	var err error
	begun := make(chan struct{})
	select {
	case w.starts <- func() { out, err = c.begin(); close(begun) }:
		<-begun
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.ended:
		err = errClosed
	}
	if err != nil {
		w.joined.Done()
		return nil, err
	}
	go c.serve(out)

	// A process that does not read is ended with ctx.
	stop := context.AfterFunc(ctx, c.end)
	defer stop()
	_ = c.out.send(kindStart, q) // why it ended is said elsewhere
	return c, nil
}

// begin starts the process; only the starter calls it.
func (c *child) begin() (io.Reader, error) {
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("worker process: %w", err)
	}
	c.out = newWriter(in)
	c.out.patience = c.w.o.patience
	c.out.stuck = func() { c.kill(nil, fmt.Sprintf("it has read nothing for %s", c.out.patience)) }
	c.pid = c.cmd.Process.Pid
	w := c.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.children[c] = struct{}{}
	w.stats.Running++
	w.stats.Started++
	if w.closed {
		c.end() // Close has not seen it, and waits for its waiter
	}
	return out, nil
}

// serve reads what the process says until it ends, and waits for it. Close waits
// for serve.
func (c *child) serve(out io.Reader) {
	w := c.w
	defer w.joined.Done()
	if err := c.read(fromProcess(out)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.kill(nil, "it did not keep to the protocol: "+err.Error())
	}
	_ = c.cmd.Process.Kill()
	c.limits.end()
	_ = c.cmd.Wait() // the state says more
	c.mu.Lock()
	c.state = c.cmd.ProcessState
	asked := c.asked
	c.mu.Unlock()
	w.mu.Lock()
	delete(w.children, c)
	w.stats.Running--
	w.mu.Unlock()
	if !asked {
		c.mourn()
	}
	close(c.dead)
	c.over()
	w.nudge()
}

// mourn makes the executors whose guests ran when the process ended run alone for a while: one of them may be
// the cause. It is called before dead is closed.
func (c *child) mourn() {
	c.mu.Lock()
	suspects := map[suspect]bool{}
	if c.culprit != nil {
		suspects[c.culprit.suspect()] = true
	} else {
		for _, v := range c.runs {
			suspects[v.w.x.suspect()] = true
		}
		for _, o := range c.openings {
			suspects[o.x.suspect()] = true
		}
	}
	why := c.why
	c.mu.Unlock()
	var jobs []string
	for s := range suspects {
		c.w.suspected(s, c.alone)
		jobs = append(jobs, s.job)
	}
	if why == "" {
		c.w.mu.Lock()
		c.w.stats.Ended[c.cause()]++
		c.w.mu.Unlock()
		slices.Sort(jobs)
		c.w.log.Warn("a worker process ended", "worker", c.label, "pid", c.pid, "because", c.epitaph(), "jobs", clipList(jobs))
	}
}

// clipList keeps the first of many.
func clipList(list []string) []string {
	const most = 20
	if len(list) <= most {
		return list
	}
	return append(list[:most:most], fmt.Sprintf("and %d more", len(list)-most))
}

// read takes frames. An error ends the process.
func (c *child) read(in *reader) error {
	var r ready
	if err := in.expect(kindReady, &r); err != nil {
		return err
	}
	for _, part := range r.Lacks {
		if !slices.Contains([]string{lacksLandlock, lacksFilter, lacksSandbox}, part) {
			return errors.New("a sandbox that lacks something unknown")
		}
	}
	r.Problem, r.Failure = clip(r.Problem), clip(r.Failure)
	c.w.lacks(r.Lacks)
	c.readies <- r
	for {
		k, body, err := in.next()
		if err != nil {
			return err
		}
		if err := c.take(in, k, body); err != nil {
			return err
		}
	}
}

// message is a call or a result, on its way to its invocation.
type message struct {
	call   *call
	tell   bool // there is no answer to the call
	result *result
}

// take dispatches a frame.
func (c *child) take(in *reader, k kind, body []byte) error {
	var id int64
	var m message
	switch k {
	case kindOpened:
		var o opened
		if err := in.decode(body, &o); err != nil {
			return err
		}
		return c.answered(&o)
	case kindCall, kindTell:
		m.call, m.tell = &call{}, k == kindTell
		if err := in.decode(body, m.call); err != nil {
			return err
		}
		id = m.call.Run
	case kindResult:
		m.result = &result{}
		if err := in.decode(body, m.result); err != nil {
			return err
		}
		id = m.result.Run
	default:
		return fmt.Errorf("a frame of kind %d", k)
	}
	c.mu.Lock()
	v := c.runs[id]
	if m.result != nil {
		delete(c.runs, id)
	}
	c.mu.Unlock()
	if v == nil {
		return fmt.Errorf("a message of run %d, which does not run", id)
	}
	if m.call != nil && !m.tell && !v.asking.CompareAndSwap(false, true) {
		return fmt.Errorf("a second call of run %d before the first was answered", id)
	}
	if m.tell && len(body) > maxTell {
		return fmt.Errorf("%d bytes of a call without an answer, expected at most %d", len(body), maxTell)
	}
	select {
	case v.inbox <- m:
	default:
		select { // until there is room: a process that sends much waits
		case v.inbox <- m:
		case <-v.over:
		}
	}
	return nil
}

// ready waits until the process is ready. The error says how it ended, or is that of ctx, which also ends it.
func (c *child) ready(ctx context.Context) (ready, error) {
	select {
	case r := <-c.readies:
		return r, nil
	case <-c.dead:
		select {
		case r := <-c.readies:
			return r, nil
		default:
			return ready{}, errors.New(c.epitaph())
		}
	case <-ctx.Done():
		return ready{}, ctx.Err()
	}
}

// alive reports whether the process may take an invocation.
func (c *child) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.dead:
		return false
	default:
		return c.why == "" && !c.asked
	}
}

// end ends a process that is no longer needed, at once.
func (c *child) end() {
	c.mu.Lock()
	c.asked = true
	c.mu.Unlock()
	_ = c.cmd.Process.Kill()
	c.over()
}

// kill kills the process because of its guests, those of culprit if that is known; why is for people.
func (c *child) kill(culprit *executor, why string) {
	c.mu.Lock()
	first := c.why == "" && !c.asked
	if first {
		c.why, c.culprit = why, culprit
	}
	c.mu.Unlock()
	_ = c.cmd.Process.Kill()
	c.over()
	if !first {
		return
	}
	c.w.mu.Lock()
	c.w.stats.Killed++
	c.w.mu.Unlock()
	job := ""
	if culprit != nil {
		job = culprit.settings.JobName
	}
	c.w.log.Warn("a worker process was killed", "worker", c.label, "job", job, "pid", c.pid, "because", why)
}

// epitaph says how the process ended. Call it only after that.
func (c *child) epitaph() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != "" {
		return "the worker process was killed because " + c.why
	}
	if c.asked {
		return "the worker process was ended"
	}
	text := fmt.Sprintf("the worker process ended (%s)", c.state)
	if words, _, _ := strings.Cut(strings.TrimSpace(c.stderr.String()), "\n"); words != "" {
		text += ": " + words
	}
	return text
}

// cause says why a process ended that the host has not killed. Call it only after that.
func (c *child) cause() Cause {
	switch said := c.stderr.String(); {
	case killedBySignal(c.state):
		return CauseKilled
	case strings.Contains(said, "out of memory"), strings.Contains(said, "cannot allocate memory"), strings.Contains(said, "failed to allocate"): // in the words of Go, and of the race detector
		return CauseMemory
	}
	return CauseCrashed
}

// killedBySignal reports whether a process ended by the signal that none can catch.
func killedBySignal(state *os.ProcessState) bool {
	s, ok := state.Sys().(interface {
		Signaled() bool
		Signal() syscall.Signal
	})
	return ok && s.Signaled() && s.Signal() == syscall.SIGKILL
}

// head keeps the first bytes that are written to it.
type head struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const headLimit = 8 << 10

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.Write(p[:min(len(p), headLimit-h.b.Len())])
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}
