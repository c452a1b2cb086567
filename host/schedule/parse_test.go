package schedule

import (
	"strings"
	"testing"
	"time"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]string{
		// Shape.
		"":                                      `cron "": empty`,
		"   ":                                   `cron "   ": empty`,
		"* * * *":                               `4 fields found; 6 or 7 are Quartz`,
		"0 0 12 * * ? 2027 more":                `8 fields found`,
		"TZ=UTC 0 0 * * *":                      `TZ=UTC: the time zone has a setting of its own`,
		"CRON_TZ=Asia/Tokyo 0 0 12 * * ?":       `the time zone has a setting of its own`,
		strings.Repeat("0,", 600) + "0 * * * *": `1209 characters long, at most 1000 are allowed`,

		// Ranges of values.
		"0 0 25 * * ?":                   `cron "0 0 25 * * ?": field 3 (hours): 25 is out of range 0-23`,
		"60 * * * * ?":                   `field 1 (seconds): 60 is out of range 0-59`,
		"0 60 * * * ?":                   `field 2 (minutes): 60 is out of range 0-59`,
		"0 0 12 32 * ?":                  `field 4 (day of month): 32 is out of range 1-31`,
		"0 0 12 0 * ?":                   `field 4 (day of month): 0 is out of range 1-31`,
		"0 0 12 1 13 ?":                  `field 5 (month): 13 is out of range 1-12 or JAN-DEC`,
		"0 0 12 1 FOO ?":                 `field 5 (month): "FOO" is not allowed; allowed are *, 1-12 or JAN-DEC`,
		"0 0 12 1 JANUARY ?":             `field 5 (month): "JANUARY" is not allowed`,
		"0 0 12 ? * 0":                   `field 6 (day of week): 0 is out of range 1-7 (1 = SUN) or SUN-SAT`,
		"0 0 12 ? * 8":                   `field 6 (day of week): 8 is out of range 1-7 (1 = SUN)`,
		"0 0 12 1 1 ? 1969":              `field 7 (year): 1969 is out of range 1970-2099`,
		"0 0 12 1 1 ? 2100":              `field 7 (year): 2100 is out of range 1970-2099`,
		"99999999999999999999 * * * * ?": `99999999999999999999 is out of range 0-59`,
		"0 0 12 1 1 ? 2030-2028":         `field 7 (year): "2030-2028" ends before it begins`,

		// Lists, ranges, steps.
		"1,,2 0 0 * * ?":       `field 1 (seconds): "" has an empty entry`,
		",1 0 0 * * ?":         `field 1 (seconds): "" has an empty entry`,
		"5- * * * * ?":         `field 1 (seconds): "" is not allowed`,
		"-5 * * * * ?":         `field 1 (seconds): "" is not allowed`,
		"1-2-3 * * * * ?":      `field 1 (seconds): "2-3" is not allowed`,
		"5/ * * * * ?":         `step "" in "5/" is not a number`,
		"1/2/3 * * * * ?":      `step "2/3" in "1/2/3" is not a number`,
		"0/+5 * * * * ?":       `step "+5" in "0/+5" is not a number`,
		"*/0 * * * * ?":        `step 0 in "*/0" is out of range 1-59`,
		"*/60 * * * * ?":       `step 60 in "*/60" is out of range 1-59`,
		"0 0 */24 * * ?":       `field 3 (hours): step 24 in "*/24" is out of range 1-23`,
		"*5 * * * * ?":         `"*5" is not allowed`,
		"5x * * * * ?":         `"5x" is not allowed`,
		"1.5 * * * * ?":        `"1.5" is not allowed`,
		"٣ * * * * ?":          `"٣" is not allowed`,
		"0 0 12 1 FEB-3 ?":     `"FEB-3" mixes a name and a number`,
		"0 0 12 ? * 2-FRI":     `"2-FRI" mixes a name and a number`,
		"0 0 12 ? * MON-FRI/2": `"MON-FRI/2": Quartz ignores a step after a name; use numbers, 1-7 (1 = SUN)`,
		"0 0 12 1 JAN/3 ?":     `"JAN/3": Quartz ignores a step after a name`,

		// The two day fields of Quartz.
		"0 0 12 * * *":      `field 6 (day of week): * is found, and field 4 (day of month) is given: one of the two must be ?; write "0 0 12 * * ?"`,
		"*/5 * * * * *":     `write "*/5 * * * * ?"`,
		"0 0 12 1 * *":      `write "0 0 12 1 * ?"`,
		"0 0 12 * * MON":    `field 4 (day of month): * is found, and field 6 (day of week) is given: one of the two must be ?; write "0 0 12 ? * MON"`,
		"0 0 12 ? * ? 2027": `field 4 (day of month): ? is in field 6 (day of week) too, and only one of them may be; write "0 0 12 * * ? 2027"`,
		"0 0 12 13 * FRI":   `field 6 (day of week): "FRI" is given, and "13" in field 4 (day of month): one of the two must be ?`,
		"? 0 0 * * ?":       `field 1 (seconds): "?" is not allowed; allowed are *, 0-59, ranges, lists and steps; ? is only for the day fields, alone`,
		"0 0 12 1 1 ? ?":    `field 7 (year): "?" is not allowed`,
		"0 0 12 ?,1 * MON":  `one of the two must be ?`,
		"0 0 12 1,? * ?":    `field 4 (day of month): "?" is not allowed`,

		// L, W and #.
		"0 0 12 1,L * ?":     `field 4 (day of month): "1,L": L and W stand alone, not in a list`,
		"0 0 12 15W,20 * ?":  `L and W stand alone`,
		"0 0 12 1-5W * ?":    `field 4 (day of month): "1-5W" is not allowed; L and W are written`,
		"0 0 12 W * ?":       `"W" is not allowed; L and W are written`,
		"0 0 12 WL * ?":      `"WL" is not allowed`,
		"0 0 12 LL * ?":      `"LL" is not allowed; with L allowed are`,
		"0 0 12 L3 * ?":      `"L3" is not allowed; with L allowed are`,
		"0 0 12 L- * ?":      `"L-" is not allowed; with L allowed are`,
		"0 0 12 L-31 * ?":    `field 4 (day of month): 31 is out of range 0-30`,
		"0 0 12 0W * ?":      `field 4 (day of month): 0 is out of range 1-31`,
		"0 0 12 32W * ?":     `field 4 (day of month): 32 is out of range 1-31`,
		"0 0 12 ? * MON,6L":  `field 6 (day of week): "MON,6L": L and # stand alone, not in a list`,
		"0 0 12 ? * 6#1,6#3": `L and # stand alone`,
		"0 0 12 ? * 6#6":     `field 6 (day of week): "6" in "6#6" is not allowed after #; allowed are 1-5`,
		"0 0 12 ? * 6#0":     `"0" in "6#0" is not allowed after #`,
		"0 0 12 ? * 6#":      `"" in "6#" is not allowed after #`,
		"0 0 12 ? * 6#1#2":   `"1#2" in "6#1#2" is not allowed after #`,
		"0 0 12 ? * 0#1":     `field 6 (day of week): 0 is out of range 1-7`,
		"0 0 12 ? * 8L":      `field 6 (day of week): 8 is out of range 1-7`,
		"0 0 12 ? * FOOL":    `field 6 (day of week): "FOO" is not allowed`,
		"0 0 12 ? * LW":      `field 6 (day of week): "LW" is not allowed; L is written L (Saturday) or 6L (the last Friday)`,
		"0 0 L * * ?":        `field 3 (hours): "L" is not allowed`,

		// Unix.
		"0 0 12 * ?":  `field 5 (day of week): "?" is not allowed; allowed are *, 0-7 (0 = SUN) or SUN-SAT, ranges, lists and steps; ? is Quartz's, whose form has 6 or 7 fields`,
		"0 0 L * *":   `field 3 (day of month): "L" is not allowed; allowed are *, 1-31, ranges, lists and steps; L, W and # are Quartz's`,
		"0 0 * * 5#2": `field 5 (day of week): "5#2" is not allowed; allowed are *, 0-7 (0 = SUN) or SUN-SAT, ranges, lists and steps; L, W and # are Quartz's`,
		"60 0 * * *":  `field 1 (minutes): 60 is out of range 0-59`,
		"0 24 * * *":  `field 2 (hours): 24 is out of range 0-23`,
		"0 0 * * 8":   `field 5 (day of week): 8 is out of range 0-7 (0 = SUN)`,
		"/5 * * * *":  `field 1 (minutes): "/5" has an empty entry`,

		// Descriptors.
		"@fortnightly":  `cron "@fortnightly": unknown descriptor; allowed are @yearly`,
		"@reboot":       `unknown descriptor`,
		"@daily 5":      `unknown descriptor`,
		"@":             `unknown descriptor`,
		"@every":        `one duration must follow @every`,
		"@every 1h 30m": `one duration must follow @every`,
		"@every 1d":     `"1d" is not a duration; write it with the units h, m, s and ms`,
		"@every 5":      `"5" is not a duration`,
		"@every 0s":     `0s is too short, at least 100ms are allowed`,
		"@every -1h":    `-1h0m0s is too short`,
		"@every 99ms":   `99ms is too short`,

		// Days that never come.
		"0 0 12 30 2 ?":                `cron "0 0 12 30 2 ?": never fires`,
		"0 0 12 31 4,6,9 ?":            `never fires`,
		"0 0 12 29 2 ? 2026":           `never fires`,
		"0 0 12 29 2 ? 2025-2027,2029": `never fires`,
		"0 0 12 31W 2 ?":               `never fires`,
		"0 0 12 L-30 2 ?":              `never fires`,
		"0 0 12 ? 2 1#5 2026-2031":     `never fires`,
		"0 0 30 2 *":                   `never fires`,
	} {
		s, err := Parse(expr, time.UTC)
		switch {
		case err == nil:
			t.Errorf("%q was accepted, want %s", expr, want)
		case s != nil:
			t.Errorf("%q: a schedule with an error", expr)
		case !strings.Contains(err.Error(), want):
			t.Errorf("%q:\n got %v\nwant %s", expr, err, want)
		}
	}
}

// TestSuggestionsAreGood: what an error tells the user to write must be right.
func TestSuggestionsAreGood(t *testing.T) {
	t.Parallel()
	for _, expr := range []string{"0 0 12 * * *", "0 0 12 * * MON", "0 0 12 ? * ?", "0 0 12 L * * 2030", "* * * * * *"} {
		_, err := Parse(expr, time.UTC)
		if err == nil {
			t.Errorf("%q was accepted", expr)
			continue
		}
		_, suggested, _ := strings.Cut(err.Error(), `write "`)
		if _, err := Parse(strings.TrimSuffix(suggested, `"`), time.UTC); err != nil {
			t.Errorf("%q: the suggestion %s: %v", expr, suggested, err)
		}
	}
}

func TestZone(t *testing.T) {
	t.Parallel()
	for name, offset := range map[string]int{ // in November, in minutes
		"UTC": 0, "GMT": 0, "GMT0": 0, "GMT+0": 0, "GMT-0": 0, "Europe/Berlin": 60, "America/New_York": -300, "Asia/Shanghai": 480,
		"Asia/Kathmandu": 345, "America/Argentina/Buenos_Aires": -180, "EST5EDT": -300, "Etc/GMT+8": -480,
		"GMT+8": 480, "GMT-8": -480, "GMT+08": 480, "GMT+0800": 480, "GMT+800": 480, "GMT+08:00": 480, "GMT+8:00": 480,
		"GMT-03:30": -210, "GMT+23:59": 1439, "GMT+18:30": 1110, "GMT+14": 840,
	} {
		loc, err := Zone(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := offsetAt(time.Date(2026, 11, 20, 0, 0, 0, 0, loc)); got != offset*60 {
			t.Errorf("%s: %d seconds from UTC, want %d minutes", name, got, offset)
		}
	}
	if loc, err := Zone(""); err != nil || loc != time.Local {
		t.Errorf("no name: %v, %v", loc, err)
	}
	for name, want := range map[string]string{
		"Europe/Berln":           `time zone "Europe/Berln": unknown; did you mean Europe/Berlin?`,
		"europe/berlin":          "did you mean Europe/Berlin?",
		"Berlin":                 "did you mean Europe/Berlin?",
		"New York":               "did you mean America/New_York?",
		"America/NewYork":        "did you mean America/New_York?",
		"Asia/Beijing":           "did you mean Asia/Shanghai?",
		"UTC+8":                  "did you mean GMT+8?",
		"utc-3":                  "did you mean GMT-3?",
		"gmt+8":                  "did you mean GMT+8?",
		"GMT +8":                 "did you mean GMT+8?",
		"GMT8":                   "did you mean GMT+8?",
		"+08:00":                 "did you mean GMT+08:00?",
		"CST":                    "did you mean America/Chicago or Asia/Shanghai?",
		"PDT":                    "did you mean America/Los_Angeles?",
		"utc":                    "did you mean UTC?",
		"GMT+24":                 "unknown",
		"GMT+8:60":               "unknown",
		"GMT+8:0":                "unknown",
		"GMT+":                   "unknown",
		"Local":                  "leave it empty for the host's own zone",
		"localtime":              "unknown",
		"Atlantis/Poseidon":      "unknown; known are IANA names, such as Europe/Berlin, and GMT+08:00",
		"right/UTC":              "unknown",
		"posix/UTC":              "unknown",
		"../etc/passwd":          "unknown",
		"Europe/../UTC":          "unknown",
		"/etc/localtime":         "unknown",
		"UTC\nZulu":              "unknown",
		"\n":                     "unknown",
		strings.Repeat("x", 300): "unknown",
	} {
		loc, err := Zone(name)
		if err == nil {
			t.Errorf("%q was accepted: %v", name, loc)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", name, err, want)
		}
	}
	for name := range strings.Lines(zoneNames) {
		if _, err := Zone(strings.TrimSpace(name)); err != nil {
			t.Error(err)
		}
	}
}

func TestJavaCompatible(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"", "GMT", "GMT+8", "GMT-03:30"} {
		for _, expr := range []string{"", "0 0 12 * * ?", "0 15 10 ? * 6L 2026-2030", "0 0 0 28W * ?", "0 0 0 L-27W * ?"} {
			if err := JavaCompatible(expr, zone); err != nil {
				t.Error(err)
			}
		}
	}
	for _, v := range []struct{ expr, zone, want string }{
		{"0 12 * * *", "", `cron "0 12 * * *": ElasticJob knows only Quartz's form with 6 or 7 fields`},
		{"@every 10s", "", `cron "@every 10s": ElasticJob knows only Quartz's form`},
		{" @Daily ", "GMT+8", `write "0 0 0 * * ?"`},
		{"@yearly", "", `write "0 0 0 1 1 ?"`},
		{"@weekly", "", `write "0 0 0 ? * 1"`},
		{"0 0 12 31W * ?", "", `in months without a day 31 Quartz sometimes fires on the last day instead`},
		{"0 0 12 L-28W * ?", "", `Quartz hangs in months without that day`},
		{"0 0 12 * * *", "", `one of the two must be ?`},
		{"0 0 12 * * ?", "Europe/Berlin", `time zone "Europe/Berlin": ElasticJob knows only GMT, offsets such as GMT+08:00`},
		{"0 0 12 * * ?", "UTC", `ElasticJob knows only GMT`},
		{"", "Asia/Tokyo", `ElasticJob knows only GMT`},
		{"0 0 12 * * ?", "GMT+25", `time zone "GMT+25": unknown`},
	} {
		if err := JavaCompatible(v.expr, v.zone); err == nil {
			t.Errorf("%q in %q: compatible", v.expr, v.zone)
		} else if !strings.Contains(err.Error(), v.want) {
			t.Errorf("%q in %q:\n got %v\nwant %s", v.expr, v.zone, err, v.want)
		}
	}
}

func FuzzZone(f *testing.F) {
	for _, name := range []string{"", "Europe/Berln", "GMT+8", "utc+8", "Local", "../x", "a/b"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if loc, err := Zone(name); (loc == nil) == (err == nil) {
			t.Errorf("%q: %v and %v", name, loc, err)
		}
	})
}
