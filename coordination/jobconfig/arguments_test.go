package jobconfig

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func declared(t testing.TB, text string) Arguments {
	t.Helper()
	list, err := parseArguments(text)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

const everyType = `[{"name":"day","type":"date","min":"2026-01-01"},{"name":"limit","type":"INTEGER","default":"100","min":"1","max":"1000"},` +
	`{"name":"share","type":"number","default":"0.5","max":"1"},{"name":"dry","type":"boolean","default":"false"},` +
	`{"name":"how","type":"enum","values":["fast","all"],"default":"all"},{"name":"note","type":"string","default":"","max":"5"}]`

// TestComplete: a run gets all arguments, in their order and of their types, and what is wrong is named.
func TestComplete(t *testing.T) {
	t.Parallel()
	list := declared(t, everyType)
	for _, tc := range []struct {
		texts []string
		want  string
	}{
		{[]string{`{"day":"2026-12-24"}`}, `{"day":"2026-12-24","limit":100,"share":0.5,"dry":false,"how":"all","note":""}`},
		{[]string{`{"limit":"7","dry":"true","how":"fast","share":"1e-3","note":"<ü&"}`, `{"day":"2026-02-28","limit":9}`},
			`{"day":"2026-02-28","limit":7,"share":0.001,"dry":true,"how":"fast","note":"<ü&"}`},
		{[]string{``, ` {"day" : " 2026-12-24 ", "limit": 1000, "dry": true} `}, `{"day":"2026-12-24","limit":1000,"share":0.5,"dry":true,"how":"all","note":""}`},
	} {
		got, err := list.Complete(tc.texts...)
		if err != nil || got != tc.want {
			t.Errorf("%q: %s %v, want %s", tc.texts, got, err, tc.want)
		}
		if again, err := list.Complete(got); err != nil || again != got {
			t.Errorf("%s once more: %s %v", got, again, err)
		}
	}
	for text, want := range map[string]string{
		`{}`:                                                             `arguments.day: is missing, expected a date such as 2026-12-24 of at least 2026-01-01`,
		`{"day":"2025-12-31"}`:                                           `arguments.day: found "2025-12-31", expected a date such as 2026-12-24 of at least 2026-01-01`,
		`{"day":"2026-02-30"}`:                                           `arguments.day: found "2026-02-30", expected a date`,
		`{"day":20261224}`:                                               `arguments.day: found 20261224, expected a date`,
		`{"day":null}`:                                                   `arguments.day: found null, expected a date`,
		`{"day":"2026-12-24","limit":0}`:                                 `arguments.limit: found "0", expected a whole number from 1 to 1000`,
		`{"day":"2026-12-24","limit":1.5}`:                               `arguments.limit: found "1.5", expected a whole number`,
		`{"day":"2026-12-24","limit":1e2}`:                               `arguments.limit: found "1e2", expected a whole number`,
		`{"day":"2026-12-24","limit":true}`:                              `arguments.limit: found true, expected a whole number`,
		`{"day":"2026-12-24","limit":[1]}`:                               `arguments.limit: found [1], expected a whole number`,
		`{"day":"2026-12-24","limit":"9007199254740992"}`:                `arguments.limit: found "9007199254740992"`,
		`{"day":"2026-12-24","share":"NaN"}`:                             `arguments.share: found "NaN", expected a number of at most 1`,
		`{"day":"2026-12-24","share":1e999}`:                             `arguments.share: found "1e999", expected a number`,
		`{"day":"2026-12-24","dry":1}`:                                   `arguments.dry: found 1, expected true or false`,
		`{"day":"2026-12-24","dry":"yes"}`:                               `arguments.dry: found "yes", expected true or false`,
		`{"day":"2026-12-24","how":"none"}`:                              `arguments.how: found "none", expected one of fast, all`,
		`{"day":"2026-12-24","note":5}`:                                  `arguments.note: found 5, expected a text`,
		`{"day":"2026-12-24","note":"sixsix"}`:                           `arguments.note: found "sixsix", expected a text with a number of characters of at most 5`,
		`{"day":"2026-12-24","note":"a\u0000"}`:                          `arguments.note: found bytes that are no text`,
		`{"day":"2026-12-24","Limit":5}`:                                 `arguments: found "Limit", expected one of day, limit, share, dry, how, note`,
		`{"day":"2026-12-24","day":"2026-12-25"}`:                        `arguments: found "day" twice`,
		`["2026-12-24"]`:                                                 `arguments: found "[\"2026-12-24\"]", expected a JSON object such as {"day":"2026-12-24"}`,
		`2026-12-24`:                                                     `expected a JSON object`,
		`{"day":"2026-12-24"} {}`:                                        `expected a JSON object`,
		`{"day":"2026-12-24"`:                                            `expected a JSON object`,
		`{"day":}`:                                                       `expected a JSON object`,
		`{"day":"` + strings.Repeat("9", 9*MaxParameter) + `"}`:          `bytes, expected at most 4096`,
		`{"limit":` + strings.Repeat("[", 20000) + `}`:                   `expected a JSON object`,
		`{"day":"2026-12-24","note":"` + strings.Repeat("n", 100) + `"}`: `arguments.note: found "nnn`,
	} {
		_, err := list.Complete(text)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 2000 {
			t.Errorf("%.100s: %v, want %s", text, err, want)
		}
	}
	_, err := list.Complete(`{"limit":0,"how":"x"}`)
	if got := len(FieldErrors(err)); got != 3 { // and the missing day
		t.Errorf("%d problems, want each: %v", got, err)
	}
	large := declared(t, `[{"name":"a","type":"string"},{"name":"b","type":"string"}]`)
	half := strings.Repeat("x", MaxParameter/2)
	if _, err := large.Complete(fmt.Sprintf(`{"a":%q,"b":%q}`, half, half)); err == nil || !strings.Contains(err.Error(), "arguments: found 4111 bytes as JSON, expected at most 4096") {
		t.Errorf("too large: %v", err)
	}
}

// TestParseArguments refuses declarations that contradict themselves.
func TestParseArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`:                               "expected a JSON list of arguments",
		`[{"name":"a","kind":"date"}]`:     "expected a JSON list of arguments",
		`[] []`:                            "and nothing after it",
		`[null]`:                           "entry 1 is empty",
		`[{"type":"date"}]`:                `entry 1: name: found "", expected a letter`,
		`[{"name":"a b","type":"date"}]`:   `name: found "a b"`,
		`[{"name":"a"}]`:                   `argument a: type: found "", expected string, integer, number, boolean, date or enum`,
		`[{"name":"a","type":"datetime"}]`: `argument a: type: found "datetime"`,
		`[{"name":"a","type":"date"},{"name":"a","type":"date"}]`:                       `entry 2: name: "a" is given twice`,
		`[{"name":"a","type":"enum"}]`:                                                  "values: found none",
		`[{"name":"a","type":"enum","values":["x","x"]}]`:                               `values: found "x" twice or empty`,
		`[{"name":"a","type":"date","values":["x"]}]`:                                   "values are for the type enum",
		`[{"name":"a","type":"boolean","min":"1"}]`:                                     "min and max: found bounds, but the type boolean has none",
		`[{"name":"a","type":"integer","min":"x"}]`:                                     `min: found "x", expected a whole number`,
		`[{"name":"a","type":"integer","min":"5","max":"4"}]`:                           "max: found 4, expected at least min, 5",
		`[{"name":"a","type":"string","max":"-1"}]`:                                     `max: found "-1", expected a whole number from 0`,
		`[{"name":"a","type":"integer","default":"x"}]`:                                 `default: found "x"`,
		`[{"name":"a","type":"integer","default":"11","max":"10"}]`:                     `default: found "11", expected a whole number of at most 10`,
		`[{"name":"a","type":"date","description":"` + strings.Repeat("x", 501) + `"}]`: "description: found 501 bytes",
		"[" + strings.Repeat(`{"name":"a","type":"date"},`, 50) + `{}]`:                 "found 51 arguments, expected at most 50",
	} {
		if _, err := parseArguments(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %s", text, err, want)
		}
	}
}

// TestArgumentsOfASchedule: the configuration is refused if a run that is given none would lack one.
func TestArgumentsOfASchedule(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(c *Configuration)
		want   string
	}{
		"no schedule, nothing given": {func(*Configuration) {}, ""},
		"a schedule":                 {func(c *Configuration) { c.Cron = "0 0 1 * * ?" }, "jobParameter: arguments.day: is missing"},
		"a schedule and a parameter": {func(c *Configuration) { c.Cron, c.JobParameter = "0 0 1 * * ?", `{"day":"2026-12-24"}` }, ""},
		"a parameter that is wrong":  {func(c *Configuration) { c.JobParameter = `{"day":"today"}` }, `jobParameter: arguments.day: found "today"`},
		"a parameter that is none":   {func(c *Configuration) { c.JobParameter = "today" }, `jobParameter: arguments: found "today", expected a JSON object`},
		"after another job":          {func(c *Configuration) { c.Props["wasm.after"] = `[{"job":"b"}]` }, "jobParameter: arguments.day: is missing"},
		"at a time":                  {func(c *Configuration) { c.Props["wasm.at"] = "2026-12-24T18:00:00Z" }, "jobParameter: arguments.day: is missing"},
		"several schedules": {func(c *Configuration) {
			c.Props["wasm.schedules"] = `[{"cron":"@daily","jobParameter":"{\"day\":\"2026-12-24\"}"},{"cron":"@hourly"}]`
		}, "props.wasm.schedules: schedule 2: arguments.day: is missing"},
	} {
		c := Configuration{JobName: "a", ShardingTotalCount: 1, Misfire: true, Props: map[string]string{"wasm.arguments": `[{"name":"day","type":"date"}]`}}
		tc.change(&c)
		if err := c.Validate(); (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestWith: a form shows what a run would get.
func TestWith(t *testing.T) {
	t.Parallel()
	list := declared(t, everyType).With(`{"day":"2026-12-24","limit":"7","dry":true,"how":"none"}`)
	got := ""
	for _, a := range list {
		got += fmt.Sprintf("%s=%s ", a.Name, *a.Default)
	}
	if want := "day=2026-12-24 limit=7 share=0.5 dry=true how=all note= "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzComplete: whatever is given, an error is bounded, and what is accepted is JSON that is accepted again, unchanged.
func FuzzComplete(f *testing.F) {
	f.Add(everyType, `{"day":"2026-12-24","limit":"7"}`, `{}`)
	f.Add(`[{"name":"a","type":"string","default":"\ud800"}]`, `{"a":"\ud800"}`, ``)
	f.Add(`[{"name":"a","type":"number"}]`, `{"a":-0.0}`, `{"a":1e-400}`)
	f.Fuzz(func(t *testing.T, declaration, given, configured string) {
		list, err := parseArguments(declaration)
		if err != nil {
			return
		}
		if again, err := parseArguments(Setting{in: func(*Configuration, *Guest) any { return &list }}.Text(Guest{})); len(list) > 0 && (err != nil || len(again) != len(list)) {
			t.Fatalf("%q is not read as it is written: %v", declaration, err)
		}
		out, err := list.Complete(given, configured)
		if err != nil {
			if len(err.Error()) > 20_000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if !json.Valid([]byte(out)) || len(out) > MaxParameter {
			t.Fatalf("%q makes %q", given, out)
		}
		if again, err := list.Complete(out); err != nil || again != out {
			t.Fatalf("%q makes %q, then %q %v", given, out, again, err)
		}
	})
}
