package plugin

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/wasmjob/wasmjob/abi"
)

// logLimit bounds what one invocation may log.
type logLimit struct {
	lines   *rate.Limiter // nil until the first line
	bytes   int           // left
	dropped int
	cut     int
}

// take asks for a line.
func (l *logLimit) take(bytes int, cut bool) bool {
	if l.lines == nil {
		l.lines = rate.NewLimiter(abi.LogLinesPerSecond, abi.LogBurst)
	}
	if bytes > l.bytes || !l.lines.Allow() {
		l.dropped++
		return false
	}
	l.bytes -= bytes
	if cut {
		l.cut++
	}
	return true
}

// report says in one line what was not logged.
func (l *logLimit) report(host abi.Host, outputLeft int) {
	if l.dropped == 0 && l.cut == 0 && outputLeft >= 0 {
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
	add("dropped_output_bytes", -outputLeft)
	host.Log(abi.LevelWarn, "the guest's output was over the limits", kv)
}

// output is a guest's stdout or stderr. It never fails and never blocks, for
// either would change what the guest does: what is over the limits is
// swallowed and counted.
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
	if left := max(o.in.left, 0); n > left {
		p = p[:left]
	}
	o.in.left -= n // below zero: what was swallowed
	for len(p) > 0 {
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
	if o.in.host.LogEnabled(o.level) && o.in.lines.take(len(line), false) {
		o.in.host.Log(o.level, clean(line, abi.MaxLogMessage), nil)
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
