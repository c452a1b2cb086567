package grants

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

const (
	// MaxSecret is the longest secret in bytes.
	MaxSecret = 64 << 10
	// minRedacted is the shortest secret that is looked for in texts: shorter ones are
	// part of too much that is none.
	minRedacted = 6
	// minLine is the shortest line of a secret of several that is looked for by
	// itself; what guests log is redacted line by line.
	minLine = 16
)

// Resolve reads a secret, without the line break at the end of its file. The error
// shows neither it nor the file's name, for a guest may read it.
func Resolve(s Secret) (string, error) {
	if s.Env != "" {
		value := os.Getenv(s.Env)
		switch {
		case value == "":
			return "", fmt.Errorf("the variable %s of the host is not set, or empty", s.Env)
		case len(value) > MaxSecret:
			return "", fmt.Errorf("the variable %s of the host has more than %d bytes", s.Env, MaxSecret)
		}
		return value, nil
	}
	if s.File == "" {
		return "", errors.New("there is no place that the secret comes from")
	}
	data, err := readFile(s.File)
	if err != nil {
		return "", fmt.Errorf("its file %w", err)
	}
	if line, ended := bytes.CutSuffix(data, []byte("\n")); ended {
		data = bytes.TrimSuffix(line, []byte("\r"))
	}
	switch {
	case len(data) == 0:
		return "", errors.New("its file is empty")
	case len(data) > MaxSecret:
		return "", fmt.Errorf("its file has more than %d bytes", MaxSecret)
	}
	return string(data), nil
}

// Redactor replaces secrets in texts. It is safe for concurrent use, and nil redacts
// nothing.
type Redactor struct{ replace *strings.Replacer }

// NewRedactor makes one for the values of secrets, by name. Values of less than 6 bytes
// are not looked for. Nil if there are no others.
func NewRedactor(values map[string]string) *Redactor {
	type pair struct{ form, name string }
	var pairs []pair
	for _, name := range byName(values) {
		for _, form := range forms(values[name]) {
			pairs = append(pairs, pair{form, name})
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	// Of two that begin at the same place, the first wins: the longest.
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(len(b.form), len(a.form)) })
	var args []string
	for _, p := range pairs {
		args = append(args, p.form, "[secret "+p.name+"]")
	}
	return &Redactor{strings.NewReplacer(args...)}
}

// Redact returns the text with [secret NAME] in the place of each secret, also where it is
// encoded: as base64 (alone or as a part of more), in a URL, or in JSON.
func (r *Redactor) Redact(text string) string {
	if r == nil {
		return text
	}
	return r.replace.Replace(text)
}

// forms are the texts in which a value may occur.
func forms(value string) []string {
	var all []string
	add := func(s string, least int) {
		if len(s) >= least && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	encoded := func(value string, least int) {
		if len(value) < least {
			return
		}
		add(value, least)
		add(url.QueryEscape(value), least)
		add(url.PathEscape(value), least)
		if quoted, err := json.Marshal(value); err == nil {
			add(string(quoted[1:len(quoted)-1]), least)
		}
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for before := range 3 {
				add(within(e, value, before), least)
			}
		}
	}
	encoded(value, minRedacted)
	if lines := strings.Split(value, "\n"); len(lines) > 1 {
		for _, line := range lines {
			if line = strings.TrimSuffix(line, "\r"); !strings.HasPrefix(line, "-----") {
				encoded(line, minLine)
			}
		}
	}
	return all
}

// within is what a value always becomes in the base64 of a longer text, if so many bytes, of each
// three, come before it.
func within(e *base64.Encoding, value string, before int) string {
	text := e.EncodeToString(append(make([]byte, before), value...))
	first := []int{0, 2, 3}[before] // those with bits of what comes before
	if (before+len(value))%3 != 0 {
		return text[first : len(text)-1] // the last has bits of what comes after
	}
	return text[first:]
}
