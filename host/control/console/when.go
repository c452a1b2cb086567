package console

import (
	"regexp"
	"time"

	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// moment is a time as a page shows it.
type moment struct {
	// ISO is for machines, Text short, Full with date and zone, Relative from now; Counted is Relative, except
	// where the page's script keeps counting.
	ISO, Text, Full, Relative, Counted string
	// Missing: there is no such time, and all else is empty.
	Missing bool
}

const (
	isoTime  = "2006-01-02T15:04:05.000Z07:00"
	fullTime = "2006-01-02 15:04:05 MST"
)

// whole truncates a duration to seconds.
func whole(d time.Duration) time.Duration { return d.Truncate(time.Second) }

// At returns a time as the page shows it. Templates call it.
func (r *reader) At(t time.Time) moment {
	if t.IsZero() {
		return moment{Missing: true}
	}
	local := t.In(r.Zone)
	form := "2006-01-02 15:04:05"
	switch now := r.Now.In(r.Zone); {
	case local.Year() == now.Year() && local.YearDay() == now.YearDay():
		form = "15:04:05"
	case local.Year() == now.Year():
		form = "01-02 15:04:05"
	}
	return moment{ISO: t.UTC().Format(isoTime), Text: local.Format(form), Full: local.Format(fullTime), Relative: r.relative(t), Counted: r.counted(t)}
}

// counted returns the relative time that the page's script then keeps counting. Updates leave it to the script:
// otherwise each part of a page with times would differ a second later.
func (r *reader) counted(t time.Time) string {
	if r.Update {
		return ""
	}
	return r.relative(t)
}

// relative says how long ago a time was, or how soon it comes.
func (r *reader) relative(t time.Time) string {
	d := t.Sub(r.Now)
	switch {
	case d.Abs() < time.Second:
		return r.T("time.now")
	case d < 0:
		return r.T("time.ago", words.Ago(whole(-d)))
	}
	return r.T("time.in", words.Ago(whole(d)))
}

// Short is a duration with about three digits; nothing for none.
func (r *reader) Short(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return words.Short(d)
}

// Since is how long ago a time was, in at most two units.
func (r *reader) Since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return words.Ago(whole(max(0, r.Now.Sub(t))))
}

// zone is the reader's; nil while that is not known.
func (r *reader) zone() *time.Location {
	if !r.ZoneKnown {
		return nil
	}
	return r.Zone
}

// zoneName is a zone for people; own are those that hosts go by, for a job without one.
func (r *reader) zoneName(zone string, own []string) string {
	switch {
	case zone != "" && zone != "Local":
		return zone
	case len(own) == 0:
		return r.T("zone.local")
	}
	return r.T("zone.local.named", r.Names(own))
}

// stamps are times in texts of hosts, which write them in UTC.
var stamps = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// Times is a text of a host with its times in the page's zone.
func (r *reader) Times(text string) string {
	return r.Line(stamps.ReplaceAllStringFunc(text, func(stamp string) string {
		t, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			return stamp
		}
		return t.In(r.Zone).Format(fullTime)
	}))
}

// instants shows times in the job's zone and in the reader's; UTC if that is the same, or
// not known.
func (r *reader) instants(times []time.Time, zone string) (list []instants, other string) {
	if zone == "Local" {
		zone = ""
	}
	own, err := schedule.Zone(zone)
	if err != nil {
		own = time.UTC
	}
	reader := r.Zone
	if reader.String() == own.String() {
		reader = time.UTC
	}
	for _, t := range times {
		form := "01-02 15:04:05"
		if t.In(own).Year() != r.Now.In(own).Year() {
			form = "2006-01-02 15:04:05"
		}
		list = append(list, instants{t.In(own).Format(form), t.In(reader).Format(form), r.relative(t)})
	}
	return list, reader.String()
}
