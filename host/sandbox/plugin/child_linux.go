package plugin

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// detach protects a compiling process from what a terminal sends to its programs, such as Ctrl-C: its host
// decides when it ends.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// confine gives this process a lower priority than its host, and limits its data to memory bytes more than now.
// It ignores what the system refuses: the host has limits of its own.
func confine(memory uint64) {
	if syscall.Getpgrp() == os.Getpid() { // see detach
		// All threads of the group; PRIO_PROCESS is one thread on Linux.
		_ = syscall.Setpriority(syscall.PRIO_PGRP, 0, childPriority)
	}
	// If the machine is short of memory, end this process first.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return
	}
	if f := strings.Fields(string(statm)); len(f) > 5 {
		if pages, err := strconv.ParseUint(f[5], 10, 64); err == nil {
			most := memory + pages*uint64(os.Getpagesize())
			_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: most, Max: most})
		}
	}
}

// codeMapped is how many bytes of anonymous executable memory this process has.
func codeMapped() (sum int64) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		f := strings.Fields(lines.Text()) // addresses, permissions, offset, device, inode, name
		if len(f) != 5 || !strings.Contains(f[1], "x") || f[4] != "0" {
			continue
		}
		begin, end, _ := strings.Cut(f[0], "-")
		from, err1 := strconv.ParseUint(begin, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		if err1 == nil && err2 == nil && to > from {
			sum += int64(to - from)
		}
	}
	return sum
}
