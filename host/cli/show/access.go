package show

import (
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// rolesCell returns the roles of a user or token.
func rolesCell(bindings []auth.Binding) terminal.Cell {
	texts := make([]string, len(bindings))
	for i, b := range bindings {
		texts[i] = b.String()
	}
	return terminal.Plain(strings.Join(texts, " "))
}

// Users lists users.
func Users(s terminal.Style, list []users.User) string {
	if len(list) == 0 {
		return "no users\n"
	}
	t := terminal.NewTable(s, "NAME", "ROLES", "SIGNS IN BY")
	for _, u := range list {
		var ways []string
		if !u.Password.Zero() {
			ways = append(ways, "password")
		}
		ways = append(ways, u.Certificates...)
		by := terminal.Plain(strings.Join(ways, "; "))
		if len(ways) == 0 {
			by = terminal.Coloured("nothing", terminal.Yellow)
		}
		t.Add(terminal.Plain(u.Name), rolesCell(u.Bindings), by)
	}
	return t.String()
}

// Tokens lists tokens.
func Tokens(s terminal.Style, list []users.Token, now time.Time) string {
	if len(list) == 0 {
		return "no tokens\n"
	}
	t := terminal.NewTable(s, "NAME", "ROLES", "CREATED", "EXPIRES")
	for _, k := range list {
		expires := terminal.Plain("in " + words.Until(now, k.Expires))
		if !now.Before(k.Expires) {
			expires = terminal.Coloured(words.Since(k.Expires, now), terminal.Red)
		}
		t.Add(terminal.Plain(k.Name), rolesCell(k.Bindings), terminal.Plain(words.Since(k.Created, now)), expires)
	}
	return t.String()
}
