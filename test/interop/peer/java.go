package peer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// JavaOptions say how an ElasticJob process is started.
type JavaOptions struct {
	// Name is what the log calls the host.
	Name string
	// Dir is the folder test/interop/java, in which the version was built.
	Dir string
	// Version is ElasticJob's: "3.0.4" or "3.0.5".
	Version string
	// Connect, Namespace and Digest are the registry.
	Connect, Namespace, Digest string
	// IP is what the host takes for its address. Empty leaves it to ElasticJob.
	IP string
	// SessionTimeout is that of the host's jobs; 0 is ElasticJob's 60 s. The
	// console's connection is always of the latter.
	SessionTimeout time.Duration
	// JavaArgs come before the class name.
	JavaArgs []string
	// Log hears of all runs of jobs that are not quiet. May be nil.
	Log *Log
	// Event hears each event of a job, as it is read, one at a time. May be nil.
	Event func(JavaEvent)
}

// Java is an ElasticJob process: a console that answers Call, and a host of
// the jobs that "start" starts. It is safe for concurrent use.
type Java struct {
	process
	options JavaOptions
	ready   chan struct{}

	in    sync.Mutex // held while a request is written
	stdin io.WriteCloser

	calls   sync.Mutex
	last    int
	waiting map[int]chan answer
}

type answer struct {
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
}

// JavaEvent is what a job's code says on an ElasticJob host.
type JavaEvent struct {
	// Event is "begin", "end", or "effect": a step of an item that has such.
	Event string `json:"event"`
	Job   string `json:"job"`
	Item  int    `json:"item"`
	Total int    `json:"total"`
	// Run tells the runs of a process apart: they are numbered from 1.
	Run int64 `json:"run"`
	// Milliseconds is since 1970, by the host's clock.
	Milliseconds int64 `json:"milliseconds"`
	Interrupted  bool  `json:"interrupted"`
}

// line is a line that the process writes: an answer or an event.
type line struct {
	ID int `json:"id"`
	answer
	JavaEvent
}

// StartJava starts an ElasticJob process and waits until it listens. It has no
// jobs and no session yet.
func StartJava(ctx context.Context, o JavaOptions) (*Java, error) {
	target := filepath.Join(o.Dir, "target", o.Version)
	path, err := os.ReadFile(filepath.Join(target, "classpath"))
	if err != nil {
		return nil, fmt.Errorf("ElasticJob %s is not built: %w; run %s %s", o.Version, err, filepath.Join(o.Dir, "build"), o.Version)
	}
	args := append([]string(nil), o.JavaArgs...)
	args = append(args, "-cp", filepath.Join(target, "classes")+":"+strings.TrimSpace(string(path)),
		"io.github.wasmjob.interop.Peer", "--connect", o.Connect, "--namespace", o.Namespace)
	if o.IP != "" {
		args = append(args, "--ip", o.IP)
	}
	if o.Digest != "" {
		args = append(args, "--digest", o.Digest)
	}
	if o.SessionTimeout != 0 {
		args = append(args, "--session-timeout", strconv.FormatInt(o.SessionTimeout.Milliseconds(), 10))
	}
	j := &Java{
		process: process{name: o.Name, log: o.Log, cmd: exec.Command("java", args...)},
		options: o, ready: make(chan struct{}), waiting: make(map[int]chan answer),
	}
	if j.stdin, err = j.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := j.start(j.listen, j.hangUp); err != nil {
		return nil, err
	}
	select {
	case <-j.ready:
		return j, nil
	case <-j.ended:
		return nil, fmt.Errorf("%s has ended: %w\n%s", o.Name, j.err, j.Stderr())
	case <-ctx.Done():
		j.Kill()
		return nil, fmt.Errorf("%s did not start: %w\n%s", o.Name, ctx.Err(), j.Stderr())
	}
}

// ID is the host's instance id in the registry.
func (j *Java) ID() string { return j.options.IP + "@-@" + strconv.Itoa(j.PID()) }

func (j *Java) listen(r io.Reader) {
	lines := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			j.hear(text)
		}
		if err != nil {
			return
		}
	}
}

func (j *Java) hear(text []byte) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		j.mu.Lock()
		j.stderr = append(j.stderr, "stdout: "+string(text))
		j.mu.Unlock()
		return
	}
	at := time.UnixMilli(l.Milliseconds)
	if l.Job != "" && j.options.Event != nil {
		j.options.Event(l.JavaEvent)
	}
	switch {
	case l.ID != 0:
		j.calls.Lock()
		to := j.waiting[l.ID]
		delete(j.waiting, l.ID)
		j.calls.Unlock()
		if to != nil {
			to <- l.answer
		}
	case l.Event == "ready":
		close(j.ready)
	case l.Event == "begin" && j.log != nil:
		j.log.begin(Run{Host: j.name, Job: l.Job, Item: l.Item, Total: l.Total, Begin: at})
	case l.Event == "end" && j.log != nil:
		j.log.end(j.name, l.Job, l.Item, at, l.Interrupted)
	}
}

// hangUp lets go who waits for an answer.
func (j *Java) hangUp() {
	j.calls.Lock()
	defer j.calls.Unlock()
	for id, to := range j.waiting {
		delete(j.waiting, id)
		to <- answer{Error: "the process has ended"}
	}
}

// ErrPeer is an error that the Java side answered with.
var ErrPeer = errors.New("ElasticJob")

// Request is a request to an ElasticJob process: "do" and its arguments. What
// there is stands in Console.java and Jobs.java.
type Request map[string]any

// Call makes a request and puts the answer into result, unless that is nil.
func (j *Java) Call(ctx context.Context, r Request, result any) error {
	reply := make(chan answer, 1)
	j.calls.Lock()
	j.last++
	id := j.last
	j.waiting[id] = reply
	j.calls.Unlock()
	m := Request{"id": id}
	for k, v := range r {
		m[k] = v
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	j.in.Lock()
	_, err = j.stdin.Write(append(text, '\n'))
	j.in.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %v: %w\n%s", j.name, r, err, j.Stderr())
	}
	select {
	case a := <-reply:
		if a.Error != "" {
			return fmt.Errorf("%s: %v: %w: %s", j.name, r, ErrPeer, a.Error)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(a.Result, result); err != nil {
			return fmt.Errorf("%s: %v: answer %s: %w", j.name, r, a.Result, err)
		}
		return nil
	case <-j.ended:
		return fmt.Errorf("%s: %v: the process has ended\n%s", j.name, r, j.Stderr())
	case <-ctx.Done():
		return fmt.Errorf("%s: %v: no answer: %w", j.name, r, ctx.Err())
	}
}
