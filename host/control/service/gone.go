package service

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/event"
)

// GoneHost is a host that is gone: its session ended, and it had not stopped in good order.
type GoneHost struct {
	// Instance is the id that it had in that session, ServerIP its server's address.
	Instance string `json:"instance"`
	ServerIP string `json:"serverIp"`
	// Since is when another host saw first that its session had ended.
	Since time.Time `json:"since"`
	// SeenBy are the servers of the hosts that saw it, sorted.
	SeenBy []string `json:"seenBy"`
}

// Gone returns the hosts that were seen to be gone in the last 24 hours and are not back, the last one first,
// as far as present hosts have seen it. A principal that may not see all jobs gets none.
func (s *Service) Gone(ctx context.Context) ([]GoneHost, error) {
	if !seen(ctx, "") {
		return []GoneHost{}, nil
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	return notBack(s.o.Cluster.Sightings(), s.o.Cluster.Hosts()), nil
}

// notBack are the hosts that events, newest first, say are gone, and that are not back: the newest of
// each server whose process has no other session, unless a host of the server began later.
func notBack(events []event.Event, hosts []cluster.Host) []GoneHost {
	list, wasBack := []GoneHost{}, make(map[string]bool)
	for _, e := range events {
		by, id := tree.ServerOf(e.Host), event.TermOf(e.Other) // each job has its own
		at := slices.IndexFunc(list, func(g GoneHost) bool { return g.Instance == id })
		switch {
		case e.Kind == event.HostBack:
			wasBack[id] = true
		case at < 0:
			list = append(list, GoneHost{Instance: id, ServerIP: tree.ServerOf(id), Since: e.Time, SeenBy: []string{by}})
		default:
			list[at].Since, list[at].SeenBy = e.Time, with(list[at].SeenBy, by)
		}
	}
	slices.SortStableFunc(list, func(a, b GoneHost) int {
		return cmp.Or(b.Since.Compare(a.Since), strings.Compare(a.Instance, b.Instance))
	})
	judged := make(map[string]bool) // servers
	return slices.DeleteFunc(list, func(g GoneHost) bool {
		again := func(h cluster.Host) bool { return cluster.Regained(h.Peer().ClusterDetail, g.Instance) }
		if judged[g.ServerIP] || slices.ContainsFunc(hosts, again) {
			return true
		}
		judged[g.ServerIP] = true
		return wasBack[g.Instance] || slices.ContainsFunc(hosts, func(h cluster.Host) bool { return cluster.IsBack(h.Peer().ClusterDetail, g.Instance, g.Since) })
	})
}
