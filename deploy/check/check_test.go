// Package check holds what is in deploy against what will read it: the parsers
// and schemas of Docker, Compose, Kubernetes and systemd, and the program
// itself. It is a module of its own, so that none of them is a dependency of
// wasmjob. make deploy-check runs it.
package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// deployDir is where the files are, root the tree that they belong to.
const (
	deployDir = ".."
	root      = "../.."
)

// grace is what a supervisor allows beyond the drain timeout, as
// docs/stopping.md asks for.
const grace = 10 * time.Second

// program is wasmjob, built once for all tests by the command in the
// Dockerfile, from the files that .dockerignore lets through.
func program(t *testing.T) string {
	t.Helper()
	name := os.Getenv("WASMJOB")
	if name == "" {
		t.Fatal("WASMJOB names no program: run make deploy-check")
	}
	return name
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deployDir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// settings are what wasmjob run makes of an environment, as --print-config
// shows them. What names a directory of the target is moved below a directory
// of this test, or it would be missing here.
func settings(t *testing.T, args []string, environ map[string]string) map[string]any {
	t.Helper()
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	moved := func(path string) string {
		p := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, value := range environ {
		if strings.HasPrefix(value, "/") {
			value = moved(value)
		}
		switch name {
		case "WASMJOB_PLUGINS", "WASMJOB_CACHE", "WASMJOB_DATA":
			if value == "" {
				break // taken back
			}
			if err := os.MkdirAll(value, 0o700); err != nil {
				t.Fatal(err)
			}
		case "WASMJOB_ZK_CREDENTIALS_FILE", "WASMJOB_ADMIN_TOKEN_FILE":
			if err := os.WriteFile(value, []byte("someone:0123456789abcdef"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		env = append(env, name+"="+value)
	}
	cmd := exec.CommandContext(t.Context(), program(t), append(slices.Clone(args), "--print-config")...)
	cmd.Env = env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("wasmjob does not take the settings: %v\n%s", err, stderr.Bytes())
	}
	if warning := stderr.String(); strings.Contains(warning, "warning") {
		t.Errorf("wasmjob warns about the settings: %s", warning)
	}
	config := make(map[string]any)
	if err := yaml.Unmarshal(out, &config); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	return config
}

// expect compares settings with what they should be.
func expect(t *testing.T, config map[string]any, want map[string]any) {
	t.Helper()
	for key, value := range want {
		if config[key] != value {
			t.Errorf("%s is %v, want %v", key, config[key], value)
		}
	}
}

// enough demands that a supervisor waits longer than the host may drain.
func enough(t *testing.T, config map[string]any, stop time.Duration) {
	t.Helper()
	text, _ := config["drainTimeout"].(string)
	drain, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("drainTimeout: %v", err)
	}
	if stop < drain+grace {
		t.Errorf("the supervisor kills after %s, but the host may drain for %s and needs %s more", stop, drain, grace)
	}
}

// copyTree copies files and their modes.
func copyTree(t *testing.T, from, to string, keep func(name string) bool) (files int) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			if name == ".git" || name == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !keep(filepath.ToSlash(name)) {
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process's temporary file
		}
		if err != nil {
			return err
		}
		files++
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// run runs a command and returns both of its outputs.
func run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return string(out), err
}
