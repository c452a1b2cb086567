// Package password hashes passwords with argon2id (RFC 9106), in the form that other
// programs write as well: $argon2id$v=19$m=32768,t=2,p=1$SALT$HASH.
package password

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// What a new hash costs, which is more than OWASP's least. One that is read may cost up
// to the bounds, so that a file cannot have the host use all its memory.
const (
	memory, passes, lanes             = 32 << 10, 2, 1 // KiB
	minMemory, maxMemory              = 8 << 10, 256 << 10
	maxPasses, maxLanes               = 16, 16
	saltSize, sumSize                 = 16, 32
	minSalt, maxSalt, minSum, maxSize = 8, 64, 16, 64

	// MinLength and MaxLength bound passwords, the one in characters, the other in bytes.
	MinLength, MaxLength = 12, 1024
)

// Hash is a password's hash.
type Hash struct {
	memory, passes uint32
	lanes          uint8
	salt, sum      []byte
}

// New hashes a password with a new salt.
func New(password string) (Hash, error) {
	if err := Check(password); err != nil {
		return Hash{}, err
	}
	h := Hash{memory: memory, passes: passes, lanes: lanes, salt: make([]byte, saltSize)}
	rand.Read(h.salt) // never fails
	h.sum = h.of(password, sumSize)
	return h, nil
}

// Check says what is wrong with a new password; nil if nothing is.
func Check(password string) error {
	switch n := utf8.RuneCountInString(password); {
	case n < MinLength:
		return fmt.Errorf("the password has %d characters, expected at least %d", n, MinLength)
	case len(password) > MaxLength:
		return fmt.Errorf("the password has %d bytes, expected at most %d", len(password), MaxLength)
	}
	return nil
}

func (h Hash) of(password string, size int) []byte {
	return argon2.IDKey([]byte(password), h.salt, h.passes, h.memory, h.lanes, uint32(size))
}

// Verify reports whether the password is the one that was hashed. It takes its time and
// memory also for the zero Hash, which no password has: an unknown user takes as long as
// a known one.
func (h Hash) Verify(password string) bool {
	if len(password) > MaxLength {
		return false
	}
	if h.sum == nil {
		none := Hash{memory: memory, passes: passes, lanes: lanes, salt: make([]byte, saltSize)}
		none.of(password, sumSize)
		return false
	}
	return subtle.ConstantTimeCompare(h.of(password, len(h.sum)), h.sum) == 1
}

// Zero reports whether there is no hash.
func (h Hash) Zero() bool { return h.sum == nil }

// String is the hash as Parse reads it.
func (h Hash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, h.passes, h.lanes,
		base64.RawStdEncoding.EncodeToString(h.salt), base64.RawStdEncoding.EncodeToString(h.sum))
}

var errForm = errors.New("found no hash, expected one such as 'wasmjob access user passwd' writes: $argon2id$v=19$m=…,t=…,p=…$SALT$HASH")

// Parse reads a hash. Errors do not quote it.
func Parse(text string) (Hash, error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return Hash{}, errForm
	}
	if parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return Hash{}, fmt.Errorf("the hash is of another version of argon2id, expected v=%d", argon2.Version)
	}
	var h Hash
	numbers := strings.Split(parts[3], ",")
	if len(numbers) != 3 {
		return Hash{}, errForm
	}
	for i, want := range []struct {
		name        string
		least, most uint64
		set         func(uint64)
	}{
		{"m=", minMemory, maxMemory, func(n uint64) { h.memory = uint32(n) }},
		{"t=", 1, maxPasses, func(n uint64) { h.passes = uint32(n) }},
		{"p=", 1, maxLanes, func(n uint64) { h.lanes = uint8(n) }},
	} {
		text, ok := strings.CutPrefix(numbers[i], want.name)
		n, err := strconv.ParseUint(text, 10, 32)
		if !ok || err != nil {
			return Hash{}, errForm
		}
		if n < want.least || n > want.most {
			return Hash{}, fmt.Errorf("the hash has %s%d, expected %d to %d", want.name, n, want.least, want.most)
		}
		want.set(n)
	}
	var err, failed error
	h.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[4])
	h.sum, failed = base64.RawStdEncoding.Strict().DecodeString(parts[5])
	if err != nil || failed != nil || len(h.salt) < minSalt || len(h.salt) > maxSalt || len(h.sum) < minSum || len(h.sum) > maxSize {
		return Hash{}, errForm
	}
	return h, nil
}
