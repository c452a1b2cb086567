// Package modules gets the modules of this tree as others will: by their versions, from a
// proxy, outside of the tree. The proxy is a directory that the tests make of the tree.
package modules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root = "../.."
	name = "github.com/wasmjob/wasmjob"
)

// folders are the modules that have tags, with their folders.
func folders() map[string]string {
	return map[string]string{name: ".", name + "/abi": "abi", name + "/sdk": "sdk"}
}

// version is the one that the Makefile releases next.
func version(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^RELEASE \?= (v\S+)$`).FindSubmatch(data)
	if m == nil {
		t.Fatal("the Makefile has no RELEASE")
	}
	return string(m[1])
}

// TestVersionsAgree: what the modules require of each other is what is released together.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	want, all := version(t), folders()
	required := 0
	for path, folder := range all {
		file := filepath.Join(root, folder, "go.mod")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := modfile.Parse(file, data, nil)
		if err != nil {
			t.Fatal(err)
		}
		if f.Module.Mod.Path != path {
			t.Errorf("%s is the module %s, want %s", file, f.Module.Mod.Path, path)
		}
		if len(f.Replace) > 0 {
			t.Errorf("%s replaces modules: go install refuses it", file)
		}
		for _, r := range f.Require {
			if _, ours := all[r.Mod.Path]; ours {
				required++
				if r.Mod.Version != want {
					t.Errorf("%s requires %s, want %s, the RELEASE of the Makefile", file, r.Mod, want)
				}
			}
		}
	}
	file := filepath.Join(root, "go.work")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range work.Replace {
		if r.Old.Version != want {
			t.Errorf("%s replaces %s, want version %s, the RELEASE of the Makefile", file, r.Old, want)
		}
	}
	if required != 3 {
		t.Errorf("the modules require each other %d times, want 3: the product abi and sdk, and sdk abi", required)
	}
}

// proxy makes a directory that GOPROXY takes, with the modules of the tree.
func proxy(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	tree, dir := t.TempDir(), t.TempDir()
	for file := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // deleted, and not yet committed; or a link, which no module has
		}
		var data []byte
		if err == nil {
			data, err = os.ReadFile(filepath.Join(root, file))
		}
		if err == nil {
			err = put(filepath.Join(tree, file), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	v := version(t)
	for path, folder := range folders() {
		versions := filepath.Join(dir, filepath.FromSlash(path), "@v")
		mod, err := os.ReadFile(filepath.Join(tree, folder, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"list": v + "\n", v + ".mod": string(mod),
			v + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, v),
		} {
			if err := put(filepath.Join(versions, file), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Create(filepath.Join(versions, v+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(zip.CreateFromDir(f, module.Version{Path: path, Version: v}, filepath.Join(tree, folder)), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func put(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// outside is a folder outside of the tree, and an environment in which our modules come
// from the proxy, all others from what this machine has, and all of them into a cache of
// the test.
type outside struct {
	t          *testing.T
	dir, cache string
	env        []string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	have, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{t: t, dir: t.TempDir(), cache: t.TempDir()}
	o.env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", "GOSUMDB=off", "GOTOOLCHAIN=local", "GOMODCACHE="+o.cache, "GOBIN="+o.dir,
		"GOPROXY=file://"+proxy(t)+",file://"+filepath.Join(strings.TrimSpace(string(have)), "cache", "download")+",off")
	return o
}

func (o *outside) run(command string, args ...string) string {
	o.t.Helper()
	c := exec.CommandContext(o.t.Context(), command, args...)
	c.Dir, c.Env = o.dir, o.env
	out, err := c.CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s: %v\n%s", c, err, out)
	}
	return string(out)
}

// downloaded are the modules whose files are in the cache.
func (o *outside) downloaded() (names []string) {
	o.t.Helper()
	top := filepath.Join(o.cache, "cache", "download")
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(file, ".zip") {
			path, _, _ := strings.Cut(strings.TrimPrefix(file, top+"/"), "/@v/")
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestModuleOfItsOwn: the commands that the page of the first job gives for one outside of the clone
// work as they are printed there, and what they require is the SDK.
func TestModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "first-job.md"))
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```go\n// hello/main.go\n(.*?)```").FindSubmatch(page)
	commands := regexp.MustCompile("(?s)```sh\n(go mod init hello\n.*?)```").FindSubmatch(page)
	if program == nil || commands == nil {
		t.Fatal("docs/first-job.md has no program, or no commands")
	}
	o := newOutside(t)
	if err := put(filepath.Join(o.dir, "main.go"), program[1]); err != nil {
		t.Fatal(err)
	}
	o.run("sh", "-ec", string(commands[1]))
	if info, err := os.Stat(filepath.Join(o.dir, "hello.wasm")); err != nil || info.Size() < 1000 {
		t.Errorf("hello.wasm: %v", err)
	}
	// go get itself looks whether the product has that package, too; it takes none of what
	// the product requires.
	for _, path := range o.downloaded() {
		if _, ours := folders()[path]; !ours {
			t.Errorf("go get downloads %s", path)
		}
	}
	for line := range strings.Lines(o.run("go", "list", "-m", "all")) {
		if path, _, _ := strings.Cut(strings.TrimSpace(line), " "); path == name {
			t.Errorf("a job's module requires the host: %s", line)
		}
	}

	// Whoever builds the job from then on needs the SDK alone.
	other := newOutside(t)
	for _, file := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(o.dir, file))
		if err == nil {
			err = put(filepath.Join(other.dir, file), data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other.env = append(other.env, "GOOS=wasip1", "GOARCH=wasm")
	other.run("go", "build", "-buildmode=c-shared", "-o", "hello.wasm", ".")
	if got, want := other.downloaded(), []string{name + "/abi", name + "/sdk"}; !slices.Equal(got, want) {
		t.Errorf("a build downloads %q, want %q", got, want)
	}
}

// TestGoInstall: go install makes a program that is called wasmjob and knows its version.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.run("go", "install", name+"/cmd/wasmjob@"+version(t))
	said := o.run(filepath.Join(o.dir, "wasmjob"), "version")
	if want := "wasmjob " + version(t) + " "; !strings.HasPrefix(said, want) {
		t.Errorf("it says\n%s\nwant %q first", said, want)
	}
}
