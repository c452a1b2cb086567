package wasm

import (
	"strings"

	"github.com/wasmjob/wasmjob/abi"
)

// ModuleEnv is where AssemblyScript imports abort from, which it calls for a failed
// assertion or an uncaught error.
const ModuleEnv = "env"

// offered returns what a module may import: import module → name → signature. What the
// runtime registers is checked against it by a test.
func offered() map[string]map[string]abi.Signature {
	job := map[string]abi.Signature{}
	for _, f := range abi.Imports() {
		job[f.Name] = f.Type
	}
	wasi := map[string]abi.Signature{}
	for name, f := range wasiFunctions() {
		wasi[name] = signature(f.signature)
	}
	all := map[string]map[string]abi.Signature{
		abi.Module:     job,
		abi.ModuleWASI: wasi,
		ModuleEnv:      {"abort": signature("iiii:")},
	}
	for _, f := range abi.CapabilityImports() {
		if all[f.Module] == nil {
			all[f.Module] = map[string]abi.Signature{}
		}
		all[f.Module][f.Name] = f.Type
	}
	return all
}

// signature reads "iI:i" as (i32,i64)->(i32).
func signature(s string) abi.Signature {
	params, results, _ := strings.Cut(s, ":")
	list := func(s string) []abi.ValueType {
		var l []abi.ValueType
		for _, c := range s {
			if c == 'I' {
				l = append(l, abi.I64)
			} else {
				l = append(l, abi.I32)
			}
		}
		return l
	}
	return abi.Signature{Params: list(params), Results: list(results)}
}

// wasiFunction is a function of WASI preview 1 that wazero has.
type wasiFunction struct {
	signature string
	// paths are the parameters that are lengths of paths. wazero copies and cleans a
	// path before it looks at its length, without asking.
	paths []byte
}

func wasiFunctions() map[string]wasiFunction {
	return map[string]wasiFunction{
		"args_get":                {"ii:i", nil},
		"args_sizes_get":          {"ii:i", nil},
		"clock_res_get":           {"ii:i", nil},
		"clock_time_get":          {"iIi:i", nil},
		"environ_get":             {"ii:i", nil},
		"environ_sizes_get":       {"ii:i", nil},
		"fd_advise":               {"iIIi:i", nil},
		"fd_allocate":             {"iII:i", nil},
		"fd_close":                {"i:i", nil},
		"fd_datasync":             {"i:i", nil},
		"fd_fdstat_get":           {"ii:i", nil},
		"fd_fdstat_set_flags":     {"ii:i", nil},
		"fd_fdstat_set_rights":    {"iII:i", nil},
		"fd_filestat_get":         {"ii:i", nil},
		"fd_filestat_set_size":    {"iI:i", nil},
		"fd_filestat_set_times":   {"iIIi:i", nil},
		"fd_pread":                {"iiiIi:i", nil},
		"fd_prestat_dir_name":     {"iii:i", nil},
		"fd_prestat_get":          {"ii:i", nil},
		"fd_pwrite":               {"iiiIi:i", nil},
		"fd_read":                 {"iiii:i", nil},
		"fd_readdir":              {"iiiIi:i", nil},
		"fd_renumber":             {"ii:i", nil},
		"fd_seek":                 {"iIii:i", nil},
		"fd_sync":                 {"i:i", nil},
		"fd_tell":                 {"ii:i", nil},
		"fd_write":                {"iiii:i", nil},
		"path_create_directory":   {"iii:i", []byte{2}},
		"path_filestat_get":       {"iiiii:i", []byte{3}},
		"path_filestat_set_times": {"iiiiIIi:i", []byte{3}},
		"path_link":               {"iiiiiii:i", []byte{3, 6}},
		"path_open":               {"iiiiiIIii:i", []byte{3}},
		"path_readlink":           {"iiiiii:i", []byte{2}},
		"path_remove_directory":   {"iii:i", []byte{2}},
		"path_rename":             {"iiiiii:i", []byte{2, 5}},
		"path_symlink":            {"iiiii:i", []byte{1, 4}},
		"path_unlink_file":        {"iii:i", []byte{2}},
		"poll_oneoff":             {"iiii:i", nil},
		"proc_exit":               {"i:", nil},
		"proc_raise":              {"i:i", nil},
		"random_get":              {"ii:i", nil},
		"sched_yield":             {":i", nil},
		"sock_accept":             {"iii:i", nil},
		"sock_recv":               {"iiiiii:i", nil},
		"sock_send":               {"iiiii:i", nil},
		"sock_shutdown":           {"ii:i", nil},
	}
}
