package jobs

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/command"
	"github.com/wasmjob/wasmjob/host/cli/contexts"
	"github.com/wasmjob/wasmjob/host/cli/show"
	"github.com/wasmjob/wasmjob/host/control/server"
)

// Context lists and edits the names that the user has for clusters.
func Context(p *command.Program) *cobra.Command {
	list := contextListCommand(p)
	cmd := command.Group("context", "Name the clusters that commands ask, and choose one",
		`A context is a name for what reaches a cluster: the address of one of its hosts with
the file of a token, or the address of its registry. Commands ask the one in use, or
that of --context NAME. --admin, --zk and `+command.EnvPrefix+`ADMIN are asked in place of the one
in use; other flags win over what a context says.

Contexts stand in the file that `+contexts.Variable+` names, or in wasmjob/contexts.yaml in the
user's configuration directory. There are no tokens in it, but the paths of their files.`,
		`  wasmjob context set prod --admin cron.example.com:9770 --token-file ~/.wasmjob/prod --ca system
  wasmjob context use prod
  wasmjob context
  wasmjob job list --context staging`,
		list, contextUseCommand(p), contextSetCommand(p), contextRemoveCommand(p))
	unknown := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args)
		}
		return list.RunE(list, nil)
	}
	return cmd
}

// contextFile is where the contexts are.
func contextFile(p *command.Program) (string, error) {
	path := contexts.Path(p.Getenv)
	if path == "" {
		return "", command.Usagef("no file with contexts is known; set %s, HOME or XDG_CONFIG_HOME", contexts.Variable)
	}
	return filepath.Abs(path)
}

// editContexts changes the file, and says what was done.
func editContexts(p *command.Program, change func(*contexts.Set) error, done string) error {
	path, err := contextFile(p)
	if err != nil {
		return err
	}
	return p.Done(contexts.Edit(path, change), done)
}

func contextListCommand(p *command.Program) *cobra.Command {
	var how command.Shown
	cmd := &cobra.Command{Use: "list [flags]", Short: "List the contexts, and mark the one in use", Example: "  wasmjob context list", Args: command.Exactly()}
	how.AddOutput(cmd, "them")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path, err := contextFile(p)
		if err != nil {
			return err
		}
		return p.Show(cmd.Context(), &how, func() (any, string, error) {
			all, err := contexts.Read(path)
			if err != nil {
				return nil, "", err
			}
			return all, show.Contexts(p.Tables(), all), nil
		})
	}
	return cmd
}

func contextUseCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{Use: "use NAME", Short: "Have commands ask a context from now on", Example: "  wasmjob context use prod",
		Args: command.Exactly("NAME"), ValidArgsFunction: p.ContextNames,
		RunE: func(_ *cobra.Command, args []string) error {
			return editContexts(p, func(s *contexts.Set) error {
				_, err := s.Get(args[0])
				s.Current = args[0]
				return err
			}, args[0]+" is in use")
		}}
}

func contextSetCommand(p *command.Program) *cobra.Command {
	var given contexts.Context
	zk := ""
	cmd := &cobra.Command{Use: "set NAME [flags]", Short: "Make a context, or change what it says", Args: command.Exactly("NAME"), ValidArgsFunction: p.ContextNames,
		Long: `Make a context, or change what is given by flags of one that there is; the rest stays.
An empty text takes a field away. The first context that is made is in use at once.`,
		Example: "  wasmjob context set prod --admin 10.0.0.7:9770 --token-file prod.token\n  wasmjob context set prod --registry zookeeper://zk1:2181 --namespace prod --admin= --token-file="}
	f := cmd.Flags()
	f.StringVar(&given.Admin, "admin", "", "`ADDRESS` of a host of the cluster")
	f.StringVar(&given.TokenFile, "token-file", "", "`FILE` with a token for it")
	f.StringVar(&given.CA, "ca", "", "`FILE` with the authorities of the host's certificate, or system")
	f.StringVar(&given.Registry, "registry", "", "`ADDRESS` of the registry, zookeeper://HOST:PORT,HOST:PORT/PATH, in place of a host")
	f.StringVar(&zk, "zk", "", "ZooKeeper's `SERVERS`, HOST:PORT,HOST:PORT/PATH: the same as --registry zookeeper://SERVERS")
	cmd.MarkFlagsMutuallyExclusive("registry", "zk")
	f.StringVar(&given.Namespace, "namespace", "", "`NAME` of the namespace in the registry")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := contexts.CheckName(args[0]); err != nil {
			return command.Usage(err)
		}
		if zk != "" {
			given.Registry = "zookeeper://" + zk
		}
		if err := absolute(&given); err != nil {
			return err
		}
		return editContexts(p, func(s *contexts.Set) error {
			c := s.Contexts[args[0]]
			for name, field := range map[string][2]*string{"admin": {&c.Admin, &given.Admin}, "token-file": {&c.TokenFile, &given.TokenFile}, "ca": {&c.CA, &given.CA},
				"registry": {&c.Registry, &given.Registry}, "namespace": {&c.Namespace, &given.Namespace}} {
				if cmd.Flags().Changed(name) || (name == "registry" && cmd.Flags().Changed("zk")) {
					*field[0] = *field[1]
				}
			}
			if field, problem := c.Check(); field != "" {
				return command.Usagef("context %q: %s: %s", args[0], field, problem)
			}
			if len(s.Contexts) == 0 {
				s.Current = args[0]
			}
			s.Contexts[args[0]] = c
			return nil
		}, args[0]+" is set")
	}
	return cmd
}

// absolute makes paths whole, which are written into a file elsewhere, and checks the
// address.
func absolute(c *contexts.Context) (err error) {
	if c.Admin != "" {
		if _, err := server.ParseAddress(c.Admin); err != nil {
			return command.Usage(fmt.Errorf("--admin: %w", err))
		}
	}
	for _, path := range []*string{&c.TokenFile, &c.CA} {
		if *path == "" || (path == &c.CA && *path == contexts.SystemCA) {
			continue
		}
		absolute, failed := filepath.Abs(*path)
		*path, err = absolute, errors.Join(err, failed)
	}
	return err
}

func contextRemoveCommand(p *command.Program) *cobra.Command {
	return &cobra.Command{Use: "rm NAME", Aliases: []string{"remove"}, Short: "Remove a context", Example: "  wasmjob context rm staging",
		Long: `Remove a context. The one in use is removed only if it is the last: without one in use,
commands ask the host that runs here.`,
		Args: command.Exactly("NAME"), ValidArgsFunction: p.ContextNames,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := contextFile(p)
			if err != nil {
				return err
			}
			done := args[0] + " is removed"
			err = contexts.Edit(path, func(s *contexts.Set) error {
				if _, err := s.Get(args[0]); err != nil {
					return err
				}
				delete(s.Contexts, args[0])
				switch {
				case s.Current != args[0]:
				case len(s.Contexts) > 0:
					return fmt.Errorf("context %q is in use; have commands ask another one first: wasmjob context use NAME (%s)", args[0], strings.Join(s.Names(), ", "))
				default:
					s.Current = ""
					done += ", and no context is left: commands ask the host that runs here"
				}
				return nil
			})
			return p.Done(err, done)
		}}
}
