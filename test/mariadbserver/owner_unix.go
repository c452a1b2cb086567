//go:build unix

package mariadbserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// owner is who runs the server in the place of root; nil is this process's user.
type owner struct{ uid, gid int }

// unprivileged is the package's user if this process is root's.
func unprivileged() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("mysql")
	if err != nil {
		return nil, fmt.Errorf("MariaDB refuses to run as root, and there is no other user for it: %w", err)
	}
	uid, err := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return &owner{uid, gid}, errors.Join(err, err2)
}

// own gives files to the owner.
func (o *owner) own(names ...string) error {
	if o == nil {
		return nil
	}
	for _, name := range names {
		if err := os.Chown(name, o.uid, o.gid); err != nil {
			return err
		}
	}
	return nil
}

// run has a command run as the owner, and out of the reach of the terminal's signals.
func (o *owner) run(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if o != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
	}
}
