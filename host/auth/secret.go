package auth

import (
	"crypto/sha256"
	"crypto/subtle"
)

// Secret is a text to which others are compared, in constant time. The zero value is
// none, and equals nothing.
type Secret struct {
	sum  [sha256.Size]byte
	some bool
}

// NewSecret makes a secret of a text; of an empty one none.
func NewSecret(text string) Secret {
	return Secret{sha256.Sum256([]byte(text)), text != ""}
}

// Is reports whether the text is the secret. Sums have one length, so that the time it
// takes shows nothing of either.
func (s Secret) Is(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(sum[:], s.sum[:]) == 1 && s.some
}
