package arguments_test

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/arguments"
)

type settled struct {
	Day    arguments.Date `json:"day"`
	Limit  int            `json:"limit"`
	Dry    bool           `json:"dry"`
	Region *string        `json:"region,omitempty"`
	hidden int
}

// TestOf: the fields of the struct have the values, and what does not fit is an error that names it.
func TestOf(t *testing.T) {
	got, err := arguments.Of[settled](sdk.ShardingContext{JobParameter: `{"day":"2026-12-24","limit":10,"dry":true}`})
	if err != nil || got.Day.String() != "2026-12-24" || got.Limit != 10 || !got.Dry || got.Region != nil || got.hidden != 0 {
		t.Errorf("%+v %v", got, err)
	}
	for parameter, want := range map[string]string{
		"":                               "declares no arguments",
		"2026-12-24":                     "declares no arguments",
		`{"day":"2026-12-24","limit":10`: "expected a JSON object",
		`{"day":"2026-12-24","limit":10,"dry":true,"x":1}`:              `no field for the argument "x"`,
		`{"day":"2026-12-24","dry":true}`:                               `declares no argument "limit"`,
		`{"day":"2026-12-24","limit":"10","dry":true}`:                  "settled.limit",
		`{"day":"2026-12-24T00:00:00Z","limit":10,"dry":true}`:          "expected a day such as 2026-12-24",
		`{"day":5,"limit":10,"dry":true}`:                               "expected a day such as",
		`{"Day":"2026-12-24","limit":10,"dry":true}`:                    `no field for the argument "Day"`,
		`{"day":"2026-12-24","limit":10,"dry":true} {}`:                 "expected a JSON object",
		`{"day":"2026-12-24","limit":100000000000000000000,"dry":true}`: "settled.limit",
	} {
		if got, err := arguments.Parse[settled](parameter); err == nil || !strings.Contains(err.Error(), want) || got != (settled{}) {
			t.Errorf("%s: %+v %v, want %q", parameter, got, err, want)
		}
	}
	if _, err := arguments.Parse[int](`{}`); err == nil || !strings.Contains(err.Error(), "expected a struct") {
		t.Error(err)
	}
	if b, err := got.Day.MarshalJSON(); err != nil || string(b) != `"2026-12-24"` {
		t.Errorf("%s %v", b, err)
	}
}
