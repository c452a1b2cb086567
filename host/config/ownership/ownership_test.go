//go:build unix

package ownership

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// entry is a file of somebody's.
type entry struct {
	uid  uint32
	mode fs.FileMode
}

func (e entry) Name() string       { return "f" }
func (e entry) Size() int64        { return 0 }
func (e entry) Mode() fs.FileMode  { return e.mode }
func (e entry) ModTime() time.Time { return time.Time{} }
func (e entry) IsDir() bool        { return e.mode.IsDir() }
func (e entry) Sys() any           { return &syscall.Stat_t{Uid: e.uid} }

func TestCheck(t *testing.T) {
	t.Parallel()
	const me, other = 1000, 65534
	dir := fs.ModeDir
	for _, c := range []struct {
		name string
		user User
		e    entry
		kind Kind
		want string // empty: it is taken
	}{
		{"own token", me, entry{me, 0o600}, Private, ""},
		{"root's token for a host that is not root", me, entry{0, 0o400}, Private, ""},
		{"another's token", me, entry{other, 0o600}, Private, "f: belongs to user 65534 (mode 0600), expected user 1000, who runs this program, or root (0), since who owns it can change it: chown 1000 f"},
		{"another's token for root", 0, entry{other, 0o600}, Private, "f: belongs to user 65534 (mode 0600), expected root (0), since who owns it can change it: chown 0 f"},
		{"token that a group reads", me, entry{me, 0o640}, Private, "f: has mode 0640 (owner: user 1000), so that others can read it or write to it, expected 0600: chmod 600 f"},
		{"own cache", 0, entry{0, dir | 0o700}, Private, ""},
		{"another's cache for root", 0, entry{other, dir | 0o700}, Private, "belongs to user 65534 (mode 0700), expected root (0)"},
		{"cache that others read", 0, entry{0, dir | 0o755}, Private, "has mode 0755 (owner: user 0), so that others can read it or write to it, expected 0700: chmod 700 f"},
		{"Kubernetes' secret", me, entry{0, 0o440}, Secret, ""},
		{"Kubernetes' secret of the default mode", me, entry{0, 0o644}, Secret, ""},
		{"own key", me, entry{me, 0o600}, Secret, ""},
		{"another's key", me, entry{other, 0o600}, Secret, "belongs to user 65534"},
		{"another's key for root", 0, entry{me, 0o600}, Secret, "belongs to user 1000 (mode 0600), expected root (0)"},
		{"key that a group writes to", me, entry{me, 0o660}, Secret, "so that others can write to it, expected 0600"},
		{"key that everybody writes to", me, entry{0, 0o602}, Secret, "so that others can write to it"},
		{"own data", me, entry{me, dir | 0o755}, Data, ""},
		{"Kubernetes' volume", me, entry{0, dir | fs.ModeSetgid | 0o775}, Data, ""},
		{"another's data", me, entry{other, dir | 0o700}, Data, "belongs to user 65534"},
		{"another's data for root", 0, entry{me, dir | 0o700}, Data, "belongs to user 1000"},
		{"data that everybody writes to", me, entry{me, dir | 0o777}, Data, "has mode 0777"},
		{"another's settings", me, entry{other, 0o666}, Settings, ""},
		{"another's settings for root", 0, entry{other, 0o644}, Settings, "belongs to user 65534 (mode 0644), expected root (0)"},
		{"settings of root that a group writes to", 0, entry{0, 0o664}, Settings, "so that others can write to it, expected 0644: chmod 644 f"},
		{"directory of settings of root that everybody writes to", 0, entry{0, dir | 0o777}, Settings, "expected 0755: chmod 755 f"},
		{"settings of root", 0, entry{0, 0o644}, Settings, ""},
	} {
		err := c.user.Check("f", c.e, c.kind)
		if (err == nil) != (c.want == "") || (err != nil && (!strings.Contains(err.Error(), c.want) || !Is(err))) {
			t.Errorf("%s: %v, expected %q", c.name, err, c.want)
		}
	}
}

// Path looks at what a link leads to: secrets of Kubernetes are links.
func TestPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := Self().Path(link, Private); err != nil {
		t.Error(err)
	}
	// To another user it is somebody else's, unless it is root's.
	stranger := Self() + 1
	want := "belongs to user"
	if err := stranger.Path(link, Private); Self() != root && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%v, expected %q", err, want)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := Self().Path(link, Private); err == nil || !strings.Contains(err.Error(), "has mode 0640") {
		t.Error(err)
	}
	if err := Self().Path(filepath.Join(dir, "none"), Private); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestParents(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	middle := filepath.Join(top, "middle")
	cache := filepath.Join(middle, "cache")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(cache, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode fs.FileMode
		want string
	}{
		{0o755, ""},
		{0o775, ""},
		{0o777 | fs.ModeSticky, ""},
		{0o777, middle + ": has mode 0777 (owner: user "},
	} {
		if err := os.Chmod(middle, c.mode); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{cache, link} {
			err := Self().Parents(name)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, mode %s: %v, expected %q", name, c.mode, err, c.want)
			}
		}
	}
	if err := os.Chmod(middle, 0o755); err != nil {
		t.Fatal(err)
	}
	if Self() == root {
		if err := os.Chown(middle, 65534, -1); err != nil {
			t.Fatal(err)
		}
		if err := root.Parents(cache); err == nil || !strings.Contains(err.Error(), middle+": belongs to user 65534 (mode 0755), who can put something else in the place of "+cache) {
			t.Error(err)
		}
		return
	}
	if err := (Self() + 1).Parents(cache); err == nil || !strings.Contains(err.Error(), "who can put something else in the place of "+cache) {
		t.Error(err)
	}
}
