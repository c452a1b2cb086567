package main

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"aead.dev/minisign"
	"github.com/spf13/cobra/doc"

	"github.com/wasmjob/wasmjob/host/node/program"
)

// options are what a release is made of.
type options struct {
	tree    string // with the sources
	out     string // for the files
	version string // with its v
	targets []string
	// key is the file of the private key that signs, with its password; empty: nothing
	// is signed.
	key, password string
	// cosign is the same for cosign.
	cosign, cosignPassword string
	log                    io.Writer
}

// target is a system and a processor. Windows has the commands that ask hosts, and no
// host.
type target struct{ system, processor string }

func allTargets() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}
}

// versions are those that packages, tags and formulas all take.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[a-z0-9.]+)?$`)

// made is a release as it grows.
type made struct {
	options
	signer   *minisign.PrivateKey // nil: nothing is signed
	cosigner *ecdsa.PrivateKey    // the same of cosign
	number   string               // the version without its v
	time     time.Time            // of all files
	files    string               // a temporary directory with what archives and packages share
}

// release makes all files. What is in the directory for them is removed first, so that
// the checksums are those of this release.
func release(ctx context.Context, o options) (err error) {
	if !versions.MatchString(o.version) {
		return fmt.Errorf("version %q: want one like v0.2.0 or v0.2.0-rc.1", o.version)
	}
	if o.out == "" {
		return errors.New("-out is missing")
	}
	var targets []target
	for _, name := range o.targets {
		if !slices.Contains(allTargets(), name) {
			return fmt.Errorf("target %q: want some of %s", name, strings.Join(allTargets(), ", "))
		}
		system, processor, _ := strings.Cut(name, "/")
		targets = append(targets, target{system, processor})
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if o.tree, err = filepath.Abs(o.tree); err != nil {
		return err
	}
	m := &made{options: o, number: strings.TrimPrefix(o.version, "v")}
	if m.signer, err = o.signer(); err != nil {
		return fmt.Errorf("%s: %w", keyVariable, err)
	}
	if m.cosigner, err = o.cosignKey(); err != nil {
		return fmt.Errorf("%s: %w", cosignVariable, err)
	}
	if m.time, err = timeOf(ctx, o.tree); err != nil {
		return err
	}
	if m.files, err = os.MkdirTemp("", "wasmjob-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.files)) }()
	if err := os.RemoveAll(o.out); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := m.describe(); err != nil {
		return err
	}
	for _, t := range targets {
		begun := time.Now()
		if err := m.target(ctx, t); err != nil {
			return fmt.Errorf("%s/%s: %w", t.system, t.processor, err)
		}
		fmt.Fprintf(o.log, "%s/%s took %s\n", t.system, t.processor, time.Since(begun).Round(time.Second))
	}
	if err := m.formula(); err != nil {
		return err
	}
	if err := m.image(); err != nil {
		return err
	}
	return m.checksums()
}

// timeOf is the time of all files: SOURCE_DATE_EPOCH, or that of the newest commit.
func timeOf(ctx context.Context, tree string) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", tree, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the newest commit: %w (without a repository set SOURCE_DATE_EPOCH)", err)
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// describe writes what the commands say of themselves: man pages and completions.
func (m *made) describe() error {
	root := program.Commands()
	root.DisableAutoGenTag = true
	man := filepath.Join(m.files, "man")
	if err := os.Mkdir(man, 0o755); err != nil {
		return err
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &m.time, Source: "wasmjob " + m.number, Manual: "wasmjob"}, man); err != nil {
		return err
	}
	completions := filepath.Join(m.files, "completions")
	if err := os.Mkdir(completions, 0o755); err != nil {
		return err
	}
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(completions, "wasmjob.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "_wasmjob")),
		root.GenFishCompletionFile(filepath.Join(completions, "wasmjob.fish"), true),
	)
}

// target makes the files of a system and processor.
func (m *made) target(ctx context.Context, t target) error {
	file := filepath.Join(m.files, t.system+"_"+t.processor, t.programName())
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto",
		"-ldflags", "-s -w -X github.com/wasmjob/wasmjob/host/node/program.version="+m.version, "-o", file, "./cmd/wasmjob")
	build.Dir = m.tree
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.system, "GOARCH="+t.processor, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS="+withoutSettings(os.Getenv("GOFLAGS")))
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	if err := m.materials(t, file); err != nil {
		return err
	}
	if err := m.archive(t, file); err != nil {
		return err
	}
	if t.system != "linux" {
		return nil
	}
	return m.packages(t, file)
}

// withoutSettings are GOFLAGS of which no release depends: how much at once.
func withoutSettings(flags string) string {
	var kept []string
	for f := range strings.FieldsSeq(flags) {
		if strings.HasPrefix(f, "-p=") {
			kept = append(kept, f)
		}
	}
	return strings.Join(kept, " ")
}

func (t target) programName() string {
	if t.system == "windows" {
		return "wasmjob.exe"
	}
	return "wasmjob"
}

// stem is the name of the target's files without an ending.
func (m *made) stem(t target) string {
	return "wasmjob_" + m.number + "_" + t.system + "_" + t.processor
}

// checksums writes SHA256SUMS, in the form that sha256sum -c reads, and signs it.
func (m *made) checksums() error {
	entries, err := os.ReadDir(m.out)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries { // by name
		sum, size, err := sumOf(filepath.Join(m.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, e.Name())
		fmt.Fprintf(m.log, "%9.1f MB  %s\n", float64(size)/1e6, e.Name())
	}
	const name = "SHA256SUMS"
	if err := os.WriteFile(filepath.Join(m.out, name), []byte(b.String()), 0o644); err != nil {
		return err
	}
	if m.cosigner == nil {
		fmt.Fprintf(m.log, "%s has no signature of cosign: %s names no key\n", name, cosignVariable)
	} else if signature, err := cosigned(m.cosigner, []byte(b.String())); err != nil {
		return fmt.Errorf("%s: %w", cosignVariable, err)
	} else if err := os.WriteFile(filepath.Join(m.out, name+".sigstore.json"), signature, 0o644); err != nil {
		return err
	}
	if m.signer == nil {
		fmt.Fprintf(m.log, "%s has no signature of minisign: %s names no key\n", name, keyVariable)
		return nil
	}
	// The comment that is signed has the version, so that an old release cannot be passed
	// off as a new one.
	trusted := fmt.Sprintf("timestamp:%d\tfile:%s\twasmjob %s", m.time.Unix(), name, m.version)
	signature := minisign.SignWithComments(*m.signer, []byte(b.String()), trusted, "signature of wasmjob "+m.version)
	return os.WriteFile(filepath.Join(m.out, name+".minisig"), signature, 0o644)
}

// signer reads the key; nil if there is none.
func (o options) signer() (*minisign.PrivateKey, error) {
	if o.key == "" {
		return nil, nil
	}
	file, err := os.ReadFile(o.key)
	if err != nil {
		return nil, err
	}
	var key minisign.PrivateKey
	if minisign.IsEncrypted(file) {
		if key, err = minisign.DecryptKey(o.password, file); err != nil {
			return nil, fmt.Errorf("%s: %w (%s has the password)", o.key, err, passwordVariable)
		}
	} else if err := key.UnmarshalText(file); err != nil {
		return nil, fmt.Errorf("%s is not a private key of minisign: %w", o.key, err)
	}
	return &key, nil
}

// sumOf is a file's SHA-256 in hexadecimal digits, and its size.
func sumOf(name string) (sum string, size int64, err error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	size, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), size, cmp.Or(err, f.Close())
}
