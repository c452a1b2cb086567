package main

import (
	"strings"
	"unicode/utf8"
)

// suggest returns `; did you mean "x"?` for the name that is nearest, or
// nothing if none is near.
func suggest(found string, names []string) string {
	if n := nearest(found, names); n != "" {
		return `; did you mean "` + n + `"?`
	}
	return ""
}

// leastPrefix is how many letters a name's beginning must have to suggest it.
const leastPrefix = 3

// nearest is the shortest name that begins with found, else the name with the
// fewest edits from found, of at most a third of its letters; the first of
// several. Case and separators do not count.
func nearest(found string, names []string) string {
	plain := strings.NewReplacer("-", "", "_", "", ".", "")
	f := []rune(strings.ToLower(plain.Replace(found)))
	if len(f) > 64 {
		return ""
	}
	best, least, begins := "", -1, false
	for _, name := range names {
		n := []rune(strings.ToLower(plain.Replace(name)))
		d := edits(f, n)
		prefix := len(f) >= leastPrefix && strings.HasPrefix(string(n), string(f))
		near := prefix || d <= max(1, len(n)/3)
		better := least < 0 || (prefix && !begins) || (prefix == begins && d < least)
		if near && better {
			best, least, begins = name, d, prefix
		}
	}
	return best
}

// edits is how many letters have to be inserted, deleted, replaced or swapped
// with the letter beside them to turn a into b.
func edits(a, b []rune) int {
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

// clip shortens what is quoted in a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
