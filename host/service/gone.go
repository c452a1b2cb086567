package service

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/cluster"
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

// noticed is how long after its end a host is seen to be gone at most: the longest timeout
// of a session that registries grant, and a while.
const noticed = 2 * time.Minute

// Gone are the hosts that were seen to be gone in the last 24 hours and that are not back, the last
// one first, as far as hosts that are here have seen it. Who may not see all jobs sees none.
func (s *Service) Gone(ctx context.Context) ([]GoneHost, error) {
	if !seen(ctx, "") {
		return []GoneHost{}, nil
	}
	if err := s.o.Cluster.Refresh(ctx); err != nil {
		return nil, err
	}
	return notBack(s.o.Cluster.SeenGone(), s.o.Cluster.Hosts()), nil
}

// notBack are the hosts that events, newest first, say are gone, and that are not back: whose
// process has no other session, and whose server has no host that began later.
func notBack(events []event.Event, hosts []cluster.Host) []GoneHost {
	list := []GoneHost{}
	for _, e := range events {
		by, id := tree.ServerOf(e.Host), event.TermOf(e.Other) // each job has its own
		at := slices.IndexFunc(list, func(g GoneHost) bool { return g.Instance == id })
		if at < 0 {
			list = append(list, GoneHost{Instance: id, ServerIP: tree.ServerOf(id), Since: e.Time, SeenBy: []string{by}})
			continue
		}
		list[at].Since, list[at].SeenBy = e.Time, with(list[at].SeenBy, by)
	}
	list = slices.DeleteFunc(list, func(g GoneHost) bool {
		return slices.ContainsFunc(hosts, func(h cluster.Host) bool {
			again := h.Report != nil && h.Report.Status.Instance != "" && slices.Contains(h.Report.Status.Ended, g.Instance)
			return again || (h.ServerIP == g.ServerIP && h.Started.After(g.Since.Add(-noticed)))
		})
	})
	slices.SortStableFunc(list, func(a, b GoneHost) int {
		if c := b.Since.Compare(a.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Instance, b.Instance)
	})
	return list
}
