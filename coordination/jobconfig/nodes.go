package jobconfig

import (
	"bytes"
	"fmt"
	"strings"
)

// MaxNodes bounds how many values a YAML document may have: two bytes of text can make one value, which takes a
// hundred times as much memory.
const MaxNodes = 200_000

// CheckNodes refuses a document with more than [MaxNodes] values. It needs no memory, because it counts the
// characters that begin or separate values, wherever they occur: the count is never below the number of values,
// and at most about twice as large.
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
		case ',': // in a mapping, a name before it has an empty value, too
			n += 2
		case '\n', '\r', ':', '[', '{':
			n++
		case '-', '?': // part of a text, unless a blank follows
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

// otherBreaks are the line breaks of YAML 1.1 besides \n and \r.
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
