package event

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// MaxReason is the longest Event.Reason in bytes, but for that of [Refused], which has
// one line for each reason and at most [words.MaxReasons] bytes and a line with the
// number of the others.
const MaxReason = words.MaxReason

// Harmless is text of a guest as every sink may show it: control characters but
// line breaks and tabs, and what is no UTF-8, become U+FFFD. They could pass for
// the host's own lines in a terminal, and grow sixfold in JSON.
func Harmless(s string) string {
	const replacement = '\uFFFD'
	if !strings.ContainsFunc(s, isControl) && utf8.ValidString(s) {
		return s
	}
	s = strings.ReplaceAll(s, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return replacement
		}
		return r
	}, s) // Map turns what is no UTF-8 into U+FFFD
}

func isControl(r rune) bool {
	return (r < ' ' && r != '\n' && r != '\t') || (0x7F <= r && r < 0xA0)
}

// Cut cuts text to at most n bytes, not inside a character, with a mark at its end if there is
// room for it.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	if n < len(mark) {
		return ""
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}

// Reason is text of a guest as an event has it.
func Reason(s string) string { return words.Reason(Harmless(s)) }

// MaxOffset is the longest Event.Offset in bytes; longer ones are cut.
const MaxOffset = 128

// OffsetText is an offset as an event has it: text, or the bytes in hexadecimal digits after 0x if it is none.
func OffsetText(offset []byte) string {
	text := string(offset)
	if !utf8.Valid(offset) || strings.ContainsFunc(text, isControl) {
		text = fmt.Sprintf("0x%x", offset[:min(len(offset), MaxOffset)])
	}
	return Cut(text, MaxOffset)
}

// HarmlessAll is Harmless for each of the texts.
func HarmlessAll(texts []string) []string {
	if !slices.ContainsFunc(texts, func(s string) bool { return Harmless(s) != s }) {
		return texts
	}
	out := make([]string, len(texts))
	for i, s := range texts {
		out[i] = Harmless(s)
	}
	return out
}

// HarmlessLine is a line of a guest as every sink may show it. Its message has at most n bytes,
// and so have its attributes together: what Harmless replaces may become longer.
func HarmlessLine(msg string, attrs []string, n int) (string, []string) {
	msg, attrs = Cut(Harmless(msg), n), HarmlessAll(attrs)
	size := 0
	for _, s := range attrs {
		size += len(s)
	}
	if size <= n {
		return msg, attrs
	}
	attrs = slices.Clone(attrs)
	for i, s := range attrs {
		attrs[i] = Cut(s, n)
		n -= len(attrs[i])
	}
	return msg, attrs
}

// LineOverhead is what a line of the log takes besides the guest's texts, and
// attributeOverhead what a key and its value do, in bytes.
const LineOverhead, attributeOverhead = 200, 6

// Written is about what a line takes in a sink, in bytes: what JSON escapes
// takes two.
func Written(texts ...string) int {
	n := LineOverhead
	for _, s := range texts {
		n += len(s) + attributeOverhead
		for i := range len(s) {
			if c := s[i]; c == '"' || c == '\\' || c == '\n' || c == '\t' {
				n++
			}
		}
	}
	return n
}
