package program

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/backup"
)

// TestOwnZone: the program has the zone that TZ names for the C library, or says what is wrong with it.
func TestOwnZone(t *testing.T) {
	t.Parallel()
	for tz, want := range map[string]string{
		"CST-8":                  "+08:00",
		"EST5EDT,M3.2.0,M11.1.0": "-05:00",
		"Asia/Kathmandu":         "+05:45",
	} {
		cmd := exec.Command(os.Args[0], "job", "next", "0 0 9 1 1 ? 2030", "--count", "1", "--from", "2029-12-31")
		cmd.Env = append(os.Environ(), "TZ="+tz)
		out, err := cmd.CombinedOutput()
		at, isTime := time.Time{}, false
		for _, word := range strings.Fields(string(out)) {
			if parsed, err := time.Parse(time.RFC3339, word); err == nil {
				at, isTime = parsed, true
			}
		}
		if err != nil || (isTime && at.Format("-07:00") != want) || (!isTime && !strings.Contains(string(out), want)) {
			t.Errorf("TZ=%s: %v: %s, expected %s", tz, err, out, want)
		}
	}
	for tz, want := range map[string]string{"Asia/Shangai": `wasmjob: TZ: time zone "Asia/Shangai": unknown; did you mean Asia/Shanghai?`, "CST+8X": `TZ: time zone "CST+8X": unknown`} {
		runCLI(t, []string{"TZ=" + tz}, "job", "next", "0 0 9 * * ?").expect(t, exitUsage, want)
	}
	runCLI(t, []string{"TZ=CST-8"}, "job", "next", "0 0 9 * * ?").expect(t, exitOK)
}

// TestBackupNamesItsZone: a file may be read on another machine than the one that wrote it.
func TestBackupNamesItsZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	b := &backup.Backup{Header: backup.Header{Namespace: "prod", Time: at}}
	want := at.Local().Format("2006-01-02 15:04:05 MST")
	for _, text := range []string{backupText(b, "a.backup"), strings.Join((&restoring{}).left(b), "; ")} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not have %q", text, want)
		}
	}
}

// TestNextSaysWhatDaysAre: days by numbers that may have been meant in another way are said.
func TestNextSaysWhatDaysAre(t *testing.T) {
	t.Parallel()
	runCLI(t, nil, "job", "next", "0 0 9 ? * 1-5").expect(t, exitOK, "day of week 1-5 is SUN-THU")
}

// TestZoneText: the zone in force has a name and an offset.
func TestZoneText(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 0, 0, 0, 0, time.FixedZone("CST", 8*3600))
	if got, want := zoneText([]string{"HOME=/", "TZ=CST-8"}, at), "TZ=CST-8 (CST +08:00)"; got != want {
		t.Errorf("found %q, expected %q", got, want)
	}
	if got := zoneText(nil, at); !strings.HasSuffix(got, " (CST +08:00)") || strings.HasPrefix(got, " ") {
		t.Errorf("without TZ: %q", got)
	}
}
