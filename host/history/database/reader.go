package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// Reader reads the events of a history in a database, for who judges it, and writes nothing. It is not safe
// for concurrent use.
type Reader struct {
	store *Store
	from  time.Time
}

// OpenReader connects to a database and finds out whether this program reads its tables. Close ends the connections.
func OpenReader(ctx context.Context, c *Config) (*Reader, error) {
	only := *c
	only.readOnly, only.ElasticJob = true, false
	db, err := only.open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Where, c.hide(err))
	}
	p := &pool{&only, only.dialect, db, zap.NewNop(), newPresence(), lookTime, fit{}}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	found, err := p.version(ctx, db)
	switch {
	case errors.Is(err, ErrNewer):
	case err != nil:
		err = fmt.Errorf("no history can be read there: %w", c.hide(err))
	case found < schemaVersion:
		err = fmt.Errorf("found version %d of the tables, expected %d: start a host of this version with it, which brings them up to date", found, schemaVersion)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Where, err), db.Close())
	}
	r := &Reader{store: &Store{pool: p}}
	if keep := c.Retention.Successes; keep > 0 {
		r.from = time.Now().Add(-keep) // of what is older, only what failed is kept
	}
	return r, nil
}

// Name is the URL without a password.
func (r *Reader) Name() string { return r.store.config.Where }

// Events are those of up to 1,000 rows, oldest first, from those on that are as old as successes are kept. after is
// empty for the first page, and next for the one behind it; next is empty behind the last.
func (r *Reader) Events(ctx context.Context, after string) (events []event.Event, next string, err error) {
	page, err := r.store.Events(ctx, history.Filter{Oldest: true, Limit: history.MaxLimit, From: r.from, After: after})
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", r.Name(), err)
	}
	return page.Records, page.Next, nil
}

// GreatestFence is the greatest among the fences and trigger rounds of the newest 1,000 runs; 0 if there are none.
func (r *Reader) GreatestFence(ctx context.Context) (greatest int64, err error) {
	page, err := r.store.Runs(ctx, history.Filter{Limit: history.MaxLimit})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", r.Name(), err)
	}
	for _, run := range page.Records {
		greatest = max(greatest, run.Fence, run.Trigger)
	}
	return greatest, nil
}

// Close ends the connections.
func (r *Reader) Close() error { return r.store.db.Close() }
