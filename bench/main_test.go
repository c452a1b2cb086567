package bench_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/host/sandbox/process"
)

// inside has guests run in this process, as those of jobs that are trusted do.
var inside = flag.Bool("inside", false, "run guests in the host's process, not in a worker process")

// The test binary is also the programs that a host starts.
const (
	workWord    = "work-for-benchmarks"
	compileWord = "compile-for-benchmarks"
)

func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == workWord:
		err = process.Serve(os.Stdin, os.Stdout)
	case len(os.Args) > 1 && os.Args[1] == compileWord:
		err = plugin.ServeCompile(os.Stdin, os.Stdout)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// itself is a command that starts this program once more.
func itself(words ...string) *exec.Cmd { return exec.Command("/proc/self/exe", words...) }
