package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/kv"
)

// owner is an item's owner.
type owner struct{ cancelled abi.Cancel }

func (o *owner) Cancelled() abi.Cancel           { return o.cancelled }
func (o *owner) AwaitCancel(ctx context.Context) { <-ctx.Done() }
func (*owner) Log(int, string, []string)         {}

// guest calls the functions of a run as a guest does.
type guest struct {
	t   *testing.T
	run *capability.Run
}

func begin(t *testing.T, s *kv.State, o *owner, g grants.Grant) guest {
	run := capability.NewRun(capability.Info{Job: "report"}, &g, o, kv.Functions(s))
	t.Cleanup(run.Close)
	return guest{t, run}
}

func (g guest) call(name string, numbers []int64, buf []byte, texts ...string) int64 {
	g.t.Helper()
	for _, f := range abi.CapabilityImports() {
		if f.Module != abi.ModuleKV || f.Name != name {
			continue
		}
		c := &abi.Call{Function: &f, Numbers: numbers, Buf: buf}
		for _, text := range texts {
			c.Texts = append(c.Texts, []byte(text))
		}
		v := g.run.Call(g.t.Context(), c)
		if code := abi.Code(v); v < 0 && !slices.Contains(f.Codes, code) {
			g.t.Errorf("%s answers %d, which its row does not name", name, v)
		}
		return v
	}
	g.t.Fatalf("there is no function %s", name)
	return 0
}

func (g guest) get(key string) (string, bool) {
	n := g.call("get", nil, nil, key)
	if n < 0 {
		return "", false
	}
	buf := make([]byte, n)
	g.call("get", nil, buf, key)
	return string(buf), true
}

func TestStateIsStagedAndTaken(t *testing.T) {
	t.Parallel()
	s, err := kv.Decode([]byte("7"), true)
	if err != nil {
		t.Fatal(err)
	}
	g := begin(t, s, &owner{}, grants.Grant{KV: true})
	if _, ok := g.get("a"); ok || s.Changed() {
		t.Error("there is a value in the beginning")
	}
	for key, value := range map[string]string{"a": "1", "b/1": "", "b/2": "x\x00y"} {
		if v := g.call("set", nil, nil, key, value); v != 0 {
			t.Fatal(key, v)
		}
	}
	if v := g.call("increment", []int64{41}, nil, "count"); v != 41 {
		t.Error(v)
	}
	if v := g.call("increment", []int64{1}, nil, "count"); v != 42 {
		t.Error(v)
	}
	if value, ok := g.get("b/2"); value != "x\x00y" || !ok {
		t.Errorf("%q", value)
	}
	buf := make([]byte, 100)
	n := g.call("list", nil, buf, "b/")
	if text := string(buf[:n]); text != "b/1\x00b/2\x00" {
		t.Errorf("%q", text)
	}
	if v := g.call("delete", nil, nil, "a"); v != 0 {
		t.Error(v)
	}
	if v := g.call("delete", nil, nil, "a"); abi.Code(v) != abi.ErrNotFound {
		t.Error(v)
	}

	again, err := kv.Decode(s.Encode([]byte("8"), true), true)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.List(""); !slices.Equal(got, []string{"b/1", "b/2", "count"}) || string(again.Offset) != "8" || !again.HasOffset || again.Changed() {
		t.Errorf("%v %+v", got, again)
	}
	// Nothing of it was taken so far.
	s.Taken([]byte("8"), true)
	if value, ok := s.Get("count"); value != "42" || !ok || s.Changed() || string(s.Offset) != "8" {
		t.Errorf("%+v", s)
	}
}

// Keys that come and go leave nothing behind, however many they are.
func TestDeletedKeysAreNotKept(t *testing.T) {
	t.Parallel()
	s := &kv.State{}
	g := begin(t, s, &owner{}, grants.Grant{KV: true})
	for n := range 10_000 {
		key := fmt.Sprint("k", n)
		if v := g.call("set", nil, nil, key, "v"); v != 0 {
			t.Fatal(key, v)
		}
		if v := g.call("delete", nil, nil, key); v != 0 {
			t.Fatal(key, v)
		}
	}
	if s.Changed() {
		t.Error("something is staged")
	}
	// A key that was committed is deleted, and may come back.
	if v := g.call("set", nil, nil, "a", "1"); v != 0 {
		t.Fatal(v)
	}
	s.Taken(nil, false)
	if v := g.call("delete", nil, nil, "a"); v != 0 || !s.Changed() || len(s.Pairs()) != 0 {
		t.Errorf("%d, %v", v, s.Pairs())
	}
	if v := g.call("set", nil, nil, "a", "2"); v != 0 || s.Pairs()["a"] != "2" {
		t.Errorf("%d, %v", v, s.Pairs())
	}
}

// An offset without pairs stays the bytes that it was, so that hosts of older versions
// read it.
func TestBareOffsetStaysAsItIs(t *testing.T) {
	t.Parallel()
	var s kv.State
	if got := s.Encode([]byte("x"), true); string(got) != "x" {
		t.Errorf("%q", got)
	}
	odd := []byte("\x00wasmjob.kv\x01")
	back, err := kv.Decode(s.Encode(odd, true), true)
	if err != nil || !bytes.Equal(back.Offset, odd) || !back.HasOffset {
		t.Errorf("%+v, %v", back, err)
	}
	if back, err = kv.Decode(s.Encode(nil, false), true); err != nil || back.HasOffset || back.Offset != nil {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestBadCalls(t *testing.T) {
	t.Parallel()
	s := &kv.State{}
	g := begin(t, s, &owner{}, grants.Grant{KV: true})
	for _, c := range []struct {
		name    string
		texts   []string
		numbers []int64
		want    abi.Code
	}{
		{"get", []string{""}, nil, abi.ErrInvalid},
		{"get", []string{"a\x00"}, nil, abi.ErrInvalid},
		{"get", []string{"\xff"}, nil, abi.ErrInvalid},
		{"set", []string{strings.Repeat("k", abi.MaxKey+1), ""}, nil, abi.ErrInvalid},
		{"set", []string{"k", strings.Repeat("v", abi.MaxValue)}, nil, abi.ErrTooLarge},
		{"increment", []string{"k"}, []int64{-1}, abi.ErrInvalid},
		{"increment", []string{""}, []int64{1}, abi.ErrInvalid},
	} {
		if got := abi.Code(g.call(c.name, c.numbers, nil, c.texts...)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	for i := range abi.MaxKeys {
		if v := g.call("set", nil, nil, fmt.Sprint(i), "v"); v != 0 {
			t.Fatal(i, v)
		}
	}
	if got := abi.Code(g.call("set", nil, nil, "more", "v")); got != abi.ErrQuota {
		t.Error(got)
	}
	if v := g.call("set", nil, nil, "0", "w"); v != 0 {
		t.Error("a key that is there cannot be set any more", v)
	}
	for _, value := range []string{"x", "", "-1", "07", "9223372036854775807"} {
		g.call("set", nil, nil, "0", value)
		if got := abi.Code(g.call("increment", []int64{1}, nil, "0")); got != abi.ErrInvalid {
			t.Errorf("%q: %d", value, got)
		}
	}
}

func TestDeniedAndLost(t *testing.T) {
	t.Parallel()
	g := begin(t, &kv.State{}, &owner{}, grants.Grant{})
	if got := abi.Code(g.call("get", nil, nil, "k")); got != abi.ErrDenied {
		t.Error(got)
	}
	o := &owner{}
	s := &kv.State{}
	g = begin(t, s, o, grants.Grant{KV: true})
	g.call("set", nil, nil, "k", "v")
	o.cancelled = abi.CancelLost
	for _, name := range []string{"set", "increment", "delete"} {
		texts := []string{"k"}
		if name == "set" {
			texts = append(texts, "w")
		}
		if got := abi.Code(g.call(name, []int64{1}, nil, texts...)); got != abi.ErrCancelled {
			t.Error(name, got)
		}
	}
	if value, _ := s.Get("k"); value != "v" {
		t.Error(value)
	}
	usage := g.run.Usage.All()["kv"]
	if usage.Calls != 4 || usage.Refused["ownership lost or cancelled"] != 3 {
		t.Errorf("%+v", usage)
	}
}

func FuzzDecode(f *testing.F) {
	s := &kv.State{}
	if err := errors.Join(s.Set("a", "1"), s.Set("b", "")); err != nil {
		f.Fatal(err)
	}
	f.Add(s.Encode([]byte("offset"), true))
	f.Add(s.Encode(nil, false))
	f.Add([]byte("offset"))
	f.Add([]byte("\x00wasmjob.kv\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := kv.Decode(data, true)
		if err != nil {
			return
		}
		again, err := kv.Decode(s.Encode(s.Offset, s.HasOffset), true)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Offset, s.Offset) || again.HasOffset != s.HasOffset || !slices.Equal(again.List(""), s.List("")) {
			t.Fatalf("%+v became %+v", s, again)
		}
		for _, key := range s.List("") {
			a, _ := s.Get(key)
			if b, ok := again.Get(key); a != b || !ok {
				t.Fatalf("%q: %q became %q", key, a, b)
			}
		}
	})
}

func TestCheckKey(t *testing.T) {
	for key, ok := range map[string]bool{"a": true, "": false, strings.Repeat("k", abi.MaxKey): true, strings.Repeat("k", abi.MaxKey+1): false, "\xff": false, "a\x00": false} {
		if err := kv.CheckKey(key); (err == nil) != ok {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}
