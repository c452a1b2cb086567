// Package times reads instants and durations as people write them, in flags, in the API and in the
// console alike. Pure.
package times

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Direction says whether an incomplete instant lies in the past or in the future.
type Direction bool

// Back reads 90m as an hour and a half ago and 15:04 as the last such time; Ahead reads them as future times.
const (
	Back  Direction = false
	Ahead Direction = true
)

// withDays is compiled once: hosts read the limits of a chain often.
var withDays = regexp.MustCompile(`^([0-9]{1,6})d(.*)$`)

// Duration is time.ParseDuration with days of 24 hours before the rest: 7d, 1d12h.
func Duration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	wrong := fmt.Errorf("%q is not a duration; want one such as 500ms, 90s, 2h30m or 7d", words.Clip(text))
	m := withDays.FindStringSubmatch(text)
	if m == nil {
		return 0, wrong
	}
	n, _ := strconv.Atoi(m[1]) // digits
	rest, err := time.Duration(0), error(nil)
	if m[2] != "" {
		rest, err = time.ParseDuration(m[2])
	}
	const day = 24 * time.Hour
	if err != nil || rest < 0 || n > int((math.MaxInt64-rest)/day) {
		return 0, wrong
	}
	return time.Duration(n)*day + rest, nil
}

// Instant reads a time: a duration from now, a time of day, a date with or without a time of day, or RFC 3339.
// Without a zone it uses now's. The result is in the years 1 to 9998 in UTC, so that the year has four digits
// in every zone.
func Instant(text string, now time.Time, to Direction) (time.Time, error) {
	t, err := instant(text, now, to)
	if y := t.UTC().Year(); err == nil && (y < 1 || y > 9998) {
		return time.Time{}, fmt.Errorf("%q is not a time that can be used; want one in the years 1 to 9998", words.Clip(text))
	}
	return t, err
}

func instant(text string, now time.Time, to Direction) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return ofDay(t, now, to), nil
		}
	}
	d, err := Duration(text)
	if err != nil || d < 0 {
		from := "ago"
		if to == Ahead {
			from = "from now"
		}
		return time.Time{}, fmt.Errorf("%q is not a time; want 90m or 7d (%s), 15:04, 2026-03-28, \"2026-03-28 09:00\" or RFC 3339", words.Clip(text), from)
	}
	if to == Ahead {
		return now.Add(d), nil
	}
	return now.Add(-d), nil
}

// ofDay returns a time of day today, or on the previous or next day if the direction demands it.
func ofDay(t, now time.Time, to Direction) time.Time {
	y, m, d := now.Date()
	of := func(day int) time.Time {
		return time.Date(y, m, day, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
	}
	today := of(d)
	if to == Ahead && today.Before(now) {
		return of(d + 1)
	}
	if to == Back && today.After(now) {
		return of(d - 1)
	}
	return today
}
