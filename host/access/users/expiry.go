package users

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/wasmjob/wasmjob/host/words"
)

// maxLife is the longest that a token may be good for.
const maxLife = 10 * 365 * 24 * time.Hour

// Expiry reads when a token expires: after 90d or 12h, or at a day such as 2027-01-31.
func Expiry(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.DateOnly, text)
	if m := regexp.MustCompile(`^([0-9]{1,4})d$`).FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		at, err = now.AddDate(0, 0, n), nil
	} else if life, failed := time.ParseDuration(text); failed == nil {
		at, err = now.Add(life), nil
	}
	if err != nil {
		return at, fmt.Errorf("%q is no time to expire at; want 90d, 12h, or a day such as 2027-01-31", words.Clip(text))
	}
	if !at.After(now) || at.Sub(now) > maxLife {
		return at, fmt.Errorf("%s would be at %s; want a time to come, within ten years", words.Clip(text), at.UTC().Format(time.RFC3339))
	}
	return at, nil
}
