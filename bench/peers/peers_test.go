//go:build peers

package peers_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/zkserver"
)

var (
	version = flag.String("elasticjob", "3.0.4", "version of ElasticJob, 3.0.4 or 3.0.5")
	sizes   = flag.String("items", "1,10,100", "items of a job whose fires are measured")
	hosts   = flag.String("hosts", "1,3", "numbers of hosts")
	crashed = flag.String("crashed", "1,10", "running items of a host that is killed")
	more    = flag.String("more", "100,1000", "the same, for ours only")
	divided = flag.Int("divided", 10_000, "items that are divided anew")
	jobs    = flag.Int("jobs", 200, "jobs of a host that is started")
	seconds = flag.Int("seconds", 3, "how long fires per second are counted")
	settle  = flag.Duration("settle", 5*time.Second, "how long hosts and server have with more jobs until fires per second are counted")
	large   = flag.Bool("large", false, "also divide 100,000 items among 100 hosts of ours")
	golang  = flag.Bool("go", false, "ours run a guest in Go, built like the examples, instead of one in C")
	inside  = flag.Bool("inside", false, "ours run guests in the host's own process")
	output  = flag.String("output", "", "file for the tables, besides stdout")
)

// sessionTimeout is that of all hosts of both kinds.
const sessionTimeout = 6 * time.Second

const (
	// cycles is how many fires of each job are measured.
	cycles = 5
	// startLimit is how long hosts may take to have some more jobs.
	startLimit = 10 * time.Second
	// windows is how often fires are counted at one rate at most: as long as it is
	// not held and more of them run than before. What is new to so many, such as a
	// Java program that is still being compiled, gets faster for a while.
	windows = 4
	// divideLimit is how long a division may take.
	divideLimit = 45 * time.Second
)

// never is a cron expression that nobody lives to see fire.
const never = "0 0 0 1 1 ? 2090"

// shared is what all measurements use.
var shared struct {
	program, cache string
	guest          string // of ours, that does nothing
	servers        *zkserver.Ensemble
	report         strings.Builder
}

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "wasmjob-peers-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shared.program, shared.cache = filepath.Join(dir, "wasmjob"), filepath.Join(dir, "cache")
	shared.guest = filepath.Join("..", "..", "host", "sandbox", "plugin", "testdata", "c", "guest.wasm")
	builds := [][]string{{"go", "build", "-o", shared.program, "../../cmd/host"}, {"../../test/interop/java/build", *version}}
	if *golang {
		shared.guest = filepath.Join(dir, "noop.wasm")
		builds = append(builds, []string{"env", "GOOS=wasip1", "GOARCH=wasm", "go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", shared.guest, "../testdata/noop"})
	}
	for _, args := range builds {
		c := exec.Command(args[0], args[1:]...)
		c.Stderr = os.Stderr
		if err := c.Run(); err != nil {
			return 0, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// What is measured is the hosts; the disk of this machine is not.
	shared.servers, err = zkserver.Start(ctx, zkserver.Options{
		Dir: filepath.Join(dir, "zookeeper"), TickTime: 500 * time.Millisecond, NoSync: true, Measured: true, JavaArgs: []string{"-Xmx2g"},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.servers.Close()) }()
	describe()
	code = m.Run()
	fmt.Print(shared.report.String())
	if *output != "" {
		err = os.WriteFile(*output, []byte(shared.report.String()), 0o644)
	}
	return code, err
}

func say(format string, args ...any) { fmt.Fprintf(&shared.report, format, args...) }

// describe says what the tables were made on.
func describe() {
	say("%s. %s/%s, %d processors%s; %s; load before: %s. ZooKeeper stands alone on the same machine and does not\nwait for the disk; its heap may have 2 GB. ElasticJob %s. The JVM settings of all are the defaults.\n",
		time.Now().UTC().Format("2006-01-02 15:04"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor(), runtime.Version(), load(), *version)
}

func processor() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return " (" + strings.TrimSpace(value) + ")"
		}
	}
	return ""
}

func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

func numbers(t *testing.T, text string) (list []int) {
	t.Helper()
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			t.Fatalf("%q in %q, expected numbers from 1, joined by commas", part, text)
		}
		list = append(list, n)
	}
	return list
}

// median of a list that is not empty.
func median[T int | float64 | time.Duration](list []T) T {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

func ms(d time.Duration) string {
	switch f := float64(d) / float64(time.Millisecond); {
	case f < 10:
		return fmt.Sprintf("%.1f ms", f)
	case f < 10_000:
		return fmt.Sprintf("%.0f ms", f)
	default:
		return fmt.Sprintf("%.1f s", f/1000)
	}
}

func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	if r := a / b; r < 10 {
		return fmt.Sprintf("%.1f", r)
	} else {
		return fmt.Sprintf("%.0f", r)
	}
}
