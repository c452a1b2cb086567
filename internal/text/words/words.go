// Package words formats values for messages: durations and numbers as people read them, quoted text shortened
// and escaped, and suggestions for misspelt names.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Duration writes 30s, not 30s0ms, and 2m, not 2m0s.
func Duration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Printable escapes text of guests and files: characters that are not [Harmless] become [Escaped].
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !Harmless(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Harmless(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(Escaped(r))
		}
	}
	return b.String()
}

// Harmless reports whether a character only shows on a terminal: line breaks, tabs, blanks and everything
// printable. Invalid UTF-8 is not harmless, nor are characters that change the direction of text.
func Harmless(r rune) bool {
	return r == '\n' || r == '\t' || (r != utf8.RuneError && (unicode.IsPrint(r) || unicode.Is(unicode.Zs, r)))
}

// Escaped is a character that is not [Harmless], in Go's form below the blank and in JSON's form otherwise, so
// that JSON, which cannot contain the former, keeps its value.
func Escaped(r rune) string {
	switch {
	case r < ' ':
		q := strconv.QuoteRuneToASCII(r)
		return q[1 : len(q)-1]
	case r > 0xFFFF:
		high, low := utf16.EncodeRune(r)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// Short rounds to about three digits.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Short(-d)
	case d < time.Microsecond:
	case d < time.Millisecond:
		d = d.Round(time.Microsecond)
	case d < 10*time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	case d < 100*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	case d < time.Second:
		d = d.Round(time.Millisecond)
	case d < 10*time.Second:
		d = d.Round(10 * time.Millisecond)
	case d < time.Minute:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Second)
	}
	return Duration(d)
}

// Since writes how long ago something was.
func Since(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Ago(max(0, now.Sub(t))) + " ago"
}

// Dash is "-" for an empty cell of a table.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Times counts how often something was.
func Times(n int64) string {
	if n == 1 {
		return "once"
	}
	return strconv.FormatInt(n, 10) + " times"
}

// Command is a command of wasmjob that a message suggests, quoted for sh, bash and zsh: verb, name and flags. A
// name that looks like a flag comes last, after --.
func Command(verb, name string, flags ...string) string {
	parts := []string{"wasmjob", verb}
	if strings.HasPrefix(name, "-") {
		flags = append(flags[:len(flags):len(flags)], "--", name)
	} else {
		parts = append(parts, Argument(name))
	}
	for _, f := range flags {
		parts = append(parts, Argument(f))
	}
	return strings.Join(parts, " ")
}

// Argument quotes an argument of a command for sh, bash and zsh, if that is necessary.
func Argument(s string) string {
	special := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./:@%+,", r) // zsh expands =x
	}
	switch {
	case s != "" && !strings.ContainsFunc(s, special):
		return s
	case !strings.ContainsAny(s, "$`\"\\!"):
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// State is the word that people read for a state or a verdict. Commands pause a job; the API has "disabled" for what is
// paused, and the registry "DISABLED".
func State[T ~string](state T) string {
	switch state {
	case "disabled":
		return "paused"
	case "DISABLED":
		return "PAUSED"
	}
	return string(state)
}

// Clip shortens what is quoted in a message.
func Clip(s string) string { return ClipTo(s, 80) }

// ClipTo shortens text to so many bytes, and an ellipsis.
func ClipTo(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Size is a number of bytes for people.
func Size(n int64) string {
	switch {
	case n < 1<<10:
		return Count(int(n), "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// Ago writes a span in at most two units: 3d4h, 2m10s, 500ms.
func Ago(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Ago(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return Duration(d.Round(time.Second))
	case d < 24*time.Hour:
		return Duration(d.Round(time.Minute))
	}
	d = d.Round(time.Hour)
	days := d / (24 * time.Hour)
	if hours := (d % (24 * time.Hour)) / time.Hour; hours > 0 {
		return fmt.Sprintf("%dd%dh", days, hours)
	}
	return fmt.Sprintf("%dd", days)
}

// Until writes the span from one time to a later one as Ago does; of 250 years and more only
// the years, since a duration holds no more than 292. Of an earlier one it is 0.
func Until(from, to time.Time) string {
	const year, most = 365.2425 * 24 * 60 * 60, 250
	if years := int64(float64(to.Unix()-from.Unix()) / year); years >= most {
		return Count(int(years), "year")
	}
	return Ago(max(0, to.Sub(from)))
}

// Count is a number of things with their name.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// OneLine is a text of several lines in one.
func OneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// FirstLine is the first line of a text.
func FirstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}
