package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/contexts"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/config/yamlnode"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/host/node/ensemble"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// configVariable names the file as --config does.
	configVariable = command.EnvPrefix + "CONFIG"
	// delimiter separates koanf's keys; a job's name cannot contain it.
	delimiter = "/"
)

// loaded is the merged configuration and where its values come from.
type loaded struct {
	Config
	settings []setting
	// origins are by key, those of mounts by "mounts/JOB": "default",
	// "FILE:LINE", a variable or a flag.
	origins map[string]string
	// warnings do not keep the host from starting.
	warnings []string
	// ceilingsFrom are the origins of Ceilings, entry by entry.
	ceilingsFrom []string
}

// givenCeilings is an entry of the ceilings, and where it comes from.
type givenCeilings struct {
	ceiling.Entry
	origin string
}

// loader merges the four layers. Each later one wins, value by value; of the
// mounts, job by job.
type loader struct {
	k        *koanf.Koanf
	settings []setting
	origins  map[string]string
	mounts   map[string][]plugin.Mount
	ceilings []givenCeilings // the newest layer first
	problems words.Problems
	values   int // how many values were looked at, those that aliases repeat among them
	warnings []string
}

// loadConfig merges defaults, the file (if the flag --config or WASMJOB_CONFIG
// names one), the environment and the flags that were given. The error holds
// all problems of all layers; a problem names where its value comes from.
func loadConfig(environ []string, flags *pflag.FlagSet, d defaults) (*loaded, error) {
	return merge(environ, flags, d, func(string) bool { return true })
}

// loadRegistry merges the layers in the same way, for a command that talks to
// ZooKeeper itself: of the settings only those of the registry are read.
func loadRegistry(environ []string, flags *pflag.FlagSet) (*loaded, error) {
	l, err := merge(environ, flags, defaults{}, func(key string) bool {
		named := func(s setting) bool { return s.key == key }
		return key != "data" && (slices.ContainsFunc(registrySettings(), named) || slices.ContainsFunc(zooKeeperSettings(), named))
	})
	switch {
	case err != nil:
		return nil, command.Usage(err)
	case !l.backend().Shared():
		return nil, command.Usage(errNoServers)
	}
	return l, nil
}

// merge merges the layers, and reads the settings that are wanted.
func merge(environ []string, flags *pflag.FlagSet, d defaults, want func(key string) bool) (*loaded, error) {
	l := &loader{
		k:        koanf.New(delimiter),
		settings: settings(d),
		origins:  make(map[string]string),
		mounts:   make(map[string][]plugin.Mount),
	}
	l.defaults()
	if name, from := configFile(environ, flags); name != "" {
		if !l.file(name, from) {
			return nil, l.problems.Err() // whatever else is wrong may come from settings that are not known
		}
	}
	l.environment(environ)
	l.flags(flags)
	result := &loaded{settings: l.settings, origins: l.origins, warnings: l.warnings}
	result.Mounts = l.mounts
	for _, s := range l.settings {
		if !want(s.key) {
			continue
		}
		if err := s.set(&result.Config, l.k.String(s.key)); err != nil {
			l.problem(l.origins[s.key], s.key, err)
		}
	}
	if l.problems.Len() == 0 {
		l.registryChoice(&result.Config, command.Lookup(environ, ensemble.CredentialsVariable))
	}
	if l.problems.Len() == 0 && want("history") {
		l.chooseHistory(&result.Config, command.Lookup(environ, historyCredentialsVariable))
		l.checkGuestLog(&result.Config)
	}
	if want("users") && l.origins["users"] != "default" && result.Access.Users != "" {
		if _, err := os.Stat(result.Access.Users); errors.Is(err, fs.ErrNotExist) {
			l.warnings = append(l.warnings, fmt.Sprintf("%s: %s does not exist: only the host's own token is let in until 'wasmjob access user add' or 'wasmjob access token create' makes the file", l.origins["users"], result.Access.Users))
		}
	}
	result.warnings = l.warnings
	if want("admin") {
		beyond := ""
		if result.Admin != nil && !result.Admin.Local() {
			beyond = result.Admin.String()
		}
		if key, err := result.Access.Check(beyond, result.InsecureAdmin); err != nil {
			l.problem(l.origins[key], key, err)
		}
	}
	result.setCeilings(l.ceilings)
	if !want(mountsKey) {
		return result, l.problems.Err()
	}
	l.checkMounts()
	if l.problems.Len() > 0 {
		return nil, l.problems.Err()
	}
	return result, nil
}

// checkMounts checks each job's mounts.
func (l *loader) checkMounts() {
	for _, job := range slices.Sorted(maps.Keys(l.mounts)) {
		guests := make(map[string]bool)
		for _, m := range l.mounts[job] {
			err := checkMount(m)
			if err == nil && guests[m.Guest] {
				err = fmt.Errorf("two directories for the guest's path %s", m.Guest)
			}
			if err != nil {
				l.problem(l.origins[mountOf(job)], "mount of job "+job, err)
			}
			guests[m.Guest] = true
		}
	}
}

// setCeilings takes over the entries that were given; the defaults come last.
func (l *loaded) setCeilings(given []givenCeilings) {
	if l.HistorySize == 0 {
		l.HistorySize = jsonl.SizeFor(historyPath(&l.Config))
	}
	standard := ceiling.Default(l.HistorySize)
	for _, g := range given {
		l.Ceilings, l.ceilingsFrom = append(l.Ceilings, g.Entry), append(l.ceilingsFrom, g.origin)
	}
	if n := len(given); n == 0 || !reflect.DeepEqual(given[n-1].Entry, standard) {
		l.Ceilings, l.ceilingsFrom = append(l.Ceilings, standard), append(l.ceilingsFrom, "default")
	}
}

// mountOf is the key of a job's mounts among the origins.
func mountOf(job string) string { return mountsKey + delimiter + job }

// configFile finds the file's name, and what named it.
func configFile(environ []string, flags *pflag.FlagSet) (name, from string) {
	if f := flags.Lookup(command.ConfigFlag); f != nil && f.Changed {
		return f.Value.String(), "--" + command.ConfigFlag
	}
	return command.Lookup(environ, configVariable), configVariable
}

func (l *loader) problem(origin, key string, err error) {
	if origin == "default" {
		s := setting{key: key}
		origin = key
		err = fmt.Errorf("%w (the default; choose another with --%s, %s or in the file)", err, s.flag(), s.variable())
	} else if !strings.HasPrefix(origin, "--") && !strings.HasPrefix(origin, command.EnvPrefix) {
		origin += ": " + key
	}
	l.problems.Addf("%s: %w", origin, err)
}

func (l *loader) load(p koanf.Provider, origin string) {
	if err := l.k.Load(p, nil); err != nil { // cannot fail: the maps are ours
		l.problems.Addf("%s: %w", origin, err)
	}
}

func (l *loader) defaults() {
	values := make(map[string]any)
	for _, s := range l.settings {
		values[s.key] = s.standard
		l.origins[s.key] = "default"
	}
	l.load(confmap.Provider(values, ""), "defaults")
}

// maxConfig is the largest configuration file, in bytes.
const maxConfig = 1 << 20

// file reads a YAML file. Every value is taken as text, as it stands there, so
// that it is read by the same rules wherever it comes from. ok is false if the file cannot be
// read as YAML.
func (l *loader) file(name, from string) (ok bool) {
	data, err := command.ReadFile(name, maxConfig)
	if err == nil {
		err = ownership.Self().Path(name, ownership.Settings)
	}
	if err == nil {
		err = yamlnode.Check(data)
	}
	if err != nil {
		l.problems.Addf("%s: %w", from, err)
		return false
	}
	documents, err := yamlnode.Decode(data)
	switch {
	case err != nil && len(documents) == 0:
		line, column, message := yamlnode.Explain(data, err)
		l.problems.Addf("%s:%d:%d: not YAML: %s", name, line, column, message)
		return false
	case len(documents) == 0:
		return true // nothing but comments
	case err != nil || len(documents) > 1:
		l.problems.Addf("%s: want one YAML document, found more", name)
		return false
	}
	root := documents[0]
	values, known := make(map[string]any), fileFields(l.settings).Names()
	l.mapping(name, "", root, func(key string, at string, v *yaml.Node) {
		switch {
		case key == mountsKey:
			l.fileMounts(name, v)
		case key == ceilingsKey:
			l.fileCeilings(name, at, v)
		case !slices.Contains(known, key):
			l.problems.Addf("%s: unknown key %q%s", at, words.Clip(key), words.Suggest(key, known))
		case v.Kind != yaml.ScalarNode:
			l.problem(at, key, errors.New("want a single value"))
		default:
			text := v.Value
			if v.ShortTag() == "!!null" {
				text = ""
			}
			values[key] = text
			l.origins[key] = at
		}
	})
	l.load(confmap.Provider(values, ""), name)
	return true
}

// mapping calls each for the entries of a YAML map, with "FILE:LINE".
func (l *loader) mapping(file, what string, n *yaml.Node, each func(key, at string, v *yaml.Node)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		if what != "" {
			what += ": "
		}
		l.problems.Addf("%s:%d: %swant keys with values", file, n.Line, what)
		return
	}
	if l.values += len(n.Content); l.values > jobconfig.MaxNodes {
		l.problems.Addf("%s:%d: the values with those that aliases repeat are more than %d", file, n.Line, jobconfig.MaxNodes)
		return
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if v.Kind == yaml.AliasNode {
			v = v.Alias
		}
		at := file + ":" + strconv.Itoa(k.Line)
		if k.Kind != yaml.ScalarNode {
			l.problems.Addf("%s: a key is not a word", at)
			continue
		}
		if line, twice := seen[k.Value]; twice {
			l.problems.Addf("%s: %q is there twice, before in line %d", at, words.Clip(k.Value), line)
			continue
		}
		seen[k.Value] = k.Line
		each(k.Value, at, v)
	}
}

func (l *loader) fileMounts(file string, n *yaml.Node) {
	l.mapping(file, mountsKey, n, func(job, at string, v *yaml.Node) {
		if v.Kind != yaml.SequenceNode {
			l.problem(at, mountsKey, fmt.Errorf("job %q: want a list of {host: DIR, guest: PATH}", words.Clip(job)))
			return
		}
		if l.values += len(v.Content); l.values > jobconfig.MaxNodes {
			l.problem(at, mountsKey, fmt.Errorf("the values with those that aliases repeat are more than %d", jobconfig.MaxNodes))
			return
		}
		var list []plugin.Mount
		for _, e := range v.Content {
			var m plugin.Mount
			l.mapping(file, mountsKey, e, func(key, at string, v *yaml.Node) {
				switch {
				case !slices.Contains(mountFields().Names(), key):
					l.problems.Addf("%s: unknown key %q in a mount%s", at, words.Clip(key), words.Suggest(key, mountFields().Names()))
				case v.Kind != yaml.ScalarNode:
					l.problem(at, key, errors.New("want a single value"))
				case key == mountHost:
					m.Host = v.Value
				default:
					m.Guest = v.Value
				}
			})
			list = append(list, m)
		}
		l.mounts[job], l.origins[mountOf(job)] = list, at
	})
}

func (l *loader) fileCeilings(file, at string, n *yaml.Node) {
	if n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.SequenceNode {
		l.problem(at, ceilingsKey, errors.New("want a list of {jobs: PATTERN, timeout: 1h, …}"))
		return
	}
	for _, e := range n.Content {
		given := givenCeilings{origin: file + ":" + strconv.Itoa(e.Line)}
		l.mapping(file, ceilingsKey, e, func(key, at string, v *yaml.Node) {
			err := errors.New("want a single value")
			switch {
			case v.Kind != yaml.ScalarNode:
			case key == ceilingJobs:
				given.Jobs, err = v.Value, ceiling.CheckPattern(v.Value)
			default:
				err = given.Set(key, v.Value)
			}
			if err != nil {
				l.problem(at, ceilingsKey, err)
			}
		})
		if given.Jobs == "" {
			l.problem(given.origin, ceilingsKey, errors.New("jobs is missing: the pattern of the jobs that the entry is for"))
		}
		l.ceilings = append(l.ceilings, given)
	}
}

// textCeilings reads entries of the form JOBS:NAME=VALUE,…, and puts them before
// those of the layers before.
func (l *loader) textCeilings(origin string, list []string) {
	var given []givenCeilings
	for _, text := range list {
		if strings.TrimSpace(text) == "" {
			continue
		}
		e, err := ceiling.Parse(strings.TrimSpace(text))
		if err != nil {
			l.problems.Addf("%s: %w", origin, err)
		}
		given = append(given, givenCeilings{e, origin})
	}
	l.ceilings = append(given, l.ceilings...)
}

func (l *loader) environment(environ []string) {
	byVariable := make(map[string]setting)
	names := []string{strings.TrimPrefix(mountVariable, command.EnvPrefix), strings.TrimPrefix(ceilingsVariable, command.EnvPrefix), strings.TrimPrefix(configVariable, command.EnvPrefix), strings.TrimPrefix(ensemble.CredentialsVariable, command.EnvPrefix), strings.TrimPrefix(historyCredentialsVariable, command.EnvPrefix)}
	for _, s := range l.settings {
		byVariable[s.variable()] = s
		names = append(names, strings.TrimPrefix(s.variable(), command.EnvPrefix))
	}
	l.load(env.Provider("", env.Opt{
		Prefix:      command.EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			s, ok := byVariable[name]
			switch {
			case ok:
				l.origins[s.key] = name
				return s.key, value
			case name == mountVariable:
				l.textMounts(name, strings.Split(value, ","))
			case name == ceilingsVariable:
				l.textCeilings(name, strings.Split(value, ";"))
			case name != configVariable && name != ensemble.CredentialsVariable && name != historyCredentialsVariable && name != contexts.Variable:
				// Not an error: Kubernetes gives every container
				// WASMJOB_PORT and the like if a service is called wasmjob.
				hint := ""
				if near := words.Nearest(strings.TrimPrefix(name, command.EnvPrefix), names); near != "" {
					hint = "; did you mean " + command.EnvPrefix + near + "?"
				}
				l.warnings = append(l.warnings, fmt.Sprintf("the variable %s is not a setting%s", name, hint))
			}
			return "", nil
		},
	}), "environment")
	slices.Sort(l.warnings)
}

// textMounts reads mounts of the form JOB=HOST:GUEST.
func (l *loader) textMounts(origin string, list []string) {
	given := make(map[string][]plugin.Mount)
	for _, text := range list {
		if text == "" {
			continue
		}
		job, m, err := parseJobMount(text)
		if err != nil {
			l.problems.Addf("%s: %w", origin, err)
			continue
		}
		given[job] = append(given[job], m)
	}
	for job, mounts := range given {
		l.mounts[job], l.origins[mountOf(job)] = mounts, origin
	}
}

func (l *loader) flags(flags *pflag.FlagSet) {
	byFlag := make(map[string]setting)
	for _, s := range l.settings {
		byFlag[s.flag()] = s
	}
	l.load(posflag.ProviderWithFlag(flags, delimiter, l.k, func(f *pflag.Flag) (string, any) {
		s, ok := byFlag[f.Name]
		if !ok || !f.Changed {
			return "", nil
		}
		l.origins[s.key] = "--" + f.Name
		return s.key, f.Value.String()
	}), "flags")
	if f := flags.Lookup(mountFlag); f != nil && f.Changed {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			l.textMounts("--"+mountFlag, list.GetSlice())
		}
	}
	if f := flags.Lookup(ceilingFlag); f != nil && f.Changed {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			l.textCeilings("--"+ceilingFlag, list.GetSlice())
		}
	}
}

// addConfigFlags makes a flag of each setting. The flags have no defaults of
// their own; what is not given stays as the lower layers have it.
func addConfigFlags(flags *pflag.FlagSet, d defaults) {
	addSettings(flags, settings(d))
	flags.StringArray(mountFlag, nil, "let a job read a directory of this machine: `JOB=HOST:GUEST`; may be repeated")
	addCeilingFlag(flags)
}

func addCeilingFlag(flags *pflag.FlagSet) {
	flags.StringArray(ceilingFlag, nil, "what jobs may have at most: `JOBS:NAME=VALUE,...`, such as 'team-a-*:timeout=1h,memoryLimit=256MiB'; may be repeated, and of the entries that match a job the first that sets a ceiling counts (docs/ceilings.md lists them)")
}

// ceilingsOf are the ceilings that flags and the environment give a command that
// is no host, and the defaults.
func ceilingsOf(environ []string, flags *pflag.FlagSet) (ceiling.List, error) {
	l := &loader{}
	l.textCeilings(ceilingsVariable, strings.Split(command.Lookup(environ, ceilingsVariable), ";"))
	if f, ok := flags.Lookup(ceilingFlag).Value.(pflag.SliceValue); ok {
		l.textCeilings("--"+ceilingFlag, f.GetSlice())
	}
	var result loaded
	result.setCeilings(l.ceilings)
	return result.Ceilings, l.problems.Err()
}

// addRegistryFlags makes the flags of a command that talks to ZooKeeper itself.
func addRegistryFlags(flags *pflag.FlagSet) {
	var list []setting
	for _, s := range slices.Concat(registrySettings(), zooKeeperSettings()) {
		switch s.key {
		case "registry", "namespace":
			list = append(list, s)
		default:
			if strings.HasPrefix(s.key, "zk") {
				list = append(list, s)
			}
		}
	}
	addSettings(flags, list)
	command.Connects(flags, command.ConfigFlag)
	for _, s := range list {
		command.Connects(flags, s.flag())
	}
}

func addSettings(flags *pflag.FlagSet, list []setting) {
	flags.Var(&textFlag{arg: "FILE"}, command.ConfigFlag, "read settings from this YAML file ('wasmjob run --print-config' shows a sample)")
	for _, s := range list {
		usage := s.help
		if s.standard != "" && !strings.Contains(s.help, "(default") {
			usage += " (default " + s.standard + ")"
		}
		f := flags.VarPF(&textFlag{arg: s.arg}, s.flag(), "", usage)
		if s.arg == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// textFlag is a flag whose text is judged later, together with the other layers.
type textFlag struct{ text, arg string }

func (f *textFlag) String() string { return f.text }

func (f *textFlag) Set(s string) error {
	f.text = s
	return nil
}

// Type stands for the value in help texts.
func (f *textFlag) Type() string { return f.arg }

// print writes the configuration as a file that --config reads, with the
// origin of each value as a comment.
func (l *loaded) print(w io.Writer) error {
	type line struct{ text, origin string }
	var lines []line
	for _, s := range l.settings {
		value := s.show(&l.Config)
		if s.arg != "bool" {
			value = quote(value)
		}
		lines = append(lines, line{s.key + ": " + value, l.origins[s.key]})
		if s.key == "zkCredentialsFile" && l.ZooKeeper.Credentials != "" {
			origin := ensemble.CredentialsVariable
			if l.ZooKeeper.CredentialsFile != "" {
				origin = l.ZooKeeper.CredentialsFile
			}
			user, _, _ := strings.Cut(l.ZooKeeper.Credentials, ":")
			lines = append(lines, line{"#  they are " + user + ":********, from " + origin, ""})
		}
	}
	if len(l.Mounts) == 0 {
		lines = append(lines, line{mountsKey + ": {}", "default"},
			line{"#  JOB: [{host: /srv/data, guest: /data}]   lets a job read a directory", ""})
	} else {
		lines = append(lines, line{mountsKey + ":", ""})
		for _, job := range slices.Sorted(maps.Keys(l.Mounts)) {
			lines = append(lines, line{"  " + quote(job) + ":", l.origins[mountOf(job)]})
			for _, m := range l.Mounts[job] {
				lines = append(lines, line{"    - {host: " + quote(m.Host) + ", guest: " + quote(m.Guest) + "}", ""})
			}
		}
	}
	lines = append(lines, line{ceilingsKey + ":", ""})
	for i, e := range l.Ceilings {
		text := ceilingJobs + ": " + quote(e.Jobs)
		for _, s := range e.Settings() {
			text += ", " + s[0] + ": " + quote(s[1])
		}
		lines = append(lines, line{"  - {" + text + "}", ""}, line{"    # " + l.ceilingsFrom[i], ""})
	}
	width := 0
	for _, l := range lines {
		if l.origin != "" {
			width = max(width, len(l.text))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		if l.origin == "" {
			b.WriteString(l.text + "\n")
		} else {
			fmt.Fprintf(&b, "%-*s  # %s\n", width, l.text, l.origin)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quote writes a YAML scalar, with quotes only where they are needed.
func quote(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !((r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || strings.ContainsRune("/._-:", r))
	}) && !strings.HasSuffix(s, ":") && !strings.HasPrefix(s, "-") && !strings.HasPrefix(s, ":")
	if plain && !slices.Contains([]string{"null", "true", "false", "yes", "no", "~"}, strings.ToLower(s)) {
		return s
	}
	return cmp.Or(strconv.Quote(s), `""`)
}
