package forecast_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/control/forecast"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestAlerts: the judge of alerts says which would begin: for runs that take long, start late, fail, or do not succeed.
func TestAlerts(t *testing.T) {
	const job = "jobName: a\ncron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\ntimeout: 3h\n"
	for _, tt := range []struct{ name, rule, text, want string }{
		{"long", "failures: off, longerThan: 20m", job, "map[longerThan:5]"},
		{"not so long", "failures: off, longerThan: 50m", job, "map[]"},
		{"late", "failures: off, startWithin: 5m", job + "maxConcurrency: 1\n---\njobName: b\ncron: '0 0 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\nconcurrency: {key: k, max: 1}\n", "map[]"},
		{"behind its own runs", "failures: off, startWithin: 5m", "jobName: a\ncron: '0 0/20 * * * ?'\ntimeZone: UTC\nshardingTotalCount: 1\ntimeout: 3h\n", "map[startWithin:10]"},
		{"failed", "failures: 1", job, "map[failures:1]"},
		{"without a success", "failures: off, succeedEvery: 90m", job, "map[succeedEvery:1]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := alert.Parse("alerts.yaml", []byte("receivers: {ops: {webhook: {url: 'https://hooks.example.com/'}}}\nroutes: [{name: all, to: ops}]\ndefaults: {"+tt.rule+"}\n"))
			if err != nil {
				t.Fatal(err)
			}
			d := forecast.NewDurations(time.Second, true)
			for hour := range 5 { // each takes half an hour; that of 02:00 fails
				at := day.Add(time.Duration(hour) * time.Hour)
				r := history.Run{Job: "a", Instant: at, Begun: at, Ended: at.Add(30 * time.Minute), Source: abi.SourceSchedule, Outcome: abi.OutcomeOK}
				if hour == 2 {
					r.Outcome = abi.OutcomeFail
				}
				d.AddRun(r)
			}
			r, err := forecast.Compare(t.Context(), nil, defined(t, tt.text), false, forecast.Options{From: day, To: day.Add(5 * time.Hour), Durations: d, Rules: rules})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(r.After.Alerts); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
