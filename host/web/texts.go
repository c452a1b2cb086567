package web

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// language is a language of the console, as BCP 47 has it.
type language string

const (
	english language = "en"
	chinese language = "zh"
)

func languages() []language { return []language{english, chinese} }

// texts are the console's in all languages, by key.
//
// A text has places {0}, {1} and so on. A key that ends with .one is taken instead of the
// key without that if the first place is 1.
type texts map[string]map[language]string

//go:embed texts.tsv
var textTable string

// readTexts reads the table: a line for each text, with tabs between its key, the English
// and the Chinese. Lines that begin with # are comments.
func readTexts(table string) (texts, error) {
	all := make(texts)
	for n, line := range strings.Split(table, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(line, "\t")
		if len(columns) != 3 || columns[0] == "" || columns[2] == "" {
			return nil, fmt.Errorf("texts.tsv:%d: found %d columns, expected a key, the English and the Chinese", n+1, len(columns))
		}
		if all[columns[0]] != nil {
			return nil, fmt.Errorf("texts.tsv:%d: the key %s is there twice", n+1, columns[0])
		}
		all[columns[0]] = map[language]string{english: columns[1], chinese: columns[2]}
	}
	return all, nil
}

// text is the text of a key; a key that is not known is its own text.
func (t texts) text(in language, key string, args ...any) string {
	if len(args) > 0 && fmt.Sprint(args[0]) == "1" && t[key+".one"] != nil {
		key += ".one"
	}
	found, known := t[key]
	if !known {
		return key
	}
	text := found[in]
	if len(args) == 0 {
		return text
	}
	pairs := make([]string, 0, 2*len(args))
	for n, a := range args {
		pairs = append(pairs, "{"+strconv.Itoa(n)+"}", fmt.Sprint(a))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// word is the text of a word of the program, such as a state; one without a text stays
// as it is.
func (t texts) word(in language, kind, word string) string {
	if found, known := t[kind+"."+word]; known {
		return found[in]
	}
	return word
}

// chosen is the language of a request: that of the cookie, else the first that the
// browser wants and the console has.
func chosen(cookie, accept string) language {
	for _, l := range languages() {
		if cookie == string(l) {
			return l
		}
	}
	best, weight := english, 0.0
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
		for _, l := range languages() {
			if main == string(l) && q > weight {
				best, weight = l, q
			}
		}
	}
	return best
}
