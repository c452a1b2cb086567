package tree

import "strings"

// IsEnabled reads the data of a server node: everything but DISABLED is enabled, since 2.x wrote no data for
// that.
func IsEnabled(data []byte) bool {
	return !strings.EqualFold(strings.TrimSpace(string(data)), Disabled)
}

// What a server node holds.
const (
	Enabled  = "ENABLED"
	Disabled = "DISABLED"
)
