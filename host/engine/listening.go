package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/engine/run"
)

// listening is a listener of this host that has run for long, as it stands in the registry.
type listening struct {
	name string // of its node
	id   tree.Fire
	// noted: the node was written.
	noted bool
	kill  tree.Kill
}

// noteListeners writes down which listeners have run for long, so that operators can end them, and removes those that
// have ended.
func (k *killing) noteListeners(now moment) {
	running := make(map[*run.Listener]*run.Fire)
	for f := range k.fires {
		if l := f.Listener(); l != nil && !now.Before(l.Since.Add(killWatchAfter)) {
			running[l] = f
		}
	}
	if len(running)+len(k.listeners) == 0 || k.job.rests(now) || !k.job.term.registry.Trusted() {
		return
	}
	byName := func(a, b *run.Listener) int { return cmp.Compare(k.listeners[a].name, k.listeners[b].name) }
	for _, l := range slices.SortedFunc(maps.Keys(k.listeners), byName) {
		if running[l] != nil {
			continue
		}
		if err := k.job.member.EndListener(k.job.work, k.listeners[l].name); err != nil {
			k.job.failed(now, "writing down that a listener has ended", err)
			return
		}
		delete(k.listeners, l)
	}
	for _, l := range slices.SortedFunc(maps.Keys(running), func(a, b *run.Listener) int { return a.Since.Compare(b.Since) }) {
		if k.listeners == nil {
			k.listeners = make(map[*run.Listener]*listening)
		}
		one := k.listeners[l]
		if one == nil {
			k.named++
			one = &listening{name: fmt.Sprintf("%s:%d", k.job.member.Self.ID, k.named), id: running[l].ID}
			k.listeners[l] = one
		}
		if one.noted {
			continue
		}
		if err := k.job.member.NoteListener(k.job.work, one.name, tree.Listening{Host: k.job.member.Self.ID, Export: l.Export, Fire: running[l].ID}); err != nil {
			k.job.failed(now, "writing down that a listener runs", err)
			return
		}
		one.noted = true
	}
}

// listenerStatus is what the status says of the listeners that operators can end.
func (k *killing) listenerStatus() (list []ListenerStatus) {
	for l, one := range k.listeners {
		if one.noted {
			list = append(list, ListenerStatus{Export: l.Export, Since: l.Since, Instant: one.id.Time(), Trigger: one.id.Trigger})
		}
	}
	slices.SortFunc(list, func(a, b ListenerStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Export, b.Export))
	})
	return list
}

// readListeners reads which listeners operators have killed.
func (k *killing) readListeners() error {
	if len(k.listeners) == 0 {
		return nil
	}
	var names []string
	for _, one := range k.listeners {
		names = append(names, one.name)
	}
	slices.Sort(names)
	killed, err := k.job.member.ReadListenerKills(k.job.work, names)
	for _, one := range k.listeners {
		one.kill = cmp.Or(killed[one.name], one.kill)
	}
	return err
}

// endListeners ends the listeners that operators have killed.
func (k *killing) endListeners(now moment) {
	for l, one := range k.listeners {
		if !one.kill.Asked() {
			continue
		}
		grace := time.Duration(one.kill.Grace) * time.Millisecond
		if l.Abort(one.kill.Reason(), now.Add(grace)) {
			k.job.log.Warn("an operator ends a listener", zap.String("export", l.Export), zap.Stringer("reason", one.kill.Reason()), zap.Duration("grace", grace))
		}
		if at := l.Press(now.Time); !at.IsZero() {
			k.lookAt = soonest(k.lookAt, at)
		}
	}
}
