package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// Superseded are digests of definitions that were applied to the job and then replaced by newer ones, oldest
// first, at most maxSuperseded: node superseded. A host that rejoins with one of them has missed the newer one.
type Superseded []string

const (
	maxSuperseded = 100
	// digestLength is how many bytes of a definition's SHA-256 are kept.
	digestLength = 16
)

// ParseSuperseded reads the list. What cannot be read names no definition.
func ParseSuperseded(data []byte) Superseded {
	var s Superseded
	if json.Unmarshal(data, &s) != nil {
		return nil
	}
	return s
}

// Data is what the node holds, JSON.
func (s Superseded) Data() []byte {
	b, err := json.Marshal(s)
	if err != nil { // strings always marshal
		return nil
	}
	return b
}

// Digest is the digest of a definition, as YAML, by which definitions are compared.
func Digest(definition []byte) string {
	sum := sha256.Sum256(definition)
	return hex.EncodeToString(sum[:digestLength])
}

// Contains reports whether the definition is in the list.
func (s Superseded) Contains(definition []byte) bool {
	return slices.Contains(s, Digest(definition))
}

// Replace is the list after the definition newer has replaced older.
func (s Superseded) Replace(older, newer []byte) Superseded {
	return s.without(Digest(newer)).add(Digest(older))
}

// add is the list with a digest as its newest.
func (s Superseded) add(digest string) Superseded {
	list := append(s.without(digest), digest)
	return list[max(0, len(list)-maxSuperseded):]
}

func (s Superseded) without(digest string) Superseded {
	return slices.DeleteFunc(slices.Clone(s), func(d string) bool { return d == digest })
}
