package ceiling

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func entry(t *testing.T, text string) Entry {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

// Of the entries that match a job, the first that sets a ceiling decides about
// that ceiling, and about no other.
func TestFirstEntryThatSetsACeilingDecides(t *testing.T) {
	t.Parallel()
	l := List{
		entry(t, "team-a-report:timeout=2h,shardingTotalCount=off"),
		entry(t, "team-a-*:timeout=1h,maxConcurrency=16"),
		Default(16 << 20),
	}
	for _, c := range []struct {
		job   string
		name  Name
		value int64
		jobs  string
	}{
		{"team-a-report", Timeout, int64(2 * time.Hour), "team-a-report"},
		{"team-a-report", MaxConcurrency, 16, "team-a-*"},
		{"team-a-report", ShardingTotalCount, Off, "team-a-report"},
		{"team-a-other", Timeout, int64(time.Hour), "team-a-*"},
		{"team-a-other", ShardingTotalCount, 10_000, "*"},
		{"team-b", Timeout, Off, ""},
		{"team-b", MemoryLimit, Off, ""},
		{"team-b", HistoryBytes, 16 << 20, "*"},
	} {
		if got := l.Of(c.job, c.name); got != (Ceiling{c.name, c.value, c.jobs}) {
			t.Errorf("%s of %s: got %+v, expected %d of %q", c.name, c.job, got, c.value, c.jobs)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	l := List{entry(t, "team-a-*:timeout=1h,maxConcurrency=16,memoryLimit=256MiB,shardingTotalCount=100")}
	job := func(name string, total int, g jobconfig.Guest) jobconfig.Configuration {
		c := jobconfig.Configuration{JobName: name, ShardingTotalCount: total, Props: map[string]string{}}
		g.Props(c.Props)
		return c
	}
	within := jobconfig.Guest{Timeout: time.Hour, MaxConcurrency: 16, MemoryLimit: 256 << 20}
	beyond := jobconfig.Guest{Timeout: 2 * time.Hour, MaxConcurrency: 17, MemoryLimit: 1 << 30}
	for _, c := range []struct {
		conf jobconfig.Configuration
		want string
	}{
		{job("team-a-x", 100, within), ""},
		{job("team-a-x", 100, jobconfig.Guest{Timeout: time.Minute}), ""}, // what is not stated is capped
		{job("team-b-x", 1_000_000, beyond), ""},
		{job("team-a-x", 101, beyond), `shardingTotalCount: found 101, the host's ceiling shardingTotalCount for jobs "team-a-*" is 100
timeout: found 2h, the host's ceiling timeout for jobs "team-a-*" is 1h
maxConcurrency: found 17, the host's ceiling maxConcurrency for jobs "team-a-*" is 16
memoryLimit: found 1GiB, the host's ceiling memoryLimit for jobs "team-a-*" is 256MiB`},
		{job("team-a-x", 1, jobconfig.Guest{}), `timeout: found 0, which is no limit, the host's ceiling timeout for jobs "team-a-*" is 1h`},
	} {
		err := l.Check(c.conf)
		if got := errors.Join(err); (got != nil) != (c.want != "") || got != nil && got.Error() != c.want {
			t.Errorf("%+v: got\n%v\nexpected\n%s", c.conf, err, c.want)
		}
		if beyond := (*Error)(nil); err != nil && !errors.As(err, &beyond) {
			t.Errorf("%v is no *Error", err)
		}
	}
}

// What an entry shows is what makes it.
func TestSettingsAreReadBack(t *testing.T) {
	t.Parallel()
	text := "a:b*:timeout=1h30m,maxConcurrency=3,memoryLimit=64MiB,shardingTotalCount=100000,maxJobs=2,maxItems=3,maxShare=50%,logLines=10,logBytes=1500,historyBytes=off,offsetCommits=7"
	e := entry(t, text)
	var pairs []string
	for _, s := range e.Settings() {
		pairs = append(pairs, s[0]+"="+s[1])
	}
	if got := e.Jobs + ":" + strings.Join(pairs, ","); got != text {
		t.Errorf("got  %s\nfrom %s", got, text)
	}
	if len(pairs) != len(Names()) {
		t.Errorf("%d settings, expected all %d", len(pairs), len(Names()))
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 30 * time.Second: "30s", 100 * time.Hour: "100h"} {
		if got := words.Duration(d); got != want {
			t.Errorf("%v is shown as %s, expected %s", d, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"timeout=1h":             `found "timeout=1h", expected JOBS:NAME=VALUE,…, such as team-a-*:timeout=1h`,
		":timeout=1h":            `found "", expected one job's name or one pattern`,
		"[a:timeout=1h":          `found "[a", expected one job's name or one pattern`,
		" team-b:timeout=1h":     `found " team-b", expected one job's name or one pattern, such as team-a-* or *, without commas, slashes and blanks around it`,
		"a,b:timeout=1h":         `found "a,b", expected one job's name or one pattern`,
		"a/b:timeout=1h":         `found "a/b", expected one job's name or one pattern`,
		"a:":                     `found "", expected NAME=VALUE, such as timeout=1h`,
		"a:timeout":              `found "timeout", expected NAME=VALUE`,
		"a:timeouts=1h":          `found the ceiling "timeouts", expected one of timeout, maxConcurrency,`,
		"a:timeout=1":            `timeout: found "1", expected a duration such as 30s, 5m, 1h30m or 1d, or off`,
		"a:timeout=0":            `timeout: found "0", expected a duration`,
		"a:timeout=-1h":          `timeout: found "-1h"`,
		"a:maxShare=101%":        `maxShare: found "101%", expected a share from 1% to 100%, or off`,
		"a:maxShare=50":          `maxShare: found "50"`,
		"a:logBytes=many":        `logBytes: found "many", expected a size such as 64MiB, or off`,
		"a:maxJobs=0":            `maxJobs: found "0", expected a whole number from 1, or off`,
		"a:maxJobs=1,maxJobs=2":  `maxJobs: is given twice`,
		"a:maxJobs=x,logLines=y": `logLines: found "y"`,
	} {
		if e, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v; expected %s", text, e, err, want)
		}
	}
}

// One job never has all slots of a host that has more than one.
func TestSlots(t *testing.T) {
	t.Parallel()
	share := List{Default(0)}.Of("a", Share)
	got := map[int]int{}
	for _, slots := range []int{1, 2, 3, 4, 5, 8, 16, 100_000} {
		got[slots] = share.Slots(slots)
	}
	want := map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3, 8: 6, 16: 12, 100_000: 75_000}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, expected %v", got, want)
	}
	if n := (Ceiling{}).Slots(8); n != 8 {
		t.Errorf("without a ceiling: %d of 8", n)
	}
}

func TestCap(t *testing.T) {
	t.Parallel()
	c := Ceiling{Name: MaxConcurrency, Value: 5}
	for n, want := range map[int64]int64{0: 5, 3: 3, 5: 5, 9: 5} {
		if got := c.Cap(n); got != want {
			t.Errorf("%d is capped to %d, expected %d", n, got, want)
		}
	}
	if got := (Ceiling{}).Cap(9); got != 9 {
		t.Errorf("without a ceiling 9 is capped to %d", got)
	}
}
