package labels

import (
	"maps"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 63)
	for text, want := range map[string]Set{
		"":                                nil,
		"team=billing":                    {"team": "billing"},
		" tier = gold , team=billing":     {"team": "billing", "tier": "gold"},
		"example.com/team=a_b.c-d,empty=": {"example.com/team": "a_b.c-d", "empty": ""},
		long + "=" + long:                 {long: long},
	} {
		got, err := Parse(text)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v, expected %v", text, got, err, want)
		}
		again, err := Parse(got.String())
		if err != nil || !maps.Equal(again, got) {
			t.Errorf("%q: String does not come back: %v, %v", text, again, err)
		}
	}
	if got := (Set{"b": "2", "a": "1"}).String(); got != "a=1,b=2" {
		t.Errorf("found %q, expected it by name", got)
	}
	for _, bad := range []string{
		"team", "=x", "team=a=b", "team=,team=x", ",", "a=1,", "-a=1", "a-=1", "a/b/c=1", "/a=1", "a/=1", "A.com/x=1", "a..b/x=1", "a_b/x=1", "a=ä", "a b=c",
		"a=.b", long + "a=1", "a=" + long + "a", strings.Repeat("a.", 127) + "/x=1", strings.Repeat("x=1,", 16) + "y=1",
	} {
		if got, err := Parse(bad); err == nil || len(err.Error()) > 500 {
			t.Errorf("%q: found %v, %v, expected a short error", bad, got, err)
		}
	}
}

func TestMostLabels(t *testing.T) {
	var parts []string
	for n := range Max + 1 {
		parts = append(parts, string(rune('a'+n))+"=1")
	}
	if _, err := Parse(strings.Join(parts[:Max], ",")); err != nil {
		t.Error(err)
	}
	if _, err := Parse(strings.Join(parts, ",")); err == nil || !strings.Contains(err.Error(), "found 17 labels, expected at most 16") {
		t.Errorf("found %v, expected a bound", err)
	}
}

func TestSelector(t *testing.T) {
	jobs := map[string]Set{
		"gold":  {"team": "billing", "tier": "gold"},
		"test":  {"team": "billing", "tier": "test"},
		"other": {"team": "etl", "empty": ""},
		"none":  nil,
	}
	for text, want := range map[string]string{
		"":                        "gold none other test",
		"team=billing":            "gold test",
		"team==billing":           "gold test",
		"team = billing ,tier":    "gold test",
		"team!=billing":           "none other",
		"tier":                    "gold test",
		"!tier":                   "none other",
		"! tier":                  "none other",
		"empty=":                  "other",
		"tier!=":                  "gold none other test",
		"team=billing,tier!=test": "gold",
		"team=billing,team=etl":   "",
	} {
		s, err := ParseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		again, err := ParseSelector(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("%q: %q does not come back: %v", text, s, err)
		}
		for name, of := range jobs {
			expected := want != "" && strings.Contains(" "+want+" ", " "+name+" ")
			if s.Matches(of) != expected || again.Matches(of) != expected {
				t.Errorf("%q finds %s: %v", text, name, s.Matches(of))
			}
		}
		if s.Empty() != (text == "") {
			t.Errorf("%q is empty: %v", text, s.Empty())
		}
	}
	both, err := ParseSelector("team=billing", "", "tier=gold")
	if err != nil || both.String() != "team=billing,tier=gold" {
		t.Errorf("found %q, %v, expected all conditions of both", both, err)
	}
	for _, bad := range []string{"=x", "!", "!=x", "a=b,", ",", "a in (b)", "a=b=c", "a===b", "a!b", "a=b;c=d", "ä", "!a=b", strings.Repeat("a,", MaxTerms) + "a"} {
		if s, err := ParseSelector(bad); err == nil || len(err.Error()) > 600 {
			t.Errorf("%q: found %q, %v, expected a short error", bad, s, err)
		}
	}
}
