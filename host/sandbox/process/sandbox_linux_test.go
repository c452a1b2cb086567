package process

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/wasm"
)

// probe tries what a worker process may not do, and tells what it could.
func probe() string {
	var could []string
	refused := func(what string, err error) {
		if err != unix.EPERM && err != unix.EACCES && err != unix.ENOSYS {
			could = append(could, fmt.Sprintf("%s (%v)", what, err))
		}
	}
	call := func(what string, number uintptr, args ...uintptr) {
		a := append(args, 0, 0, 0, 0, 0, 0)
		_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		refused(what, errno)
	}
	at := func(name string, flags int) error {
		fd, err := unix.Openat(unix.AT_FDCWD, name, flags, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	for _, name := range []string{"/etc/passwd", "/etc", "/proc/self/maps", "/proc/self/mem", "/dev/null", os.Args[0]} {
		refused("read "+name, at(name, unix.O_RDONLY))
	}
	refused("write /dev/null", at("/dev/null", unix.O_WRONLY))
	refused("create a file", at("/tmp/wasmjob-probe", unix.O_CREAT|unix.O_WRONLY))
	_, err := syscall.ForkExec("/bin/true", []string{"true"}, nil)
	refused("run /bin/true", err)
	path, err := unix.BytePtrFromString("/bin/true")
	if err != nil {
		return err.Error()
	}
	file := uintptr(unsafe.Pointer(path))
	call("execve", unix.SYS_EXECVE, file)
	call("execveat", unix.SYS_EXECVEAT, 0, file)
	if id, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0); errno == 0 && id == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	} else {
		refused("clone", errno)
	}
	call("clone3", unix.SYS_CLONE3)
	call("socket", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM)
	call("socketpair", unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM)
	call("a signal to the host", unix.SYS_KILL, uintptr(os.Getppid()), 0)
	call("a signal to a thread of the host", unix.SYS_TGKILL, uintptr(os.Getppid()), uintptr(os.Getppid()), 0)
	call("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(os.Getppid()))
	call("process_vm_readv", unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid()))
	call("pidfd_open", unix.SYS_PIDFD_OPEN, uintptr(os.Getppid()))
	call("prlimit", unix.SYS_PRLIMIT64)
	call("setrlimit", unix.SYS_SETRLIMIT)
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 1)
	call("bpf", unix.SYS_BPF)
	call("unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	call("mount", unix.SYS_MOUNT)
	call("memfd_create", unix.SYS_MEMFD_CREATE, file)
	call("fcntl F_SETOWN", unix.SYS_FCNTL, 0, unix.F_SETOWN, uintptr(os.Getppid()))
	call("prctl PR_SET_DUMPABLE", unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1)
	call("unlinkat", unix.SYS_UNLINKAT)
	call("ioctl", unix.SYS_IOCTL, 0, unix.TIOCSTI)
	if n := len(os.Environ()); n != 0 {
		could = append(could, fmt.Sprintf("see %d variables", n))
	}
	if dir, err := os.Getwd(); err == nil && dir != "/" {
		could = append(could, "stand in "+dir)
	}
	// Every thread is restricted, also those that were there before.
	done := make(chan error)
	for range 64 {
		go func() {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
			if err == nil {
				unix.Close(fd)
			}
			done <- err
		}()
	}
	for range 64 {
		refused("socket in another thread", <-done)
	}
	return "it could: " + strings.Join(could, "; ")
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	said := make(chan string, 9)
	w := workers(t, "probe", plugin.Options{}, Options{sandbox: func(s string) { said <- s }})
	executorOf(t, moduleOf(t, w, "wat/noop"), plugin.Settings{})
	if s := <-said; s != "it could: " {
		t.Errorf("found %q, expected a process that can do nothing", s)
	}
}

// TestLimits looks at a process from outside while it runs guests.
func TestLimits(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	one := worked(t, executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple, MemoryLimit: 1 << 20}))
	one.Execute(t.Context(), item(newRecorder(), "ok"))
	pid := one.(*worker).process.pid
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || dir != "/" {
		t.Errorf("it works in %q, %v", dir, err)
	}
	for file, want := range map[string][]string{
		"status":        {`NoNewPrivs:\s+1\n`, `Seccomp:\s+2\n`},
		"oom_score_adj": {`^500\n`},
		// What the process may have. It cannot raise it: the filter forbids that.
		"limits": {`Max core file size\s+0\s+0\s`, `Max file size\s+0\s+0\s`, `Max open files\s+64\s`, `Max data size\s+(\d+)\s`},
	} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range want {
			if !regexp.MustCompile(pattern).Match(text) {
				t.Errorf("%s: found no %s in\n%s", file, pattern, text)
			}
		}
	}
}

// TestDataLimit has a process take more memory than its guests may have: the kernel
// ends it, and what is admitted raises the limit.
func TestDataLimit(t *testing.T) {
	t.Parallel()
	w := workers(t, "good", plugin.Options{}, Options{})
	one := worked(t, executorOf(t, moduleOf(t, w, "c/guest"), plugin.Settings{Type: wasm.TypeSimple, MemoryLimit: 128 << 20}))
	one.Execute(t.Context(), item(newRecorder(), "ok"))
	limit := func() uint64 {
		var l unix.Rlimit
		if err := unix.Prlimit(one.(*worker).process.pid, unix.RLIMIT_DATA, nil, &l); err != nil {
			t.Fatal(err)
		}
		return l.Cur
	}
	before := limit()
	if before < baseData || before > 3*baseData {
		t.Errorf("a process with a small guest may have %d bytes of data", before)
	}
	one.Execute(t.Context(), item(newRecorder(), "grow"))
	if more := limit() - before; more < 110<<20 || more > 130<<20 {
		t.Errorf("after a guest has grown to 128 MiB its process may have %d bytes more", more)
	}
	hungry := workers(t, "hungry", plugin.Options{}, Options{})
	_, err := moduleOf(t, hungry, "wat/noop").Executor(t.Context(), plugin.Settings{}, "")
	// In the words of Go, or of the race detector.
	if !regexp.MustCompile(`the worker process ended \(.*\): .*(memory|failed to allocate)`).MatchString(fmt.Sprint(err)) {
		t.Errorf("found %v, expected the end of a process that wants too much memory", err)
	}
	if s := hungry.Stats(); s.Ended[CauseMemory] != s.Started { // it was tried once more
		t.Errorf("%+v, expected that all ended for want of memory", s)
	}
}

// hungry takes sixteen times the data that a process without guests may have, when it
// is to open a module.
func hungry() error {
	s := newSession(fromHost(os.Stdin), newWriter(os.Stdout))
	var q start
	if err := s.in.expect(kindStart, &q); err != nil {
		return err
	}
	if err := s.out.send(kindReady, s.start(&q, nil)); err != nil {
		return err
	}
	if _, _, err := s.in.next(); err != nil {
		return err
	}
	var all [][]byte
	for range 16 * baseData >> 20 {
		all = append(all, make([]byte, 1<<20))
	}
	return fmt.Errorf("%d MiB were to be had", len(all))
}
