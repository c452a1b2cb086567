package program

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
)

// demoFiles are the jobs of the demo: two modules of two kilobytes together, and
// their definitions. demo/Makefile compiles them.
//
//go:embed demo/*.wasm demo/*.yaml
var demoFiles embed.FS

func demoCommand(p *program) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "demo [flags]",
		Short: "Try a host with two jobs, and its console",
		Long: `Run a host with two jobs that are part of this program, on a registry of its own,
and print a link to its console. Settings of the environment do not count, and no
file of another host is used. Ctrl-C ends the demo.

The demo's files are in a temporary directory, which is removed at the end. With
--dir they are kept in DIR: the jobs, the registry, the history. A demo that
begins there again goes on with them, and leaves those of the jobs' files alone that
are there.

The address of the console is ` + defaultAdmin + `, or another port if that is in use.`,
		Example: `  wasmjob demo
  wasmjob demo --dir try`,
		Args: command.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), p, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "keep the demo's files in `DIR`, which is made if it does not exist (default: a temporary directory, removed at the end)")
	return cmd
}

// demo runs the host of the demo until a signal ends it. An empty dir is a
// temporary one.
func demo(ctx context.Context, p *program, dir string) (err error) {
	if dir == "" {
		if dir, err = os.MkdirTemp("", "wasmjob-demo-"); err != nil {
			return err
		}
		kept := dir
		defer func() { err = errors.Join(err, os.RemoveAll(kept)) }()
	} else if err = os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := writeDemo(filepath.Join(dir, "plugins")); err != nil {
		return err
	}
	own := *p
	own.Environ = slices.DeleteFunc(slices.Clone(p.Environ), func(e string) bool { return strings.HasPrefix(e, command.EnvPrefix) })
	d := machineDefaults(own.Getenv)
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	addConfigFlags(flags, d)
	if err := flags.Parse([]string{
		"--plugins=" + filepath.Join(dir, "plugins"),
		"--data=" + filepath.Join(dir, "data"),
		"--history=" + filepath.Join(dir, "events.jsonl"),
		"--cache=" + filepath.Join(dir, "cache"),
		"--users=off",
		"--otlp=off",
		"--admin=" + demoAddress(ctx),
	}); err != nil {
		return err
	}
	l, err := loadConfig(own.Environ, flags, d)
	if err != nil {
		return err
	}
	return serve(ctx, &own, l, func(s *system) { s.demoBanner(dir) })
}

// writeDemo writes the files of the demo's jobs that are not there.
func writeDemo(plugins string) error {
	if err := os.MkdirAll(plugins, 0o700); err != nil {
		return err
	}
	return fs.WalkDir(demoFiles, "demo", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := demoFiles.ReadFile(name)
		if err != nil {
			return err
		}
		err = writeNew(filepath.Join(plugins, path.Base(name)), data, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return nil // perhaps changed by its owner
		}
		return err
	})
}

// demoAddress is the usual admin address, or any port if something has that.
func demoAddress(ctx context.Context) string {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", defaultAdmin)
	if err != nil {
		return "127.0.0.1:0"
	}
	_ = l.Close() // nothing has come
	return defaultAdmin
}

// demoBanner says what the demo shows, and what to try. The link is printed also
// where there is no terminal: nobody but the demo's own jobs runs here.
func (s *system) demoBanner(dir string) {
	out, style := s.output.To(s.program.Out), s.program.Tables()
	paint := style.Paint
	show := func(what, text string) {
		fmt.Fprintf(out, "  %s %s\n", paint(terminal.Grey, terminal.Pad(what, 9)), text)
	}
	ask := ""
	if address := s.admin.Address().String(); address != defaultAdmin {
		ask = " --admin " + address
	}
	fmt.Fprintf(out, "%s %s, a demo: a host with two jobs\n", paint(terminal.Bold, "wasmjob"), versionText())
	show("hello", "greets three cities every second")
	show("orders", "takes ten orders every three seconds, and goes on where it ended; one of five runs fails")
	if url := s.consoleURL(); url != "" {
		show("console", url+s.gate.Login.Link(command.WhoAsks())+paint(terminal.Grey, "  signs a browser in, once"))
	}
	show("files", dir)
	show("try", "wasmjob status"+ask)
	show("", "wasmjob job run hello"+ask)
	show("", "wasmjob job runs orders"+ask)
	show("end", "Ctrl-C")
	fmt.Fprintln(out)
}
