package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// maxAttempts is how often a commit is tried when others make and delete the
// nodes that it ensures, or when connections break before it gets through.
const maxAttempts = 100

// A commit of suspectSize or more that went down with its connection
// maxBroken times is believed to be what breaks it: a server drops who sends
// more than its jute.maxbuffer, which only its administrator knows.
const (
	maxBroken   = 5
	suspectSize = 4 << 10
)

// Commit implements registry.Center. It is one multi; [Ensure]
// costs nothing if the node exists, and else one failed multi and a read. If
// the connection breaks after the multi was sent, it waits for the next one
// and finds out.
//
// [Ensure]: https://pkg.go.dev/github.com/wasmjob/wasmjob/coordination#Ensure
func (s *Session) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	if err := s.ready(ctx, "commit"); err != nil {
		return nil, err
	}
	if !s.Trusted() {
		return nil, s.doubted()
	}
	if err := registry.CheckOps(ops); err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return nil, nil
	}
	var known map[string]bool
	var after uint64 // the connection that was not good enough
	broken := 0
	for range maxAttempts {
		p := s.plan(ops, known)
		p.of = after
		if limit := s.o.MaxRequest - wrapping; p.size > limit {
			return nil, fmt.Errorf("%w: %d ops of %d bytes together, the limit is %d", registry.ErrTooLarge, len(ops), p.size, limit)
		}
		results, err := s.send(ctx, p)
		switch {
		case errors.Is(err, errEnsure):
			if known, err = s.survey(ctx, ops); err == nil {
				continue
			}
		case errors.Is(err, errNotApplied):
			if broken++; broken == maxBroken && p.size >= suspectSize {
				return nil, fmt.Errorf("%w: the connection broke each of the %d times that this commit of %d ops and %d bytes was sent; servers do that if their jute.maxbuffer is smaller",
					registry.ErrUnavailable, broken, len(ops), p.size)
			}
			after = p.of
			continue
		case errors.Is(err, errNotSent):
			after = p.of
			continue
		}
		if err != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, registry.ErrUnknown) {
			err = fmt.Errorf("registry: commit: %w", err)
		}
		return results, err
	}
	return nil, fmt.Errorf("%w: the commit did not get through in %d attempts", registry.ErrUnavailable, maxAttempts)
}

// What send says besides the errors of the contract.
var (
	errEnsure     = errors.New("an ensured node is not as it was believed to be")
	errNotSent    = errors.New("the connection was lost before the request was sent")
	errNotApplied = errors.New("the connection was lost, and the request with it")
)

// plan is a commit as a multi.
type plan struct {
	ops      []registry.Op
	requests []any
	owner    []int  // the op of each request
	size     int    // of the whole request in bytes
	of       uint64 // the connection that it was tried on
}

// The parts of a request in bytes.
const (
	sizeHead   = 8 // number and kind
	sizeOp     = 9 // kind, end, error: before each op and at the end
	sizeText   = 4 // a text's or list's length
	sizeNumber = 4 // a version or flag
	noVersion  = 1<<31 - 1
)

func (p *plan) add(op int, request any, size int) {
	p.requests = append(p.requests, request)
	p.owner = append(p.owner, op)
	p.size += sizeOp + size
}

// plan turns ops into requests. known says which ensured nodes and ancestors
// of such exist; without it they are believed to exist, and a check proves it.
func (s *Session) plan(ops []registry.Op, known map[string]bool) *plan {
	p := &plan{ops: ops, size: sizeHead + sizeOp, requests: make([]any, 0, len(ops)), owner: make([]int, 0, len(ops))}
	access := sizeText
	for _, a := range s.acl {
		access += sizeNumber + 2*sizeText + len(a.Scheme) + len(a.ID)
	}
	made := make(map[string]bool) // by the ops so far: exists or not
	check := func(i int, path string, version int32) {
		p.add(i, &zk.CheckVersionRequest{Path: path, Version: version}, sizeText+len(path)+sizeNumber)
	}
	create := func(i int, path string, data []byte, flags int32) {
		if path == s.real("/") {
			check(i, path, noVersion) // it fails as a create of what exists would
			return
		}
		p.add(i, &zk.CreateRequest{Path: path, Data: data, Acl: s.acl, Flags: flags}, 2*sizeText+len(path)+len(data)+access+sizeNumber)
	}
	remove := func(i int, path string, version int32) {
		p.add(i, &zk.DeleteRequest{Path: path, Version: version}, sizeText+len(path)+sizeNumber)
	}
	ensures := slices.ContainsFunc(ops, func(op registry.Op) bool { return op.Kind == registry.OpEnsure })
	for i, op := range ops {
		path := s.real(op.Path)
		if op.Kind == registry.OpSequential {
			path = s.chroot + op.Path // "/" may be a prefix
		}
		data := op.Data
		if data == nil {
			data = []byte{} // ElasticJob's empty is no bytes, not nothing
		}
		switch op.Kind {
		case registry.OpCreate:
			create(i, path, data, zk.FlagPersistent)
		case registry.OpEphemeral:
			create(i, path, data, zk.FlagEphemeral)
		case registry.OpSequential:
			create(i, path, data, zk.FlagEphemeral|zk.FlagSequence)
		case registry.OpSet:
			p.add(i, &zk.SetDataRequest{Path: path, Data: data, Version: op.Version}, 2*sizeText+len(path)+len(data)+sizeNumber)
		case registry.OpDelete:
			remove(i, path, op.Version)
		case registry.OpCheck:
			check(i, path, op.Version)
		case registry.OpAbsent:
			create(i, path, []byte{}, zk.FlagPersistent)
			remove(i, path, registry.AnyVersion)
		case registry.OpEnsure:
			lacks, proof := missing(op.Path, func(path string) bool {
				if exists, ok := made[path]; ok {
					return exists
				}
				return known == nil || known[path]
			})
			check(i, s.real(proof), registry.AnyVersion)
			for _, path := range lacks {
				create(i, s.real(path), []byte{}, zk.FlagPersistent)
				made[path] = true
			}
		}
		if ensures {
			switch op.Kind {
			case registry.OpCreate, registry.OpEphemeral:
				made[op.Path] = true
			case registry.OpDelete:
				made[op.Path] = false
			}
		}
	}
	return p
}

// missing returns the nodes to make so that path exists, from the top, and the
// nearest one that does.
func missing(path string, exists func(string) bool) (paths []string, nearest string) {
	for path != "/" && !exists(path) {
		paths = append(paths, path)
		path = parent(path)
	}
	slices.Reverse(paths)
	return paths, path
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

// survey finds out which of the ensured nodes and their ancestors exist. Of
// many in one place it asks for the list.
func (s *Session) survey(ctx context.Context, ops []registry.Op) (map[string]bool, error) {
	const many = 5
	known := make(map[string]bool)
	below := make(map[string]int)
	var paths []string
	for _, op := range ops {
		if op.Kind != registry.OpEnsure {
			continue
		}
		for p := op.Path; p != "/"; p = parent(p) {
			if _, seen := known[p]; seen {
				break
			}
			known[p] = false
			below[parent(p)]++
			paths = append(paths, p)
		}
	}
	single := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return below[parent(p)] >= many })
	var lists []registry.Query
	for p, n := range below {
		if n >= many {
			lists = append(lists, registry.Children(p))
		}
	}
	stats, err := parallel(ctx, s, single, s.status)
	if err != nil {
		return nil, err
	}
	nodes, err := parallel(ctx, s, lists, s.fetch)
	if err != nil {
		return nil, err
	}
	for i, p := range single {
		known[p] = stats[i] != nil
	}
	for _, n := range nodes {
		for _, name := range n.Names {
			known[strings.TrimSuffix(n.Path, "/")+"/"+name] = true
		}
	}
	return known, nil
}

// ticket goes with a multi to the wire, where it is decided whether it is sent.
type ticket struct {
	// decided is closed when the wire has the request. The fields below are
	// guarded by Session.mu before and constant afterwards.
	decided chan struct{}
	given   bool // no caller waits for it any more
	sent    bool
	of      uint64 // the connection
	seen    int64  // the newest zxid that this session had seen then

	// shared, guarded by Session.mu, says that another commit under way at the
	// same time makes one of the same ephemeral nodes.
	shared bool
}

// doubt is a multi whose caller got ErrUnknown. It may
// still take effect, or have done so unseen: what it makes stays claimed.
type doubt struct {
	plan   *plan
	ticket *ticket
	since  time.Duration // the time at which it had been sent for sure
}

// admit decides, in the moment before it is sent, whether the multi that is on
// its way may be.
func (s *Session) admit() bool {
	trusted := s.Trusted()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.ticket
	if t == nil {
		return false
	}
	s.ticket = nil
	defer close(t.decided)
	if t.given || !trusted || s.stage.Load() != live {
		return false
	}
	t.sent, t.of, t.seen = true, s.wires, s.zxid.Load()
	return true
}

// send makes one attempt at a commit.
func (s *Session) send(ctx context.Context, p *plan) (results []registry.Result, err error) {
	if p.of, err = s.connected(ctx, p.of, true); err != nil {
		return nil, err
	}
	select {
	case s.handoff <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.lost:
		return nil, s.over()
	}
	t := &ticket{decided: make(chan struct{})}
	s.mu.Lock()
	s.ticket = t
	s.mu.Unlock()
	s.claim(p, t)
	defer func() {
		if errors.Is(err, registry.ErrUnknown) {
			s.leaveOpen(p, t)
			return
		}
		s.disclaim(p, t)
	}()

	done := make(chan answer[[]zk.MultiResponse], 1)
	if !s.spawn(func() {
		r, err := s.conn.Multi(p.requests...)
		// If the wire never had it, the client dropped it.
		s.mu.Lock()
		if s.ticket == t {
			s.ticket = nil
		}
		s.mu.Unlock()
		done <- answer[[]zk.MultiResponse]{r, err}
	}) {
		s.withdraw(t)
		<-s.handoff
		return nil, s.over()
	}
	_, changed := s.Trust()
	for waiting := true; waiting; {
		select {
		case <-t.decided:
			waiting = false
		case a := <-done:
			select {
			case <-t.decided: // and answered, or lost
				done <- a
			default:
				<-s.handoff
				if lossy(a.err) {
					return nil, errNotSent
				}
				return nil, fmt.Errorf("%w: not sent: %w", registry.ErrUnavailable, a.err)
			}
			waiting = false
		case <-changed:
			var level registry.Trust
			if level, changed = s.Trust(); level != registry.TrustLive && s.withdraw(t) {
				return nil, s.letGo(t, done, s.doubted())
			}
		case <-ctx.Done():
			if s.withdraw(t) {
				return nil, s.letGo(t, done, ctx.Err())
			}
			<-t.decided
			waiting = false
		case <-s.lost:
			if s.withdraw(t) {
				return nil, s.letGo(t, done, s.over())
			}
			<-t.decided
			waiting = false
		}
	}
	<-s.handoff
	if !t.sent {
		if err := s.over(); err != nil {
			return nil, err
		}
		if t.given {
			return nil, ctx.Err()
		}
		return nil, s.doubted()
	}
	select {
	case a := <-done:
		return s.concluded(ctx, p, t, a)
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, ctx.Err())
	case <-s.lost:
		select {
		case a := <-done: // an answer that came in time counts
			if a.err == nil || !lossy(a.err) {
				return s.concluded(ctx, p, t, a)
			}
		default:
		}
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, s.over())
	}
}

// withdraw has the wire drop the multi; false if it is too late.
func (s *Session) withdraw(t *ticket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-t.decided:
		return false
	default:
	}
	t.given = true
	return true
}

// letGo returns err to a caller whose multi is still on its way. The next one
// is handed over when this one has come to the wire or to its end.
func (s *Session) letGo(t *ticket, done chan answer[[]zk.MultiResponse], err error) error {
	if !s.spawn(func() {
		select {
		case <-t.decided:
		case <-done:
		}
		<-s.handoff
	}) {
		<-s.handoff // it has no receiver any more
	}
	return err
}

// claim notes which ephemeral nodes a commit makes.
func (s *Session) claim(p *plan, t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range p.ops {
		if op.Kind != registry.OpEphemeral {
			continue
		}
		for _, other := range s.makes[op.Path] {
			if other != t {
				other.shared, t.shared = true, true
			}
		}
		s.makes[op.Path] = append(s.makes[op.Path], t)
	}
}

func (s *Session) disclaim(p *plan, t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unclaim(p, t)
}

// leaveOpen keeps the claims of a commit that ended as unknown until settle.
func (s *Session) leaveOpen(p *plan, t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts = append(s.doubts, doubt{p, t, s.o.clock()})
}

// settle ends the claims of what was sent before a sync that was answered. On
// the same connection its own answer came first; on a later one it has long
// taken effect, or never will. Either way this session has seen its zxid.
func (s *Session) settle(sync time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts = slices.DeleteFunc(s.doubts, func(d doubt) bool {
		past := d.since < sync
		if past {
			s.unclaim(d.plan, d.ticket)
		}
		return past
	})
}

// unclaim is disclaim. s.mu is held.
func (s *Session) unclaim(p *plan, t *ticket) {
	for _, op := range p.ops {
		if op.Kind != registry.OpEphemeral {
			continue
		}
		left := slices.DeleteFunc(s.makes[op.Path], func(o *ticket) bool { return o == t })
		if s.makes[op.Path] = left; len(left) == 0 {
			delete(s.makes, op.Path)
		}
	}
}

// concluded turns the answer to a multi into that of a commit.
func (s *Session) concluded(ctx context.Context, p *plan, t *ticket, a answer[[]zk.MultiResponse]) ([]registry.Result, error) {
	s.owned()
	if a.err == nil {
		return s.results(p, a.value), nil
	}
	if lossy(a.err) {
		p.of = t.of
		if errors.Is(a.err, zk.ErrSessionMoved) {
			return nil, errNotApplied
		}
		return s.resolve(ctx, p, t)
	}
	for k, r := range a.value {
		if r.Error != nil && k < len(p.owner) {
			return nil, s.refused(p, k, r.Error)
		}
	}
	if err := s.expired(a.err); s.over() != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", registry.ErrUnavailable, a.err)
}

// results are those of a multi that succeeded.
func (s *Session) results(p *plan, answers []zk.MultiResponse) []registry.Result {
	results := make([]registry.Result, len(p.ops))
	for i := range p.ops {
		results[i].Path = p.ops[i].Path
	}
	for k, a := range answers {
		if k >= len(p.owner) {
			break
		}
		i := p.owner[k]
		switch p.ops[i].Kind {
		case registry.OpSequential:
			results[i].Path = strings.TrimPrefix(a.String, s.chroot)
		case registry.OpSet:
			results[i].Version, results[i].Zxid, results[i].Time = a.Stat.Version, a.Stat.Mzxid, time.UnixMilli(a.Stat.Mtime)
		}
	}
	return results
}

// quotaExceeded ends the error that the client makes of a code which is newer
// than the client.
const quotaExceeded = ": -125"

// refused says which op a multi failed at, and why.
func (s *Session) refused(p *plan, k int, err error) error {
	i := p.owner[k]
	op := p.ops[i]
	conflict := func(why registry.Reason) error { return &registry.OpError{Index: i, Op: op, Reason: why} }
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("op %d: %w", i, s.denied(s.real(op.Path), op.Kind.String()))
	case strings.HasSuffix(err.Error(), quotaExceeded):
		return fmt.Errorf("%w: op %d (%s %s): ZooKeeper's quota for nodes or bytes there is used up", registry.ErrUnavailable, i, op.Kind, op.Path)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return conflict(registry.ReasonParent)
	case op.Kind == registry.OpEnsure:
		return errEnsure
	case errors.Is(err, zk.ErrNodeExists):
		return conflict(registry.ReasonExists)
	case errors.Is(err, zk.ErrNotEmpty):
		return conflict(registry.ReasonChildren)
	}
	creates := false
	switch op.Kind {
	case registry.OpCreate, registry.OpEphemeral, registry.OpSequential, registry.OpAbsent:
		creates = true
	}
	switch {
	case errors.Is(err, zk.ErrNoNode) && creates:
		return conflict(registry.ReasonParent)
	case errors.Is(err, zk.ErrNoNode):
		return conflict(registry.ReasonAbsent)
	case errors.Is(err, zk.ErrBadVersion) && creates:
		return conflict(registry.ReasonExists) // the root
	case errors.Is(err, zk.ErrBadVersion):
		return conflict(registry.ReasonVersion)
	}
	return fmt.Errorf("%w: op %d (%s %s): %w", registry.ErrUnavailable, i, op.Kind, op.Path, err)
}

// maxEvidence is how many nodes are looked at to find out what became of a
// commit.
const maxEvidence = 32

// resolve finds out what became of a multi that was sent and not answered. The
// next connection is the proof that none of the old one's requests is still on
// its way: ZooKeeper refuses those of a session that has moved. After a sync,
// what the nodes are is what they are for good.
//
// A node that a transaction writes has that transaction's number, and the
// multi's was to be greater than any that this session had seen when it was
// sent. So one node that the multi would have written and that is older proves
// that it did nothing. An ephemeral node that is younger and this session's,
// and that no other commit can have made, proves that it did everything.
// Between the two nothing is certain.
func (s *Session) resolve(ctx context.Context, p *plan, t *ticket) ([]registry.Result, error) {
	unknown := func(err error) error {
		if err == nil {
			return registry.ErrUnknown
		}
		return fmt.Errorf("%w: %v", registry.ErrUnknown, err)
	}
	if _, err := s.connected(ctx, t.of, false); err != nil {
		return nil, unknown(err)
	}
	if _, err := retry(ctx, s, func() (string, error) { return s.conn.Sync(s.real("/")) }); err != nil {
		return nil, unknown(err)
	}
	var paths []string
	for _, op := range p.ops {
		switch op.Kind {
		case registry.OpSet:
			paths = append(paths, op.Path)
		case registry.OpDelete, registry.OpEphemeral:
			paths = append(paths, op.Path, parent(op.Path))
		case registry.OpCreate, registry.OpSequential, registry.OpAbsent:
			paths = append(paths, parent(op.Path))
		}
		if len(paths) >= maxEvidence {
			break
		}
	}
	found, err := parallel(ctx, s, paths, s.status)
	if err != nil {
		return nil, unknown(err)
	}
	stats := make(map[string]*zk.Stat, len(paths))
	for i, path := range paths {
		stats[path] = found[i]
	}
	did := int64(0) // the transaction that did it
	for _, op := range p.ops {
		here, above := stats[op.Path], stats[parent(op.Path)]
		switch {
		case op.Kind == registry.OpSet && here != nil && here.Mzxid <= t.seen,
			op.Kind == registry.OpDelete && here != nil && here.Czxid <= t.seen,
			op.Kind != registry.OpSet && above != nil && above.Pzxid <= t.seen:
			if s.writes(op) {
				return nil, errNotApplied
			}
		case op.Kind == registry.OpEphemeral && here != nil && here.Czxid > t.seen && here.EphemeralOwner == s.conn.SessionID():
			did = here.Czxid
		}
	}
	s.mu.Lock()
	shared := t.shared
	s.mu.Unlock()
	if did == 0 || shared {
		return nil, unknown(nil)
	}
	return s.reconstruct(ctx, p, did)
}

// writes reports whether an op leaves a trace at all.
func (s *Session) writes(op registry.Op) bool {
	return op.Kind != registry.OpCheck && op.Kind != registry.OpEnsure
}

// reconstruct makes the results of a commit that is known to have happened as
// transaction zxid, if that can still be seen.
func (s *Session) reconstruct(ctx context.Context, p *plan, zxid int64) ([]registry.Result, error) {
	results := make([]registry.Result, len(p.ops))
	sets := make(map[string]int)
	var paths []string
	for i, op := range p.ops {
		results[i].Path = op.Path
		switch op.Kind {
		case registry.OpSequential:
			return nil, fmt.Errorf("%w: it took effect, but the number of %s is not known", registry.ErrUnknown, op.Path)
		case registry.OpSet:
			if sets[op.Path]++; sets[op.Path] == 1 {
				paths = append(paths, op.Path)
			}
		}
	}
	stats, err := parallel(ctx, s, paths, s.status)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", registry.ErrUnknown, err)
	}
	last, at := make(map[string]int32), time.Time{}
	for i, path := range paths {
		if stats[i] == nil || stats[i].Mzxid != zxid {
			return nil, fmt.Errorf("%w: it took effect, but %s has changed since", registry.ErrUnknown, path)
		}
		last[path], at = stats[i].Version, time.UnixMilli(stats[i].Mtime) // the same for all
	}
	for i := len(p.ops) - 1; i >= 0; i-- {
		op := p.ops[i]
		if op.Kind != registry.OpSet {
			continue
		}
		results[i].Version, results[i].Zxid, results[i].Time = last[op.Path], zxid, at
		if last[op.Path]--; last[op.Path] < 0 {
			last[op.Path] = math.MaxInt32
		}
	}
	return results, nil
}
