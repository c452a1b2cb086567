package abi

import "errors"

// ErrList reports a string list that does not end with a NUL byte.
var ErrList = errors.New("string list does not end with NUL")

// AppendList appends the elements to b, each followed by one NUL byte. An
// element that contains NUL is cut there.
func AppendList(b []byte, elements ...string) []byte {
	for _, e := range elements {
		for i := 0; i < len(e) && e[i] != 0; i++ {
			b = append(b, e[i])
		}
		b = append(b, 0)
	}
	return b
}

// ParseList splits a string list. An empty list is nil.
func ParseList(b []byte) ([]string, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[len(b)-1] != 0 {
		return nil, ErrList
	}
	count := 0
	for _, c := range b {
		if c == 0 {
			count++
		}
	}
	list := make([]string, 0, count) // a list may be only NULs: growing the slice would take a multiple
	start := 0
	for i, c := range b {
		if c == 0 {
			list = append(list, string(b[start:i]))
			start = i + 1
		}
	}
	return list, nil
}
