package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// TestInitialConfig: the file of init is read without a complaint, with and without
// its comments, and names every setting.
func TestInitialConfig(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a b")
	d := defaults{cache: off}
	if err := initialise(dir, layout{program: "/usr/bin/wasmjob", user: "jobs", settings: settings(d)}); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, initConfig)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	load := func(text string) *loaded {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
		addConfigFlags(flags, d)
		if err := flags.Parse([]string{"--config", name}); err != nil {
			t.Fatal(err)
		}
		l, err := loadConfig(nil, flags, d)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return l
	}
	l := load(string(data))
	if want := filepath.Join(dir, "plugins"); l.Plugins != want || l.Data != filepath.Join(dir, "data") {
		t.Errorf("plugins %q and data %q, want those in %s", l.Plugins, l.Data, dir)
	}
	// Uncommented, each setting says the default.
	var lines []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "#  ") {
			line = line[1:]
		}
		lines = append(lines, line)
	}
	all := strings.Join(lines, "")
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(all), &keys); err != nil {
		t.Fatalf("%v\n%s", err, all)
	}
	whole := load(all)
	for _, s := range settings(d) {
		if _, ok := keys[s.key]; !ok {
			t.Errorf("the file does not name %s", s.key)
		}
		if got, want := s.show(&whole.Config), s.show(&l.Config); got != want {
			t.Errorf("%s is %q with the comment's value, %q without", s.key, got, want)
		}
	}
}

// TestServiceUnit: a unit of init has the host's files, and all that confines the
// service of a package.
func TestServiceUnit(t *testing.T) {
	t.Parallel()
	unit := serviceUnit("/home/jo/my jobs", layout{program: "/usr/bin/wasmjob", user: "jo"})
	for _, want := range []string{
		"\nExecStart=/usr/bin/wasmjob run --config \"/home/jo/my jobs/wasmjob.yaml\"\n",
		"\nUser=jo\n", "\nReadWritePaths=\"/home/jo/my jobs\"\n", "\nProtectHome=read-only\n",
		"\nProtectSystem=strict\n", "\nNoNewPrivileges=yes\n", "\nSystemCallFilter=@system-service", "\nWatchdogSec=",
		"\n[Unit]\n", "\n[Service]\n", "\n[Install]\n",
	} {
		if !strings.Contains(unit, want) {
			t.Errorf("%q is not in the unit\n%s", want, unit)
		}
	}
	for _, not := range []string{"DynamicUser", "StateDirectory", "/etc/wasmjob", "/usr/local/bin", "/var/lib"} {
		if strings.Contains(unit, not) {
			t.Errorf("%q is in the unit\n%s", not, unit)
		}
	}
	elsewhere := serviceUnit("/srv/jobs", layout{program: "/usr/bin/wasmjob", user: "jo"})
	for _, want := range []string{"\nProtectHome=yes\n", "\nPrivateTmp=yes\n"} {
		if !strings.Contains(elsewhere, want) {
			t.Errorf("%q is not in the unit of a host that needs no such directory\n%s", want, elsewhere)
		}
	}
	if unit := serviceUnit("/tmp/jobs", layout{program: "/usr/bin/wasmjob", user: "jo"}); strings.Contains(unit, "PrivateTmp") {
		t.Errorf("a host does not see its own directory in /tmp\n%s", unit)
	}
}

// TestHostRuns: a system that no host was written for gets none.
func TestHostRuns(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin"} {
		if err := hostRuns(goos); err != nil {
			t.Error(err)
		}
	}
	if err := hostRuns("windows"); err == nil || !strings.Contains(err.Error(), "windows") {
		t.Errorf("on Windows: %v", err)
	}
}

// TestUnprotected: a system without the kernel's protections says so.
func TestUnprotected(t *testing.T) {
	t.Parallel()
	if said := unprotected("linux"); said != nil {
		t.Errorf("Linux lacks %q", said)
	}
	said := strings.Join(unprotected("darwin"), "\n")
	for _, want := range []string{"darwin", "seccomp", "Landlock", "frozen", "memory", "WebAssembly"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in %q", want, said)
		}
	}
}
