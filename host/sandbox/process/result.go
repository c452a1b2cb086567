package process

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// packResult packs a result for the wire. It cuts texts that a guest can make long.
func packResult(run int64, r abi.Result) result {
	p := result{Run: run, Outcome: r.Outcome, NotBegun: r.NotBegun, Status: r.Status, Message: clip(r.Message), Offset: r.Offset, Staged: r.Staged,
		Batches: r.Batches, Records: r.Records, Yielded: r.Yielded, Memory: r.Memory, DroppedLines: r.DroppedLines, Reads: r.Reads, ReadBytes: r.ReadBytes, PauseKey: r.PauseKey}
	if !r.RetryAt.IsZero() {
		p.RetryAt = r.RetryAt.UnixMilli()
	}
	if r.Err == nil {
		return p
	}
	p.Error = &failure{Kind: plugin.KindHost, Cause: clip(r.Err.Error())}
	if e, ok := errors.AsType[*plugin.Error](r.Err); ok {
		p.Error = &failure{Kind: e.Kind, Op: e.Op, ExitCode: e.ExitCode, Stack: clip(e.Stack), Stderr: clip(e.Stderr)}
		if e.Err != nil {
			p.Error.Cause = clip(e.Err.Error())
		}
	}
	return p
}

// unpack checks and unpacks a result. The error says what is wrong with it.
func (p *result) unpack() (abi.Result, error) {
	r := abi.Result{Outcome: p.Outcome, NotBegun: p.NotBegun, Status: p.Status, Message: p.Message, Staged: p.Staged,
		Batches: p.Batches, Records: p.Records, Yielded: p.Yielded, Memory: p.Memory, DroppedLines: p.DroppedLines, Reads: p.Reads, ReadBytes: p.ReadBytes, PauseKey: p.PauseKey}
	if p.RetryAt != 0 {
		r.RetryAt = time.UnixMilli(p.RetryAt)
	}
	if err := p.check(); err != nil {
		return r, err
	}
	if p.Staged {
		r.Offset = p.Offset
		if r.Offset == nil {
			r.Offset = []byte{}
		}
	}
	if p.Error == nil {
		return r, nil
	}
	e, err := p.Error.unpack()
	if err != nil {
		return r, err
	}
	r.Err = e
	return r, nil
}

func (p *result) check() error {
	// Only the host may report that a worker process has ended.
	if !slices.Contains(abi.Outcomes(), p.Outcome) || p.Outcome == abi.OutcomeWorker {
		return fmt.Errorf("the outcome %q", clip(string(p.Outcome)))
	}
	if len(p.Offset) > abi.MaxOffset {
		return fmt.Errorf("an offset of %d bytes", len(p.Offset))
	}
	if p.Staged && p.Outcome != abi.OutcomeOK {
		return fmt.Errorf("an offset with the outcome %s", p.Outcome)
	}
	if len(p.Message) > maxText {
		return fmt.Errorf("a message of %d bytes", len(p.Message))
	}
	if p.NotBegun && p.Outcome != abi.OutcomeCancelled {
		return fmt.Errorf("a run that was not begun and has the outcome %s", p.Outcome)
	}
	if min(p.Batches, p.Records, p.DroppedLines, p.Memory) < 0 || p.Memory > math.MaxUint32+1 {
		return fmt.Errorf("%d batches, %d records, %d dropped lines and %d bytes of memory", p.Batches, p.Records, p.DroppedLines, p.Memory)
	}
	if later := p.Outcome == abi.OutcomeRetryAt; (p.RetryAt > 0) != later || p.RetryAt > time.Now().Add(abi.MaxRetryAt+time.Minute).UnixMilli() || (p.PauseKey && !later) {
		return fmt.Errorf("the time %d to run again, with the outcome %s", p.RetryAt, p.Outcome)
	}
	if p.Reads < 0 || p.ReadBytes < 0 {
		return fmt.Errorf("%d bytes in %d reads of files", p.ReadBytes, p.Reads)
	}
	return nil
}

func (f *failure) unpack() (*plugin.Error, error) {
	switch f.Kind {
	case plugin.KindLoad, plugin.KindTrap, plugin.KindExit, plugin.KindTimeout, plugin.KindCancelled, plugin.KindHost:
	default:
		return nil, fmt.Errorf("an error of the kind %q", clip(string(f.Kind)))
	}
	if len(f.Op)+len(f.Stack)+len(f.Stderr)+len(f.Cause) > 4*maxText {
		return nil, errors.New("an error that is too long")
	}
	e := &plugin.Error{Kind: f.Kind, Op: f.Op, ExitCode: f.ExitCode, Stack: f.Stack, Stderr: f.Stderr}
	if f.Cause != "" {
		e.Err = errors.New(f.Cause)
	}
	return e, nil
}
