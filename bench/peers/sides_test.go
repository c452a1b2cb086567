//go:build peers

package peers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/test/interop/peer"
	"github.com/wasmjob/wasmjob/test/tap"
)

// job is a job that is measured.
type job struct {
	name, cron string
	items      int
	count      int  // so many of them, name-0, name-1, …; 0 is one
	told       bool // its runs are told to the log, and can be held
}

// world is the hosts of one measurement, of one kind, in a namespace.
type world struct {
	t         *testing.T
	ctx       context.Context
	kind      string
	namespace string
	taps      *tap.Recorder
	log       *peer.Log
	hosts     []hosted
	// untapped hosts are connected to the server itself, so that no proxy takes
	// a part of the processors; their requests are not recorded.
	untapped bool
	ended    bool
}

// hosted is a host of either kind.
type hosted interface {
	Name() string
	PID() int
	Kill()
	Ended() <-chan struct{}
	Stderr() string
	// address is the IP of its instance id.
	address() string
	// ready waits until the host has all its jobs.
	ready(ctx context.Context) error
	// completed is how many items have been run.
	completed(ctx context.Context) (int, error)
	hold(ctx context.Context) error
	// more gives the host another job. It does not wait until it runs.
	more(ctx context.Context, j job) error
}

const (
	theirs = "ElasticJob"
	own    = "wasmjob"
)

// newWorld is without hosts. They end with the test, or with end.
func newWorld(t *testing.T, kind, namespace string) *world {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, kind: kind, namespace: namespace, taps: &tap.Recorder{}, log: &peer.Log{}}
	t.Cleanup(w.end)
	return w
}

// end kills all hosts and waits until they have ended. It may be called again.
func (w *world) end() {
	if w.ended {
		return
	}
	w.ended = true
	for _, h := range w.hosts {
		h.Kill()
	}
	if err := w.taps.Close(); err != nil {
		w.t.Error(err)
	}
	if w.t.Failed() {
		for _, h := range w.hosts {
			w.t.Logf("%s:\n%s", h.Name(), h.Stderr())
		}
	}
}

// start starts a host with the jobs. It does not wait until it is ready.
func (w *world) start(jobs ...job) hosted {
	w.t.Helper()
	n := len(w.hosts) + 1
	name := fmt.Sprintf("%s-%d", w.kind, n)
	ip := fmt.Sprintf("10.2.%d.%d", n/200, 1+n%200)
	connect := shared.servers.Connect()
	if !w.untapped {
		proxy, err := w.taps.Open(name, connect)
		w.check(err)
		connect = proxy.Addr()
	}
	var h hosted
	if w.kind == theirs {
		h = w.startJava(name, ip, connect, jobs)
	} else {
		h = w.startOurs(name, ip, connect, jobs)
	}
	w.hosts = append(w.hosts, h)
	return h
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		for _, h := range w.hosts {
			w.t.Logf("%s:\n%s", h.Name(), h.Stderr())
		}
		w.t.Fatal(err)
	}
}

type javaHost struct {
	*peer.Java
	ip      string
	jobs    []job
	started chan error // of the requests that start jobs
}

func (w *world) startJava(name, ip, connect string, jobs []job) hosted {
	j, err := peer.StartJava(w.ctx, peer.JavaOptions{
		Name: name, Dir: "../../test/interop/java", Version: *version, Connect: connect, Namespace: w.namespace, IP: ip,
		SessionTimeout: sessionTimeout, Log: w.log,
	})
	w.check(err)
	h := &javaHost{Java: j, ip: ip, jobs: jobs, started: make(chan error, 1)}
	go func() { // ends with the requests' answers; ready has the result
		var errs []error
		for _, job := range jobs {
			errs = append(errs, h.begin(w.ctx, job))
		}
		h.started <- errors.Join(errs...)
	}()
	return h
}

func (h *javaHost) begin(ctx context.Context, j job) error {
	return h.Call(ctx, peer.Request{
		"do": "start", "job": j.name, "count": j.count, "cron": j.cron, "total": j.items,
		"failover": true, "monitorExecution": true, "misfire": false, "quiet": !j.told,
	}, nil)
}

func (h *javaHost) more(ctx context.Context, j job) error {
	h.jobs = append(h.jobs, j)
	return h.begin(ctx, j)
}

func (h *javaHost) address() string { return h.ip }

func (h *javaHost) ready(ctx context.Context) error {
	select {
	case err := <-h.started:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *javaHost) completed(ctx context.Context) (total int, err error) {
	for _, job := range h.jobs {
		for _, name := range job.names() {
			var n int
			if err := h.Call(ctx, peer.Request{"do": "count", "job": name}, &n); err != nil {
				return 0, err
			}
			total += n
		}
	}
	return total, nil
}

func (h *javaHost) hold(ctx context.Context) error {
	return h.Call(ctx, peer.Request{"do": "hold", "job": h.jobs[0].name}, nil)
}

func (j job) names() []string {
	if j.count == 0 {
		return []string{j.name}
	}
	list := make([]string, j.count)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", j.name, i)
	}
	return list
}

type ourHost struct {
	*peer.Wasmjob
	dir, ip string
	jobs    []job
}

func (w *world) startOurs(name, ip, connect string, jobs []job) hosted {
	t := w.t
	dir, err := os.MkdirTemp("", "peer-")
	w.check(err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{"plugins", "gate"} {
		w.check(os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	w.check(os.WriteFile(filepath.Join(dir, "gate", "go"), nil, 0o644))
	told := false
	args := []string{
		"--registry", "zookeeper", "--zk", connect, "--namespace", w.namespace, "--session-timeout", sessionTimeout.String(),
		"--server-ip", ip, "--plugins", filepath.Join(dir, "plugins"), "--admin", filepath.Join(dir, "admin"),
		"--cache", shared.cache, "--in-process", "*",
	}
	for _, j := range jobs {
		if j.told {
			told = true
			args = append(args, "--mount", j.name+"="+filepath.Join(dir, "gate")+":/gate")
		}
		w.check(put(filepath.Join(dir, "plugins"), j))
	}
	p, err := peer.StartWasmjob(peer.WasmjobOptions{
		Name: name, Program: shared.program, Dir: dir, Args: args, Log: w.log, NoHistory: !told,
	})
	w.check(err)
	return &ourHost{p, dir, ip, jobs}
}

// put puts a job's module and definition into a plugins directory.
func put(plugins string, j job) error {
	file, parameter, isolation := shared.guest, "ok", "fire"
	if *inside {
		isolation = "host"
	}
	if j.told {
		file, parameter = "../../test/e2e/testdata/guest.wasm", "hold:go"
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var text strings.Builder
	for i, name := range j.names() {
		if i > 0 {
			text.WriteString("---\n")
		}
		fmt.Fprintf(&text, "jobName: %s\nmodule: %s.wasm\ntype: SIMPLE\ncron: %q\nshardingTotalCount: %d\nfailover: true\nmonitorExecution: true\n"+
			"misfire: false\njobParameter: %q\nisolation: %s\n", name, j.name, j.cron, j.items, parameter, isolation)
	}
	// A definition is there at once and with its module, whoever watches.
	half := filepath.Join(plugins, j.name+".half")
	return errors.Join(
		os.WriteFile(half, wasm, 0o644), os.Rename(half, filepath.Join(plugins, j.name+".wasm")),
		os.WriteFile(half, []byte(text.String()), 0o644), os.Rename(half, filepath.Join(plugins, j.name+".yaml")))
}

func (h *ourHost) more(_ context.Context, j job) error {
	return put(filepath.Join(h.dir, "plugins"), j)
}

func (h *ourHost) address() string { return h.ip }

func (h *ourHost) get(ctx context.Context, path string) (int, []string, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(h.dir, "admin"))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host"+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	var lines []string
	for s := bufio.NewScanner(response.Body); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return response.StatusCode, lines, nil
}

// ready asks again and again: the host has no better way to tell.
func (h *ourHost) ready(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if code, _, err := h.get(ctx, "/readyz"); err == nil && code == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-h.Ended():
			return fmt.Errorf("%s has ended\n%s", h.Name(), h.Stderr())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\n%s", h.Name(), ctx.Err(), h.Stderr())
		}
	}
}

func (h *ourHost) completed(ctx context.Context) (total int, err error) {
	_, lines, err := h.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, "wasmjob_items_completed_total{"); ok {
			_, value, _ := strings.Cut(rest, "} ")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			total += int(n)
		}
	}
	return total, nil
}

func (h *ourHost) hold(context.Context) error { return os.Remove(filepath.Join(h.dir, "gate", "go")) }
