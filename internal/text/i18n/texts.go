// Package i18n has the program's languages: which one to use, and texts in all of them. Pure.
package i18n

import (
	"fmt"
	"strconv"
	"strings"
)

// Language is a language of the program, as a BCP 47 tag. Empty is English.
type Language string

// The languages.
const (
	English Language = "en"
	Chinese Language = "zh"
)

// Languages are all of them.
func Languages() []Language { return []Language{English, Chinese} }

// Chosen returns the language of a request: the wanted one, else the first supported one in the header
// Accept-Language, else English.
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

// Table has texts in all languages, by key. A text has places {name}. A key with the suffix .one is the
// singular of the key without it.
type Table map[string]map[Language]string

// Text returns the text of a key with values in its places {0}, {1} and so on; an unknown key is returned as it
// is. If the first value is 1 it takes the singular.
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

// Word returns the text of one of the program's words, such as a state; a word without a text is returned as it
// is.
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
