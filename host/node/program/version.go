package program

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
)

// version is set by the linker; see the Makefile.
var version string

// versionText returns the version, from the linker or from Go's build information.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

// versionLine is the build in a line.
func versionLine() string { return readBuild().line() }

// build describes how this program was built.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources
	Time     string `json:"time,omitempty"`     // of the revision
	Modified bool   `json:"modified,omitempty"` // the sources are not the revision's
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Settings are those of go build, such as -trimpath.
	Settings map[string]string `json:"settings"`
	Modules  []module          `json:"modules"`
}

// module is a Go module that is linked into the program.
type module struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum,omitempty"` // as in go.sum
}

// readBuild reads what the linker and go build have left in the program.
func readBuild() build {
	b := build{Version: versionText(), Platform: platform(), Settings: map[string]string{}, Modules: []module{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Go = info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "-ldflags": // has the version again
		default:
			b.Settings[s.Key] = s.Value
		}
	}
	for _, m := range info.Deps {
		used := m
		if m.Replace != nil {
			used = m.Replace
		}
		b.Modules = append(b.Modules, module{m.Path, used.Version, used.Sum})
	}
	return b
}

func (b build) line() string {
	words := []string{"wasmjob", b.Version, b.Revision, b.Go, b.Platform}
	line := ""
	for _, w := range words {
		if w != "" {
			line += " " + w
		}
	}
	return line[1:]
}

// text shows the build and its modules.
func (b build) text(s terminal.Style) string {
	var out strings.Builder
	fmt.Fprintln(&out, b.line())
	if b.Time != "" {
		of := b.Time
		if b.Modified {
			of += ", and changed since"
		}
		fmt.Fprint(&out, s.Fact("sources", "of "+of))
	}
	flags := make([]string, 0, len(b.Settings))
	for _, key := range []string{"CGO_ENABLED", "-trimpath", "-tags", "GOAMD64", "GOARM64"} {
		if v := b.Settings[key]; v != "" {
			flags = append(flags, key+"="+v)
		}
	}
	fmt.Fprint(&out, s.Fact("build", cmp.Or(strings.Join(flags, " "), "-")))
	fmt.Fprint(&out, s.Fact("modules", fmt.Sprint(len(b.Modules))))
	for _, m := range b.Modules {
		fmt.Fprintf(&out, "  %s %s\n", m.Path, m.Version)
	}
	return out.String()
}

func versionCommand(p *program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{
		Use:   "version [flags]",
		Short: "Show the version, how it was built, and its modules",
		Long: `Show the version, the revision of the sources, how the program was built, and the
Go modules in it with their versions; --json also has the modules' sums. The flag
--version of wasmjob itself shows the first line alone.`,
		Example: `  wasmjob version
  wasmjob version --json`,
		Args: command.Exactly(),
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			return p.Print(&how, b, b.text(p.Tables()))
		},
	}
	how.AddOutput(cmd, "it")
	return cmd
}
