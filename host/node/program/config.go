package program

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/auth/guard"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/host/engine/catalog"
	"github.com/wasmjob/wasmjob/host/history/database"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/host/observe/metrics"
	"github.com/wasmjob/wasmjob/host/observe/trace"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Config is what `wasmjob run` needs. The zero value is not useful: loadConfig
// fills it from defaults, file, environment and flags. It is not changed
// afterwards. Relative paths are relative to the working directory.
type Config struct {
	// Plugins is the directory with modules and definitions. It must exist.
	Plugins string
	// Data is the directory of the embedded registry's file, created if missing. Empty: the registry is in
	// memory and lost at the end.
	Data string
	// Registry is "embedded" or "zookeeper".
	Registry string
	// ZooKeeper has the address of the ensemble.
	ZooKeeper ensemble.Ensemble
	// Wait is how long a host waits for the first session; 0 is for ever.
	Wait time.Duration
	// Namespace is the first segment (or segments) of every registry path.
	Namespace string
	// ServerIP names this server to operators and to the other hosts: an IPv4
	// address, or the network that it is to be taken from. ServerInterface is
	// the interface that has it. If both are empty, network.serverIP chooses.
	ServerIP, ServerInterface string
	// DumpAddress is where ElasticJob's dump request is answered. Empty is
	// nowhere.
	DumpAddress string
	// Admin is the address of the API and console; nil is none.
	Admin *server.Address
	// InsecureAdmin allows an admin address that other machines can reach.
	InsecureAdmin bool
	// AdminTokenFile keeps the token between starts; it is created if missing. Empty: a new token at every
	// start.
	AdminTokenFile string
	// Access says who may use the admin address, and how.
	Access guard.Config
	// LogFormat is "console" or "json".
	LogFormat string
	// LogLevel is the lowest level of the host's own lines that is shown,
	// GuestLogLevel that of the guests' lines.
	LogLevel, GuestLogLevel zapcore.Level
	// History is the file or the URL of the database that keeps the events; the URL may have
	// a password. Empty is memory. HistoryDatabase is what was read of a URL; nil for a file.
	History         string
	HistoryDatabase *database.Config
	// HistoryCredentialsFile has "user:password" in its first line.
	HistoryCredentialsFile string
	// GuestLog is the file for all that jobs log; empty is none.
	GuestLog string
	// MetricsJobs says which jobs have metrics of their own.
	MetricsJobs metrics.Jobs
	// MetricsLabels are the labels of jobs that metrics carry.
	MetricsLabels metrics.JobLabels
	// GuestSeries bounds the number of series that guests report, over all jobs.
	GuestSeries int
	// OTLP is the URL of a collector of traces; empty is none. TraceRatio is the part of fires whose traces are
	// recorded.
	OTLP       string
	TraceRatio float64
	// HistorySize bounds the bytes of the history on this disk; 0 is auto.
	HistorySize int64
	// MaxConcurrency bounds the items that run at once; 0 is 8 per processor.
	MaxConcurrency int
	// MemoryBudget bounds guests and compiled code together: a size, or a part of the machine's memory such as
	// 50%. Empty is no limit.
	MemoryBudget string
	// ModuleMemory bounds the part of the budget for compiled modules without a running guest, in the same
	// form. Empty is no limit.
	ModuleMemory string
	// DrainTimeout is how long running items may continue when the host stops; 0 ends them at once.
	DrainTimeout time.Duration
	// ClockBound is how far this host's clock may be ahead of the registry's;
	// negative is no bound.
	ClockBound time.Duration
	// KeepServers is how long the registry keeps servers that a job has left; 0 is
	// for ever.
	KeepServers time.Duration
	// Cache is where compiled modules are kept. Empty: in memory only.
	Cache string
	// CacheSize bounds the bytes of the cache.
	CacheSize int64
	// DeadMan is "auto", "on" or "off"; see program.deadMan.
	DeadMan string
	// Rescan is the interval of full scans of the plugins directory, besides those that a change causes.
	Rescan time.Duration
	// Isolation has patterns of jobs whose guests run in processes of their own,
	// whatever their definitions say.
	Isolation []string
	// InProcess has patterns of jobs whose guests may run in the host's own process, if
	// their definitions ask for it.
	InProcess []string
	// WorkerGroups says which of the other jobs share a worker process.
	WorkerGroups catalog.Grouping
	// Mounts are the directories that guests may read, by job name.
	Mounts map[string][]plugin.Mount
	// Grants is the file or directory that says what jobs may do outside of their sandbox, GrantSet its
	// content. Empty and nil: nothing.
	Grants   string
	GrantSet *grants.Set
	// Alerts is the file that says who gets messages about what. Empty: no alerts.
	Alerts string
	// Ceilings are what no job may go beyond; the defaults are the last entry.
	Ceilings ceiling.List
}

const (
	logConsole = "console"
	logJSON    = "json"
	off        = "off"

	defaultAdmin = "127.0.0.1:9770"

	mostConcurrency = 1 << 20

	// leastClockBound is larger than the difference of clocks under NTP.
	leastClockBound = 500 * time.Millisecond
)

// setting is one entry of the configuration. Its key is its name in the file;
// the names of flag and variable follow from it.
type setting struct {
	key string
	// arg and help are for the flag's help; arg stands for the value.
	arg, help string
	// standard is the default, as text.
	standard string
	// is describes valid values in the file, for editors; nil is any text.
	is schema.Shape
	// set reads the text into the Config.
	set func(c *Config, text string) error
	// show writes the Config's value as text that set reads.
	show func(c *Config) string
}

func (s setting) flag() string     { return separated(s.key, '-') }
func (s setting) variable() string { return command.EnvPrefix + strings.ToUpper(separated(s.key, '_')) }

// separated turns logFormat into log-format.
func separated(key string, by byte) string {
	var b strings.Builder
	for i := range len(key) {
		c := key[i]
		if c >= 'A' && c <= 'Z' {
			b.WriteByte(by)
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}

// mountsKey is one of two entries with more than a value: in the file a map from job to a list of {host,
// guest}.
const mountsKey = "mounts"

// ceilingsKey is the other: in the file a list of ceilings for jobs that match a
// pattern. A later layer's entries come before those of the earlier ones.
const (
	ceilingsKey      = "ceilings"
	ceilingFlag      = "ceiling"
	ceilingsVariable = command.EnvPrefix + "CEILINGS"
	ceilingJobs      = "jobs" // the pattern's key
)

const (
	mountHost     = "host" // the directory's keys
	mountGuest    = "guest"
	mountFlag     = "mount"
	mountVariable = command.EnvPrefix + "MOUNTS"
)

// settings lists the entries in the order in which they are shown.
func settings(d defaults) []setting {
	return slices.Concat(jobSettings(d), registrySettings(), zooKeeperSettings(), hostSettings(d), accessSettings(d), traceSettings(d), historySettings(), []setting{deadManSetting()})
}

// jobSettings say where jobs come from.
func jobSettings(d defaults) []setting {
	plugins := textSetting("plugins", "DIR", "plugins", "directory with the jobs: NAME.wasm and NAME.yaml", func(c *Config) *string { return &c.Plugins })
	plugins.set = checked(plugins.set, func(s string) error {
		if d.printed {
			return nil
		}
		return directory(s)
	})
	return []setting{plugins, grantsSetting(d), alertsSetting(d)}
}

// alertsSetting is where rules and receivers of alerts are. The file is read here, so that
// a mistake in it is one of the configuration; the host reads it when it starts.
func alertsSetting(d defaults) setting {
	s := textSetting("alerts", "FILE", "", "who gets messages when jobs do not do what they should, read again when it changes (docs/alerts.md); the same on all hosts; without it no messages are sent", func(c *Config) *string { return &c.Alerts })
	s.set = checked(s.set, func(text string) (err error) {
		if text != "" && !d.printed {
			_, err = alert.Read(text)
		}
		return err
	})
	return s
}

// grantsSetting is where the grants are. They are read here, so that a mistake in them is
// one of the configuration.
func grantsSetting(d defaults) setting {
	s := textSetting("grants", "FILE|DIR", "", "what jobs may do outside of their sandbox: a file, or a directory with several, read again when they change (docs/grants.md); without it nothing but their mounts", func(c *Config) *string { return &c.Grants })
	set := s.set
	s.set = func(c *Config, text string) (err error) {
		if text != "" && !d.printed {
			if c.GrantSet, err = grants.Read(text); err != nil {
				return err
			}
		}
		return set(c, text)
	}
	return s
}

// registrySettings say what the host has in common with others.
func registrySettings() []setting {
	namespace := textSetting("namespace", "NAME", "wasmjob", "first part of all paths in the registry; hosts of different namespaces do not see each other", func(c *Config) *string { return &c.Namespace })
	namespace.set = checked(namespace.set, func(s string) error {
		for segment := range strings.SplitSeq(s, "/") {
			if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
				return fmt.Errorf("%q is not a namespace; want a name, or several joined by /", words.Clip(s))
			}
		}
		if err := registry.CheckPath("/" + s); err != nil {
			return fmt.Errorf("%q is not a namespace: %w", words.Clip(s), err)
		}
		return nil
	})
	return []setting{
		{
			key: "registry", arg: "REGISTRY", standard: registryEmbedded,
			help: "registry that coordinates the hosts: embedded (in this process, for one host), zookeeper://HOST:PORT,HOST:PORT/PATH, or zookeeper with its servers in --zk; --zk alone means zookeeper",
			set: func(c *Config, s string) (err error) {
				c.Registry, err = parseRegistry(s)
				return err
			},
			show: func(c *Config) string { return c.Registry },
		},
		namespace,
		textSetting("data", "DIR", "", "keep the embedded registry in this directory: settings, offsets and unfinished runs outlive the host; without it they are in memory and gone when the host ends", func(c *Config) *string { return &c.Data }),
	}
}

// textSetting is a setting kept as written.
func textSetting(key, arg, standard, help string, field func(c *Config) *string) setting {
	return setting{
		key: key, arg: arg, standard: standard, help: help,
		set:  func(c *Config, s string) error { *field(c) = s; return nil },
		show: func(c *Config) string { return *field(c) },
	}
}

// boolSetting is true or false.
func boolSetting(key, help string, field func(c *Config) *bool) setting {
	return setting{
		key: key, arg: "bool", standard: "false", help: help, is: schema.Any(schema.Boolean(), schema.Shape{"enum": []any{0, 1, "", "0", "1", "f", "F", "t", "T"}}),
		set:  func(c *Config, s string) error { return setBool(field(c), s) },
		show: func(c *Config) string { return strconv.FormatBool(*field(c)) },
	}
}

// durationSetting is a duration not below least.
func durationSetting(key, standard string, least time.Duration, help string, field func(c *Config) *time.Duration) setting {
	return setting{
		key: key, arg: "DURATION", standard: standard, help: help, is: schema.Duration(),
		set:  func(c *Config, s string) error { return setDuration(field(c), s, least) },
		show: func(c *Config) string { return words.Duration(*field(c)) },
	}
}

// levelSetting is a level of the log.
func levelSetting(key, help string, field func(c *Config) *zapcore.Level) setting {
	return setting{
		key: key, arg: "LEVEL", standard: "info", help: help, is: schema.Words(levels()...),
		set:  func(c *Config, s string) error { return setLevel(field(c), s) },
		show: func(c *Config) string { return field(c).String() },
	}
}

// memorySetting is a size or a part of the memory, or off.
func memorySetting(key, standard, help string, field func(c *Config) *string) setting {
	s := offSetting(textSetting(key, "SIZE", standard, help, field))
	s.set = checked(s.set, func(text string) error {
		if text == off {
			return nil
		}
		_, err := sizeOrPart(text, func() (uint64, error) { return 1 << 40, nil })
		return err
	})
	return s
}

// offSetting shows an empty value as off, and reads it.
func offSetting(s setting) setting {
	set, show := s.set, s.show
	s.set = func(c *Config, text string) error {
		if text == off {
			text = ""
		}
		return set(c, text)
	}
	s.show = func(c *Config) string { return cmp.Or(show(c), off) }
	return s
}

// checked sets a text that passes the check.
func checked(set func(*Config, string) error, check func(string) error) func(*Config, string) error {
	return func(c *Config, s string) error {
		if err := check(s); err != nil {
			return err
		}
		return set(c, s)
	}
}

// hostSettings are those of the host itself.
func hostSettings(d defaults) []setting {
	serverIP := textSetting("serverIp", "IP", "", "IPv4 address that names this server to operators and other hosts, or a network such as 10.0.0.0/8 that it is taken from (default: the address from which ZooKeeper is reached, else the first that is not loopback, else 127.0.0.1)", func(c *Config) *string { return &c.ServerIP })
	serverIP.set = checked(serverIP.set, checkServerIP)
	dump := offSetting(setting{
		key: "dumpPort", arg: "PORT", standard: off,
		help: "answer ElasticJob's dump request, dump@JOB, on this TCP port of the loopback address, or on IP:PORT; there is no password: it shows the configuration of all jobs",
		set:  setDumpAddress,
		show: func(c *Config) string { return c.DumpAddress },
	})
	format := textSetting("logFormat", "FORMAT", logConsole, "console or json", func(c *Config) *string { return &c.LogFormat })
	formats := []string{logConsole, logJSON}
	format.is = schema.Words(formats...)
	format.set = checked(format.set, func(s string) error {
		if !slices.Contains(formats, s) {
			return fmt.Errorf("%q is not a log format; want console or json%s", words.Clip(s), words.Suggest(s, formats))
		}
		return nil
	})
	return []setting{
		serverIP,
		textSetting("serverInterface", "NAME", "", "network interface whose IPv4 address names this server; with --server-ip NETWORK, the address there that is in the network", func(c *Config) *string { return &c.ServerInterface }),
		adminSetting(),
		boolSetting("insecureAdmin", "serve on an admin address that other machines can reach, though neither it nor a proxy has TLS: who listens in on the way has the token", func(c *Config) *bool { return &c.InsecureAdmin }),
		textSetting("adminTokenFile", "FILE", "", "file with the token for operations, mode 0600, made if it does not exist (default: a new token at every start)", func(c *Config) *string { return &c.AdminTokenFile }),
		metricsSetting(),
		metricsLabelsSetting(),
		guestSeriesSetting(),
		dump,
		format,
		levelSetting("logLevel", "lowest level of the host's log: debug, info, warn or error", func(c *Config) *zapcore.Level { return &c.LogLevel }),
		levelSetting("guestLogLevel", "lowest level of what jobs log: debug, info, warn or error", func(c *Config) *zapcore.Level { return &c.GuestLogLevel }),
		{
			key: "maxConcurrency", arg: "N", standard: "0", is: schema.Integer(0, mostConcurrency),
			help: "most items that run at once on this host; 0 is 8 per processor",
			set: func(c *Config, s string) error {
				n, err := strconv.Atoi(s)
				if err != nil || n < 0 || n > mostConcurrency {
					return fmt.Errorf("%q is not a number from 0 to %d", words.Clip(s), mostConcurrency)
				}
				c.MaxConcurrency = n
				return nil
			},
			show: func(c *Config) string { return strconv.Itoa(c.MaxConcurrency) },
		},
		memorySetting("memoryBudget", "50%", "most memory that all guests and compiled modules take together: a size, a part of the machine's or container's memory, or off; one job may have three quarters of it", func(c *Config) *string { return &c.MemoryBudget }),
		memorySetting("moduleMemory", "25%", "most memory that compiled modules take: a size, a part of the machine's or container's memory, or off; beyond it those leave that are needed last, and come back from the cache ahead of their jobs' fires", func(c *Config) *string { return &c.ModuleMemory }),
		isolationSetting(),
		inProcessSetting(),
		workerGroupsSetting(),
		durationSetting("drainTimeout", "30s", 0, "how long running items may go on after Ctrl-C or SIGTERM; 0 is not at all", func(c *Config) *time.Duration { return &c.DrainTimeout }),
		clockBoundSetting(),
		durationSetting("keepServers", "24h", 0, "how long the registry keeps the node of an enabled server without an instance of a job; 0 is for ever", func(c *Config) *time.Duration { return &c.KeepServers }),
		offSetting(textSetting("cache", "DIR", d.cache, "keep compiled modules in this directory, which only its owner may write to; off keeps them in memory", func(c *Config) *string { return &c.Cache })),
		cacheSizeSetting(),
		durationSetting("rescan", "30s", time.Second, "time between two full looks at the plugins directory; changes are seen at once as a rule", func(c *Config) *time.Duration { return &c.Rescan }),
	}
}

// checkServerIP accepts an IPv4 address, a network of them, or nothing.
func checkServerIP(s string) error {
	if s == "" {
		return nil
	}
	ip, err := netip.ParseAddr(s)
	if network, nerr := netip.ParsePrefix(s); err != nil && nerr == nil {
		ip, err = network.Masked().Addr(), nil
	}
	if err != nil || !ip.Is4() {
		return fmt.Errorf("%q is neither an IPv4 address nor a network such as 10.0.0.0/8", words.Clip(s))
	}
	return nil
}

// adminSetting is where the host is looked at and steered.
func adminSetting() setting {
	return setting{
		key: "admin", arg: "ADDRESS", standard: defaultAdmin,
		help: "where status, operations and metrics are served: IP:PORT, a socket's path, or off",
		set: func(c *Config, s string) error {
			c.Admin = nil
			if s == "" || s == off {
				return nil
			}
			a, err := server.ParseAddress(s)
			if err == nil {
				c.Admin = &a
			}
			return err
		},
		show: func(c *Config) string {
			if c.Admin == nil {
				return off
			}
			return c.Admin.String()
		},
	}
}

func setDumpAddress(c *Config, s string) error {
	if s == "" {
		c.DumpAddress = ""
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = "127.0.0.1", s
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if _, ierr := netip.ParseAddr(host); err != nil || (host != "" && ierr != nil) {
		return fmt.Errorf("%q is not a port; want a number up to 65535, IP:PORT or :PORT (all addresses)", words.Clip(s))
	}
	c.DumpAddress = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	return nil
}

// clockBoundSetting is how far the host's clock may be ahead.
func clockBoundSetting() setting {
	s := durationSetting("clockBound", "5s", leastClockBound, "how far this host's clock may be ahead of the registry's: nothing begins earlier than that before its instant by the registry's clock; off is no bound", func(c *Config) *time.Duration { return &c.ClockBound })
	s.is = schema.Any(s.is, schema.Words(off))
	set, show := s.set, s.show
	s.set = func(c *Config, text string) error {
		if text == off {
			c.ClockBound = -1
			return nil
		}
		return set(c, text)
	}
	s.show = func(c *Config) string {
		if c.ClockBound < 0 {
			return off
		}
		return show(c)
	}
	return s
}

// cacheSizeSetting bounds the cache of compiled modules.
func cacheSizeSetting() setting {
	return setting{
		key: "cacheSize", arg: "SIZE", is: schema.Size(math.MaxInt64), standard: jobconfig.ShowSize(plugin.DefaultCacheSize),
		help: "most that compiled modules take in the cache directory; what was used longest ago goes first",
		set: func(c *Config, s string) error {
			n, err := parseSize(s)
			if err == nil && n < leastMemory {
				err = fmt.Errorf("%s is too little; want at least %s", words.Clip(s), jobconfig.ShowSize(leastMemory))
			}
			c.CacheSize = n
			return err
		},
		show: func(c *Config) string { return jobconfig.ShowSize(c.CacheSize) },
	}
}

func isolationSetting() setting {
	return setting{
		key: "isolation", arg: "WHERE", standard: "",
		help: "run guests in a process for each job: process (of all jobs), or process=PATTERN,PATTERN… (of jobs whose names match, such as team-a-*); the others run where their definitions say, by default in a worker process that jobs share",
		set: func(c *Config, s string) (err error) {
			c.Isolation, err = parseIsolation(s)
			return err
		},
		show: func(c *Config) string {
			switch {
			case len(c.Isolation) == 0:
				return ""
			case slices.Equal(c.Isolation, everyJob()):
				return isolationProcess
			}
			return isolationProcess + "=" + strings.Join(c.Isolation, ",")
		},
	}
}

const isolationProcess = string(jobconfig.IsolationProcess)

func everyJob() []string { return []string{"*"} }

// parseIsolation reads patterns of jobs that run in processes; an empty text has none.
func parseIsolation(s string) ([]string, error) {
	list, some := strings.CutPrefix(s, isolationProcess+"=")
	switch {
	case s == "":
		return nil, nil
	case s == isolationProcess:
		return everyJob(), nil
	case !some, list == "":
		return nil, fmt.Errorf("%q is no isolation; want process or process=PATTERN,PATTERN…, such as process=team-a-*", words.Clip(s))
	}
	return parsePatterns(list)
}

// parsePatterns reads patterns of jobs' names; an empty text has none.
func parsePatterns(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	patterns := strings.Split(s, ",")
	for _, p := range patterns {
		if err := ceiling.CheckPattern(p); err != nil {
			return nil, err
		}
	}
	return patterns, nil
}

// inProcessSetting says whose guests may run in the host's own process.
func inProcessSetting() setting {
	return setting{
		key: "inProcess", arg: "PATTERNS", standard: "",
		help: "jobs that are trusted to run in the host's own process, if their definitions ask for it (isolation: host): PATTERN,PATTERN…; a guest that breaks out, or that the engine fails on, ends the host",
		set: func(c *Config, s string) (err error) {
			c.InProcess, err = parsePatterns(s)
			return err
		},
		show: func(c *Config) string { return strings.Join(c.InProcess, ",") },
	}
}

// workerGroupsSetting says which jobs share a worker process.
func workerGroupsSetting() setting {
	return setting{
		key: "workerGroups", arg: "GROUPS", standard: string(catalog.GroupAll), is: schema.Words(groupings()...),
		help: "which jobs share a worker process: all, folder (those whose definitions lie in one folder of the plugins directory), or signer (those whose modules one key has signed)",
		set: func(c *Config, s string) error {
			c.WorkerGroups = catalog.Grouping(s)
			if !slices.Contains(catalog.Groupings(), c.WorkerGroups) {
				return fmt.Errorf("%q is no grouping; want all, folder or signer", words.Clip(s))
			}
			return nil
		},
		show: func(c *Config) string { return string(c.WorkerGroups) },
	}
}

func groupings() (names []string) {
	for _, g := range catalog.Groupings() {
		names = append(names, string(g))
	}
	return names
}

// placement is where the guests of jobs run.
func (c *Config) placement() catalog.Placement {
	return catalog.Placement{Alone: c.Isolation, InProcess: c.InProcess, Groups: c.WorkerGroups}
}

// defaults has the default values that depend on the machine.
type defaults struct {
	cache string
	// users is the users file; empty: the machine has no place for one.
	users string
	otlp  string // empty: off
	// printed settings are only shown: the plugins directory need not exist.
	printed bool
}

// machineDefaults asks this machine.
func machineDefaults(getenv func(string) string) defaults {
	d := defaults{cache: off}
	if t, err := trace.FromEnvironment(getenv); err == nil {
		d.otlp = t.Endpoint
	}
	cache := getenv("XDG_CACHE_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(cache) && filepath.IsAbs(home) {
		cache = filepath.Join(home, ".cache")
	}
	if filepath.IsAbs(cache) {
		d.cache = filepath.Join(cache, "wasmjob", "modules")
	}
	config := getenv("XDG_CONFIG_HOME")
	if home := getenv("HOME"); !filepath.IsAbs(config) && filepath.IsAbs(home) {
		config = filepath.Join(home, ".config")
	}
	if filepath.IsAbs(config) {
		d.users = filepath.Join(config, "wasmjob", "users.yaml")
	}
	return d
}

func setBool(into *bool, s string) error {
	on, err := strconv.ParseBool(cmp.Or(s, "false"))
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", words.Clip(s))
	}
	*into = on
	return nil
}

// levels are the levels of a log.
func levels() []string { return []string{"debug", "info", "warn", "error"} }

func setLevel(into *zapcore.Level, s string) error {
	names := levels()
	if !slices.Contains(names, s) {
		return fmt.Errorf("%q is not a level; want debug, info, warn or error%s", words.Clip(s), words.Suggest(s, names))
	}
	return into.Set(s)
}

func setDuration(into *time.Duration, s string, least time.Duration) error {
	d, err := times.Duration(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a duration; want a number with a unit, such as 30s or 2m", words.Clip(s))
	case d < least:
		return fmt.Errorf("%s is too short; want at least %s", d, least)
	}
	*into = d
	return nil
}

// parseSize reads a number of bytes: 67108864, 64MiB, 1.5GB.
func parseSize(s string) (int64, error) {
	n, ok := jobconfig.ParseSize(s)
	if !ok {
		return 0, fmt.Errorf("%q is not a size; want a number of bytes, such as 64MiB", words.Clip(s))
	}
	return n, nil
}

// leastMemory is the least memory that a host needs.
const leastMemory = 16 << 20

// sizeOrPart reads a size, or a part of memory's result. An empty text is 0.
func sizeOrPart(s string, memory func() (uint64, error)) (int64, error) {
	if s == "" {
		return 0, nil
	}
	var bytes int64
	if number, ok := strings.CutSuffix(s, "%"); ok {
		part, err := strconv.ParseFloat(number, 64)
		if err != nil || math.IsNaN(part) || part <= 0 || part > 100 {
			return 0, fmt.Errorf("%q is not a part of the memory; want more than 0%% and at most 100%%", words.Clip(s))
		}
		all, err := memory()
		if err != nil {
			return 0, fmt.Errorf("the machine's memory is not known (%w); want a size, such as 512MiB, or off", err)
		}
		bytes = int64(part / 100 * float64(min(all, 1<<50)))
	} else {
		var err error
		if bytes, err = parseSize(s); err != nil {
			return 0, fmt.Errorf("%q is not a size; want a number of bytes, such as 512MiB, a part of the memory, such as 50%%, or off", words.Clip(s))
		}
	}
	if bytes < leastMemory {
		return 0, fmt.Errorf("%s is too little; want at least %s", words.Clip(s), jobconfig.ShowSize(leastMemory))
	}
	return bytes, nil
}

// machineMemory returns the memory available to this process in bytes: its container's limit, else the
// machine's memory.
func machineMemory() (uint64, error) {
	return memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
}

func directory(name string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("directory %q does not exist", name)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%q is not a directory", name)
	}
	return nil
}

// checkMount returns what is wrong with a mount, or nil.
func checkMount(m plugin.Mount) error {
	switch {
	case m.Host == "":
		return errors.New("the host's directory is missing")
	case m.Guest == "":
		return errors.New("the guest's path is missing")
	case !filepath.IsAbs(m.Host):
		return fmt.Errorf("the host's directory %q is not an absolute path", m.Host)
	case !strings.HasPrefix(m.Guest, "/") || filepath.ToSlash(filepath.Clean(m.Guest)) != m.Guest:
		return fmt.Errorf("the guest's path %q is not absolute and clean, such as /src", m.Guest)
	}
	return directory(m.Host)
}

// parseMount reads HOST:GUEST. The guest's path begins after the last colon.
func parseMount(s string) (plugin.Mount, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return plugin.Mount{}, fmt.Errorf("%q is not a mount; want HOST:GUEST", words.Clip(s))
	}
	return plugin.Mount{Host: s[:i], Guest: s[i+1:]}, nil
}

// parseJobMount reads JOB=HOST:GUEST.
func parseJobMount(s string) (job string, m plugin.Mount, err error) {
	job, rest, ok := strings.Cut(s, "=")
	if !ok || job == "" {
		return "", plugin.Mount{}, fmt.Errorf("%q is not a job's mount; want JOB=HOST:GUEST", words.Clip(s))
	}
	m, err = parseMount(rest)
	return job, m, err
}
