package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
)

// Options say where and how much. Config is required.
type Options struct {
	Config *Config
	// Spool is a directory for what a database of a URL does not take in time, which is required there; several hosts may
	// have the same. It is made if it does not exist.
	Spool string
	// SpoolBytes bounds this host's part of it; 0 is DefaultSpoolBytes.
	SpoolBytes int64
	// MaxBytes bounds the file of SQLite; 0 is no bound. That of a server's tables is Config.Size. A history
	// of [InFile] has a quarter of it for the file with its older ones, which are compressed, and the rest for the
	// database beside it; 0 is lines.DefaultMaxBytes there. One in memory has a bound of its own.
	MaxBytes int64
	// Queue, Ceilings, OnOverQuota, WholeLog and Logger are those of [history.FeedOptions].
	Queue       int
	Ceilings    ceiling.List
	OnOverQuota func(job string)
	WholeLog    string
	Logger      *zap.Logger
	// Wait returns when what is more urgent has begun, or soon: SQLite, which writes in this process, waits for it before
	// each transaction. nil is no wait.
	Wait func(ctx context.Context)
}

const (
	// DefaultSpoolBytes is the bound of a spool if none is given.
	DefaultSpoolBytes = 256 << 20

	// linger has records of a fifth of a second share a transaction.
	linger = 200 * time.Millisecond
	// followLinger is how long records of a log wait for more. They are safe there, and a query does not wait for its end.
	followLinger = time.Second
	// settleTimeout is how long a query waits for what is not written yet.
	settleTimeout = time.Second
	// startTimeout bounds the wait for a database at the start, closeTimeout that at the end.
	startTimeout = 5 * time.Second
	closeTimeout = 5 * time.Second

	// memoryBytes bounds a history in memory, leastBytes is the least bound of a database beside a log: without
	// records it takes a fifth of that.
	memoryBytes = 32 << 20
	leastBytes  = 1 << 20
)

// pool is a database as all parts of a store have it.
type pool struct {
	config  *Config
	dialect dialect
	db      *sql.DB
	log     *zap.Logger
	// presence is what queries and the loader have found out.
	presence *presence
	// lookTime is that of the package; a test has one of its own.
	lookTime time.Duration
	// fit is what the database can hold. It is set before the first write, and belongs to
	// the loader.
	fit fit
}

// Store is a [history.Store]. It is safe for concurrent use.
type Store struct {
	*feed
	*pool
	queue   queue
	loader  *loader
	cleaner *cleaner
	standIn *standIn // of a server's database; else nil

	keeper *sql.Conn // of a history in memory, which ends with its last connection; else nil

	stopLoading, stopCleaning context.CancelFunc
	once                      sync.Once
	closed                    error
}

// feed is embedded without its Close.
type feed = history.Feed

var _ history.Store = (*Store)(nil)

// Open begins to write to a database. That the database cannot be reached, or refuses
// the host, is no error: records are spooled, and State says so. Tables of a newer
// version are one. Close joins the goroutines.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	hurry, bound := make(chan struct{}, 1), o.bound()
	waiting, err := o.queue(bound, hurry)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	db, err := o.Config.open()
	if err != nil {
		_, cerr := waiting.close()
		return nil, errors.Join(fmt.Errorf("history: %w", o.Config.hide(err)), cerr)
	}
	p := &pool{o.Config, o.Config.dialect, db, o.Logger, newPresence(), lookTime, fit{}}
	s := &Store{
		pool: p, queue: waiting,
		cleaner: &cleaner{pool: p, maxBytes: bound, clock: time.Now, done: make(chan struct{}), from: make(map[string]int64), grown: make(chan struct{}, 1)},
	}
	s.loader = &loader{pool: p, queue: waiting, drop: func(n int64) { s.Drop(n) }, closing: make(chan struct{}), done: make(chan struct{}),
		hurry: hurry, written: s.cleaner.watch, memory: newMemory(), days: make(map[int64]bool)}
	if err := s.start(ctx); err != nil {
		_, cerr := waiting.close()
		return nil, errors.Join(err, s.disconnect(), cerr)
	}
	if o.Wait != nil && !o.Config.Shared() {
		s.loader.wait = o.Wait
	}
	feeding := history.FeedOptions{Queue: o.Queue, Ceilings: o.Ceilings, OnOverQuota: o.OnOverQuota, WholeLog: o.WholeLog, Linger: linger, Logger: o.Logger}
	if o.Config.log != "" { // which takes what comes at once
		feeding.Linger, s.loader.linger, s.loader.rest = 0, followLinger, followLinger
	}
	s.feed = history.NewFeed(feeding, waiting.add)
	var loading, cleaning context.Context
	loading, s.stopLoading = context.WithCancel(context.WithoutCancel(ctx))
	if b, spools := waiting.(*backlog); spools && o.Config.Shared() {
		s.standIn = &standIn{backlog: b, ctx: loading}
		s.loader.answers = func() { s.endStandIn(false) }
	}
	cleaning, s.stopCleaning = context.WithCancel(loading)
	go s.loader.run(loading)
	go s.cleaner.run(cleaning)
	return s, nil
}

// bound is the most that the database may have, in bytes; 0 is no bound.
func (o *Options) bound() int64 {
	switch c := o.Config; {
	case c.memory:
		return memoryBytes
	case c.log != "":
		return max(o.size()-o.size()/logPart, leastBytes)
	case c.Shared():
		return c.Size
	}
	return o.MaxBytes
}

// logPart is which part of a history's size its log has.
const logPart = 4

// size is the bound of a log and its database together.
func (o *Options) size() int64 { return cmp.Or(o.MaxBytes, jsonl.DefaultMaxBytes) }

// queue makes what records wait in.
func (o *Options) queue(bound int64, hurry chan struct{}) (queue, error) {
	switch {
	case o.Config.memory:
		b := &backlog{trouble: trouble{log: o.Logger}, name: "memory", spool: &spool{}, woken: make(chan struct{}, 1)}
		b.publish()
		return b, nil
	case o.Config.log != "":
		log, err := jsonl.OpenLog(o.Config.log, max(o.size()/logPart, jsonl.MinMaxBytes), o.Logger)
		if err != nil {
			return nil, err
		}
		return newFollower(log, bound/rowsToText, hurry, o.Logger), nil
	}
	if o.SpoolBytes <= 0 {
		o.SpoolBytes = DefaultSpoolBytes
	}
	if err := os.MkdirAll(o.Spool, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	spooled, err := openSpool(o.Spool, o.Config.Where, o.SpoolBytes)
	if spooled == nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if err != nil {
		o.Logger.Warn("a file of the history's spool cannot be read; it stays", zap.Error(err))
	}
	b := &backlog{trouble: trouble{log: o.Logger}, name: spooled.process(), spool: spooled, woken: make(chan struct{}, 1)}
	b.publish()
	return b, nil
}

// rowsToText is about how much more room records take in SQLite, with its indexes, than as text.
const rowsToText = 2

// disconnect ends the pool.
func (s *Store) disconnect() (err error) {
	if s.keeper != nil {
		err = s.keeper.Close()
	}
	return errors.Join(err, s.db.Close())
}

// start makes the tables if the database answers soon.
func (s *Store) start(ctx context.Context) (err error) {
	if s.config.memory {
		if s.keeper, err = s.db.Conn(ctx); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	switch err = s.prepare(ctx); {
	case errors.Is(err, ErrNewer):
		return fmt.Errorf("history: %s: %w; upgrade this host, or give it another database (--history)", s.config.Where, err)
	case err != nil:
		s.queue.fail(s.config.hide(err))
	default:
		s.loader.migrated = true
	}
	return nil
}

// State implements [history.Store].
func (s *Store) State() history.State {
	state := history.State{Where: s.config.Where, Shared: s.config.Shared(), Queued: s.Queued(), Dropped: s.Dropped()}
	if s.config.ElasticJob {
		state.Where += " (elasticjob=true)"
	}
	s.queue.state(&state)
	return state
}

// endStandIn ends what answers in the database's place, if it does.
func (s *Store) endStandIn(closing bool) {
	if s.standIn == nil {
		return
	}
	if err := s.standIn.end(closing); err != nil {
		s.log.Warn("the history in memory that answered while the database was away cannot be closed", zap.Error(err))
	}
}

// Close writes what is queued, or spools it if the database does not take it within
// five seconds, and joins the goroutines. Further calls return the same.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.feed.Close()
		s.endStandIn(true)
		s.queue.end()
		close(s.loader.closing)
		s.stopCleaning()
		timer := time.AfterFunc(closeTimeout, s.stopLoading)
		<-s.loader.done
		timer.Stop()
		s.stopLoading()
		<-s.cleaner.done
		lost, err := s.queue.close()
		s.Drop(lost)
		if err = errors.Join(err, s.disconnect()); err != nil {
			s.closed = fmt.Errorf("history: %w", s.config.hide(err))
		}
	})
	return s.closed
}
