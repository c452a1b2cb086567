package program

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/deploy"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The names of what init makes.
const (
	initPlugins = "plugins"
	initConfig  = "wasmjob.yaml"
	initUnit    = "wasmjob.service"
)

func initCommand(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "init DIR",
		Short: "Make a directory for a host: plugins, settings, a service",
		Long: `Make DIR with all that a host needs, and say how to start it:

  plugins/         the directory for NAME.wasm and NAME.yaml
  wasmjob.yaml     the settings, each with what it means and its default
  wasmjob.service  a unit for systemd, whose host has these settings

The registry, the history and compiled modules get directories in DIR as well. The
service runs as the user who runs init: take one that is not root. No file that
exists is changed: if one of the two is there, nothing is made.`,
		Example: `  wasmjob init jobs
  wasmjob run --config jobs/wasmjob.yaml`,
		Args: command.Exactly("the directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("the unit needs the file of this program, which is not known: %w", err)
			}
			u, err := user.Current()
			if err != nil {
				return fmt.Errorf("the unit needs the name of this user, which is not known: %w", err)
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if err := initialise(dir, layout{program: exe, user: u.Username, settings: settings(machineDefaults(p.Getenv))}); err != nil {
				return err
			}
			_, err = fmt.Fprint(p.Out, initialised(dir))
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
}

// layout is what the files of a directory depend on, besides its name.
type layout struct {
	program, user string
	settings      []setting
}

// initialise makes the directory, which is absolute. It changes nothing if one of the
// files is there.
func initialise(dir string, l layout) error {
	// A unit's text has these in its own way, and no host needs them.
	for what, name := range map[string]string{"directory": dir, "program": l.program} {
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || strings.ContainsRune(`"'\%$;`, r) }) {
			return command.Usagef("the %s %q has a character that a unit of systemd cannot name; expected letters, digits, spaces and the like", what, words.Clip(name))
		}
	}
	files := []struct{ name, text string }{
		{initConfig, initialConfig(dir, l.settings)},
		{initUnit, serviceUnit(dir, l)},
	}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); err == nil {
			return fmt.Errorf("%s is there already; init changes no file that exists", filepath.Join(dir, f.name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, initPlugins), 0o755); err != nil {
		return err
	}
	for _, own := range []string{"data", "cache"} {
		if err := os.MkdirAll(filepath.Join(dir, own), 0o700); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := writeNew(filepath.Join(dir, f.name), []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// initialised says what to do with a directory.
func initialised(dir string) string {
	return fmt.Sprintf(`%[1]s is ready:
  %[2]s/         put NAME.wasm and NAME.yaml here
  %[3]s     the settings
  %[4]s  a service for systemd

Start the host:
  wasmjob run --config %[5]s

Or have systemd run it, as root:
  install -m 0644 %[6]s /etc/systemd/system/
  systemctl daemon-reload
  systemctl enable --now wasmjob
`, dir, initPlugins, initConfig, initUnit, words.Argument(filepath.Join(dir, initConfig)), words.Argument(filepath.Join(dir, initUnit)))
}

// initialConfig is a settings file for a directory: what differs from the defaults,
// and every other setting as a comment.
func initialConfig(dir string, list []setting) string {
	given := map[string]string{
		"plugins":        filepath.Join(dir, initPlugins),
		"data":           filepath.Join(dir, "data"),
		"cache":          filepath.Join(dir, "cache"),
		"history":        filepath.Join(dir, "data", "events.jsonl"),
		"adminTokenFile": filepath.Join(dir, "data", "admin-token"),
	}
	var b strings.Builder
	b.WriteString(schema.Line(hostSchema) + `
# Settings of a host: wasmjob run --config ` + words.Argument(filepath.Join(dir, initConfig)) + `
# A setting that is a comment here has the value that the comment shows, its
# default. Variables (WASMJOB_…) and flags win over this file; --print-config shows
# what is in force.
`)
	for _, s := range list {
		b.WriteString("\n")
		for _, line := range wrap(s.help, 76) {
			b.WriteString("# " + line + "\n")
		}
		value, ok := given[s.key]
		if ok {
			fmt.Fprintf(&b, "%s: %s\n", s.key, quote(value))
			continue
		}
		value = s.standard
		if s.arg != "bool" {
			value = quote(value)
		}
		fmt.Fprintf(&b, "#%s: %s\n", s.key, value)
	}
	b.WriteString(`
# directories of this machine that the guests of a job may read
#mounts: {}
#  JOB: [{host: /srv/data, guest: /data}]
`)
	return b.String()
}

// wrap breaks a text into lines of so many bytes at most, but for longer words.
func wrap(text string, most int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > most {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// serviceUnit is the unit of deploy/systemd for a directory: its host runs as the
// directory's user, and writes there alone.
func serviceUnit(dir string, l layout) string {
	var b strings.Builder
	skip := false
	for line := range strings.Lines(deploy.Unit()) {
		key, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		switch key {
		case "ExecStart":
			line = fmt.Sprintf("ExecStart=%s run --config %s\n", unitWord(l.program), unitWord(filepath.Join(dir, initConfig)))
		case "DynamicUser", "StateDirectory", "StateDirectoryMode", "CacheDirectory", "CacheDirectoryMode":
			continue // the directory has a user, and all of them
		case "User":
			line = fmt.Sprintf("User=%s\nReadWritePaths=%s\n", l.user, unitWord(dir))
		case "ProtectHome":
			if below(dir, homes()...) || below(l.program, homes()...) {
				line = "ProtectHome=read-only\n"
			}
		case "PrivateTmp":
			if below(dir, "/tmp", "/var/tmp") {
				continue
			}
		}
		// The comments of the unit's head and of its user are about other directories.
		switch {
		case strings.HasPrefix(line, "# One host."):
			skip = true
			b.WriteString("# One host, whose files are in " + dir + ". Made by wasmjob init.\n")
		case strings.HasPrefix(line, "# The user exists while"):
			skip = true
			b.WriteString("# All that the host writes is in its directory.\n")
		case !strings.HasPrefix(line, "#"):
			skip = false
		}
		if !skip {
			b.WriteString(line)
		}
	}
	return b.String()
}

// homes are the directories that ProtectHome=yes hides.
func homes() []string { return []string{"/home", "/root", "/run/user"} }

// below reports whether a file is one of the directories, or in one of them.
func below(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// unitWord is a word of a unit's setting.
func unitWord(s string) string {
	if strings.ContainsAny(s, " \t") {
		return `"` + s + `"`
	}
	return cmp.Or(s, `""`)
}
