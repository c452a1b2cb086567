package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings are values of settings that can be edited: texts, and the others as they are
// written afterwards if that is different. Those of a setting that is not here follow from
// its type.
var settings = map[string]map[string]string{
	"cron":                     {"0 0 3 * * ?": "", "@every 90s": "", "": ""},
	"timeZone":                 {"Europe/Berlin": "", "GMT+08:00": "", "": ""},
	"shardingTotalCount":       {"7": "", " 12 ": "12"},
	"shardingItemParameters":   {"0=A,1=B": "", "": ""},
	"jobParameter":             {"a=b, \"c\"\n日本": "", "": ""},
	"jobShardingStrategyType":  {"ROUND_ROBIN": "", "odevity": "ODEVITY", "": ""},
	"failover":                 {"true": "", "false": ""},
	"misfire":                  {"true": "", "false": ""},
	"monitorExecution":         {"true": "", "false": ""},
	"maxTimeDiffSeconds":       {"-1": "", "60": ""},
	"reconcileIntervalMinutes": {"0": "", "15": ""},
	"jobErrorHandlerType":      {"LOG": "", "THROW": "", "": ""},
	"description":              {"every night: <b>": "", "": ""},
	"disabled":                 {"true": "", "false": ""},
	"label":                    {"a": "", "": ""},
	"staticSharding":           {"true": "", "false": ""},
	"type":                     {"SIMPLE": "", "dataflow": "DATAFLOW"},
	"streamingProcess":         {"true": "", "false": ""},
	"timeout":                  {"90s": "1m30s", "5m0s": ""},
	"maxConcurrency":           {"3": "", "0": ""},
	"isolation":                {"item": "", "PROCESS": "process"},
	"args":                     {`["-v","a b"]`: "", "": ""},
	"memoryLimit":              {"64MiB": "67108864"},
	"fetchDataCount":           {"500": ""},
	"catchUpWindow":            {"1h0m0s": "", "0s": "", "1d": "24h0m0s"},
	"maxHostDeaths":            {"0": "", "5": ""},
	"calendars.include":        {`["workdays","de"]`: "", "": ""},
	"calendars.exclude":        {`["holidays"]`: "", "": ""},
	"http.url":                 {"https://example.org/{item}": ""},
	"http.method":              {"put": "PUT", "": ""},
	"http.headers":             {`["Accept: text/plain"]`: "", "": ""},
	"http.expect":              {"200-204, 404": "200-204,404", "": ""},
	"needs":                    {`["kv","net tcp://db:5432"]`: "", "": ""},
	"retry.attempts":           {"5": ""},
	"retry.backoff":            {"2s": ""},
	"retry.maxBackoff":         {"1m0s": ""},
	"retry.on":                 {"RETRY,FAIL": ""},
}

// typical are values of a setting by its type, as in settings.
func typical(t *testing.T, s jobconfig.Setting) map[string]string {
	switch s.Type {
	case jobconfig.Boolean:
		return map[string]string{"true": "", "false": ""}
	case jobconfig.Number:
		return map[string]string{strconv.FormatInt(s.Min, 10): "", strconv.FormatInt(s.Max, 10): ""}
	case jobconfig.Duration:
		return map[string]string{time.Duration(s.Max).String(): ""}
	case jobconfig.Word:
		return map[string]string{s.Words[0]: "", s.Words[len(s.Words)-1]: ""}
	case jobconfig.Time:
		return map[string]string{"2026-12-24T18:00:00+01:00": "", "2026-12-24T17:00:00Z": "", "": ""}
	case jobconfig.Several:
		return map[string]string{`[{"cron":"@daily"},{"cron":"@hourly","timeZone":"UTC","jobParameter":""}]`: "", "": ""}
	case jobconfig.Jobs:
		return map[string]string{`[{"job":"b"},{"job":"c","on":"failure","within":"2h"}]`: "", "": ""}
	case jobconfig.Labels:
		return map[string]string{"tier=gold, team=billing": "team=billing,tier=gold", "": ""}
	case jobconfig.Args:
		return map[string]string{`[{"name":"day","type":"date","default":"2026-01-01"},{"name":"how","type":"enum","default":"a","values":["a","b"],"description":"x"}]`: "", "": ""}
	case jobconfig.Text:
		return map[string]string{"a": "", "": ""}
	}
	t.Errorf("no value is tried for %s", s.Name)
	return nil
}

func configuration() jobconfig.Configuration {
	return jobconfig.Configuration{JobName: "a", Cron: "0 0 1 * * ?", ShardingTotalCount: 2, MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10,
		Props: map[string]string{"java.key": "kept", "wasm.timeout": "10m0s"}}
}

// TestEditEverySetting: what is shown of a setting can be given back and changes nothing,
// what is given is shown, and survives the registry's document; all else stays.
func TestEditEverySetting(t *testing.T) {
	t.Parallel()
	for _, s := range Editable() {
		values, known := settings[s.Name]
		if !known {
			values = typical(t, s)
		}
		for value, want := range values {
			if want == "" {
				want = value
			}
			before := configuration()
			if s.Only != "" && s.Only != jobconfig.TypeScript {
				before.Props["wasm.type"] = string(s.Only)
			}
			if s.Only == jobconfig.TypeHTTP {
				before.Props[jobconfig.PropHTTPURI] = "https://example.org/"
			}
			edits := map[string]string{s.Name: value}
			if s.Name == "overlap" {
				before.Misfire = value != "skip" // which says the same
			}
			switch { // neither goes without the other
			case s.Name == "concurrency.key" && value != "":
				edits["concurrency.max"] = "2"
			case s.Name == "concurrency.max" && value != "0":
				edits["concurrency.key"] = "db"
			case strings.HasPrefix(s.Name, "rate.") && value != "" && value != "0":
				for name, other := range map[string]string{"rate.key": "api", "rate.per": "1m0s", "rate.max": "5"} {
					if name != s.Name {
						edits[name] = other
					}
				}
			}
			if s.Name == "retry.maxBackoff" {
				edits["retry.backoff"] = "1s"
			}
			after, err := Edit(before, edits)
			if err != nil {
				t.Errorf("%s: %q: %v", s.Name, value, err)
				continue
			}
			if got := Text(s, after); got != want {
				t.Errorf("%s: %q is shown as %q, want %q", s.Name, value, got, want)
			}
			parsed, _, err := jobconfig.Parse([]byte(after.YAML()))
			if err != nil {
				t.Fatalf("%s: %q: %v", s.Name, value, err)
			}
			if got := Text(s, parsed); got != want {
				t.Errorf("%s: %q comes from the registry as %q, want %q", s.Name, value, got, want)
			}
			if s.Name != "timeout" && after.Props["wasm.timeout"] != "10m0s" {
				t.Errorf("%s: a property that says the default is %q", s.Name, after.Props["wasm.timeout"])
			}
			if after.Props["java.key"] != "kept" || before.Props["java.key"] != "kept" {
				t.Errorf("%s: a key of Java's is %q", s.Name, after.Props["java.key"])
			}
			shown := make(map[string]string)
			for _, other := range Editable() {
				shown[other.Name] = Text(other, parsed)
				if _, edited := edits[other.Name]; !edited && Text(other, parsed) != Text(other, before) {
					t.Errorf("%s: %q changes %s from %q to %q", s.Name, value, other.Name, Text(other, before), Text(other, parsed))
				}
			}
			// What is shown, given back.
			if again, err := Edit(parsed, shown); err != nil || !reflect.DeepEqual(again.YAML(), parsed.YAML()) {
				t.Errorf("%s: %q: all that is shown, given back: %v\n%s\n%s", s.Name, value, err, again.YAML(), parsed.YAML())
			}
		}
	}
	for name := range settings {
		if name == "jobName" || name == "overwrite" {
			t.Errorf("%s can be edited", name)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	t.Parallel()
	for name, edits := range map[string]map[string]string{
		"shardingTotalCount": {"shardingTotalCount": "0"}, "failover": {"failover": "yes"}, "timeout": {"timeout": "forever"}, "retry.on": {"retry.on": "NEVER"},
		"jobName": {"jobName": "b"}, "overwrite": {"overwrite": "true"}, "module": {"module": "x.wasm"}, "props": {"props": "{}"}, "retry": {"retry": "3"}, "crom": {"crom": "x"},
		"isolation": {"isolation": "none"}, "jobShardingStrategyType": {"jobShardingStrategyType": "BEST"}, "memoryLimit": {"memoryLimit": "1KiB"},
		"shardingItemParameters": {"shardingItemParameters": "x"},
	} {
		before := configuration()
		props := maps.Clone(before.Props)
		_, err := Edit(before, edits)
		var f *jobconfig.FieldError
		if !errors.As(err, &f) || f.Field != name || f.Problem == "" {
			t.Errorf("%v: %v", edits, err)
		}
		if !maps.Equal(props, before.Props) {
			t.Errorf("%v: a refused edit changed %v", edits, before.Props)
		}
	}
}

// TestEditRefusesAll: each setting at fault is named, and no other.
func TestEditRefusesAll(t *testing.T) {
	t.Parallel()
	after, err := Edit(configuration(), map[string]string{"foo": "x", "retry.attempts": "-1", "failover": "yes", "shardingTotalCount": "0", "description": "fine", "retry.backoff": "5s"})
	var named []string
	for _, line := range strings.Split(fmt.Sprint(err), "\n") {
		name, _, _ := strings.Cut(line, ":")
		named = append(named, name)
	}
	if want := []string{"failover", "foo", "retry.attempts", "shardingTotalCount"}; !slices.Equal(named, want) {
		t.Errorf("%q are named, expected %q: %v", named, want, err)
	}
	if after.Description != "fine" || after.Props["wasm.retry.backoff"] != "5s" || after.Failover {
		t.Errorf("%+v", after)
	}
}

// TestEditOfWhatCannotBeRead: an edit repairs a property that another program made unreadable, to whatever value; one
// of another setting is refused, and says which property stands against it, its value and how to repair it.
func TestEditOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	damaged := configuration()
	damaged.Props["wasm.timeout"], damaged.Props["wasm.maxConcurrency"] = "soon", "3"
	for name, c := range map[string]struct{ set, shown, written string }{
		"another value": {"5m", "5m0s", "5m0s"}, "the default": {"0s", "0s", ""}, "nothing": {"", "0s", ""},
	} {
		after, err := Edit(damaged, map[string]string{"timeout": c.set, "description": "repaired"})
		if err != nil || after.Props["wasm.timeout"] != c.written || after.Description != "repaired" || after.Props["wasm.maxConcurrency"] != "3" {
			t.Errorf("%s: %+v, %v", name, after, err)
		}
		if was, is := Differences(damaged, after); was["timeout"] != "soon" || is["timeout"] != c.shown {
			t.Errorf("%s: from %q to %q", name, was, is)
		}
	}
	for _, edits := range []map[string]string{{"description": "x"}, {"timeout": "soon"}, {"description": "x", "timeout": "soon"}} {
		_, err := Edit(damaged, edits)
		const want = `timeout: found "soon", expected `
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "hosts take over no edit until it is repaired") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %s…", edits, err, want)
		}
	}
	empty := configuration()
	empty.Props["wasm.retry.attempts"] = ""
	if after, err := Edit(empty, map[string]string{"retry.attempts": ""}); err != nil || after.Validate() != nil {
		t.Errorf("a property without a value: %+v, %v", after, err)
	}
	_, err := Edit(damaged, map[string]string{"shardingItemParameters": "x"})
	for _, f := range jobconfig.FieldErrors(err) {
		if there := strings.Contains(f.Problem, "it is so in the registry"); there != (f.Field == "timeout") {
			t.Errorf("%s is said to be so in the registry: %v", f.Field, there)
		}
	}
}

// open is a registry with the configuration of job a.
func open(t *testing.T, config string) (registry.Center, tree.Layout) {
	t.Helper()
	s, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	l := tree.NewLayout("ns", "a")
	if _, err := c.Commit(t.Context(), registry.Ensure(l.Config()), registry.Set(l.Config(), []byte(config), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	return c, l
}

const document = "cron: 0 0 1 * * ?\njobName: a\nshardingTotalCount: 2\nprops:\n  java.key: kept\n"

func with(edits map[string]string) func(jobconfig.Configuration) (jobconfig.Configuration, error) {
	return func(c jobconfig.Configuration) (jobconfig.Configuration, error) { return Edit(c, edits) }
}

// TestEditConfig: an edit from the version that there is takes effect, one from another is
// refused with the configuration that there is.
func TestEditConfig(t *testing.T) {
	t.Parallel()
	c, l := open(t, document)
	first, err := ReadConfig(t.Context(), c, l)
	if err != nil || first.Cron != "0 0 1 * * ?" {
		t.Fatalf("%+v, %v", first, err)
	}
	before, after, err := EditConfig(t.Context(), c, l, first.Version, with(map[string]string{"cron": "0 0 2 * * ?", "timeout": "5m"}))
	if err != nil || before.Version != first.Version || after.Version == first.Version {
		t.Fatalf("%+v, %+v, %v", before, after, err)
	}
	now, err := ReadConfig(t.Context(), c, l)
	if err != nil || now.Version != after.Version || now.Cron != "0 0 2 * * ?" || now.Props["wasm.timeout"] != "5m0s" || now.Props["java.key"] != "kept" {
		t.Errorf("%+v, %v", now, err)
	}
	var stale *StaleError
	if _, _, err := EditConfig(t.Context(), c, l, first.Version, with(map[string]string{"cron": "0 0 3 * * ?"})); !errors.As(err, &stale) ||
		stale.Found != first.Version || stale.Now.Version != after.Version || stale.Now.Cron != "0 0 2 * * ?" {
		t.Errorf("%+v, %v", stale, err)
	}
	if _, _, err := EditConfig(t.Context(), c, l, -1, with(map[string]string{"cron": "0 0 4 * * ?"})); err != nil {
		t.Error(err)
	}
	no := errors.New("no")
	if _, _, err := EditConfig(t.Context(), c, l, -1, func(c jobconfig.Configuration) (jobconfig.Configuration, error) { return c, no }); !errors.Is(err, no) {
		t.Errorf("refused by the caller: %v", err)
	}
	if now, err = ReadConfig(t.Context(), c, l); err != nil || now.Cron != "0 0 4 * * ?" {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := c.Commit(t.Context(), registry.Set(l.Config(), []byte("{"), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := EditConfig(t.Context(), c, l, -1, with(nil)); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("a damaged one: %v", err)
	}
	if _, err := c.Commit(t.Context(), registry.Delete(l.Config(), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := EditConfig(t.Context(), c, l, -1, with(nil)); !errors.Is(err, tree.ErrRemoved) {
		t.Errorf("a removed job: %v", err)
	}
}

// TestEditOfAnEarlierLife: an edit that was made before the job was removed does not take effect
// in its next life, though its node counts from 0 again.
func TestEditOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	c, l := open(t, document)
	first, err := ReadConfig(t.Context(), c, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(t.Context(), registry.Delete(l.Config(), registry.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(t.Context(), registry.Create(l.Config(), nil), registry.Set(l.Config(), []byte(document), 0)); err != nil {
		t.Fatal(err)
	}
	var stale *StaleError
	if _, _, err := EditConfig(t.Context(), c, l, first.Version, with(map[string]string{"cron": "0 0 2 * * ?"})); !errors.As(err, &stale) || stale.Now.Version <= first.Version || stale.Now.node != first.node {
		t.Errorf("%v, %+v before, %+v", err, first, stale)
	}
}

// TestEditsAtOnce: edits of whatever version all take effect, one after the other; of those
// from one version one does.
func TestEditsAtOnce(t *testing.T) {
	t.Parallel()
	c, l := open(t, document)
	first, err := ReadConfig(t.Context(), c, l)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"description", "jobParameter", "label", "cron"}
	var editing sync.WaitGroup
	var mu sync.Mutex
	done := 0
	for n, name := range names {
		value := fmt.Sprint("x", n)
		if name == "cron" {
			value = "0 0 9 * * ?"
		}
		editing.Go(func() {
			if _, _, err := EditConfig(t.Context(), c, l, -1, with(map[string]string{name: value})); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	editing.Wait()
	now, err := ReadConfig(t.Context(), c, l)
	if err != nil || now.Description != "x0" || now.JobParameter != "x1" || now.Label == nil || *now.Label != "x2" || now.Cron != "0 0 9 * * ?" || now.node != first.node+int32(len(names)) {
		t.Errorf("%+v, %v", now, err)
	}
	for n := range 8 {
		editing.Go(func() {
			_, _, err := EditConfig(t.Context(), c, l, now.Version, with(map[string]string{"description": fmt.Sprint("y", n)}))
			var stale *StaleError
			if err != nil && !errors.As(err, &stale) {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done++
			}
		})
	}
	editing.Wait()
	if done != 1 {
		t.Errorf("%d edits from one version took effect", done)
	}
}

// TestEditWhoseAnswerIsLost says that its outcome is not known, or resolves it; it never
// says that it did not take effect when it did.
func TestEditWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.Refused, registrytest.LostRequest, registrytest.LostAnswer} {
		c, l := open(t, document)
		faulty := registrytest.Faulty(c, func(_ int, op string) registrytest.Fault {
			if op == "commit" {
				return fault
			}
			return registrytest.NoFault
		})
		first, err := ReadConfig(t.Context(), c, l)
		if err != nil {
			t.Fatal(err)
		}
		_, after, err := EditConfig(t.Context(), faulty, l, first.Version, with(map[string]string{"cron": "0 0 2 * * ?"}))
		now, rerr := ReadConfig(context.WithoutCancel(t.Context()), c, l)
		if rerr != nil {
			t.Fatal(rerr)
		}
		took := now.Cron == "0 0 2 * * ?"
		var stale *StaleError
		if (err == nil && (!took || after.Version != now.Version)) || errors.As(err, &stale) {
			t.Errorf("fault %v: %v, it took effect: %t", fault, err, took)
		}
	}
}

func FuzzEdit(f *testing.F) {
	for name, values := range settings {
		for value := range values {
			f.Add(name, value, "description", "x")
		}
	}
	f.Add("retry.backoff", "1h", "retry.maxBackoff", "1s")
	f.Fuzz(func(t *testing.T, name, value, other, text string) {
		before := configuration()
		document := before.YAML()
		after, err := Edit(before, map[string]string{name: value, other: text})
		if string(before.YAML()) != string(document) {
			t.Errorf("%q=%q changed what there was", name, value)
		}
		if err != nil {
			return
		}
		parsed, _, err := jobconfig.Parse(after.YAML())
		if err != nil {
			t.Fatalf("%q=%q makes a document that cannot be read: %v\n%s", name, value, err, after.YAML())
		}
		for _, s := range Editable() {
			if Text(s, parsed) != Text(s, after) {
				t.Errorf("%q=%q: %s is %q, and comes from the registry as %q", name, value, s.Name, Text(s, after), Text(s, parsed))
			}
		}
		shown := make(map[string]string)
		for _, s := range Editable() {
			shown[s.Name] = Text(s, parsed)
		}
		if again, err := Edit(parsed, shown); err != nil || string(again.YAML()) != string(parsed.YAML()) {
			t.Errorf("%q=%q: what is shown, given back: %v\n%s\n%s", name, value, err, again.YAML(), parsed.YAML())
		}
	})
}
