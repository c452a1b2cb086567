package show

import (
	"github.com/wasmjob/wasmjob/host/cli/contexts"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Contexts lists the names that a user has for clusters, the one in use with a star.
func Contexts(s terminal.Style, all *contexts.Set) string {
	t := terminal.NewTable(s, "", "NAME", "WHERE", "NAMESPACE", "TOKEN FILE", "CA")
	for _, name := range all.Names() {
		c, mark := all.Contexts[name], ""
		if name == all.Current {
			mark = "*"
		}
		where := c.Admin
		if c.Registry != "" {
			where = c.Registry
		}
		t.Add(terminal.Plain(mark), terminal.Coloured(name, terminal.Bold), terminal.Plain(where), terminal.Plain(words.Dash(c.Namespace)),
			terminal.Plain(words.Dash(c.TokenFile)), terminal.Plain(words.Dash(c.CA)))
	}
	return orNone(t.Empty(), "there are no contexts; 'wasmjob context set NAME --admin ADDRESS' makes one", t.String())
}
