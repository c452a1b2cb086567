package tree

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"go.yaml.in/yaml/v3"
)

// delimiter stands between the parts of an instance id and of a task id.
// ElasticJob 3.x demands exactly one in an instance id.
const delimiter = "@-@"

// JobInstance is the identity of a host process for one session.
type JobInstance struct {
	// ID is {ip}@-@{token}. A new session has a new token, so that a mark of an earlier one never looks alive.
	ID string
	// ServerIP is the IPv4 address by which operators know the server.
	ServerIP string
}

// NewJobInstance builds an identity. The token must be unique among all processes and sessions, and contain
// neither "/" nor "@-@".
func NewJobInstance(serverIP, token string) JobInstance {
	return JobInstance{ID: serverIP + delimiter + token, ServerIP: serverIP}
}

// YAML is the data of the instance node: only ElasticJob's two keys, since Java refuses unknown ones.
func (i JobInstance) YAML() []byte {
	b, err := yaml.Marshal(struct {
		ID string `yaml:"jobInstanceId"`
		IP string `yaml:"serverIp"`
	}{i.ID, i.ServerIP})
	if err != nil { // two strings always marshal
		return fmt.Appendf(nil, "jobInstanceId: %q\nserverIp: %q\n", i.ID, i.ServerIP)
	}
	return b
}

// ServerOf returns the server address in an instance id, or the whole id if it has none because an external
// edit made it up.
func ServerOf(id string) string {
	if ip, _, _ := strings.Cut(id, delimiter); ip != "" {
		return ip
	}
	return id
}

// TaskID is ElasticJob's: {job}@-@{items}@-@READY@-@{instance id}.
func TaskID(job string, items []int, instance string) string {
	var b strings.Builder
	b.WriteString(job)
	b.WriteString(delimiter)
	for n, i := range items {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(itoa(i))
	}
	b.WriteString(delimiter + "READY" + delimiter)
	b.WriteString(instance)
	return b.String()
}

// Members are the ids of our hosts that joined a job and have not left it in
// good order, ascending.
type Members []string

// ParseMembers reads node members. The result is ascending and has no duplicates.
func ParseMembers(data []byte) Members {
	// Ignore ids that no host can have: an external edit wrote them.
	m := Members(slices.DeleteFunc(strings.Fields(string(data)), func(id string) bool { return !FitsANode(id) }))
	slices.Sort(m)
	return slices.Compact(m)
}

// Data is what the node holds: one id a line.
func (m Members) Data() []byte { return []byte(strings.Join(m, "\n")) }

// With is the list with ids added, ascending and without duplicates.
func (m Members) With(ids ...string) Members {
	n := append(slices.Clone(m), ids...)
	slices.Sort(n)
	return slices.Compact(n)
}

// Without is the list without some ids.
func (m Members) Without(ids ...string) Members {
	return slices.DeleteFunc(slices.Clone(m), func(id string) bool { return slices.Contains(ids, id) })
}

// FitsANode reports whether an id, which an external edit may have written, is valid as a node's name and in
// the list of members.
func FitsANode(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) < 256 && registry.CheckPath("/"+id) == nil && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r == '/' || r == utf8.RuneError })
}

// IsInstanceID reports whether a mark's data can be the id of an instance, ours or a
// Java host's: address, "@-@", token.
func IsInstanceID(id string) bool {
	address, token, ok := strings.Cut(id, delimiter)
	plain := func(r rune) bool { return r > ' ' && r < utf8.RuneSelf && !strings.ContainsRune(`"'{}[],/\`, r) }
	all := func(s string) bool {
		return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) })
	}
	return ok && all(address) && all(token)
}
