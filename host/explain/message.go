package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// message is a row of the table with the values of its places. It has no language yet.
type message struct {
	row    string // empty for no text
	places places
}

// places are values by the names of their places: texts, lists of texts, numbers, times,
// messages, and the types below.
type places map[string]any

type (
	// word is a word of the program, of which the table may have the text.
	word struct{ kind, word string }
	// quoted is a value in quotation marks.
	quoted struct{ value any }
	// report is a host's reason, with its codes and its cause, if any.
	typed string
	// report is what a host said, with its codes, and for which cause if it has one.
	report struct {
		text  string
		codes reason.Codes
		cause event.SkipCause
	}
)

// write returns the text of a message about a group of items in a language.
func (tl *timeline) write(in i18n.Language, m message, g group) string {
	return i18n.Fill(table[g.row(m.row)][in], func(place string) string {
		if v, given := m.places[place]; given {
			return tl.value(in, v, g)
		}
		row := place
		switch place {
		case "items":
			return g.items.String()
		case "instant":
			return tl.at(tl.fire.instant)
		case "first":
			return tl.at(g.first)
		case "last":
			return tl.at(g.last)
		case "most":
			return duration(in, g.most)
		case "span":
			if row = "span.at"; tl.at(g.first) != tl.at(g.last) {
				row = "span.from"
			}
		case "took":
			if words.Short(g.least) != words.Short(g.most) {
				row = "took.up-to"
			}
		case "due", "unknown":
			if tl.fire.trigger != 0 {
				row = map[string]string{"due": "triggered", "unknown": "unknown-triggered"}[place]
				if tl.fire.given && place == "due" {
					row = "given"
				}
			}
		}
		return tl.write(in, message{row, m.places}, g)
	})
}

// value is what stands in a place.
func (tl *timeline) value(in i18n.Language, v any, g group) string {
	switch v := v.(type) {
	case string:
		return v
	case time.Time:
		return tl.at(v)
	case []string:
		return strings.Join(v, table["comma"][in])
	case []message:
		var parts []string
		for _, m := range v {
			parts = append(parts, tl.write(in, m, g))
		}
		return strings.Join(parts, table["comma"][in])
	case message:
		return tl.write(in, v, g)
	case word:
		return table.Word(in, v.kind, v.word)
	case quoted:
		return quote(in, tl.value(in, v.value, g))
	case typed:
		if in == en {
			return string(v)
		}
		return quote(in, string(v))
	case report:
		return tl.said(in, v)
	}
	return fmt.Sprint(v)
}

// said returns a report in a language. Text without a translation is quoted after its cause.
func (tl *timeline) said(in i18n.Language, r report) string {
	if in == en {
		return r.text
	}
	if translation := r.codes.Text(in, func(place, v string) string { return tl.argument(in, place, v) }); translation != "" {
		return translation
	}
	if r.cause == "" {
		return quote(in, r.text)
	}
	return tl.write(in, message{"cause-said", places{"cause": word{"cause", string(r.cause)}, "reason": typed(r.text)}}, group{items: tree.Items{0}})
}

// argument is an argument of a code in a language: spans and times of programs are read.
func (tl *timeline) argument(in i18n.Language, place, v string) string {
	switch place {
	case "reason":
		return quote(in, v)
	case "hosts":
		return tl.value(in, strings.Split(v, ", "), group{})
	}
	if d, err := time.ParseDuration(v); err == nil {
		return duration(in, d)
	}
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return tl.at(t)
	}
	return v
}

// quote puts a text into a language's quotation marks.
func quote(in i18n.Language, text string) string {
	if in == zh {
		return "“" + text + "”"
	}
	return strconv.Quote(text)
}

// duration is a time span with the units of a language.
func duration(in i18n.Language, d time.Duration) string {
	if in == en {
		return words.Short(d)
	}
	var units []string
	for _, u := range []string{"ms", "µs", "ns", "h", "m", "s"} {
		units = append(units, u, table.Word(in, "unit", u))
	}
	return strings.TrimSpace(strings.NewReplacer(units...).Replace(words.Short(d)))
}
