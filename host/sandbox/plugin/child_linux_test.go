package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// processState tells what confine has made of this process: the priorities of
// its threads, and how the system thinks of it when memory is short.
func processState() string {
	stats, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		return err.Error()
	}
	var nice []string
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that has ended
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		f := strings.Fields(rest)
		if err != nil || len(f) < 17 {
			return fmt.Sprint(string(b), err)
		}
		nice = append(nice, f[16])
	}
	slices.Sort(nice)
	score, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("nice %s, score %s", strings.Join(slices.Compact(nice), " and "), strings.TrimSpace(string(score)))
}

func TestChildStepsBack(t *testing.T) {
	t.Parallel()
	needsCompiler(t)
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Compiler: compiler("state")})
	_, err := r.Load(context.Background(), "x.wasm", guest(t, "wat/noop"), time.Time{})
	if want := fmt.Sprintf("nice %d, score 1000", childPriority); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, expected %q", err, want)
	}
}

func TestChildMemory(t *testing.T) {
	t.Parallel()
	if raceEnabled {
		t.Skip("the race detector runs out of memory of its own first, and says so in its own words")
	}
	needsCompiler(t)
	wasm := guest(t, "wat/noop")
	compile, started := counted("hungry")
	r := newRuntime(t, Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Compiler: compile,
		compileTime: func(int) time.Duration { return time.Hour }})
	_, err := r.Load(context.Background(), "x.wasm", wasm, time.Time{})
	if want := "compiling it takes more than 256 MiB of memory"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, expected %q", err, want)
	}
	if n := started.Load(); n != 1 {
		t.Errorf("%d processes", n)
	}
}
