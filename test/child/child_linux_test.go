package child

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the process that starts a child, and dies of SIGKILL.
const parentWord = "parent-for-tests"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == parentWord {
		cmd := exec.Command("sleep", "3600")
		if err := Start(cmd, func(error) {}); err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(cmd.Process.Pid) + "\n")
		time.Sleep(time.Hour)
	}
	goleak.VerifyTestMain(m)
}

func TestStart(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	if err := Start(exec.Command("sh", "-c", "exit 3"), func(err error) { ended <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || err.Error() != "exit status 3" {
		t.Errorf("it ends with %v", err)
	}
	if err := Start(exec.Command("/does/not/exist"), func(error) { t.Error("what did not start has ended") }); err == nil {
		t.Error("what is not there was started")
	}
}

// A child goes when its parent is killed.
func TestGoesWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0], parentWord)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed
	for deadline := time.Now().Add(30 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child lives")
		}
	}
}

// alive reports whether there is a process that is no zombie: its new parent may not wait for it.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
