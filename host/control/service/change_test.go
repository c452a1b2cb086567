package service

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

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

// TestEditOf: the newest edit of a setting that took effect says where its value comes from, if it
// has that value.
func TestEditOf(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2*event.MaxReason)
	changes := []history.Change{
		{Who: "failed", After: `{"cron":"2"}`, Error: "no"},
		{Who: "other", After: `{"timeout":"1m0s"}`},
		{Who: "cut", After: `{"args":"` + event.Cut(long, event.MaxReason) + `"}`},
		{Who: "no settings", After: "x"},
		{Who: "newest", After: `{"cron":"2"}`},
		{Who: "oldest", After: `{"cron":"1","label":"","args":"a"}`},
	}
	for _, c := range []struct{ setting, now, want string }{
		{"cron", "2", "newest"}, {"cron", "1", ""}, {"cron", "3", ""}, {"label", "", "oldest"}, {"timeout", "1m0s", "other"}, {"args", long, "cut"}, {"args", "a", ""}, {"type", "", ""},
	} {
		who := ""
		if e := editOf(changes, c.setting, c.now); e != nil {
			who = e.Who
		}
		if who != c.want {
			t.Errorf("%s=%.20s comes from %q, expected %q", c.setting, c.now, who, c.want)
		}
	}
}
