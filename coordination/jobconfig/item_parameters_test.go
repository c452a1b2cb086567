package jobconfig

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// The results are those of ElasticJob 3.0.4.
func TestParseItemParameters(t *testing.T) {
	t.Parallel()
	for s, expected := range map[string]map[int]string{
		"":                        {},
		",":                       {},
		",,":                      {},
		"0=A, 1 = B ,2=C":         {0: "A", 1: "B", 2: "C"},
		"0=A,1=B,":                {0: "A", 1: "B"},
		"0=A,0=Z":                 {0: "Z"},
		"01=z":                    {1: "z"},
		"+1=a":                    {1: "a"},
		"-1=N":                    {-1: "N"},
		"5=Q":                     {5: "Q"},
		"0=A=":                    {0: "A"},
		"0= =":                    {0: ""},
		"\t0=a\n":                 {0: "a"},
		"0=a\u00a0":               {0: "a\u00a0"},
		"0=北京,1=上海":               {0: "北京", 1: "上海"},
		"2147483647=a":            {2147483647: "a"},
		"0=Beijing,1=Shanghai,,,": {0: "Beijing", 1: "Shanghai"},
	} {
		got, err := ParseItemParameters(s)
		if err != nil || !maps.Equal(got, expected) {
			t.Errorf("%q: got %v, %v, expected %v", s, got, err, expected)
		}
	}
	for s, expected := range map[string]string{
		"0=A,,1=B":     `an entry is empty, expected item=parameter`,
		"0=A, ":        `an entry is empty, expected item=parameter`,
		" ":            `an entry is empty, expected item=parameter`,
		"0":            `found "0", expected item=parameter, the parameter not empty and without an equals sign`,
		"0=":           `found "0=", expected item=parameter, the parameter not empty and without an equals sign`,
		"0= ":          `found "0=", expected item=parameter, the parameter not empty and without an equals sign`,
		"0=A=B":        `found "0=A=B", expected item=parameter, the parameter not empty and without an equals sign`,
		"0==A":         `found "0==A", expected item=parameter, the parameter not empty and without an equals sign`,
		"x=A":          `found "x=A", expected item=parameter, where the item is a whole number, not "x"`,
		"=A":           `found "=A", expected item=parameter, where the item is a whole number, not ""`,
		"2147483648=a": `found "2147483648=a", expected item=parameter, where the item is a whole number, not "2147483648"`,
		"0x1=a":        `found "0x1=a", expected item=parameter, where the item is a whole number, not "0x1"`,
		"1_0=a":        `found "1_0=a", expected item=parameter, where the item is a whole number, not "1_0"`,
		"\u00a00=a":    `found "\u00a00=a", expected item=parameter, where the item is a whole number, not "\u00a00"`,
	} {
		got, err := ParseItemParameters(s)
		if err == nil || err.Error() != expected || got != nil {
			t.Errorf("%q: got %v, %v, expected %s", s, got, err, expected)
		}
	}
}

func TestCheckItemParameters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s        string
		total    int
		expected string
	}{
		{"", 0, ""},
		{"0=A,1=B", 2, ""},
		{" 1 = B , 0=A", 2, ""},
		{"1=B", 2, ""},
		{"0=A,1=B,", 2, "an entry is empty, expected item=parameter"},
		{"0=A,0=Z", 2, `item 0 has two parameters, "A" and "Z"`},
		{"0=A,00=Z", 2, `item 0 has two parameters, "A" and "Z"`},
		{"0=A,2=C", 2, `"2=C" is for item 2, but the job has only items 0 to 1`},
		{"-1=C", 1, `"-1=C" is for item -1, but the job has only item 0`},
		{"0=A=", 1, `found "0=A=", expected item=parameter, the parameter not empty and without an equals sign`},
		{"x=1,,7=a,7=b", 3, `found "x=1", expected item=parameter, where the item is a whole number, not "x"
an entry is empty, expected item=parameter
"7=a" is for item 7, but the job has only items 0 to 2
item 7 has two parameters, "a" and "b"`},
		{"0=A", 0, `"0=A" is for item 0, but the job has no items`},
	} {
		got := ""
		if err := CheckItemParameters(c.s, c.total); err != nil {
			got = err.Error()
		}
		if got != c.expected {
			t.Errorf("%q of %d: got\n%s\nexpected\n%s", c.s, c.total, got, c.expected)
		}
	}
}

func FuzzItemParameters(f *testing.F) {
	for _, s := range []string{"", "0=A, 1 = B ,2=C", "0=A,,1=B", "0= =", "01=z,-1=N", ",", "0=A=B", "\u00a00=a"} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, s string, total int) {
		parameters, err := ParseItemParameters(s)
		problems := CheckItemParameters(s, total)
		if err != nil && problems == nil {
			t.Errorf("%q: the file rule accepts what Java refuses: %v", s, err)
		}
		if problems != nil {
			return
		}
		// What a file may say can be said again, item by item.
		var entries []string
		for item, parameter := range parameters {
			if item < 0 || item >= total || parameter == "" || strings.ContainsAny(parameter, ",=") {
				t.Errorf("%q of %d: accepted %d=%q", s, total, item, parameter)
			}
			entries = append(entries, fmt.Sprintf("%d=%s", item, parameter))
		}
		again, err := ParseItemParameters(strings.Join(entries, ","))
		if err != nil || !maps.Equal(again, parameters) {
			t.Errorf("%q: got %v, written again %v, %v", s, parameters, again, err)
		}
	})
}
