package plugin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// TestLogLimit: of a log that is beyond the limits the end is there, in order, and each gap says how
// many lines are missing in it.
func TestLogLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lines, bytes int
		pause        time.Duration // between two lines
		least, late  int           // lines that are logged; those that wait before the end
	}{
		"all at once":              {lines: 100_000, bytes: 10, least: abi.LogBurst + mostHeld, late: 100_000},
		"long lines at once":       {lines: 100_000, bytes: 1000, least: abi.LogBurst + heldBytes/1100, late: 100_000},
		"more bytes than it may":   {lines: 2_000, bytes: 8000, pause: 10 * time.Millisecond, least: abi.MaxLogBytes/8100 + heldBytes/8100, late: 2_000},
		"a little too fast":        {lines: 60_000, bytes: 10, pause: 4 * time.Millisecond, least: 46_000, late: 2 * abi.LogLinesPerSecond},
		"twice as fast":            {lines: 20_000, bytes: 10, pause: 2500 * time.Microsecond, least: 9_000, late: 2 * abi.LogLinesPerSecond},
		"long ones, twice as fast": {lines: 4_000, bytes: 1000, pause: 2500 * time.Microsecond, least: abi.LogBurst, late: 4_000},
		"in the limits":            {lines: 3_000, bytes: 10, pause: 5 * time.Millisecond, least: 3_000},
		"a burst, and no more":     {lines: abi.LogBurst, bytes: 10, least: abi.LogBurst},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRecorder()
				l := logLimit{bytes: abi.MaxLogBytes}
				text := make([]byte, 0, 8192)
				for n := range c.lines {
					text = append(fmt.Appendf(text[:0], "%06d", n), strings.Repeat("x", c.bytes-6)...)
					l.log(t.Context(), r, abi.LevelInfo, text, []byte("a\x00b"))
					time.Sleep(c.pause)
				}
				if last := r.lines[len(r.lines)-1].msg; last[:6] < fmt.Sprintf("%06d", max(c.lines-1-c.late, 0)) {
					t.Errorf("before the end the newest line is %.6s", last)
				}
				if l.size > heldBytes || len(l.held) > mostHeld {
					t.Errorf("%d lines of %d bytes are held", len(l.held), l.size)
				}
				l.flush(r)
				next, logged, bytes := 0, 0, 0
				for _, line := range r.lines {
					if strings.HasPrefix(line.msg, "lines are missing") {
						gap, err := strconv.Atoi(line.kv[1])
						if err != nil {
							t.Fatal(err)
						}
						next += gap
						continue
					}
					if line.msg[:6] != fmt.Sprintf("%06d", next) || len(line.msg) != c.bytes || strings.Join(line.kv, "=") != "a=b" {
						t.Fatalf("line %.6s of %d bytes %q, want %d", line.msg, len(line.msg), line.kv, next)
					}
					next++
					logged++
					bytes += c.bytes
				}
				if bytes > abi.MaxLogBytes+heldBytes {
					t.Errorf("%d bytes are logged", bytes)
				}
				if next != c.lines || logged < c.least || logged+l.dropped != c.lines {
					t.Errorf("the end is %d of %d; %d are logged, want at least %d; %d are dropped", next, c.lines, logged, c.least, l.dropped)
				}
			})
		})
	}
}

// TestOutput_ended: what a guest writes at once is not logged to its end when its time is up, though it be
// one line of many pieces.
func TestOutput_ended(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	lines := 0
	whole := &abi.WholeLog{Add: func(context.Context, int, string, []string) { lines++; cancel() }}
	in := &instance{ctx: ctx, host: newRecorder(), lines: logLimit{whole: whole, bytes: abi.MaxLogBytes}}
	defer func() {
		if f, ok := recover().(*fault); !ok || !f.ended || lines != 1 {
			t.Errorf("%d lines, %+v", lines, f)
		}
	}()
	o := output{in: in}
	_, _ = o.Write(make([]byte, 100*abi.MaxLogMessage))
}
