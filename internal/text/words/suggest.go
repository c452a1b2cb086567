package words

import (
	"strings"
	"unicode/utf8"
)

// Suggest returns `; did you mean "x"?` for the name that is nearest, or
// nothing if none is near.
func Suggest(found string, names []string) string {
	if n := Nearest(found, names); n != "" {
		return `; did you mean "` + n + `"?`
	}
	return ""
}

// leastPrefix is how many letters a name's beginning must have to suggest it.
const leastPrefix = 3

// Nearest returns the shortest name that begins with found, else the name with the fewest edits from found, at
// most a third of its letters; the first of several. Case and separators are ignored.
func Nearest(found string, names []string) string {
	plain := strings.NewReplacer("-", "", "_", "", ".", "")
	f := strings.ToLower(plain.Replace(found))
	letters := utf8.RuneCountInString(f)
	if letters > 64 {
		return ""
	}
	best, least, begins := "", -1, false
	for _, name := range names {
		n := strings.ToLower(plain.Replace(name))
		prefix := letters >= leastPrefix && strings.HasPrefix(n, f)
		has := utf8.RuneCountInString(n)
		most := max(1, has/3)
		if !prefix && (has-letters > most || letters-has > most) {
			continue // that many letters are missing, or too many
		}
		d := has - letters // number of edits for a name that begins so
		if !prefix {
			d = Edits(f, n)
		}
		near := prefix || d <= most
		better := least < 0 || (prefix && !begins) || (prefix == begins && d < least)
		if near && better {
			best, least, begins = name, d, prefix
		}
	}
	return best
}

// Edits is how many letters have to be inserted, deleted, replaced or swapped
// with the letter beside them to turn one text into the other.
func Edits(from, to string) int {
	a, b := []rune(from), []rune(to)
	// Rows of the table of distances between prefixes: two back, one back, now.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
