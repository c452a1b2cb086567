package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/wasmjob/wasmjob/host/config/ownership"
)

// NewToken returns 26 random letters and digits.
func NewToken() string { return rand.Text() }

// TokenFile returns the token in this host's token file, or creates one, mode 0600. A file that others can
// read, or that belongs to another user, is refused.
func TokenFile(name string) (string, error) { return tokenFile(ownership.Self(), name) }

func tokenFile(u ownership.User, name string) (string, error) {
	token, err := readToken(name, func(info fs.FileInfo) error { return u.Check(name, info, ownership.Private) })
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	token = NewToken()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	return token, nil
}

// ReadTokenFile returns the token in the file, for a client: root may use the token of a host that
// another user runs. A file that others can read is refused.
func ReadTokenFile(name string) (string, error) {
	return readToken(name, func(info fs.FileInfo) error {
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return fmt.Errorf("%s: its mode is %04o, so that others can read it; want 0600: chmod 600 %s", name, mode, name)
		}
		return nil
	})
}

func readToken(name string, check func(fs.FileInfo) error) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	if err := check(info); err != nil {
		return "", fmt.Errorf("token file %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", fmt.Errorf("token file: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("token file %s: want one word of at least %d bytes", name, minToken)
	}
	return token, nil
}
