//go:build amd64 || arm64

package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

// judge runs the filter as the kernel does.
func (p program) judge(t *testing.T, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := map[uint32]uint32{offsetNumber: number, offsetArch: arch}
	for i, a := range args {
		data[offsetArgs+8*uint32(i)] = uint32(a)
	}
	var accumulator uint32
	for at := 0; at < len(p); at++ {
		in := p[at]
		jump := func(yes bool) {
			if yes {
				at += int(in.Jt)
			} else {
				at += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			accumulator = data[in.K]
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(accumulator == in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(accumulator&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d: %+v", at, in)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

// TestFilter judges calls by the filter alone; in the sandbox Landlock refuses some of
// them, too.
func TestFilter(t *testing.T) {
	t.Parallel()
	const pid = 4711
	p := filterFor(pid)
	const allow, no, unknown = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM), unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	for _, c := range []struct {
		name   string
		number uint32
		args   []uint64
		want   uint32
	}{
		{"read", unix.SYS_READ, nil, allow},
		{"exit_group", unix.SYS_EXIT_GROUP, nil, allow},
		{"a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"a process", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, no},
		{"a process with this memory", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK}, no},
		{"clone3", unix.SYS_CLONE3, nil, unknown},
		{"a signal to a thread here", unix.SYS_TGKILL, []uint64{pid, 1, 9}, allow},
		{"a signal to a thread elsewhere", unix.SYS_TGKILL, []uint64{pid + 1, 1, 9}, no},
		{"a signal", unix.SYS_KILL, []uint64{pid, 9}, no},
		{"open to read", unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW}, allow},
		{"open to write", unix.SYS_OPENAT, []uint64{0, 0, unix.O_WRONLY}, no},
		{"open to read and write", unix.SYS_OPENAT, []uint64{0, 0, unix.O_RDWR | unix.O_CLOEXEC}, no},
		{"create", unix.SYS_OPENAT, []uint64{0, 0, unix.O_CREAT}, no},
		{"truncate", unix.SYS_OPENAT, []uint64{0, 0, unix.O_TRUNC}, no},
		{"a file without a name", unix.SYS_OPENAT, []uint64{0, 0, unix.O_TMPFILE | unix.O_RDWR}, no},
		{"openat2", unix.SYS_OPENAT2, nil, unknown},
		{"a name for memory", unix.SYS_PRCTL, []uint64{unix.PR_SET_VMA}, allow},
		{"to be dumpable", unix.SYS_PRCTL, []uint64{unix.PR_SET_DUMPABLE, 1}, no},
		{"to be traced", unix.SYS_PRCTL, []uint64{unix.PR_SET_PTRACER}, no},
		{"flags of a file", unix.SYS_FCNTL, []uint64{0, unix.F_SETFL}, allow},
		{"an owner of a file", unix.SYS_FCNTL, []uint64{0, unix.F_SETOWN}, no},
		{"a signal of a file", unix.SYS_FCNTL, []uint64{0, unix.F_SETSIG}, no},
		{"execve", unix.SYS_EXECVE, nil, no},
		{"socket", unix.SYS_SOCKET, nil, no},
		{"ptrace", unix.SYS_PTRACE, nil, no},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, nil, no},
		{"a call of tomorrow", 9999, nil, no},
		{"read of the x32 kind", 0x40000000 | unix.SYS_READ, nil, no},
	} {
		if got := p.judge(t, auditArch, c.number, c.args...); got != c.want {
			t.Errorf("%s: %#x, expected %#x", c.name, got, c.want)
		}
	}
	if got := p.judge(t, auditArch+1, unix.SYS_READ); got != unix.SECCOMP_RET_KILL_PROCESS {
		t.Errorf("another architecture: %#x", got)
	}
}
