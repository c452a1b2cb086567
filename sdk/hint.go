package sdk

import "strings"

// hint goes by the texts, because many jobs do not wrap errors. They are those of
// wasip1 alone: other systems, and so hosts, write them in lower case. mounted are the
// directories that the guest has.
func hint(reason string, mounted func() []string) string {
	switch {
	case strings.Contains(reason, "Connection refused"), strings.Contains(reason, "Connection reset by peer"):
		return ` (guests have no sockets: import _ "github.com/wasmjob/wasmjob/sdk/nethttp" for net/http, or connect with package sdk/net)`
	}
	for _, errno := range []string{"Bad file number", "No such file or directory", "Read-only file system"} {
		before, _, found := strings.Cut(reason, ": "+errno)
		if path := before[strings.LastIndexByte(before, ' ')+1:]; found && strings.HasPrefix(path, "/") {
			return ofPath(path, errno, mounted())
		}
	}
	return ""
}

// ofPath is what a guest that failed at a path may not know: what it has is elsewhere, or cannot be
// written to.
func ofPath(path, errno string, mounted []string) string {
	for _, dir := range mounted {
		if path != dir && !strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") {
			continue
		}
		if errno == "Read-only file system" {
			return " (" + dir + " is mounted to be read only: its grant has no write: true)"
		}
		return ""
	}
	granted := "no directory"
	if len(mounted) > 0 {
		granted = strings.Join(mounted, ", ")
	}
	return " (nothing is mounted at this path: the job is granted " + granted + ", and a guest has no other files)"
}
