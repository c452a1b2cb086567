// Package store keeps alerts and silences in the registry (the board), so that all hosts know them: alerts of a
// dead host continue, and sent messages are not repeated. It makes no decisions. The commit of each change also
// sets a node that readers of the board watch.
package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
)

const (
	// MostAlerts bounds the alerts that stand on the board, MostSilences the silences.
	MostAlerts, MostSilences = 1000, 1000
	// MostSilencesOf bounds the silences of one author.
	MostSilencesOf = 100
	// atOnce is how many nodes one request is about, at most.
	atOnce = 100
)

// ErrFull is the error about alerts beyond MostAlerts.
var ErrFull = errors.New("there are too many alerts already")

// Board is the board of a namespace, as one session sees it.
type Board struct {
	registry registry.Center
	paths    tree.Alerts
}

// Of is the board of a namespace.
func Of(r registry.Center, namespace string) *Board {
	return &Board{r, tree.AlertsOf(namespace)}
}

// Watch are the nodes that tell a host to act: the present alerts, and the keeper. The keeper watches more.
func (b *Board) Watch() []registry.Query {
	return []registry.Query{registry.Children(b.paths.Active()), registry.Data(b.paths.Keeper()), registry.Data(b.paths.Changes()),
		registry.Children(b.paths.Hosts()), registry.Children(b.paths.Alive())}
}

// Seen is what a snapshot of the watch shows.
type Seen struct {
	// Active are the ids of the alerts, Keeper is the host that keeps them; empty: none.
	Active []string
	Keeper string
	// Change changes whenever an alert or a silence does.
	Change  int64
	Cluster alert.Cluster
}

// See understands a snapshot.
func (b *Board) See(s registry.Snapshot) Seen {
	return Seen{Active: s.Children(b.paths.Active()), Keeper: string(s.Data(b.paths.Keeper()).Data), Change: s.Data(b.paths.Changes()).Mzxid,
		Cluster: alert.Cluster{Hosts: s.Children(b.paths.Hosts()), Alive: s.Children(b.paths.Alive())}}
}

// Join adds a host. former are the earlier ids of the same process: they are not gone.
func (b *Board) Join(ctx context.Context, id string, former []string) error {
	return step.Perform(ctx, b.registry, "join the hosts that look for alerts", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, append(queries(b.paths.Host, former), registry.Data(b.paths.AliveOf(id)), registry.Data(b.paths.Host(id)))...)
			if err != nil {
				return err
			}
			ops := []registry.Op{registry.Ensure(b.paths.Hosts()), registry.Ensure(b.paths.Alive()), registry.Ensure(b.paths.Active()), registry.Ensure(b.paths.Over()),
				registry.Ensure(b.paths.Silences()), registry.Ensure(b.paths.Changes())}
			for _, old := range former {
				if n.Data(b.paths.Host(old)).Exists {
					ops = append(ops, registry.Delete(b.paths.Host(old), registry.AnyVersion))
				}
			}
			if !n.Data(b.paths.Host(id)).Exists {
				ops = append(ops, registry.Create(b.paths.Host(id), nil))
			}
			if !n.Data(b.paths.AliveOf(id)).Exists {
				ops = append(ops, registry.CreateEphemeral(b.paths.AliveOf(id), nil))
			}
			if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
				return err
			}
		}
	})
}

func queries(path func(string) string, ids []string) []registry.Query {
	var q []registry.Query
	for _, id := range ids {
		q = append(q, registry.Data(path(id)))
	}
	return q
}

// Gone returns which of some hosts have no session, and crashed those of them that did not stop in good order.
// A watch of hosts and of sessions does not show one instant; this reads after both, and the sessions first: a
// stopping host removes itself before its session ends.
func (b *Board) Gone(ctx context.Context, ids []string) (gone, crashed []string, err error) {
	err = step.Perform(ctx, b.registry, "look at hosts that seem to be gone", func(ctx context.Context, x *step.Exchange) error {
		lives := make(map[string]bool)
		err := eachOf(ctx, x, b.paths.AliveOf, ids, func(id string, _ registry.Node) { lives[id] = true })
		for _, id := range ids {
			if !lives[id] {
				gone = append(gone, id)
			}
		}
		if err != nil {
			return err
		}
		return eachOf(ctx, x, b.paths.Host, gone, func(id string, _ registry.Node) { crashed = append(crashed, id) })
	})
	return gone, crashed, err
}

// Forget removes hosts that are gone, once that is known, or that stop in good order.
func (b *Board) Forget(ctx context.Context, ids []string) error {
	return step.Perform(ctx, b.registry, "forget hosts that are gone", func(ctx context.Context, x *step.Exchange) error {
		for _, id := range ids {
			_, err := x.Commit(ctx, registry.Delete(b.paths.Host(id), registry.AnyVersion))
			if err != nil && !step.Contested(err) { // another host has, or the next call does
				return err
			}
		}
		return nil
	})
}

// Keep makes the host the one that keeps the alerts, if none is.
func (b *Board) Keep(ctx context.Context, id string) error {
	_, err := b.registry.Commit(ctx, registry.CreateEphemeral(b.paths.Keeper(), []byte(id)))
	return step.UnlessConflict(err)
}

// Content is what stands on the board.
type Content struct {
	Alerts   []alert.Alert
	Silences []alert.Silence
}

// Read reads the board. What cannot be understood is left out.
func (b *Board) Read(ctx context.Context) (c Content, err error) {
	err = step.Perform(ctx, b.registry, "read the alerts", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Children(b.paths.Active()), registry.Children(b.paths.Over()), registry.Children(b.paths.Silences()))
		if err != nil {
			return err
		}
		add := func(_ string, node registry.Node) {
			if a, ok := parse[alert.Alert](node); ok {
				c.Alerts = append(c.Alerts, a)
			}
		}
		err = eachOf(ctx, x, b.paths.ActiveOf, n.Children(b.paths.Active()), add)
		if err == nil {
			err = eachOf(ctx, x, b.paths.OverOf, n.Children(b.paths.Over()), add)
		}
		if err != nil {
			return err
		}
		c.Silences, err = b.silences(ctx, x, n.Children(b.paths.Silences()))
		return err
	})
	return c, err
}

// Silences reads the silences alone.
func (b *Board) Silences(ctx context.Context) (list []alert.Silence, err error) {
	err = step.Perform(ctx, b.registry, "read the silences", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Children(b.paths.Silences()))
		if err != nil {
			return err
		}
		list, err = b.silences(ctx, x, n.Children(b.paths.Silences()))
		return err
	})
	return list, err
}

func (b *Board) silences(ctx context.Context, x *step.Exchange, ids []string) (list []alert.Silence, err error) {
	err = eachOf(ctx, x, b.paths.Silence, ids, func(id string, node registry.Node) {
		if s, ok := parse[alert.Silence](node); ok {
			s.ID = id
			list = append(list, s)
		}
	})
	return list, err
}

// eachOf reads nodes by id.
func eachOf(ctx context.Context, x *step.Exchange, path func(string) string, ids []string, each func(id string, n registry.Node)) error {
	for part := range slices.Chunk(ids, atOnce) {
		n, err := x.Read(ctx, queries(path, part)...)
		if err != nil {
			return err
		}
		for _, id := range part {
			if node := n.Data(path(id)); node.Exists {
				each(id, node)
			}
		}
	}
	return nil
}

func parse[T any](n registry.Node) (v T, ok bool) {
	return v, n.Exists && json.Unmarshal(n.Data, &v) == nil
}

func data(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // texts, times and maps of them always marshal
		return nil
	}
	return b
}

// bump is written with every change.
func (b *Board) bump() registry.Op {
	return registry.Set(b.paths.Changes(), nil, registry.AnyVersion)
}

// Write writes alerts that have begun or ended. Existing content stays: a continuing alert keeps its begin and
// its sent messages. ErrFull says that some new alerts found no room; all others are written.
func (b *Board) Write(ctx context.Context, changes []alert.Alert) error {
	var full error
	for part := range slices.Chunk(changes, atOnce) {
		err := b.change(ctx, "write alerts", part, merge)
		switch {
		case errors.Is(err, ErrFull):
			full = err
		case err != nil:
			return err
		}
	}
	return full
}

// merge returns an alert's content after a change; write is false if nothing changes.
func merge(old alert.Alert, there bool, a alert.Alert) (merged alert.Alert, write bool) {
	switch {
	case !a.Firing():
		if !there { // it has its text if it was over before its begin was written
			return a, a.Text != ""
		}
		if !old.Firing() {
			return old, false
		}
		if a.OfHost && a.Host != old.Host { // it goes on in the host's next life
			return old, false
		}
		old.Resolved, old.Why = a.Resolved, a.Why
		return old, true
	case !there:
		return a, true
	case old.Firing() && (!a.OfHost || old.Host == a.Host):
		return old, false
	case old.Firing(): // it is about the same host's next life
		old.Host, old.Text = a.Host, a.Text
		return old, true
	}
	a.Sent = old.Sent // it began again before its end was sent
	return a, true
}

// stands are the nodes of one alert: at most one of them exists.
type stands struct{ active, over registry.Node }

// alert is the alert that stands there.
func (s stands) alert() (a alert.Alert, there bool) {
	if a, there = parse[alert.Alert](s.active); !there {
		a, there = parse[alert.Alert](s.over)
	}
	return a, there
}

// put has the alert stand there.
func (s stands) put(a alert.Alert) []registry.Op {
	at, other := s.active, s.over
	if !a.Firing() {
		at, other = other, at
	}
	op := registry.Create(at.Path, data(a))
	if at.Exists {
		op = registry.Set(at.Path, data(a), at.Version)
	}
	if !other.Exists {
		return []registry.Op{op}
	}
	return []registry.Op{op, registry.Delete(other.Path, other.Version)}
}

// change rewrites the nodes of alerts in one commit.
func (b *Board) change(ctx context.Context, what string, alerts []alert.Alert, merge func(old alert.Alert, there bool, a alert.Alert) (alert.Alert, bool)) error {
	return step.Perform(ctx, b.registry, what, func(ctx context.Context, x *step.Exchange) error {
		for {
			read := []registry.Query{registry.Children(b.paths.Active())}
			for _, a := range alerts {
				read = append(read, registry.Data(b.paths.ActiveOf(a.ID)), registry.Data(b.paths.OverOf(a.ID)))
			}
			n, err := x.Read(ctx, read...)
			if err != nil {
				return err
			}
			var ops []registry.Op
			room := MostAlerts - len(n.Children(b.paths.Active()))
			full := false
			for _, a := range alerts {
				s := stands{n.Data(b.paths.ActiveOf(a.ID)), n.Data(b.paths.OverOf(a.ID))}
				old, there := s.alert()
				merged, write := merge(old, there, a)
				begins := merged.Firing() && !s.active.Exists
				switch {
				case !write:
				case begins && room <= 0:
					full = true
				default:
					if begins {
						room--
					}
					ops = append(ops, s.put(merged)...)
				}
			}
			if len(ops) > 0 {
				_, err = x.Commit(ctx, append(ops, b.bump())...)
			}
			switch {
			case step.Contested(err):
				continue
			case err == nil && full:
				return fmt.Errorf("%w: %d", ErrFull, MostAlerts)
			}
			return err
		}
	})
}

// Sent notes that a target has accepted a message about some alerts: that those in firing continue, and that
// those in over have ended.
func (b *Board) Sent(ctx context.Context, to alert.Target, at time.Time, firing, over []string) error {
	var all []alert.Alert
	ended := make(map[string]bool)
	for _, id := range firing {
		all = append(all, alert.Alert{ID: id})
	}
	for _, id := range over {
		all = append(all, alert.Alert{ID: id})
		ended[id] = true
	}
	note := func(old alert.Alert, there bool, a alert.Alert) (alert.Alert, bool) {
		if !there {
			return old, false
		}
		if old.Sent == nil {
			old.Sent = make(map[alert.Target]alert.Sent)
		}
		old.Sent[to] = alert.Sent{At: at, Resolved: ended[a.ID]}
		return old, true
	}
	for part := range slices.Chunk(all, atOnce) {
		if err := b.change(ctx, "note what was sent", part, note); err != nil {
			return err
		}
	}
	return nil
}

// Drop removes alerts that have ended and need no more messages.
func (b *Board) Drop(ctx context.Context, ids []string) error {
	return step.Perform(ctx, b.registry, "drop alerts that are over", func(ctx context.Context, x *step.Exchange) error {
		for part := range slices.Chunk(ids, atOnce) {
			n, err := x.Read(ctx, queries(b.paths.OverOf, part)...)
			if err != nil {
				return err
			}
			var ops []registry.Op
			for _, node := range n {
				if node.Exists {
					ops = append(ops, registry.Delete(node.Path, node.Version))
				}
			}
			if len(ops) == 0 {
				continue
			}
			// One that has begun again meanwhile stays; the next look finds the others.
			if _, err := x.Commit(ctx, append(ops, b.bump())...); err != nil && !step.Contested(err) {
				return err
			}
		}
		return nil
	})
}

// Silence adds a silence, and returns it with its id.
func (b *Board) Silence(ctx context.Context, s alert.Silence) (alert.Silence, error) {
	id := make([]byte, 8)
	rand.Read(id) // never fails, see crypto/rand
	s.ID = hex.EncodeToString(id)
	err := step.Perform(ctx, b.registry, "silence alerts", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Children(b.paths.Silences()), registry.Data(b.paths.Silence(s.ID)))
			if err != nil {
				return err
			}
			if n.Data(b.paths.Silence(s.ID)).Exists { // the answer to the commit was lost
				return nil
			}
			there := n.Children(b.paths.Silences())
			if len(there) >= MostSilences {
				return fmt.Errorf("%w: there are %d, end some with 'wasmjob alert unsilence ID'", ErrTooManySilences, len(there))
			}
			if len(there) >= MostSilencesOf {
				all, err := b.silences(ctx, x, there)
				if err != nil {
					return err
				}
				own := len(all) - len(slices.DeleteFunc(all, func(one alert.Silence) bool { return one.By == s.By && one.Until.After(s.From) }))
				if own >= MostSilencesOf {
					return fmt.Errorf("%w: you have made %d that stand, end some with 'wasmjob alert unsilence ID'", ErrTooManySilences, own)
				}
			}
			_, err = x.Commit(ctx, registry.Ensure(b.paths.Silences()), registry.Ensure(b.paths.Changes()), registry.Create(b.paths.Silence(s.ID), data(s)), b.bump())
			if !step.Contested(err) {
				return err
			}
		}
	})
	return s, err
}

// Errors about silences: one that there is not, and one more than there may be.
var (
	ErrNoSilence       = errors.New("there is no such silence")
	ErrTooManySilences = errors.New("no more silences can be made")
)

// Unsilence ends silences before their time.
func (b *Board) Unsilence(ctx context.Context, ids ...string) error {
	return step.Perform(ctx, b.registry, "end a silence", func(ctx context.Context, x *step.Exchange) error {
		for _, id := range ids {
			_, err := x.Commit(ctx, registry.Delete(b.paths.Silence(id), registry.AnyVersion), b.bump())
			switch conflict := step.ConflictOf(err); {
			case conflict != nil:
				return fmt.Errorf("%s: %w", id, ErrNoSilence)
			case err != nil:
				return err
			}
		}
		return nil
	})
}
