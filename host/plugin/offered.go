package plugin

import (
	"strings"

	"github.com/wasmjob/wasmjob/abi"
)

// AssemblyScript calls env.abort for a failed assertion or an uncaught error.
const (
	moduleEnv = "env"
	envAbort  = "abort"
)

// hostFunctions returns what a module may import: import module → name →
// signature. What the runtime registers is checked against it by a test.
func hostFunctions() map[string]map[string]abi.Signature {
	job := map[string]abi.Signature{}
	for _, f := range abi.Imports() {
		job[f.Name] = f.Type
	}
	return map[string]map[string]abi.Signature{
		abi.Module:     job,
		abi.ModuleWASI: wasiFunctions(),
		moduleEnv:      {envAbort: signature("iiii:")},
	}
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

// wasiFunctions are the functions of WASI preview 1 that wazero has, by name.
func wasiFunctions() map[string]abi.Signature {
	all := map[string]abi.Signature{}
	for name, s := range map[string]string{
		"args_get":                "ii:i",
		"args_sizes_get":          "ii:i",
		"clock_res_get":           "ii:i",
		"clock_time_get":          "iIi:i",
		"environ_get":             "ii:i",
		"environ_sizes_get":       "ii:i",
		"fd_advise":               "iIIi:i",
		"fd_allocate":             "iII:i",
		"fd_close":                "i:i",
		"fd_datasync":             "i:i",
		"fd_fdstat_get":           "ii:i",
		"fd_fdstat_set_flags":     "ii:i",
		"fd_fdstat_set_rights":    "iII:i",
		"fd_filestat_get":         "ii:i",
		"fd_filestat_set_size":    "iI:i",
		"fd_filestat_set_times":   "iIIi:i",
		"fd_pread":                "iiiIi:i",
		"fd_prestat_dir_name":     "iii:i",
		"fd_prestat_get":          "ii:i",
		"fd_pwrite":               "iiiIi:i",
		"fd_read":                 "iiii:i",
		"fd_readdir":              "iiiIi:i",
		"fd_renumber":             "ii:i",
		"fd_seek":                 "iIii:i",
		"fd_sync":                 "i:i",
		"fd_tell":                 "ii:i",
		"fd_write":                "iiii:i",
		"path_create_directory":   "iii:i",
		"path_filestat_get":       "iiiii:i",
		"path_filestat_set_times": "iiiiIIi:i",
		"path_link":               "iiiiiii:i",
		"path_open":               "iiiiiIIii:i",
		"path_readlink":           "iiiiii:i",
		"path_remove_directory":   "iii:i",
		"path_rename":             "iiiiii:i",
		"path_symlink":            "iiiii:i",
		"path_unlink_file":        "iii:i",
		"poll_oneoff":             "iiii:i",
		"proc_exit":               "i:",
		"proc_raise":              "i:i",
		"random_get":              "ii:i",
		"sched_yield":             ":i",
		"sock_accept":             "iii:i",
		"sock_recv":               "iiiiii:i",
		"sock_send":               "iiiii:i",
		"sock_shutdown":           "ii:i",
	} {
		all[name] = signature(s)
	}
	return all
}
