package jobconfig

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxNodes bounds how many values a YAML document may have: a text of two bytes makes one, which takes a hundred
// times as much memory.
const MaxNodes = 200_000

// CheckNodes refuses a document with more than [MaxNodes] values. It counts the characters that begin or separate
// values, wherever they stand, so that it needs no memory: there may be fewer values than it counts, never more than
// twice as many and a few.
func CheckNodes(data []byte) error {
	if n := countNodes(data); n > MaxNodes {
		return fmt.Errorf("found about %d values (lines, commas and colons), expected at most %d", n, MaxNodes)
	}
	return nil
}

func countNodes(data []byte) int {
	n := 0
	for i, b := range data {
		switch b {
		case ',': // in a mapping, a name that it ends has an empty value, too
			n += 2
		case '\n', '\r', ':', '[', '{':
			n++
		case '-', '?': // they are characters of a text, unless a blank follows
			if i+1 == len(data) || isBlankOrBreak(data[i+1:]) {
				n++
			}
		}
	}
	for _, lineBreak := range otherBreaks {
		n += bytes.Count(data, []byte(lineBreak))
	}
	return n
}

// otherBreaks are the breaks of lines, besides \n and \r, that YAML 1.1 knows.
var otherBreaks = [...]string{"\u0085", "\u2028", "\u2029"}

func isBlankOrBreak(rest []byte) bool {
	if strings.IndexByte(" \t\n\r,[]{}", rest[0]) >= 0 {
		return true
	}
	for _, lineBreak := range otherBreaks {
		if bytes.HasPrefix(rest, []byte(lineBreak)) {
			return true
		}
	}
	return false
}
