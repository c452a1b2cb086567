package sdk

import (
	"runtime"
	"strings"
)

// explained is the reason with what its author can do about it, if it is an error that
// Go's runtime makes in a guest by itself, without asking the host.
func explained(reason string) string {
	if runtime.GOOS != "wasip1" {
		return reason
	}
	return reason + hint(reason)
}

// hint goes by the texts, because many jobs do not wrap errors. They are those of
// wasip1 alone: other systems, and so hosts, write them in lower case.
func hint(reason string) string {
	switch {
	case strings.Contains(reason, "Connection refused"), strings.Contains(reason, "Connection reset by peer"):
		return ` (guests have no sockets: import _ "github.com/wasmjob/wasmjob/sdk/nethttp" for net/http, or connect with package sdk/net)`
	case strings.Contains(reason, "Bad file number"):
		return " (nothing is mounted at this path: a guest has no files but those of the directories that are granted to its job)"
	}
	return ""
}
