package forecast_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/schedule/plan"
)

var day = time.Date(2027, 3, 27, 0, 0, 0, 0, time.UTC)

// defined are the jobs of a definition file.
func defined(t *testing.T, text string) (list []forecast.Definition) {
	t.Helper()
	jobs, err := definition.Parse("jobs.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range jobs {
		list = append(list, forecast.Definition{Configuration: d.Configuration, File: "jobs.yaml"})
	}
	return list
}

func compare(t *testing.T, before, after string, o forecast.Options) *forecast.Report {
	t.Helper()
	if o.From.IsZero() {
		o.From, o.To = day, day.Add(48*time.Hour)
	}
	r, err := forecast.Compare(t.Context(), defined(t, before), defined(t, after), true, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestReasons: the reasons of a play are causes of events.
func TestReasons(t *testing.T) {
	for _, why := range plan.Reasons() {
		if !slices.Contains(event.SkipCauses(), event.SkipCause(why)) {
			t.Errorf("%s is no cause of an event", why)
		}
	}
}

// TestCompare: what is added, gone, changed, and worse.
func TestCompare(t *testing.T) {
	const hourly, steady = "jobName: a\ncron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 2\n", "---\njobName: same\ncron: '0 30 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 3\n"
	for _, tt := range []struct {
		name, before, after string
		want                string // change of job a, fires added and gone, and what is worse
	}{
		{"nothing", hourly, hourly, "  0 0 []"},
		{"more often", hourly, strings.Replace(hourly, "0 0 *", "0 0/30 *", 1), "changed cron 48 0 []"},
		{"another zone", hourly, strings.Replace(hourly, "UTC", "Asia/Kolkata", 1), "changed timeZone 48 48 []"},
		{"shorter than a run", hourly, strings.Replace(hourly, "0 0 *", "0/4 0 *", 1) + "overlap: skip\n", "changed cron,misfire,overlap 672 0 [overlaps overlap]"},
		{"removed", hourly, "", "removed  0 48 []"},
		{"added", "", hourly, "added  48 0 []"},
		{"disabled", hourly, hourly + "disabled: true\n", "changed disabled 0 48 []"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := compare(t, strings.TrimPrefix(tt.before+steady, "---\n"), strings.TrimPrefix(tt.after+steady, "---\n"), forecast.Options{})
			got := "  0 0 []"
			for _, j := range r.Jobs {
				if j.Job != "a" {
					t.Errorf("job %s is reported: %+v", j.Job, j)
					continue
				}
				got = fmt.Sprint(j.Change, " ", strings.Join(j.Settings, ","), " ", j.FiresAdded, " ", j.FiresGone, " ", j.Worse)
				if r.Worse != (len(j.Worse) > 0) {
					t.Errorf("worse is %t of %v", r.Worse, j.Worse)
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSharedJobs: what is the same on both sides is played once, and counts on both.
func TestSharedJobs(t *testing.T) {
	const shared = "jobName: same\ncron: '0 30 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 3\n"
	const limited = "---\njobName: a\ncron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 2\nconcurrency: {key: k, max: 1}\n---\njobName: b\ncron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\nconcurrency: {key: k, max: 1}\n"
	more := strings.Replace(limited, "jobName: b\ncron: '0 0 *", "jobName: b\ncron: '0 0/30 *", 1)
	for _, slots := range []int{0, 2} {
		r := compare(t, shared+limited, shared+more, forecast.Options{Slots: slots})
		if r.Before.Runs != 48*6 || r.After.Runs != 48*7 || r.Before.PermitWaits != 96 || r.After.PermitWaits != 96 {
			t.Errorf("with %d slots: %d and %d runs, %d and %d waits for permits", slots, r.Before.Runs, r.After.Runs, r.Before.PermitWaits, r.After.PermitWaits)
		}
		starts := 0
		for _, m := range r.Before.Busiest {
			starts += m.Starts
		}
		if starts == 0 || r.Before.Peak.Running == 0 {
			t.Errorf("with %d slots, before has no busy minute: %+v", slots, r.Before)
		}
	}
}

// TestShifts: changes of clocks in the range, and the jobs that have an instant in that hour.
func TestShifts(t *testing.T) {
	jobs := defined(t, "jobName: night\ncron: '0 30 2 * * ?'\ntimeZone: Europe/Berlin\nshardingTotalCount: 1\n---\njobName: noon\ncron: '0 0 12 * * ?'\ntimeZone: Europe/Berlin\nshardingTotalCount: 1\n---\njobName: utc\ncron: '0 30 2 * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\n")
	r, err := forecast.Compare(t.Context(), nil, jobs, false, forecast.Options{From: day, To: day.AddDate(0, 8, 0)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range r.Shifts {
		got = append(got, fmt.Sprint(s.Zone, " ", s.At.Format(time.RFC3339), " ", s.Forward, " ", s.Jobs, " ", s.Touched))
	}
	want := []string{"Europe/Berlin 2027-03-28T03:00:00+02:00 1h0m0s 2 [night]", "Europe/Berlin 2027-10-31T02:00:00+01:00 -1h0m0s 2 [night]"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// TestDurations: a run that the history has takes what it took; others what is typical, at most the timeout.
func TestDurations(t *testing.T) {
	at := func(hour, minute int) time.Time {
		return day.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
	}
	d := forecast.NewDurations(time.Second, true)
	for hour, took := range []int{10, 70, 10, 20} {
		r := history.Run{Job: "a", Instant: at(hour, 0), Source: abi.SourceSchedule, Begun: at(hour, 0), Ended: at(hour, took), Outcome: abi.OutcomeOK}
		if hour == 3 {
			r.Outcome = abi.OutcomeFail
		}
		d.AddRun(r)
	}
	d.AddRun(history.Run{Job: "a", Instant: at(9, 0), Begun: at(9, 0)}) // still runs
	d.AddRun(history.Run{Job: "a", Instant: at(8, 0), Begun: at(8, 0), Ended: at(9, 0), Outcome: abi.OutcomeCancelled})
	if d.Known() != 4 || d.Typical("a") != 10*time.Minute || d.Typical("b") != time.Second || d.Has("b") {
		t.Errorf("%d runs are known, a takes %s, b %s", d.Known(), d.Typical("a"), d.Typical("b"))
	}
	const text = "jobName: a\ncron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\noverlap: skip\ntimeout: 2h\n"
	r := compare(t, text, text, forecast.Options{From: day, To: at(5, 0), Durations: d})
	if r.After.Runs != 4 || r.After.Skipped[plan.Overlap] != 1 || r.After.Overlaps != 1 {
		t.Errorf("%+v", r.After)
	}
}

// TestRefused: what cannot be played says which job it is of.
func TestRefused(t *testing.T) {
	one := defined(t, "jobName: a\ncron: '0 0 * * * ?'\nshardingTotalCount: 1\n")
	o := forecast.Options{From: day, To: day.Add(time.Hour)}
	if _, err := forecast.Compare(t.Context(), nil, append(one, one...), false, o); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("two definitions of a job: %v", err)
	}
	bad := slices.Clone(one)
	bad[0].Configuration.Cron = "61 * * * * ?"
	if _, err := forecast.Compare(t.Context(), nil, bad, false, o); err == nil || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("a cron that cannot be read: %v", err)
	}
	o.MostStarts = 10
	if _, err := forecast.Compare(t.Context(), nil, defined(t, "jobName: often\ncron: '* * * * * ?'\nshardingTotalCount: 1\n"), false, o); err == nil || !strings.Contains(err.Error(), `"often"`) {
		t.Errorf("too many instants: %v", err)
	}
}

// TestOfEdit: an edit is played; one of a job that comes after others is not, nor one that fires too often.
func TestOfEdit(t *testing.T) {
	config := func(settings ...string) *admin.JobConfig {
		c := &admin.JobConfig{Job: "a", Settings: map[string]string{"shardingTotalCount": "3", "timeZone": "UTC"}}
		for pair := range slices.Chunk(settings, 2) {
			c.Settings[pair[0]] = pair[1]
		}
		return c
	}
	edit := func(before, after *admin.JobConfig) *forecast.Edit {
		t.Helper()
		e, err := forecast.OfEdit(t.Context(), &admin.Edited{Before: before, After: after}, day, forecast.NewDurations(10*time.Second, false))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	hourly := config("cron", "0 0 * * * ?")
	want := forecast.Edit{FiresBefore: 168, FiresAfter: 168 * 2, FiresAdded: 168, OverlapsAfter: 168 * 3, LostAfter: 168 * 3, Takes: 10 * time.Second}
	if e := edit(hourly, config("cron", "0/7 0 * * * ?", "overlap", "skip", "misfire", "false", "endAt", "")); e == nil || !e.Worse() || e.FiresAfter != 168*9 {
		t.Errorf("got %+v", e)
	}
	if e := edit(hourly, config("cron", "0,5 0 * * * ?", "overlap", "skip", "misfire", "false")); e == nil || !reflect.DeepEqual(*e, want) {
		t.Errorf("got %+v, want %+v", e, want)
	}
	if e := edit(hourly, config("after", `[{"job":"b"}]`)); e != nil {
		t.Errorf("a job after others is played: %+v", e)
	}
	if e := edit(hourly, config("cron", "* * * * * ?")); e != nil {
		t.Errorf("a job that fires each second is played: %+v", e)
	}
}
