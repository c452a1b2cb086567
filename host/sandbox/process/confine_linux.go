package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// bind makes the kernel kill the process when the host ends, and protects it from what a terminal sends to its
// programs, such as Ctrl-C.
func bind(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// restrict applies the sandbox to this process. The error is for a part that should have worked.
func restrict(q *start) (r ready, err error) {
	// If the machine is short of memory, guests end before hosts.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	if r.Data, err = dataSize(); err != nil {
		return r, err
	}
	for _, resource := range []int{unix.RLIMIT_FSIZE, unix.RLIMIT_CORE} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{}); err != nil {
			return r, fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	if _, err := llsys.LandlockGetABIVersion(); err != nil {
		r.Lacks = append(r.Lacks, lacksLandlock)
	} else if err := confineFiles(q); err != nil {
		return r, fmt.Errorf("landlock: %w", err)
	}
	supported, err := filter()
	if err != nil {
		return r, fmt.Errorf("seccomp: %w", err)
	}
	if !supported {
		r.Lacks = append(r.Lacks, lacksFilter)
	}
	return r, nil
}

// dataSize is how many bytes of data this process has, as RLIMIT_DATA counts them.
func dataSize() (uint64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // without /proc it is little beside what it may have
	}
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(statm))
	if len(f) < 6 {
		return 0, fmt.Errorf("/proc/self/statm: found %d numbers, expected 7", len(f))
	}
	pages, err := strconv.ParseUint(f[5], 10, 64)
	if err != nil {
		return 0, err
	}
	return pages * uint64(os.Getpagesize()), nil
}

// confineFiles leaves only the compiled code and the mounts readable, and no network.
func confineFiles(q *start) error {
	const read = llsys.AccessFSReadFile | llsys.AccessFSReadDir
	dirs := slices.Clone(q.Readable)
	if q.Dir != "" {
		dirs = append(dirs, q.Dir)
	}
	// A missing mount is reported by the guest that uses it.
	return landlock.V11.BestEffort().Restrict(landlock.PathAccess(read, dirs...).IgnoreIfMissing())
}
