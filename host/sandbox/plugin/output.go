package plugin

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/abi"
)

// logLimit bounds what one invocation may log. Lines beyond the limit are held back: the newest are logged when
// there is room again, and at the end, and the others are dropped. So the end of a log is always kept.
//
// A [abi.WholeLog] gets every line, at once.
type logLimit struct {
	whole   *abi.WholeLog // nil: there is none
	lines   *rate.Limiter // nil until the first line
	bytes   int           // left
	dropped int
	cut     int

	held []heldLine // oldest first
	size int        // of held, in bytes
	gap  int        // lines that were dropped before held
}

// heldLine is a line as the guest gave it.
type heldLine struct {
	level   int
	msg, kv []byte
	cut     bool
}

func (h *heldLine) size() int { return len(h.msg) + len(h.kv) + lineOverhead }

// texts is the line as a host takes it.
func (h *heldLine) texts() (level int, msg string, kv []string) {
	return h.level, clean(h.msg, abi.MaxLogMessage), attributes(clean(h.kv, abi.MaxLogMessage))
}

// mostHeld bounds the lines that are held back, and heldBytes their bytes: as much as a history keeps of the
// end of a log. lineOverhead is added for each line.
const mostHeld, heldBytes, lineOverhead = abi.LogBurst, 64 << 10, 16

// log logs a line, or holds it back. It copies both texts. ctx bounds the wait for the whole log.
func (l *logLimit) log(ctx context.Context, host abi.Host, level int, msg, kv []byte) {
	const most = abi.MaxLogMessage
	line := heldLine{level, cutText(msg, most), cutText(kv, most), len(msg) > most || len(kv) > most}
	if l.whole != nil {
		level, msg, kv := line.texts()
		l.whole.Add(ctx, level, msg, kv)
	}
	if l.lines == nil {
		l.lines = rate.NewLimiter(abi.LogLinesPerSecond, abi.LogBurst)
	}
	if size := len(line.msg) + len(line.kv); len(l.held) == 0 && size <= l.bytes && l.lines.Allow() {
		l.bytes -= size
		l.emit(host, &line)
		return
	}
	l.hold(line)
	l.release(host)
}

func (l *logLimit) emit(host abi.Host, line *heldLine) {
	if line.cut {
		l.cut++
	}
	host.Log(line.texts())
}

// hold keeps a line, and drops the oldest ones that do not fit.
func (l *logLimit) hold(line heldLine) {
	var free heldLine // whose memory is used again
	for len(l.held) == mostHeld || (len(l.held) > 0 && l.size+line.size() > heldBytes) {
		free = l.drop()
	}
	line.msg, line.kv = append(free.msg[:0], line.msg...), append(free.kv[:0], line.kv...)
	l.held = append(l.held, line)
	l.size += line.size()
}

// drop drops the oldest line that is held.
func (l *logLimit) drop() heldLine {
	first := l.held[0]
	l.held = l.held[1:]
	l.size -= first.size()
	l.dropped++
	l.gap++
	return first
}

// release logs the newest held lines when the limits allow it: a second's worth, after a line about the dropped
// ones.
func (l *logLimit) release(host abi.Host) {
	n := min(len(l.held)+1, abi.LogLinesPerSecond)
	if l.texts() > l.bytes || !l.lines.AllowN(time.Now(), n) {
		return
	}
	for len(l.held) >= n {
		l.drop()
	}
	l.bytes -= l.texts()
	l.flush(host)
}

// texts are the bytes of the texts that are held.
func (l *logLimit) texts() int { return l.size - lineOverhead*len(l.held) }

// flush logs what is held.
func (l *logLimit) flush(host abi.Host) {
	if l.gap > 0 {
		kv := []string{"dropped_lines", strconv.Itoa(l.gap)}
		if l.whole != nil {
			kv = append(kv, abi.AttrWholeLog, l.whole.Where)
		}
		host.Log(abi.LevelWarn, "lines are missing here: the guest logged more than it may", kv)
	}
	for i := range l.held {
		l.emit(host, &l.held[i])
	}
	l.held, l.size, l.gap = nil, 0, 0
}

// report says in one line what was not logged.
func (l *logLimit) report(host abi.Host) {
	if l.dropped == 0 && l.cut == 0 {
		return
	}
	var kv []string
	add := func(key string, n int) {
		if n > 0 {
			kv = append(kv, key, strconv.Itoa(n))
		}
	}
	add("dropped_lines", l.dropped)
	add("cut_lines", l.cut)
	host.Log(abi.LevelWarn, "the guest's output was over the limits", kv)
}

// output is a guest's stdout or stderr: each line is logged. It never fails, since that would change what the
// guest does.
type output struct {
	in    *instance
	level int
	keep  bool // keeps the tail
	line  []byte
	tail  []byte
}

// tailSize is how much of stderr goes into the error record, in bytes.
const tailSize = 8 << 10

func (o *output) Write(p []byte) (int, error) {
	o.in.stopIfEnded()
	if o.keep {
		o.remember(p)
	}
	n := len(p)
	for len(p) > 0 {
		o.in.stopIfEnded() // a line may have waited
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			o.add(p)
			break
		}
		o.add(p[:i])
		o.emit()
		p = p[i+1:]
	}
	return n, nil
}

// add appends to the unfinished line; a line that grows over the limit is
// logged in pieces.
func (o *output) add(p []byte) {
	for len(o.line)+len(p) > abi.MaxLogMessage {
		o.in.stopIfEnded() // logging may have waited, and there may be much more
		n := abi.MaxLogMessage - len(o.line)
		o.line = append(o.line, p[:n]...)
		p = p[n:]
		head := cutText(o.line, abi.MaxLogMessage)
		rest := append([]byte(nil), o.line[len(head):]...)
		o.line = head
		o.emit()
		o.line = append(o.line, rest...)
	}
	o.line = append(o.line, p...)
}

func (o *output) emit() {
	line := bytes.TrimSuffix(o.line, []byte("\r"))
	o.line = o.line[:0]
	if o.in.host.LogEnabled(o.level) {
		o.in.lines.log(o.in.ctx, o.in.host, o.level, line, nil)
	}
}

// flush logs a last line without an end.
func (o *output) flush() {
	if len(o.line) > 0 {
		o.emit()
	}
}

func (o *output) remember(p []byte) {
	if len(p) >= tailSize {
		o.tail = append(o.tail[:0], p[len(p)-tailSize:]...)
		return
	}
	if over := len(o.tail) + len(p) - tailSize; over > 0 {
		o.tail = o.tail[:copy(o.tail, o.tail[over:])]
	}
	o.tail = append(o.tail, p...)
}

// cutText cuts b to at most n bytes, not inside a character.
func cutText(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(b[i]) {
			return b[:i]
		}
	}
	return b[:n]
}

// clean copies at most n bytes of text, with U+FFFD for what is not UTF-8.
func clean(b []byte, n int) string {
	s := strings.ToValidUTF8(string(cutText(b, n)), "\uFFFD")
	if len(s) > n { // U+FFFD is longer than what it stands for
		s = string(cutText([]byte(s), n))
	}
	return s
}
