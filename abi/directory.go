package abi

// ModuleDir names the functions by which an executor reaches the directories that a guest may write to. It is
// no import module: guests use WASI, and the executor turns their WASI calls into these, so that the host
// carries them out, even for a worker process.
const ModuleDir = "job_v1_dir"

// DirError is the base of error results: an errno is returned as -DirError-errno.
const DirError = 1000

// DirStat is the length of stat's answer: mode (io/fs), links, inode, size, and modification time in
// nanoseconds since 1970, each as 8 bytes, little endian.
const DirStat = 40

// DirectoryFunctions returns the functions of ModuleDir. A directory is given by its index among the writable
// ones, in the order of the grant. A path is relative to it. Flags are those of wazero's
// experimental/sys.Oflag.
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
