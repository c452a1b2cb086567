package signature

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newKey(t *testing.T) Private {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sign(t *testing.T, k Private, module string) []byte {
	t.Helper()
	sig, err := k.Sign([]byte(module), "m.wasm", time.Unix(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const module = "a module"
	a, b := newKey(t), newKey(t)
	keys := []Key{b.Public("ci"), a.Public("release")}
	good := sign(t, a, module)
	edited := bytes.Replace(good, []byte("file:m.wasm"), []byte("file:n.wasm"), 1)
	for name, c := range map[string]struct {
		module string
		sig    []byte
		keys   []Key
		want   error
	}{
		"good":                     {module, good, keys, nil},
		"stripped":                 {module, nil, keys, ErrMissing},
		"of another file":          {module, sign(t, a, "another"), keys, ErrMismatch},
		"module changed":           {module + "!", good, keys, ErrMismatch},
		"trusted comment changed":  {module, edited, keys, ErrMismatch},
		"by another key":           {module, good, keys[:1], ErrUnknownKey},
		"no keys":                  {module, good, nil, ErrUnknownKey},
		"cut":                      {module, good[:len(good)/2], keys, ErrMalformed},
		"no signature":             {module, []byte("hello\n"), keys, ErrMalformed},
		"too long":                 {module, append(bytes.Clone(good), make([]byte, MaxSize)...), keys, ErrMalformed},
		"key with the same number": {module, good, []Key{{"forged", b.Public("").public}}, ErrUnknownKey},
	} {
		signer, err := Check([]byte(c.module), c.sig, c.keys)
		if !errors.Is(err, c.want) || (err == nil) != (signer == "release") {
			t.Errorf("%s: got %q, %v; expected %v", name, signer, err, c.want)
		}
	}
}

// Signatures and keys that minisign 0.11 made, of both kinds that it knows.
func TestVectors(t *testing.T) {
	t.Parallel()
	module := read(t, "testdata/empty.wasm")
	key, err := ParseKey("vector", string(read(t, "testdata/minisign.pub")))
	if err != nil {
		t.Fatal(err)
	}
	if want := "2049ACFAE191B62C"; key.ID() != want {
		t.Errorf("the key is %s, expected %s", key.ID(), want)
	}
	if again, err := ParseKey("vector", key.String()); err != nil || again.String() != key.String() {
		t.Errorf("%v: %v", again, err)
	}
	for _, name := range []string{"testdata/empty.wasm.minisig", "testdata/legacy.wasm.minisig"} {
		if signer, err := Check(module, read(t, name), []Key{key}); err != nil || signer != "vector" {
			t.Errorf("%s: %q, %v", name, signer, err)
		}
	}
	private, err := ParsePrivate(read(t, "testdata/minisign.key"), "")
	if err != nil || private.Public("").String() != key.String() {
		t.Errorf("the private key: %v", err)
	}
}

// What is signed here, minisign takes, and the other way round.
func TestProgram(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("minisign")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip("there is no minisign here; the vectors are checked")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
			t.Fatalf("minisign %q: %v\n%s", args, err, out)
		}
	}
	write := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(at(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	module := []byte("a module")
	write("m.wasm", module)
	key := newKey(t)
	private, public, err := key.Files("")
	if err != nil {
		t.Fatal(err)
	}
	write("k.key", private)
	write("k.pub", public)
	write("m.wasm"+Suffix, sign(t, key, string(module)))
	run("-V", "-m", at("m.wasm"), "-p", at("k.pub"))

	if err := os.Remove(at("m.wasm" + Suffix)); err != nil {
		t.Fatal(err)
	}
	run("-S", "-s", at("k.key"), "-m", at("m.wasm"))
	sig, err := Read(at("m.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if signer, err := Check(module, sig, []Key{key.Public("me")}); err != nil || signer != "me" {
		t.Errorf("%q, %v", signer, err)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	module := filepath.Join(t.TempDir(), "m.wasm")
	if _, err := Read(module); !errors.Is(err, ErrMissing) {
		t.Errorf("none: %v", err)
	}
	for text, want := range map[string]error{"": ErrMalformed, strings.Repeat("x", MaxSize+1): ErrMalformed} {
		if err := os.WriteFile(module+Suffix, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(module); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
	if err := os.Remove(module + Suffix); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(module+Suffix, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(module); err == nil {
		t.Error("a directory is taken")
	}
}

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "RWQ", "hello", string(read(t, "testdata/minisign.key"))} {
		if _, err := ParseKey("x", text); err == nil || !strings.Contains(err.Error(), "expected a text such as RWQ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"", "RWQ", string(read(t, "testdata/minisign.pub"))} {
		if _, err := ParsePrivate([]byte(text), ""); err == nil || errors.Is(err, ErrPassword) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The key is that of minisign.key, encrypted with less effort than minisign takes.
func TestPassword(t *testing.T) {
	t.Parallel()
	file := read(t, "testdata/encrypted.key")
	if !Encrypted(file) || Encrypted(read(t, "testdata/minisign.key")) {
		t.Error("which of the keys is encrypted is not seen")
	}
	for _, password := range []string{"", "shut"} {
		if _, err := ParsePrivate(file, password); !errors.Is(err, ErrPassword) {
			t.Errorf("with %q: %v", password, err)
		}
	}
	plain, err := ParsePrivate(read(t, "testdata/minisign.key"), "")
	if err != nil {
		t.Fatal(err)
	}
	if k, err := ParsePrivate(file, "open sesame"); err != nil || k.Public("").String() != plain.Public("").String() {
		t.Errorf("%v", err)
	}
}

// Encrypting takes a second and a gigabyte, and minutes under the race detector: make
// test runs this again without it.
func TestEncrypt(t *testing.T) {
	if raceEnabled {
		t.Skip("it takes too long under the race detector")
	}
	key := newKey(t)
	private, _, err := key.Files("open sesame")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParsePrivate(private, "open sesame"); err != nil || again.Public("").String() != key.Public("").String() {
		t.Errorf("%v", err)
	}
}
