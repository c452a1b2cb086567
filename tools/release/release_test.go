package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/elliptic"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aead.dev/minisign"
)

// tree is where this module lies in the project.
const tree = "../.."

// run runs a command to its end and returns what it has written.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	return string(out)
}

// copied copies the project's files, without what git does not know, to a folder.
func copied(t *testing.T, to string) {
	t.Helper()
	names := strings.Split(strings.TrimSuffix(run(t, tree, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00")
	for _, name := range names {
		from := filepath.Join(tree, name)
		info, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		into := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
			t.Fatal(err)
		}
		if info.Mode().Type() == fs.ModeSymlink {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, into)
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !info.Mode().IsRegular() {
			t.Fatalf("%s is neither a file nor a link", name)
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(into, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReproducible: two folders with the same tree give the same files, byte for byte,
// and the checksums are theirs.
func TestReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	_, key, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := minisign.EncryptKey("password", key)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cosignFile, cosignPublic := newCosignKey(t, elliptic.P256())
	var made [2]map[string][]byte
	for i, folder := range []string{"a", "another folder"} {
		dir := filepath.Join(t.TempDir(), folder)
		copied(t, dir)
		o := options{tree: dir, out: filepath.Join(dir, "dist"), version: "v0.2.0", targets: []string{"linux/amd64"}, key: keyFile, password: "password", cosign: cosignFile, cosignPassword: "secret", log: t.Output()}
		if err := release(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		made[i] = make(map[string][]byte)
		entries, err := os.ReadDir(o.out)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if made[i][e.Name()], err = os.ReadFile(filepath.Join(o.out, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			run(t, o.out, "sha256sum", "--check", "--strict", "SHA256SUMS")
			if err := os.RemoveAll(dir); err != nil { // nothing of the first is read by the second
				t.Fatal(err)
			}
		}
	}
	for name, data := range made[0] {
		if !bytes.Equal(data, made[1][name]) {
			t.Errorf("%s differs between two folders: %d and %d bytes", name, len(data), len(made[1][name]))
		}
	}
	public, ok := key.Public().(minisign.PublicKey)
	if !ok || !minisign.Verify(public, made[0]["SHA256SUMS"], made[0]["SHA256SUMS.minisig"]) {
		t.Error("the signature is not that of the checksums")
	}
	checkBundle(t, cosignPublic, made[0]["SHA256SUMS"], made[0]["SHA256SUMS.sigstore.json"])
	want := []string{"Dockerfile", "SHA256SUMS", "SHA256SUMS.minisig", "SHA256SUMS.sigstore.json", "wasmjob-0.2.0-1.x86_64.rpm", "wasmjob_0.2.0-1_amd64.deb", "wasmjob_0.2.0_linux_amd64.cdx.json", "wasmjob_0.2.0_linux_amd64.tar.gz"}
	var names []string
	for name := range made[0] {
		names = append(names, name)
	}
	if slices.Sort(names); !slices.Equal(names, want) {
		t.Errorf("the files are %q, want %q", names, want)
	}
	archive(t, made[0]["wasmjob_0.2.0_linux_amd64.tar.gz"])
	materials(t, made[0]["wasmjob_0.2.0_linux_amd64.cdx.json"])
}

// archive checks what an archive holds, and that its program runs.
func archive(t *testing.T, data []byte) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	file := filepath.Join(t.TempDir(), "wasmjob")
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "wasmjob_0.2.0_linux_amd64/")
		if names = append(names, name); name != "wasmjob" {
			continue
		}
		program, err := io.ReadAll(r)
		if err == nil {
			err = os.WriteFile(file, program, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"LICENSE", "README.md", "wasmjob", "man/wasmjob.1", "man/wasmjob-run.1", "completions/_wasmjob", "completions/wasmjob.bash", "completions/wasmjob.fish"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in the archive, which has %q", want, names)
		}
	}
	if said := run(t, ".", file, "version"); !strings.HasPrefix(said, "wasmjob v0.2.0 ") {
		t.Errorf("the program says\n%s", said)
	}
}

// materials checks that a bill of materials has the modules of the program.
func materials(t *testing.T, data []byte) {
	t.Helper()
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, c := range bom.Components {
		found[c.Name] = c.Version
		if c.Version == "" || !strings.HasPrefix(c.Purl, "pkg:golang/"+c.Name+"@") {
			t.Errorf("the component %+v has no version or another address", c)
		}
	}
	for _, want := range []string{"std", "github.com/tetratelabs/wazero", "modernc.org/sqlite"} {
		if found[want] == "" {
			t.Errorf("%s is not in the bill of materials", want)
		}
	}
}

// TestPackage: under a real systemd, in namespaces of its own, the package is installed,
// upgraded over a running host, removed and purged. It needs root.
func TestPackage(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	dir := t.TempDir()
	var packages []string
	for _, version := range []string{"v0.2.0", "v0.2.1"} {
		out := filepath.Join(dir, version)
		if err := release(t.Context(), options{tree: tree, out: out, version: version, targets: []string{"linux/amd64"}, log: t.Output()}); err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(out, "*.deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("packages %q, %v", found, err)
		}
		packages = append(packages, found[0])
	}
	t.Logf("%s", run(t, tree, "deploy/check/boot", packages...))
}

// TestOtherSystems: the program compiles where no test of the tree runs, and its archives
// are those that their systems unpack.
func TestOtherSystems(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	o := options{tree: tree, out: t.TempDir(), version: "v0.2.0", targets: []string{"darwin/arm64", "windows/amd64"}, log: t.Output()}
	if err := release(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	windows, err := zip.OpenReader(filepath.Join(o.out, "wasmjob_0.2.0_windows_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer windows.Close()
	var names []string
	for _, f := range windows.File {
		names = append(names, f.Name)
	}
	if want := "wasmjob_0.2.0_windows_amd64/wasmjob.exe"; !slices.Contains(names, want) {
		t.Errorf("%s is not in the archive, which has %q", want, names)
	}
	if listed := run(t, o.out, "tar", "--list", "--gzip", "--file", "wasmjob_0.2.0_darwin_arm64.tar.gz"); !strings.Contains(listed, "wasmjob_0.2.0_darwin_arm64/wasmjob\n") {
		t.Errorf("the program is not in the archive\n%s", listed)
	}
	if _, err := os.Stat(filepath.Join(o.out, "wasmjob.rb")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a formula without all its archives: %v", err)
	}
}

// TestFormula: a formula and an image name the archives of the release, with their sums.
func TestFormula(t *testing.T) {
	t.Parallel()
	m := &made{options: options{tree: tree, out: t.TempDir(), version: "v0.2.0"}, number: "0.2.0"}
	var want []string
	for _, system := range []string{"darwin", "linux"} {
		for _, processor := range []string{"amd64", "arm64"} {
			name := filepath.Join(m.out, m.stem(target{system, processor})+".tar.gz")
			if err := os.WriteFile(name, []byte(system+processor), 0o600); err != nil {
				t.Fatal(err)
			}
			sum, _, err := sumOf(name)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, "/v0.2.0/wasmjob_0.2.0_"+system+"_"+processor+".tar.gz\"\n      sha256 \""+sum+"\"")
		}
	}
	if err := errors.Join(m.formula(), m.image()); err != nil {
		t.Fatal(err)
	}
	formula, err := os.ReadFile(filepath.Join(m.out, "wasmjob.rb"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !strings.Contains(string(formula), w) {
			t.Errorf("%s is not in\n%s", w, formula)
		}
	}
	image, err := os.ReadFile(filepath.Join(m.out, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"\nADD wasmjob_0.2.0_linux_${TARGETARCH}.tar.gz /\n", "\nCOPY --from=archive /wasmjob_0.2.0_linux_${TARGETARCH}/wasmjob /wasmjob\n", "\nUSER 65532:65532\n", "\nHEALTHCHECK "} {
		if !strings.Contains(string(image), w) {
			t.Errorf("%q is not in\n%s", w, image)
		}
	}
	if strings.Contains(string(image), "--from=build") {
		t.Errorf("the image copies from a stage that is not there\n%s", image)
	}
}

// TestRefused: what is wrong is said before anything is built or removed.
func TestRefused(t *testing.T) {
	t.Parallel()
	kept := t.TempDir()
	if err := os.WriteFile(filepath.Join(kept, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]options{
		`version "0.2.0"`:  {version: "0.2.0", out: kept},
		`version "v0.2"`:   {version: "v0.2", out: kept},
		"-out is missing":  {version: "v0.2.0"},
		`target "plan9/x"`: {version: "v0.2.0", out: kept, targets: []string{"plan9/x"}},
		"no such file":     {version: "v0.2.0", out: kept, targets: []string{"linux/amd64"}, key: filepath.Join(kept, "none")},
	} {
		o.tree, o.log = tree, io.Discard
		if err := release(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in the error %v", want, err)
		}
	}
	if _, err := os.Stat(filepath.Join(kept, "mine")); err != nil {
		t.Error(err)
	}
}
