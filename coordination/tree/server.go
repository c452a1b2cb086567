package tree

import "strings"

// IsEnabled understands the data of a server node: anything but DISABLED is
// enabled, since 2.x wrote nothing for that.
func IsEnabled(data []byte) bool {
	return !strings.EqualFold(strings.TrimSpace(string(data)), Disabled)
}

// What a server node holds.
const (
	Enabled  = "ENABLED"
	Disabled = "DISABLED"
)
