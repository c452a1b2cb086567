package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/ceiling"
	"github.com/wasmjob/wasmjob/host/history"
)

// Options say where and how much. Config and Spool are required.
type Options struct {
	Config *Config
	// Spool is a directory for what the database does not take in time; several hosts may
	// have the same. It is made if it does not exist.
	Spool string
	// SpoolBytes bounds this host's part of it; 0 is DefaultSpoolBytes.
	SpoolBytes int64
	// MaxBytes bounds the file of SQLite; 0 is no bound. That of a server's tables is Config.Size.
	MaxBytes int64
	// Queue, Ceilings, OnOverQuota, WholeLog and Logger are those of [history.FeedOptions].
	Queue       int
	Ceilings    ceiling.List
	OnOverQuota func(job string)
	WholeLog    string
	Logger      *zap.Logger
}

const (
	// DefaultSpoolBytes is the bound of a spool if none is given.
	DefaultSpoolBytes = 256 << 20

	// linger has records of a fifth of a second share a transaction.
	linger = 200 * time.Millisecond
	// settleTimeout is how long a query waits for what is not written yet.
	settleTimeout = time.Second
	// startTimeout bounds the wait for a database at the start, closeTimeout that at the end.
	startTimeout = 5 * time.Second
	closeTimeout = 5 * time.Second
)

// pool is a database as all parts of a store have it.
type pool struct {
	config *Config
	kind   kind
	db     *sql.DB
	log    *zap.Logger
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
	backlog *backlog
	loader  *loader
	cleaner *cleaner

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
	if o.SpoolBytes <= 0 {
		o.SpoolBytes = DefaultSpoolBytes
	}
	if err := os.MkdirAll(o.Spool, 0o700); err != nil {
		return nil, fmt.Errorf("history: spool: %w", err)
	}
	spooled, err := openSpool(o.Spool, o.Config.Where, o.SpoolBytes)
	if spooled == nil {
		return nil, fmt.Errorf("history: spool: %w", err)
	}
	if err != nil {
		o.Logger.Warn("a file of the history's spool cannot be read; it stays", zap.Error(err))
	}
	db, err := o.Config.open()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("history: %w", o.Config.hide(err)), spooled.close())
	}
	if o.Config.Shared() {
		o.MaxBytes = o.Config.Size
	}
	p := &pool{o.Config, o.Config.kind, db, o.Logger, newPresence(), lookTime, fit{}}
	s := &Store{
		pool: p, backlog: &backlog{log: o.Logger, spool: spooled, news: make(chan struct{}, 1)},
		cleaner: &cleaner{pool: p, maxBytes: o.MaxBytes, clock: time.Now, done: make(chan struct{}), from: make(map[string]int64)},
	}
	s.backlog.publish()
	s.loader = &loader{pool: p, backlog: s.backlog, drop: func(n int64) { s.Drop(n) }, closing: make(chan struct{}), done: make(chan struct{}),
		name: spooled.process(), memory: newMemory(), days: make(map[int64]bool)}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, db.Close(), spooled.close())
	}
	s.feed = history.NewFeed(history.FeedOptions{Queue: o.Queue, Ceilings: o.Ceilings, OnOverQuota: o.OnOverQuota, WholeLog: o.WholeLog, Linger: linger, Logger: o.Logger},
		func(batch []history.Entry) { s.Drop(s.backlog.add(batch)) })
	var loading, cleaning context.Context
	loading, s.stopLoading = context.WithCancel(context.WithoutCancel(ctx))
	cleaning, s.stopCleaning = context.WithCancel(loading)
	go s.loader.run(loading)
	go s.cleaner.run(cleaning)
	return s, nil
}

// start makes the tables if the database answers soon.
func (s *Store) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := s.prepare(ctx)
	switch {
	case errors.Is(err, ErrNewer):
		return fmt.Errorf("history: %s: %w; upgrade this host, or give it another database (--history)", s.config.Where, err)
	case err != nil:
		s.backlog.fail(s.config.hide(err))
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
	s.backlog.state(&state)
	return state
}

// Close writes what is queued, or spools it if the database does not take it within
// five seconds, and joins the goroutines. Further calls return the same.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.feed.Close()
		s.backlog.end()
		close(s.loader.closing)
		s.stopCleaning()
		timer := time.AfterFunc(closeTimeout, s.stopLoading)
		<-s.loader.done
		timer.Stop()
		s.stopLoading()
		<-s.cleaner.done
		lost, err := s.backlog.close()
		s.Drop(lost)
		if err = errors.Join(err, s.db.Close()); err != nil {
			s.closed = fmt.Errorf("history: %w", s.config.hide(err))
		}
	})
	return s.closed
}
