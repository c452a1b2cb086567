package database

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

const (
	// connectTimeout bounds the time to connect.
	connectTimeout = 3 * time.Second
	// lockTimeout bounds a statement's wait for locks.
	lockTimeout = 5 * time.Second
	// mostConnections bounds a host's connections: the writer's and those of queries.
	mostConnections = 6
)

// dialect has what differs between kinds of databases. Its three implementations have no state.
type dialect interface {
	// name is the name of the kind, in messages and in the names of migration files.
	name() string
	// shared: hosts on several machines can use the database. Else it is a file or memory of one host.
	shared() bool
	// divided: tables are partitioned by day and old days are dropped; otherwise rows are deleted.
	divided() bool
	// bounded: a query needs an upper bound of times; without it the database sorts the whole table for a large
	// page.
	bounded() bool

	// open makes a pool of connections. It does not connect.
	open(c *Config) (*sql.DB, error)
	// prepare makes what must exist before the tables.
	prepare(ctx context.Context, c *Config) error
	// transaction returns the options of a writer's transaction; nil is the default.
	transaction() *sql.TxOptions
	// locked runs do while no other host runs the same. Without wait it returns false at once if another host
	// does. Calls with and without wait use different locks: a migration does not wait for a purge.
	locked(ctx context.Context, db *sql.DB, wait bool, do func(*sql.Conn) error) (ok bool, err error)
	// migrate runs steps that change tables, in one transaction if the database can.
	migrate(ctx context.Context, conn *sql.Conn, steps func(querier) error) error

	// bind replaces each ? of a statement with the database's form of a parameter.
	bind(statement string) string
	// like is a condition: a column contains a text, regardless of the case of at least ASCII. The parameter
	// comes from pattern.
	like(column string) string
	// insert returns the beginning of an insert. If lenient, a character that the column cannot hold is written
	// as ?, where the database would refuse the row.
	insert(lenient bool) string
	// upsert returns the end of an insert of rows that may exist: the columns get the new values; if fenced,
	// only where the new fence is not less.
	upsert(table string, keys, columns []string, fenced bool) string

	// seldom is the condition of the index of rare events; true for all rows if there is no such index.
	seldom() string

	// again reports whether a retry may succeed: transactions conflicted.
	again(err error) bool
	// exists reports whether a column or a key was not added because it exists.
	exists(err error) bool
	// badRecord reports whether the record, not the database, is at fault: a retry does not help.
	badRecord(err error) bool
	// purged reports whether the row's partition is gone: its run began longer ago than failures are kept.
	purged(err error) bool

	// clock is a query for the database's time in seconds since 1970; empty if the database uses this host's
	// clock.
	clock() string
	// size returns the bytes that a history takes, without free space. tables is set if deleted rows do not
	// lower it soon.
	size(ctx context.Context, db *sql.DB) (bytes int64, tables map[string]tableSize, err error)
	// vacuum returns the statements that return free space to the disk.
	vacuum() []string

	// traceTables returns the statements that create ElasticJob's tables if missing.
	traceTables() []string
	// traceKeys: each of ElasticJob's tables has a key for upserts.
	traceKeys() bool
	// traceWidths is a query for the columns of ElasticJob's tables, which another program may have made: table and
	// column in small letters, width in characters, and the character set if it is narrow. Empty: they take any text.
	traceWidths() string
	// highest returns the last character of the database's encoding; 0: all characters.
	highest(ctx context.Context, q querier) (last rune, encoding string, err error)
	// traceKey returns the column by which rows of one of ElasticJob's tables are deleted.
	traceKey(ctx context.Context, db *sql.DB, table string) (string, error)
	// timestamp formats a time as JDBC does, boolean a truth value.
	timestamp(t time.Time) string
	boolean(b bool) any
}

// open makes the pool. It does not connect.
func (c *Config) open() (*sql.DB, error) {
	db, err := c.dialect.open(c)
	if err != nil || c.memory {
		return db, err
	}
	db.SetMaxOpenConns(mostConnections)
	db.SetMaxIdleConns(mostConnections) // a page asks for several things at once, and a connection costs both sides milliseconds
	db.SetConnMaxIdleTime(time.Minute)
	return db, nil
}

// begin begins a transaction of a writer.
func (s *pool) begin(ctx context.Context) (*sql.Tx, error) {
	return s.db.BeginTx(ctx, s.dialect.transaction())
}

// atOnce runs steps in one transaction.
func atOnce(ctx context.Context, conn *sql.Conn, steps func(querier) error) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to roll back
	if err := steps(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// locked runs do on one connection, between a statement that takes a lock and one that releases it. Another
// host may have the lock.
func locked(ctx context.Context, db *sql.DB, take func(*sql.Conn) (bool, error), release string, arg any, do func(*sql.Conn) error) (ok bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if ok, err = take(conn); err != nil || !ok {
		return ok, err
	}
	defer func() {
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockTimeout)
		defer cancel()
		_, rerr := conn.ExecContext(releasing, release, arg)
		err = errors.Join(err, rerr)
	}()
	return true, do(conn)
}

// onConflict is the upsert of SQLite and PostgreSQL.
func onConflict(table string, keys, columns []string, fenced bool) string {
	var b strings.Builder
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

// inJSON are characters that JSON escapes, besides control characters.
const inJSON = "\"\\<>&\u2028\u2029"

// pattern returns the parameter of like for a text, or for its JSON. A wildcard replaces each character whose
// case the database may not know, or that JSON escapes.
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
