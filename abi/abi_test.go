package abi_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
)

// The contract may grow but what is there may not change: guests in the field
// were built against it.
func TestImportsOfVersion1(t *testing.T) {
	want := []string{
		"ctx_str (i32,i32,i32)->(i32)",
		"ctx_int (i32)->(i64)",
		"log (i32,i32,i32,i32,i32)->()",
		"log_enabled (i32)->(i32)",
		"set_error (i32,i32)->()",
		"progress (i64,i64)->()",
		"metric (i32,i32,i32,i64)->(i32)",
		"offset_get (i32,i32)->(i32)",
		"offset_set (i32,i32)->(i32)",
		"offset_commit ()->(i32)",
		"cancelled ()->(i32)",
	}
	var got []string
	for _, f := range abi.Imports() {
		got = append(got, f.Name+" "+f.Type.String())
	}
	if !slices.Equal(got[:len(want)], want) {
		t.Errorf("imports\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestExportsOfVersion1(t *testing.T) {
	want := map[string]string{
		"job_abi_v1": "()->()", "_initialize": "()->()", "_start": "()->()",
		"job_execute": "()->(i32)", "job_fetch": "()->(i32)", "job_process": "()->(i32)",
		"job_before_executed": "()->(i32)", "job_after_executed": "()->(i32)",
		"job_before_executed_at_last_started": "()->(i32)", "job_after_executed_at_last_completed": "()->(i32)",
	}
	for _, f := range abi.Exports() {
		if f.Type.String() != want[f.Name] {
			t.Errorf("%s %s, want %s", f.Name, f.Type, want[f.Name])
		}
		delete(want, f.Name)
	}
	if len(want) > 0 {
		t.Errorf("missing %v", want)
	}
}

func TestNamesAreUnique(t *testing.T) {
	var imports, exports []string
	for _, f := range abi.Imports() {
		imports = append(imports, f.Name)
	}
	for _, f := range abi.Exports() {
		exports = append(exports, f.Name)
	}
	for _, list := range [][]string{imports, exports} {
		seen := make(map[string]bool)
		for _, name := range list {
			if seen[name] {
				t.Errorf("%s is listed twice", name)
			}
			seen[name] = true
		}
	}
}

func TestFieldsAndCodesDoNotMove(t *testing.T) {
	for _, c := range []struct{ got, want int }{
		{abi.CtxJobName, 1}, {abi.CtxTaskID, 2}, {abi.CtxItemParameter, 3}, {abi.CtxJobParameter, 4}, {abi.CtxPluginConfig, 5},
		{abi.CtxTraceparent, 6}, {abi.CtxHostInfo, 7}, {abi.CtxRunID, 8}, {abi.CtxSource, 9},
		{abi.CtxTotalCount, 32}, {abi.CtxItem, 33}, {abi.CtxFireTime, 34}, {abi.CtxPreviousFire, 35}, {abi.CtxNextFire, 36},
		{abi.CtxAttempt, 37}, {abi.CtxDeadline, 38}, {abi.CtxFence, 39}, {abi.CtxFetchDataCount, 40},
		{int(abi.ErrInvalid), -1}, {int(abi.ErrNotFound), -2}, {int(abi.ErrDenied), -3}, {int(abi.ErrTooLarge), -4},
		{int(abi.ErrQuota), -5}, {int(abi.ErrUnavailable), -6}, {int(abi.ErrConflict), -7}, {int(abi.ErrCancelled), -8},
		{int(abi.ErrUnsupported), -9}, {int(abi.ErrState), -10}, {int(abi.ErrTimeout), -11}, {int(abi.ErrInternal), -12},
		{int(abi.StatusOK), 0}, {int(abi.StatusFail), 1}, {int(abi.StatusRetry), 2}, {int(abi.StatusCancelled), 3},
		{int(abi.CancelDeadline), 1}, {int(abi.CancelStop), 2}, {int(abi.CancelLost), 3}, {int(abi.CancelAbort), 4}, {int(abi.CancelYield), 5},
	} {
		if c.got != c.want {
			t.Errorf("found %d, want %d", c.got, c.want)
		}
	}
}

func TestSignatures(t *testing.T) {
	a := abi.Signature{Params: []abi.ValueType{abi.I32, abi.I64}, Results: []abi.ValueType{abi.I32}}
	if got := a.String(); got != "(i32,i64)->(i32)" {
		t.Error(got)
	}
	b := abi.Signature{Params: []abi.ValueType{abi.I32}, Results: []abi.ValueType{abi.I64, abi.I32}}
	if a.Equal(b) || !a.Equal(a) {
		t.Error("a parameter is not a result")
	}
	odd := abi.Signature{Params: []abi.ValueType{0x7d, 0x7c, 0x7b, 0x70, 0x6f, 1}}
	if got := odd.String(); got != "(f32,f64,v128,funcref,externref,?)->()" {
		t.Error(got)
	}
}

func TestLists(t *testing.T) {
	for _, c := range []struct {
		elements []string
		bytes    string
	}{
		{nil, ""},
		{[]string{""}, "\x00"},
		{[]string{"a", "", "bc"}, "a\x00\x00bc\x00"},
		{[]string{"é", "键"}, "é\x00键\x00"},
	} {
		b := abi.AppendList(nil, c.elements...)
		if string(b) != c.bytes {
			t.Errorf("%q is %q, want %q", c.elements, b, c.bytes)
		}
		back, err := abi.ParseList(b)
		if err != nil || !slices.Equal(back, c.elements) {
			t.Errorf("%q read back as %q, %v", b, back, err)
		}
	}
	if _, err := abi.ParseList([]byte("a\x00b")); err != abi.ErrList {
		t.Errorf("a list without its last NUL: %v", err)
	}
	if b := abi.AppendList(nil, "a\x00b"); string(b) != "a\x00" {
		t.Errorf("an element with NUL became %q", b)
	}
}

func FuzzList(f *testing.F) {
	f.Add([]byte("a\x00\x00bc\x00"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := abi.ParseList(b)
		if (err != nil) != (len(b) > 0 && b[len(b)-1] != 0) {
			t.Fatalf("%q: %v", b, err)
		}
		if err == nil && !bytes.Equal(abi.AppendList(nil, list...), b) {
			t.Fatalf("%q became %q", b, list)
		}
	})
}
