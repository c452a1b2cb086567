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
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	driver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	// connectTimeout bounds a connection's begin.
	connectTimeout = 3 * time.Second
	// lockTimeout bounds how long a statement waits for others.
	lockTimeout = 5 * time.Second
	// mostConnections is how many a host has at once: the writer's and those of queries.
	mostConnections = 6
)

// open makes the pool. It does not connect.
func (c *Config) open() (*sql.DB, error) {
	var db *sql.DB
	switch c.kind {
	case postgres:
		c.pgx.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
		c.pgx.RuntimeParams["plan_cache_mode"] = "force_custom_plan" // one for any arguments does not know how many rows a time has
		if c.pgx.RuntimeParams["application_name"] == "" {
			c.pgx.RuntimeParams["application_name"] = "wasmjob"
		}
		db = sql.OpenDB(stdlib.GetConnector(*c.pgx))
	case mySQL:
		if err := c.mysql.Apply(mysql.Charset("utf8mb4", "")); err != nil {
			return nil, err
		}
		c.mysql.Params = map[string]string{
			"innodb_lock_wait_timeout": strconv.Itoa(int(lockTimeout.Seconds())),
			"sql_mode":                 "'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'",
			"time_zone":                "'+00:00'",
		}
		c.mysql.InterpolateParams = true
		c.mysql.Logger = &mysql.NopLogger{} // errors are returned as well
		connector, err := mysql.NewConnector(c.mysql)
		if err != nil {
			return nil, err
		}
		db = sql.OpenDB(connector)
	case sqlite:
		if c.memory {
			return openMemory()
		}
		var err error
		if db, err = c.openFile("journal_mode(wal)", "synchronous(normal)", "journal_size_limit("+strconv.Itoa(mostJournal)+")"); err != nil {
			return nil, err
		}
	}
	db.SetMaxOpenConns(mostConnections)
	db.SetMaxIdleConns(mostConnections) // a page asks for several things at once, and a connection costs both sides milliseconds
	db.SetConnMaxIdleTime(time.Minute)
	return db, nil
}

// mostJournal is what SQLite's own log keeps when it is empty, in bytes.
const mostJournal = 1 << 20

// openFile opens SQLite's file, which makeFile has made.
func (c *Config) openFile(pragmas ...string) (*sql.DB, error) {
	options := url.Values{"_pragma": append([]string{"busy_timeout(" + strconv.FormatInt(lockTimeout.Milliseconds(), 10) + ")"}, pragmas...), "_txlock": {"immediate"}, "mode": {"rw"}}
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

// makeFile makes the file of SQLite if it does not exist, for its owner alone. SQLite itself would let everybody
// read it; it gives its other files the mode of this one.
func (c *Config) makeFile(ctx context.Context) error {
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

// begin begins a transaction. MySQL's default would lock the gaps between rows, too, and
// writers each other out.
func (s *pool) begin(ctx context.Context) (*sql.Tx, error) {
	if s.kind == mySQL {
		return s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	}
	return s.db.BeginTx(ctx, nil)
}

// again reports whether an error goes away by another try: transactions were in each
// other's way.
func (k kind) again(err error) bool {
	switch k {
	case postgres:
		var e *pgconn.PgError
		return errors.As(err, &e) && (e.Code == "40P01" || e.Code == "40001" || e.Code == "55P03")
	case mySQL:
		var e *mysql.MySQLError
		return errors.As(err, &e) && (e.Number == 1213 || e.Number == 1205)
	}
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// exists reports whether a column or a key could not be added because it is there. Only MySQL
// may meet one, which commits each statement.
func (kind) exists(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1060 || e.Number == 1061)
}

// bind turns the ? of a statement into what the database calls its parameters.
func (k kind) bind(statement string) string {
	if k != postgres {
		return statement
	}
	var b strings.Builder
	for n, part := range strings.Split(statement, "?") {
		if n > 0 {
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
		}
		b.WriteString(part)
	}
	return b.String()
}

// like is a condition that holds if a column contains a text, at least regardless of
// the case of ASCII; the parameter comes from pattern.
func (k kind) like(column string) string {
	switch k {
	case postgres:
		return column + " ILIKE ? ESCAPE '!'"
	case mySQL:
		return column + " COLLATE utf8mb4_general_ci LIKE ? ESCAPE '!'"
	}
	return column + " LIKE ? ESCAPE '!'"
}

// inJSON are characters that JSON writes in another way, besides control characters.
const inJSON = "\"\\<>&\u2028\u2029"

// pattern is the parameter of like for a text, or for the JSON of one: characters whose
// case a database may not know, or that JSON writes in another way, stand for anything.
func pattern(text string) string {
	var b strings.Builder
	b.WriteByte('%')
	for _, r := range clean(text) {
		switch {
		case r == '%' || r == '_' || r == '!':
			b.WriteByte('!')
			b.WriteRune(r)
		case r >= 0x80 && strings.ToLower(string(r)) != strings.ToUpper(string(r)), strings.ContainsRune(inJSON, r), r < ' ':
			b.WriteByte('%')
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('%')
	return b.String()
}

// upsert is the end of an insert of rows that may be there: the columns are set to what
// is new. If fenced, only where the new fence is not less.
func (k kind) upsert(table string, keys, columns []string, fenced bool) string {
	var b strings.Builder
	if k == mySQL {
		b.WriteString(" ON DUPLICATE KEY UPDATE ")
		for _, c := range columns {
			if c == "fence" { // last, because the others ask for the old one
				continue
			}
			if fenced {
				b.WriteString(c + " = IF(VALUES(fence) >= fence, VALUES(" + c + "), " + c + "), ")
			} else {
				b.WriteString(c + " = VALUES(" + c + "), ")
			}
		}
		if fenced {
			return b.String() + "fence = GREATEST(fence, VALUES(fence))"
		}
		return strings.TrimSuffix(b.String(), ", ")
	}
	b.WriteString(" ON CONFLICT (" + strings.Join(keys, ", ") + ") DO UPDATE SET ")
	for i, c := range columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c + " = excluded." + c)
	}
	if fenced {
		b.WriteString(" WHERE excluded.fence >= " + table + ".fence")
	}
	return b.String()
}

// badRecord reports whether an error is one of what is written, not of the database:
// trying again does not help.
func (k kind) badRecord(err error) bool {
	switch k {
	case postgres:
		var e *pgconn.PgError
		return errors.As(err, &e) && (strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || e.Code == "54000")
	case mySQL:
		var e *mysql.MySQLError
		if !errors.As(err, &e) {
			return false
		}
		switch e.Number {
		case 1048, 1062, 1153, 1264, 1265, 1292, 1366, 1406, 3819, 3988, 4025: // null, double, too large, out of range, not a character, a check …
			return true
		}
	case sqlite:
		var e *driver.Error
		if !errors.As(err, &e) {
			return false
		}
		switch e.Code() & 0xff {
		case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
			return true
		}
	}
	return false
}

// purged reports whether an error says that the place of a row is gone: it is of a run that
// began longer ago than failures are kept.
func (k kind) purged(err error) bool {
	var e *pgconn.PgError
	return k == postgres && errors.As(err, &e) && e.Code == "23514" && e.ConstraintName == "" // no partition
}

// locked runs do on one connection while no other host does the same. If wait is not
// set and another one does, it returns false at once. Who waits and who does not have a
// lock each: a migration does not wait for a purge.
func (k kind) locked(ctx context.Context, db *sql.DB, wait bool, do func(*sql.Conn) error) (ok bool, err error) {
	if k == sqlite && !wait { // its transactions exclude each other
		return true, do(nil)
	}
	number, name := purgeLock, mysqlPurge
	if wait {
		number, name = advisoryLock, mysqlLock
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	switch k {
	case sqlite:
		return true, do(conn)
	case postgres:
		if wait {
			_, err = conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", number)
			ok = err == nil
		} else {
			err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", number).Scan(&ok)
		}
	case mySQL:
		seconds := 0
		if wait {
			seconds = int(migrationTimeout.Seconds())
		}
		var got sql.NullInt64
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK("+mysqlLockName+", ?)", name, seconds).Scan(&got)
		ok = got.Int64 == 1
		if err == nil && !ok && wait {
			err = errors.New("another host holds the lock " + name)
		}
	}
	if err != nil || !ok {
		return ok, err
	}
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
		defer cancel()
		if k == postgres {
			_, uerr := conn.ExecContext(release, "SELECT pg_advisory_unlock($1)", number)
			err = errors.Join(err, uerr)
			return
		}
		_, uerr := conn.ExecContext(release, "DO RELEASE_LOCK("+mysqlLockName+")", name)
		err = errors.Join(err, uerr)
	}()
	return true, do(conn)
}

const (
	// advisoryLock is a number that no other program is likely to use, mysqlLock a name. The
	// number after it is that of new partitions.
	advisoryLock int64 = 0x7761736d6a6f62
	mysqlLock          = "wasmjob_history"
	purgeLock          = advisoryLock + 2
	mysqlPurge         = "wasmjob_history_purge"
	// mysqlLockName is that of the database's own: names of locks are the whole server's, and have at most 64 characters.
	mysqlLockName = "CONCAT(?, '_', LEFT(SHA2(DATABASE(), 256), 32))"
)
