package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	driver "modernc.org/sqlite"

	"github.com/wasmjob/wasmjob/host/history"
)

// awayFor is how long queries are refused after one that the database did not answer: a page makes several, and
// must not wait for each.
const awayFor = 3 * time.Second

// presence knows whether the database answers. It is safe for concurrent use.
type presence struct {
	// since is when the database last failed to answer, in Unix nanoseconds; 0 if it has answered since.
	since atomic.Int64
	back  chan struct{} // has room for one: the database answers again
}

func newPresence() *presence { return &presence{back: make(chan struct{}, 1)} }

// err returns why a query need not be tried; nil if it may be answered.
func (p *presence) err() error {
	since := p.since.Load()
	if ago := time.Since(time.Unix(0, since)); since != 0 && ago < awayFor {
		return fmt.Errorf("%w: the database did not answer %.0f s ago, and is asked again soon", history.ErrUnavailable, ago.Seconds())
	}
	return nil
}

// note records the result of a query: the database answered, if only with an error of its own, or did not. A
// query that ctx ended, or an unusable file, changes nothing.
func (p *presence) note(ctx context.Context, err error) {
	if err == nil || errors.Is(err, sql.ErrNoRows) || errors.Is(err, ErrNewer) || refused(err) {
		if p.since.Swap(0) != 0 {
			select {
			case p.back <- struct{}{}:
			default:
			}
		}
		return
	}
	var file *fs.PathError
	if ctx.Err() == nil && !errors.As(err, &file) {
		p.since.Store(time.Now().UnixNano())
	}
}

// refused reports whether an error came from the database itself, which has thus answered.
func refused(err error) bool {
	var (
		post *pgconn.PgError
		my   *mysql.MySQLError
		lite *driver.Error
	)
	return errors.As(err, &post) || errors.As(err, &my) || errors.As(err, &lite)
}
