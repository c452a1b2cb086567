package show

import (
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/access"
	"github.com/wasmjob/wasmjob/host/access/users"
	"github.com/wasmjob/wasmjob/host/console"
	"github.com/wasmjob/wasmjob/host/words"
)

// rolesCell is what somebody may do.
func rolesCell(bindings []access.Binding) console.Cell {
	texts := make([]string, len(bindings))
	for i, b := range bindings {
		texts[i] = b.String()
	}
	return console.Plain(strings.Join(texts, " "))
}

// Users lists users.
func Users(s console.Style, list []users.User) string {
	if len(list) == 0 {
		return "no users\n"
	}
	t := console.NewTable(s, "NAME", "ROLES", "SIGNS IN BY")
	for _, u := range list {
		var ways []string
		if !u.Password.Zero() {
			ways = append(ways, "password")
		}
		ways = append(ways, u.Certificates...)
		by := console.Plain(strings.Join(ways, "; "))
		if len(ways) == 0 {
			by = console.Coloured("nothing", console.Yellow)
		}
		t.Add(console.Plain(u.Name), rolesCell(u.Bindings), by)
	}
	return t.String()
}

// Tokens lists tokens.
func Tokens(s console.Style, list []users.Token, now time.Time) string {
	if len(list) == 0 {
		return "no tokens\n"
	}
	t := console.NewTable(s, "NAME", "ROLES", "CREATED", "EXPIRES")
	for _, k := range list {
		expires := console.Plain("in " + words.Ago(k.Expires.Sub(now)))
		if !now.Before(k.Expires) {
			expires = console.Coloured(words.Since(k.Expires, now), console.Red)
		}
		t.Add(console.Plain(k.Name), rolesCell(k.Bindings), console.Plain(words.Since(k.Created, now)), expires)
	}
	return t.String()
}
