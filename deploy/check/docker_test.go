package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// dockerfile is the Dockerfile as BuildKit reads it, with what its linter says.
func dockerfile(t *testing.T) (stages []instructions.Stage, lint []string) {
	t.Helper()
	parsed, err := parser.Parse(bytes.NewReader(read(t, "Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		lint = append(lint, w.Short)
	}
	stages, _, err = instructions.Parse(parsed.AST, linter.New(&linter.Config{
		Warn: func(rule, _, _, message string, at []parser.Range) {
			lint = append(lint, fmt.Sprintf("line %d: %s: %s", at[0].Start.Line, rule, message))
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	return stages, lint
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	stages, lint := dockerfile(t)
	for _, l := range lint {
		t.Error(l)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`(?m)^go (\d+)\.(\d+)`).FindSubmatch(mod)
	if got := stages[0].BaseName; wanted == nil || !strings.HasPrefix(got, fmt.Sprintf("golang:%s.%s.", wanted[1], wanted[2])) {
		t.Errorf("the image is built by %s, but go.mod says %s", got, wanted[0])
	}
	final := stages[len(stages)-1]
	users := 0
	for _, c := range final.Commands {
		switch c := c.(type) {
		case *instructions.UserCommand:
			users++
			if uid, _, _ := strings.Cut(c.User, ":"); uid == "0" || strings.Trim(uid, "0123456789") != "" {
				t.Errorf("USER %s: want a number that is not 0, which runAsNonRoot can check", c.User)
			}
		case *instructions.RunCommand:
			t.Errorf("the image has no shell, but runs %v", c.CmdLine)
		}
	}
	if users != 1 {
		t.Errorf("%d USER lines, want 1", users)
	}
}

// buildCommand is the go build of the Dockerfile, as words for a shell.
var buildCommand = regexp.MustCompile(`go build [^\n]*`)

// image is what the final stage says about a container.
type image struct {
	env        []string
	entrypoint []string
	command    []string
	health     []string
	uid        uint32
}

// TestImage lays the image out by hand: the program, built by the command in
// the Dockerfile from what .dockerignore lets through, in a directory with
// nothing else than what the base image and the volumes have, and runs it
// there as the image's user, with the image's environment. The health check
// has to answer, and SIGTERM has to end it well.
//
// It is no container engine: the base image itself is not looked at.
func TestImage(t *testing.T) {
	t.Parallel()
	stages, _ := dockerfile(t)
	var build string
	for _, c := range stages[0].Commands {
		if r, ok := c.(*instructions.RunCommand); ok {
			if s := buildCommand.FindString(strings.Join(r.CmdLine, " ")); s != "" {
				build = s
			}
		}
	}
	if build == "" {
		t.Fatal("the Dockerfile has no go build")
	}
	img := describe(t, stages[len(stages)-1])

	ignore, err := os.Open(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	patterns, err := ignorefile.ReadAll(ignore)
	if err = firstError(err, ignore.Close()); err != nil {
		t.Fatal(err)
	}
	match, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	context, jail := t.TempDir(), t.TempDir()
	n := copyTree(t, root, context, func(name string) bool {
		ignored, err := match.MatchesOrParentMatches(name)
		if err != nil {
			t.Fatal(err)
		}
		return !ignored
	})
	t.Logf("the build's context has %d files", n)
	build = strings.ReplaceAll(build, "/out/wasmjob", filepath.Join(jail, "wasmjob"))
	env := append(os.Environ(), "CGO_ENABLED=0", "VERSION=v0.0.0-check", "GOFLAGS=-mod=readonly")
	if _, err := run(t.Context(), context, env, "sh", "-c", build); err != nil {
		t.Fatal(err)
	}

	for _, dir := range []string{"tmp", "plugins", "cache", "data"} {
		path := filepath.Join(jail, dir)
		mode := os.FileMode(0o700)
		if dir == "plugins" {
			mode = 0o755
		}
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 && dir != "plugins" {
			if err := os.Chown(path, int(img.uid), int(img.uid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for dir := jail; dir != "/"; dir = filepath.Dir(dir) { // the way to it
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o011 == 0 && strings.HasPrefix(dir, os.TempDir()) {
			if err := os.Chmod(dir, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}

	// Any port: the machine may have a host of its own.
	env = append(slices.Clone(img.env), "WASMJOB_ADMIN=127.0.0.1:0")
	var log bytes.Buffer
	host := img.process(jail, append(slices.Clone(img.entrypoint), img.command...), env, &log)
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- host.Wait() }()
	stopped := false
	defer func() {
		if !stopped {
			_ = host.Process.Kill() // the test has failed already
			<-ended
		}
	}()

	note := ""
	tick := time.NewTicker(50 * time.Millisecond) // a file is no event
	defer tick.Stop()
	for note == "" {
		select {
		case err := <-ended:
			stopped = true
			t.Fatalf("the host ended: %v\n%s", err, log.Bytes())
		case <-t.Context().Done():
			t.Fatal("no host")
		case <-tick.C:
			notes, err := filepath.Glob(filepath.Join(jail, "tmp", "*", "*.host.json"))
			if err != nil {
				t.Fatal(err)
			}
			if len(notes) > 0 {
				note = notes[0]
			}
		}
	}
	data, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	var left struct{ Address string }
	if err := json.Unmarshal(data, &left); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	check := img.process(jail, img.health, append(slices.Clone(img.env), "WASMJOB_ADMIN="+left.Address), &out)
	if err := check.Run(); err != nil {
		t.Errorf("the health check of a host that runs: %v\n%s", err, out.Bytes())
	}
	if err := host.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	stopped = true
	if err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, log.Bytes())
	}
	if check := img.process(jail, img.health, append(slices.Clone(img.env), "WASMJOB_ADMIN="+left.Address), io.Discard); check.Run() == nil {
		t.Error("the health check says that all is well when there is no host")
	}
}

// describe reads the final stage.
func describe(t *testing.T, stage instructions.Stage) image {
	t.Helper()
	img := image{env: []string{"PATH=/"}}
	for _, c := range stage.Commands {
		switch c := c.(type) {
		case *instructions.EnvCommand:
			for _, e := range c.Env {
				img.env = append(img.env, e.Key+"="+e.Value)
			}
		case *instructions.EntrypointCommand:
			img.entrypoint = c.CmdLine
		case *instructions.CmdCommand:
			img.command = c.CmdLine
		case *instructions.HealthCheckCommand:
			if c.Health.Test[0] != "CMD" {
				t.Fatalf("HEALTHCHECK %v: want CMD, the image has no shell", c.Health.Test)
			}
			img.health = c.Health.Test[1:]
		case *instructions.UserCommand:
			if _, err := fmt.Sscanf(c.User, "%d", &img.uid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(img.entrypoint) == 0 || len(img.health) == 0 || img.uid == 0 {
		t.Fatalf("ENTRYPOINT, HEALTHCHECK or USER is missing: %+v", img)
	}
	return img
}

// process is a process in the image's root directory, as its user: by a user
// namespace if this test is not root's.
func (img image) process(dir string, args, env []string, out io.Writer) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...)
	cmd.Path, cmd.Err = args[0], nil // of the jail
	cmd.Dir, cmd.Env = "/", env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: img.uid, Gid: img.uid}
	} else {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: int(img.uid), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: int(img.uid), HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
