package command

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/contexts"
	"github.com/wasmjob/wasmjob/host/control/server"
)

// settle takes over what a context has: the one that was named, else the one in use,
// unless the command line or the environment says where the cluster is. What a flag says
// stays: a token goes to another address than the context's only if both are named.
func (t *Target) settle() error {
	if t.settled || t.getenv == nil {
		return nil
	}
	t.settled = true
	named := t.flags.Changed("context")
	if !named && (t.address != "" || t.registryFlag() != "") {
		return nil
	}
	path := contexts.Path(t.getenv)
	if path == "" {
		if named {
			return Usagef("--context: no file with contexts is known; set %s, HOME or XDG_CONFIG_HOME", contexts.Variable)
		}
		return nil
	}
	all, err := contexts.Read(path)
	if err != nil {
		return Usage(err)
	}
	name := t.context
	if !named {
		name = all.Current
	}
	if name == "" && !named {
		return nil
	}
	c, err := all.Get(name)
	if err != nil {
		return Usage(fmt.Errorf("--context: %w (%s)", err, path))
	}
	if err := t.take(c, named); err != nil {
		return Usage(fmt.Errorf("context %q in %s: %w", name, path, err))
	}
	if c.Admin != "" && t.address == c.Admin {
		t.from = fmt.Sprintf("context %q in %s", name, path)
	}
	return nil
}

// take takes a context over; named: by the command line.
func (t *Target) take(c contexts.Context, named bool) error {
	if c.Registry != "" {
		return t.takeRegistry(c)
	}
	if given := t.registryFlag(); given != "" {
		return fmt.Errorf("it names a host, --%s the registry itself; leave one of them out", given)
	}
	if _, err := server.ParseAddress(c.Admin); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	if named && !t.flags.Changed("admin") { // over the environment
		t.address = ""
	}
	t.address = cmp.Or(t.address, c.Admin)
	if !t.flags.Changed("token-file") {
		t.tokenFile = cmp.Or(c.TokenFile, t.tokenFile)
	}
	if !t.flags.Changed("ca") {
		t.ca = c.CA
	}
	return nil
}

// takeRegistry has the flags say what the context says of the registry.
func (t *Target) takeRegistry(c contexts.Context) error {
	if t.flags.Lookup("registry") == nil {
		return errors.New("it names a registry, and this command asks a host; name one with --admin, or another context")
	}
	if !t.flags.Changed("registry") && !t.flags.Changed("zk") {
		if err := t.flags.Set("registry", c.Registry); err != nil {
			return fmt.Errorf("registry: %w", err)
		}
	}
	if c.Namespace != "" && !t.flags.Changed("namespace") {
		if err := t.flags.Set("namespace", c.Namespace); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
	}
	return nil
}

// ContextNames completes the names of contexts.
func (p *Program) ContextNames(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := contexts.Read(contexts.Path(p.Getenv))
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.Names(), cobra.ShellCompDirectiveNoFileComp
}
