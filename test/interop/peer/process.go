package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is a child and what it wrote on stderr.
type process struct {
	name  string
	log   *Log
	cmd   *exec.Cmd
	ended chan struct{}     // closed when it has ended and all was read
	hears func(line string) // of each line of stderr; may be nil

	mu     sync.Mutex
	err    error // of Wait; valid once ended is closed
	stderr []string
}

// keep is how many lines of stderr are kept.
const keep = 400

// start starts the child. read is given its stdout, if wanted, and has to read
// it to the end; after is called when the child has ended.
func (p *process) start(read func(io.Reader), after func()) error {
	p.ended = make(chan struct{})
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	var out io.Reader
	if read != nil {
		if out, err = p.cmd.StdoutPipe(); err != nil {
			return err
		}
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.errors(errs) })
	if read != nil {
		readers.Go(func() { read(out) })
	}
	go func() { // joined by ended
		defer close(p.ended)
		readers.Wait()
		err := p.cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
		if after != nil {
			after()
		}
		if p.log != nil {
			p.log.gone(p.name, time.Now())
		}
	}()
	return nil
}

func (p *process) errors(r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			if p.hears != nil {
				p.hears(strings.TrimSuffix(line, "\n"))
			}
			p.mu.Lock()
			p.stderr = append(p.stderr, strings.TrimSuffix(line, "\n"))
			if len(p.stderr) > 2*keep {
				p.stderr = append([]string(nil), p.stderr[len(p.stderr)-keep:]...)
			}
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// Name is what the test calls the host.
func (p *process) Name() string { return p.name }

// PID is its process id.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Stderr is the end of what it wrote on stderr.
func (p *process) Stderr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.stderr, "\n")
}

// Ended is closed when the process has ended.
func (p *process) Ended() <-chan struct{} { return p.ended }

// Signal sends a signal.
func (p *process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill is kill -9. It waits for the end.
func (p *process) Kill() {
	_ = p.cmd.Process.Kill() // if it has just ended, all the better
	<-p.ended
}

// Wait waits for the end and returns the exit code.
func (p *process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s has not ended: %w", p.name, ctx.Err())
	}
}
