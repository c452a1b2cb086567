package schedule

import (
	"fmt"
	"strings"
	"time"
)

// JavaCompatible returns nil if ElasticJob would fire at the same instants, or the reason why not. ElasticJob
// evaluates the expression with Quartz, in its host's own zone (empty) or an offset from GMT. An empty
// expression, that of a one-off job, is the same everywhere.
//
// On days on which clocks change, Quartz has its own rules for an empty zone; they are not checked here.
func JavaCompatible(expr, zone string) error {
	if zone != "" && !strings.HasPrefix(zone, "GMT") {
		return fmt.Errorf("time zone %q: ElasticJob knows only GMT, offsets such as GMT+08:00, and empty for the zone of its host", zone)
	}
	if _, err := Zone(zone); err != nil {
		return err
	}
	if expr == "" {
		return nil
	}
	s, err := Parse(expr, time.UTC)
	if err != nil {
		return err
	}
	const reason = "ElasticJob knows only Quartz's form with 6 or 7 fields, seconds first"
	switch {
	case s.dialect == descriptor:
		return fmt.Errorf("cron %q: %s; write %q", expr, reason, quartzOf(strings.TrimSpace(expr)))
	case s.dialect != quartz:
		return fmt.Errorf("cron %q: %s", expr, reason)
	case s.days.rule == oneDate && s.days.n > 28:
		return fmt.Errorf("cron %q: in months without a day %d Quartz sometimes fires on the last day instead; write LW for the last weekday of the month", expr, s.days.n)
	case s.days.rule == lastDate && s.days.nearest && s.days.n > 27:
		return fmt.Errorf("cron %q: Quartz hangs in months without that day; at most L-27W works there", expr)
	}
	return nil
}
