package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/host/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestColumns(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := NewLogger(false, zapcore.InfoLevel, New(&out, Style{Columns: true}), nil)
	log.Debug("hidden")
	log.Info("plain")
	log.With(zap.String(FieldJob, "a")).Warn("two\nlines", zap.Duration("after", 1234*time.Millisecond), zap.Error(errors.New("no way")), zap.Strings("list", []string{"x", "y"}))
	log.Error("boom", zap.String("stack", "f()\n\tf.go:1\n"), zap.String("empty", ""))
	GuestLog(log, event.GuestLog{Job: "cities", TaskID: "t", Item: 12, Message: "hi\x1b]0;evil\x07", Attrs: []string{"k", "v w", "job", "false", "item", "9"}})
	GuestLog(log, event.GuestLog{Job: "cities", TaskID: "t", Item: -1, Level: 8, Message: "listener"})
	GuestLog(log, event.GuestLog{Job: "cities", Item: 1, Level: -4, Message: "hidden"})
	GuestLog(log, event.GuestLog{Job: strings.Repeat("long", 10), Item: 1, Message: "wide"})
	log.Info("wide now")
	var got []string
	for l := range strings.Lines(out.String()) {
		if l[0] != ' ' {
			l = "TIME" + l[8:]
		}
		got = append(got, strings.TrimSuffix(l, "\n"))
	}
	want := []string{
		`TIME  info  host          plain`,
		`TIME  warn  a             two`,
		`                            lines  after=1.23s error="no way" list="x; y"`,
		`TIME  err   host          boom  empty=""`,
		`                            stack:`,
		`                            f()`,
		"                            \tf.go:1",
		`TIME  info  cities[12]    hi\x1b]0;evil\a  k="v w" guest.job=false guest.item=9`,
		`TIME  err   cities        listener`,
		`TIME  info  ` + strings.Repeat("long", 10) + `[1]  wide`,
		`TIME  info  host                          wide now`,
	}
	for i, w := range want {
		if strings.HasPrefix(w, "     ") { // the indent of the narrow column
			w = strings.Repeat(" ", 8+2+4+2+whoLeast+2) + strings.TrimLeft(w, " ")
		}
		if i >= len(got) || got[i] != w {
			t.Errorf("line %d\ngot  %q\nwant %q", i, got[min(i, len(got)-1)], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d:\n%s", len(got), len(want), &out)
	}
}

// TestLongLists: what is wrong with a file has a line for each, and JSON and
// files have all on one.
func TestLongLists(t *testing.T) {
	t.Parallel()
	reasons := zap.Strings("reasons", []string{"line 1: " + strings.Repeat("x", 40), "line 2: \x1b" + strings.Repeat("y", 20)})
	for columns, want := range map[bool]string{
		true: "refused  kept=true\n" + strings.Repeat(" ", 30) + "line 1: " + strings.Repeat("x", 40) + "\n" +
			strings.Repeat(" ", 30) + `line 2: \x1b` + strings.Repeat("y", 20) + "\n",
		false: `refused reasons="line 1: ` + strings.Repeat("x", 40) + `; line 2: \x1b` + strings.Repeat("y", 20) + "\" kept=true\n",
	} {
		var out strings.Builder
		NewLogger(false, zapcore.InfoLevel, New(&out, Style{Columns: columns}), nil).Warn("refused", reasons, zap.Bool("kept", true))
		if !strings.HasSuffix(out.String(), want) {
			t.Errorf("columns %v: got\n%s\nwant\n%s", columns, &out, want)
		}
	}
}

func TestLinesForFiles(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := NewLogger(false, zapcore.InfoLevel, New(&out, Style{}), nil)
	GuestLog(log, event.GuestLog{Job: "cities", TaskID: "cities@-@0@-@READY@-@x", Item: 0, Message: "forged\n2026-01-01T00:00:00.000Z INFO  line", Attrs: []string{"k", "a\nb"}})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[1], "    2026") {
		t.Errorf("a guest's line break makes a line of its own: %q", lines)
	}
	if want := ` job=cities item=0 taskId=cities@-@0@-@READY@-@x k="a\nb"`; !strings.HasSuffix(lines[len(lines)-1], want) {
		t.Errorf("got %q, want …%q", lines, want)
	}
	if _, err := time.Parse(time.RFC3339, strings.Fields(lines[0])[0]); err != nil {
		t.Error(err)
	}
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(true, zapcore.InfoLevel, nil, &out)
	GuestLog(log, event.GuestLog{Job: "cities", TaskID: "t", Item: 2, Fence: 77, Level: 4, Message: "m", Attrs: []string{"job", "evil", "k", "v"}})
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	attrs, _ := got["attrs"].(map[string]any)
	if got["job"] != "cities" || got["item"] != 2.0 || got["taskId"] != "t" || got["fence"] != 77.0 || got["level"] != "warn" || got["message"] != "m" || attrs["job"] != "evil" || attrs["k"] != "v" {
		t.Errorf("got %s", &out)
	}
}

func TestSlogReachesZap(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := Slog(NewLogger(false, zapcore.InfoLevel, New(&out, Style{}), nil))
	log.Debug("hidden")
	log.With("a", 1).WithGroup("g").With("b", true).Warn("said", "c", "d", slog.Group("h", "i", time.Second))
	if want := "WARN  said a=1 g.b=true g.c=d g.h.i=1s\n"; !strings.HasSuffix(out.String(), want) || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("got %q, want …%q", &out, want)
	}
}

// stuck blocks each write until it is let go.
type stuck struct {
	go_ chan struct{}
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.go_
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func TestOutputNeverWaits(t *testing.T) {
	t.Parallel()
	o := NewOutput()
	s := &stuck{go_: make(chan struct{})}
	w := o.To(s)
	const extra = 50
	for range outputQueue + extra {
		if _, err := io.WriteString(w, "x\n"); err != nil {
			t.Fatal(err)
		}
	}
	close(s.go_)
	o.Close()
	text := s.out.String()
	lines := strings.Count(text, "x\n")
	// One line may be with the writer while the queue is full.
	if lines < outputQueue || lines > outputQueue+1 {
		t.Errorf("%d lines arrived, want %d", lines, outputQueue)
	}
	if lost := outputQueue + extra - lines; !strings.Contains(text, droppedLine(lost)) {
		t.Errorf("the end %q does not tell of %d lines", text[len(text)-100:], lost)
	}
	if _, err := io.WriteString(w, "late\n"); err != nil || strings.Contains(s.out.String(), "late") {
		t.Error("a line after the end")
	}
	o.Close()
}

func TestOutputDoesNotWaitForEverAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(*testing.T) {
		o := NewOutput()
		s := &stuck{go_: make(chan struct{})}
		_, _ = io.WriteString(o.To(s), "x\n")
		began := time.Now()
		o.Close()
		if took := time.Since(began); took != outputGrace {
			t.Errorf("close took %s", took)
		}
		close(s.go_) // let the goroutine go, for the bubble's sake
		<-o.done
	})
}

// Nothing that a guest says is a line of its own, a key of the host's, or an
// order to the terminal; not in its message, its keys or its values.
func TestGuestsForgeNothing(t *testing.T) {
	t.Parallel()
	const forged = "\n2026-01-01T00:00:00.000Z ERROR host job=other"
	l := event.GuestLog{Job: "cities", TaskID: "t", Item: 3, Message: "m\x1b[2J" + forged, Attrs: []string{
		"k" + forged, "v" + forged, "a=b", "c=d", `q"`, `"`, "\x1b[31m", "\x1b[0m", "", "", "blank key", "x", "job", "other", "\u202e", "\u009b31m",
	}}
	var columns, lines, file bytes.Buffer
	for out, log := range map[*bytes.Buffer]*zap.Logger{
		&columns: NewLogger(false, zapcore.InfoLevel, New(&columns, Style{Columns: true}), nil),
		&lines:   NewLogger(false, zapcore.InfoLevel, New(&lines, Style{}), nil),
		&file:    NewLogger(true, zapcore.InfoLevel, nil, &file),
	} {
		GuestLog(log, l)
		if strings.Contains(out.String(), "\x1b") || out != &file && strings.Contains(out.String(), "\u009b") { // JSON is for programs, and the host takes these out before
			t.Errorf("an escape reaches the terminal: %q", out)
		}
	}
	for i, line := range strings.Split(strings.TrimSpace(columns.String()), "\n") {
		if i > 0 && !strings.HasPrefix(line, "        ") {
			t.Errorf("columns: line %d is %q", i, line)
		}
	}
	want := `"k\n2026-01-01T00:00:00.000Z ERROR host job=other"="v\n2026-01-01T00:00:00.000Z ERROR host job=other" "a=b"="c=d" "q\""="\"" ` +
		`"\x1b[31m"="\x1b[0m" ""="" "blank key"=x guest.job=other "\u202e"="\u009b31m"`
	if got := strings.Split(strings.TrimSpace(lines.String()), "\n"); len(got) != 2 || !strings.HasPrefix(got[1], "    2026") || !strings.HasSuffix(got[1], " item=3 taskId=t "+want) {
		t.Errorf("lines: got\n%s\nwant …%s", &lines, want)
	}
	var got struct {
		Job   string            `json:"job"`
		Item  int               `json:"item"`
		Attrs map[string]string `json:"attrs"`
	}
	if err := json.Unmarshal(file.Bytes(), &got); err != nil || bytes.Count(file.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("JSON: %v\n%s", err, &file)
	}
	if got.Job != "cities" || got.Item != 3 || got.Attrs["k"+forged] != "v"+forged || got.Attrs["job"] != "other" || got.Attrs["a=b"] != "c=d" {
		t.Errorf("JSON: got %+v", got)
	}
}
