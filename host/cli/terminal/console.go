// Package terminal writes lines and tables for people: in columns and colours on a terminal, as plain lines or JSON in a
// file. It knows the layout of a line, not its content.
package terminal

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Style is how lines for one stream look.
type Style struct {
	// columns: aligned columns with the time of day, for a terminal. Otherwise the full time, then key=value, for files.
	Columns bool
	Colour  bool
	// Width is how wide tables may be; 0 is no limit.
	Width int
	// Height is how many lines a screen has; 0 is no limit. See Screen.
	Height int
	// Seal is the seal of the stream's [Terminal]. Without a seal colours are plain escape sequences, which a Terminal
	// escapes like foreign text.
	Seal Seal
}

// Colours, as parameters of the escape sequence.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	cyan   = "36"
	Grey   = "90"
	Bold   = "1"
)

func (s Style) Paint(colour, text string) string {
	if !s.Colour || colour == "" || text == "" {
		return text
	}
	return s.Seal.order(colour+"m") + text + s.Seal.order("0m")
}

// Top begins at the top of an empty screen.
func (s Style) Top() string { return s.Seal.order("H") + s.Seal.order("2J") }

const (
	whoLeast = 12
	whoMost  = 28
	// LongList is how wide a list may be before its elements get lines of
	// their own.
	LongList = 60
)

// Console prints entries of the log and rows of the terminal view, one line
// each, to one stream. It is safe for concurrent use.
type Console struct {
	Style Style
	Out   io.Writer

	mu  sync.Mutex
	who int // width of the column; it only grows
}

func New(out io.Writer, s Style) *Console {
	return &Console{Style: s, Out: out, who: whoLeast}
}

// Row prints a line in columns: time, tag, who, text. Further lines of the text
// are indented below it.
func (c *Console) Row(t time.Time, tag, tagColour, who, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	who = words.Printable(who)
	c.who = min(max(c.who, Width(who)), whoMost)
	indent := strings.Repeat(" ", 8+2+4+2+c.who+2)
	line := c.Style.Paint(Grey, t.Format(time.TimeOnly)) + "  " +
		c.Style.Paint(tagColour, Pad(tag, 4)) + "  " +
		c.Style.Paint(cyan, Pad(who, c.who)) + "  " +
		strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+indent)
	_, _ = io.WriteString(c.Out, strings.TrimRight(line, " ")+"\n")
}

// attribute is a key and its value as text; a list has its elements, too.
type attribute struct {
	key, value string
	list       []string
}

// attributes turns fields into text, in their order.
func attributes(fields []zapcore.Field) []attribute {
	var list []attribute
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		keys := make([]string, 0, len(m.Fields))
		for k := range m.Fields {
			if k != f.Key+"Verbose" { // an error's second form
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			a := attribute{key: k, value: valueText(m.Fields[k])}
			if elements, ok := m.Fields[k].([]any); ok {
				for _, e := range elements {
					a.list = append(a.list, valueText(e))
				}
			}
			list = append(list, a)
		}
	}
	return list
}

func valueText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Duration:
		return words.Short(v)
	case time.Time:
		return v.Format(time.RFC3339)
	case []any:
		var parts []string
		for _, e := range v {
			parts = append(parts, valueText(e))
		}
		return strings.Join(parts, "; ")
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var parts []string
		for _, k := range keys {
			parts = append(parts, k+":"+valueText(v[k]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v)
}

// pairs writes key=value, both quoted where they could be misread, because a guest also chooses its keys.
func (s Style) pairs(list []attribute) string {
	var b strings.Builder
	for i, a := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s.Paint(Grey, word(a.key)+"=") + word(a.value))
	}
	return b.String()
}

// word is text as one word of a line.
func word(text string) string {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool {
		return r == ' ' || r == '"' || r == '=' || !unicode.IsPrint(r) || r == utf8.RuneError
	}) {
		return strconv.Quote(text)
	}
	return text
}

// consoleCore is a zap core that prints to a console.
type consoleCore struct {
	zapcore.LevelEnabler
	console *Console
	fields  []zapcore.Field
}

// Names of the fields that say whom a line is about. In columns they are a
// column of their own.
const (
	FieldJob   = "job"
	fieldItem  = "item"
	fieldTask  = "taskId"
	fieldFence = "fence"
)

// With implements [zapcore.Core].
func (c *consoleCore) With(fields []zapcore.Field) zapcore.Core {
	d := *c
	d.fields = append(slices.Clip(d.fields), fields...)
	return &d
}

// Check implements [zapcore.Core].
func (c *consoleCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Sync implements [zapcore.Core].
func (c *consoleCore) Sync() error { return nil }

// Write implements [zapcore.Core].
func (c *consoleCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	list := attributes(append(slices.Clip(c.fields), fields...))
	s := c.console.Style
	message := words.Printable(e.Message)
	tag, colour := LevelTag(e.Level)
	if !s.Columns {
		line := e.Time.Format("2006-01-02T15:04:05.000Z07:00") + " " + s.Paint(colour, Pad(e.Level.CapitalString(), 5)) + " " +
			strings.ReplaceAll(strings.TrimRight(message, "\n"), "\n", "\n    ")
		if len(list) > 0 {
			line += " " + s.pairs(list)
		}
		_, err := io.WriteString(c.console.Out, line+"\n")
		return err
	}
	who, blocks := "", ""
	var rest []attribute
	for _, a := range list {
		switch {
		case a.key == FieldJob:
			who = a.value
		case a.key == fieldItem:
			who += "[" + a.value + "]"
		case a.key == fieldTask, a.key == fieldFence: // job and item say enough to a person; files and JSON have them
		case len(a.list) > 1 && utf8.RuneCountInString(a.value) > LongList: // all that is wrong with a file, as a rule
			blocks += "\n" + words.Printable(strings.Join(a.list, "\n"))
		case strings.Contains(strings.TrimSpace(a.value), "\n"): // a stack, as a rule
			blocks += "\n" + s.Paint(Grey, word(a.key)+":") + "\n" + words.Printable(strings.TrimSpace(a.value))
		default:
			rest = append(rest, a)
		}
	}
	if who == "" {
		who = "host"
	}
	if len(rest) > 0 {
		message = strings.TrimRight(message, "\n") + "  " + s.pairs(rest)
	}
	if e.Level >= zapcore.ErrorLevel {
		message = s.Paint(Red, message)
	}
	c.console.Row(e.Time, tag, colour, who, message+blocks)
	return nil
}

func LevelTag(l zapcore.Level) (tag, colour string) {
	switch {
	case l <= zapcore.DebugLevel:
		return "dbug", Grey
	case l == zapcore.InfoLevel:
		return "info", ""
	case l == zapcore.WarnLevel:
		return "warn", Yellow
	}
	return "err", Red
}

// ZapLevel is the level of zap for one of abi or log/slog.
func ZapLevel(l int) zapcore.Level {
	switch level := slog.Level(l); {
	case level < slog.LevelInfo:
		return zapcore.DebugLevel
	case level < slog.LevelWarn:
		return zapcore.InfoLevel
	case level < slog.LevelError:
		return zapcore.WarnLevel
	}
	return zapcore.ErrorLevel
}
