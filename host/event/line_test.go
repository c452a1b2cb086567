package event

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestHarmlessLine: a line is as long as it may be after what is not text in it was replaced.
func TestHarmlessLine(t *testing.T) {
	t.Parallel()
	const n = 100
	for name, c := range map[string]struct {
		msg   string
		attrs []string
		cut   bool
	}{
		"text":                       {"text", []string{"k", "v"}, false},
		"as long as it may be":       {strings.Repeat("x", n), []string{strings.Repeat("k", n/2), strings.Repeat("v", n/2)}, false},
		"control characters":         {strings.Repeat("\x01", n), []string{strings.Repeat("\x01", n/2), strings.Repeat("\x7f", n/2)}, true},
		"no UTF-8":                   {strings.Repeat("\xff", n), []string{"k", strings.Repeat("\xff", n-1), "k", "\xff"}, true},
		"characters, and attributes": {strings.Repeat("é", n), slices.Repeat([]string{"é\x01"}, n), true},
	} {
		msg, attrs := HarmlessLine(c.msg, c.attrs, n)
		size := len(strings.Join(attrs, ""))
		if len(msg) > n || size > n || !utf8.ValidString(msg) || len(attrs) != len(c.attrs) {
			t.Errorf("%s: %d bytes, and %d of %d attributes", name, len(msg), size, len(attrs))
		}
		if same := msg == c.msg && slices.Equal(attrs, c.attrs); same == c.cut {
			t.Errorf("%s: %q %q", name, msg, attrs)
		}
		if least := n - 2*utf8.UTFMax; c.cut && (len(msg) < least || size < least) {
			t.Errorf("%s: %d and %d bytes are left", name, len(msg), size)
		}
	}
}
