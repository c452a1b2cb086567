// Package console_test measures what looking at a cluster costs, and what it takes: real
// hosts on a real ZooKeeper, whose history is one real PostgreSQL.
package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/pgserver"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

const (
	hosts = 3
	// all are the jobs, of four items each; busy ones of them fire each second.
	all, items = 10_000, 4
	busy       = 50
	// runs are in the history before.
	runs = 1_000_000
	// asks is how often each page is asked for.
	asks = 40
	// pause lies between two asks.
	pause = 100 * time.Millisecond
	// spell is how long fires are measured, without readers and with them, in turns. In each the hosts
	// read their plugins directory again once, which delays fires by itself.
	spell, turns = 30 * time.Second, 10
	// readers ask for a page every two seconds, each.
	readers = 40
)

// token lets the benchmark in.
const token = "wj_bench_0123456789012345678901234567"

// server is one process.
type server struct {
	b   *testing.B
	url string
	log bytes.Buffer
}

// built makes the program and a module that does nothing.
func built(b *testing.B, dir string) (program, module string) {
	b.Helper()
	program, module = filepath.Join(dir, "wasmjob"), filepath.Join(dir, "noop.wasm")
	for _, args := range [][]string{
		{"go", "build", "-o", program, "../../cmd/host"},
		{"go", "build", "-trimpath", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", module, "../testdata/noop"},
	} {
		c := exec.CommandContext(b.Context(), args[0], args[1:]...)
		if strings.HasSuffix(args[len(args)-1], "noop") {
			c.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		}
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return program, module
}

// BenchmarkConsole is three hosts with 10,000 jobs of four items, a shared history of a
// million runs, and pages of one of them: the 95th percentile of each in milliseconds, the
// requests to the registry that they cause, and how late fires begin without readers and
// with them, in turns. CONSOLE_JOBS sets another number of jobs.
func BenchmarkConsole(b *testing.B) {
	for b.Loop() {
		measure(b)
	}
	b.ReportMetric(0, "ns/op")
}

func measure(b *testing.B) {
	b.Helper()
	jobs := all
	if n, err := strconv.Atoi(os.Getenv("CONSOLE_JOBS")); err == nil {
		jobs = n
	}
	dir := b.TempDir()
	program, module := built(b, dir)
	z := zkserver.ForTest(b, zkserver.Options{Measured: true, JavaArgs: []string{"-Xmx2g"}})
	p := pgserver.ForTest(b)
	write(b, filepath.Join(dir, "token"), token)
	write(b, filepath.Join(dir, "history"), pgserver.User+":"+p.Password)
	plugins := filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o700); err != nil {
		b.Fatal(err)
	}
	code, err := os.ReadFile(module)
	if err != nil {
		b.Fatal(err)
	}
	write(b, filepath.Join(plugins, "noop.wasm"), string(code))
	for n := range jobs {
		cron := fmt.Sprintf("%d %d 3 1 1 ?", n%60, n/60%60)
		if n < busy {
			cron = "* * * * * ?"
		}
		write(b, filepath.Join(plugins, fmt.Sprintf("job-%d.yaml", n)),
			fmt.Sprintf("module: noop.wasm\ncron: %q\nshardingTotalCount: %d\ndescription: %q\n", cron, items, "number "+strconv.Itoa(n)))
	}

	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	b.Cleanup(func() { stop(); ended.Wait() })
	var list []*server
	begun := time.Now()
	for n := range hosts {
		address := fmt.Sprintf("127.0.0.%d:%d", n+1, 19770)
		h := &server{b: b, url: "http://" + address}
		c := exec.CommandContext(ctx, program, "run", "--plugins", plugins, "--zk", z.Connect(), "--namespace", "console", "--server-ip", fmt.Sprintf("127.0.0.%d", n+1),
			"--session-timeout", "60s", "--admin", address, "--admin-token-file", filepath.Join(dir, "token"), "--history", p.URL(), "--history-credentials-file", filepath.Join(dir, "history"),
			"--cache", filepath.Join(dir, "cache"), "--metrics-jobs", "100")
		c.Env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"+strconv.Itoa(n)), "XDG_RUNTIME_DIR="+dir)
		c.Stdout, c.Stderr = &h.log, &h.log
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
		c.WaitDelay = time.Minute
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		ended.Go(func() { _ = c.Wait() })
		list = append(list, h)
	}
	h := list[0]
	h.until("each job has a leader and all hosts", func() bool { return h.joined() == jobs })
	b.ReportMetric(time.Since(begun).Seconds(), "start-s")
	fill(b, p, jobs)

	quiet := h.settled(list)
	before := quiet()
	var worst time.Duration
	// Printed, as the log of a benchmark is cut after ten lines.
	for _, path := range []string{
		"/v1/overview", "/v1/jobs", "/v1/jobs?sort=-duration&limit=100", "/v1/jobs?health=failing&health=late", "/v1/jobs?q=number+77", "/v1/jobs/job-77",
		"/v1/hosts", "/v1/modules", "/v1/calendar", "/v1/fires", "/v1/runs?failed=true", "/v1/runs?job=job-77", "/v1/logs?job=job-77", "/v1/audit", "/v1/events?job=job-77",
		"/", "/jobs", "/jobs/job-77", "/hosts", "/modules", "/calendar", "/audit", "/logs",
	} {
		var took []time.Duration
		for range asks {
			at := time.Now()
			if code, text := h.get(path); code != http.StatusOK {
				b.Fatalf("%s: %d %s", path, code, text)
			}
			took = append(took, time.Since(at))
			time.Sleep(pause) // so that the page before is not all that this one needs
		}
		slices.Sort(took)
		p95 := took[len(took)*95/100]
		worst = max(worst, p95)
		fmt.Printf("%-40s median %5.1f ms, 95th percentile %5.1f ms\n", path, ms(took[len(took)/2]), ms(p95))
	}
	b.ReportMetric(ms(worst), "worst-page-p95-ms")
	b.ReportMetric(quiet()-before, "registry-requests")

	var without, with float64
	for n := range turns {
		quiet := h.lag(list, spell)
		end := read(b, list)
		busy := h.lag(list, spell)
		end()
		without, with = without+quiet/turns, with+busy/turns
		fmt.Printf("turn %2d: lag %.2f ms without readers, %.2f ms with them\n", n+1, quiet*1000, busy*1000)
	}
	b.ReportMetric(without*1000, "lag-mean-ms")
	b.ReportMetric(with*1000, "lag-mean-with-readers-ms")
}

// read has readers look at pages of all hosts until end is called.
func read(b *testing.B, list []*server) (end func()) {
	ctx, stop := context.WithCancel(b.Context())
	var reading sync.WaitGroup
	for n := range readers {
		reading.Go(func() {
			pages := []string{"/v1/overview", "/v1/jobs?limit=100", "/", "/jobs", "/v1/runs?failed=true", "/v1/hosts"}
			for i := n; ctx.Err() == nil; i++ {
				list[n%hosts].get(pages[i%len(pages)])
				select {
				case <-ctx.Done():
				case <-time.After(2 * time.Second):
				}
			}
		})
	}
	return func() { stop(); reading.Wait() }
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func write(b *testing.B, name, text string) {
	b.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

// fill adds runs to the history, over six days, of which one in 500 failed.
func fill(b *testing.B, p *pgserver.Server, jobs int) {
	b.Helper()
	end := time.Now()
	step := int64(6*24*time.Hour) / runs
	first := end.UnixNano() - runs*step
	const day = int64(24 * time.Hour)
	for d := first / day; d <= end.UnixNano()/day; d++ { // a partition each; the hosts may have made today's
		for _, table := range []string{"wasmjob_items", "wasmjob_executions"} {
			statement := fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s_%s PARTITION OF %[1]s FOR VALUES FROM (%[3]d) TO (%[4]d)", table, time.Unix(0, d*day).UTC().Format("20060102"), d*day, (d+1)*day)
			if _, err := p.Query(b.Context(), statement); err != nil {
				b.Fatal(err)
			}
		}
	}
	from := fmt.Sprintf("FROM generate_series(0, %d) AS s(n), LATERAL (SELECT 'job-' || (n %% %d) AS job, %d + s.n::bigint * %d AS at, CASE WHEN n %% 500 = 7 THEN 1 ELSE 0 END AS failed, CASE WHEN n %% 500 = 7 THEN 'TRAP' ELSE 'OK' END AS outcome) AS r", runs-1, jobs, first, step)
	for _, into := range []string{
		"wasmjob_items SELECT job || '/t' || (n + 1) || '/0', job, 0, at, n + 1, 'trigger', '10.0.0.1@-@7-abc', 1, at, at + 1000000000, 1000000000, 0, outcome, failed, 1, '', n, 'ce9461dd88ea', '', 1048576, 0, 0, 0, '' ",
		"wasmjob_executions SELECT job || '/t' || (n + 1), job, at, n + 1, 'trigger', '10.0.0.1@-@7-abc', '[0]', 1, at, at + 1000000000, 0, 1 - failed, failed, outcome, failed, '' ",
	} {
		if _, err := p.Query(b.Context(), "INSERT INTO "+into+from); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := p.Query(b.Context(), "ANALYZE"); err != nil {
		b.Fatal(err)
	}
}

// get asks, and returns all of the answer.
func (h *server) get(path string) (code int, text string) {
	r, err := http.NewRequestWithContext(h.b.Context(), http.MethodGet, h.url+path, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(data)
}

func (h *server) until(what string, look func() bool) {
	h.b.Helper()
	for late := time.Now().Add(15 * time.Minute); !look(); time.Sleep(time.Second) {
		if time.Now().After(late) {
			h.b.Fatalf("waited in vain until %s: %s", what, h.log.String())
		}
	}
}

// joined counts the jobs that all hosts are in.
func (h *server) joined() (n int) {
	for after := ""; ; {
		code, text := h.get("/v1/jobs?limit=1000&after=" + url.QueryEscape(after))
		var page struct {
			Records []struct {
				Hosts  []string
				Leader string
			}
			Next string
		}
		if code != http.StatusOK || json.Unmarshal([]byte(text), &page) != nil {
			return 0
		}
		for _, j := range page.Records {
			if len(j.Hosts) == hosts && j.Leader != "" {
				n++
			}
		}
		if after = page.Next; after == "" {
			return n
		}
	}
}

// sum adds up a metric's series that have a text in their labels.
func (h *server) sum(name, labels string) (sum float64) {
	_, text := h.get("/metrics")
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)`).FindAllStringSubmatch(text, -1) {
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && strings.Contains(m[1], labels) {
			sum += v
		}
	}
	return sum
}

// settled counts the requests to the registry that are not of fires: reads.
func (h *server) settled(list []*server) func() float64 {
	return func() (sum float64) {
		for _, h := range list {
			sum += h.sum("wasmjob_registry_operations_total", `kind="read"`)
		}
		return sum
	}
}

// lag is the mean of how late fires begin, seconds.
func (h *server) lag(list []*server, d time.Duration) float64 {
	sum := func(suffix string) (sum float64) {
		for _, h := range list {
			sum += h.sum("wasmjob_fire_lag_seconds_"+suffix, "")
		}
		return sum
	}
	total, count := sum("sum"), sum("count")
	time.Sleep(d)
	return (sum("sum") - total) / (sum("count") - count)
}
