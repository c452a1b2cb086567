package tree

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

func TestTriggerArgs(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	for name, tc := range map[string]struct {
		items string
		param *string
		data  string
		says  string
		shown string // in records, of the parameter
	}{
		"plain":               {"", nil, "", "", ""},
		"items":               {" 0, 3-5,4 ", nil, `{"items":"0,3-5"}`, "items 0,3-5", ""},
		"a parameter":         {"", text("<a> \"b\""), `{"param":"\u003ca\u003e \"b\""}`, "a parameter", `parameter "<a> \"b\""`},
		"an empty parameter":  {"", text(""), `{"param":""}`, "a parameter", `parameter ""`},
		"both":                {"7", text("x"), `{"items":"7","param":"x"}`, "items 7 and a parameter", `items 7 and parameter "x"`},
		"a long one, cut":     {"", text("x" + strings.Repeat("作", 100)), `{"param":"x` + strings.Repeat("作", 100) + `"}`, "a parameter", `parameter "x` + strings.Repeat("作", 66) + `…"`},
		"the longest":         {"1", text(strings.Repeat("x", MaxTriggerArg)), `{"items":"1","param":"` + strings.Repeat("x", MaxTriggerArg) + `"}`, "items 1 and a parameter", `items 1 and parameter "` + strings.Repeat("x", 200) + `…"`},
		"many items, shortly": {strings.Repeat("1,3,", 200) + "5", nil, `{"items":"1,3,5"}`, "items 1,3,5", ""},
	} {
		args, err := NewTriggerArgs(tc.items, tc.param)
		if err != nil || string(args.Data()) != tc.data || args.String() != tc.says || args.Record() != cmp.Or(tc.shown, tc.says) {
			t.Errorf("%s: %q, %q and %q, %v", name, args.Data(), args, args.Record(), err)
		}
		if got := ParseTriggerArgs(args.Data()); !got.Same(args) || got.Unreadable() || got.Plain() != (tc.data == "") {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
	for arg, bad := range map[*[2]string]string{
		{"items", "5-3"}: `found "5-3", expected numbers and ranges such as 0,3-5, below 1000000`,
		{"items", "0 3"}: `found "0 3", expected numbers and ranges such as 0,3-5, below 1000000`,
		{"items", "x"}:   `found "x", expected numbers and ranges such as 0,3-5, below 1000000`,
		{"items", strings.Repeat("1,", MaxTriggerArg/2) + "1"}: "found 4097 bytes, expected at most 4096",
		{"param", strings.Repeat("x", MaxTriggerArg+1)}:        "found 4097 bytes, expected at most 4096",
		{"param", "a\x00b"}: "found bytes that are no text, expected UTF-8 without NUL",
		{"param", "a\xffb"}: "found bytes that are no text, expected UTF-8 without NUL",
	} {
		items, param := arg[1], (*string)(nil)
		if arg[0] == "param" {
			items, param = "", &arg[1]
		}
		_, err := NewTriggerArgs(items, param)
		var wrong *ArgError
		if !errors.As(err, &wrong) || wrong.Arg != arg[0] || wrong.Problem != bad {
			t.Errorf("%.20q: %v, want %s", arg, err, bad)
		}
	}

	// Different ones are not the same, and none that cannot be read is plain.
	all := []TriggerArgs{{}, {Param: text("")}, {Param: text("a")}, {Items: Ranges{{0, 1}}}, {Items: Ranges{{0, 0}}}, {Items: Ranges{{0, 1}}, Param: text("a")}}
	for i, a := range all {
		for j, b := range all {
			if a.Same(b) != (i == j) {
				t.Errorf("%v and %v are the same: %t", a, b, a.Same(b))
			}
		}
	}
	for _, data := range []string{"x", "{}", "null", `{"items":"all"}`, `{"items":["1"]}`, `{"param":1}`, `{"items":"1","param":"` + strings.Repeat("x", MaxTriggerArg+1) + `"}`} {
		if got := ParseTriggerArgs([]byte(data)); !got.Unreadable() || got.Plain() || got.Has(0) || got.Has(1) {
			t.Errorf("%.30q is read as %+v", data, got)
		}
	}
	if err := all[3].Fits(2); err != nil {
		t.Error(err)
	}
	if err := all[3].Fits(1); err == nil || err.Error() != "items: found 1, expected 0 to 0: the job has 1" {
		t.Errorf("no such item: %v", err)
	}
}

// TestTriggerArgsInADivision: what cannot be read of them does not make the division unreadable.
func TestTriggerArgsInADivision(t *testing.T) {
	t.Parallel()
	param := "x"
	var d Division
	d.Total = 4
	d.Owe(Items{1, 2}, TriggerArgs{Items: Ranges{{1, 3}}, Param: &param})
	got := ParseDivision(d.Data())
	if !got.Args.Same(d.Args) || !slices.Equal(got.Owed(), Items{1, 2}) || got.Owing != nil {
		t.Errorf("%s is read as %+v", d.Data(), got)
	}
	d = Division{Counts: Counts{Total: 4}}
	d.Owe(Items{1, 2}, TriggerArgs{})
	if want := `{"members":null,"instances":null,"total":4,"strategy":"","owing":"1-2"}`; string(d.Data()) != want {
		t.Errorf("a plain round: %s, want %s", d.Data(), want)
	}
	if got := ParseDivision([]byte(`{"total":4,"owingArgs":"1","args":{"items":7}}`)); got.Total != 4 || !got.Args.Unreadable() {
		t.Errorf("read as %+v", got)
	}
}

func FuzzTriggerArgs(f *testing.F) {
	f.Add("0,3-5", "x", true, []byte(`{"items":"0","param":"x"}`))
	f.Add("", "", false, []byte(`{"items":"9-1"}`))
	f.Fuzz(func(t *testing.T, items, param string, given bool, data []byte) {
		p := &param
		if !given {
			p = nil
		}
		if args, err := NewTriggerArgs(items, p); err == nil {
			if got := ParseTriggerArgs(args.Data()); !got.Same(args) {
				t.Errorf("%q is read as %+v", args.Data(), got)
			}
			if !args.Plain() && !json.Valid(args.Data()) {
				t.Errorf("%q", args.Data())
			}
		}
		got := ParseTriggerArgs(data)
		if again := ParseTriggerArgs(got.Data()); !again.Same(got) {
			t.Errorf("%q is read as %+v, and that as %+v", data, got, again)
		}
		if len(data) > 0 && got.Plain() {
			t.Errorf("%q is read as a plain trigger", data)
		}
	})
}

// TestNamedArgs: arguments are checked by the job's configuration, and the node has all of them.
func TestNamedArgs(t *testing.T) {
	t.Parallel()
	c := jobconfig.Configuration{ShardingTotalCount: 2, Props: map[string]string{"wasm.arguments": `[{"name":"day","type":"date"},{"name":"limit","type":"integer","default":"100"}]`}}
	args, err := NewNamedArgs("1", `{"day":"2026-12-24"}`)
	if err != nil || args.Record() != `items 1 and arguments {"day":"2026-12-24"}` || args.String() != "items 1 and arguments" {
		t.Fatalf("%q %q %v", args.Record(), args, err)
	}
	args, err = args.In(c)
	if want := `{"items":"1","param":"{\"day\":\"2026-12-24\",\"limit\":100}"}`; err != nil || string(args.Data()) != want {
		t.Errorf("%s %v, want %s", args.Data(), err, want)
	}
	if plain, err := (TriggerArgs{}).In(c); err == nil || plain.Param != nil {
		t.Errorf("a plain trigger lacks an argument: %+v %v", plain, err)
	}
	for text, where := range map[string]string{`{"day":"x"}`: "arguments.day", `{}`: "arguments.day", `{"x":1}`: "arguments", `x`: "arguments"} {
		a, err := NewNamedArgs("", text)
		if err != nil {
			t.Fatal(err)
		}
		var bad *ArgError
		if _, err := a.In(c); !errors.As(err, &bad) || bad.Arg != where {
			t.Errorf("%s: %v, want it at %s", text, err, where)
		}
	}
	var bad *ArgError
	if _, err := NewNamedArgs("", strings.Repeat("x", MaxTriggerArg+1)); !errors.As(err, &bad) || bad.Arg != "arguments" {
		t.Error(err)
	}
	if _, err := args.In(jobconfig.Configuration{ShardingTotalCount: 2}); !errors.As(err, &bad) || bad.Arg != "arguments" {
		t.Errorf("a job that declares none: %v", err)
	}
}
