package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := Zone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func mustParse(t testing.TB, expr, zone string) *Schedule {
	t.Helper()
	s, err := Parse(expr, mustZone(t, zone))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const wall = "2006-01-02 15:04:05 -0700"

// checkNext compares the fires after an instant with those listed, one a line.
func checkNext(t *testing.T, expr, zone, from, want string) {
	t.Helper()
	start, err := time.Parse(wall, from)
	if err != nil {
		t.Fatal(err)
	}
	wants := strings.Split(want, ", ")
	var got []string
	for _, at := range Next(mustParse(t, expr, zone), start, len(wants)) {
		got = append(got, at.Format(wall))
	}
	if len(got) < len(wants) {
		got = append(got, "never")
	}
	if !slices.Equal(got, wants) {
		t.Errorf("%q in %s after %s:\n got %s\nwant %s", expr, zone, from, strings.Join(got, ", "), want)
	}
}

func TestUnix(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ expr, from, want string }{
		{"*/15 * * * *", "2026-11-20 09:30:00 +0000", "2026-11-20 09:45:00 +0000, 2026-11-20 10:00:00 +0000"},
		{"30 4 1,15 * *", "2026-11-20 09:30:00 +0000", "2026-12-01 04:30:00 +0000, 2026-12-15 04:30:00 +0000"},
		// Either day: Fridays, and the 13th (a Sunday in December).
		{"0 0 13 * 5", "2026-11-21 00:00:00 +0000", "2026-11-27 00:00:00 +0000, 2026-12-04 00:00:00 +0000, 2026-12-11 00:00:00 +0000, 2026-12-13 00:00:00 +0000"},
		// Both: a star at the beginning is no restriction, so odd Mondays.
		{"0 0 */2 * MON", "2026-11-20 00:00:00 +0000", "2026-11-23 00:00:00 +0000, 2026-12-07 00:00:00 +0000"},
		{"0 0 * * 0", "2026-11-20 00:00:00 +0000", "2026-11-22 00:00:00 +0000, 2026-11-29 00:00:00 +0000"},
		{"0 0 * * 7", "2026-11-20 00:00:00 +0000", "2026-11-22 00:00:00 +0000, 2026-11-29 00:00:00 +0000"},
		{"0 0 * * 7-7", "2026-11-20 00:00:00 +0000", "2026-11-22 00:00:00 +0000, 2026-11-29 00:00:00 +0000"},
		{"0 0 * * 5-7", "2026-11-20 00:00:00 +0000", "2026-11-21 00:00:00 +0000, 2026-11-22 00:00:00 +0000, 2026-11-27 00:00:00 +0000"},
		{"0 0 * * fri-SUN", "2026-11-20 00:00:00 +0000", "2026-11-21 00:00:00 +0000, 2026-11-22 00:00:00 +0000, 2026-11-27 00:00:00 +0000"},
		{"0 0 * * 0-7", "2026-11-20 00:00:00 +0000", "2026-11-21 00:00:00 +0000, 2026-11-22 00:00:00 +0000"},
		{"0 0 * * 1", "2026-11-20 00:00:00 +0000", "2026-11-23 00:00:00 +0000"}, // not Quartz's Sunday
		{"0 9 * jan-mar mon-fri/2", "2026-12-31 12:00:00 +0000", "2027-01-01 09:00:00 +0000, 2027-01-04 09:00:00 +0000, 2027-01-06 09:00:00 +0000"},
		{"0 22-2 * * *", "2026-11-20 22:30:00 +0000", "2026-11-20 23:00:00 +0000, 2026-11-21 00:00:00 +0000, 2026-11-21 01:00:00 +0000, 2026-11-21 02:00:00 +0000, 2026-11-21 22:00:00 +0000"},
		{"0 0 29 2 *", "2026-11-20 00:00:00 +0000", "2028-02-29 00:00:00 +0000, 2032-02-29 00:00:00 +0000"},
		{"0 0 29 2 *", "2096-03-01 00:00:00 +0000", "2104-02-29 00:00:00 +0000"},
		{"\t5  4 * *   * ", "2026-11-20 00:00:00 +0000", "2026-11-20 04:05:00 +0000"},
	} {
		checkNext(t, v.expr, "UTC", v.from, v.want)
	}
}

func TestDescriptors(t *testing.T) {
	t.Parallel()
	const from = "2026-11-20 09:30:00 +0100"
	for expr, want := range map[string]string{
		"@yearly":   "2027-01-01 00:00:00 +0100, 2028-01-01 00:00:00 +0100",
		"@annually": "2027-01-01 00:00:00 +0100",
		"@monthly":  "2026-12-01 00:00:00 +0100, 2027-01-01 00:00:00 +0100",
		"@weekly":   "2026-11-22 00:00:00 +0100, 2026-11-29 00:00:00 +0100",
		"@daily":    "2026-11-21 00:00:00 +0100, 2026-11-22 00:00:00 +0100",
		"@Midnight": "2026-11-21 00:00:00 +0100",
		"@hourly":   "2026-11-20 10:00:00 +0100, 2026-11-20 11:00:00 +0100",
	} {
		checkNext(t, expr, "Europe/Berlin", from, want)
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	// Counted from 1970: 09:30 is no multiple of 7 minutes, and a day begins
	// in London whatever the zone.
	checkNext(t, "@every 7m", "UTC", "2026-11-20 09:30:00 +0000", "2026-11-20 09:36:00 +0000, 2026-11-20 09:43:00 +0000")
	checkNext(t, "@every 24h", "Europe/Berlin", "2026-11-20 09:30:00 +0100", "2026-11-21 01:00:00 +0100")
	checkNext(t, "@every 1h30m", "UTC", "1970-01-01 00:00:00 +0000", "1970-01-01 01:30:00 +0000, 1970-01-01 03:00:00 +0000")
	checkNext(t, "@EVERY 1h", "UTC", "1969-12-31 22:30:00 +0000", "1969-12-31 23:00:00 +0000, 1970-01-01 00:00:00 +0000, 1970-01-01 01:00:00 +0000")

	s := mustParse(t, "@every 250ms", "UTC")
	at := time.UnixMilli(1_800_000_000_100)
	for _, want := range []int64{1_800_000_000_250, 1_800_000_000_500, 1_800_000_000_750, 1_800_000_001_000} {
		if at = s.Next(at); at.UnixMilli() != want || at.Nanosecond()%1e6 != 0 {
			t.Errorf("got %v, want %d ms", at, want)
		}
	}
	// Hosts that ask at different instants hear the same one.
	r := rand.New(rand.NewPCG(3, 4))
	s = mustParse(t, "@every 37s", "")
	for range 1000 {
		at := time.Unix(r.Int64N(4e9)-1e9, r.Int64N(1e9))
		next := s.Next(at)
		if !next.After(at) || next.Sub(at) > 37*time.Second || next.UnixNano()%int64(37*time.Second) != 0 {
			t.Fatalf("after %v comes %v", at, next)
		}
	}
	for _, at := range []time.Time{{}, time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<61, 0)} {
		if next := s.Next(at); !next.IsZero() {
			t.Errorf("after %v, where nanoseconds end, comes %v", at, next)
		}
	}
}

func TestEnds(t *testing.T) {
	t.Parallel()
	checkNext(t, "0 0 12 1 1 ? 2028", "UTC", "2026-11-20 00:00:00 +0000", "2028-01-01 12:00:00 +0000, never")
	checkNext(t, "0 0 12 1 1 ? 2020", "UTC", "2026-11-20 00:00:00 +0000", "never")
	checkNext(t, "59 59 23 31 12 ? 2099", "UTC", "2026-11-20 00:00:00 +0000", "2099-12-31 23:59:59 +0000, never")
	// The year is the local one.
	checkNext(t, "0 0 * 1 1 ? 2027", "Pacific/Kiritimati", "2026-12-31 08:00:00 +0000", "2027-01-01 00:00:00 +1400, 2027-01-01 01:00:00 +1400")
	// Nothing fires before 1970, whatever is asked.
	checkNext(t, "0 0 0 * * ?", "UTC", "0001-01-01 00:00:00 +0000", "1970-01-01 00:00:00 +0000, 1970-01-02 00:00:00 +0000")
	checkNext(t, "0 0 0 * * ?", "America/New_York", "1900-01-01 00:00:00 +0000", "1970-01-01 00:00:00 -0500")
	s := mustParse(t, "* * * * * ?", "UTC")
	for _, at := range []time.Time{time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<61, 0)} {
		if next := s.Next(at); !next.IsZero() {
			t.Errorf("after %v comes %v", at, next)
		}
	}
	if next := s.Next(time.Unix(-1<<61, 0)); next.Unix() != 0 {
		t.Errorf("at the beginning: %v", next)
	}
	// Parts of a second do not count.
	if next := s.Next(time.Unix(100, 1)); !next.Equal(time.Unix(101, 0)) {
		t.Errorf("got %v", next)
	}
	if next := s.Next(time.Unix(99, 999_999_999)); !next.Equal(time.Unix(100, 0)) {
		t.Errorf("got %v", next)
	}
}

func TestClocksPutForward(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ zone, expr, from, want string }{
		// 02:00 to 03:00 is left out on 29 March.
		{"Europe/Berlin", "0 30 2 * * ?", "2026-03-28 02:00:00 +0100", "2026-03-28 02:30:00 +0100, 2026-03-29 03:00:00 +0200, 2026-03-30 02:30:00 +0200"},
		{"Europe/Berlin", "30 2 * * *", "2026-03-28 12:00:00 +0100", "2026-03-29 03:00:00 +0200, 2026-03-30 02:30:00 +0200"},
		{"Europe/Berlin", "0 0 3 * * ?", "2026-03-28 12:00:00 +0100", "2026-03-29 03:00:00 +0200, 2026-03-30 03:00:00 +0200"},
		{"Europe/Berlin", "0 0/20 2 * * ?", "2026-03-28 12:00:00 +0100", "2026-03-29 03:00:00 +0200, 2026-03-30 02:00:00 +0200"},
		{"Europe/Berlin", "0 0/20 2,3 * * ?", "2026-03-28 12:00:00 +0100", "2026-03-29 03:00:00 +0200, 2026-03-29 03:20:00 +0200, 2026-03-29 03:40:00 +0200, 2026-03-30 02:00:00 +0200"},
		{"Europe/Berlin", "0 30 * * * ?", "2026-03-29 01:00:00 +0100", "2026-03-29 01:30:00 +0100, 2026-03-29 03:00:00 +0200, 2026-03-29 03:30:00 +0200"},
		{"Europe/Berlin", "0 0 * * * ?", "2026-03-29 00:30:00 +0100", "2026-03-29 01:00:00 +0100, 2026-03-29 03:00:00 +0200, 2026-03-29 04:00:00 +0200"},
		{"Europe/Berlin", "0 0 2 29 3 ? 2026", "2026-03-01 12:00:00 +0100", "2026-03-29 03:00:00 +0200, never"},
		{"Europe/Berlin", "0 0 2 L * ?", "2024-03-30 12:00:00 +0100", "2024-03-31 03:00:00 +0200, 2024-04-30 02:00:00 +0200"},
		{"America/New_York", "0 15 2 ? * 1", "2026-03-07 12:00:00 -0500", "2026-03-08 03:00:00 -0400, 2026-03-15 02:15:00 -0400"},
		// Half an hour, 02:00 to 02:30 on 4 October.
		{"Australia/Lord_Howe", "0 15 2 * * ?", "2026-10-03 12:00:00 +1030", "2026-10-04 02:30:00 +1100, 2026-10-05 02:15:00 +1100"},
		{"Australia/Lord_Howe", "0 30 2 * * ?", "2026-10-03 12:00:00 +1030", "2026-10-04 02:30:00 +1100, 2026-10-05 02:30:00 +1100"},
		// Midnight itself.
		{"America/Sao_Paulo", "0 0 0 * * ?", "2018-11-03 12:00:00 -0300", "2018-11-04 01:00:00 -0200, 2018-11-05 00:00:00 -0200"},
		{"America/Sao_Paulo", "@daily", "2018-11-03 12:00:00 -0300", "2018-11-04 01:00:00 -0200"},
		// Samoa had no 30 December 2011.
		{"Pacific/Apia", "0 0 12 * * ?", "2011-12-29 00:00:00 -1000", "2011-12-29 12:00:00 -1000, 2011-12-31 00:00:00 +1400, 2011-12-31 12:00:00 +1400"},
		{"Pacific/Apia", "0 0 12 30 12 ?", "2011-12-01 00:00:00 -1000", "2011-12-31 00:00:00 +1400, 2012-12-30 12:00:00 +1400"},
		{"Pacific/Apia", "0 0 12 31 12 ?", "2011-12-01 00:00:00 -1000", "2011-12-31 12:00:00 +1400"},
		// No changes today.
		{"Asia/Shanghai", "0 30 2 * * ?", "2026-03-28 12:00:00 +0800", "2026-03-29 02:30:00 +0800, 2026-03-30 02:30:00 +0800"},
		{"GMT+08:00", "0 30 2 * * ?", "2026-03-28 12:00:00 +0800", "2026-03-29 02:30:00 +0800, 2026-03-30 02:30:00 +0800"},
		// The last day of a leap year, in zones with a yearly rule.
		{"America/New_York", "0 30 2 * * ?", "2028-12-30 12:00:00 -0500", "2028-12-31 02:30:00 -0500, 2029-01-01 02:30:00 -0500"},
		{"America/New_York", "0 0 0 1 7 ?", "2028-12-31 12:00:00 -0500", "2029-07-01 00:00:00 -0400"},
		// After the last change that the data lists by date.
		{"Europe/Berlin", "0 30 2 * * ?", "2095-03-26 12:00:00 +0100", "2095-03-27 03:00:00 +0200, 2095-03-28 02:30:00 +0200"},
	} {
		checkNext(t, v.expr, v.zone, v.from, v.want)
	}
}

func TestClocksPutBack(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ zone, expr, from, want string }{
		// 02:00 to 03:00 comes twice on 25 October.
		{"Europe/Berlin", "0 30 2 * * ?", "2026-10-24 12:00:00 +0200", "2026-10-25 02:30:00 +0200, 2026-10-26 02:30:00 +0100"},
		{"Europe/Berlin", "0 30 2 * * ?", "2026-10-25 02:30:00 +0100", "2026-10-26 02:30:00 +0100"},
		{"Europe/Berlin", "0 0/30 2 * * ?", "2026-10-24 12:00:00 +0200", "2026-10-25 02:00:00 +0200, 2026-10-25 02:30:00 +0200, 2026-10-26 02:00:00 +0100"},
		{"Europe/Berlin", "0 0 3 * * ?", "2026-10-24 12:00:00 +0200", "2026-10-25 03:00:00 +0100, 2026-10-26 03:00:00 +0100"},
		{"Europe/Berlin", "0 30 * * * ?", "2026-10-25 01:00:00 +0200", "2026-10-25 01:30:00 +0200, 2026-10-25 02:30:00 +0200, 2026-10-25 02:30:00 +0100, 2026-10-25 03:30:00 +0100"},
		{"Europe/Berlin", "0 0 0/1 * * ?", "2026-10-25 01:00:00 +0200", "2026-10-25 02:00:00 +0200, 2026-10-25 02:00:00 +0100, 2026-10-25 03:00:00 +0100"},
		{"Europe/Berlin", "30 * 25 10 *", "2026-10-25 02:40:00 +0200", "2026-10-25 02:30:00 +0100, 2026-10-25 03:30:00 +0100"},
		// Steps are fixed times.
		{"Europe/Berlin", "0 0 0/2 * * ?", "2026-10-25 00:30:00 +0200", "2026-10-25 02:00:00 +0200, 2026-10-25 04:00:00 +0100"},
		{"Europe/Berlin", "0 30 2 25 10 ? 2026", "2026-10-25 02:40:00 +0200", "never"},
		{"Europe/Berlin", "0 30 * 25 10 ? 2026", "2026-10-25 23:00:00 +0100", "2026-10-25 23:30:00 +0100, never"},
		{"America/New_York", "0 15 1 * * ?", "2026-10-31 12:00:00 -0400", "2026-11-01 01:15:00 -0400, 2026-11-02 01:15:00 -0500"},
		{"Australia/Lord_Howe", "0 45 1 * * ?", "2026-04-04 12:00:00 +1100", "2026-04-05 01:45:00 +1100, 2026-04-06 01:45:00 +1030"},
		{"Australia/Lord_Howe", "0 0/15 * * * ?", "2026-04-05 01:30:00 +1100", "2026-04-05 01:45:00 +1100, 2026-04-05 01:30:00 +1030, 2026-04-05 01:45:00 +1030, 2026-04-05 02:00:00 +1030"},
		// The last hour of 17 February comes twice: the day begins only once,
		// and its end is the second one.
		{"America/Sao_Paulo", "0 0 0 * * ?", "2018-02-17 12:00:00 -0200", "2018-02-18 00:00:00 -0300, 2018-02-19 00:00:00 -0300"},
		{"America/Sao_Paulo", "0 30 23 * * ?", "2018-02-17 12:00:00 -0200", "2018-02-17 23:30:00 -0200, 2018-02-18 23:30:00 -0300"},
		{"America/Sao_Paulo", "0 15 * 17 2 ? 2018", "2018-02-17 23:50:00 -0200", "2018-02-17 23:15:00 -0300, never"},
		{"America/Sao_Paulo", "0 15 * 17 2 ?", "2018-02-17 23:50:00 -0200", "2018-02-17 23:15:00 -0300, 2019-02-17 00:15:00 -0300"},
		{"Asia/Shanghai", "0 30 2 * * ?", "2026-10-24 12:00:00 +0800", "2026-10-25 02:30:00 +0800"},
	} {
		checkNext(t, v.expr, v.zone, v.from, v.want)
	}
}

// TestRules: what becomes of local times that come twice or not at all, by each rule.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		expr, from string
		want       map[DST]string
	}{
		{"0 30 2 * * ?", "2026-03-28 12:00:00 +0100", map[DST]string{
			Once: "2026-03-29 03:00:00 +0200, 2026-03-30 02:30:00 +0200",
			Both: "2026-03-29 03:00:00 +0200, 2026-03-30 02:30:00 +0200",
			Skip: "2026-03-30 02:30:00 +0200",
		}},
		{"0 30 2 * * ?", "2026-10-24 12:00:00 +0200", map[DST]string{
			Once: "2026-10-25 02:30:00 +0200, 2026-10-26 02:30:00 +0100",
			Both: "2026-10-25 02:30:00 +0200, 2026-10-25 02:30:00 +0100, 2026-10-26 02:30:00 +0100",
			Skip: "2026-10-25 02:30:00 +0200, 2026-10-26 02:30:00 +0100",
		}},
		{"0 15,45 * * * ?", "2026-03-29 01:30:00 +0100", map[DST]string{
			Once: "2026-03-29 01:45:00 +0100, 2026-03-29 03:00:00 +0200, 2026-03-29 03:15:00 +0200",
			Skip: "2026-03-29 01:45:00 +0100, 2026-03-29 03:15:00 +0200",
		}},
	} {
		for rule, want := range v.want {
			at, err := time.Parse("2006-01-02 15:04:05 -0700", v.from)
			if err != nil {
				t.Fatal(err)
			}
			s, got := mustParse(t, v.expr, "Europe/Berlin").With(rule), []string{}
			for range strings.Split(want, ", ") {
				at = s.Next(at)
				got = append(got, at.Format("2006-01-02 15:04:05 -0700"))
			}
			if found := strings.Join(got, ", "); found != want {
				t.Errorf("%q, %s: got %s, want %s", v.expr, rule, found, want)
			}
		}
	}
}

// TestEveryChangeAgainstOracle goes second by second through the days around
// real changes of clocks.
func TestEveryChangeAgainstOracle(t *testing.T) {
	t.Parallel()
	exprs := []string{
		"0 30 2 * * ?", "0 0 0 * * ?", "0 0 * * * ?", "0 30 * * * ?", "0 0/10 * * * ?", "15 0/20 0-4 * * ?",
		"0 0/30 1,2,3 ? * *", "59 59 23 * * ?", "0 15 0/2 * * ?", "0 0 12 30 12 ?", "0 45 1 ? * SUN", "7 7 * ? * 1L",
		"*/20 2 * * *", "0 0-3 1-7 * SUN", "@daily", "@hourly", "0 0 1 L * ?", "30 0 * * * ? 2011/3",
	}
	changes := []struct {
		zone, around string
		hours        int64 // to look before and after
	}{
		{"Europe/Berlin", "2026-03-29T01:00:00Z", 6},
		{"Europe/Berlin", "2026-10-25T01:00:00Z", 6},
		{"America/New_York", "2026-03-08T07:00:00Z", 6},
		{"America/New_York", "2026-11-01T06:00:00Z", 6},
		{"Australia/Lord_Howe", "2026-10-03T15:30:00Z", 6},
		{"Australia/Lord_Howe", "2026-04-04T15:00:00Z", 6},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", 40},
		{"America/Sao_Paulo", "2018-11-04T03:00:00Z", 6},
		{"America/Sao_Paulo", "2018-02-18T02:00:00Z", 6},
		{"Pacific/Kwajalein", "1993-08-21T12:00:00Z", 40},
		{"Asia/Shanghai", "2026-03-29T01:00:00Z", 6},
		{"Asia/Pyongyang", "2015-08-14T15:00:00Z", 6}, // half an hour back for good
		{"Africa/Monrovia", "1972-01-07T00:44:30Z", 6},
		{"Europe/London", "1971-10-31T02:00:00Z", 6},
		{"Antarctica/Troll", "2026-10-25T01:00:00Z", 6}, // two hours
		{"Europe/Dublin", "2026-03-29T01:00:00Z", 6},
		{"America/New_York", "2028-12-31T12:00:00Z", 20}, // where package time errs about the year's length
	}
	for _, expr := range exprs {
		o := newOracle(expr)
		for _, c := range changes {
			around, err := time.Parse(time.RFC3339, c.around)
			if err != nil {
				t.Fatal(err)
			}
			from, to := around.Unix()-c.hours*3600, around.Unix()+c.hours*3600
			for _, rule := range []DST{Once, Both, Skip} {
				s := mustParse(t, expr, c.zone).With(rule)
				var got []int64
				for at := s.Next(time.Unix(from-1, 0)); !at.IsZero() && at.Unix() < to; at = s.Next(at) {
					got = append(got, at.Unix())
				}
				o.dst = rule
				if want := o.fires(from, to, s.loc, 1<<30); !slices.Equal(got, want) {
					t.Errorf("%q in %s around %s, %s:\n got %v\nwant %v", expr, c.zone, c.around, rule, got, want)
				}
			}
		}
	}
}

// TestZonesAreTame checks what Next relies on, of every zone there is: stretches
// end after the instant asked for, clocks are never changed by two days at
// once, and what such a change repeats or leaves out is over before the next
// stretch begins.
func TestZonesAreTame(t *testing.T) {
	t.Parallel()
	const year2100 = 4_102_444_800
	for name := range strings.Lines(zoneNames) {
		loc := mustZone(t, strings.TrimSpace(name))
		for at := int64(0); at < year2100; {
			z := zoneAt(at, loc)
			change := max(z.offset-z.before, z.before-z.offset)
			if z.start > at || z.end <= at || change >= longestChange || change > z.end-z.start {
				t.Fatalf("%s at %d: %+v", strings.TrimSpace(name), at, z)
			}
			if change > 0 && z.start > 0 && z.start-zoneAt(z.start-1, loc).start < change {
				t.Errorf("%s at %d: too soon after the change before", strings.TrimSpace(name), at)
			}
			at = z.end
		}
	}
}

func TestNextOfAll(t *testing.T) {
	t.Parallel()
	s := mustParse(t, "0 0 12 1 1 ? 2027-2029", "UTC")
	got := Next(s, time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC), 10)
	if len(got) != 3 || got[2].Year() != 2029 {
		t.Errorf("got %v", got)
	}
	if s.String() != "0 0 12 1 1 ? 2027-2029" || s.loc.String() != "UTC" {
		t.Errorf("got %s in %s", s, s.loc)
	}
	if s, err := Parse("@daily", nil); err != nil || s.loc != time.Local {
		t.Errorf("no zone: %v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, expr := range []string{
		"0 0 12 ? * 6#3", "0 15 10 L-3W * ?", "0 0 0 LW * ?", "0 0 0 15W * ?", "0 0/5 14,18 * * ?", "0 0 22-2/3 ? NOV-FEB MON-FRI 2026/2",
		"*/5 0 13 * 5", "0 0 */2 * fri-SUN", "@every 90s", "@weekly", "0 0 0 30 2 ?", "/5 * * * * ?", "5 7-7 * * 7/2", "0 0 0 ? * L", "0 0 0 ? * FRIL 2099",
	} {
		f.Add(expr, uint8(1), int64(1_774_749_600))
	}
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "GMT-03:30"}
	f.Fuzz(func(t *testing.T, expr string, zone uint8, from int64) {
		loc := mustZone(t, zones[int(zone)%len(zones)])
		rule := []DST{Once, Both, Skip}[int(zone)/len(zones)%3]
		s, err := Parse(expr, loc)
		if err != nil {
			if s != nil || len(err.Error()) > 6*longestExpression+500 {
				t.Fatalf("a schedule with an error, or too long an error: %v", err)
			}
			return
		}
		s = s.With(rule)
		at := time.Unix(from, 0)
		next := s.Next(at)
		if next.IsZero() {
			if s.anyYear && at.Year() > 1900 && at.Year() < 9000 {
				t.Fatalf("%q never fires after %v", expr, at)
			}
			return
		}
		if !next.After(at) || s.dialect != interval && !s.Next(next.Add(-time.Nanosecond)).Equal(next) {
			t.Fatalf("%q: %v comes after %v", expr, next, at)
		}
		if s.dialect == interval || next.Year() < 1971 || next.Year() > 9000 {
			return
		}
		o := newOracle(expr)
		o.dst = rule
		if !o.firesAt(next.Unix(), loc) {
			t.Fatalf("%q: %v does not match", expr, next)
		}
		if begin := max(at.Unix()+1, next.Unix()-3600); begin < next.Unix() {
			// Nothing is left out; an hour before, clocks had better be as they are.
			if _, was := time.Unix(begin-3*86400, 0).In(loc).Zone(); was == offsetAt(next) {
				if left := o.fires(begin, next.Unix(), loc, 1); len(left) > 0 {
					t.Fatalf("%q: %v is left out before %v", expr, time.Unix(left[0], 0).In(loc), next)
				}
			}
		}
	})
}

func offsetAt(t time.Time) int {
	_, offset := t.Zone()
	return offset
}

func BenchmarkNext(b *testing.B) {
	from := time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)
	for _, expr := range []string{"* * * * * ?", "0/5 * * * * ?", "0 30 2 * * ?", "0 0 9 ? * MON-FRI", "0 0 0 LW * ?", "0 0 12 ? 2 1#5", "0 0 0 29 2 ?", "0 0 0 1 1 ? 2020", "@every 90s"} {
		for _, zone := range []string{"UTC", "Europe/Berlin"} {
			s := mustParse(b, expr, zone)
			b.Run(fmt.Sprintf("%s/%s", expr, zone), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					s.Next(from)
				}
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("0 0/5 14,18 ? NOV-FEB MON-FRI", time.UTC); err != nil {
			b.Fatal(err)
		}
	}
}
