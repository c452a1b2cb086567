package console

import (
	"context"
	"errors"
	"time"

	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/history"
)

// frame is the head of every page of a job: the job's name, its state, the reader's actions, and the tabs of
// its pages.
type frame struct {
	P    *page
	Name string
	// Tab names the tab that the page belongs to; Below is set if the page is below the tab's own one.
	Tab   string
	Below bool
	// JobDetail is the job as hosts report it; nil if no host that answers has it. Missing says so then.
	*service.JobDetail
	Missing string
	// Why says what is wrong with the job, Since from when on; both may be missing.
	Why   string
	Since time.Time
	Acts  []act
}

// frame puts the frame of a job on the page. A job without a host, or only with silent hosts, has one without a
// state: its history may still exist.
func (c *Console) frame(ctx context.Context, p *page, name, tab string) error {
	f := &frame{P: p, Name: name, Tab: tab}
	d, err := c.o.Service.Job(ctx, name)
	switch {
	case errors.As(err, new(*service.NotFoundError)):
		f.Missing = p.T("empty.job", name)
	case errors.As(err, new(*service.SilentError)):
		f.Missing = err.Error()
	case err != nil:
		return err
	default:
		if err := c.fill(ctx, f, d); err != nil {
			return err
		}
	}
	p.Nav, p.LiveJob, p.Frame = "jobs", name, f
	return nil
}

// fill takes in how a job is.
func (c *Console) fill(ctx context.Context, f *frame, d *service.JobDetail) error {
	p := f.P
	f.JobDetail, f.Acts = d, p.jobActs(&d.Job)
	if d.Health == cluster.HealthPaused && d.Paused == nil {
		changes, err := records(ctx, p, history.Filter{Jobs: []string{cluster.Literal(d.Name)}, Limit: mostChanges}, c.o.Service.Changes)
		if err := p.without(err); err != nil {
			return err
		}
		d.Paused = c.o.Service.WhoPaused(&d.Job, changes.Records)
	}
	f.Why, f.Since = p.why(&d.Job)
	return nil
}

// below puts the frame of a job on a page that is below the tab's own one.
func (c *Console) below(ctx context.Context, p *page, name, tab string) error {
	err := c.frame(ctx, p, name, tab)
	if err == nil {
		p.Frame.Below = true
	}
	return err
}

// framed puts the frame of a job on a list that is filtered by one job. A name that no host has may be a
// pattern without a match: then there is no frame.
func (c *Console) framed(ctx context.Context, p *page, f history.Filter, tab string) error {
	name, one := f.OnlyJob()
	if !one {
		return nil
	}
	if _, err := c.o.Service.Job(ctx, name); err != nil && !errors.As(err, new(*service.SilentError)) {
		return nil // nor for a hidden job: the list says for both that nothing matches
	}
	return c.frame(ctx, p, name, tab)
}

// Tabs are the pages of the job.
func (f *frame) Tabs() []entry {
	p, of := f.P, f.P.Pattern(f.Name)
	var list []entry
	for _, t := range []struct{ tab, text, href string }{
		{"now", "tab.now", p.Job(f.Name)},
		{"fires", "nav.fires", p.Link("/fires", "job", of)},
		{"logs", "nav.logs", p.Link("/logs", "job", of)},
		{"explain", "tab.explain", p.Job(f.Name, "explain")},
		{"config", "tab.config", p.Job(f.Name, "config")},
		{"audit", "nav.audit", p.Link("/audit", "job", of)},
	} {
		list = append(list, entry{t.href, p.T(t.text), f.Tab == t.tab})
	}
	return list
}

// heading is the heading of a list, below the frame of a job if the list is one's alone.
type heading struct {
	P    *page
	Text string
}

// Heading is the heading of a list; key is that of its text.
func (p *page) Heading(key string) heading { return heading{p, p.T(key)} }
