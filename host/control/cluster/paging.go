package cluster

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// paging merges the lists of several stores: by time, and at one time by the names of their hosts. Records of
// one store at one time keep their order.
type paging[T any] struct {
	h      *Histories
	kind   kind[T]
	filter history.Filter // as it was asked for; Limit is set
	see    See
	limit  int
	// patience is how long the page waits for each host, in all.
	patience time.Duration
	// unwritten: the database that all hosts share is away, and other hosts are asked only for what they have
	// not written there.
	unwritten bool
	after     place // where the page before ended; at 0 with no count is the beginning

	sources []*source[T]
	// last is the place of the last record that was taken or skipped.
	last  place
	taken bool
}

// source is a store that is asked.
type source[T any] struct {
	name string
	peer *Peer // nil is this host
	ask  history.Filter
	skip int // records of after.at that the pages before had
	page []T // what is not taken yet
	// count is how many records of the time at are taken, those of pages before included.
	at    int64
	count int
	more  bool // there is another page: ask.After has its cursor
	pages int
	empty int // of them, those without a record
	// waited is how long a peer has been waited for; answered reports whether it has answered.
	waited   time.Duration
	answered bool
	missing  string // what a page of this host said is missing
	err      error  // of a peer that does not answer: it has no more
}

// placed is a record and where it stands.
type placed[T any] struct {
	record T
	source *source[T]
}

// mostPages bounds how many pages of one store are read for one page of the merged list.
const mostPages = 50

// mostEmpty is how many empty pages of one store, which have a next one, end a merged page: each took the store
// its full time.
const mostEmpty = 2

// open makes the sources.
func (m *paging[T]) open() {
	self := ""
	var peers []Peer
	if !m.h.Store.State().Shared || m.unwritten {
		self, peers = nameOf(m.h.Self()), m.h.Peers()
	}
	m.add(self, nil)
	for _, p := range peers {
		m.add(nameOf(p), &p)
	}
}

// add adds a source that begins where the page before ended.
func (m *paging[T]) add(name string, peer *Peer) {
	s := &source[T]{name: name, peer: peer, ask: m.filter, more: true}
	s.ask.After, s.ask.Unwritten = "", m.unwritten && peer != nil
	if m.filter.After != "" {
		from := time.Unix(0, m.after.at)
		switch {
		case name == m.after.source:
			s.at, s.count, s.skip = m.after.at, m.after.count, m.after.count
		case name < m.after.source && m.filter.Oldest:
			from = from.Add(1)
		case name < m.after.source:
			from = from.Add(-1)
		}
		if m.filter.Oldest {
			s.ask.From = later(s.ask.From, from)
		} else if to := from.Add(1); s.ask.To.IsZero() || to.Before(s.ask.To) {
			s.ask.To = to
		}
		if !s.ask.From.IsZero() && !s.ask.To.IsZero() && !s.ask.From.Before(s.ask.To) {
			s.more = false
		}
	}
	s.ask.Limit = min(m.limit+s.skip, history.MaxLimit)
	if m.readsAll() {
		s.ask.Limit = history.MaxLimit // most may have to be passed over
	}
	if m.h.Silences != nil && peer != nil {
		if why := m.h.Silences.WhySilent(peer.ID); why != "" {
			s.more, s.err = false, errors.New(why)
		}
	}
	m.sources = append(m.sources, s)
}

// readsAll reports whether the stores are read for all jobs although only some may be seen.
func (m *paging[T]) readsAll() bool { return m.see != nil && len(m.filter.Jobs) == 0 }

// page takes records until there are as many as wanted, or no more can be read in time.
func (m *paging[T]) page(ctx context.Context) ([]T, error) {
	records := []T{}
	for len(records) < m.limit {
		found, err := m.take(ctx, m.limit-len(records))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			break
		}
		if m.kind.whole == nil || len(m.sources) == 1 {
			for _, f := range found {
				records = append(records, f.record)
			}
			continue
		}
		records = append(records, m.kind.whole(ctx, m, found)...)
	}
	return records, nil
}

// take takes the next records that are wanted and may be seen, at most n.
func (m *paging[T]) take(ctx context.Context, n int) (found []placed[T], err error) {
	for len(found) < n {
		if err := m.fill(ctx); err != nil {
			return nil, err
		}
		s := m.first()
		if s == nil {
			return found, nil
		}
		record := s.page[0]
		s.page = s.page[1:]
		at := history.Nanos(m.kind.at(&record))
		if at != s.at || s.count == 0 {
			s.at, s.count = at, 0
		}
		s.count++
		m.last, m.taken = place{at, s.count, s.name}, true
		seen := m.see == nil || m.see(m.kind.job(&record))
		if seen && (s.peer == nil || m.kind.match == nil || m.kind.match(&m.filter, &record)) {
			found = append(found, placed[T]{record, s})
		}
	}
	return found, nil
}

// first returns the source of the next record; nil if there is none, or if it is unknown because a store has
// returned nothing yet.
func (m *paging[T]) first() *source[T] {
	var first *source[T]
	for _, s := range m.sources {
		switch {
		case len(s.page) == 0 && s.more:
			return nil
		case len(s.page) == 0:
		case first == nil || m.before(s, first):
			first = s
		}
	}
	return first
}

func (m *paging[T]) before(a, b *source[T]) bool {
	atA, atB := m.kind.at(&a.page[0]), m.kind.at(&b.page[0])
	if atA.Equal(atB) {
		return a.name < b.name
	}
	return atA.Before(atB) == m.filter.Oldest
}

// fill reads another page of each source that has nothing left to take.
func (m *paging[T]) fill(ctx context.Context) error {
	var reading sync.WaitGroup
	for _, s := range m.sources {
		if !s.more || len(s.page) > 0 {
			continue
		}
		reading.Go(func() { m.read(ctx, s) })
	}
	reading.Wait()
	return m.sources[0].err // this host's own
}

// read reads pages until one has something to take.
func (m *paging[T]) read(ctx context.Context, s *source[T]) {
	for s.more && len(s.page) == 0 && s.err == nil && s.pages < mostPages && s.empty < mostEmpty {
		s.pages++
		var page history.Page[T]
		if s.peer == nil {
			page, s.err = m.kind.own(ctx, s.ask)
		} else {
			s.err = m.get(ctx, s, m.kind.path+"?"+Query(s.ask).Encode(), &page)
		}
		if s.err != nil {
			s.more = false
			return
		}
		s.page, s.ask.After, s.more = page.Records, page.Next, page.Next != ""
		s.missing = cmp.Or(s.missing, page.Missing)
		if len(page.Records) == 0 {
			s.empty++
		}
		for s.skip > 0 && len(s.page) > 0 && history.Nanos(m.kind.at(&s.page[0])) == m.after.at {
			s.page = s.page[1:]
			s.skip--
		}
		if len(s.page) > 0 {
			s.skip = 0 // the rest of that time is gone
		}
	}
}

// get asks a peer, as long as the page waits for it.
func (m *paging[T]) get(ctx context.Context, s *source[T], path string, into any) error {
	waiting, cancel := context.WithTimeout(ctx, m.patience-s.waited)
	defer cancel()
	from := time.Now()
	err := m.h.Get(waiting, *s.peer, path, into)
	s.waited += time.Since(from)
	s.answered = s.answered || err == nil
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return errLate
	}
	return err
}

// next returns the cursor of the next page, empty if there is none. full: the page has as many records as
// wanted. If all jobs are read, such a page always has a next one, which may be empty: otherwise it would
// reveal whether there are records that may not be seen.
func (m *paging[T]) next(full bool) string {
	more, looked := full && m.readsAll(), place{}
	for _, s := range m.sources {
		more = more || s.more || len(s.page) > 0
		if !s.more || len(s.page) > 0 {
			continue
		}
		// A store that searched much without a match: up to there.
		if p, some, err := history.ParseCursor(m.kind.list, s.ask.After); err == nil && some {
			if to := (place{at: p.Time}); looked == (place{}) || (to.at < looked.at) == m.filter.Oldest {
				looked = to
			}
		}
	}
	switch {
	case !more:
		return ""
	case looked != (place{}) && (!m.taken || (m.filter.Oldest && looked.at > m.last.at) || (!m.filter.Oldest && looked.at < m.last.at)):
		return looked.String()
	case m.taken:
		return m.last.String()
	}
	return m.filter.After
}

// noteSlow notes hosts whose answer did not come in time. A host that has answered something is not silent: the
// request takes it long.
func (m *paging[T]) noteSlow() {
	for _, s := range m.sources {
		if errors.Is(s.err, errLate) && !s.answered && m.h.Silences != nil {
			m.h.Silences.NoteSlow(s.peer.ID, s.err.Error())
		}
	}
}

// silent are the hosts that have not answered, and this host's database if that has not.
func (m *paging[T]) silent() (list []string) {
	if missing := m.sources[0].missing; missing != "" {
		list = append(list, missing)
	}
	name := namesOf(append(m.h.Peers(), m.h.Self()))
	for _, s := range m.sources {
		if s.err != nil && s.peer != nil {
			list = append(list, name(*s.peer)+": "+s.err.Error())
		}
	}
	return list
}
