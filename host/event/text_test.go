package event

import (
	"strings"
	"testing"
)

// TestOffsetText: text is shown as it is, other bytes by their digits, and both are bounded.
func TestOffsetText(t *testing.T) {
	t.Parallel()
	for offset, want := range map[string]string{
		"": "", "2026-11-23 页 7": "2026-11-23 页 7", "\x00\x07": "0x0007", "a\xff": "0x61ff", "a\x1b[2J": "0x611b5b324a",
		strings.Repeat("x", MaxOffset+1): strings.Repeat("x", MaxOffset-3) + "…",
		strings.Repeat("\x00", 1<<16):    "0x" + strings.Repeat("0", MaxOffset-5) + "…",
	} {
		if got := OffsetText([]byte(offset)); got != want {
			t.Errorf("%.20q is %q, want %q", offset, got, want)
		}
	}
}
