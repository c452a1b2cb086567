package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// Histories finds records of all hosts: in this host's store if all share it, otherwise in all hosts' stores in
// parallel. It is safe for concurrent use.
type Histories struct {
	Store history.Store
	// Self describes this host.
	Self  func() Peer
	Peers func() []Peer
	// Get asks a peer for a path, and reads its answer. Stream reads one that has no end,
	// line by line.
	Get    func(ctx context.Context, p Peer, path string, into any) error
	Stream func(ctx context.Context, p Peer, path string, line func([]byte)) error
	// Tail has the lines of this host.
	Tail *Tail
	// Silences, if not nil, knows hosts that do not answer, so that they are not waited for again.
	Silences Silences

	waits time.Duration // how long a page waits for a host, in tests; 0 is patience
}

// Silences are the hosts whose histories do not answer, by their ids; see [Cluster].
type Silences interface {
	WhySilent(id string) string
	NoteSlow(id, why string)
}

// Found is a page over all hosts.
type Found[T any] struct {
	history.Page[T]
	// Silent are hosts that have not answered or are gone, and the histories' database if it does not answer,
	// with the reason: their records are missing.
	Silent []string `json:"silent,omitempty"`
}

// See reports whether a job's records may be seen; nil means all. With See, and without patterns in the filter,
// pages do not reveal whether stores have other records, unless there are more than are read for one page.
type See func(job string) bool

// kind is how records of a kind are found and put in order.
type kind[T any] struct {
	list byte // of the store's cursors
	path string
	own  func(context.Context, history.Filter) (history.Page[T], error)
	at   func(*T) time.Time
	job  func(*T) string
	// whole, if not nil, merges records of which several hosts have parts, and drops those that belong to
	// another place of the list.
	whole func(ctx context.Context, m *paging[T], found []placed[T]) []T
	// match, if not nil, is what the filter finds: hosts of earlier versions do not know all of it.
	match func(*history.Filter, *T) bool
}

// Fires finds fires, each over all hosts. A fire is listed at the begin of the first of its parts that the
// filter matches.
func (h *Histories) Fires(ctx context.Context, f history.Filter, see See) (Found[history.Fire], error) {
	return find(ctx, h, f, see, kind[history.Fire]{history.ListFires, PathFires, h.Store.Fires, func(r *history.Fire) time.Time { return r.Begun },
		func(r *history.Fire) string { return r.Job }, wholeFires, nil})
}

// Runs finds runs. A run that moved between hosts is listed once, on the host that had it last as far as known,
// at its first begin that the filter matches.
func (h *Histories) Runs(ctx context.Context, f history.Filter, see See) (Found[history.Run], error) {
	return find(ctx, h, f, see, kind[history.Run]{history.ListRuns, PathRuns, h.Store.Runs, (*history.Run).At,
		func(r *history.Run) string { return r.Job }, wholeRuns, nil})
}

// Events finds events.
func (h *Histories) Events(ctx context.Context, f history.Filter, see See) (Found[event.Event], error) {
	return find(ctx, h, f, see, kind[event.Event]{history.ListEvents, PathEvents, h.Store.Events, func(r *event.Event) time.Time { return r.Time },
		func(r *event.Event) string { return r.Job }, nil, nil})
}

// Lines finds lines that guests logged.
func (h *Histories) Lines(ctx context.Context, f history.Filter, see See) (Found[history.Line], error) {
	return find(ctx, h, f, see, kind[history.Line]{history.ListLines, PathLines, h.Store.Lines, func(r *history.Line) time.Time { return r.Time },
		func(r *history.Line) string { return r.Job }, nil, nil})
}

// Changes finds changes.
func (h *Histories) Changes(ctx context.Context, f history.Filter, see See) (Found[history.Change], error) {
	return find(ctx, h, f, see, kind[history.Change]{history.ListChanges, PathChanges, h.Store.Changes, func(r *history.Change) time.Time { return r.Time },
		func(r *history.Change) string { return r.Job }, nil, (*history.Filter).MatchChange})
}

// find makes a page of what the stores have that are asked.
func find[T any](ctx context.Context, h *Histories, f history.Filter, see See, k kind[T]) (found Found[T], err error) {
	if err := f.Check(); err != nil {
		return found, err
	}
	m := paging[T]{h: h, kind: k, filter: f, see: see, limit: f.Limit, patience: cmp.Or(h.waits, patience)}
	if f.After != "" {
		if m.after, err = parsePlace(f.After); err != nil {
			return found, err
		}
	}
	m.open()
	found.Records, err = m.page(ctx)
	if err == nil && m.sources[0].missing != "" && len(m.sources) == 1 && len(h.Peers()) > 0 {
		m.unwritten, m.sources, m.last, m.taken = true, nil, place{}, false
		m.open()
		found.Records, err = m.page(ctx)
	}
	if err != nil {
		return Found[T]{}, err
	}
	if ctx.Err() == nil {
		m.noteSlow()
	}
	found.Next, found.Silent = m.next(len(found.Records) == m.limit), m.silent()
	return found, nil
}

// place is the end of a page: after count records of a time from one source. For that time, the sources before
// it are read completely, and those after it not at all.
type place struct {
	at     int64 // Unix nanoseconds
	count  int
	source string
}

// String is the place as a cursor: TIME.COUNT.SOURCE.
func (p place) String() string {
	return strconv.FormatInt(p.at, 10) + "." + strconv.Itoa(p.count) + "." + p.source
}

// mostSkipped is the most records of one time that are passed over.
const mostSkipped = 1_000_000

func parsePlace(text string) (place, error) {
	at, rest, _ := strings.Cut(text, ".")
	count, source, whole := strings.Cut(rest, ".")
	nanos, err1 := strconv.ParseInt(at, 10, 64)
	n, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || !whole || n < 0 || n > mostSkipped {
		return place{}, &QueryError{"after", text, "the next of a page of the same list"}
	}
	return place{nanos, n, source}, nil
}

// nameOf names a host in cursors: also in its next session.
func nameOf(p Peer) string { return cmp.Or(p.API, p.ServerIP+" "+p.ID) }

// errLate is why a host that was waited for counts as silent.
var errLate = fmt.Errorf("it has not answered within %s", patience)
