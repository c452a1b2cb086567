package wasm

import (
	"fmt"
	"testing"
)

// Every prefix of a module is refused without a panic.
func TestLoadTruncated(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"wat/listeners", "wat/table_grow"} {
		whole := guest(t, name)
		for n := range whole {
			if info, err := inspected(whole[:n]); err == nil {
				t.Errorf("%s: the first %d of %d bytes pass: %+v", name, n, len(whole), info)
			}
		}
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	info, err := inspected(guest(t, "c/guest"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(info.Types, info.ABIVersions, info.Imports["env"], info.MemoryMinPages > 1, info.Listeners); got != "[DATAFLOW SIMPLE] [1] [abort] true []" {
		t.Error(got)
	}
	if len(info.Digest) != 64 || info.Size != len(guest(t, "c/guest")) {
		t.Error(info.Digest, info.Size)
	}
	info, err = inspected(guest(t, "wat/abi_v1_v2"))
	if err != nil || fmt.Sprint(info.ABIVersions, info.Types) != "[1 2] [SIMPLE]" {
		t.Error(info, err)
	}
	info, err = inspected(guest(t, "wat/listeners"))
	if err != nil || len(info.Listeners) != 4 {
		t.Error(info, err)
	}
	info, err = inspected(guest(t, "wat/capability"))
	if err == nil || len(info.Problems) != 2 || fmt.Sprint(info.Imports["job_v1_http"]) != "[send read]" {
		t.Error(info, err)
	}
	manifest := "\x00\x19\x0cjob.manifest" + `{"name":"x"}`
	info, err = inspected(append(guest(t, "wat/noop"), manifest...))
	if err != nil || string(info.Manifest) != `{"name":"x"}` {
		t.Errorf("%s %v", info.Manifest, err)
	}
	info, err = inspected(goGuest(t, "gocommand"))
	if err != nil || fmt.Sprint(info.Types) != "[SCRIPT]" {
		t.Error(info.Types, err)
	}
}
