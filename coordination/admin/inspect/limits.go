package inspect

import (
	"context"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/recipe/permit"
	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

const (
	// mostKeys is how many keys of limits and of rates are read; mostTickets how many tickets of one key,
	// mostOfAll how many in all.
	mostKeys    = 1000
	mostTickets = 200
	mostOfAll   = 5000
)

// Limits are the limits over the hosts of a namespace under which an item runs or waits.
type Limits struct {
	Permits []Permits
	// Rates has one entry a key.
	Rates []rate.Window
	// More is how many keys are left out: those beyond a thousand, and those that the registry does not permit
	// to read.
	More int
}

// Permits are the tickets of one key of `concurrency`.
type Permits struct {
	Key string
	// Max is the smallest maximum of the jobs whose items run or wait.
	Max int
	// Tickets are in the order of the line, at most 200; More is how many are left out.
	Tickets []Ticket
	More    int
}

// Ticket is a place in the line of a key.
type Ticket struct {
	permit.Holder
	// Since is when the item began with it, or when it came to wait, by the registry's clock.
	Since time.Time
}

// ReadLimits reads which items run and wait under the limits of a namespace, in three requests. It leaves out
// the parts of a rate that are over at now, by a clock near the registry's.
func ReadLimits(ctx context.Context, r registry.Center, namespace string, now time.Time) (out Limits, err error) {
	err = step.Perform(ctx, r, "read limits", func(ctx context.Context, x *step.Exchange) error {
		out = Limits{}
		limits, rates := registry.Children(tree.Limits(namespace)), registry.Children(tree.Rates(namespace))
		n, err := x.Read(ctx, limits, rates)
		if err != nil {
			return err
		}
		keys, paced := n.Children(limits.Path), n.Children(rates.Path)
		out.More = max(len(keys)-mostKeys, 0) + max(len(paced)-mostKeys, 0)
		keys, paced = keys[:min(len(keys), mostKeys)], paced[:min(len(paced), mostKeys)]
		var read []registry.Query
		for _, name := range keys {
			read = append(read, registry.Children(limits.Path+"/"+name))
		}
		for _, name := range paced {
			read = append(read, registry.Data(rates.Path+"/"+name))
		}
		n, denied, err := x.ReadSome(ctx, read...)
		if err != nil {
			return err
		}
		out.More += len(denied)
		for _, name := range paced {
			node := n.Data(rates.Path + "/" + name)
			if w := rate.Parse(node.Data, now.UnixMilli()); node.Exists && !w.Empty(now.UnixMilli()) {
				w.Key = keyOf(name, w.Key)
				out.Rates = append(out.Rates, w)
			}
		}
		lines, more := make([][]permit.Ticket, len(keys)), make([]int, len(keys))
		var tickets []registry.Query
		for k, name := range keys {
			path := limits.Path + "/" + name
			line := permit.Parse(path, n.Children(path))
			lines[k] = line[:min(len(line), mostTickets, mostOfAll-len(tickets))]
			more[k] = len(line) - len(lines[k])
			for _, t := range lines[k] {
				tickets = append(tickets, registry.Data(t.Path))
			}
		}
		if n, _, err = x.ReadSome(ctx, tickets...); err != nil {
			return err
		}
		for k, name := range keys {
			p := Permits{Key: keyOf(name, ""), Max: math.MaxInt, More: more[k]}
			for _, t := range lines[k] {
				node := n.Data(t.Path)
				who, readable := permit.ParseHolder(node.Data)
				p.Max = min(p.Max, t.Max)
				if readable { // otherwise it has ended, may not be read, or is an external edit
					p.Tickets = append(p.Tickets, Ticket{who, node.Mtime})
				}
			}
			if len(lines[k]) == 0 {
				p.Max = 0
			}
			if len(p.Tickets)+p.More > 0 {
				out.Permits = append(out.Permits, p)
			}
		}
		return nil
	})
	return out, err
}

// keyOf returns the key of a node: what is written in it, or else its unescaped name.
func keyOf(name, written string) string {
	if written != "" {
		return written
	}
	if key, err := url.PathUnescape(name); err == nil && !strings.Contains(name, "~") {
		return key
	}
	return name
}
