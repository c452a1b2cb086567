// Package i18n has the languages of the program: which one is wanted, and texts that are
// in all of them. Pure.
package i18n

import (
	"fmt"
	"strconv"
	"strings"
)

// Language is one in which the program speaks, as BCP 47 has it. Empty is English.
type Language string

// The languages.
const (
	English Language = "en"
	Chinese Language = "zh"
)

// Languages are all of them.
func Languages() []Language { return []Language{English, Chinese} }

// Chosen is the language of a request: the wanted one, else the first that the header
// Accept-Language names and the program has, else English.
func Chosen(wanted, accept string) Language {
	for _, l := range Languages() {
		if wanted == string(l) {
			return l
		}
	}
	best, weight := English, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		tag, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		q := 1.0
		if text, given := strings.CutPrefix(strings.TrimSpace(parameters), "q="); given {
			var err error
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		main, _, _ := strings.Cut(strings.ToLower(tag), "-")
		for _, l := range Languages() {
			if main == string(l) && q > weight {
				best, weight = l, q
			}
		}
	}
	return best
}

// Table has texts in all languages, by key. A text has places {name}. A key that ends with
// .one is of a single thing, and the key without that of several.
type Table map[string]map[Language]string

// Text is the text of a key with values in its places {0}, {1} and so on; a key that is
// not known is its own text. The text for a single thing is taken if the first value is 1.
func (t Table) Text(in Language, key string, values ...any) string {
	if len(values) > 0 && fmt.Sprint(values[0]) == "1" && t[key+".one"] != nil {
		key += ".one"
	}
	found, known := t[key]
	if !known {
		return key
	}
	if len(values) == 0 {
		return found[in]
	}
	return Fill(found[in], func(place string) string {
		n, err := strconv.Atoi(place)
		if err != nil || n < 0 || n >= len(values) {
			return "{" + place + "}"
		}
		return fmt.Sprint(values[n])
	})
}

// Word is the text of a word of the program, such as a state; one without a text stays
// as it is.
func (t Table) Word(in Language, kind, word string) string {
	if found, known := t[kind+"."+word]; known {
		return found[in]
	}
	return word
}

// Fill puts a value into each place {name} of a text.
func Fill(text string, value func(place string) string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		place, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(before)
		b.WriteString(value(place))
		text = after
	}
}
