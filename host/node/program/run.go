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

Each setting can be given in the file that --config names, in the environment
and as a flag; the later one wins. The flag --log-format is WASMJOB_LOG_FORMAT in
the environment and logFormat in the file; mounts are WASMJOB_MOUNTS, separated
by commas, ceilings WASMJOB_CEILINGS, separated by semicolons. --print-config
shows what is in force and where it comes from, in the form of a file.

Without --data the registry is in memory: good for trying out, but offsets,
operators' settings and unfinished runs are gone when the host ends. With
--data DIR they outlive it, also kill -9; one host at a time can use DIR.

With --zk any number of hosts share the jobs of a namespace in ZooKeeper, and
take over from each other. A host waits for ZooKeeper at the start, for ever or
as long as --wait says. ZooKeeper's password comes from --zk-credentials-file or
the variable WASMJOB_ZK_CREDENTIALS (user:password).

Ctrl-C (or SIGTERM) drains: nothing new begins, running items may go on for the
drain timeout. A second one stops at once, with exit code 1.

The admin address serves /healthz, /readyz and /metrics to anybody on this
machine, and status and operations to those who have the token. The host leaves a
note with both where only its user can read it; 'wasmjob status' finds it.

In a terminal the host shows one line per fire. Otherwise, and with
--log-format json, all goes to the log on stderr.`,
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
	cmd.Flags().BoolVar(&printConfig, "print-config", false, "show the settings and where they come from, and end")
	cmd.Flags().SortFlags = false
	return cmd
}

// errStopped is the end that a second signal makes.
var errStopped = errors.New("stopped at once by a second signal")

// serve runs a host until a signal ends it. greet shows the essentials when all is
// wired.
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
		s.log.Info("ending; a second signal stops at once", zap.Stringer("signal", sig))
		drain()
	}, func(sig os.Signal) {
		twice = true
		s.log.Warn("stopping at once", zap.Stringer("signal", sig))
		stopNow()
	})
	greet(s)
	for _, gap := range unprotected(runtime.GOOS) {
		s.log.Warn(gap)
	}
	if withoutJobs(l.Plugins) {
		s.log.Info("there is no job in the plugins directory yet; drop NAME.wasm and NAME.yaml into it", zap.String("plugins", l.Plugins))
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

// twoSignals calls first for the first signal and second for the second, until the
// func that it returns is called.
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
		s.log.Warn("the last host here did not end well", zap.String("ending", string(last.Ending)), because(last.Why().String()),
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
			show("token", s.tokenFile+paint(terminal.Grey, "  has the token of this host"))
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

// because is the field of a log entry that says why, left out if that is not known.
func because(why string) zap.Field { return given("because", why) }

// given is a field of a log entry, left out if it has nothing to say.
func given(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}
