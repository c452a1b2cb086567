package abi

// ModuleDir names the functions by which an executor reaches the directories that a
// guest may write to. It is not an import module: guests use WASI, and the executor
// makes these calls of what WASI is asked for, so that the host carries out all of
// them, also for a worker process.
const ModuleDir = "job_v1_dir"

// DirError is what the results of these functions begin with that stand for an errno
// of the system: -DirError-errno.
const DirError = 1000

// DirStat is the length of what stat answers: mode (io/fs), links, inode, size, and time
// of modification in nanoseconds since 1970, each as 8 bytes, little endian.
const DirStat = 40

// DirectoryFunctions returns the functions of ModuleDir. A directory is named by its
// number among those that may be written to, in the order of the grant. A path is
// relative to it. Flags are those of wazero's experimental/sys.Oflag.
func DirectoryFunctions() []Import {
	dir, path, handle := Param{"directory", KindInt32}, Param{"path", KindText}, Param{"handle", KindInt32}
	table := []Import{
		{Name: "open", Params: []Param{dir, {"flags", KindInt32}, {"mode", KindInt32}, path}, Does: "opens a file: a handle, or 0 for a directory"},
		{Name: "stat", Params: []Param{dir, path, {"buf", KindBuffer}}, Does: "reads the status of what a path names"},
		{Name: "fstat", Params: []Param{handle, {"buf", KindBuffer}}, Does: "reads the status of an open file"},
		{Name: "read", Params: []Param{handle, {"at", KindInt64}, {"buf", KindBuffer}}, Does: "reads bytes; 0 is the end"},
		{Name: "write", Params: []Param{handle, {"at", KindInt64}, {"data", KindBytes}}, Does: "writes bytes at a position, -1 for the end, as many as there is room for"},
		{Name: "truncate", Params: []Param{handle, {"size", KindInt64}}},
		{Name: "sync", Params: []Param{handle}},
		{Name: "close", Params: []Param{handle}},
		{Name: "list", Params: []Param{dir, {"from", KindInt64}, path, {"buf", KindBuffer}}, Does: "reads entries from a number on, as many as fit: a letter (d, - or ?), the name, and NUL"},
		{Name: "mkdir", Params: []Param{dir, {"mode", KindInt32}, path}},
		{Name: "rmdir", Params: []Param{dir, path}},
		{Name: "unlink", Params: []Param{dir, path}},
		{Name: "rename", Params: []Param{dir, path, {"to", KindText}}},
		{Name: "utimes", Params: []Param{dir, {"accessed", KindInt64}, {"modified", KindInt64}, path}},
	}
	for i := range table {
		f := &table[i]
		f.Module, f.Answer, f.During = ModuleDir, AnswerValue, PhaseAny
		f.Type = f.signature()
	}
	return table
}
