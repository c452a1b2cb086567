package alert

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Tried is the result of a test message to one receiver of a route.
type Tried struct {
	// Target is the receiver of the route, ROUTE/RECEIVER, Kind how it is reached.
	Target Target `json:"target"`
	Kind   Kind   `json:"kind"`
	// Error says why the message was not sent; empty: it was.
	Error string `json:"error,omitempty"`
}

// RoutesNamed are the routes with a name: one, or with an empty name all.
func (f *File) RoutesNamed(name string) ([]Route, error) {
	if name == "" {
		return f.Routes, nil
	}
	var names []string
	for i, r := range f.Routes {
		if r.Name == name {
			return f.Routes[i : i+1], nil
		}
		names = append(names, r.Name)
	}
	return nil, fmt.Errorf("there is no route %q%s; its routes are %s", words.Clip(name), words.Suggest(name, names), strings.Join(names, ", "))
}

// Try sends a test message to each receiver of some routes, to all at once. The results are in the order of the
// routes and of their receivers.
func (f *File) Try(ctx context.Context, routes []Route, send func(context.Context, Receiver, *Message) error, now time.Time) []Tried {
	var tried []Tried
	var messages []Message
	for i := range routes {
		for _, name := range routes[i].To {
			m := Test(&routes[i], name, now)
			messages = append(messages, m)
			tried = append(tried, Tried{Target: m.Target(), Kind: f.Receivers[name].Kind})
		}
	}
	var sending sync.WaitGroup
	for i := range messages {
		sending.Go(func() {
			if err := send(ctx, f.Receivers[messages[i].Receiver], &messages[i]); err != nil {
				tried[i].Error = words.Printable(err.Error())
			}
		})
	}
	sending.Wait()
	return tried
}

// Targets are those that get messages about an alert.
func (f *File) Targets(a *Alert) []Target {
	var list []Target
	for _, r := range f.routes(a) {
		for _, receiver := range r.To {
			list = append(list, target(r.Name, receiver))
		}
	}
	return list
}
