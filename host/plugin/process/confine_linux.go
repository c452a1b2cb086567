package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// bind has the kernel kill the process when the host ends, and keeps from it what a
// terminal sends to its programs, such as Ctrl-C.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// restrict closes the sandbox around this process. It names what the system lacks
// for that; the error is for what should have worked.
func restrict(q *start) (lacks []string, err error) {
	// If the machine is short of memory, guests end before hosts.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	if err := limit(q); err != nil {
		return nil, err
	}
	if _, err := llsys.LandlockGetABIVersion(); err != nil {
		lacks = append(lacks, lacksLandlock)
	} else if err := confineFiles(q); err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	supported, err := filter()
	if err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	if !supported {
		lacks = append(lacks, lacksFilter)
	}
	return lacks, nil
}

// limit sets the limits that a process may set for itself.
func limit(q *start) error {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	f := strings.Fields(string(statm))
	if len(f) < 6 {
		return fmt.Errorf("/proc/self/statm: found %d numbers, expected 7", len(f))
	}
	pages, err := strconv.ParseUint(f[5], 10, 64)
	if err != nil {
		return err
	}
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA:   pages*uint64(os.Getpagesize()) + q.Data,
		unix.RLIMIT_NOFILE: q.Files,
		unix.RLIMIT_FSIZE:  0,
		unix.RLIMIT_CORE:   0,
	} {
		var old unix.Rlimit
		if err := unix.Getrlimit(resource, &old); err != nil {
			return err
		}
		most = min(most, old.Max)
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	return nil
}

// confineFiles leaves the compiled code and the mounts to be read, and no network.
func confineFiles(q *start) error {
	const read = llsys.AccessFSReadFile | llsys.AccessFSReadDir
	var dirs []string
	if q.Dir != "" {
		dirs = append(dirs, q.Dir)
	}
	for _, m := range q.Settings.Mounts {
		if !m.Write { // else the host does what there is to do
			dirs = append(dirs, m.Host)
		}
	}
	// A mount that is missing is a matter of the guest that wants it.
	return landlock.V11.BestEffort().Restrict(landlock.PathAccess(read, dirs...).IgnoreIfMissing())
}
