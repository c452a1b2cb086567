package coordination

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// StayOut is the error of a host that must not be in the job. It is a tree.ErrRemoved if the job was removed;
// otherwise an operator has stopped the host.
type StayOut struct {
	Removed bool
	Said    tree.Word
	// Again is set if a host of the previous version, which does not know Wanted, has recreated the removed
	// job: then it must be removed again.
	Again bool
}

func (e *StayOut) Error() string {
	what := "stopped here"
	if e.Removed {
		what = "removed"
	}
	text := "the job was " + what
	if e.Said.By != "" {
		text += " by " + e.Said.By
	}
	if e.Said.Why != "" {
		text += fmt.Sprintf(" (%s)", e.Said.Why)
	}
	return text
}

// Is matches tree.ErrRemoved if the job was removed.
func (e *StayOut) Is(target error) bool { return e.Removed && target == tree.ErrRemoved }

// anotherProgram is the author of orders that hosts of ours find only in ElasticJob's nodes.
const anotherProgram = "another program"

// verdict is what a host does that has a job's definition and is not in the job.
type verdict int

const (
	// verdictJoin: the job exists.
	verdictJoin verdict = iota
	// verdictCreate: the job does not exist and must be created.
	verdictCreate
	// verdictReturned: the job exists although it was removed: another program has created it, which takes back
	// the removal.
	verdictReturned
	// verdictStopped and verdictRemoved: the host stays out.
	verdictStopped
	verdictRemoved
	// verdictVanished: another program has removed it, which must be recorded; then the host stays out.
	verdictVanished
	// verdictUndone: a host of the previous version has recreated a removed job. It must be removed again.
	verdictUndone
)

// findings are the nodes that decide whether a host joins a job.
type findings struct {
	wanted, config, definition, superseded registry.Node
}

// wantedQueries are the nodes of findings. The node "wanted" is read first: a host that creates a job also sets
// it. So if a reader finds no configuration afterwards, and the job was created in between, its own write
// conflicts with that version.
func wantedQueries(l tree.Layout) []registry.Query {
	return []registry.Query{registry.Data(l.Wanted()), registry.Data(l.Config()), registry.Data(l.Definition()), registry.Data(l.Superseded())}
}

func findingsOf(n registry.Snapshot, l tree.Layout) findings {
	return findings{wanted: n.Data(l.Wanted()), config: n.Data(l.Config()), definition: n.Data(l.Definition()), superseded: n.Data(l.Superseded())}
}

// decide returns what a host with this instance id and definition (as YAML) does.
func (f findings) decide(id string, mine []byte) verdict {
	w := tree.ParseWanted(f.wanted.Data)
	_, stays := w.StopOf(id)
	gone, there := w.Removed != nil, f.config.Exists
	switch {
	case gone && there && f.definition.Exists && f.definition.Mzxid == f.config.Czxid:
		// A host of ours creates both in one commit; if it knew this node it would have set it, too.
		return verdictUndone
	case stays:
		return verdictStopped
	case gone && there:
		return verdictReturned
	case there:
		return verdictJoin
	case gone && w.Had(mine):
		return verdictRemoved
	case !gone && f.definition.Exists && f.had(mine):
		return verdictVanished
	}
	return verdictCreate
}

// had reports whether a definition was in force in the job that is not there any more.
func (f findings) had(mine []byte) bool {
	return string(f.definition.Data) == string(mine) || tree.ParseSuperseded(f.superseded.Data).Contains(mine)
}

// stayOut returns the error for a verdict that keeps a host out; nil for others.
func (f findings) stayOut(v verdict, id string) error {
	w := tree.ParseWanted(f.wanted.Data)
	switch v {
	case verdictStopped:
		said, _ := w.StopOf(id)
		return &StayOut{Said: said}
	case verdictRemoved, verdictUndone:
		return &StayOut{Removed: true, Said: *w.Removed, Again: v == verdictUndone}
	}
	return nil
}

// tombstone returns Wanted after the job is removed.
func (f findings) tombstone(said tree.Word) tree.Wanted {
	w := tree.ParseWanted(f.wanted.Data)
	if !f.definition.Exists {
		return w.Gone(said, "", nil)
	}
	return w.Gone(said, tree.Digest(f.definition.Data), tree.ParseSuperseded(f.superseded.Data))
}

// Outside are the nodes that a host watches while it stays out of a job.
func Outside(l tree.Layout) []registry.Query { return wantedQueries(l) }

// StaysOut returns, from a snapshot of Outside, why a host with this instance id and definition (as YAML) stays
// out of the job; nil if it must join.
func StaysOut(s registry.Snapshot, l tree.Layout, id string, mine []byte) error {
	f := findingsOf(s, l)
	v := f.decide(id, mine)
	if v == verdictVanished { // Join records it
		return nil
	}
	return f.stayOut(v, id)
}

// NoteRemoval records that another program removed the job, unless the remover is known. This host had the job,
// with a definition of that digest, and has found it gone.
func (m *Member) NoteRemoval(ctx context.Context, mine string, now time.Time) error {
	return m.perform(ctx, "note a removal", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, wantedQueries(m.Layout)...)
			if err != nil {
				return err
			}
			f := findingsOf(n, m.Layout)
			if f.config.Exists || tree.ParseWanted(f.wanted.Data).Removed != nil {
				return nil
			}
			said := tree.Word{By: anotherProgram, Since: now.UnixMilli()}
			gone := f.tombstone(said)
			if !f.definition.Exists { // a program of the previous version removed it with our nodes
				gone = tree.ParseWanted(f.wanted.Data).Gone(said, mine, tree.ParseSuperseded(f.superseded.Data))
			}
			_, err = x.Commit(ctx, registry.Ensure(m.Layout.Sibling()), step.Put(f.wanted, gone.Data()))
			if step.Contested(err) {
				continue
			}
			return err
		}
	})
}

// NoteStop records that another program stopped this host by deleting its instance, unless it is known who did,
// or who has taken that back.
func (m *Member) NoteStop(ctx context.Context, now time.Time) error {
	return m.perform(ctx, "note a stop", func(ctx context.Context, x *step.Exchange) error {
		l, process := m.Layout, tree.ProcessOf(m.Self.ID)
		for {
			n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Data(l.Config()))
			if err != nil || !n.Data(l.Config()).Exists {
				return err
			}
			w := tree.ParseWanted(n.Data(l.Wanted()).Data)
			_, said := w.Stopped[process]
			if _, stopped := w.StopOf(m.Self.ID); said || stopped {
				return nil
			}
			w.Stopped = w.Stopped.With(process, tree.Word{Off: true, By: anotherProgram, Since: now.UnixMilli()})
			_, err = x.Commit(ctx, registry.Check(l.Config(), registry.AnyVersion), step.Put(n.Data(l.Wanted()), w.Data()))
			if step.Contested(err) {
				continue
			}
			return err
		}
	})
}

// ReadDisabler reads whether a server is enabled, and the order that disabled it; empty if the definition or
// another program did.
func ReadDisabler(ctx context.Context, r registry.Center, l tree.Layout, ip string) (word tree.Word, enabled bool, err error) {
	err = step.Perform(ctx, r, "read who has disabled a server", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Data(l.Server(ip)))
		if err != nil {
			return err
		}
		server := n.Data(l.Server(ip))
		enabled = !server.Exists || tree.IsEnabled(server.Data)
		if word, _ = tree.ParseWanted(n.Data(l.Wanted()).Data).Disabled.Of(ip); !word.Off {
			word = tree.Word{}
		}
		return nil
	})
	return word, enabled, err
}

// NoteEnabled is called when this host's server was enabled. If no server was enabled until then, it records
// that earlier instants are not to be caught up. A program of ours that enables servers records that in the
// same commit; this is for other programs.
func (m *Member) NoteEnabled(ctx context.Context) error {
	l, own := m.Layout, m.View.serverNode
	return m.perform(ctx, "note that the job is enabled", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, registry.Data(l.Enabled()), registry.Children(l.Servers()))
			if err != nil {
				return err
			}
			enabled := n.Data(l.Enabled())
			if enabled.Exists && enabled.Mzxid >= own.Mzxid {
				return nil
			}
			others := slices.DeleteFunc(slices.Clone(n.Children(l.Servers())), func(ip string) bool { return ip == m.Self.ServerIP })
			for some := range slices.Chunk(others, serversAtOnce) {
				read := make([]registry.Query, len(some))
				for i, ip := range some {
					read[i] = registry.Data(l.Server(ip))
				}
				if n, err = x.Read(ctx, read...); err != nil {
					return err
				}
				for _, q := range read {
					if s := n[q]; s.Exists && tree.IsEnabled(s.Data) && s.Mzxid < own.Mzxid {
						return nil
					}
				}
			}
			_, err = x.Commit(ctx, registry.Check(l.Config(), registry.AnyVersion), step.Put(enabled, tree.EnabledData(own.Mtime.UnixMilli())))
			if step.Contested(err) {
				if c := step.ConflictOf(err); c != nil && c.Index == 0 {
					return tree.ErrRemoved
				}
				continue
			}
			return err
		}
	})
}

// ordered finds out whether another program has disabled or enabled the whole job through the nodes of its
// servers: all servers without a word of their own differ from Wanted. ElasticJob's console does no more, and
// shows such a job as disabled. It stops at the first server that contradicts.
func (a *arrival) ordered(ctx context.Context, x *step.Exchange) error {
	l := a.Layout
	if _, said := a.wanted.Disabled[a.Self.ServerIP]; said {
		return nil
	}
	n, err := x.Read(ctx, registry.Children(l.Servers()))
	if err != nil {
		return err
	}
	ips := slices.DeleteFunc(slices.Clone(n.Children(l.Servers())), func(ip string) bool {
		_, said := a.wanted.Disabled[ip]
		return said || ip == a.Self.ServerIP
	})
	if len(ips) == 0 {
		return nil
	}
	disabled := a.wanted.DisabledOn(a.Self.ServerIP, a.applied.Configuration.Disabled)
	for some := range slices.Chunk(ips, serversAtOnce) {
		read := make([]registry.Query, len(some))
		for i, ip := range some {
			read[i] = registry.Data(l.Server(ip))
		}
		if n, err = x.Read(ctx, read...); err != nil {
			return err
		}
		for _, q := range read {
			if s := n[q]; s.Exists && (len(s.Data) == 0 || tree.IsEnabled(s.Data) == !disabled) {
				return nil
			}
		}
	}
	a.wanted.Disabled = a.wanted.Disabled.With(tree.WholeJob, tree.Word{Off: !disabled, By: anotherProgram, Since: a.Said.Since})
	return nil
}

// serversAtOnce is how many servers ordered reads at once.
const serversAtOnce = 10

// carried returns the ops that apply a definition's change of the field disabled to all known servers, and the
// words that record it. [SwitchLate] must follow their commit.
func carried(ctx context.Context, x *step.Exchange, l tree.Layout, disabled bool, said tree.Word, words tree.Words) (ops []registry.Op, _ tree.Words, known []string, err error) {
	n, err := x.Read(ctx, registry.Children(l.Servers()))
	if err != nil {
		return nil, nil, nil, err
	}
	known = n.Children(l.Servers())
	var read []registry.Query
	for _, ip := range known {
		read = append(read, registry.Data(l.Server(ip)))
	}
	if n, err = x.Read(ctx, read...); err != nil {
		return nil, nil, nil, err
	}
	none := true // is enabled
	for _, q := range read {
		s := n[q]
		if s.Exists && tree.IsEnabled(s.Data) == disabled {
			ops = append(ops, registry.Set(s.Path, []byte(serverState(disabled)), s.Version))
		}
		none = none && !(s.Exists && tree.IsEnabled(s.Data))
	}
	if !disabled && none && len(ops) > 0 { // instants that came due until now are not caught up
		ops = append(ops, registry.Ensure(l.Enabled()), registry.Set(l.Enabled(), nil, registry.AnyVersion))
	}
	said.Off = disabled
	return ops, words.With(tree.WholeJob, said), known, nil
}

// SwitchLate enables or disables, as Wanted says, the servers whose hosts joined while an order for the whole
// job was being applied: after the known servers were read, and before the order took effect.
func SwitchLate(ctx context.Context, x *step.Exchange, l tree.Layout, known []string) error {
	for {
		n, err := x.Read(ctx, registry.Data(l.Wanted()), registry.Data(l.Config()), registry.Children(l.Servers()))
		if err != nil {
			return err
		}
		late := slices.DeleteFunc(slices.Clone(n.Children(l.Servers())), func(ip string) bool { return slices.Contains(known, ip) })
		if len(late) == 0 || !n.Data(l.Config()).Exists {
			return nil
		}
		var read []registry.Query
		for _, ip := range late {
			read = append(read, registry.Data(l.Server(ip)))
		}
		servers, err := x.Read(ctx, read...)
		if err != nil {
			return err
		}
		node := n.Data(l.Wanted())
		w := tree.ParseWanted(node.Data)
		c, _, _ := jobconfig.Parse(n.Data(l.Config()).Data) // an unreadable configuration disables nothing
		ops := []registry.Op{registry.Check(l.Config(), registry.AnyVersion)}
		if node.Exists {
			ops = append(ops, registry.Check(node.Path, node.Version))
		}
		proofs := len(ops)
		for _, ip := range late {
			disabled := w.DisabledOn(ip, c.Disabled)
			if s := servers.Data(l.Server(ip)); s.Exists && tree.IsEnabled(s.Data) == disabled {
				ops = append(ops, registry.Set(s.Path, []byte(serverState(disabled)), registry.AnyVersion)) // whatever another program has set since
			}
		}
		if len(ops) == proofs {
			return nil
		}
		if _, err = x.Commit(ctx, ops...); !step.Contested(err) {
			return err
		}
	}
}

// serverState is the data of a server's node.
func serverState(disabled bool) string {
	if disabled {
		return tree.Disabled
	}
	return tree.Enabled
}
