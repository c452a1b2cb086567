package tree

import "github.com/wasmjob/wasmjob/coordination/registry"

// NoVersion is the version of a node that does not exist.
const NoVersion int32 = -1

// VersionOf is the version of a node that was read, or NoVersion.
func VersionOf(n registry.Node) int32 {
	if !n.Exists {
		return NoVersion
	}
	return n.Version
}
