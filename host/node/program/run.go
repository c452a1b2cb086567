package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/server"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

func runCommand(p *program) *cobra.Command {
	d := machineDefaults(p.Getenv)
	printConfig := false
	cmd := &cobra.Command{
		Use:   "run [flags]",
		Short: "Run a host",
		Long: `Run a host: watch the plugins directory, and run its jobs when they are due.

Give a setting in the file of --config, in the environment, or as a flag. The
environment overrides the file, and a flag overrides both. The flag --log-format is
WASMJOB_LOG_FORMAT in the environment and logFormat in the file. WASMJOB_MOUNTS has
mounts separated by commas, WASMJOB_CEILINGS ceilings separated by semicolons.
--print-config shows the settings in force and their sources, as a settings file.

Without --data the registry is in memory: good for trying out, but offsets,
operators' settings and unfinished runs are lost when the host ends. With --data DIR
they survive the host, even after kill -9; only one host at a time can use DIR.

With --zk any number of hosts share the jobs of a namespace in ZooKeeper, and take
over each other's items. At its start a host waits for ZooKeeper as long as --wait
says, by default for ever. ZooKeeper's password comes from --zk-credentials-file or
from the variable WASMJOB_ZK_CREDENTIALS (user:password).

Ctrl-C (or SIGTERM) drains the host: no item begins, and running items may continue
for the drain timeout. A second signal stops the host at once, with exit code 1.

The admin address serves /healthz, /readyz and /metrics to every user of this
machine, and status and operations to clients that have the token. The host writes
its address and token to a file that only its user can read; commands find it there.

In a terminal the host shows one line per fire. Otherwise, and with --log-format
json, it writes a log to stderr.`,
		Example: `  wasmjob run --plugins plugins/examples
  wasmjob run --plugins jobs --data data --history events.jsonl
  wasmjob run --plugins jobs --zk zk1:2181,zk2:2181,zk3:2181 --namespace prod
  wasmjob run --config wasmjob.yaml --log-format json
  wasmjob run --mount codestats=/usr/local/go/src:/src
  WASMJOB_PLUGINS=jobs wasmjob run --print-config`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && !cmd.Flags().Changed("plugins") {
				if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
					return command.Usagef("unexpected argument %q; did you mean --plugins %s?", words.Clip(args[0]), words.Clip(args[0]))
				}
			}
			return command.Exactly()(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.printed = printConfig
			l, err := loadConfig(p.Environ, cmd.Flags(), d)
			if err != nil {
				return command.Usage(err)
			}
			if printConfig {
				for _, w := range l.warnings {
					fmt.Fprintln(p.Err, "wasmjob: warning:", w)
				}
				if err := directory(l.Plugins); err != nil {
					fmt.Fprintln(p.Err, "wasmjob: warning: plugins:", err)
				}
				return l.print(p.Out)
			}
			return serve(cmd.Context(), p, l, (*system).banner)
		},
	}
	addConfigFlags(cmd.Flags(), d)
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "show the settings and their sources, and exit")
	cmd.Flags().SortFlags = false
	return cmd
}

// errStopped is the error after a second signal.
var errStopped = errors.New("a second signal stopped the host at once")

// serve runs a host until a signal ends it. It calls greet, which shows the essentials, when all is wired.
func serve(ctx context.Context, p *program, l *loaded, greet func(*system)) error {
	if err := hostRuns(runtime.GOOS); err != nil {
		return err
	}
	signals, end := p.Notify()
	defer end()
	s, err := wire(ctx, p, l)
	if err != nil {
		return err
	}
	stop, drain := context.WithCancel(ctx)
	defer drain()
	kill, stopNow := context.WithCancel(ctx)
	defer stopNow()
	twice := false
	watched := twoSignals(signals, func(sig os.Signal) {
		s.view.End()
		s.life.Stopping()
		s.log.Info("draining because of a signal; a second signal stops the host at once", zap.Stringer("signal", sig))
		drain()
	}, func(sig os.Signal) {
		twice = true
		s.log.Warn("stopping at once because of a second signal", zap.Stringer("signal", sig))
		stopNow()
	})
	greet(s)
	for _, gap := range unprotected(runtime.GOOS) {
		s.log.Warn(gap)
	}
	if withoutJobs(l.Plugins) {
		s.log.Info("the plugins directory has no jobs yet; put NAME.wasm and NAME.yaml into it", zap.String("plugins", l.Plugins))
	}
	s.life.Start(func() bool { ready, _ := s.reporter.Ready(); return ready }) // what /readyz says
	err = s.run(stop, kill)
	watched()
	if err == nil && twice {
		err = errStopped
	}
	if err != nil {
		s.log.Error("host ended", zap.Error(err))
		err = command.Said{}
	} else {
		s.log.Info("host ended")
	}
	if closing := s.close(); closing != nil {
		return closing
	}
	return err
}

// twoSignals calls first at the first signal and second at the second, until the returned function is called.
func twoSignals(signals <-chan os.Signal, first, second func(os.Signal)) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // joined by end
		defer close(ended)
		for _, do := range []func(os.Signal){first, second} {
			select {
			case sig := <-signals:
				do(sig)
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// withoutJobs reports whether a directory has neither a module nor a definition.
func withoutJobs(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return slices.Contains([]string{".wasm", ".yaml", ".yml"}, filepath.Ext(e.Name()))
	})
}

// banner shows the essentials in a few lines.
func (s *system) banner() {
	l := s.loaded
	for _, w := range l.warnings {
		s.log.Warn(w)
	}
	if last := s.life.Last; !s.life.LastEnd().IsZero() {
		s.log.Warn("the previous process of this host did not end normally", zap.String("ending", string(last.Ending)), because(last.Why().String()),
			zap.Int("pid", last.PID), zap.Time("started", last.Started), zap.String("record", last.File))
	}
	about := s.about()
	if s.console == nil {
		fields := []zap.Field{zap.String("version", versionText()), zap.String("timeZone", about.TimeZone), zap.String("plugins", about.Plugins),
			zap.String("registry", about.Registry), zap.String("namespace", l.Namespace), zap.String("server", s.serverIP), zap.Int("pid", os.Getpid())}
		if s.admin != nil {
			fields = append(fields, zap.Stringer("admin", s.admin.Address()), given("console", s.consoleURL()), given("tokenFile", s.tokenFile))
		}
		fields = append(fields, given("history", about.History), given("grants", about.Grants), given("alerts", about.Alerts), given("users", about.Users), given("guestLog", about.GuestLog))
		if s.dump != nil {
			fields = append(fields, zap.String("dump", s.dump.Address()))
		}
		s.log.Info("host starts", fields...)
		return
	}
	paint := s.console.Style.Paint
	show := func(what, text string) {
		fmt.Fprintf(s.console.Out, "  %s %s\n", paint(terminal.Grey, terminal.Pad(what, 9)), text)
	}
	fmt.Fprintf(s.console.Out, "%s %s\n", paint(terminal.Bold, "wasmjob"), versionText())
	show("registry", about.Registry+paint(terminal.Grey, ", namespace "+l.Namespace+", server "+s.serverIP))
	show("plugins", about.Plugins)
	show("time zone", about.TimeZone)
	if s.admin != nil {
		address, ask := s.admin.Address().String(), "wasmjob status"
		if address != defaultAdmin { // there may be another host here
			ask += " --admin " + address
		}
		show("admin", address+paint(terminal.Grey, "  ask it with: "+ask))
		if url := s.consoleURL(); url != "" {
			show("console", url+s.gate.Login.Link(command.WhoAsks())+paint(terminal.Grey, "  signs a browser in, once"))
		}
		if s.tokenFile != "" {
			show("token", s.tokenFile+paint(terminal.Grey, "  holds the token of this host"))
		}
	}
	if s.dump != nil {
		show("dump", s.dump.Address())
	}
	if about.History != "" {
		show("history", about.History)
	}
	if about.Grants != "" {
		show("grants", about.Grants+paint(terminal.Grey, "  shown by: wasmjob access grants"))
	}
	if about.Alerts != "" {
		show("alerts", about.Alerts+paint(terminal.Grey, "  shown by: wasmjob alert list"))
	}
	if about.Users != "" {
		show("users", about.Users+paint(terminal.Grey, "  shown by: wasmjob access user list"))
	}
	if about.GuestLog != "" {
		show("guest log", about.GuestLog)
	}
	show("end", fmt.Sprintf("Ctrl-C drains (at most %s), twice stops at once", words.Duration(l.DrainTimeout)))
	fmt.Fprintln(s.console.Out)
}

// token is the token for operations.
func (l *loaded) token() (string, error) {
	if l.AdminTokenFile != "" {
		return server.TokenFile(l.AdminTokenFile)
	}
	return server.NewToken(), nil
}

// because returns the log field with a reason; it is left out if the reason is empty.
func because(why string) zap.Field { return given("because", why) }

// given returns a log field; it is left out if the value is empty.
func given(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}
