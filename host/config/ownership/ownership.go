// Package ownership checks that no untrusted user can change, or read, a file or directory that a host trusts.
// Untrusted are all users except root and the host's own.
package ownership

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Kind is the purpose of a file. It decides which owner and mode the file may have.
type Kind int

// The kinds.
const (
	// Settings decide what the host does. If the host does not run as root they may belong to another account,
	// such as one that copies them from a repository. An author of settings for a host that runs as root acts
	// as root, so there they must be root's, and only root may write to them.
	Settings Kind = iota
	// Data is a directory with the host's data. It must belong to the host's user or root, and must not be
	// world-writable. It may be group-writable: Kubernetes volumes belong to root and are writable by the pod's
	// group.
	Data
	// Secret is a key, a password, or a file of identities. It must belong to the host's user or root, and no
	// other user may write to it. Others may read it: Kubernetes secrets and systemd credentials belong to root
	// and are readable by a group.
	Secret
	// Private is a token, or a directory with executable code. It must belong to the host's user or root, and
	// no other user may read it.
	Private
)

// forbidden are the bits of a mode that the kind does not allow, and wanted is an example of what it
// does.
func (k Kind) forbidden(dir bool) (bits, wanted fs.FileMode) {
	switch {
	case k == Private && dir:
		return 0o077, 0o700
	case k == Private:
		return 0o077, 0o600
	case k == Data:
		return 0o002, 0o700
	case k == Settings && dir:
		return 0o022, 0o755
	case k == Settings:
		return 0o022, 0o644
	}
	return 0o022, 0o600
}

// User is the id of the user who runs the host.
type User int

// Self is the user of this process.
func Self() User { return User(os.Geteuid()) }

// root is the user who may do everything anyway.
const root User = 0

// Error says who owns a file, or what mode it has, and what was expected.
type Error struct {
	// Name is the file's.
	Name string
	// Problem is what was found and what was expected, with a command that puts it right.
	Problem string
}

// Error is the name and the problem.
func (e *Error) Error() string { return e.Name + ": " + e.Problem }

// Check returns an *[Error] if the owner or the mode of a file is wrong. info was read through an open file or,
// for a symbolic link, from its target. On systems without owners it returns nil.
func (u User) Check(name string, info fs.FileInfo, k Kind) error {
	uid, known := owner(info)
	if !known || (k == Settings && u != root) {
		return nil
	}
	mode := info.Mode().Perm()
	if uid != u && uid != root {
		return &Error{name, fmt.Sprintf("belongs to user %d (mode %04o), expected %s, since who owns it can change it: chown %d %s", uid, mode, u.orRoot(), u, name)}
	}
	if bits, want := k.forbidden(info.IsDir()); mode&bits != 0 {
		what := "write to it"
		if k == Private {
			what = "read it or write to it"
		}
		return &Error{name, fmt.Sprintf("has mode %04o (owner: user %d), so that others can %s, expected %04o: chmod %o %s", mode, uid, what, want, want, name)}
	}
	return nil
}

// orRoot names the users that may own what the user trusts.
func (u User) orRoot() string {
	if u == root {
		return "root (0)"
	}
	return fmt.Sprintf("user %d, who runs this program, or root (0)", int(u))
}

// Path does what Check does for the file of that name. It follows symbolic links.
func (u User) Path(name string, k Kind) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	return u.Check(name, info, k)
}

// Parents returns an error if another user could replace the file through a directory above it: one that
// belongs to another user, or that is world-writable without the sticky bit of /tmp. For a user who is not root
// a world-writable directory of root is accepted: Kubernetes volumes are such. The name is absolute.
func (u User) Parents(name string) error {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	for real != filepath.Dir(real) {
		real = filepath.Dir(real)
		info, err := os.Stat(real)
		if err != nil {
			return err
		}
		uid, known := owner(info)
		if !known {
			return nil
		}
		mode := info.Mode()
		if uid != u && uid != root {
			return &Error{real, fmt.Sprintf("belongs to user %d (mode %04o), who can put something else in the place of %s; expected %s", uid, mode.Perm(), name, u.orRoot())}
		}
		open := mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0
		if open && (u == root || uid == u) {
			return &Error{real, fmt.Sprintf("has mode %04o (owner: user %d), so that every user can put something else in the place of %s; expected one that others cannot write to: chmod o-w %s", mode.Perm(), uid, name, real)}
		}
	}
	return nil
}

// Is reports whether the error is about an owner or a mode.
func Is(err error) bool { return errors.As(err, new(*Error)) }
