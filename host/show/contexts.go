package show

import (
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/contexts"
	"github.com/wasmjob/wasmjob/host/words"
)

// Contexts lists the names that a user has for clusters, the one in use with a star.
func Contexts(s console.Style, all *contexts.Set) string {
	t := console.NewTable(s, "", "NAME", "WHERE", "NAMESPACE", "TOKEN FILE", "CA")
	for _, name := range all.Names() {
		c, mark := all.Contexts[name], ""
		if name == all.Current {
			mark = "*"
		}
		where := c.Admin
		if c.Registry != "" {
			where = c.Registry
		}
		t.Add(console.Plain(mark), console.Coloured(name, console.Bold), console.Plain(where), console.Plain(words.Dash(c.Namespace)),
			console.Plain(words.Dash(c.TokenFile)), console.Plain(words.Dash(c.CA)))
	}
	return orNone(t.Empty(), "there are no contexts; 'wasmjob context set NAME --admin ADDRESS' makes one", t.String())
}
