package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/control/client"
)

// order is a word that an operator can say of flexJob, and that holds until it is taken back.
type order struct {
	name string
	// item says that it is about one item, host that it is about one host.
	item, host bool
	// absent says that hosts leave the job. The job itself goes if removed is set.
	absent, removed bool
	say, back       func(ctx context.Context, c *client.Client, w *standing) error
}

// orders are all of them.
func orders() []order {
	restore := func(ctx context.Context, c *client.Client, _ *standing) error {
		err := c.Send(ctx, http.MethodPost, "/v1/jobs/"+flexJob+"/restore", nil, nil)
		var refused *client.ServerError
		if errors.As(err, &refused) && refused.Code == http.StatusConflict {
			return nil // it is on all hosts already
		}
		return err
	}
	return []order{
		{name: "standing-disable-job",
			say:  func(ctx context.Context, c *client.Client, _ *standing) error { return c.Disable(ctx, flexJob) },
			back: func(ctx context.Context, c *client.Client, _ *standing) error { return c.Enable(ctx, flexJob) }},
		{name: "standing-disable-item", item: true,
			say: func(ctx context.Context, c *client.Client, w *standing) error {
				return c.DisableItem(ctx, flexJob, w.item)
			},
			back: func(ctx context.Context, c *client.Client, w *standing) error {
				return c.EnableItem(ctx, flexJob, w.item)
			}},
		{name: "standing-remove", absent: true, removed: true,
			say:  func(ctx context.Context, c *client.Client, _ *standing) error { return c.Remove(ctx, flexJob, false) },
			back: restore},
		{name: "standing-shutdown", absent: true,
			say: func(ctx context.Context, c *client.Client, _ *standing) error {
				return c.Shutdown(ctx, flexJob, "", "")
			},
			back: restore},
		{name: "standing-shutdown-host", absent: true, host: true,
			say: func(ctx context.Context, c *client.Client, w *standing) error {
				return c.Shutdown(ctx, flexJob, w.about.ip, "")
			},
			back: func(ctx context.Context, _ *client.Client, w *standing) error {
				c, err := w.about.client(ctx)
				if err != nil {
					return err
				}
				return c.Start(ctx, flexJob)
			}},
	}
}

// standing is an operator's word that is said in the middle of a fault, and stands until the fault is over and all
// hosts are back.
type standing struct {
	order
	at   time.Time
	told *node // the host that was asked
	item int
	// about is the host that the word is about: one that suffers the fault if one does.
	about *node
	// known says that the word was accepted. Otherwise it may hold or not, and nothing is judged.
	known bool
}

// sayWord says a word on a host that does not suffer the fault. It returns nil if there is no such host. Of a word whose
// outcome is not known nothing is judged; it is taken back as others are.
func (s *stage) sayWord(ctx context.Context, n *injury, o order, item int) *standing {
	k := slices.IndexFunc(s.hosts, func(h *node) bool { return !slices.Contains(n.hosts, h) })
	if k < 0 {
		return nil
	}
	w := &standing{order: o, told: s.hosts[k], item: item, about: s.hosts[k]}
	if len(n.hosts) > 0 {
		w.about = n.hosts[0]
	}
	asked, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := w.told.client(asked)
	if err == nil {
		err = w.say(asked, c, w)
	}
	w.at, w.known = time.Now(), err == nil
	s.standing = w
	s.say("operator: %s on %s, amid the fault: %v", w.name, w.told.name, err)
	return w
}

// wordPeriods is for how many periods a word has to hold when all hosts are back.
const wordPeriods = 4

// keepWord looks, when all hosts are back, whether the word holds on all of them, and takes it back.
func (s *stage) keepWord(ctx context.Context, w *standing) error {
	if w.known {
		const heard = time.Second // what was begun before may still say its first line
		from := time.Now().Add(heard)
		held := pause(ctx, heard+wordPeriods*flexPeriod)
		for _, text := range w.broken(s.evidence, from, time.Now()) {
			s.violateAt(from, "%s", text)
		}
		if held {
			if err := s.absence(ctx, w); err != nil {
				return err
			}
			s.report.Operations[w.name]++
		}
	}
	return s.takeBack(ctx, w)
}

// broken says what began within a time although the word kept it from that.
func (w *standing) broken(e *evidence, from, until time.Time) (list []string) {
	for i := range flexItems[1] {
		if w.order.item && i != w.item {
			continue
		}
		host := ""
		if w.host {
			host = w.about.name
		}
		for _, t := range e.beginsOn(itemID{flexJob, i}, host) {
			if t.After(from) && t.Before(until) {
				list = append(list, fmt.Sprintf("item %d of %s began at %s, and an operator had forbidden it at %s (%s)", i, flexJob, clock(t), clock(w.at), w.name))
			}
		}
	}
	return list
}

// absence sees that the registry has none of the hosts that left the job, and no job that was removed.
func (s *stage) absence(ctx context.Context, w *standing) error {
	if !w.absent {
		return nil
	}
	r, err := s.looked(ctx)
	if err != nil {
		return err
	}
	l := tree.NewLayout(s.o.Namespace, flexJob)
	nodes, err := r.Read(ctx, registry.Data(l.Config()), registry.Children(l.Instances()))
	if err != nil {
		return err
	}
	if w.removed && nodes[0].Exists {
		s.violate("%s is there, and an operator had removed it at %s", l.Config(), clock(w.at))
	}
	for _, id := range nodes[1].Names {
		if !w.host || strings.HasPrefix(id, w.about.ip+"@-@") {
			s.violate("%s is an instance of %s, and an operator had it leave at %s (%s)", id, flexJob, clock(w.at), w.name)
		}
	}
	return nil
}

// takeBack takes the word back, and waits until all hosts are in the job.
func (s *stage) takeBack(ctx context.Context, w *standing) error {
	s.standing = nil
	err := until(ctx, time.Second, time.Minute, func() error {
		c, err := w.told.client(ctx)
		if err == nil {
			err = w.back(ctx, c, w)
		}
		if err != nil {
			return err
		}
		return s.whole(ctx)
	})
	if err != nil && ctx.Err() == nil {
		s.violate("%s was taken back, and not all hosts go by it: %v", w.name, err)
		return nil
	}
	return err
}
