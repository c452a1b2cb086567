package admin

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/admin/operate"
	"github.com/wasmjob/wasmjob/coordination/registry"
)

func offsetOf(text string) *Bytes { return new(Bytes(text)) }

func TestBytesAsJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[Bytes]string{"": `""`, "line 7": `"line 7"`, "\x00": `"\u0000"`, "\xff\x00": `{"base64":"/wA="}`} {
		got, err := json.Marshal(map[string]Bytes{"v": in})
		if err != nil || string(got) != `{"v":`+want+`}` {
			t.Errorf("%q is %s, %v; want %s", in, got, err, want)
		}
		var back map[string]Bytes
		if err := json.Unmarshal(got, &back); err != nil || back["v"] != in {
			t.Errorf("%q came back as %q, %v", in, back["v"], err)
		}
	}
}

func TestKept(t *testing.T) {
	t.Parallel()
	k, look := namespace(t, "a")
	ctx := t.Context()
	change := func(item int, c KeptChange) *Kept {
		t.Helper()
		out, err := k.ChangeKept(ctx, "a", item, c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if all, err := k.Kept(ctx, "a", -1); err != nil || len(all) != 2 || all[1].Item != 1 || all[1].Offset != nil || len(all[1].Keys) != 0 {
		t.Errorf("in the beginning: %+v, %v", all, err)
	}
	if out := change(1, KeptChange{Offset: offsetOf("line\x00 7\xff")}); *out.Offset != "line\x00 7\xff" || out.Written.IsZero() || out.Size != 8 {
		t.Errorf("%+v", out)
	}
	if data, _ := look("/ns.wasmjob/a/offset/1"); data != "line\x00 7\xff" {
		t.Errorf("an offset alone is %q", data)
	}
	change(1, KeptChange{Set: map[string]Bytes{"cursor": "9", "table": "\xff", "old": ""}})
	out := change(1, KeptChange{Delete: []string{"old"}, Set: map[string]Bytes{"cursor": "10"}})
	if *out.Offset != "line\x00 7\xff" || strings.Join(out.Keys, " ") != "cursor table" || !maps.Equal(out.Values, map[string]Bytes{"cursor": "10", "table": "\xff"}) {
		t.Errorf("%+v", out)
	}
	if value, err := out.Value("cursor"); err != nil || value != "10" {
		t.Errorf("%q, %v", value, err)
	}
	if out = change(1, KeptChange{ResetOffset: true}); out.Offset != nil || len(out.Keys) != 2 {
		t.Errorf("%+v", out)
	}
	if out = change(1, KeptChange{ResetState: true, Offset: offsetOf("")}); out.Offset == nil || *out.Offset != "" || len(out.Keys) != 0 {
		t.Errorf("%+v", out)
	}
	all, err := k.Kept(ctx, "a", -1)
	if err != nil || len(all) != 2 || all[1].Offset == nil || all[1].Values != nil {
		t.Errorf("in the end: %+v, %v", all, err)
	}
}

func TestKeptIsRefused(t *testing.T) {
	t.Parallel()
	k, look := namespace(t, "a")
	ctx := t.Context()
	many := make(map[string]Bytes)
	for n := range abi.MaxKeys + 1 {
		many[strings.Repeat("k", n+1)] = ""
	}
	for name, c := range map[string]struct {
		item   int
		change KeptChange
		where  string // "" for a target that is not there
		want   string
	}{
		"no such item":    {9, KeptChange{ResetOffset: true}, "", `job "a" has no item 9; there is 0-1`},
		"which item":      {-1, KeptChange{ResetOffset: true}, "query.item", `job "a" has items 0-1: say which one is meant`},
		"no such key":     {0, KeptChange{Delete: []string{"x"}}, "", `item 0 of job "a" has no key "x"; there is none`},
		"offset too long": {0, KeptChange{Offset: offsetOf(strings.Repeat("x", abi.MaxOffset+1))}, "body.offset", "the offset has 4097 bytes, expected at most 4096"},
		"value too long":  {0, KeptChange{Set: map[string]Bytes{"k": Bytes(strings.Repeat("\x01", abi.MaxValue))}}, "body.set", "have at most 65536 bytes together"},
		"too many keys":   {0, KeptChange{Set: many}, "body.set", "an item has at most 128 keys"},
		"bad key":         {0, KeptChange{Set: map[string]Bytes{"a\x00": ""}}, "body.set", "is not UTF-8 without NUL"},
		"key too long":    {0, KeptChange{Set: map[string]Bytes{strings.Repeat("k", 257): ""}}, "body.set", "expected at most 256"},
	} {
		_, err := k.ChangeKept(ctx, "a", c.item, c.change)
		var bad *BadRequestError
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoTarget) != (c.where == "") || (errors.As(err, &bad) && bad.Where != c.where) {
			t.Errorf("%s: %#v, want %s at %q", name, err, c.want, c.where)
		}
	}
	if _, there := look("/ns.wasmjob/a/offset/0"); there {
		t.Error("something was written")
	}
	for name, err := range map[string]error{
		"show":   second(k.Kept(ctx, "x", -1)),
		"change": second(k.ChangeKept(ctx, "x", 0, KeptChange{ResetOffset: true})),
	} {
		if err == nil || !strings.Contains(err.Error(), `there is no job "x"`) {
			t.Errorf("%s of no job: %v", name, err)
		}
	}
	if _, err := k.Kept(ctx, "a", 9); err == nil || !strings.Contains(err.Error(), `job "a" has no item 9; there is 0-1`) {
		t.Errorf("show of no item: %v", err)
	}

	// What runs, and what is damaged.
	put := func(path, value string) {
		t.Helper()
		if _, err := k.center().Commit(ctx, registry.Ensure(path), registry.Set(path, []byte(value), registry.AnyVersion)); err != nil {
			t.Fatal(err)
		}
	}
	put("/ns.wasmjob/a/sharding/0", `{"owner":"10.0.0.1@-@a","instant":1000,"begun":1000}`)
	_, err := k.ChangeKept(ctx, "a", 0, KeptChange{ResetOffset: true})
	if !errors.Is(err, operate.ErrItemRuns) || !strings.Contains(err.Error(), "item 0 runs on 10.0.0.1@-@a") {
		t.Errorf("of what runs: %v", err)
	}
	put("/ns.wasmjob/a/offset/1", "\x00wasmjob.kv\x01\x07")
	if all, err := k.Kept(ctx, "a", 1); err != nil || all[0].Damaged == "" {
		t.Errorf("damaged: %+v, %v", all, err)
	}
	if _, err := k.ChangeKept(ctx, "a", 1, KeptChange{ResetOffset: true}); err == nil || !strings.Contains(err.Error(), "reset the offset and the state") {
		t.Errorf("damaged, and half of it is reset: %v", err)
	}
	if out, err := k.ChangeKept(ctx, "a", 1, KeptChange{ResetOffset: true, ResetState: true}); err != nil || out.Damaged != "" || out.Offset != nil {
		t.Errorf("damaged, and all of it is reset: %+v, %v", out, err)
	}
}
