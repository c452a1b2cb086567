package timetable

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// config is a configuration with properties, in pairs of a name without "wasm." and a value.
func config(cron, zone string, props ...string) jobconfig.Configuration {
	c := jobconfig.Configuration{JobName: "a", Cron: cron, TimeZone: zone, Props: map[string]string{}}
	for n := 0; n < len(props); n += 2 {
		c.Props[jobconfig.PropPrefix+props[n]] = props[n+1]
	}
	return c
}

// days has calendars in the form of a configuration, in pairs of a name and the text of a file.
func days(t testing.TB, pairs ...string) string {
	t.Helper()
	texts := map[string]string{}
	for n := 0; n < len(pairs); n += 2 {
		d, problems := calendar.Parse("x.calendar.yaml", []byte(pairs[n+1]))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		texts[pairs[n]] = d.Text()
	}
	text, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustNew(t testing.TB, c jobconfig.Configuration) *Timetable {
	t.Helper()
	table, problems := New(c, "ns")
	if len(problems) > 0 || table == nil {
		t.Fatalf("%+v: %v", c, Of(problems))
	}
	return table
}

func at(t testing.TB, text string) time.Time {
	t.Helper()
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

func checkNext(t *testing.T, table *Timetable, from, want string) {
	t.Helper()
	var got []string
	next := at(t, from)
	for range strings.Fields(want) {
		if next = table.Next(next); next.IsZero() {
			got = append(got, "never")
			break
		}
		got = append(got, next.Format(time.RFC3339))
	}
	if found := strings.Join(got, " "); found != want {
		t.Errorf("got  %s\nwant %s", found, want)
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	const weekend, holidays = "weekdays: [SAT, SUN]", "days: [2026-12-24, 2026-12-25]"
	for _, v := range []struct {
		name       string
		c          jobconfig.Configuration
		from, want string
	}{
		{"a cron", config("0 0 9 * * ?", "UTC"), "2026-12-23T12:00:00Z", "2026-12-24T09:00:00Z 2026-12-25T09:00:00Z"},
		{"both", config("0 30 2 * * ?", "Europe/Berlin", "dst", "both"), "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-25T02:30:00+01:00 2026-10-26T02:30:00+01:00"},
		{"its begin and end count", config("0 0 9 * * ?", "UTC", "startAt", "2026-12-24T10:00:00+01:00", "endAt", "2026-12-25T09:00:00Z"), "2026-12-01T00:00:00Z", "2026-12-24T09:00:00Z 2026-12-25T09:00:00Z never"},
		{"at a time", config("", "Europe/Berlin", "at", "2026-12-24T18:00:00+01:00"), "2026-12-01T00:00:00Z", "2026-12-24T18:00:00+01:00 never"},
		{"at a time that is past", config("", "UTC", "at", "2026-12-24T18:00:00Z"), "2026-12-24T18:00:00Z", "never"},
		{"several", config("", "UTC", "schedules", `[{"cron":"0 0 9 * * ?"},{"cron":"0 0 9 * * ?","timeZone":"GMT+02:00"},{"cron":"0 0/30 8 * * ?"}]`), "2026-12-24T00:00:00Z",
			"2026-12-24T07:00:00Z 2026-12-24T08:00:00Z 2026-12-24T08:30:00Z 2026-12-24T09:00:00Z 2026-12-25T07:00:00Z"},
		{"not on holidays", config("0 0 9 * * ?", "UTC", "calendars.exclude", `["h","w"]`, "calendarDays", days(t, "h", holidays, "w", weekend)), "2026-12-23T10:00:00Z", "2026-12-28T09:00:00Z 2026-12-29T09:00:00Z"},
		{"on weekends", config("0 0 9 * * ?", "UTC", "calendars.include", `["w"]`, "calendarDays", days(t, "w", weekend)), "2026-12-23T10:00:00Z", "2026-12-26T09:00:00Z 2026-12-27T09:00:00Z 2027-01-02T09:00:00Z"},
		{"on the next working day", config("0 0 9 1 * ?", "UTC", "calendars.exclude", `["w"]`, "calendars.onExcluded", "next", "calendarDays", days(t, "w", weekend)), "2026-10-02T10:00:00Z",
			"2026-11-02T09:00:00Z 2026-12-01T09:00:00Z 2027-01-01T09:00:00Z 2027-02-01T09:00:00Z"},
		{"never again, and so not on another day either", config("0 0 9 1 1 ? 2020", "UTC", "calendars.exclude", `["w"]`, "calendars.onExcluded", "next", "calendarDays", days(t, "w", weekend)), "2026-10-02T10:00:00Z", "never"},
		{"days are those of the zone", config("0 0 3 * * ?", "Asia/Shanghai", "calendars.exclude", `["h"]`, "calendarDays", days(t, "h", holidays)), "2026-12-23T00:00:00+08:00", "2026-12-23T03:00:00+08:00 2026-12-26T03:00:00+08:00"},
	} {
		t.Run(v.name, func(t *testing.T) { checkNext(t, mustNew(t, v.c), v.from, v.want) })
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	everyDay := days(t, "all", "weekdays: [SUN, MON, TUE, WED, THU, FRI, SAT]", "christmas", "yearly: [12-25]")
	const daily = "0 0 9 * * ?"
	for _, v := range []struct {
		c    jobconfig.Configuration
		want string
	}{
		{config(daily, "UTC", "startAt", "2026-12-24T00:00:00Z", "endAt", "2026-12-23T00:00:00Z"), "endAt: found 2026-12-23T00:00:00Z, which is before startAt"},
		{config(daily, "UTC", "at", "2026-12-24T00:00:00Z"), "cron: is given beside at, expected one of"},
		{config("", "UTC", "at", "2026-12-24T00:00:00Z", "endAt", "2026-12-23T00:00:00Z"), "at: found 2026-12-24T00:00:00Z, which is not between"},
		{config("0 * * * * ?", "UTC", "jitter", "61s"), "jitter: found 1m1s, which is longer than the 1m between"},
		{config("", "UTC", "schedules", `[{"cron":"0 0 9 ? * MON"},{"cron":"0 10 9 1 * ?"}]`, "jitter", "11m"), "jitter: found 11m, which is longer than the 10m between"},
		{config("", "UTC", "schedules", `[{"cron":"0 0 9 ? * MON"},{"cron":"0 10 9"}]`), `schedules: schedule 2: cron "0 10 9"`},
		{config("", "UTC", "schedules", `[{"cron":"0 0 9 ? * MON","timeZone":"Mars"}]`), `schedules: schedule 1: time zone "Mars": unknown`},
		{config("", "UTC", "schedules", `{}`), "schedules: found \"{}\", expected a JSON list of schedules"},
		{config("x", "Mars"), `timeZone: "Mars": unknown`},
		{config(daily, "UTC", "startAt", "tomorrow"), `startAt: found "tomorrow", expected a time with its offset`},
		{config(daily, "UTC", "dst", "twice"), `dst: found "twice", expected once, both or skip`},
		{config(daily, "UTC", "calendars.exclude", `["h"]`), `calendars.exclude: the days of calendar "h" are not in the job's configuration`},
		{config(daily, "UTC", "calendars.exclude", `["all"]`, "calendarDays", everyDay), "calendars.exclude: the calendars leave no day"},
		{config("0 0 9 25 12 ?", "UTC", "calendars.exclude", `["christmas"]`, "calendarDays", everyDay), "calendars.exclude: the calendars exclude every instant of the job"},
		{config(daily, "UTC", "calendars.include", `["h"]`, "calendarDays", `{"h":"x"}`), `calendars.include: the days of calendar "h" in the job's configuration cannot be read`},
		{config(daily, "UTC", "calendars.include", `["h"]`, "calendarDays", `x`), "calendars.include: the days of calendars in the job's configuration cannot be read"},
	} {
		table, problems := New(v.c, "ns")
		if err := Of(problems); table != nil || err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%+v: %v; want %s", v.c, err, v.want)
		}
	}
	for _, c := range []jobconfig.Configuration{
		config("0 * * * * ?", "UTC", "jitter", "1m"), config("", "UTC", "at", "2026-12-24T00:00:00Z", "jitter", "24h"),
		config("0 0 0 1 1 ? 2020", "UTC", "calendars.exclude", `["christmas"]`, "calendarDays", everyDay), // it never fires again, whatever the calendars say
	} {
		mustNew(t, c)
	}
	if table, problems := New(config("", "UTC"), "ns"); table != nil || problems != nil {
		t.Errorf("a job without a schedule: %v, %v", table, problems)
	}
}

// TestAgainstOracle: the instants are those that the schedules have by themselves, day by day
// left out, moved or kept.
func TestAgainstOracle(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	crons := []string{"0 30 2 * * ?", "0 0 0 * * ?", "0 0 9 1,15 * ?", "0 0/20 23 ? * FRI,SUN", "0 15 0/6 * * ?", "@hourly", "0 0 12 L * ?", "0 30 1 ? * MON#1"}
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Australia/Lord_Howe", "Pacific/Apia"}
	// Days on which clocks are changed are among those that are looked at.
	begins := []string{"2026-03-01T00:00:00Z", "2026-10-01T00:00:00Z", "2018-10-20T00:00:00Z", "2018-02-01T00:00:00Z", "2011-12-10T00:00:00Z"}
	one := func(list []string) string { return list[r.IntN(len(list))] }
	clocks := map[string]*clock{}
	for n := range 3 {
		begin := at(t, one(begins))
		end := begin.AddDate(0, 0, 60)
		zone, rule := one(zones), []string{"once", "both", "skip"}[r.IntN(3)]
		c := config("", zone, "dst", rule, "calendars.onExcluded", []string{"skip", "next"}[r.IntN(2)])
		var list []jobconfig.Schedule
		for range 1 + r.IntN(2) {
			list = append(list, jobconfig.Schedule{Cron: one(crons), TimeZone: []string{"", one(zones)}[r.IntN(2)]})
		}
		text, _ := json.Marshal(list)
		c.Props["wasm.schedules"] = string(text)
		file := "days: [1970-01-01"
		for range r.IntN(30) {
			file += ", " + begin.AddDate(0, 0, r.IntN(60)).Format(time.DateOnly)
		}
		// Nothing is moved by more than 66 days.
		file += "]\nranges: [{from: 1970-01-01, to: " + begin.AddDate(0, 0, -66).Format(time.DateOnly) + "}]\n" + []string{"", "weekdays: [SAT, SUN]\n", "weekdays: [MON]\n"}[r.IntN(3)]
		c.Props["wasm.calendarDays"] = days(t, "c", file)
		if include := r.IntN(2) == 0; include {
			c.Props["wasm.calendars.include"] = `["c"]`
		} else {
			c.Props["wasm.calendars.exclude"] = `["c"]`
		}
		o := oracle{clocks: clocks, begin: begin, from: begin, to: end, rule: schedule.DST(rule), next: c.Props["wasm.calendars.onExcluded"] == "next", include: c.Props["wasm.calendars.include"] != ""}
		if r.IntN(3) == 0 {
			o.from, o.to = begin.Add(duration(r, 400*time.Hour)).Truncate(time.Second), end.Add(-duration(r, 400*time.Hour)).Truncate(time.Second)
			c.Props["wasm.startAt"], c.Props["wasm.endAt"] = o.from.Format(time.RFC3339), o.to.Format(time.RFC3339)
		}
		table, problems := New(c, "ns")
		if len(problems) > 0 { // the days leave nothing
			continue
		}
		set, _ := calendar.Parse("c.calendar.yaml", []byte(file))
		o.has = set.Has
		want := o.instants(t, list, zone)
		var got []int64
		for next := table.Next(o.from.Add(-1)); !next.IsZero() && !next.After(o.to); next = table.Next(next) {
			got = append(got, next.Unix())
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d: %+v:\n got %s\nwant %s", n, c.Props, shown(got, zone), shown(want, zone))
		}
		// From anywhere, the next one is the next one, and what is excluded is no instant.
		for range 20 {
			from := o.from.Add(duration(r, o.to.Sub(o.from)))
			i := slices.IndexFunc(want, func(s int64) bool { return time.Unix(s, 0).After(from) })
			if next := table.Next(from); i >= 0 && next.Unix() != want[i] {
				t.Fatalf("%d: %+v: after %v comes %v, want %v", n, c.Props, from, next, time.Unix(want[i], 0))
			}
			excluded := table.NextExcluded(from)
			if j := slices.IndexFunc(o.excluded, func(s int64) bool { return time.Unix(s, 0).After(from) }); j >= 0 && excluded.Unix() != o.excluded[j] {
				t.Fatalf("%d: %+v: after %v %v is excluded, want %v", n, c.Props, from, excluded, time.Unix(o.excluded[j], 0))
			}
		}
	}
}

func shown(seconds []int64, zone string) string {
	loc, _ := time.LoadLocation(zone)
	var all []string
	for _, s := range seconds {
		all = append(all, time.Unix(s, 0).In(loc).Format(time.RFC3339))
	}
	return strings.Join(all, " ")
}

// oracle finds instants by looking at each one of each schedule, and at each minute of the day
// to which one is moved.
type oracle struct {
	from, to time.Time
	rule     schedule.DST
	next     bool
	include  bool
	has      func(calendar.Day) bool
	excluded []int64
	begin    time.Time
	clocks   map[string]*clock
}

// clock is what a clock shows, minute by minute.
type clock struct {
	minutes []time.Time
	most    []string // the most that was shown up to then, as a text
}

func (o *oracle) clock(zone *time.Location) *clock {
	key := zone.String() + o.begin.String()
	if c := o.clocks[key]; c != nil {
		return c
	}
	c, most := &clock{}, ""
	for at := o.begin.AddDate(0, 0, -80); at.Before(o.begin.AddDate(0, 0, 160)); at = at.Add(time.Minute) {
		local := at.In(zone)
		most = max(most, local.Format(time.DateTime))
		c.minutes, c.most = append(c.minutes, local), append(c.most, most)
	}
	o.clocks[key] = c
	return c
}

func (o *oracle) allows(at time.Time) bool { return o.has(calendar.DayOf(at)) == o.include }

func (o *oracle) instants(t *testing.T, list []jobconfig.Schedule, zone string) []int64 {
	t.Helper()
	found, excluded := map[int64]bool{}, map[int64]bool{}
	for _, one := range list {
		name := zone
		if one.TimeZone != "" {
			name = one.TimeZone
		}
		loc, err := schedule.Zone(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := schedule.Parse(one.Cron, loc)
		if err != nil {
			t.Fatal(err)
		}
		s = s.With(o.rule)
		for n := s.Next(o.begin.AddDate(0, 0, -70)); n.Before(o.to.Add(48 * time.Hour)); n = s.Next(n) {
			switch {
			case o.allows(n):
				found[n.Unix()] = true
			case o.next:
				if moved, ok := o.moved(n); ok {
					found[moved.Unix()] = true
				}
				excluded[n.Unix()] = true
			default:
				excluded[n.Unix()] = true
			}
		}
	}
	within := func(all map[int64]bool, but map[int64]bool) (list []int64) {
		for s := range all {
			if at := time.Unix(s, 0); !at.Before(o.from) && !at.After(o.to) && !but[s] {
				list = append(list, s)
			}
		}
		slices.Sort(list)
		return list
	}
	o.excluded = within(excluded, found)
	return within(found, nil)
}

// moved is the first minute of the next day that is allowed at which the clock shows the time
// of another one, or more if it leaps over that.
func (o *oracle) moved(n time.Time) (time.Time, bool) {
	year, month, date := n.Date()
	for day := time.Date(year, month, date, 0, 0, 0, 0, time.UTC); day.Before(o.to.Add(48 * time.Hour)); {
		if day = day.AddDate(0, 0, 1); !o.allows(day) {
			continue
		}
		c := o.clock(n.Location())
		i, _ := slices.BinarySearch(c.most, day.Format(time.DateOnly)+n.Format(" 15:04:05"))
		return c.minutes[i], true
	}
	return time.Time{}, false
}

func TestParameter(t *testing.T) {
	t.Parallel()
	table := mustNew(t, config("", "UTC", "schedules", `[{"cron":"0 0 9 ? * MON","jobParameter":"monday"},{"cron":"0 0 9 * * ?","jobParameter":"day"},{"cron":"0 0 18 * * ?"},{"cron":"0 0 18 * * ?","jobParameter":"evening"}]`))
	for instant, want := range map[string]string{
		"2026-11-30T09:00:00Z": "monday true", // both fire: the first in the list counts
		"2026-12-01T09:00:00Z": "day true",
		"2026-12-01T18:00:00Z": " false",
		"2026-12-01T18:00:01Z": " false",
	} {
		p, ok := table.Parameter(at(t, instant))
		if got := fmt.Sprintf("%s %v", p, ok); got != want {
			t.Errorf("%s: %s, want %s", instant, got, want)
		}
	}
	count := 0
	for n := table.Next(at(t, "2026-11-30T00:00:00Z")); n.Before(at(t, "2026-12-01T00:00:00Z")); n = table.Next(n) {
		count++
	}
	if count != 2 {
		t.Errorf("%d fires on a day, want 2: two schedules that name one instant are one fire", count)
	}
}

// TestJitter: each start is put off by less than the jitter, on all hosts alike; instants are
// reached in order, each once its delay is over.
func TestJitter(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"stable", "random"} {
		c := config("0 * * * * ?", "UTC", "jitter", "40s", "jitterMode", mode)
		table, again := mustNew(t, c), mustNew(t, c)
		seen := map[time.Duration]bool{}
		from := at(t, "2026-12-24T00:00:00Z")
		for n := table.Next(from); n.Before(from.Add(2 * time.Hour)); n = table.Next(n) {
			d := table.Delay(n)
			if d < 0 || d >= 40*time.Second || d != again.Delay(n) {
				t.Fatalf("%s: %v is put off by %v and %v", mode, n, d, again.Delay(n))
			}
			seen[d] = true
			due := n.Add(d)
			if r := table.Reached(due.Add(-time.Millisecond)); !r.Before(n) {
				t.Errorf("%s: %v is reached at %v, before it is due", mode, n, due)
			}
			if r := table.Reached(due); r.Before(n) || r.After(due) {
				t.Errorf("%s: at %v, %v is reached", mode, due, r)
			}
		}
		if many := len(seen) > 100; many != (mode == "random") {
			t.Errorf("%s: %d different delays", mode, len(seen))
		}
		other := c
		other.JobName = "b"
		elsewhere, _ := New(c, "other")
		if at := from.Add(time.Minute); mustNew(t, other).Delay(at) == table.Delay(at) || elsewhere.Delay(at) == table.Delay(at) {
			t.Errorf("%s: two jobs are put off by the same time", mode)
		}
	}
	if plain := mustNew(t, config("0 * * * * ?", "UTC")); plain.Delay(time.Now()) != 0 || !plain.Reached(time.Unix(1, 0)).Equal(time.Unix(1, 0)) {
		t.Error("a job without jitter is put off")
	}
}

func TestTerms(t *testing.T) {
	t.Parallel()
	if config("0 0 9 * * ?", "UTC").Terms() != "" || config("0 0 9 * * ?", "UTC", "timeout", "1m").Terms() != "" {
		t.Error("a job that has only a cron has terms")
	}
	c := config("0 0 9 * * ?", "UTC", "dst", "skip", "calendars.exclude", `["h"]`, "calendarDays", days(t, "h", "days: [2026-12-24]"), "jitter", "1m")
	back, problems := FromTerms("ns", "a", c.Cron, c.TimeZone, c.Terms())
	if len(problems) > 0 {
		t.Fatal(Of(problems))
	}
	checkNext(t, back, "2026-12-23T10:00:00Z", "2026-12-25T09:00:00Z")
	if table := mustNew(t, c); back.Delay(time.Unix(0, 0)) != table.Delay(time.Unix(0, 0)) {
		t.Error("the jitter is another one")
	}
	for _, v := range [][3]string{
		{"0 0 9 * * ?", "x", "0 0 9 * * ?"}, {"", "", ""}, {"", `{"wasm.at":"2026-12-24T18:00:00Z"}`, "at 2026-12-24T18:00:00Z"},
		{"", `{"wasm.schedules":"[{\"cron\":\"@daily\"},{\"cron\":\"@hourly\",\"timeZone\":\"UTC\"}]"}`, "@daily; @hourly UTC"}, {"", "x", ""},
	} {
		if got := Describe(v[0], v[1]); got != v[2] {
			t.Errorf("%q: %q, want %q", v, got, v[2])
		}
	}
}

func TestJavaCompatible(t *testing.T) {
	t.Parallel()
	if err := JavaCompatible(config("0 0 9 * * ?", "")); err != nil {
		t.Error(err)
	}
	for _, s := range jobconfig.InstantSettings() {
		value := map[jobconfig.Type]string{jobconfig.Time: "2026-12-24T18:00:00Z", jobconfig.Duration: "1m", jobconfig.Texts: `["h"]`, jobconfig.Several: `[{"cron":"@daily"}]`, jobconfig.Jobs: `[{"job":"b"}]`}[s.Type]
		if s.Type == jobconfig.Word {
			value = s.Words[len(s.Words)-1]
		}
		c := config("0 0 9 * * ?", "")
		c.Props[s.Prop] = value
		if err := JavaCompatible(c); err == nil || err.Error() != "it does not follow "+s.Name {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if JavaCompatible(config("0 0 9 * * ?", "Europe/Berlin")) == nil {
		t.Error("a zone that Java does not know")
	}
}

// TestWordsAgree: the words of the settings are those of the schedule.
func TestWordsAgree(t *testing.T) {
	t.Parallel()
	if jobconfig.DSTOnce != string(schedule.Once) || jobconfig.DSTBoth != string(schedule.Both) || jobconfig.DSTSkip != string(schedule.Skip) {
		t.Error("they differ")
	}
}

func BenchmarkNext(b *testing.B) {
	from := at(b, "2026-12-23T10:00:00Z")
	for name, c := range map[string]jobconfig.Configuration{
		"plain":     config("0 0 9 * * ?", "Europe/Berlin"),
		"calendars": config("0 0 9 * * ?", "Europe/Berlin", "calendars.exclude", `["h"]`, "calendarDays", days(b, "h", "weekdays: [SAT, SUN]\nyearly: [12-25]\ndays: [2026-12-24]")),
		"next":      config("0 0 9 * * ?", "Europe/Berlin", "calendars.exclude", `["h"]`, "calendars.onExcluded", "next", "calendarDays", days(b, "h", "weekdays: [SAT, SUN]\nyearly: [12-25]\ndays: [2026-12-24]")),
	} {
		table := mustNew(b, c)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Next(from)
			}
		})
	}
}

func duration(r *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(below)))
}
