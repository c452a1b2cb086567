package schedule

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// oracle is a second, slow reading of the dialects, to compare with. It shares
// no code with Schedule: it asks of each value in turn whether the text allows
// it, looks at days by counting through the month, and finds fires by going
// through time second by second. It expects expressions without mistakes.
type oracle struct {
	seconds, minutes, hours [60]bool
	months                  [13]bool
	year                    func(int) bool
	day                     func(y int, m time.Month, d int) bool
	everyHour               bool
	dst                     DST // empty is Once

	// The last date that was asked for.
	asked  int64
	answer bool
}

func newOracle(expr string) *oracle {
	f := strings.Fields(map[string]string{
		"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
		"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
	}[strings.ToLower(strings.TrimSpace(expr))])
	if len(f) == 0 {
		f = strings.Fields(strings.ToUpper(expr))
	}
	o := &oracle{asked: -1, year: func(int) bool { return true }}
	if len(f) == 5 {
		f = append([]string{"0"}, f...)
		o.day = func(y int, m time.Month, d int) bool {
			byDate := allows(f[3], d, 1, 31, "")
			byDay := allows(f[5], int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday()), 0, 6, dayNames)
			if f[3][0] == '*' || f[5][0] == '*' {
				return byDate && byDay
			}
			return byDate || byDay
		}
	} else {
		o.day = func(y int, m time.Month, d int) bool {
			if f[5] == "?" {
				return allowsDate(f[3], y, m, d)
			}
			return allowsDay(f[5], y, m, d)
		}
		if len(f) == 7 {
			o.year = func(y int) bool { return f[6] == "*" || y <= 2099 && allows(f[6], y, 1970, 2099, "") }
		}
	}
	o.everyHour = true
	for v := range 60 {
		o.seconds[v] = allows(f[0], v, 0, 59, "")
		o.minutes[v] = allows(f[1], v, 0, 59, "")
		o.hours[v] = v < 24 && allows(f[2], v, 0, 23, "")
		o.everyHour = o.everyHour && (v >= 24 || o.hours[v])
	}
	for v := 1; v <= 12; v++ {
		o.months[v] = allows(f[4], v, 1, 12, monthNames)
	}
	return o
}

const (
	monthNames = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"
	dayNames   = "SUNMONTUEWEDTHUFRISAT"
)

func oracleValue(text string, low int, names string) int {
	if v, err := strconv.Atoi(text); err == nil {
		return v
	}
	return low + strings.Index(names, text)/3
}

// allows tells whether a list allows the value v of a field from low to high.
func allows(list string, v, low, high int, names string) bool {
	for _, entry := range strings.Split(list, ",") {
		base, step, stepped := strings.Cut(entry, "/")
		by := 1
		if stepped {
			by, _ = strconv.Atoi(step)
		}
		from, to := low, high
		if base != "*" && base != "" {
			a, b, ranged := strings.Cut(base, "-")
			from = oracleValue(a, low, names)
			switch {
			case ranged:
				to = oracleValue(b, low, names)
			case !stepped:
				to = from
			}
		}
		span := high - low + 1
		if to < from {
			to += span
		}
		for _, x := range []int{v, v + span} {
			if from <= x && x <= to && (x-from)%by == 0 {
				return true
			}
		}
	}
	return false
}

func daysIn(y int, m time.Month) int { return time.Date(y, m+1, 0, 0, 0, 0, 0, time.UTC).Day() }

func weekdayOf(y int, m time.Month, d int) int {
	return int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday())
}

func allowsDate(text string, y int, m time.Month, d int) bool {
	length := daysIn(y, m)
	base, toWeekday := strings.CutSuffix(text, "W")
	wanted := 0
	switch {
	case strings.HasPrefix(base, "L"):
		back, _ := strconv.Atoi(strings.TrimPrefix(base[1:], "-"))
		wanted = length - back
	case toWeekday:
		wanted, _ = strconv.Atoi(base)
	default:
		return allows(text, d, 1, 31, "")
	}
	if wanted < 1 || wanted > length {
		return false
	}
	if !toWeekday {
		return d == wanted
	}
	best := 0
	for other := 1; other <= length; other++ {
		if w := weekdayOf(y, m, other); w != 0 && w != 6 && (best == 0 || apart(other, wanted) < apart(best, wanted)) {
			best = other
		}
	}
	return d == best
}

func apart(a, b int) int { return max(a-b, b-a) }

func allowsDay(text string, y int, m time.Month, d int) bool {
	w := weekdayOf(y, m, d) + 1 // Quartz's number
	day, nth, found := strings.Cut(text, "#")
	if found {
		n, _ := strconv.Atoi(nth)
		count := 0
		for other := 1; other <= d; other++ {
			if weekdayOf(y, m, other)+1 == w {
				count++
			}
		}
		return w == oracleValue(day, 1, dayNames) && count == n
	}
	if text == "L" {
		return w == 7
	}
	if day, found := strings.CutSuffix(text, "L"); found {
		return w == oracleValue(day, 1, dayNames) && d+7 > daysIn(y, m)
	}
	return allows(text, w, 1, 7, dayNames)
}

// matches tells whether a local time, in seconds, has all fields right.
func (o *oracle) matches(local int64) bool {
	second := local % 86400
	if local < 0 || !o.seconds[second%60] || !o.minutes[second/60%60] || !o.hours[second/3600] {
		return false
	}
	if date := local / 86400; date != o.asked {
		y, m, d := time.Unix(local, 0).UTC().Date()
		o.asked, o.answer = date, o.months[m] && o.year(y) && o.day(y, m, d)
	}
	return o.answer
}

// fires are all instants from a, before b, at most limit of them. There must
// be no change of clocks shortly before a.
func (o *oracle) fires(a, b int64, loc *time.Location, limit int) []int64 {
	var fires []int64
	offset := func(at int64) int64 {
		_, offset := time.Unix(at, 0).In(loc).Zone()
		return int64(offset)
	}
	seen := a - 1 + offset(a-1)
	var here int64
	for at := a; at < b && len(fires) < limit; at++ {
		if at == a || at%60 == 0 || here%60 != 0 { // offsets change on whole minutes, or have seconds themselves
			here = offset(at)
		}
		local := at + here
		fire := o.matches(local) && (local > seen || o.everyHour || o.dst == Both)
		for skipped := seen + 1; skipped < local && !fire && o.dst != Skip; skipped++ {
			fire = o.matches(skipped)
		}
		if fire {
			fires = append(fires, at)
		}
		seen = max(seen, local)
	}
	return fires
}

func (o *oracle) firesAt(at int64, loc *time.Location) bool {
	const before = 3600
	return slices.Contains(o.fires(at-before, at+1, loc, 1<<30), at)
}
