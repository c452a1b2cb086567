package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
)

// TestOwned: every file that a host reads at its start is refused if another user can change it, all together.
func TestOwned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
		return name
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	l := &loaded{Config: Config{Data: data, HistoryCredentialsFile: file("history"), Registry: registryZooKeeper,
		ZooKeeper: ensemble.Ensemble{CredentialsFile: file("zk"), CAFile: file("ca"), CertFile: file("cert"), KeyFile: file("key")}}}
	err := trusted(ownership.Self(), l.owned())
	if err == nil {
		t.Fatal("files that everybody can write to are taken")
	}
	for _, want := range []string{"historyCredentialsFile: ", "zkCredentialsFile: ", "zkTlsCa: ", "zkTlsCert: ", "zkTlsKey: "} {
		if !strings.Contains(err.Error(), want+dir) {
			t.Errorf("%q is not in %v", want+dir, err)
		}
	}
	if n := strings.Count(err.Error(), "has mode 0666"); n != 5 || strings.Contains(err.Error(), "data: ") {
		t.Errorf("%d files are named: %v", n, err)
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	l = &loaded{Config: Config{Data: data}}
	if err := trusted(ownership.Self(), l.owned()); err == nil || !strings.Contains(err.Error(), "data: "+data+": has mode 0777") {
		t.Error(err)
	}
	l.Data = filepath.Join(dir, "none")
	if err := trusted(ownership.Self(), l.owned()); err != nil {
		t.Error(err)
	}
}

// TestOwnersOfRunningHost: a host refuses what others can change, whatever setting names it. What is settings only, it refuses if
// it is root's.
func TestOwnersOfRunningHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o666); err != nil {
			t.Fatal(err)
		}
		return name
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o777); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--plugins", dir, "--server-ip", "127.0.0.1", "--cache", "off", "--admin", "127.0.0.1:0"}
	env := []string{"XDG_RUNTIME_DIR=" + dir}
	runCLI(t, env, append(args, "--data", data)...).expect(t, exitUsage, "data: "+data+": has mode 0777")
	runCLI(t, append(env, "OTEL_EXPORTER_OTLP_CERTIFICATE="+file("ca", "")), append(args, "--otlp", "https://127.0.0.1:1")...).
		expect(t, exitUsage, "OTEL_EXPORTER_OTLP_CERTIFICATE: "+filepath.Join(dir, "ca")+": has mode 0666")
	if ownership.Self() != 0 {
		return
	}
	for flag, name := range map[string]string{
		"--config": file("config.yaml", ""),
		"--grants": file("grants.yaml", "grants: []"),
		"--alerts": file("alerts.yaml", "receivers: []"),
	} {
		runCLI(t, env, append(args, flag, name)...).expect(t, exitUsage, name+": has mode 0666 (owner: user 0), so that others can write to it, expected 0644")
	}
}
