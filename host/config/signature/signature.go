// Package signature checks and makes minisign signatures of modules: a separate text file, NAME.wasm.minisig
// beside NAME.wasm, which the minisign program also reads and writes. All functions are safe for concurrent
// use.
package signature

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"aead.dev/minisign"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// Suffix follows the name of the module's file.
	Suffix = ".minisig"
	// MaxSize bounds a signature and the file of a key, in bytes.
	MaxSize = 8 << 10
)

// The reasons why a signature is not taken.
var (
	// ErrMissing: there is no signature.
	ErrMissing = errors.New("there is no signature")
	// ErrMalformed: it is not a signature.
	ErrMalformed = errors.New("the signature is malformed")
	// ErrUnknownKey: none of the given keys made it.
	ErrUnknownKey = errors.New("the signature is by an unknown key")
	// ErrMismatch: it is a signature of other bytes.
	ErrMismatch = errors.New("the signature is of another file, or the module was changed since it was signed")
)

// Key is a public key with the name by which people know it.
type Key struct {
	Name   string
	public minisign.PublicKey
}

// ParseKey reads a public key: its line of base64, which begins with RW, or a whole
// minisign.pub.
func ParseKey(name, text string) (Key, error) {
	k := Key{Name: name}
	text = strings.TrimSpace(text)
	if err := k.public.UnmarshalText([]byte(text)); err != nil {
		return Key{}, fmt.Errorf("no public key of minisign (%w); expected a text such as RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3",
			errors.New(strings.TrimPrefix(err.Error(), "minisign: ")))
	}
	return k, nil
}

// ID names the key as minisign does: 16 hexadecimal digits.
func (k Key) ID() string { return idText(k.public.ID()) }

// String is the line that ParseKey reads.
func (k Key) String() string { return k.public.String() }

func idText(id uint64) string { return fmt.Sprintf("%016X", id) }

// Check returns which of the keys has signed the module. The error is, or wraps, one of the package's; without
// a signature it is ErrMissing.
func Check(module, signature []byte, keys []Key) (signer string, err error) {
	if len(signature) == 0 {
		return "", ErrMissing
	}
	var s minisign.Signature
	if err := s.UnmarshalText(signature); err != nil || len(signature) > MaxSize {
		return "", ErrMalformed
	}
	known := false
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
		if k.public.ID() != s.KeyID {
			continue
		}
		known = true
		if minisign.Verify(k.public, module, signature) {
			return k.Name, nil
		}
	}
	if known {
		return "", ErrMismatch
	}
	expected := "no key is given"
	if len(names) > 0 {
		expected = "expected " + words.Some(names, " or ")
	}
	return "", fmt.Errorf("%w, %s; %s", ErrUnknownKey, idText(s.KeyID), expected)
}

// Read reads the signature beside a module's file. The error is ErrMissing if there is none; any other error
// says why it cannot be read.
func Read(module string) ([]byte, error) {
	name := module + Suffix
	// Without O_NONBLOCK a pipe would hold us up.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, ErrMissing
	case err != nil:
		return nil, err
	}
	defer f.Close() // read only: nothing is lost if that fails
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is not a regular file", name), err)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxSize:
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrMalformed, name, MaxSize)
	case len(data) == 0:
		return nil, fmt.Errorf("%w: %s is empty", ErrMalformed, name)
	}
	return data, nil
}

// Private is a private key.
type Private struct{ key minisign.PrivateKey }

// NewKey makes a pair of keys.
func NewKey() (Private, error) {
	_, private, err := minisign.GenerateKey(rand.Reader)
	return Private{private}, err
}

// ErrPassword means that a password is needed, or the given one is wrong.
var ErrPassword = errors.New("the key is encrypted, and this is not its password")

// Encrypted reports whether the file of a private key needs a password.
func Encrypted(file []byte) bool { return minisign.IsEncrypted(file) }

// ParsePrivate reads the file of a private key, as minisign -G writes it. A key that
// minisign encrypted takes some seconds and 1 GiB of memory.
func ParsePrivate(file []byte, password string) (Private, error) {
	var p Private
	var err error
	if Encrypted(file) {
		if p.key, err = minisign.DecryptKey(password, file); err != nil {
			return Private{}, ErrPassword
		}
		return p, nil
	}
	if err := p.key.UnmarshalText(file); err != nil {
		return Private{}, fmt.Errorf("no private key of minisign: %s", strings.TrimPrefix(err.Error(), "minisign: "))
	}
	return p, nil
}

// Public is the public half.
func (p Private) Public(name string) Key {
	public, _ := p.key.Public().(minisign.PublicKey) // it is one by its documentation
	return Key{name, public}
}

// Files are the contents of the two files of a pair, as minisign has them. Without a
// password the private one is not encrypted.
func (p Private) Files(password string) (private, public []byte, err error) {
	if password == "" {
		private, err = p.key.MarshalText()
	} else {
		private, err = minisign.EncryptKey(password, p.key)
	}
	if err != nil {
		return nil, nil, err
	}
	if public, err = p.Public("").public.MarshalText(); err != nil {
		return nil, nil, err
	}
	line := func(b []byte) []byte { return append(bytes.TrimRight(b, "\n"), '\n') }
	return line(private), line(public), nil
}

// Sign makes the signature of a module, which has the file's name and the time in its
// trusted comment, as minisign's own.
func (p Private) Sign(module []byte, file string, now time.Time) ([]byte, error) {
	r := minisign.NewReader(bytes.NewReader(module))
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	file = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F {
			return '_' // a line break would end the comment
		}
		return r
	}, file)
	text := r.SignWithComments(p.key, fmt.Sprintf("timestamp:%d\tfile:%s\thashed", now.Unix(), file), "signature from wasmjob, key "+idText(p.key.ID()))
	return append(bytes.TrimRight(text, "\n"), '\n'), nil
}
