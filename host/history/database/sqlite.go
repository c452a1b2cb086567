package database

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"time"

	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteDialect is that of SQLite: one file, or memory, of one host.
type sqliteDialect struct{}

var sqlite dialect = sqliteDialect{}

func (sqliteDialect) name() string  { return "SQLite" }
func (sqliteDialect) shared() bool  { return false }
func (sqliteDialect) divided() bool { return false }
func (sqliteDialect) bounded() bool { return false }

func (sqliteDialect) open(c *Config) (*sql.DB, error) {
	if c.memory {
		return openMemory()
	}
	if c.readOnly {
		return c.openFile()
	}
	return c.openFile("journal_mode(wal)", "synchronous(normal)", "journal_size_limit("+strconv.Itoa(mostJournal)+")")
}

// mostJournal is what SQLite's own log keeps when it is empty, in bytes.
const mostJournal = 1 << 20

// openFile opens SQLite's file, which makeFile has made.
func (c *Config) openFile(pragmas ...string) (*sql.DB, error) {
	mode := "rw"
	if c.readOnly {
		mode = "ro"
	}
	options := url.Values{"_pragma": append([]string{"busy_timeout(" + strconv.FormatInt(lockTimeout.Milliseconds(), 10) + ")"}, pragmas...), "_txlock": {"immediate"}, "mode": {mode}}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: c.path}).EscapedPath()+"?"+options.Encode())
}

// openMemory makes a database that the connections of one pool share. One connection is to keep it, which leaves one to
// writers and queries: they wait for each other in their order, and not for locks.
func openMemory() (*sql.DB, error) {
	pragmas := url.Values{"_pragma": {"auto_vacuum(incremental)"}, "_txlock": {"immediate"}, "vfs": {"memdb"}}
	db, err := sql.Open("sqlite", "file:/wasmjob-"+rand.Text()+"?"+pragmas.Encode())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2)
	db.SetMaxIdleConns(2)
	return db, nil
}

// prepare makes the file if it does not exist, for its owner alone. SQLite itself would let everybody
// read it; it gives its other files the mode of this one.
func (sqliteDialect) prepare(ctx context.Context, c *Config) error {
	if c.path == "" {
		return nil
	}
	f, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A file that is in use must not be opened but by SQLite: closing it would take the locks of this process away.
	if info, err := os.Stat(c.path); err != nil || info.Size() > 0 {
		return err
	}
	// Before there is anything in it, and once: a connection that asks for this waits for who writes.
	db, err := c.openFile("auto_vacuum(incremental)", "journal_mode(wal)")
	if err != nil {
		return err
	}
	return errors.Join(db.PingContext(ctx), db.Close())
}

func (sqliteDialect) transaction() *sql.TxOptions { return nil }

// locked: its transactions exclude each other.
func (sqliteDialect) locked(ctx context.Context, db *sql.DB, wait bool, do func(*sql.Conn) error) (ok bool, err error) {
	if !wait {
		return true, do(nil)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return true, do(conn)
}

func (sqliteDialect) migrate(ctx context.Context, conn *sql.Conn, steps func(querier) error) error {
	return atOnce(ctx, conn, steps)
}

func (sqliteDialect) bind(statement string) string { return statement }
func (sqliteDialect) like(column string) string    { return column + " LIKE ? ESCAPE '!'" }

func (sqliteDialect) insert(bool) string { return "INSERT INTO " }

func (sqliteDialect) upsert(table string, keys, columns []string, fenced bool) string {
	return onConflict(table, keys, columns, fenced)
}

func (sqliteDialect) seldom() string { return seldomKinds }

func (sqliteDialect) again(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (sqliteDialect) exists(error) bool { return false }

func (sqliteDialect) badRecord(err error) bool {
	var e *driver.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return true
	}
	return false
}

func (sqliteDialect) purged(error) bool { return false }

func (sqliteDialect) clock() string { return "" }

// size is that of the file without its free pages.
func (sqliteDialect) size(ctx context.Context, db *sql.DB) (bytes int64, tables map[string]tableSize, err error) {
	err = db.QueryRowContext(ctx, "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()").Scan(&bytes)
	return bytes, nil, err
}

// vacuum: the file shrinks when what its log has is in it.
func (sqliteDialect) vacuum() []string {
	return []string{"PRAGMA incremental_vacuum", "PRAGMA wal_checkpoint(TRUNCATE)"}
}

func (sqliteDialect) traceTables() []string { return plainTraces("INT") }
func (sqliteDialect) traceKeys() bool       { return true }
func (sqliteDialect) traceWidths() string   { return "" }

func (sqliteDialect) highest(context.Context, querier) (rune, string, error) { return 0, "", nil }

func (sqliteDialect) traceKey(context.Context, *sql.DB, string) (string, error) { return "id", nil }

func (sqliteDialect) timestamp(t time.Time) string { return t.Local().Format(jdbcTime) }
func (sqliteDialect) boolean(b bool) any           { return flag(b) }
