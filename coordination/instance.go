package coordination

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// delimiter stands between the parts of an instance id and of a task id.
// ElasticJob 3.x demands exactly one in an instance id.
const delimiter = "@-@"

// JobInstance is the identity of a host process for one term of its session.
type JobInstance struct {
	// ID is {ip}@-@{token}. A new term has a new token, so that a mark left
	// behind by an earlier one never looks alive.
	ID string
	// ServerIP is the IPv4 address by which operators know the server.
	ServerIP string
}

// NewJobInstance builds an identity. The token must be unique among all
// processes and terms, and contain neither "/" nor "@-@".
func NewJobInstance(serverIP, token string) JobInstance {
	return JobInstance{ID: serverIP + delimiter + token, ServerIP: serverIP}
}

// yaml is the data of the instance node: ElasticJob's two keys and no other,
// since Java refuses what it does not know.
func (i JobInstance) yaml() []byte {
	b, err := yaml.Marshal(struct {
		ID string `yaml:"jobInstanceId"`
		IP string `yaml:"serverIp"`
	}{i.ID, i.ServerIP})
	if err != nil { // two strings always marshal
		return fmt.Appendf(nil, "jobInstanceId: %q\nserverIp: %q\n", i.ID, i.ServerIP)
	}
	return b
}

// serverOf returns the server address in an instance id. One that an external edit made
// up, without an address, is its own.
func serverOf(id string) string {
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

func parseMembers(data []byte) Members {
	// What an external edit wrote there and no host can be called is not asked after.
	m := Members(slices.DeleteFunc(strings.Fields(string(data)), func(id string) bool { return !fitsANode(id) }))
	slices.Sort(m)
	return slices.Compact(m)
}

func (m Members) data() []byte { return []byte(strings.Join(m, "\n")) }

func (m Members) with(ids ...string) Members {
	n := append(slices.Clone(m), ids...)
	slices.Sort(n)
	return slices.Compact(n)
}

func (m Members) without(ids ...string) Members {
	return slices.DeleteFunc(slices.Clone(m), func(id string) bool { return slices.Contains(ids, id) })
}
