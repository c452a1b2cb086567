package terminal

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width is how many columns of a terminal a line of text takes: two for a wide character, as Chinese has, and none
// for one that is drawn over the one before.
func Width(s string) (columns int) {
	for _, r := range s {
		columns += runeWidth(r)
	}
	return columns
}

func runeWidth(r rune) int {
	if r < 0x300 { // the first combining character
		return 1
	}
	// Vowels and finals of Hangul, and the filler among them, join the consonant before.
	hangul := (0x1160 <= r && r <= 0x11FF) || (0xD7B0 <= r && r <= 0xD7FF)
	if hangul || unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Pad appends spaces up to the width.
func Pad(s string, width int) string {
	if n := width - Width(s); n > 0 {
		return s + strings.Repeat(" ", n)
	}
	return s
}

// mostMarks is how many characters without a width may follow one another: more than any language has
// (Unicode's stream-safe text, UAX #15).
const mostMarks = 30

// Shorten cuts what is wider than width, or what has more than 30 characters without a width in a row, and says so by
// an ellipsis. A width of 0 or less is no bound.
func Shorten(s string, width int) string {
	if width <= 0 {
		return s
	}
	columns, marks := 0, 0
	end := 0 // of what leaves room for the ellipsis
	for i, r := range s {
		if columns < width {
			end = i
		}
		w := runeWidth(r)
		columns += w
		if marks++; w > 0 {
			marks = 0
		}
		if columns > width || marks > mostMarks {
			return s[:end] + "…"
		}
	}
	return s
}
