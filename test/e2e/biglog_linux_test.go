package e2e_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/wasm"
)

// chatterLines are what a chatter logs: 100 MB.
const chatterLines = 100_000_000 / abi.MaxLogMessage

// chatter is a module that logs lines that are as long as lines may be.
func chatter() []byte {
	m := wasm.New()
	log := m.Import("job_v1", "log", "iiiii", "")
	m.Memory(1, 1)
	m.ExportMemory("memory")
	m.Data(0, bytes.Repeat([]byte("x"), abi.MaxLogMessage))
	m.Export("job_abi_v1", m.Func("", "", ""))
	m.Export("job_execute", m.Func("", "i", "i",
		wasm.Op(0x03, 0x40),                                                                                                                    // loop
		wasm.I32Const(0), wasm.I32Const(0), wasm.I32Const(abi.MaxLogMessage), wasm.I32Const(0), wasm.I32Const(0), wasm.Op(0x10), wasm.U32(log), // call log
		wasm.Op(0x20, 0), wasm.I32Const(1), wasm.Op(0x6a, 0x22, 0), // n++
		wasm.I32Const(chatterLines), wasm.Op(0x49, 0x0d, 0, 0x0b), // again while n < lines
		wasm.I32Const(0)))
	return m.Bytes()
}

// peak is the most memory that a host has had, in bytes.
func peak(t *testing.T, h *process) int {
	t.Helper()
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(read(t, fmt.Sprintf("/proc/%d/status", h.cmd.Process.Pid)))
	if found == nil {
		t.Fatal("the kernel does not say how much memory the host has had")
	}
	kB, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}

// TestBigLog: a run that logs 100 MB makes its host no larger, what is kept of it is bounded, and so are
// its page and its log; in the host's process, in a worker process and in one of the job's own.
func TestBigLog(t *testing.T) {
	t.Parallel()
	// What a run may log, what is kept of its end, and as much again for what stands around it.
	const most = 2 * (abi.MaxLogBytes + (64 << 10))
	p, h, token := startWithToken(t, "--in-process", "*")
	for _, isolation := range []string{"host", "fire", "process"} {
		p.drop(isolation+".wasm", chatter())
		p.define(isolation, "shardingTotalCount: 1", "isolation: "+isolation)
		h.of(isolation, 0, owned())
		before := peak(t, h)
		p.must("job", "run", isolation)
		e := h.of(isolation, 0, kind(event.ItemEnded))
		if e.Outcome != abi.OutcomeOK || e.DroppedLines < chatterLines-most/abi.MaxLogMessage {
			t.Errorf("%s: %s (%s), %d of %d lines were dropped", isolation, e.Outcome, e.Reason, e.DroppedLines, chatterLines)
		}
		if grown := peak(t, h) - before; grown > 48<<20 {
			t.Errorf("%s: the host had %d MiB before the run and took %d more", isolation, before>>20, grown>>20)
		}
		if log := p.must("job", "logs", isolation, e.RunID); len(log) > most || !strings.Contains(log, fmt.Sprint("dropped_lines=", e.DroppedLines)) {
			t.Errorf("%s: the log that is shown has %d bytes, and at its end %q", isolation, len(log), log[max(0, len(log)-300):])
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.address+"/run?run="+url.QueryEscape(e.RunID), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || len(page) > most || !bytes.Contains(page, []byte("output was over the limits")) {
			t.Errorf("%s: %s, %v: the run's page has %d bytes", isolation, answer.Status, err, len(page))
		}
	}
	h.stop()
	if kept := len(read(t, h.history)); kept > 2*most {
		t.Errorf("the history has %d bytes", kept)
	}
}
