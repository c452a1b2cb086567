package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/host/config/ownership"
)

// Note is what a running host leaves for the clients of the same user: where
// it listens, and the token.
type Note struct {
	Address string    `json:"address"`
	Token   string    `json:"token"`
	PID     int       `json:"pid"`
	Plugins string    `json:"plugins"`
	Started time.Time `json:"started"`
	// Certificate is the file with the certificate that the host shows; empty: there is no TLS.
	Certificate string `json:"certificate,omitempty"`
	// Cluster names the registry and the namespace that the host shares with others; empty: the
	// host is alone. Any host of a cluster can be asked.
	Cluster string `json:"cluster,omitempty"`
}

// config is how a client speaks TLS with the host; nil: not at all.
func (n Note) config() *tls.Config {
	if n.Certificate == "" {
		return nil
	}
	return showing(n.Certificate)
}

// noteSuffix ends the names of notes.
const noteSuffix = ".host.json"

// NoteDirs are the directories where notes may be, best first, by a user's environment: a host writes to the
// first that it can make, a client reads all, since a login, a cron job and a service may have different
// environments.
func NoteDirs(getenv func(string) string) []string {
	var dirs []string
	if d := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		dirs = append(dirs, filepath.Join(d, "wasmjob"))
	}
	if d := getenv("XDG_CACHE_HOME"); filepath.IsAbs(d) {
		dirs = append(dirs, filepath.Join(d, "wasmjob", "hosts"))
	}
	if d := getenv("HOME"); filepath.IsAbs(d) {
		dirs = append(dirs, filepath.Join(d, ".cache", "wasmjob", "hosts"))
	}
	return append(dirs, filepath.Join(os.TempDir(), "wasmjob-"+strconv.Itoa(os.Getuid())))
}

// Leave writes the note, mode 0600, to the first of the directories that can be made, mode 0700. It replaces an
// older note for the same address: the caller listens there, so the older host is gone. It returns the note's
// file, and a function that removes the note, unless it is another host's by then.
func (n Note) Leave(dirs []string) (file string, remove func() error, err error) {
	data, err := json.Marshal(n)
	if err != nil {
		return "", nil, fmt.Errorf("note for clients: %w", err)
	}
	var problems []error
	for _, dir := range dirs {
		name, err := n.leave(dir, data)
		if err == nil {
			return name, func() error {
				if now, err := readNote(name); err != nil || now.Token != n.Token {
					return nil
				}
				return os.Remove(name)
			}, nil
		}
		problems = append(problems, err)
	}
	return "", nil, fmt.Errorf("note for clients: %w", errors.Join(problems...))
}

func (n Note) leave(dir string, data []byte) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// In a shared directory another user may have made it first; then its mode cannot be changed.
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", errors.Join(err, fmt.Errorf("%s is not a directory", dir))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", err
	}
	if !isOwn(dir) { // root can change the mode of everything
		return "", fmt.Errorf("%s is another user's", dir)
	}
	name := filepath.Join(dir, noteName(n.Address))
	if err := filelock.Replace(name, 0o600, data); err != nil {
		return "", err
	}
	return name, nil
}

// noteName is a file name for an address, one to one.
func noteName(address string) string {
	var b strings.Builder
	for _, c := range []byte(address) {
		if (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String() + noteSuffix
}

func readNote(name string) (Note, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Note{}, err
	}
	var n Note
	if err := json.Unmarshal(data, &n); err != nil {
		return Note{}, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// found is a note and where it lies.
type found struct {
	Note
	file string
}

// isOwn reports whether a directory is this user's or root's, and no other user can put files there. A note
// decides which host is trusted and gets a token, and some directories are in a shared one.
func isOwn(dir string) bool {
	info, err := os.Lstat(dir)
	return err == nil && info.IsDir() && ownership.Self().Check(dir, info, ownership.Secret) == nil
}

// notes reads all notes in this user's directories. It skips unreadable ones: a client must not fail because of
// another user's file.
func notes(dirs []string) []found {
	var all []found
	seen := make(map[string]bool)
	for _, dir := range dirs {
		if !isOwn(dir) {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			file := filepath.Join(dir, e.Name())
			if !strings.HasSuffix(e.Name(), noteSuffix) {
				continue
			}
			if n, err := readNote(file); err == nil && !seen[n.Address+" "+n.Token] {
				seen[n.Address+" "+n.Token] = true
				all = append(all, found{n, file})
			}
		}
	}
	return all
}
