package life

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wasmjob/wasmjob/host/config/filelock"
)

// numbers is the file in which a process leaves the greatest transaction number that it
// knows of a registry, for the next one: "numbers-….json" in the directory of Options. It is
// for one goroutine.
type numbers struct {
	path string
	kept kept
}

// kept is what the file holds.
type kept struct {
	Registry  string `json:"registry"`
	Namespace string `json:"namespace"`
	Greatest  int64  `json:"greatest"`
}

// mostKept is the size in bytes of the largest file that is read.
const mostKept = 64 << 10

// openNumbers reads what was left of a namespace in a registry, which the name tells from others. What cannot
// be read is an error, and is replaced at the next write.
func openNumbers(dir, registry, namespace string) (*numbers, error) {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%q %q", registry, namespace) // never fails
	n := &numbers{path: filepath.Join(dir, fmt.Sprintf("numbers-%016x.json", hash.Sum64())), kept: kept{Registry: registry, Namespace: namespace}}
	found, err := n.read()
	n.kept.Greatest = found
	return n, err
}

// read is the number in the file; 0 if there is none.
func (n *numbers) read() (int64, error) {
	if info, err := os.Stat(n.path); err == nil && info.Size() > mostKept {
		return 0, fmt.Errorf("%s: %d bytes, expected %d at most", n.path, info.Size(), mostKept)
	}
	text, err := os.ReadFile(n.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return 0, fmt.Errorf("%s: %w", n.path, err)
	}
	if k.Registry != n.kept.Registry || k.Namespace != n.kept.Namespace {
		return 0, nil
	}
	return k.Greatest, nil
}

// keep writes the number, unless the file has a greater one: several hosts on a machine may share it.
func (n *numbers) keep(greatest int64) error {
	if greatest <= n.kept.Greatest {
		return nil
	}
	found, err := n.read()
	if err == nil && found >= greatest {
		n.kept.Greatest = found
		return nil
	}
	k := n.kept
	k.Greatest = greatest
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := filelock.Replace(n.path, 0o600, append(text, '\n')); err != nil {
		return err
	}
	n.kept = k
	return nil
}
