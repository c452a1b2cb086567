package wasm

import (
	"strings"

	"github.com/wasmjob/wasmjob/abi"
)

// ModuleEnv is where AssemblyScript imports abort from, which it calls for a failed
// assertion or an uncaught error.
const ModuleEnv = "env"

// Offered returns what a module may import: import module → name → signature. What the
// runtime registers is checked against it by a test. The caller may change the result.
func Offered() map[string]map[string]abi.Signature {
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
	limits    []limit
}

// limit is what is done about a parameter beyond what wazero can take: wazero trusts
// the lengths, counts and numbers that a guest gives it, and allocates for them.
type limit struct {
	kind  limitKind
	param byte
}

type limitKind byte

const (
	// pathLength: wazero copies and cleans a path before it looks at its length.
	pathLength limitKind = iota
	// vectorCount is how many buffers are read or written. The host may limit it: a guest must expect that a call
	// handles fewer buffers than it passed.
	vectorCount
	// subscriptionCount: wazero keeps an event for each, and overflows when it multiplies.
	subscriptionCount
	// entriesLength is the room for entries of a directory: wazero reads, and keeps, as many as may fit.
	entriesLength
	// newDescriptor is a number that a descriptor gets: wazero's table has room for all below it.
	newDescriptor
	// otherDescriptor is one that must not be that of the parameter before it: wazero would close
	// the file, and keep its place in the table.
	otherDescriptor
)

// Limits of the parameters, and the errors of WASI that say what is beyond them.
const (
	maxPath          = 4096 // Linux' limit, in bytes
	maxVectors       = 1024 // Linux' IOV_MAX
	maxSubscriptions = 1024
	maxEntries       = 64 << 10 // bytes
	maxDescriptors   = 1024     // numbers that descriptors may have

	errnoBadDescriptor = 8
	errnoInvalid       = 28
	errnoTooManyOpen   = 33
	errnoNameTooLong   = 37

	// ErrnoTooMany is what a file system of the host answers if a guest has too many open files: WASI's
	// notsock, for wazero has no number for WASI's mfile. The guest gets mfile.
	ErrnoTooMany = 57
)

// within are the limits of a function whose parameters of the kind are these.
func within(kind limitKind, params ...byte) []limit {
	var list []limit
	for _, p := range params {
		list = append(list, limit{kind, p})
	}
	return list
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
		"fd_pread":                {"iiiIi:i", within(vectorCount, 2)},
		"fd_prestat_dir_name":     {"iii:i", nil},
		"fd_prestat_get":          {"ii:i", nil},
		"fd_pwrite":               {"iiiIi:i", within(vectorCount, 2)},
		"fd_read":                 {"iiii:i", within(vectorCount, 2)},
		"fd_readdir":              {"iiiIi:i", within(entriesLength, 2)},
		"fd_renumber":             {"ii:i", []limit{{newDescriptor, 1}, {otherDescriptor, 1}}},
		"fd_seek":                 {"iIii:i", nil},
		"fd_sync":                 {"i:i", nil},
		"fd_tell":                 {"ii:i", nil},
		"fd_write":                {"iiii:i", within(vectorCount, 2)},
		"path_create_directory":   {"iii:i", within(pathLength, 2)},
		"path_filestat_get":       {"iiiii:i", within(pathLength, 3)},
		"path_filestat_set_times": {"iiiiIIi:i", within(pathLength, 3)},
		"path_link":               {"iiiiiii:i", within(pathLength, 3, 6)},
		"path_open":               {"iiiiiIIii:i", within(pathLength, 3)},
		"path_readlink":           {"iiiiii:i", within(pathLength, 2)},
		"path_remove_directory":   {"iii:i", within(pathLength, 2)},
		"path_rename":             {"iiiiii:i", within(pathLength, 2, 5)},
		"path_symlink":            {"iiiii:i", within(pathLength, 1, 4)},
		"path_unlink_file":        {"iii:i", within(pathLength, 2)},
		"poll_oneoff":             {"iiii:i", within(subscriptionCount, 2)},
		"proc_exit":               {"i:", nil},
		"proc_raise":              {"i:i", nil},
		"random_get":              {"ii:i", nil},
		"sched_yield":             {":i", nil},
		"sock_accept":             {"iii:i", nil},
		"sock_recv":               {"iiiiii:i", within(vectorCount, 2)},
		"sock_send":               {"iiiii:i", within(vectorCount, 2)},
		"sock_shutdown":           {"ii:i", nil},
	}
}
