package schedule

import (
	"testing"
	"time"
)

// TestNextEndsWithTheYear9999: each instant can be written as JSON, in its own zone and in UTC.
func TestNextEndsWithTheYear9999(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Pacific/Kiritimati", "Pacific/Niue", "America/New_York", "GMT+14:00"} {
		for expr, least := range map[string]int{"0 0 0 ? 2 1#5": 9900, "0 0 0 29 2 ?": 9990, "0 * * * * ?": 9999} {
			s := mustParse(t, expr, zone)
			at := time.Date(9899, 1, 1, 0, 0, 0, 0, time.UTC)
			if expr == "0 * * * * ?" {
				at = time.Date(9999, 12, 30, 12, 0, 0, 0, time.UTC)
			}
			last, n := at, 0
			for at = s.Next(at); !at.IsZero(); at = s.Next(at) {
				for _, one := range []time.Time{at, at.UTC(), at.In(time.FixedZone("", 14*3600))} {
					if _, err := one.MarshalJSON(); err != nil {
						t.Fatalf("%s in %s: %v: %v", expr, zone, one, err)
					}
				}
				last = at
				if n++; n > 10_000 {
					t.Fatalf("%s in %s does not end: %v", expr, zone, at)
				}
			}
			if last.Year() < least {
				t.Errorf("%s in %s ends with %v", expr, zone, last)
			}
		}
	}
}
