package check

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	unit   = "systemd/wasmjob.service"
	dropIn = "systemd/wasmjob.service.d/zookeeper.conf"
)

// worstExposure is what systemd-analyze security may say at most, of 10. What
// is left is the network, and memory that becomes executable.
const worstExposure = 2.0

// TestUnit asks systemd what it makes of the unit and its drop-in.
func TestUnit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := strings.ReplaceAll(string(read(t, unit)), "/usr/local/bin/wasmjob", program(t))
	file := filepath.Join(dir, "wasmjob.service")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file+".d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(file+".d", "zookeeper.conf"), read(t, dropIn), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t.Context(), dir, os.Environ(), "systemd-analyze", "verify", "--recursive-errors=no", "--man=no", file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(out) != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	out, err = run(t.Context(), dir, os.Environ(), "systemd-analyze", "security", "--no-pager", "--offline=yes",
		fmt.Sprintf("--threshold=%d", int(worstExposure*10)), file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	t.Log(lines[len(lines)-1])
}

// values are the values of a key in a unit's file; a host reads what systemd
// would give it.
func values(t *testing.T, name, key string) (found []string) {
	t.Helper()
	for s := bufio.NewScanner(bytes.NewReader(read(t, name))); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), "="); ok && k == key {
			found = append(found, v)
		}
	}
	return found
}

func TestUnitStartsTheHost(t *testing.T) {
	t.Parallel()
	// The sample's directories, below one of this test.
	dir := t.TempDir()
	var sample map[string]any
	if err := yaml.Unmarshal(read(t, "systemd/wasmjob.yaml"), &sample); err != nil {
		t.Fatal(err)
	}
	for key, value := range sample {
		path, ok := value.(string)
		if !ok || !strings.HasPrefix(path, "/") {
			continue
		}
		sample[key] = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(sample["plugins"].(string), 0o700); err != nil {
		t.Fatal(err)
	}
	data, err := yaml.Marshal(sample)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "wasmjob.yaml")
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	start := values(t, unit, "ExecStart")
	if len(start) != 1 {
		t.Fatalf("%d ExecStart lines", len(start))
	}
	args := strings.Fields(strings.ReplaceAll(start[0], "/etc/wasmjob/wasmjob.yaml", config))[1:]

	environ := make(map[string]string)
	for _, e := range values(t, unit, "Environment") {
		k, v, _ := strings.Cut(e, "=")
		environ[k] = v
	}
	alone := settings(t, args, environ)
	expect(t, alone, map[string]any{"registry": "embedded", "logFormat": "json"})
	stop := values(t, unit, "TimeoutStopSec")
	if len(stop) != 1 {
		t.Fatalf("%d TimeoutStopSec lines", len(stop))
	}
	limit, err := time.ParseDuration(stop[0])
	if err != nil {
		t.Fatal(err)
	}
	enough(t, alone, limit)

	for _, e := range values(t, dropIn, "Environment") {
		k, v, _ := strings.Cut(e, "=")
		environ[k] = strings.ReplaceAll(v, "%d", "/run/credentials/wasmjob.service")
	}
	expect(t, settings(t, args, environ), map[string]any{"registry": "zookeeper", "namespace": "prod"})
}

// TestUnitBringsTheHostBack: a host that systemd's watchdog ends, or that crashes
// in Go, does not end as one whose settings are wrong.
func TestUnitBringsTheHostBack(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"Type": "notify", "Restart": "always"} {
		if got := values(t, unit, key); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
	}
	watchdog, err := time.ParseDuration(strings.Join(values(t, unit, "WatchdogSec"), " "))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer systemd.Close()
	c := exec.CommandContext(t.Context(), program(t), "run", "--plugins", dir, "--cache", "off", "--admin", "127.0.0.1:0")
	c.Env = append(values(t, unit, "Environment"), "NOTIFY_SOCKET="+socket, fmt.Sprint("WATCHDOG_USEC=", watchdog.Microseconds()), "PATH="+os.Getenv("PATH"))
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := systemd.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 100); ; {
		n, err := systemd.Read(b)
		if err != nil {
			t.Fatalf("the host does not say that it is ready: %v", err)
		}
		if string(b[:n]) == "READY=1" {
			break
		}
	}
	if err := c.Process.Signal(syscall.SIGABRT); err != nil { // as the watchdog does
		t.Fatal(err)
	}
	_ = c.Wait()
	if code := strconv.Itoa(c.ProcessState.ExitCode()); slices.Contains(values(t, unit, "RestartPreventExitStatus"), code) {
		t.Errorf("the host ended with %s, after which systemd leaves it", c.ProcessState)
	}
}

// TestDirectoriesAreTheUnits: whatever the sample writes to, the unit makes.
func TestDirectoriesAreTheUnits(t *testing.T) {
	t.Parallel()
	var sample map[string]any
	if err := yaml.Unmarshal(read(t, "systemd/wasmjob.yaml"), &sample); err != nil {
		t.Fatal(err)
	}
	made := []string{
		"/var/lib/" + values(t, unit, "StateDirectory")[0],
		"/var/cache/" + values(t, unit, "CacheDirectory")[0],
	}
	for _, key := range []string{"cache", "data", "history", "adminTokenFile"} {
		path, _ := sample[key].(string)
		ok := false
		for _, dir := range made {
			ok = ok || path == dir || strings.HasPrefix(path, dir+"/")
		}
		if !ok {
			t.Errorf("%s: %q is in none of %v, which the service can write to", key, path, made)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Error(err) // rather than a test that says nothing
	}
}
