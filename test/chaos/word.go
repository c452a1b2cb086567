package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/host/control/client"
)

// standing is an operator's word that is said in the middle of a fault, and stands until the fault is over and all
// hosts are back: flexJob, or one item of it, is disabled.
type standing struct {
	name  string
	items []int // that do not run
	at    time.Time
	// host is who was told, and back takes the word back.
	host *node
	back func(ctx context.Context, c *client.Client) error
}

// sayWord says a word on a host that does not suffer the fault: about an item, or the job if that is below 0. It
// returns nil if there is no such host. Of a word whose outcome is not known nothing is judged; it is taken back as others are.
func (s *stage) sayWord(ctx context.Context, n *injury, item int) *standing {
	k := slices.IndexFunc(s.hosts, func(h *node) bool { return !slices.Contains(n.hosts, h) })
	if k < 0 {
		return nil
	}
	w := &standing{host: s.hosts[k]}
	do := func(ctx context.Context, c *client.Client) error { return c.Disable(ctx, flexJob) }
	w.name, w.back = "standing-disable-job", func(ctx context.Context, c *client.Client) error { return c.Enable(ctx, flexJob) }
	if item >= 0 {
		do = func(ctx context.Context, c *client.Client) error { return c.DisableItem(ctx, flexJob, item) }
		w.name, w.items, w.back = "standing-disable-item", []int{item}, func(ctx context.Context, c *client.Client) error { return c.EnableItem(ctx, flexJob, item) }
	} else {
		for i := range flexItems[1] {
			w.items = append(w.items, i)
		}
	}
	asked, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	c, err := w.host.client(asked)
	if err == nil {
		err = do(asked, c)
	}
	if w.at = time.Now(); err != nil {
		w.items = nil // it may hold, or not
	}
	s.say("operator: %s on %s, amid the fault: %v", w.name, w.host.name, err)
	return w
}

// wordPeriods is for how many periods a word has to hold when all hosts are back.
const wordPeriods = 4

// keepWord looks, when all hosts are back, whether the word holds on all of them, and takes it back.
func (s *stage) keepWord(ctx context.Context, w *standing) error {
	const heard = time.Second // what was begun before may still say its first line
	from := time.Now().Add(heard)
	if len(w.items) > 0 {
		pause(ctx, heard+wordPeriods*flexPeriod)
	}
	until := time.Now()
	for _, i := range w.items {
		for _, t := range s.evidence.begins(itemID{flexJob, i}) {
			if t.After(from) && t.Before(until) {
				s.violateAt(t, "item %d of %s began, and an operator had disabled it at %s (%s)", i, flexJob, clock(w.at), w.name)
			}
		}
	}
	if len(w.items) > 0 && ctx.Err() == nil {
		s.report.Operations[w.name]++
	}
	return w.host.insist(ctx, func(c *client.Client) error { return w.back(ctx, c) })
}
