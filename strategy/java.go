package strategy

import (
	"cmp"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// hashCode is Java's String.hashCode: over UTF-16 code units, wrapping around
// in 32 bits.
func hashCode(s string) int32 {
	var h int32
	for _, r := range s {
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			h = (31*h+high)*31 + low
		} else {
			h = 31*h + r
		}
	}
	return h
}

// Sorted returns the instances in ElasticJob's order, in which strategies
// expect them: by name, descending, as Java compares strings (by UTF-16 code
// units; for ASCII that is byte order, not numeric: 10.0.0.9 is before
// 10.0.0.10). The argument is not changed.
func Sorted(instances []string) []string {
	sorted := slices.Clone(instances)
	slices.SortFunc(sorted, func(a, b string) int { return compareUTF16(b, a) })
	return sorted
}

// compareUTF16 orders strings as Java's compareTo does. It differs from byte
// order only where characters beyond U+FFFF, whose first unit is a surrogate,
// meet those from U+E000 to U+FFFF.
func compareUTF16(a, b string) int {
	for a != "" && b != "" {
		ra, na := utf8.DecodeRuneInString(a)
		rb, nb := utf8.DecodeRuneInString(b)
		if ra != rb {
			if (ra > 0xFFFF) != (rb > 0xFFFF) {
				return cmp.Compare(firstUnit(ra), firstUnit(rb))
			}
			return cmp.Compare(ra, rb)
		}
		a, b = a[na:], b[nb:]
	}
	return cmp.Compare(len(a), len(b))
}

func firstUnit(r rune) rune {
	if high, _ := utf16.EncodeRune(r); high != utf8.RuneError {
		return high
	}
	return r
}
