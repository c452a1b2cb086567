package console

import (
	"context"
	"net/http"
	"slices"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
)

// hostsView are all hosts.
type hostsView struct {
	P    *page
	Rows []hostRow
	// Gone are hosts that were there.
	Gone []service.GoneHost
	// Versions are those of the programs, if there are several.
	Versions []string
}

// hostRow is a host in a line.
type hostRow struct {
	P *page
	cluster.Host
	// Share is the host's part of all items that hosts own, in percent.
	Share int
	// Trust is what the host says of its session: live, suspect, yield or lost.
	Trust string
	Acts  []act
}

func hostsPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "hosts", p.T("nav.hosts")
	p.Live = liveAll
	v := hostsView{P: p}
	var err error
	if v.Gone, err = c.o.Service.Gone(ctx); err != nil {
		return view{}, err
	}
	items := 0
	for _, h := range p.hosts {
		items += h.Items
		if h.Version != "" && !slices.Contains(v.Versions, h.Version) {
			v.Versions = append(v.Versions, h.Version)
		}
	}
	for _, h := range p.hosts {
		row := hostRow{P: p, Host: h}
		if items > 0 {
			row.Share = (100*h.Items + items/2) / items
		}
		if h.Report != nil && h.Report.Session != nil {
			row.Trust = h.Report.Session.Trust
		}
		if h.Report != nil && p.may(operation.Operate, "") {
			server := field{"server", h.ServerIP}
			instance := field{"instance", h.Report.Status.Instance}
			row.Acts = []act{p.act(h.ServerIP, "host.pause", "/hosts/pause", server), p.act(h.ServerIP, "host.resume", "/hosts/resume", server)}
			if h.Stopped+len(h.Draining) > 0 {
				row.Acts = append(row.Acts, p.act(h.Name, "host.start", "/hosts/start", server, instance))
			}
			if h.State != engine.HostStopped {
				row.Acts = append(row.Acts, p.act(h.Name, "host.shutdown", "/hosts/shutdown", server, instance))
			}
		}
		v.Rows = append(v.Rows, row)
	}
	return view{"hosts", v}, nil
}

// modulesView are all modules.
type modulesView struct {
	P *page
	*service.Modules
}

func modulesPage(ctx context.Context, c *Console, _ *http.Request, p *page) (view, error) {
	p.Nav, p.Title = "modules", p.T("nav.modules")
	p.Live = liveAll
	m, err := c.o.Service.Modules(ctx)
	if err != nil {
		return view{}, err
	}
	return view{"modules", modulesView{p, m}}, nil
}
