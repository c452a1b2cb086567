package grants

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// minRedacted is the shortest secret that is redacted, in bytes. Shorter ones would match too much ordinary
	// text.
	minRedacted = 6
	// minPart is the shortest part of a secret that is redacted; minLongPart applies to a secret of several
	// lines, or of more than longSecret bytes.
	minPart, minLongPart = 8, 16
	longSecret           = 1 << 10
	// gram is the length in bytes of an index key.
	gram = minRedacted
	// mostPlaces bounds the places in the index for the same key.
	mostPlaces = 16
)

// Named is the value of a secret, with the secret's name.
type Named struct{ Name, Value string }

// Redactor replaces secrets, and long parts of them, in texts. It is safe for concurrent use,
// and nil redacts nothing.
type Redactor struct {
	forms []form
	known map[string]int // shortest part by text, during construction
	index map[uint64][]place
	// maybe has a bit for each hashed key of index, to skip most of a text.
	maybe [64]uint64
}

// form is a text in which a secret may occur.
type form struct {
	text, name string
	least      int // the shortest part that is replaced, in bytes
}

// place is an offset in a form.
type place struct{ form, offset int32 }

// NewRedactor returns a redactor for the values of secrets. It ignores values of less than 6 bytes, and returns
// nil if there are no others.
func NewRedactor(values ...Named) *Redactor {
	r := &Redactor{index: map[uint64][]place{}, known: map[string]int{}}
	for _, v := range values {
		r.addSecret(v.Name, v.Value)
	}
	if len(r.forms) == 0 {
		return nil
	}
	r.known = nil
	return r
}

// addSecret adds all forms of a secret.
func (r *Redactor) addSecret(name, value string) {
	least := minPart
	if len(value) > longSecret {
		least = minLongPart
	}
	lines := strings.Split(value, "\n")
	if len(lines) > 1 {
		r.addEncoded(name, value, len(value))
		r.addBase64(name, value, minLongPart)
		for _, line := range lines {
			if line = strings.TrimSuffix(line, "\r"); len(line) >= minLongPart && !strings.HasPrefix(line, "-----") {
				r.addEncoded(name, line, minLongPart)
				r.addBase64(name, line, minLongPart)
			}
		}
		return
	}
	r.addBase64(name, value, least)
	if parts := partsOfURL(value); parts != nil {
		r.addEncoded(name, value, len(value))
		for _, part := range parts {
			r.addEncoded(name, part, least)
		}
		return
	}
	r.addEncoded(name, value, least)
	// A server that is sent USER:PASSWORD in base64 knows the password.
	_, password, found := strings.Cut(decoded(value), ":")
	if found {
		r.addEncoded(name, password, least)
	}
}

// partsOfURL returns the secret parts of a URL: the password, and what follows the host. It returns nil if the
// value is no URL. Scheme and host are not secret.
func partsOfURL(value string) []string {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		return nil
	}
	_, rest, _ := strings.Cut(value, "://")
	parts := []string{}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		parts = append(parts, rest[i+1:])
	}
	if password, given := u.User.Password(); given {
		parts = append(parts, password)
	} else if u.User != nil {
		parts = append(parts, u.User.Username())
	}
	return parts
}

// decoded decodes a base64 value, with or without "Basic " before it; empty if it is none.
func decoded(value string) string {
	value = strings.TrimRight(strings.TrimPrefix(value, "Basic "), "=")
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		text, err := e.DecodeString(value)
		if err == nil && utf8.Valid(text) && strings.IndexFunc(string(text), unicode.IsControl) < 0 {
			return string(text)
		}
	}
	return ""
}

// addEncoded adds a text unchanged, and as it appears in a URL, in JSON, and quoted by Go.
func (r *Redactor) addEncoded(name, text string, least int) {
	if len(text) < minRedacted {
		return
	}
	whole := least == len(text)
	add := func(encoded string) {
		if whole {
			least = len(encoded)
		}
		r.add(name, encoded, least)
	}
	add(text)
	add(url.QueryEscape(text))
	add(url.PathEscape(text))
	if quoted, err := json.Marshal(text); err == nil {
		add(string(quoted[1 : len(quoted)-1]))
	}
	for _, quoted := range []string{strconv.Quote(text), strconv.QuoteToASCII(text)} {
		add(quoted[1 : len(quoted)-1])
	}
}

// addBase64 adds what a text becomes in base64, alone or as a part of more.
func (r *Redactor) addBase64(name, text string, least int) {
	if len(text) < minRedacted {
		return
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			r.add(name, within(e, text, before), least)
		}
	}
}

// add adds a form. If it is shorter than least it must match as a whole.
func (r *Redactor) add(name, text string, least int) {
	least = min(least, len(text))
	if known, ok := r.known[text]; ok && known <= least {
		return
	}
	r.known[text] = least
	f := int32(len(r.forms))
	r.forms = append(r.forms, form{text, name, least})
	// Any part of least bytes contains one of these grams.
	for o := 0; o+gram <= len(text); o += least - gram + 1 {
		key := uint64(0)
		for _, c := range []byte(text[o : o+gram]) {
			key = key<<8 | uint64(lower(c))
		}
		if list := r.index[key]; len(list) < mostPlaces {
			r.index[key] = append(list, place{f, int32(o)})
		}
		h := hashOf(key)
		r.maybe[h/64] |= 1 << (h % 64)
	}
}

// within returns the part of the base64 of a longer text that does not depend on the rest, if before bytes
// (modulo three) precede the text.
func within(e *base64.Encoding, text string, before int) string {
	all := e.EncodeToString(append(make([]byte, before), text...))
	first := []int{0, 2, 3}[before] // those with bits of what comes before
	if (before+len(text))%3 != 0 {
		return all[first : len(all)-1] // the last has bits of what comes after
	}
	return all[first:]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// hashOf is below 4096.
func hashOf(key uint64) uint64 { return key * 0x9E3779B97F4A7C15 >> 52 }

// Redact returns the text with [secret NAME] in place of each secret, ignoring case, and of each part of at
// least 8 bytes (16 for a long secret, or one of several lines); also where it is encoded: as base64 (alone or
// inside more), in a URL, or in JSON.
func (r *Redactor) Redact(text string) string {
	if r == nil || len(text) < gram {
		return text
	}
	var out strings.Builder
	done := 0 // what is before it is in out, or replaced
	key := uint64(0)
	for i := range len(text) {
		key = (key<<8 | uint64(lower(text[i]))) & (1<<(8*gram) - 1)
		from := i - gram + 1
		if h := hashOf(key); from < done || r.maybe[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		if found, begin, end := r.longest(text, r.index[key], done, from); end > 0 {
			out.WriteString(text[done:begin])
			out.WriteString("[secret " + found.name + "]")
			done = end
		}
	}
	if done == 0 {
		return text
	}
	out.WriteString(text[done:])
	return out.String()
}

// longest finds the longest part of a form in the text, not before done, that contains one of the places at
// from. A whole form takes precedence over a part of another. end is 0 if there is none.
func (r *Redactor) longest(text string, places []place, done, from int) (found form, begin, end int) {
	for _, p := range places {
		f := r.forms[p.form]
		b, o := from, int(p.offset)
		for b > done && o > 0 && lower(text[b-1]) == lower(f.text[o-1]) {
			b, o = b-1, o-1
		}
		e := from + gram
		for at := int(p.offset) + gram; e < len(text) && at < len(f.text) && lower(text[e]) == lower(f.text[at]); at++ {
			e++
		}
		longer := e-b > end-begin || (e-b == end-begin && e-b == len(f.text) && len(found.text) > len(f.text))
		if e-b >= f.least && longer {
			found, begin, end = f, b, e
		}
	}
	return found, begin, end
}
