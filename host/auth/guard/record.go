package guard

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
)

// mostEntries bounds the entries of the users file in one record.
const mostEntries = 50

// entry is an entry of the users file, and its secret, of which a record says that it is another one.
type entry struct{ text, secret string }

// changed records the changes of the users file, entry by entry.
func (g *Gate) changed(before, after *users.Set) {
	old, now := entries(before), entries(after)
	was, is := make(map[string]string), make(map[string]string)
	var more []string
	names := maps.Clone(old)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		o, had := old[name]
		n, has := now[name]
		switch {
		case o == n:
			continue
		case len(is) == mostEntries:
			more = append(more, name)
			continue
		case had && has && o.text == n.text:
			n.text += ", another secret"
		}
		is[name] = n.text
		if had {
			was[name] = o.text
		}
	}
	if len(more) > 0 {
		is["others"] = fmt.Sprintf("%d, such as %s", len(more), more[0])
	}
	if len(is) == 0 { // a comment
		return
	}
	g.options.Changed(history.Change{Time: time.Now(), Who: "file " + filepath.Base(g.options.Users) + " on host " + g.options.Server, From: "file", What: operation.SetUsers.String(), Before: text(was), After: text(is)})
}

// entries returns the entries of a users file by name.
func entries(s *users.Set) map[string]entry {
	list := make(map[string]entry)
	for _, u := range s.Users() {
		e := entry{text: roles(u.Bindings)}
		for _, c := range u.Certificates {
			e.text += ", certificate " + c
		}
		if !u.Password.Zero() {
			e.text, e.secret = e.text+", password", u.Credential()
		}
		list["user "+u.Name] = e
	}
	for _, t := range s.Tokens() {
		list["token "+t.Name] = entry{roles(t.Bindings) + ", until " + t.Expires.UTC().Format(time.RFC3339), t.ID}
	}
	if p := s.Provider(); p != nil {
		e := entry{text: p.Issuer + ", client " + p.ClientID, secret: p.ClientSecret}
		for _, group := range slices.Sorted(maps.Keys(p.Groups)) {
			e.text += ", group " + group + ": " + roles(p.Groups[group])
		}
		list["oidc"] = e
	}
	return list
}

func roles(bindings []auth.Binding) string {
	var list []string
	for _, b := range bindings {
		list = append(list, b.String())
	}
	return strings.Join(list, " ")
}

// text formats settings for a record; empty if there are none.
func text(settings map[string]string) string {
	if len(settings) == 0 {
		return ""
	}
	data, _ := json.Marshal(settings) // texts always marshal
	return string(data)
}
