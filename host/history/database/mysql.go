package database

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mysqlDialect is the dialect of MySQL and MariaDB.
type mysqlDialect struct{}

var mySQL dialect = mysqlDialect{}

func (mysqlDialect) name() string  { return "MySQL" }
func (mysqlDialect) shared() bool  { return true }
func (mysqlDialect) divided() bool { return false }
func (mysqlDialect) bounded() bool { return true }

func (mysqlDialect) open(c *Config) (*sql.DB, error) {
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
	return sql.OpenDB(connector), nil
}

func (mysqlDialect) prepare(context.Context, *Config) error { return nil }

// transaction: the default isolation also locks gaps between rows, and writers would block each other.
func (mysqlDialect) transaction() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

const (
	mysqlLock  = "wasmjob_history"
	mysqlPurge = "wasmjob_history_purge"
	// mysqlLockName makes a lock's name contain the database: locks belong to the whole server, and their names
	// have at most 64 characters.
	mysqlLockName = "CONCAT(?, '_', LEFT(SHA2(DATABASE(), 256), 32))"
)

func (mysqlDialect) locked(ctx context.Context, db *sql.DB, wait bool, do func(*sql.Conn) error) (bool, error) {
	name, seconds := mysqlPurge, 0
	if wait {
		name, seconds = mysqlLock, int(migrationTimeout.Seconds())
	}
	return locked(ctx, db, func(conn *sql.Conn) (bool, error) {
		var got sql.NullInt64
		err := conn.QueryRowContext(ctx, "SELECT GET_LOCK("+mysqlLockName+", ?)", name, seconds).Scan(&got)
		if err == nil && got.Int64 != 1 && wait {
			err = errors.New("another host holds the lock " + name)
		}
		return got.Int64 == 1, err
	}, "DO RELEASE_LOCK("+mysqlLockName+")", name, do)
}

// migrate: MySQL has no transactions for changes of tables.
func (mysqlDialect) migrate(_ context.Context, conn *sql.Conn, steps func(querier) error) error {
	return steps(conn)
}

func (mysqlDialect) bind(statement string) string { return statement }

func (mysqlDialect) like(column string) string {
	return column + " COLLATE utf8mb4_general_ci LIKE ? ESCAPE '!'"
}

func (mysqlDialect) insert(lenient bool) string {
	if lenient {
		return "INSERT IGNORE INTO "
	}
	return "INSERT INTO "
}

func (mysqlDialect) upsert(_ string, _, columns []string, fenced bool) string {
	var b strings.Builder
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

func (mysqlDialect) seldom() string { return "1 = 1" }

func (mysqlDialect) again(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1213 || e.Number == 1205)
}

// exists: MySQL commits each statement, so a repeated migration meets its own columns and keys.
func (mysqlDialect) exists(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1060 || e.Number == 1061)
}

func (mysqlDialect) badRecord(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Number {
	case 1048, 1062, 1153, 1264, 1265, 1292, 1366, 1406, 3819, 3988, 4025: // null, double, too large, out of range, not a character, a check …
		return true
	}
	return false
}

func (mysqlDialect) purged(error) bool { return false }

func (mysqlDialect) clock() string { return "SELECT UNIX_TIMESTAMP()" }

// size comes from the statistics of tables. They may be a day old (information_schema_stats_expiry), so they
// are refreshed first.
func (mysqlDialect) size(ctx context.Context, db *sql.DB) (bytes int64, tables map[string]tableSize, err error) {
	if _, err := db.ExecContext(ctx, "ANALYZE LOCAL TABLE "+strings.Join(dailyNames(), ", ")); err != nil {
		return 0, nil, err
	}
	tables = make(map[string]tableSize)
	for _, name := range dailyNames() {
		var t tableSize
		row := db.QueryRowContext(ctx, "SELECT COALESCE(data_length + index_length, 0), COALESCE(table_rows, 0) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?", name)
		if err := row.Scan(&t.bytes, &t.rows); err != nil {
			return 0, nil, err
		}
		tables[name] = t
		bytes += t.bytes
	}
	return bytes, tables, nil
}

func (mysqlDialect) vacuum() []string { return nil }

func (mysqlDialect) traceTables() []string {
	const number, end = "auto_id int NOT NULL AUTO_INCREMENT PRIMARY KEY, ", " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
	execution, trace := traceColumns(number, "INT")
	return []string{execution + "UNIQUE KEY id (id))" + end, trace + "KEY TASK_ID_STATE_INDEX (task_id(128), state))" + end}
}

func (mysqlDialect) traceKeys() bool { return false }

func (mysqlDialect) traceWidths() string {
	return columnsOf("DATABASE()", "COALESCE(NULLIF(CHARACTER_SET_NAME, 'utf8mb4'), '')")
}

// highest: columns have character sets; the connection has all characters.
func (mysqlDialect) highest(context.Context, querier) (rune, string, error) { return 0, "", nil }

// traceKey is the numeric key of newer tables, where id need not be a key.
func (mysqlDialect) traceKey(ctx context.Context, db *sql.DB, table string) (string, error) {
	var n int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = ? AND column_name = 'auto_id'", table).Scan(&n); err != nil {
		return "", err
	}
	if n > 0 {
		return "auto_id", nil
	}
	return "id", nil
}

// timestamp is in UTC, the zone of the connection.
func (mysqlDialect) timestamp(t time.Time) string { return t.UTC().Format(jdbcTime) }
func (mysqlDialect) boolean(b bool) any           { return flag(b) }
