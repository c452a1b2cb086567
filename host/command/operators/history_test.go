package operators

import (
	"slices"
	"testing"
)

func TestOperationsOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"sign in": {"sign in"}, "!sign,edit": {"!sign", "edit"}, "edit cron, timeZone": {"edit cron, timeZone"},
		"edit cron,timeZone, disable": {"edit cron, timeZone", "disable"}, "edit,sing": {"edit", "sing"},
	} {
		if got := operationsOf([]string{text}); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
