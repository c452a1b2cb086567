package tree

import (
	"encoding/json"
	"slices"
	"time"
)

// Unused are the servers of a job that have no instance, with the time since when, in Unix milliseconds: node
// servers of our tree.
type Unused map[string]int64

// MaxUnused bounds that node. Servers beyond it are noted when some of these are gone.
const MaxUnused = 10_000

// ParseUnused reads the node leniently: what cannot be read is noted again.
func ParseUnused(data []byte) Unused {
	var u Unused
	if json.Unmarshal(data, &u) != nil {
		return nil
	}
	return u
}

// Data is what the node holds, JSON; nil without servers.
func (u Unused) Data() []byte {
	if len(u) == 0 {
		return nil
	}
	b, err := json.Marshal(u)
	if err != nil { // strings and numbers always marshal
		return nil
	}
	return b
}

// UnusedServers returns the servers of a job without an instance, and since when: the zero time if that is not
// noted yet. servers, instances and details are the names below ElasticJob's nodes of these names and below
// ours; noted is the data of node servers of our tree.
func UnusedServers(servers, instances, details []string, noted []byte) map[string]time.Time {
	used := make(map[string]bool)
	for _, id := range slices.Concat(instances, details) {
		used[ServerOf(id)] = true
	}
	since := ParseUnused(noted)
	list := make(map[string]time.Time)
	for _, ip := range servers {
		switch at, known := since[ip]; {
		case used[ip]:
		case known:
			list[ip] = time.UnixMilli(at)
		default:
			list[ip] = time.Time{}
		}
	}
	return list
}
