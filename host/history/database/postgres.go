package database

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresDialect is the dialect of PostgreSQL.
type postgresDialect struct{}

var postgres dialect = postgresDialect{}

func (postgresDialect) name() string  { return "PostgreSQL" }
func (postgresDialect) shared() bool  { return true }
func (postgresDialect) divided() bool { return true }
func (postgresDialect) bounded() bool { return false }

func (postgresDialect) open(c *Config) (*sql.DB, error) {
	c.pgx.RuntimeParams["lock_timeout"] = strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	c.pgx.RuntimeParams["plan_cache_mode"] = "force_custom_plan" // a generic plan does not know how many rows a time has
	if c.pgx.RuntimeParams["application_name"] == "" {
		c.pgx.RuntimeParams["application_name"] = "wasmjob"
	}
	return sql.OpenDB(stdlib.GetConnector(*c.pgx)), nil
}

func (postgresDialect) prepare(context.Context, *Config) error { return nil }
func (postgresDialect) transaction() *sql.TxOptions            { return nil }

const (
	// advisoryLock is the lock of migrations, a number that other programs are unlikely to use. The next number
	// is the lock of new partitions, the one after it that of a purge.
	advisoryLock int64 = 0x7761736d6a6f62
	purgeLock          = advisoryLock + 2
)

func (postgresDialect) locked(ctx context.Context, db *sql.DB, wait bool, do func(*sql.Conn) error) (bool, error) {
	number := purgeLock
	if wait {
		number = advisoryLock
	}
	return locked(ctx, db, func(conn *sql.Conn) (ok bool, err error) {
		if wait {
			_, err = conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", number)
			return err == nil, err
		}
		err = conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", number).Scan(&ok)
		return ok, err
	}, "SELECT pg_advisory_unlock($1)", number, do)
}

func (postgresDialect) migrate(ctx context.Context, conn *sql.Conn, steps func(querier) error) error {
	return atOnce(ctx, conn, steps)
}

// bind names parameters $1, $2, …
func (postgresDialect) bind(statement string) string {
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

func (postgresDialect) like(column string) string { return column + " ILIKE ? ESCAPE '!'" }

func (postgresDialect) insert(bool) string { return "INSERT INTO " }

func (postgresDialect) upsert(table string, keys, columns []string, fenced bool) string {
	return onConflict(table, keys, columns, fenced)
}

func (postgresDialect) seldom() string { return seldomKinds }

func (postgresDialect) again(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40P01" || e.Code == "40001" || e.Code == "55P03")
}

func (postgresDialect) exists(error) bool { return false }

func (postgresDialect) badRecord(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (strings.HasPrefix(e.Code, "22") || strings.HasPrefix(e.Code, "23") || e.Code == "54000")
}

// purged: the partition does not exist.
func (postgresDialect) purged(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "23514" && e.ConstraintName == ""
}

func (postgresDialect) clock() string { return "SELECT EXTRACT(EPOCH FROM now())::BIGINT" }

// size is the size of the partitions with their indexes.
func (postgresDialect) size(ctx context.Context, db *sql.DB) (bytes int64, tables map[string]tableSize, err error) {
	query := "SELECT COALESCE(SUM(pg_total_relation_size(inhrelid)), 0)::BIGINT FROM pg_inherits WHERE inhparent IN (to_regclass('" +
		strings.Join(dailyNames(), "'), to_regclass('") + "'))"
	err = db.QueryRowContext(ctx, query).Scan(&bytes)
	return bytes, nil, err
}

func (postgresDialect) vacuum() []string { return nil }

func (postgresDialect) traceTables() []string { return plainTraces("BOOLEAN") }
func (postgresDialect) traceKeys() bool       { return true }
func (postgresDialect) traceWidths() string   { return columnsOf("current_schema()", "''") }

func (postgresDialect) highest(ctx context.Context, q querier) (last rune, encoding string, err error) {
	if err := q.QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return 0, "", err
	}
	switch encoding {
	case "UTF8", "SQL_ASCII": // the second takes any bytes
		return 0, encoding, nil
	case "LATIN1":
		return 0xff, encoding, nil
	}
	return 0x7f, encoding, nil
}

func (postgresDialect) traceKey(context.Context, *sql.DB, string) (string, error) { return "id", nil }

func (postgresDialect) timestamp(t time.Time) string { return t.Local().Format(jdbcTime) }
func (postgresDialect) boolean(b bool) any           { return b }
