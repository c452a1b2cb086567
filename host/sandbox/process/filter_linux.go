//go:build amd64 || arm64

package process

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of a worker process: those that Go's runtime, reading files and pipes need. Everything else
// is refused with EPERM: other processes, signals to them, the network, writing, new privileges and limits,
// io_uring, bpf, keys. A filter cannot check pointers, so Landlock decides which files may be opened.

// always are allowed with any arguments.
func always() []uint32 {
	return append([]uint32{
		unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_NANOSLEEP, unix.SYS_EPOLL_PWAIT, unix.SYS_MADVISE, unix.SYS_MPROTECT,
		unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MINCORE, unix.SYS_BRK,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETTID, unix.SYS_GETPID,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS,
		unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
		unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
		unix.SYS_CLOSE, unix.SYS_PREAD64, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_LSEEK, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_GETDENTS64,
		unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}, alwaysHere()...)
}

// Offsets in struct seccomp_data; of an argument, its lower half.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
)

// program is the filter.
type program []unix.SockFilter

func (p *program) add(code uint16, k uint32, yes, no uint8) {
	*p = append(*p, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (p *program) load(offset uint32) { p.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
func (p *program) ret(action uint32)  { p.add(unix.BPF_RET|unix.BPF_K, action, 0, 0) }

// refuse ends the program with an error.
func (p *program) refuse(e unix.Errno) { p.ret(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// skipUnless jumps over the next n instructions unless the call is this one.
func (p *program) skipUnless(number uint32, n uint8) {
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, n)
}

// oneOf allows the call if the argument is one of the values.
func (p *program) oneOf(number uint32, arg int, values ...uint32) {
	p.skipUnless(number, uint8(2+2*len(values)))
	p.load(offsetArgs + 8*uint32(arg))
	for _, v := range values {
		p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, v, 0, 1)
		p.ret(unix.SECCOMP_RET_ALLOW)
	}
	p.refuse(unix.EPERM)
}

// bits allows the call if the argument has one of the bits, or if it has none.
func (p *program) bits(number uint32, arg int, bits uint32, has bool) {
	p.skipUnless(number, 4)
	p.load(offsetArgs + 8*uint32(arg))
	yes, no := uint8(0), uint8(1)
	if !has {
		yes, no = 1, 0
	}
	p.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, bits, yes, no)
	p.ret(unix.SECCOMP_RET_ALLOW)
	p.refuse(unix.EPERM)
}

// filterFor is the filter of the process with the id.
func filterFor(pid int) program {
	var p program
	p.load(offsetArch)
	p.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0)
	p.ret(unix.SECCOMP_RET_KILL_PROCESS) // another architecture's calls have other numbers
	p.load(offsetNumber)
	for _, number := range always() {
		p.skipUnless(number, 1)
		p.ret(unix.SECCOMP_RET_ALLOW)
	}
	// A thread, not a process. The flags of clone3 are behind a pointer; if it is refused, Go uses clone.
	p.bits(unix.SYS_CLONE, 0, unix.CLONE_THREAD, true)
	p.skipUnless(unix.SYS_CLONE3, 1)
	p.refuse(unix.ENOSYS)
	// A signal to a thread of this process: how Go preempts goroutines.
	p.oneOf(unix.SYS_TGKILL, 0, uint32(pid))
	// Names for memory. Nothing else.
	p.oneOf(unix.SYS_PRCTL, 0, unix.PR_SET_VMA)
	// Opening to read. openat2 hides its flags.
	p.bits(unix.SYS_OPENAT, 2, unix.O_WRONLY|unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_APPEND, false)
	p.skipUnless(unix.SYS_OPENAT2, 1)
	p.refuse(unix.ENOSYS)
	// Not F_SETOWN and F_SETSIG, with which a signal can be sent to any process.
	p.oneOf(unix.SYS_FCNTL, 1, unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD_CLOEXEC)
	p.refuse(unix.EPERM)
	return p
}

// filter puts all threads of the process under the filter. It reports false if the
// kernel has none.
func filter() (bool, error) {
	p := filterFor(os.Getpid())
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// The filter applies what is set for this thread to all threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, err
	}
	thread, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	switch {
	case errno == unix.ENOSYS:
		return false, nil
	case errno != 0:
		return false, errno
	case thread != 0:
		return false, errors.New("a thread of the process has a filter of its own")
	}
	return true, nil
}
