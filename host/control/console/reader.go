package console

import (
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// reader is the reader of a page: language, zone, and present time. Templates call its methods.
type reader struct {
	Lang i18n.Language
	Zone *time.Location
	// ZoneKnown is set once the browser has said its zone.
	ZoneKnown bool
	Now       time.Time
	// Update is set while the page is one for the script that counts times from now on.
	Update bool

	texts i18n.Table
}

// T is the text of a key in the reader's language.
func (r *reader) T(key string, args ...any) string { return r.texts.Text(r.Lang, key, args...) }

// Word is the text of a word of the program, in the reader's language.
func (r *reader) Word(kind string, word any) string {
	return r.texts.Word(r.Lang, kind, fmt.Sprint(word))
}

// Number is a number with separators between thousands.
func (r *reader) Number(n any) string {
	digits := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}

// Size is a number of bytes.
func (r *reader) Size(n int64) string { return words.Size(n) }

// Size64 is Size of an int.
func (r *reader) Size64(n int) string { return words.Size(int64(n)) }

// Line returns text of guests and hosts with control characters escaped.
func (r *reader) Line(text string) string { return words.Printable(text) }

// pageInText is a page that a message names, as in "docs/grants.md".
var pageInText = regexp.MustCompile(`\bdocs/([a-z0-9-]+)\.md\b`)

// Linked is [reader.Line] with links to the pages that the text names.
func (r *reader) Linked(text string) template.HTML {
	return template.HTML(pageInText.ReplaceAllString(template.HTMLEscapeString(r.Line(text)), `<a href="/docs/$1">docs/$1.md</a>`)) // escaped before
}

// First is the first line of a text.
func (r *reader) First(text string) string { return words.Printable(words.FirstLine(text)) }

// Digest is the beginning of a digest.
func (r *reader) Digest(d string) string {
	d = strings.TrimPrefix(d, "sha256:")
	return d[:min(len(d), 12)]
}

// Drift is by how much a clock is ahead or behind.
func (r *reader) Drift(d time.Duration) string {
	if d < 0 {
		return r.T("clock.behind", words.Short(-d))
	}
	return r.T("clock.ahead", words.Short(d))
}

// Names lists names.
func (r *reader) Names(list []string) string { return strings.Join(list, ", ") }

// ItemNumber names an item that may be missing in what is shown.
func (r *reader) ItemNumber(item *int) string {
	if item == nil {
		return ""
	}
	return r.T("item.number", *item)
}

// Less is a difference.
func (r *reader) Less(n, by int) int { return n - by }

// Items is a list of items as ranges: 0-3,7.
func (r *reader) Items(items []int) string { return tree.Items(items).String() }

// Some are the counts that are not 0, with their names.
func (r *reader) Some(counts map[string]int64) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 0 {
			list = append(list, fmt.Sprintf("%s %d", name, n))
		}
	}
	return list
}

// OutsideText says what a run did with a capability.
func (r *reader) OutsideText(c abi.OutsideCount) string {
	text := r.T("outside.calls", c.Calls)
	if c.Failed > 0 {
		text += ", " + r.T("outside.failed", c.Failed)
	}
	for _, why := range slices.Sorted(maps.Keys(c.Refused)) {
		text += ", " + r.T("outside.refused", c.Refused[why], why)
	}
	if c.Sent+c.Received > 0 {
		text += ", " + r.T("outside.bytes", r.Size(c.Sent), r.Size(c.Received))
	}
	if len(c.Targets) > 0 {
		text += ": " + r.Names(c.Targets)
	}
	return text
}
