package database

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

const (
	// connectTimeout bounds a connection's begin.
	connectTimeout = 3 * time.Second
	// lockTimeout bounds how long a statement waits for others.
	lockTimeout = 5 * time.Second
	// mostConnections is how many a host has at once: the writer's and those of queries.
	mostConnections = 6
)

// dialect is what a kind of database does in its own way. Its three implementations have no state.
type dialect interface {
	// name is that of the kind, for people and for the files of migrations.
	name() string
	// shared: hosts on several machines can use the database. Else it is a file or memory of one host.
	shared() bool
	// divided: tables are divided by days, which are dropped; else rows are deleted.
	divided() bool
	// bounded: a query needs an upper bound of times, or it sorts the whole table for a large page.
	bounded() bool

	// open makes a pool of connections. It does not connect.
	open(c *Config) (*sql.DB, error)
	// prepare makes what the database cannot make itself before its tables.
	prepare(ctx context.Context, c *Config) error
	// transaction says how writers begin one; nil is the default.
	transaction() *sql.TxOptions
	// locked runs do while no other host does the same. If wait is not set and another one does, it returns false at
	// once. Who waits and who does not have a lock each: a migration does not wait for a purge.
	locked(ctx context.Context, db *sql.DB, wait bool, do func(*sql.Conn) error) (ok bool, err error)
	// migrate runs steps that change tables, all or none of them where that is possible.
	migrate(ctx context.Context, conn *sql.Conn, steps func(querier) error) error

	// bind turns the ? of a statement into what the database calls its parameters.
	bind(statement string) string
	// like is a condition that holds if a column contains a text, at least regardless of the case of ASCII; the
	// parameter comes from pattern.
	like(column string) string
	// insert begins an insert. If lenient, the database writes ? for a character that a column cannot hold, if it
	// would refuse the row otherwise.
	insert(lenient bool) string
	// upsert is the end of an insert of rows that may be there: the columns are set to what is new. If fenced, only
	// where the new fence is not less.
	upsert(table string, keys, columns []string, fenced bool) string

	// seldom is the condition of the index of events that are reported seldom; without one, it holds for all.
	seldom() string

	// again reports whether an error goes away by another try: transactions were in each other's way.
	again(err error) bool
	// exists reports whether a column or a key could not be added because it is there.
	exists(err error) bool
	// badRecord reports whether an error is one of what is written, not of the database: trying again does not help.
	badRecord(err error) bool
	// purged reports whether an error says that the place of a row is gone: it is of a run that began longer ago
	// than failures are kept.
	purged(err error) bool

	// clock is a query for the seconds since 1970 by the database's clock; empty: it has this host's.
	clock() string
	// size is what a history takes, without what is free, in bytes. tables is set where deleting rows does not show
	// in it soon.
	size(ctx context.Context, db *sql.DB) (bytes int64, tables map[string]tableSize, err error)
	// vacuum are statements that give what is free back to the disk.
	vacuum() []string

	// traceTables are statements that make ElasticJob's tables if they are not there.
	traceTables() []string
	// traceKeys: each of ElasticJob's tables has a key that an upsert finds rows by.
	traceKeys() bool
	// traceWidths is a query for the columns of ElasticJob's tables, which another program may have made: table and
	// column in small letters, width in characters, and the character set if it is narrow. Empty: they take any text.
	traceWidths() string
	// highest is the last character that the database has by its encoding; 0 is all.
	highest(ctx context.Context, q querier) (last rune, encoding string, err error)
	// traceKey is the column by which rows of one of ElasticJob's tables are deleted.
	traceKey(ctx context.Context, db *sql.DB, table string) (string, error)
	// timestamp is a time as JDBC writes it, boolean a truth.
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

// locked runs do on one connection between a statement that takes a lock, which may find that another host has it,
// and one that lets go of it.
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
