package database

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the version of the tables that this program knows: the number of migrations.
const schemaVersion = 3

// longestMigration bounds a migration, which may index large tables.
const longestMigration = 30 * time.Minute

// migrationTimeout bounds the wait for another host that migrates.
const migrationTimeout = 30 * time.Second

// ErrNewer means that a newer version made the tables, so that this host does not use the database.
var ErrNewer = errors.New("the history's tables were made by a newer version of wasmjob")

// migrate makes the tables or brings them up to date. Of several hosts one at a time migrates.
func (s *pool) migrate(ctx context.Context) error {
	if err := s.dialect.prepare(ctx, s.config); err != nil {
		return err
	}
	found, err := s.version(ctx, s.db)
	if errors.Is(err, ErrNewer) || (err == nil && found == schemaVersion && !s.config.ElasticJob) {
		return err
	}
	_, err = s.dialect.locked(ctx, s.db, true, func(conn *sql.Conn) error {
		return s.dialect.migrate(ctx, conn, func(q querier) error {
			if _, err := q.ExecContext(ctx, createSchema); err != nil {
				return err
			}
			return s.steps(ctx, q)
		})
	})
	return err
}

const createSchema = "CREATE TABLE IF NOT EXISTS wasmjob_schema (version INTEGER NOT NULL PRIMARY KEY, since BIGINT NOT NULL)"

// querier is a pool, a connection or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// version returns the version of the tables; an error if there are none.
func (s *pool) version(ctx context.Context, q querier) (int, error) {
	var found int
	err := q.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM wasmjob_schema").Scan(&found)
	if err == nil && found > schemaVersion {
		err = fmt.Errorf("%w: found version %d of the tables, expected at most %d", ErrNewer, found, schemaVersion)
	}
	return found, err
}

// steps runs the missing migrations. A step in which MySQL was interrupted is repeated, so its statements must
// allow that.
func (s *pool) steps(ctx context.Context, q querier) error {
	found, err := s.version(ctx, q)
	if err != nil {
		return err
	}
	for n := found + 1; n <= schemaVersion; n++ {
		text, err := migrations.ReadFile(fmt.Sprintf("migrations/%s_%03d.sql", strings.ToLower(s.dialect.name()), n))
		if err != nil {
			return err
		}
		for statement := range strings.SplitSeq(string(text), ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := q.ExecContext(ctx, statement); err != nil && !s.dialect.exists(err) {
				return fmt.Errorf("migration %d: %w", n, err)
			}
		}
		if _, err := q.ExecContext(ctx, s.dialect.bind("INSERT INTO wasmjob_schema (version, since) VALUES (?, ?)"), n, time.Now().UnixNano()); err != nil {
			return fmt.Errorf("migration %d: %w", n, err)
		}
	}
	if s.config.ElasticJob {
		return s.elasticJobTables(ctx, q)
	}
	return nil
}
