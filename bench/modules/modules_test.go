// Package modules_test measures a host with many distinct modules: what it takes,
// how soon the first job is ready, and whether what has left memory is back in
// time. It runs the real program, and Go guests.
package modules_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// BenchmarkModules starts a host with distinct Go modules of one job each, with
// an empty cache and with a full one. The jobs fire once an hour, the first of
// them, whose file is the last by name, 90 seconds after the start. After that, each
// job is triggered. first-s is when the first job to fire is ready, ready-s when all
// are; rss-MB what the host keeps of the machine's memory then, and
// peak-MB the most it ever kept; late counts the fires that waited for a module.
func BenchmarkModules(b *testing.B) {
	dir := b.TempDir()
	program, module := filepath.Join(dir, "wasmjob"), filepath.Join(dir, "cities.wasm")
	build(b, []string{"CGO_ENABLED=0"}, "-trimpath", "-o", program, "../../cmd/host")
	build(b, []string{"GOOS=wasip1", "GOARCH=wasm"}, "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", module, "../../plugins/examples/cities")
	wasm, err := os.ReadFile(module)
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{30, 200} {
		for _, memory := range []string{"off", "256MiB"} {
			cache := filepath.Join(b.TempDir(), "cache")
			for _, state := range []string{"cold", "warm"} {
				b.Run(fmt.Sprintf("modules=%d/moduleMemory=%s/cache=%s", n, memory, state), func(b *testing.B) {
					for b.Loop() {
						if state == "cold" {
							if err := os.RemoveAll(cache); err != nil {
								b.Fatal(err)
							}
						}
						measure(b, program, wasm, n, memory, cache)
					}
				})
			}
		}
	}
}

func build(b *testing.B, env []string, args ...string) {
	b.Helper()
	c := exec.Command("go", append([]string{"build"}, args...)...)
	c.Env = append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		b.Fatalf("go build %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func name(i int) string { return fmt.Sprintf("job%03d", i) }

// measure runs one host, from its start to its end.
func measure(b *testing.B, program string, wasm []byte, n int, memory, cache string) {
	dir := b.TempDir()
	plugins, history := filepath.Join(dir, "plugins"), filepath.Join(dir, "history.jsonl")
	if err := os.Mkdir(plugins, 0o755); err != nil {
		b.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(plugins, name), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	wasm = bytes.Clone(wasm)
	at := bytes.Index(wasm, []byte("fatal error: ")) // a text that the guest does not need
	if at < 0 {
		b.Fatal("the guest has no text to change")
	}
	start := time.Now()
	for i := range n {
		fire := start.Add(5*time.Minute + time.Duration(i)*50*time.Minute/time.Duration(n))
		if i == n-1 {
			fire = start.Add(90 * time.Second)
		}
		copy(wasm[at:], name(i))
		write(name(i)+".wasm", wasm)
		write(name(i)+".yaml", fmt.Appendf(nil, "jobName: %s\ncron: \"%d %d * * * ?\"\nshardingTotalCount: 1\nshardingItemParameters: 0=Beijing\n",
			name(i), fire.Second(), fire.Minute()))
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	c := exec.Command(program, "run", "--plugins", plugins, "--history", history, "--cache", cache, "--module-memory", memory, "--admin", filepath.Join(dir, "admin"))
	c.Stdout, c.Stderr = log, log
	c.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "HOME="+dir)
	began := time.Now()
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	failed := true
	defer func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil || failed {
			text, _ := os.ReadFile(log.Name())
			b.Errorf("%v\n%s", err, text[max(0, len(text)-4000):])
		}
	}()

	seen := follow(b, history)
	added := make(map[string]time.Duration)
	for len(added) < n {
		if e := seen(); e.Kind == event.Assigned {
			added[e.Job] = e.Time.Sub(began)
		}
	}
	last := time.Duration(0)
	for _, d := range added {
		last = max(last, d)
	}
	rss := status(b, c.Process.Pid, "VmRSS")
	ended, bad := 0, 0
	end := func(e event.Event) {
		if e.Kind == event.FireEnded {
			ended++
			if e.Outcome != "OK" {
				bad++
			}
		}
	}
	for ended == 0 { // the first to fire
		end(seen())
	}
	for i := range n {
		t := exec.Command(program, "job", "run", name(i), "--admin", filepath.Join(dir, "admin"))
		t.Env = c.Env
		if out, err := t.CombinedOutput(); err != nil {
			b.Fatalf("trigger: %v\n%s", err, out)
		}
	}
	for ended < n+1 {
		end(seen())
	}
	if bad > 0 {
		b.Errorf("%d of %d fires did not end well", bad, ended)
	}
	failed = false
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(added[name(n-1)].Seconds(), "first-s")
	b.ReportMetric(last.Seconds(), "ready-s")
	b.ReportMetric(rss, "rss-MB")
	b.ReportMetric(status(b, c.Process.Pid, "VmHWM"), "peak-MB")
	b.ReportMetric(late(b, filepath.Join(dir, "admin")), "late")
}

// follow returns a function that waits for the next event.
func follow(b *testing.B, history string) func() event.Event {
	var r *bufio.Reader
	line := []byte{}
	return func() event.Event {
		for end := time.Now().Add(20 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				b.Fatal("no event in 20 minutes")
			}
			if r == nil {
				f, err := os.Open(history)
				if err != nil {
					continue
				}
				b.Cleanup(func() { f.Close() })
				r = bufio.NewReader(f)
			}
			part, err := r.ReadBytes('\n')
			if line = append(line, part...); err != nil {
				continue
			}
			var e event.Event
			if err := json.Unmarshal(line, &e); err != nil {
				b.Fatal(err)
			}
			line = line[:0]
			return e
		}
	}
}

// status is a figure of the process, in MB.
func status(b *testing.B, pid int, key string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key+":" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1000
		}
	}
	b.Fatalf("the system does not say %s", key)
	return 0
}

// late is how many fires have waited for a module.
func late(b *testing.B, admin string) float64 {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", admin)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	r, err := client.Get("http://host/metrics")
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	out, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if n, ok := strings.CutPrefix(line, "wasmjob_module_waits_total "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(n), 64)
			if err != nil {
				b.Fatal(err)
			}
			return v
		}
	}
	b.Fatal("the metrics have no wasmjob_module_waits_total")
	return 0
}
