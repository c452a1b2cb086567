package users

import (
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// maxLife is the longest that a token may be good for.
const maxLife = 10 * 365 * 24 * time.Hour

// Expiry reads when a token expires: after 90d or 12h, or at a day such as 2027-01-31.
func Expiry(text string, now time.Time) (time.Time, error) {
	at, err := times.Instant(text, now.UTC(), times.Ahead)
	if err != nil {
		return at, fmt.Errorf("%q is no time to expire at; want 90d, 12h, or a day such as 2027-01-31", words.Clip(text))
	}
	if !at.After(now) || at.Sub(now) > maxLife {
		return at, fmt.Errorf("%s would be at %s; want a time to come, within ten years", words.Clip(text), at.UTC().Format(time.RFC3339))
	}
	return at, nil
}
