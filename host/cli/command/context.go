package command

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/cli/contexts"
	"github.com/wasmjob/wasmjob/host/control/server"
)

// settle applies a context: the named one, else the one in use, unless the command line or the environment names the
// cluster. Flags override the context. A token flag is sent to the context's address only if the context was named, too.
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
			return Usagef("--context: cannot find the file with contexts; set %s, HOME or XDG_CONFIG_HOME", contexts.Variable)
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

// take applies a context; named says that the command line names it.
func (t *Target) take(c contexts.Context, named bool) error {
	if c.Registry != "" {
		return t.takeRegistry(c)
	}
	if given := t.registryFlag(); given != "" {
		return fmt.Errorf("it names a host, and --%s names the registry; give one of the two", given)
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

// takeRegistry sets the registry flags from the context.
func (t *Target) takeRegistry(c contexts.Context) error {
	if t.flags.Lookup("registry") == nil {
		return errors.New("it names a registry, but this command needs a host; name a host with --admin, or choose another context")
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
