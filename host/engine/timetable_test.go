package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
)

// with is a definition with properties, in pairs of a name without "wasm." and a value.
func with(d jobconfig.Configuration, props ...string) jobconfig.Configuration {
	before := d.Props
	d.Props = map[string]string{}
	for key, value := range before {
		d.Props[key] = value
	}
	for n := 0; n < len(props); n += 2 {
		d.Props[jobconfig.PropPrefix+props[n]] = props[n+1]
	}
	return d
}

// begun are the instants of which items began, each with how many, as "01-02 15:04:05 xN".
func (c *cluster) begun() (list []string) {
	count := map[time.Time]int{}
	for _, e := range c.list(event.ItemStarted) {
		count[e.Instant.UTC()]++
	}
	for at, n := range count {
		list = append(list, fmt.Sprintf("%s x%d", at.Format("01-02 15:04:05"), n))
	}
	slices.Sort(list)
	return list
}

// TestCalendarOfAJob: on days that a calendar excludes nothing begins, and each instant has that
// reason; the days change while the job runs, for all hosts at once.
func TestCalendarOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := with(definition("j", "0 0 0/6 * * ?", 2), "calendars.exclude", `["h"]`, "calendarDays", `{"h":"{\"days\":[\"2000-01-02\"]}"}`)
		hosts := []*node{c.start(1, job(d, sleeper(time.Second))), c.start(2, job(d, sleeper(time.Second)))}
		time.Sleep(50 * time.Hour) // 2000-01-03 02:00
		d = with(d, "calendarDays", `{"h":"{\"days\":[\"2000-01-03\"]}"}`)
		for _, n := range hosts {
			n.host.Apply([]engine.Job{job(d, sleeper(time.Second))}, nil)
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(24 * time.Hour) // 2000-01-04 02:00
		want := []string{"01-01 06:00:00 x2", "01-01 12:00:00 x2", "01-01 18:00:00 x2", "01-03 00:00:00 x2", "01-04 00:00:00 x2"}
		if got := c.begun(); !slices.Equal(got, want) {
			t.Errorf("begun\n%q, want\n%q\n%s", got, want, c.all())
		}
		excluded := map[string]int{}
		for _, e := range c.list(event.FireSkipped) {
			if e.Cause != event.SkipExcluded {
				t.Errorf("a fire was skipped because %s: %s", e.Cause, e.Reason)
			}
			if late := e.Time.Sub(e.Instant); late > time.Second {
				t.Errorf("that %s is excluded is said %s later", e.Instant, late)
			}
			excluded[e.Instant.UTC().Format("01-02 15")] += len(e.Items)
		}
		for _, at := range []string{"01-02 00", "01-02 06", "01-02 12", "01-02 18", "01-03 06", "01-03 12", "01-03 18"} {
			if excluded[at] != 2 {
				t.Errorf("%d items are excluded at %s, want 2", excluded[at], at)
			}
		}
		if len(excluded) != 7 {
			t.Errorf("excluded are %v", excluded)
		}
	})
}

// TestOlderCalendarOnAHost: a host that has an older file of a calendar goes by the newer days, also
// after it starts again.
func TestOlderCalendarOnAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		of := func(date string) jobconfig.Configuration {
			return with(definition("j", "0 0 0/6 * * ?", 2), "calendars.exclude", `["h"]`, "calendarDays", `{"h":"{\"days\":[\"`+date+`\"]}"}`)
		}
		older, newer := of("2000-01-05"), of("2000-01-02")
		c.start(1, job(older, sleeper(time.Second)))
		second := c.start(2, job(older, sleeper(time.Second)))
		time.Sleep(time.Hour)
		c.hosts["10.0.0.1"].host.Apply([]engine.Job{job(newer, sleeper(time.Second))}, nil)
		time.Sleep(time.Hour)
		second.stop()
		<-second.done
		c.start(2, job(older, sleeper(time.Second)))
		time.Sleep(time.Hour)
		second = c.hosts["10.0.0.2"]
		if w := strings.Join(second.host.Status().Jobs[0].Warnings, "\n"); !strings.Contains(w, "the definition file is out of date") {
			t.Errorf("the host with the older file says %q", w)
		}
		time.Sleep(47 * time.Hour) // 2000-01-03 02:00
		want := []string{"01-01 06:00:00 x2", "01-01 12:00:00 x2", "01-01 18:00:00 x2", "01-03 00:00:00 x2"}
		if got := c.begun(); !slices.Equal(got, want) {
			t.Errorf("begun\n%q, want\n%q\n%s", got, want, c.all())
		}
	})
}

// TestExcludedIsSaidAtOnce: that an instant is excluded is said when it comes, also if the host has
// nothing else to do then.
func TestExcludedIsSaidAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := with(definition("j", "", 1), "schedules", `[{"cron":"11 0 6 * * ?"},{"cron":"37 1 7 * * ?"},{"cron":"53 2 8 * * ?"}]`,
			"calendars.exclude", `["h"]`, "calendarDays", `{"h":"{\"days\":[\"2000-01-01\"]}"}`)
		c.start(1, job(d, sleeper(0)))
		time.Sleep(12 * time.Hour)
		skips := c.list(event.FireSkipped)
		for _, e := range skips {
			if late := e.Time.Sub(e.Instant); late > 100*time.Millisecond || !e.Through.IsZero() {
				t.Errorf("%s is said %s later", e.Instant, late)
			}
		}
		if len(skips) != 3 {
			t.Errorf("skipped %s", lines(skips))
		}
	})
}

// TestJitterOfAJob: starts are put off, by the same time on all hosts; runs keep their instants.
func TestJitterOfAJob(t *testing.T) {
	for _, mode := range []string{"stable", "random"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			core, logs := observer.New(zapcore.WarnLevel)
			c.log = zap.New(core)
			d := with(definition("j", "0 * * * * ?", 4), "jitter", "30s", "jitterMode", mode)
			c.start(1, job(d, sleeper(0)))
			c.start(2, job(d, sleeper(0)))
			time.Sleep(20*time.Minute + 59*time.Second)
			late, at := map[time.Duration]bool{}, map[time.Time]time.Time{}
			for _, e := range c.list(event.ItemStarted) {
				by := e.Time.Sub(e.Instant)
				if by < 0 || by >= 31*time.Second || !e.Instant.Equal(e.Instant.Truncate(time.Minute)) {
					t.Errorf("%s began %s after its instant", e.Instant, by)
				}
				late[by.Truncate(time.Second)] = true
				if other, known := at[e.Instant]; known && e.Time.Sub(other).Abs() > time.Second {
					t.Errorf("items of %s began at %s and %s", e.Instant, other, e.Time)
				}
				at[e.Instant] = e.Time
			}
			if got := c.begun(); len(got) != 20 || got[0] != "01-01 00:01:00 x4" || !strings.HasSuffix(got[19], "x4") {
				t.Errorf("%s: begun %q\n%s", mode, got, c.all())
			}
			if many := len(late) > 5; many != (mode == "random") {
				t.Errorf("%s: late by %v", mode, late)
			}
			if said := logs.FilterMessageSnippet("behind").All(); len(said) > 0 {
				t.Errorf("%s: what is put off counts as late: %v", mode, said)
			}
			status := c.hosts["10.0.0.1"].host.Status().Jobs[0]
			if by := status.Starts.Sub(status.Next); by <= 0 || by >= 30*time.Second {
				t.Errorf("%s: %s starts at %s", mode, status.Next, status.Starts)
			}
		})
	}
}

// TestSchedulesOfAJob: a run has the parameter of the schedule that names its instant, also if
// another host makes up for it.
func TestSchedulesOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := newCluster(t), &given{}
		d := with(definition("j", "", 1), "schedules", `[{"cron":"0 0 0/2 * * ?","jobParameter":"even"},{"cron":"0 0 * * * ?","jobParameter":"hour"},{"cron":"0 30 0 * * ?"}]`)
		d.JobParameter = "configured"
		n := c.start(1, job(d, g.guest(atOnce)))
		time.Sleep(time.Hour + 50*time.Minute)
		n.stop()
		<-n.done
		time.Sleep(11 * time.Minute) // 02:01
		c.start(2, job(d, g.guest(atOnce)))
		time.Sleep(time.Minute)
		if got, want := g.of(abi.SourceSchedule), []string{"0 schedule configured", "0 schedule hour"}; !slices.Equal(got, want) {
			t.Errorf("scheduled runs %q, want %q\n%s", got, want, c.all())
		}
		if got, want := g.of(abi.SourceCatchUp), []string{"0 catchup even"}; len(got) != 1 || !strings.HasSuffix(got[0], " even") {
			t.Errorf("runs that were made up for %q, want %q\n%s", got, want, c.all())
		}
	})
}

// TestOnceAtATime: a job fires once at its time. A host that was away then makes up for it within
// the window, and not after it.
func TestOnceAtATime(t *testing.T) {
	for name, tt := range map[string]struct {
		away time.Duration // how long nobody is there after the time
		want []string
	}{
		"in time":           {-1, []string{"01-01 01:00:00 x2"}},
		"back in time":      {9 * time.Minute, []string{"01-01 01:00:00 x2"}},
		"back out of time":  {11 * time.Minute, nil},
		"never there again": {2 * time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				d := with(definition("j", "", 2), "at", "2000-01-01T02:00:00+01:00", "catchUpWindow", "10m")
				n := c.start(1, job(d, sleeper(time.Second)))
				time.Sleep(30 * time.Minute)
				if tt.away >= 0 {
					n.stop()
					<-n.done
					time.Sleep(30*time.Minute + tt.away)
					c.start(2, job(d, sleeper(time.Second)))
				}
				time.Sleep(3 * time.Hour)
				if got := c.begun(); !slices.Equal(got, tt.want) {
					t.Errorf("begun %q, want %q\n%s", got, tt.want, c.all())
				}
			})
		})
	}
}

// TestJavaHostBesideATimetable: while a Java host is in the job, which would fire at other
// instants, nothing begins, and the reason names the setting.
func TestJavaHostBesideATimetable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := with(definition("j", "0 * * * * ?", 2), "jitter", "1s")
		c.start(1, job(d, sleeper(0)))
		time.Sleep(2*time.Minute + 30*time.Second)
		java, err := c.server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer java.Close()
		if _, err := java.Commit(t.Context(),
			registry.Create("/test/j/servers/10.0.0.9", nil),
			registry.CreateEphemeral("/test/j/instances/10.0.0.9@-@99", nil)); err != nil {
			t.Fatal(err)
		}
		before := len(c.list(event.ItemStarted))
		time.Sleep(3 * time.Minute)
		if n := len(c.list(event.ItemStarted)) - before; n != 0 || before != 4 {
			t.Errorf("%d items began beside a Java host, %d before", n, before)
		}
		skips := c.list(event.FireSkipped)
		if len(skips) == 0 || !strings.Contains(skips[0].Reason, "is in the job, and it does not follow jitter") {
			t.Errorf("skipped %v", skips)
		}
	})
}

// TestBoundsOfAJob: nothing begins before startAt and after endAt, and nothing is said of it.
func TestBoundsOfAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := with(definition("j", "0 0 * * * ?", 1), "startAt", "2000-01-01T03:00:00Z", "endAt", "2000-01-01T05:00:00Z")
		c.start(1, job(d, sleeper(0)))
		time.Sleep(12 * time.Hour)
		if got, want := c.begun(), []string{"01-01 03:00:00 x1", "01-01 04:00:00 x1", "01-01 05:00:00 x1"}; !slices.Equal(got, want) {
			t.Errorf("begun %q, want %q", got, want)
		}
		if skips := c.list(event.FireSkipped, event.ItemSkipped); len(skips) != 0 {
			t.Errorf("skipped %s", lines(skips))
		}
	})
}

// daysModule keeps the days of calendars that its job was configured with.
type daysModule struct {
	engine.Module
	days *atomic.Pointer[string] // the loop of the job configures it
}

func (m daysModule) Executor(c jobconfig.Configuration) (abi.Executor, error) {
	days := c.Props[jobconfig.PropCalendarDays]
	m.days.Store(&days)
	return m.Module.Executor(c)
}

// TestDaysAreShared: a host has one copy of the days of a calendar for a job's definition and its configuration in
// the registry, and one of its terms for all questions for its status.
func TestDaysAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		d := with(definition("j", "0 0 0/6 * * ?", 2), "calendars.exclude", `["h"]`, "calendarDays", `{"h":"{\"days\":[\"2000-01-02\"]}"}`)
		j, configured := job(d, sleeper(time.Second)), atomic.Pointer[string]{}
		j.Module = daysModule{j.Module, &configured}
		n := c.start(1, j)
		time.Sleep(time.Minute)
		got := *configured.Load()
		if own := d.Props[jobconfig.PropCalendarDays]; got != own || unsafe.StringData(got) != unsafe.StringData(own) {
			t.Errorf("the job was configured with %q, a copy of the definition's days", got)
		}
		first := n.host.Status().Jobs[0].Terms
		time.Sleep(7 * time.Hour) // it fires
		second := n.host.Status().Jobs[0].Terms
		if first == "" || unsafe.StringData(first) != unsafe.StringData(second) {
			t.Error("each status has terms of its own")
		}
	})
}
