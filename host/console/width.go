package console

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
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
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

// Shorten cuts what is wider than width, and says so by an ellipsis. A width of 0 or less is no bound.
func Shorten(s string, width int) string {
	if width <= 0 || Width(s) <= width {
		return s
	}
	columns := 0
	for i, r := range s {
		if columns += runeWidth(r); columns > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}
