package schedule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestOwnZone: a TZ is what it is to the C library, or it is refused.
func TestOwnZone(t *testing.T) {
	t.Parallel()
	winter, summer := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC), time.Date(2026, 7, 15, 12, 0, 0, 0, time.UTC)
	for tz, want := range map[string][2]string{
		"":                            {"UTC +0000", "UTC +0000"},
		":":                           {"UTC +0000", "UTC +0000"},
		"CST-8":                       {"CST +0800", "CST +0800"},
		":CST-8":                      {"CST +0800", "CST +0800"},
		"<+0530>-5:30":                {"+0530 +0530", "+0530 +0530"},
		"EST5EDT,M3.2.0,M11.1.0":      {"EST -0500", "EDT -0400"},
		"EST5EDT":                     {"EST -0500", "EDT -0400"},
		"NZST-12NZDT,M9.5.0,M4.1.0/3": {"NZDT +1300", "NZST +1200"},
		"CET-1CEST":                   {"CET +0100", "CEST +0200"},
		"GMT+8":                       {"GMT -0800", "GMT -0800"},
		"Asia/Shanghai":               {"CST +0800", "CST +0800"},
		":Europe/Berlin":              {"CET +0100", "CEST +0200"},
		"UTC":                         {"UTC +0000", "UTC +0000"},
		"UTC0":                        {"UTC +0000", "UTC +0000"},
	} {
		loc, err := OwnZone(tz)
		if err != nil {
			t.Errorf("%q: %v", tz, err)
			continue
		}
		if got := [2]string{winter.In(loc).Format("MST -0700"), summer.In(loc).Format("MST -0700")}; got != want {
			t.Errorf("%q: found %q, expected %q", tz, got, want)
		}
	}
	for tz, want := range map[string]string{
		"Asia/Shangai":            `time zone "Asia/Shangai": unknown; did you mean Asia/Shanghai?; a rule of POSIX`,
		"EST5EDT,M3.2.0":          "unknown",
		"EST5EDT,M13.2.0,M11.1.0": "unknown",
		"CST-25":                  "unknown",
		"GMT+0800":                "its sign has two meanings",
		"/none/such":              "time zone file /none/such: ",
		strings.Repeat("x", 5000): "5000 characters long",
	} {
		if loc, err := OwnZone(tz); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 400 {
			t.Errorf("%.30q: found %v, %v, expected an error with %q", tz, loc, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(file, []byte("no zone"), 0o600); err != nil {
		t.Fatal(err)
	}
	if loc, err := OwnZone(file); err == nil {
		t.Errorf("a file that is no zone: %v", loc)
	}
}

// TestPublished: own zones that differ have different texts.
func TestPublished(t *testing.T) {
	t.Parallel()
	if got := Published(time.UTC, 2026); got != "UTC" {
		t.Errorf("UTC: %q", got)
	}
	january, july := time.Date(2026, 1, 1, 0, 0, 0, 0, time.Local), time.Date(2026, 7, 1, 0, 0, 0, 0, time.Local)
	want := "Local (" + january.Format("-07:00") + ")"
	if january.Format("-07:00") != july.Format("-07:00") {
		want = "Local (" + january.Format("-07:00") + ", " + july.Format("-07:00") + " in July)"
	}
	if got := Published(time.Local, 2026); got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
}
