package service

import "testing"

// TestRestored_text: the record names the hosts that could not be asked, too.
func TestRestored_text(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]Restored{
		"":                       {},
		"a, b":                   {Hosts: []string{"a", "b"}},
		"a; not b: it is ending": {Hosts: []string{"a"}, Failed: []string{"b: it is ending"}},
		"not a: gone; b: gone":   {Failed: []string{"a: gone", "b: gone"}},
	} {
		if got := r.text(); got != want {
			t.Errorf("found %q, expected %q", got, want)
		}
	}
}
