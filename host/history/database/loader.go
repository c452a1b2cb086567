package database

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// loader writes the backlog into the database. Its goroutine owns what has no lock.
type loader struct {
	*pool
	queue   queue
	drop    func(n int64) // counts records that are lost
	closing chan struct{} // closed at the begin of Close
	done    chan struct{} // closed when run has returned

	// linger is how long records wait for others to share a transaction; 0: the caller of add waits for the
	// write. A value in hurry ends the wait. rest is the length of the next wait: after records from a log, as
	// long as their write took, so that a long log takes at most half a processor.
	linger time.Duration
	rest   time.Duration
	hurry  chan struct{}
	// wait is called before a transaction.
	wait func(ctx context.Context)
	// answers, if not nil, is called when the database has taken something, or nothing is left to write.
	answers func()
	// written is called after each commit.
	written func(ctx context.Context)

	migrated bool
	doubt    bool // a commit that seemed to fail may have taken effect
	memory   *memory
	days     map[int64]bool // that have partitions
}

// run writes the backlog until it is closed and empty, or until a try fails after it
// was closed. ctx ends a try.
func (s *loader) run(ctx context.Context) {
	defer close(s.done)
	pause := leastPause
	for {
		did, err := s.step(ctx)
		switch {
		case err != nil:
			s.presence.note(ctx, err)
			s.queue.fail(s.config.hide(err))
			if s.queue.ended() || !wait(ctx, pause, s.closing, s.presence.back) {
				return
			}
			pause = min(2*pause, mostPause)
		case did:
			s.presence.note(ctx, nil)
			s.queue.good()
			if s.answers != nil {
				s.answers()
			}
			pause = leastPause
			s.gather(ctx)
		case s.queue.ended():
			return
		default:
			select {
			case <-s.queue.news():
				s.gather(ctx)
			case <-ctx.Done():
				return
			}
		}
	}
}

// gather waits for more records for the next transaction.
func (s *loader) gather(ctx context.Context) {
	if s.rest > 0 {
		wait(ctx, s.rest, s.closing, s.hurry)
	}
	s.rest = s.linger
}

// wait waits for d. It returns false if ctx is done first. It ends early at closing, or when the database has
// answered another caller (back).
func wait(ctx context.Context, d time.Duration, closing, back <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-closing:
	case <-back:
	case <-ctx.Done():
		return false
	}
	return true
}

// step does what is next. did is false if there is nothing.
func (s *loader) step(ctx context.Context) (did bool, err error) {
	late := time.AfterFunc(latePatience, s.queue.late)
	defer late.Stop()
	if !s.migrated {
		migrating, cancel := context.WithTimeout(ctx, longestMigration)
		defer cancel()
		if err := s.prepare(migrating); err != nil {
			return false, err
		}
		s.migrated = true
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	c, ok, err := s.queue.next(ctx, s.position, s.doubt)
	if err != nil || !ok {
		return false, err
	}
	if c, ok, err = s.unwritten(ctx, c); err != nil || !ok {
		return err == nil, err
	}
	if s.wait != nil {
		s.wait(ctx)
	}
	began := time.Now()
	if err := s.writeChunk(ctx, c); err != nil {
		s.doubt = true // the commit may have taken effect
		return false, err
	}
	if c.old {
		s.rest = min(time.Since(began), s.linger)
	}
	return true, nil
}

// unwritten removes from a chunk the records that the database has from a commit without an answer. ok is false
// if nothing is left.
func (s *loader) unwritten(ctx context.Context, c chunk) (rest chunk, ok bool, err error) {
	if len(c.entries) == 0 { // lines of the spool that are no records
		return c, false, s.queue.done(c)
	}
	if !s.doubt {
		return c, true, nil
	}
	position, err := s.position(ctx, c.writer)
	if err != nil {
		return c, false, err
	}
	s.doubt = false
	n := 0
	for n < len(c.ends) && c.ends[n] <= position {
		n++
	}
	if n == 0 {
		return c, true, nil
	}
	err = s.queue.done(c.part(0, n))
	return c.part(n, len(c.entries)), n < len(c.entries), err
}

// part returns the entries in [from, to).
func (c chunk) part(from, to int) chunk {
	if len(c.entries) == 0 {
		return c
	}
	return chunk{entries: c.entries[from:to], writer: c.writer, ends: c.ends[from:to], spool: c.spool, old: c.old}
}

// writeChunk writes a chunk. If the database refuses its content, the chunk is halved until the bad record is
// found and dropped.
func (s *loader) writeChunk(ctx context.Context, c chunk) error {
	err := s.commit(ctx, c)
	if s.dialect.purged(err) { // the memory, which had that run, is empty now: what is left of it begins anew
		err = s.commit(ctx, c)
	}
	if err == nil {
		s.written(ctx)
		return s.queue.done(c)
	}
	if !s.dialect.badRecord(err) {
		return err
	}
	if n := len(c.entries); n > 1 {
		if err := s.writeChunk(ctx, c.part(0, n/2)); err != nil {
			return err
		}
		return s.writeChunk(ctx, c.part(n/2, n))
	}
	s.drop(1)
	s.log.Warn("the database does not take a record", zap.String("job", c.entries[0].Job()), zap.Error(s.config.hide(err)))
	return s.queue.done(c)
}

// hide removes the password from an error's text and returns one line with each part once: PostgreSQL's driver
// tries with TLS, then without, and reports both errors.
func (c *Config) hide(err error) error {
	text := err.Error()
	var parts []string
	for line := range strings.Lines(c.withoutPassword(text)) {
		if line = strings.TrimSpace(line); !slices.Contains(parts, line) {
			parts = append(parts, line)
		}
	}
	shown := strings.ReplaceAll(strings.Join(parts, "; "), ":; ", ": ")
	if shown == text {
		return err
	}
	return fmt.Errorf("%s", shown)
}
