package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/config/ownership"
)

func TestTokenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "token")
	made, err := TokenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if again, err := TokenFile(name); err != nil || again != made || len(made) < minToken {
		t.Fatalf("%q then %q, %v", made, again, err)
	}
	if other := NewToken(); other == made {
		t.Fatal("two tokens are the same")
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := TokenFile(name); err == nil || !strings.Contains(err.Error(), "token file "+name+": has mode 0644") || !strings.Contains(err.Error(), "chmod 600 "+name) {
		t.Fatalf("a file that others can read: %v", err)
	}
	for content, what := range map[string]string{"short": "short", "two words that are long enough": "words", "": "empty"} {
		bad := filepath.Join(dir, what)
		if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := TokenFile(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := TokenFile(filepath.Join(dir, "no", "token")); err == nil {
		t.Error("a missing directory is taken")
	}
}

// TestTokenFileOwner: a host takes no token that another user can choose; root as a client does.
func TestTokenFileOwner(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "token")
	if _, err := TokenFile(name); err != nil {
		t.Fatal(err)
	}
	u := ownership.Self()
	if u != 0 {
		u++ // to whom this user is another one
	} else if err := os.Chown(name, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := tokenFile(u, name); err == nil || !strings.Contains(err.Error(), "token file "+name+": belongs to user ") {
		t.Errorf("%v, expected that it belongs to another user", err)
	}
	if _, err := ReadTokenFile(name); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(name, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTokenFile(name); err == nil || !strings.Contains(err.Error(), "token file "+name+": its mode is 0640") {
		t.Errorf("a client takes a file that others can read: %v", err)
	}
}
