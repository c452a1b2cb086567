package cookie

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Revocations remember signed-out sessions until these would have expired. They are safe for concurrent use.
type Revocations interface {
	// Add remembers a session of a user. It takes effect on this host even with an error, which says that other
	// hosts do not know.
	Add(ctx context.Context, user, id string, begun time.Time) error
	// Has reports whether the session was signed out.
	Has(user, id string, begun time.Time) bool
}

// perUser bounds the sessions remembered for one user, so that no user fills the ledger: a user who signs out
// more often ends only that user's old sessions.
const perUser = 20

// Ledger is a bounded list of signed-out sessions.
type Ledger struct {
	// Floor ends all sessions that began before it, in Unix seconds. It covers sessions for which the ledger
	// had no more room.
	Floor int64           `json:"floor,omitempty"`
	Users map[string]Ends `json:"users"`
}

// Ends has the signed-out sessions of one user.
type Ends struct {
	// Floor is like the ledger's, for this user's sessions.
	Floor int64 `json:"floor,omitempty"`
	// Sessions has the begin of each session, in Unix seconds.
	Sessions map[string]int64 `json:"sessions,omitempty"`
}

// Add remembers a session. Where more than perUser are remembered of its user, or more
// than most of all, what has expired makes room, and then the older half of them, by
// raising a floor.
func (l *Ledger) Add(user, id string, begun, now time.Time, most int) {
	expired := now.Add(-Life).Unix()
	l.put(user, Ends{Sessions: map[string]int64{id: begun.Unix()}}, expired)
	l.bound(expired, most)
}

// put adds sessions of a user.
func (l *Ledger) put(user string, more Ends, expired int64) {
	if l.Users == nil {
		l.Users = make(map[string]Ends)
	}
	e := l.Users[user]
	if e.Sessions == nil {
		e.Sessions = make(map[string]int64)
	}
	maps.Copy(e.Sessions, more.Sessions)
	e.raise(more.Floor)
	if len(e.Sessions) > perUser {
		e.forget(expired)
	}
	if len(e.Sessions) > perUser {
		e.raise(middle(slices.Collect(maps.Values(e.Sessions))) + 1)
	}
	l.Users[user] = e
}

// bound removes entries until the ledger is within its bounds.
func (l *Ledger) bound(expired int64, most int) {
	if l.size() <= most {
		return
	}
	l.each(func(e *Ends) { e.forget(expired) })
	if l.size() <= most/2 {
		return
	}
	var all []int64
	for _, e := range l.Users {
		all = slices.AppendSeq(all, maps.Values(e.Sessions))
		if e.Floor > 0 {
			all = append(all, e.Floor-1)
		}
	}
	l.raise(middle(all) + 1)
}

// size counts sessions and floors.
func (l *Ledger) size() (n int) {
	for _, e := range l.Users {
		n += len(e.Sessions)
		if e.Floor > 0 {
			n++
		}
	}
	return n
}

// each changes the entry of each user.
func (l *Ledger) each(change func(*Ends)) {
	for user, e := range l.Users {
		change(&e)
		l.Users[user] = e
		if e.Floor == 0 && len(e.Sessions) == 0 {
			delete(l.Users, user)
		}
	}
}

// raise raises the floor for all users, and removes what lies below it.
func (l *Ledger) raise(floor int64) {
	l.Floor = max(l.Floor, floor)
	l.each(func(e *Ends) { e.forget(l.Floor - 1) })
}

// raise raises the floor, and removes what lies below it.
func (e *Ends) raise(floor int64) {
	e.Floor = max(e.Floor, floor)
	maps.DeleteFunc(e.Sessions, func(_ string, began int64) bool { return began < e.Floor })
}

// forget removes sessions that began at then or before.
func (e *Ends) forget(then int64) {
	maps.DeleteFunc(e.Sessions, func(_ string, began int64) bool { return began <= then })
	if e.Floor-1 <= then {
		e.Floor = 0
	}
}

// middle returns the median.
func middle(all []int64) int64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// Has reports whether the session was signed out, or began before the floor.
func (l *Ledger) Has(user, id string, begun time.Time) bool {
	e := l.Users[user]
	_, ok := e.Sessions[id]
	return ok || begun.Unix() < max(e.Floor, l.Floor)
}

// Merge adds another ledger's entries, and reports whether any were new.
func (l *Ledger) Merge(other Ledger, now time.Time, most int) (changed bool) {
	if other.Floor > l.Floor {
		l.raise(other.Floor)
		changed = true
	}
	expired := now.Add(-Life).Unix()
	for user, theirs := range other.Users {
		more := Ends{Sessions: maps.Clone(theirs.Sessions)}
		maps.DeleteFunc(more.Sessions, func(id string, began int64) bool {
			return began <= expired || l.Has(user, id, time.Unix(began, 0))
		})
		if theirs.Floor-1 > expired && theirs.Floor > max(l.Users[user].Floor, l.Floor) {
			more.Floor = theirs.Floor
		}
		if more.Floor > 0 || len(more.Sessions) > 0 {
			l.put(user, more, expired)
			changed = true
		}
	}
	l.bound(expired, most)
	return changed
}
