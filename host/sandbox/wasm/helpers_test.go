package wasm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/test/hostile"
)

// guest reads a committed guest by its path below the plugins' testdata, without ".wasm".
func guest(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "plugin", "testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goGuest builds one of the Go programs below the plugins' testdata, once.
func goGuest(t testing.TB, name string) []byte {
	t.Helper()
	build := map[string]func() ([]byte, error){"goguest": buildReactor, "gocommand": buildCommand}[name]
	b, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	buildReactor = sync.OnceValues(func() ([]byte, error) { return buildGo("goguest", "-buildmode=c-shared") })
	buildCommand = sync.OnceValues(func() ([]byte, error) { return buildGo("gocommand") })
)

func buildGo(name string, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "wasm-guest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, name+".wasm")
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath"}, flags...), "-o", out, "../plugin/testdata/"+name)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w\n%s", name, err, msg)
	}
	return os.ReadFile(out)
}

// inspected is what Inspect says, with the first problem as an error.
func inspected(file []byte) (*Info, error) {
	info := Inspect(file)
	if len(info.Problems) > 0 {
		return info, fmt.Errorf("%s", info.Problems[0])
	}
	return info, nil
}

// Modules without a compiler; see package hostile.
var (
	nasty  = hostile.Job
	body   = hostile.Body
	atZero = hostile.AtZero()
	less   = hostile.Less()
	twice  = hostile.Twice()
)

func times(n int, b ...byte) []byte { return bytes.Repeat(b, n) }
