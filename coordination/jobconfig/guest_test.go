package jobconfig

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestGuestDefaults(t *testing.T) {
	t.Parallel()
	g, err := Configuration{Props: map[string]string{"script.command.line": "x", "wasm.ofTheFuture": "?"}}.Guest()
	expected := Guest{
		Isolation: IsolationFire, CatchUpWindow: 5 * time.Minute, MaxHostDeaths: 2, CatchUpMax: 100, QueueMax: 100, Priority: 3,
		Retry: RetryPolicy{Attempts: 3, Backoff: time.Second, MaxBackoff: 30 * time.Second, On: []string{"RETRY"}},
		When:  When{DST: "once", JitterMode: "stable", OnExcluded: "skip"},
	}
	if err != nil || !reflect.DeepEqual(g, expected) {
		t.Errorf("got %+v, %v", g, err)
	}
}

func TestGuestReadsEverything(t *testing.T) {
	t.Parallel()
	g, err := Configuration{Misfire: true, Props: map[string]string{
		"wasm.type": "dataflow", "streaming.process": "TRUE", "wasm.timeout": "90s", "wasm.maxConcurrency": " 4 ",
		"wasm.isolation": "item", "wasm.args": `["-v","a b",""]`, "wasm.memoryLimit": "64MiB", "wasm.fetchDataCount": "100",
		"wasm.retry.attempts": "5", "wasm.retry.backoff": "250ms", "wasm.retry.maxBackoff": "1m", "wasm.retry.on": "fail, retry,FAIL",
		"wasm.dst": " Skip", "wasm.startAt": "2026-12-24T18:00:00+01:00", "wasm.endAt": "2026-12-25T00:00:00Z", "wasm.at": "2026-12-24T20:00:00Z",
		"wasm.jitter": "30s", "wasm.jitterMode": "RANDOM", "wasm.schedules": ` [{"cron":"@daily","timeZone":"UTC","jobParameter":""},{"cron":"0 0 9 * * ?"}]`,
		"wasm.calendars.include": `["workdays"]`, "wasm.calendars.exclude": `["h","de"]`, "wasm.calendars.onExcluded": "next",
		"wasm.catchUpWindow": "1d12h", "wasm.maxHostDeaths": "5", "wasm.catchUp": "All", "wasm.catchUpMax": "7",
		"wasm.overlap": "QUEUE_ALL", "wasm.queueMax": "8", "wasm.startWithin": "9m",
		"wasm.maxRuns": "10", "wasm.pauseAfterFailures": "11",
		"wasm.concurrency.key": " db-{shardingParameter}", "wasm.concurrency.max": "12", "wasm.priority": "1",
		"wasm.rate.key": "api", "wasm.rate.per": "1m", "wasm.rate.max": "5",
	}}.Guest()
	expected := Guest{
		Type: TypeDataflow, StreamingProcess: true, Timeout: 90 * time.Second, MaxConcurrency: 4, Isolation: IsolationItem,
		Args: []string{"-v", "a b", ""}, MemoryLimit: 64 << 20, FetchDataCount: 100, MaxHostDeaths: 5, CatchUpWindow: 36 * time.Hour,
		CatchUp: CatchUpAll, CatchUpMax: 7, Overlap: OverlapQueueAll, QueueMax: 8, StartWithin: 9 * time.Minute, MaxRuns: 10, PauseAfterFailures: 11,
		Concurrency: Concurrency{Key: "db-{shardingParameter}", Max: 12}, Priority: 1, Rate: Rate{Key: "api", Per: time.Minute, Max: 5},
		Retry: RetryPolicy{Attempts: 5, Backoff: 250 * time.Millisecond, MaxBackoff: time.Minute, On: []string{"RETRY", "FAIL"}},
		When: When{DST: "skip", StartAt: "2026-12-24T18:00:00+01:00", EndAt: "2026-12-25T00:00:00Z", At: "2026-12-24T20:00:00Z", Jitter: 30 * time.Second, JitterMode: "random",
			Schedules: []Schedule{{Cron: "@daily", TimeZone: "UTC", JobParameter: new(string)}, {Cron: "0 0 9 * * ?"}}, Include: []string{"workdays"}, Exclude: []string{"h", "de"}, OnExcluded: "next"},
	}
	if err != nil || !reflect.DeepEqual(g, expected) {
		t.Errorf("got %+v, %v", g, err)
	}
}

func TestGuestRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, value, expected string }{
		{"wasm.type", "JAVA", `found "JAVA", expected SIMPLE, DATAFLOW, SCRIPT or HTTP`},
		{"wasm.timeout", "10", `found "10", expected a duration with its unit, such as 10s`},
		{"wasm.timeout", "soon", `found "soon", expected a duration such as 30s, 5m, 1h30m or 1d, or 0`},
		{"wasm.timeout", "", `found "", expected a duration such as 30s, 5m, 1h30m or 1d, or 0`},
		{"wasm.timeout", "-1s", `found "-1s", expected a duration from 0 to 720h0m0s`},
		{"wasm.catchUpWindow", "1000h", `found "1000h", expected a duration from 0 to 720h0m0s`},
		{"wasm.maxConcurrency", "-1", `found "-1", expected a whole number from 0 to 100000`},
		{"wasm.maxHostDeaths", "-1", `found "-1", expected a whole number from 0 to 1000`},
		{"wasm.maxConcurrency", "many", `found "many", expected a whole number from 0 to 100000`},
		{"wasm.isolation", "thread", `found "thread", expected fire, item, process or host`},
		{"wasm.dst", "twice", `found "twice", expected once, both or skip`},
		{"wasm.at", "2026-12-24 18:00", `found "2026-12-24 18:00", expected a time with its offset and whole seconds, such as 2026-12-24T18:00:00+01:00`},
		{"wasm.startAt", "2026-12-24T18:00:00.5Z", `found "2026-12-24T18:00:00.5Z", expected a time with its offset and whole seconds, such as 2026-12-24T18:00:00+01:00`},
		{"wasm.jitter", "25h", `found "25h", expected a duration from 0 to 24h0m0s`},
		{"wasm.schedules", `[{"corn":"@daily"}]`, `found "[{\"corn\":\"@daily\"}]", expected a JSON list of schedules, such as ` + SchedulesExample},
		{"wasm.schedules", `[] []`, `found "[] []", expected one JSON list of schedules and nothing after it`},
		{"wasm.schedules", `[{"cron":"@daily"},{"cron":" "}]`, `schedule 2 has no cron, expected one such as ` + SchedulesExample},
		{"wasm.after", `[{"job":"b","when":"always"}]`, `found "[{\"job\":\"b\",\"when\":\"always\"}]", expected a JSON list of jobs, such as ` + AfterExample},
		{"wasm.after", `[{"job":"b"},{"job":"c","within":"never"}]`, `entry 2: within: found "never", expected a duration such as 30s, 5m, 1h30m or 1d, or 0`},
		{"wasm.after", `[{"job":"b"},{"job":"b"}]`, `entry 2: job "b" is given twice`},
		{"wasm.args", "-v", `found "-v", expected a JSON list of strings, such as ["-v","x y"]`},
		{"wasm.args", `["a",null]`, `found "[\"a\",null]", expected a JSON list of strings, such as ["-v","x y"]`},
		{"wasm.args", `null`, `found "null", expected a JSON list of strings, such as ["-v","x y"]`},
		{"wasm.args", `["\u0000"]`, `found "[\"\\u0000\"]", expected texts without a NUL character`},
		{"wasm.needs", "foo", `found "foo", expected a JSON list of strings, such as ["kv","secret API_TOKEN"]`},
		{"wasm.timeout", "31d", `found "31d", expected a duration from 0 to 720h0m0s`},
		{"wasm.timeout", "1 d", `found "1 d", expected a duration such as 30s, 5m, 1h30m or 1d, or 0`},
		{"wasm.memoryLimit", "64", `found "64", expected a size from 64KiB to 2GiB`},
		{"wasm.memoryLimit", "5GiB", `found "5GiB", expected a size from 64KiB to 2GiB`},
		{"wasm.memoryLimit", "64 apples", `found "64 apples", expected a size such as 64MiB, or a number of bytes`},
		{"wasm.memoryLimit", "-64MiB", `found "-64MiB", expected a size such as 64MiB, or a number of bytes`},
		{"wasm.memoryLimit", "1.00000001MiB", `found "1.00000001MiB", expected a size such as 64MiB, or a number of bytes`},
		{"wasm.fetchDataCount", "1000001", `found "1000001", expected a whole number from 0 to 1000000`},
		{"wasm.retry.attempts", "0", `found "0", expected a whole number from 1 to 100`},
		{"wasm.retry.backoff", "25h", `found "25h", expected a duration from 0 to 24h0m0s`},
		{"wasm.retry.maxBackoff", "10ms", `found 10ms, expected at least the first backoff, 1s`},
		{"wasm.retry.on", "NEVER", `found "NEVER", expected some of RETRY, FAIL, TRAP, EXIT, TIMEOUT, WORKER, separated by commas`},
		{"wasm.retry.on", "", `found "", expected some of RETRY, FAIL, TRAP, EXIT, TIMEOUT, WORKER, separated by commas`},
	} {
		g, err := Configuration{Props: map[string]string{c.key: c.value}}.Guest()
		if err == nil || err.Error() != "props."+c.key+": "+c.expected {
			t.Errorf("%s=%q: got %v, expected %s", c.key, c.value, err, c.expected)
		}
		var field *FieldError
		if !errors.As(err, &field) || field.Field != "props."+c.key {
			t.Errorf("%s=%q: no FieldError: %v", c.key, c.value, err)
		}
		if d := DefaultGuest(); !reflect.DeepEqual(g, d) {
			t.Errorf("%s=%q: got %+v, expected the defaults", c.key, c.value, g)
		}
	}
	_, err := Configuration{Props: map[string]string{"wasm.timeout": "x", "wasm.isolation": "y", "streaming.process": "z"}}.Guest()
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("got %v, expected two problems", err)
	}
}

// A first backoff beyond the default limit is no error while the limit is not
// stated.
func TestGuestLongBackoff(t *testing.T) {
	t.Parallel()
	g, err := Configuration{Props: map[string]string{"wasm.retry.backoff": "1m"}}.Guest()
	if err != nil || g.Retry.MaxBackoff != time.Minute {
		t.Errorf("got %+v, %v", g, err)
	}
}

func TestParseMemoryLimit(t *testing.T) {
	t.Parallel()
	for s, expected := range map[string]int64{
		"0": 0, "65536": 65536, "64KiB": 64 << 10, "64 MiB": 64 << 20, "64mib": 64 << 20, "1.5GiB": 3 << 29, "2GiB": 2 << 30,
		"100KB": 100_000, "100MB": 100_000_000, "1GB": 1_000_000_000, "70000B": 70000,
	} {
		if got, err := ParseMemoryLimit(s); err != nil || got != expected {
			t.Errorf("%q: got %d, %v, expected %d", s, got, err, expected)
		}
	}
}

// Whatever settings there are, Props says them, Guest reads them, and what was
// said before or belongs to others does not get in the way.
func TestGuestPropsRoundTrip(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(d ...time.Duration) time.Duration { return d[r.IntN(len(d))] }
	props := map[string]string{"script.command.line": "x"}
	for range 3000 {
		g := Guest{
			Type:             []JobType{"", TypeSimple, TypeDataflow, TypeScript}[r.IntN(4)],
			StreamingProcess: r.IntN(2) == 0,
			Timeout:          pick(0, time.Millisecond, 10*time.Minute, MaxTimeout),
			MaxConcurrency:   r.IntN(3),
			Isolation:        []Isolation{IsolationFire, IsolationItem, IsolationProcess}[r.IntN(3)],
			MemoryLimit:      []int64{0, MinMemoryLimit, 100_000_001, MaxMemoryLimit}[r.IntN(4)],
			FetchDataCount:   r.IntN(3) * 500,
			CatchUpWindow:    pick(0, 5*time.Minute, time.Hour),
			MaxHostDeaths:    r.IntN(4),
			CatchUp:          []CatchUp{"", CatchUpNone, CatchUpLatest}[r.IntN(3)],
			CatchUpMax:       []int{1, 100, MaxQueue}[r.IntN(3)],
			Overlap:          []Overlap{"", OverlapQueueOne, OverlapQueueAll, OverlapTerminate}[r.IntN(4)],
			QueueMax:         []int{1, 100, MaxQueue}[r.IntN(3)],
			StartWithin:      pick(0, time.Minute),
			Concurrency:      []Concurrency{{}, {Key: "db", Max: 1}, {Key: "{jobParameter}", Max: 1000}}[r.IntN(3)],
			Priority:         1 + r.IntN(4),
			Rate:             []Rate{{}, {Key: "api", Per: time.Second, Max: 1}, {Key: "{shardingParameter}", Per: 24 * time.Hour, Max: 1000}}[r.IntN(3)],
			When: When{DST: []string{"once", "both", "skip"}[r.IntN(3)], JitterMode: []string{"stable", "random"}[r.IntN(2)], OnExcluded: []string{"skip", "next"}[r.IntN(2)],
				At: []string{"", "2026-12-24T18:00:00+01:00"}[r.IntN(2)], Jitter: pick(0, time.Second)},
		}
		if r.IntN(2) == 0 {
			g.When.Schedules = []Schedule{{Cron: "a"}, {Cron: "b", TimeZone: "c", JobParameter: new(string)}}[:1+r.IntN(2)]
			g.When.Exclude = []string{"h"}
		}
		if r.IntN(2) == 0 {
			g.Args = []string{"a", "", "ü \"'\n<"}[:1+r.IntN(3)]
			g.Needs = []string{"kv", "secret A"}[:1+r.IntN(2)]
		}
		g.Retry = RetryPolicy{Attempts: 1 + r.IntN(4), Backoff: pick(0, time.Second, time.Minute)}
		g.Retry.MaxBackoff = g.Retry.Backoff + pick(0, 29*time.Second, 30*time.Second)
		for _, o := range RetryOutcomes() {
			if r.IntN(2) == 0 {
				g.Retry.On = append(g.Retry.On, o)
			}
		}
		if g.Retry.On == nil {
			g.Retry.On = []string{"RETRY"}
		}
		g.Props(props)
		back, err := Configuration{Misfire: true, Props: props}.Guest()
		if err != nil || !reflect.DeepEqual(back, g) {
			t.Fatalf("%+v\nwritten %v\nread %+v, %v", g, props, back, err)
		}
	}
	DefaultGuest().Props(props)
	if !maps.Equal(props, map[string]string{"script.command.line": "x"}) {
		t.Errorf("the defaults left %v", props)
	}
	Guest{CatchUpWindow: 5 * time.Minute, MaxHostDeaths: 2}.Props(props)
	if !maps.Equal(props, map[string]string{"script.command.line": "x"}) {
		t.Errorf("a zero policy left %v", props)
	}
}

// TestPolicies: misfire decides where no policy is stated, and what contradicts it, or another policy, is refused.
func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		misfire  bool
		props    map[string]string
		overlap  Overlap
		catchUp  CatchUp
		notJavas string
		problem  string
	}{
		{true, nil, OverlapQueueOne, CatchUpLatest, "", ""},
		{false, nil, OverlapSkip, CatchUpNone, "", ""},
		{true, map[string]string{"wasm.overlap": "queue_one", "wasm.catchUp": "latest"}, OverlapQueueOne, CatchUpLatest, "", ""},
		{false, map[string]string{"wasm.overlap": "skip", "wasm.catchUp": "none"}, OverlapSkip, CatchUpNone, "", ""},
		{false, map[string]string{"wasm.catchUp": "latest"}, OverlapSkip, CatchUpLatest, "catchUp", ""},
		{true, map[string]string{"wasm.catchUp": "all", "wasm.startWithin": "1m"}, OverlapQueueOne, CatchUpAll, "catchUp startWithin", ""},
		{true, map[string]string{"wasm.overlap": "cancel"}, OverlapCancel, CatchUpLatest, "overlap", ""},
		{true, map[string]string{"wasm.overlap": "skip"}, OverlapQueueOne, CatchUpLatest, "", "props.wasm.overlap: found skip, but misfire is true, which means queue_one"},
		{false, map[string]string{"wasm.overlap": "queue_all"}, OverlapSkip, CatchUpNone, "", "props.wasm.overlap: found queue_all, but misfire is false, which means skip"},
		{true, map[string]string{"wasm.catchUp": "all", "wasm.catchUpWindow": "0"}, OverlapQueueOne, CatchUpLatest, "", "props.wasm.catchUp: found all, but catchUpWindow is 0, so that no instant is made up for"},
		{true, map[string]string{"wasm.overlap": "allow"}, OverlapQueueOne, CatchUpLatest, "", "props.wasm.overlap: " + noAllow},
		{true, map[string]string{"wasm.overlap": "never"}, OverlapQueueOne, CatchUpLatest, "", `props.wasm.overlap: found "never", expected skip, queue_one, queue_all, cancel or terminate`},
		{true, map[string]string{"wasm.queueMax": "0"}, OverlapQueueOne, CatchUpLatest, "", `props.wasm.queueMax: found "0", expected a whole number from 1 to 1000`},
	} {
		c := Configuration{Misfire: tt.misfire, Props: tt.props}
		g, err := c.Guest()
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if problem != tt.problem || g.Overlaps(c) != tt.overlap || g.CatchesUp(c) != tt.catchUp || strings.Join(c.NotJavas(), " ") != tt.notJavas {
			t.Errorf("misfire %v, %v: overlap %s, catchUp %s, not for Java %v, %q", tt.misfire, tt.props, g.Overlaps(c), g.CatchesUp(c), c.NotJavas(), problem)
		}
	}
}
