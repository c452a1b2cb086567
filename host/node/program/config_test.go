package program

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/guard"
	"github.com/wasmjob/wasmjob/host/auth/mtls"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// load merges a file's text (none if empty), variables and flags; P in all of
// them stands for a directory that exists, FILE in the error for the file.
func load(t *testing.T, file string, environ, args []string) (*loaded, string, error) {
	t.Helper()
	dir := t.TempDir()
	put := func(list []string) []string {
		var out []string
		for _, s := range list {
			out = append(out, strings.ReplaceAll(s, "P", dir))
		}
		return out
	}
	d := defaults{cache: "/cache"}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addConfigFlags(flags, d)
	args = put(args)
	if file != "" {
		name := filepath.Join(dir, "w.yaml")
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(file, "P", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", name)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		env = append(env, name+"="+put([]string{value})[0])
	}
	l, err := loadConfig(env, flags, d)
	if err != nil {
		err = errors.New(strings.ReplaceAll(strings.ReplaceAll(err.Error(), filepath.Join(dir, "w.yaml"), "FILE"), dir, "P"))
	}
	return l, dir, err
}

func TestLaterLayersWin(t *testing.T) {
	t.Parallel()
	l, dir, err := load(t, `
# a comment
namespace: from-file
logLevel: warn
drainTimeout: 5s
historySize: 1MiB
maxConcurrency: 7
plugins: P
mounts:
  a: [{host: P, guest: /a}]
  b:
    - host: P
      guest: /b
  my.job: [{host: P, guest: /c}]
ceilings:
  - {jobs: "team-a-*", timeout: 1h}
  - jobs: "*"
    memoryLimit: 256MiB
`, []string{"WASMJOB_LOG_LEVEL=error", "WASMJOB_CEILINGS=team-a-*:timeout=2h; b:maxShare=10%", "WASMJOB_NAMESPACE=from-env", "WASMJOB_MOUNTS=b=P:/env,d=P:/d", "OTHER=x", "WASMJOB_LOG_FORMAT=json"},
		[]string{"--namespace", "from-flag/x", "--admin=off", "--mount", "a=P:/one", "--mount", "a=P:/two", "--cache", "off", "--ceiling", "a-b:logLines=5,logBytes=1KiB", "--ceiling", "b:logLines=off"})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Plugins: dir, Registry: "embedded", Namespace: "from-flag/x", ZooKeeper: ensemble.Ensemble{SessionTimeout: 40 * time.Second},
		LogFormat: "json", LogLevel: zapcore.ErrorLevel, GuestLogLevel: zapcore.InfoLevel,
		HistorySize: 1 << 20, MaxConcurrency: 7, MemoryBudget: "50%", ModuleMemory: "25%", DrainTimeout: 5 * time.Second, ClockBound: 5 * time.Second, KeepServers: 24 * time.Hour, CacheSize: 2 << 30, DeadMan: "auto", TraceRatio: 1, Rescan: 30 * time.Second,
		Access: guard.Config{Open: auth.OpenAuto}, WorkerGroups: catalog.GroupAll, GuestSeries: metrics.DefaultGuestSeries,
		Mounts: map[string][]plugin.Mount{
			"a":      {{Host: dir, Guest: "/one"}, {Host: dir, Guest: "/two"}},
			"b":      {{Host: dir, Guest: "/env"}},
			"d":      {{Host: dir, Guest: "/d"}},
			"my.job": {{Host: dir, Guest: "/c"}},
		},
		// Those of a later layer come first, and the defaults last.
		Ceilings: ceiling.List{
			{Jobs: "a-b", Values: map[ceiling.Name]int64{ceiling.LogLines: 5, ceiling.LogBytes: 1024}},
			{Jobs: "b", Values: map[ceiling.Name]int64{ceiling.LogLines: ceiling.Off}},
			{Jobs: "team-a-*", Values: map[ceiling.Name]int64{ceiling.Timeout: int64(2 * time.Hour)}},
			{Jobs: "b", Values: map[ceiling.Name]int64{ceiling.Share: 10}},
			{Jobs: "team-a-*", Values: map[ceiling.Name]int64{ceiling.Timeout: int64(time.Hour)}},
			{Jobs: "*", Values: map[ceiling.Name]int64{ceiling.MemoryLimit: 256 << 20}},
			ceiling.Default(1 << 20),
		},
	}
	if !reflect.DeepEqual(l.Config, want) {
		t.Errorf("got  %+v\nwant %+v", l.Config, want)
	}
	file := filepath.Join(dir, "w.yaml")
	for key, want := range map[string]string{
		"namespace": "--namespace", "logLevel": "WASMJOB_LOG_LEVEL", "logFormat": "WASMJOB_LOG_FORMAT",
		"drainTimeout": file + ":5", "plugins": file + ":8", "serverIp": "default", "admin": "--admin",
		"mounts/a": "--mount", "mounts/b": "WASMJOB_MOUNTS", "mounts/my.job": file + ":14",
	} {
		if l.origins[key] != want {
			t.Errorf("%s comes from %q, want %q", key, l.origins[key], want)
		}
	}
	if want := []string{"--ceiling", "--ceiling", "WASMJOB_CEILINGS", "WASMJOB_CEILINGS", file + ":16", file + ":17", "default"}; !reflect.DeepEqual(l.ceilingsFrom, want) {
		t.Errorf("ceilings come from %q, want %q", l.ceilingsFrom, want)
	}
	if len(l.warnings) != 0 {
		t.Errorf("warnings %q", l.warnings)
	}
}

func TestIsolationSetting(t *testing.T) {
	t.Parallel()
	s := isolationSetting()
	for text, want := range map[string][]string{"": nil, "process": {"*"}, "process=team-a-*,b": {"team-a-*", "b"}} {
		var c Config
		if err := s.set(&c, text); err != nil || !slices.Equal(c.Isolation, want) || s.show(&c) != text {
			t.Errorf("%q is %q and shown as %q, %v", text, c.Isolation, s.show(&c), err)
		}
	}
	for _, text := range []string{"item", "process=", "process=a,,b", "process=[", "processes"} {
		if err := s.set(new(Config), text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// TestTrustedInProcess: who may run in the host's process, and which jobs share a worker
// process, is read from settings, and written as it was read.
func TestTrustedInProcess(t *testing.T) {
	t.Parallel()
	inside, groups := inProcessSetting(), workerGroupsSetting()
	for text, want := range map[string][]string{"": nil, "billing": {"billing"}, "team-a-*,b": {"team-a-*", "b"}} {
		var c Config
		if err := inside.set(&c, text); err != nil || !slices.Equal(c.InProcess, want) || inside.show(&c) != text {
			t.Errorf("%q is %q and shown as %q, %v", text, c.InProcess, inside.show(&c), err)
		}
	}
	for _, text := range []string{"a,,b", ",", "["} {
		if err := inside.set(new(Config), text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	for _, want := range catalog.Groupings() {
		var c Config
		if err := groups.set(&c, string(want)); err != nil || c.placement().Groups != want || groups.show(&c) != string(want) {
			t.Errorf("%q is %q and shown as %q, %v", want, c.WorkerGroups, groups.show(&c), err)
		}
	}
	for _, text := range []string{"", "job", "ALL"} {
		if err := groups.set(new(Config), text); err == nil || !strings.Contains(err.Error(), "want all, folder or signer") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMistakesInCeilings(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, `
plugins: P
ceilings:
  - {jobs: "[", timeout: 1h}
  - {timeout: 1h, timeuot: 2h}
  - jobs: a
    logBytes: many
    maxJobs: [1]
  - just text
`, []string{"WASMJOB_CEILINGS=a:maxShare=200%;nothing"}, []string{"--ceiling", "b:timeout=1"})
	if err == nil {
		t.Fatal("was taken")
	}
	for _, want := range []string{
		`FILE:4: ceilings: found "[", expected one job's name or one pattern, such as team-a-* or *, without commas, slashes and blanks around it`,
		`FILE:5: ceilings: found the ceiling "timeuot", expected one of timeout, `,
		`FILE:5: ceilings: jobs is missing: the pattern of the jobs that the entry is for`,
		`FILE:7: ceilings: logBytes: found "many", expected a size such as 64MiB, or off`,
		`FILE:8: ceilings: want a single value`,
		`FILE:9: ceilings: want keys with values`,
		`WASMJOB_CEILINGS: maxShare: found "200%", expected a share from 1% to 100%, or off`,
		`WASMJOB_CEILINGS: found "nothing", expected JOBS:NAME=VALUE`,
		`--ceiling: timeout: found "1", expected a duration such as 30s, 5m, 1h30m or 1d, or off`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in\n%v", want, err)
		}
	}
	if _, _, err := load(t, "plugins: P\nceilings: {jobs: a}\n", nil, nil); err == nil || !strings.Contains(err.Error(), "FILE:2: ceilings: want a list of {jobs: PATTERN, timeout: 1h, …}") {
		t.Errorf("got %v", err)
	}
}

// An admin address that other machines can reach has no TLS: that has to be
// wanted.
func TestAdminBeyondThisMachine(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":9770", "0.0.0.0:9770", "10.1.2.3:1", "[::]:80"} {
		if _, _, err := load(t, "", nil, []string{"--plugins", "P", "--admin", address}); err == nil || !strings.Contains(err.Error(), "--admin: other machines can reach "+address+", and there is no TLS") {
			t.Errorf("%s: got %v", address, err)
		}
		l, _, err := load(t, "", nil, []string{"--plugins", "P", "--admin", address, "--insecure-admin"})
		if err != nil || l.Admin.String() != address {
			t.Errorf("%s, insecure: got %v", address, err)
		}
	}
	for _, with := range [][]string{{"--admin-tls-cert", "c", "--admin-tls-key", "k"}, {"--admin-proxies", "10.0.0.0/8"}} {
		if _, _, err := load(t, "", nil, append([]string{"--plugins", "P", "--admin", ":9770"}, with...)); err != nil {
			t.Errorf("%v: %v", with, err)
		}
	}
	for _, address := range []string{"127.0.0.1:1", "localhost:1", "[::1]:1", "/run/x", "unix:x", "off"} {
		if _, _, err := load(t, "", nil, []string{"--plugins", "P", "--admin", address}); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAccessSettings(t *testing.T) {
	t.Parallel()
	l, _, err := load(t, "", nil, []string{"--plugins", "P", "--users", "u.yaml", "--admin-url", "https://cron.example.com", "--admin-proxies", "10.1.2.3/8, 127.0.0.1,::1", "--admin-open", "health",
		"--admin-tls-cert", "c", "--admin-tls-key", "k", "--admin-client-ca", "a"})
	if err != nil {
		t.Fatal(err)
	}
	want := guard.Config{
		Users: "u.yaml", URL: "https://cron.example.com", Open: auth.OpenHealth, TLS: mtls.Files{Cert: "c", Key: "k", ClientCA: "a"},
		Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")},
	}
	if !reflect.DeepEqual(l.Access, want) {
		t.Errorf("got  %+v\nwant %+v", l.Access, want)
	}
	for flags, want := range map[string]string{
		"--admin-url cron.example.com": "without a path",
		"--admin-url https://x/path":   "without a path",
		"--admin-proxies 10.0.0.0/8,,": `"" is not a network`,
		"--admin-proxies example.com":  `"example.com" is not a network`,
		"--admin-open helth":           `did you mean "health"?`,
		"--admin-tls-cert c":           "want both adminTlsCert and adminTlsKey",
		"--admin-tls-key k":            "want both adminTlsCert and adminTlsKey",
		"--admin-client-ca a":          "want adminTlsCert and adminTlsKey as well",
	} {
		if _, _, err := load(t, "", nil, append([]string{"--plugins", "P"}, strings.Fields(flags)...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", flags, err, want)
		}
	}
	d := machineDefaults(func(name string) string { return map[string]string{"HOME": "/home/ann"}[name] })
	if d.users != "/home/ann/.config/wasmjob/users.yaml" {
		t.Errorf("the default is %s", d.users)
	}
}

// TestHistoryScheme: what looks like a scheme that there is not is a mistake, and not a file's name.
func TestHistoryScheme(t *testing.T) {
	t.Parallel()
	for where, want := range map[string]string{
		"sqlit:x.db":             `found the scheme "sqlit", expected sqlite:PATH, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE (a file of that name is ./sqlit:x.db); did you mean "sqlite"?`,
		"file:x.jsonl":           "a file of that name is ./file:x.jsonl",
		"postgres:ann@db/x":      "expected postgres://",
		"postgers:u:secret@db/x": `did you mean "postgres"?`,
		"redis://db/x":           `found the scheme "redis"`,
	} {
		if _, _, err := load(t, "", nil, []string{"--plugins", "P", "--history", where}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", where, err, want)
		}
	}
	for _, file := range []string{"P/sqlit:x.db", "./sqlit:x.db", "P/x.jsonl", "9:x"} {
		if l, _, err := load(t, "", nil, []string{"--plugins", "P", "--history", file}); err != nil || l.HistoryDatabase != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestZooKeeperWithoutCredentialsIsAWarning(t *testing.T) {
	t.Parallel()
	const want = "there are no credentials for ZooKeeper: everyone who reaches it can change the jobs, and what they run with; give them with --zk-credentials-file"
	for _, c := range []struct {
		env  []string
		warn bool
	}{{nil, true}, {[]string{"WASMJOB_ZK_CREDENTIALS=u:p"}, false}} {
		l, _, err := load(t, "", c.env, []string{"--plugins", "P", "--zk", "zk1:2181"})
		if err != nil || slices.Contains(l.warnings, want) != c.warn {
			t.Errorf("%v: %q, %v", c.env, l.warnings, err)
		}
	}
	if l, _, err := load(t, "", nil, []string{"--plugins", "P"}); err != nil || len(l.warnings) > 0 {
		t.Errorf("embedded: %q, %v", l.warnings, err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	l, dir, err := load(t, "", []string{"WASMJOB_PLUGINS=P"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Plugins: dir, Registry: "embedded", Namespace: "wasmjob", ZooKeeper: ensemble.Ensemble{SessionTimeout: 40 * time.Second},
		Admin: &server.Address{Network: "tcp", Name: "127.0.0.1:9770"}, LogFormat: "console",
		HistorySize: 64 << 20, MemoryBudget: "50%", ModuleMemory: "25%", DrainTimeout: 30 * time.Second, ClockBound: 5 * time.Second, KeepServers: 24 * time.Hour, Cache: "/cache", CacheSize: 2 << 30, DeadMan: "auto", TraceRatio: 1, Rescan: 30 * time.Second,
		Access: guard.Config{Open: auth.OpenAuto}, WorkerGroups: catalog.GroupAll, GuestSeries: metrics.DefaultGuestSeries,
		Mounts: map[string][]plugin.Mount{}, Ceilings: ceiling.List{ceiling.Default(64 << 20)},
	}
	if !reflect.DeepEqual(l.Config, want) {
		t.Errorf("got  %+v\nwant %+v", l.Config, want)
	}
}

func TestWhatIsPrintedReadsBackTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := defaults{cache: "/cache"}
	read := func(args ...string) *loaded {
		t.Helper()
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		addConfigFlags(flags, d)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		l, err := loadConfig(nil, flags, d)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	odd := filepath.Join(dir, `# odd "name": ü`)
	if err := os.Mkdir(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	first := read("--plugins", dir, "--admin", "[::1]:80", "--data", odd, "--drain-timeout", "1h", "--history-size", "1.5MB",
		"--namespace", "null", "--mount", "a b="+odd+":/x", "--mount", "c="+dir+":/y", "--admin-token-file", " ", "--ceiling", "team-*:timeout=1h,maxShare=50%,logLines=off", "--insecure-admin")
	var text strings.Builder
	if err := first.print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"drainTimeout: 1h ", "# --drain-timeout\n", "# default\n", "historySize: 1500000 "} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	var bare strings.Builder
	none := read("--plugins", dir)
	if err := none.print(&bare); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(bare.String(), "\nmounts: {} ") || strings.Contains(text.String(), "mounts: {}") {
		t.Errorf("mounts in\n%s\nand\n%s", &bare, &text)
	}
	bareFile := filepath.Join(dir, "bare.yaml")
	if err := os.WriteFile(bareFile, []byte(bare.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := read("--config", bareFile); !reflect.DeepEqual(again.Config, none.Config) {
		t.Errorf("got  %+v\nwant %+v\nfrom\n%s", again.Config, none.Config, &bare)
	}
	file := filepath.Join(dir, "printed.yaml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if second := read("--config", file); !reflect.DeepEqual(second.Config, first.Config) {
		t.Errorf("got  %+v\nwant %+v\nfrom\n%s", second.Config, first.Config, &text)
	}
}

func TestAllProblemsAreToldWithTheirPlaces(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, `
plugins: P/none
logLevl: debug
logFormat: xml
drainTimeout: 30
maxConcurrency: [1, 2]
namespace: a//b
namespace: again
mounts:
  rel: [{host: ./src, guest: /src}]
  unclean: [{host: P, guest: /src/}]
  gone: [{host: P/gone, guest: /src}]
  key: [{host: P, geust: /src}]
  twice: [{host: P, guest: /x}, {host: P, guest: /x}]
  text: hello
entirely-different: 1
`, []string{"WASMJOB_REGISTRY=zokeeper", "WASMJOB_HISTORY_SIZE=huge", "WASMJOB_CACHE_SIZE=1MiB", "WASMJOB_MOUNTS=nonsense"},
		[]string{"--server-ip", "::1", "--admin", "example.org:80", "--mount", "x=/nothing", "--guest-log-level", "inof", "--rescan", "1ms", "--clock-bound", "0", "--history", "P/none/h"})
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		`FILE:2: plugins: directory "P/none" does not exist`,
		`FILE:3: unknown key "logLevl"; did you mean "logLevel"?`,
		`FILE:4: logFormat: "xml" is not a log format; want console or json`,
		`FILE:5: drainTimeout: "30" is not a duration; want a number with a unit, such as 30s or 2m`,
		`FILE:6: maxConcurrency: want a single value`,
		`FILE:7: namespace: "a//b" is not a namespace; want a name, or several joined by /`,
		`FILE:8: "namespace" is there twice, before in line 7`,
		`FILE:10: mount of job rel: the host's directory "./src" is not an absolute path`,
		`FILE:11: mount of job unclean: the guest's path "/src/" is not absolute and clean, such as /src`,
		`FILE:12: mount of job gone: directory "P/gone" does not exist`,
		`FILE:13: unknown key "geust" in a mount; did you mean "guest"?`,
		`FILE:13: mount of job key: the guest's path is missing`,
		`FILE:14: mount of job twice: two directories for the guest's path /x`,
		`FILE:15: mounts: job "text": want a list of {host: DIR, guest: PATH}`,
		`FILE:16: unknown key "entirely-different"`,
		`WASMJOB_REGISTRY: "zokeeper" is not a registry; want embedded, zookeeper or zookeeper://HOST:PORT,HOST:PORT/PATH; did you mean "zookeeper"?`,
		`WASMJOB_HISTORY_SIZE: "huge" is not a size; want a number of bytes, such as 64MiB`,
		`WASMJOB_CACHE_SIZE: 1MiB is too little; want at least 16MiB`,
		`WASMJOB_MOUNTS: "nonsense" is not a job's mount; want JOB=HOST:GUEST`,
		`--server-ip: "::1" is neither an IPv4 address nor a network such as 10.0.0.0/8`,
		`--admin: admin address "example.org:80": "example.org" is not an IP address and not localhost`,
		`--mount: "/nothing" is not a mount; want HOST:GUEST`,
		`--guest-log-level: "inof" is not a level; want debug, info, warn or error; did you mean "info"?`,
		`--rescan: 1ms is too short; want at least 1s`,
		`--clock-bound: 0s is too short; want at least 500ms`,
		`--history: directory "P/none" does not exist`,
	} {
		found := false
		for i, line := range lines {
			if line == want {
				lines = append(lines[:i], lines[i+1:]...)
				found = true
				break
			}
		}
		if !found {
			t.Errorf("missing: %s", want)
		}
	}
	if len(lines) > 0 {
		t.Errorf("besides:\n%s", strings.Join(lines, "\n"))
	}
}

// aliases are mounts of so many jobs, all of which are those of one.
func aliases(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("j%d: *x,", i))
	}
	return list
}

func TestFilesThatAreNoConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: [":                        "FILE:1:1: not YAML: did not find expected node content",
		"- plugins":                   "FILE:1: want keys with values",
		"just text":                   "FILE:1: want keys with values",
		"plugins: P\n---\na: b":       "FILE: want one YAML document",
		"mounts: 7\nplugins: P":       "FILE:1: mounts: want keys with values",
		"[a, b]: c\nplugins: P":       "FILE:1: a key is not a word",
		"mounts:\n  a: [b]":           "FILE:2: mounts: want keys with values",
		"plugins: &x P\nlogLevel: *x": `is not a level`,
	} {
		if _, _, err := load(t, text, nil, []string{"--plugins", "P"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for name, text := range map[string]string{
		"keys":    strings.Repeat("a: 1\n", 20_000),
		"bytes":   strings.Repeat("{a,", 300_000),
		"size":    strings.Repeat("# \n", 400_000),
		"aliases": "mounts: {a: &x [" + strings.Repeat("{host: /a, guest: /b},", 3000) + "]," + strings.Join(aliases(3000), "") + "}\n",
		"mapping": "mounts: {a: [&x {" + strings.Repeat("k: v,", 3000) + "}," + strings.Repeat("*x,", 3000) + "]}\n",
	} {
		if _, _, err := load(t, text, nil, []string{"--plugins", "P"}); err == nil || len(err.Error()) > words.MaxReasons || strings.Count(err.Error(), "\n") > words.MostProblems {
			t.Errorf("%s: found %.300q", name, fmt.Sprint(err))
		}
	}
	for _, text := range []string{"# nothing", "---\n", "{}", "mounts:\n", "plugins: &x P\ndata: *x\n"} {
		if _, _, err := load(t, text, nil, []string{"--plugins", "P"}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, _, err := load(t, "", []string{"WASMJOB_CONFIG=P/none.yaml"}, []string{"--plugins", "P"}); err == nil || !strings.Contains(err.Error(), "WASMJOB_CONFIG: open P/none.yaml") {
		t.Errorf("a file that does not exist: %v", err)
	}
	if _, _, err := load(t, "", nil, nil); err == nil || !strings.Contains(err.Error(), `--plugins, WASMJOB_PLUGINS`) {
		t.Errorf("a default that does not fit: %v", err)
	}
}

func TestUnknownVariablesAreWarnings(t *testing.T) {
	t.Parallel()
	l, _, err := load(t, "", []string{"WASMJOB_PLUGINS=P", "WASMJOB_LOGLEVEL=debug", "WASMJOB_PORT=tcp://10.0.0.1:80"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`the variable WASMJOB_LOGLEVEL is not a setting; did you mean WASMJOB_LOG_LEVEL?`, `the variable WASMJOB_PORT is not a setting`}
	if !reflect.DeepEqual(l.warnings, want) {
		t.Errorf("warnings %q, want %q", l.warnings, want)
	}
}

// TestUsersFileThatIsMissing: a file that was named and is not there is said to be missing; the
// default one may be.
func TestUsersFileThatIsMissing(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"named": {"--plugins", "P", "--users", "c/nope.yaml"}, "off": {"--plugins", "P", "--users", "off"}, "not named": {"--plugins", "P"}} {
		l, _, err := load(t, "", nil, args)
		if err != nil {
			t.Fatal(err)
		}
		if said := strings.Join(l.warnings, "\n"); strings.Contains(said, "c/nope.yaml does not exist") != (name == "named") || (name != "named" && said != "") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestBrokenConfigFile: of a file that is no YAML that is said, with its place, and nothing else.
func TestBrokenConfigFile(t *testing.T) {
	t.Parallel()
	_, file, err := load(t, "logLevel: info\nmounts:\n\tkey: 1\n", nil, nil)
	if err == nil || !strings.HasSuffix(err.Error(), "FILE:3:1: not YAML: found character that cannot start any token: a tab cannot indent, expected blanks") || strings.Contains(err.Error(), "plugins") {
		t.Errorf("%s: %v", file, err)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "65536": 65536, "64KiB": 65536, "1.5 mib": 3 << 19, "2GB": 2e9, "7B": 7} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
		if again, err := parseSize(jobconfig.ShowSize(want)); err != nil || again != want {
			t.Errorf("%d is shown as %q, which is %d, %v", want, jobconfig.ShowSize(want), again, err)
		}
	}
	for _, text := range []string{"", "-1", "MiB", "1XB", "NaN", "Inf", "1e30", "0x10"} {
		if got, err := parseSize(text); err == nil && text != "0x10" {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
}

func TestSizeOrPart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "50%": 4 << 30, "100%": 8 << 30, "12.5%": 1 << 30, "64MiB": 64 << 20} {
		if got, err := sizeOrPart(text, func() (uint64, error) { return 8 << 30, nil }); err != nil || got != want {
			t.Errorf("%q is %d, expected %d (%v)", text, got, want, err)
		}
	}
	for text, want := range map[string]string{
		"0%": "more than 0%", "101%": "at most 100%", "NaN%": "not a part", "x": "not a size", "1MiB": "want at least 16MiB", "-1": "not a size",
	} {
		if got, err := sizeOrPart(text, func() (uint64, error) { return 8 << 30, nil }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %d (%v), expected %q", text, got, err, want)
		}
	}
	unknown := errors.New("no such file")
	if _, err := sizeOrPart("50%", func() (uint64, error) { return 0, unknown }); !errors.Is(err, unknown) {
		t.Errorf("with unknown memory: %v", err)
	}
	if bytes, err := machineMemory(); err != nil || bytes < leastMemory {
		t.Errorf("the machine has %d bytes (%v)", bytes, err)
	}
}

// TestGuestLogInTheHistory: the history's own file is refused for all that jobs log.
func TestGuestLogInTheHistory(t *testing.T) {
	t.Parallel()
	for file, history := range map[string]string{"P/x.jsonl": "P/y/../x.jsonl", "P/h.db": "sqlite:P/h.db"} {
		_, _, err := load(t, "", nil, []string{"--plugins", "P", "--cache", "C", "--guest-log", file, "--history", history})
		if err == nil || !strings.Contains(err.Error(), "--guest-log: the history is in that file") {
			t.Errorf("%s and %s: %v", file, history, err)
		}
	}
	for _, history := range []string{"", "P/h.jsonl", "sqlite:P/h.db", "postgres://ann@db/jobs?sslmode=disable"} {
		if _, _, err := load(t, "", nil, []string{"--plugins", "P", "--cache", "C", "--guest-log", "P/x.jsonl", "--history", history}); err != nil {
			t.Errorf("%q: %v", history, err)
		}
	}
}

// TestHistoryInADatabase: the URL is checked, credentials come from one place, and no
// password is shown.
func TestHistoryInADatabase(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("ann:s3cr3t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, flags []string
		where      string // empty: an error with want
		want       string
	}{
		{nil, []string{"--history", "postgres://db/jobs?sslmode=disable", "--history-credentials-file", secret, "--cache", "C"}, "postgres://ann@db/jobs?sslmode=disable", ""},
		{[]string{"WASMJOB_HISTORY_CREDENTIALS=bob:s3cr3t"}, []string{"--history", "mysql://db/jobs", "--cache", "C"}, "mysql://bob@db/jobs", ""},
		{[]string{"WASMJOB_HISTORY=postgres://ann:s3cr3t@db/jobs?sslmode=disable"}, []string{"--data", "D"}, "postgres://ann@db/jobs?sslmode=disable", ""},
		{nil, []string{"--history", "postgres://ann:s3cr3t@db/jobs?sslmode=disable&spool=/s", "--cache", "off"}, "postgres://ann@db/jobs?sslmode=disable", ""},
		{nil, []string{"--history", "postgres://ann:s3cr3t@db/jobs", "--history-credentials-file", secret, "--cache", "C"}, "", "there are credentials in " + secret + ", too"},
		{[]string{"WASMJOB_HISTORY_CREDENTIALS=bob:s3cr3t"}, []string{"--history", "mysql://db/jobs", "--history-credentials-file", secret, "--cache", "C"}, "", "credentials are in WASMJOB_HISTORY_CREDENTIALS, too"},
		{[]string{"WASMJOB_HISTORY_CREDENTIALS=s3cr3t"}, []string{"--history", "mysql://db/jobs", "--cache", "C"}, "", "these are not credentials; want user:password"},
		{nil, []string{"--history", "oracle://ann:s3cr3t@db/jobs"}, "", "found the scheme \"oracle\""},
		{nil, []string{"--history", "mysql://ann:s3cr3t@db/jobs", "--cache", "off"}, "", "there is no place for it"},
		{nil, []string{"--history-credentials-file", secret}, "", "has a meaning for databases only"},
		{nil, []string{"--history", "sqlite:/no/such/directory/h.db", "--cache", "C"}, "", `directory "/no/such/directory" does not exist`},
	} {
		l, _, err := load(t, "", c.env, append([]string{"--plugins", "P"}, c.flags...))
		if c.where == "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Errorf("%v: %v, want %q", c.flags, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", c.flags, err)
			continue
		}
		var printed strings.Builder
		if err := l.print(&printed); err != nil {
			t.Fatal(err)
		}
		if l.HistoryDatabase.Where != c.where || l.HistoryDatabase.Spool == "" || strings.Contains(printed.String()+fmt.Sprint(l.warnings), "s3cr3t") {
			t.Errorf("%v: %s, spool %s, warnings %q, printed %s", c.flags, l.HistoryDatabase.Where, l.HistoryDatabase.Spool, l.warnings, printed.String())
		}
		given := strings.Contains(strings.Join(c.flags, " "), "s3cr3t")
		if warned := strings.Contains(fmt.Sprint(l.warnings), "everybody on this machine can read"); warned != given {
			t.Errorf("%v: warnings %q", c.flags, l.warnings)
		}
	}
}
