package program

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	alertcommand "github.com/wasmjob/wasmjob/host/cli/alerts"
	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/jobs"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// root makes the tree of commands. The first level is what people need each day and one group for each kind of
// object; its help fits a screen, which a test checks. A new command belongs into a group, unless it is used as often as
// these.
func (p *program) root() *cobra.Command {
	p.RegistryFlags = addRegistryFlags
	p.OpenNamespace = func(ctx context.Context, flags *pflag.FlagSet, writes bool) (*command.Opened, error) {
		return openNamespace(ctx, p, flags, writes)
	}
	root := &cobra.Command{
		Use:                        "wasmjob",
		Short:                      "Sharded cron jobs in WebAssembly sandboxes",
		Version:                    versionLine(),
		Long:                       "Runs cron jobs that are WebAssembly modules, on one host or shared by many.",
		Example:                    "  wasmjob demo\n  wasmjob run --plugins plugins/examples\n  wasmjob status",
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       cobra.ArbitraryArgs,
		// An unknown command with flags of its own is still an unknown command.
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return command.Usage(flagError(cmd, err)) })
	root.SetUsageFunc(command.WriteUsage)
	command.AddSections(root,
		command.Section{Title: "Run a host", Commands: []*cobra.Command{demoCommand(p), docsCommand(p), initCommand(p), runCommand(p)}},
		command.Section{Title: "Write jobs", Commands: []*cobra.Command{invokeCommand(p), planCommand(p), validateCommand(p)}},
		command.Section{Title: "Look", Commands: []*cobra.Command{jobs.Explain(&p.Program), jobs.Status(&p.Program), jobs.Top(&p.Program)}},
		command.Section{Title: "Operate, through any host of the cluster or ZooKeeper itself (--zk)", Commands: []*cobra.Command{
			p.accessGroup(), alertcommand.Commands(&p.Program, p.Getenv(alertsSetting(defaults{}).variable())), jobs.Context(&p.Program),
			p.hostGroup(), p.jobGroup(), p.moduleGroup(), p.registryGroup(),
		}},
	)
	root.AddCommand(compileCommand(p), guestsCommand(p), versionCommand(p), connectionTopic(p))
	return root
}

// jobGroup has the commands about jobs. The words are those of the console.
func (p *program) jobGroup() *cobra.Command {
	group := command.Group("job", "List, run, pause, edit, kill and move jobs; their runs and logs",
		`Look at jobs and operate them. The words are those of the console; ElasticJob's mean
the same here: trigger is run, disable is pause, enable is resume, shutdown is drain,
and shards is items.`,
		`  wasmjob job list --health failing,late
  wasmjob job run cities --wait
  wasmjob job logs cities --follow`)
	command.AddSections(group,
		command.Section{Title: "Look", Commands: jobs.Look(&p.Program)},
		command.Section{Title: "Operate", Commands: jobs.Operate(&p.Program)},
		command.Section{Title: "Check, import and export", Commands: []*cobra.Command{exportCommand(p), importCommand(p), nextCommand(p), schemaCommand(p), verifyCommand(p)}},
	)
	return group
}

func (p *program) hostGroup() *cobra.Command {
	return command.Group("host", "List hosts, drain them, start them again",
		`Look at the hosts of the cluster and operate them. A host that was drained runs no
job until it is started again; its process goes on.`,
		"  wasmjob host list\n  wasmjob host drain --server 10.0.0.7\n  wasmjob host start --server 10.0.0.7",
		jobs.Hosts(&p.Program)...)
}

func (p *program) moduleGroup() *cobra.Command {
	return command.Group("module", "List, inspect and sign modules",
		"Look at the modules that hosts run, at a module's file, and sign it.",
		"  wasmjob module list\n  wasmjob module inspect cities.wasm\n  wasmjob module sign cities.wasm --key release",
		jobs.Modules(&p.Program), inspectCommand(p), signCommand(p), verifySignatureCommand(p))
}

func (p *program) accessGroup() *cobra.Command {
	return command.Group("access", "Users, tokens, sign-in, grants, and who changed what",
		`Say who may use hosts, and see what they changed, and what jobs may do outside of
their sandbox.`,
		"  wasmjob access login\n  wasmjob access user add ann --role operator='etl-*'\n  wasmjob access audit --from 7d",
		append(accessCommands(p), jobs.Audit(&p.Program), grantsCommand(p))...)
}

func (p *program) registryGroup() *cobra.Command {
	return command.Group("registry", "Back up what the registry has, and put it back",
		`Keep what hosts have in their registry, and put it back; or have hosts use a
ZooKeeper that was copied.`,
		"  wasmjob registry backup create jobs.backup\n  wasmjob registry backup restore jobs.backup --data /var/lib/wasmjob",
		adoptCommand(p), backupCommand(p))
}

// connectionTopic describes the flags that most commands share, so that their own help need not.
func connectionTopic(p *program) *cobra.Command {
	flags := &cobra.Command{}
	p.AddTarget(flags)
	return &cobra.Command{
		Use:   "connection",
		Short: "How commands find the cluster",
		Long: `A command asks the host that runs on this machine for the same user, without any of
these flags. --admin asks another host, --context a cluster that has a name ('wasmjob
context'), --zk the registry itself, also while no host runs.

` + strings.TrimRight(command.FlagUsages(flags.Flags()), "\n"),
	}
}

// newNames are the commands that had another name before 0.2.0. The old names work, and are in no help; they go with the
// version after it.
var newNames = map[string]string{
	"adopt": "registry adopt", "audit": "access audit", "backup": "registry backup", "calendar": "job calendar", "disable": "job pause",
	"edit": "job edit", "enable": "job resume", "export": "job export", "grants": "access grants", "history": "job history",
	"hosts": "host list", "hosts may-restart": "host may-restart", "import": "job import", "inspect": "module inspect", "jobs": "job list",
	"kill": "job kill", "kv": "job kv", "login": "access login", "logs": "job logs", "modules": "module list", "next": "job next",
	"offset": "job offset", "release": "job release", "remove": "job remove", "restore": "job restore", "runs": "job runs",
	"schema": "job schema", "shards": "job items", "shutdown": "job drain", "sign": "module sign", "start": "job start",
	"token": "access token", "trigger": "job run", "user": "access user", "verify": "job verify", "verify-signature": "module verify-signature",
}

// withNewNames replaces the former name of a command in a command line; former reports whether it did.
func withNewNames(args []string) (now []string, former bool) {
	before, rest, completes := 0, args, false
	if len(args) > 0 {
		completes = args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd
		if completes || args[0] == "help" {
			before, rest = 1, args[1:]
		}
	}
	for n := min(2, len(rest)); n > 0; n-- {
		name, ok := newNames[strings.Join(rest[:n], " ")]
		if ok && (!completes || len(rest) > n) { // else the word is still being typed
			return slices.Concat(args[:before], strings.Fields(name), rest[n:]), true
		}
	}
	return args, false
}

// unknownCommand is the error about an unknown command; neither --help nor the command help hides it.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "help" {
		args = args[1:]
	}
	cmd, rest, err := root.Find(args)
	n := slices.IndexFunc(rest, func(s string) bool { return !strings.HasPrefix(s, "-") })
	if err != nil || cmd != root || n < 0 {
		return nil // cobra's own error says it, if there is one
	}
	name := rest[n]
	switch name {
	case "help", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd:
		return nil // cobra adds them later
	case "print-config":
		return command.Usagef("unknown command %q; 'wasmjob run --print-config' shows the settings", name)
	case "chaos":
		return command.Usagef("unknown command %q; it is a program of its own: wasmjob-chaos", name)
	case "events":
		return command.Usagef("unknown command %q; 'wasmjob job history', 'wasmjob job runs' and 'wasmjob why JOB' show what has happened, GET /v1/events the events themselves", name)
	case "migrate":
		return command.Usagef("unknown command %q; 'wasmjob job import elasticjob' takes jobs over from ElasticJob", name)
	}
	if path := command.Meant(root, name, newNames); path != "" {
		return command.Usagef("unknown command %q; did you mean %q?", words.Clip(name), path)
	}
	return command.Usagef("unknown command %q", words.Clip(name))
}
