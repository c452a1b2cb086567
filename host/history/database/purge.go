package database

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// purgeFirst is how long after its start a host first purges, purgeEvery the interval from then on.
	purgeFirst = time.Minute
	purgeEvery = time.Hour
	// windowRows is how many rows one statement looks at, windowPause the pause after it.
	windowRows  = 1000
	windowPause = 20 * time.Millisecond
	// writerKept is how long the database remembers a writer's position.
	writerKept = 400 * day
)

// cleaner deletes what is too old.
type cleaner struct {
	*pool
	maxBytes int64            // 0 is no bound
	clock    func() time.Time // this host's
	done     chan struct{}    // closed when run has returned
	mu       sync.Mutex       // guards from, while something is deleted
	from     map[string]int64 // the time before which successes were purged, by table
	grown    chan struct{}    // has room for one: SQLite has more than maxBytes
}

// watch deletes the oldest records of SQLite as soon as it has more than maxBytes.
func (s *cleaner) watch(ctx context.Context) {
	if s.dialect.shared() || s.maxBytes <= 0 {
		return
	}
	if bytes, _, err := s.dialect.size(ctx, s.db); err == nil && bytes > s.maxBytes { // the next write reports an error in more detail
		press(s.grown)
	}
}

// run deletes what is too old, every hour, on one host at a time.
func (s *cleaner) run(ctx context.Context) {
	defer close(s.done)
	timer := time.NewTimer(purgeFirst)
	defer timer.Stop()
	for {
		purge := s.purge
		select {
		case <-timer.C:
			timer.Reset(purgeEvery)
		case <-s.grown:
			purge = s.shrink
		case <-ctx.Done():
			return
		}
		if err := purge(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("what is too old in the history cannot be deleted now", zap.Error(s.config.hide(err)))
		}
	}
}

// shrink deletes the oldest records of SQLite until the rest is within maxBytes.
func (s *cleaner) shrink(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.purgeSize(ctx, s.clock())
}

// purge deletes old records by the clock of the database: a single host's clock may be wrong.
func (s *cleaner) purge(ctx context.Context) error {
	now := s.clock()
	if statement := s.dialect.clock(); statement != "" {
		var seconds int64
		if err := s.db.QueryRowContext(ctx, statement).Scan(&seconds); err != nil {
			return err
		}
		now = time.Unix(seconds, 0)
	}
	return s.round(ctx, now)
}

// round deletes what is too old at a time, unless another host is doing so.
func (s *cleaner) round(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.dialect.locked(ctx, s.db, false, func(*sql.Conn) error {
		if found, err := s.version(ctx, s.db); err != nil || found != schemaVersion {
			return err
		}
		r := s.config.Retention
		if s.dialect.divided() {
			if err := s.purgeDays(ctx, now); err != nil {
				return err
			}
		} else {
			for _, t := range daily() {
				if err := s.purgeRows(ctx, t.table, t.by, now.Add(-r.Successes), r.Successes, "NOT ("+strings.Join(t.kept, " OR ")+")"); err != nil {
					return err
				}
				if err := s.purgeRows(ctx, t.table, t.by, now.Add(-r.Failures), r.Failures, ""); err != nil {
					return err
				}
			}
		}
		if err := s.purgeRows(ctx, "wasmjob_audit", "time", now.Add(-r.Audit), r.Audit, ""); err != nil {
			return err
		}
		if err := s.purgeRows(ctx, "wasmjob_writers", "seen", now.Add(-writerKept), writerKept, ""); err != nil {
			return err
		}
		if err := s.purgeElasticJob(ctx, now); err != nil {
			return err
		}
		return s.purgeSize(ctx, now)
	})
	return err
}

// purgeRows deletes a table's rows from before a time, a window of rows at a time, so that no writer waits. A
// keep of 0 keeps rows for ever.
func (s *cleaner) purgeRows(ctx context.Context, table, by string, before time.Time, keep time.Duration, condition string) error {
	if keep == 0 {
		return nil
	}
	if condition != "" {
		condition = " AND " + condition
	}
	from, end := int64(-1<<63), nanos(before)
	if s.from[table+condition] != 0 {
		from = s.from[table+condition]
	}
	for from < end {
		to := end
		err := s.db.QueryRowContext(ctx, s.dialect.bind(fmt.Sprintf("SELECT %s FROM %s WHERE %s >= ? AND %s < ? ORDER BY %s LIMIT 1 OFFSET %d", by, table, by, by, by, windowRows)), from, end).Scan(&to)
		if err != nil && err != sql.ErrNoRows {
			return err
		}
		if to == from { // more rows of one time than a window has
			to++
		}
		if err := s.delete(ctx, "DELETE FROM "+table+" WHERE "+by+" >= ? AND "+by+" < ?"+condition, []any{from, to}); err != nil {
			return err
		}
		if from = to; from < end && !wait(ctx, windowPause, nil, nil) {
			return ctx.Err()
		}
	}
	if condition != "" { // what is kept here is not looked at each time
		s.from[table+condition] = end
	}
	return nil
}

// tries is how often a statement is tried that conflicts with writers.
const tries = 5

// delete runs a statement in a transaction of its own, once for each list of arguments.
func (s *cleaner) delete(ctx context.Context, statement string, args ...[]any) error {
	return s.again(ctx, func() error { return s.tryDelete(ctx, s.dialect.bind(statement), args) })
}

// again retries a function while it conflicts with writers.
func (s *cleaner) again(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if err == nil || n == tries || !s.dialect.again(err) || !wait(ctx, time.Duration(n)*windowPause, nil, nil) {
			return err
		}
	}
}

func (s *cleaner) tryDelete(ctx context.Context, statement string, args [][]any) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	for _, a := range args {
		if _, err := tx.ExecContext(ctx, statement, a...); err != nil {
			_ = tx.Rollback() // the first error says more
			return err
		}
	}
	return tx.Commit()
}

// purgeElasticJob deletes the oldest rows of ElasticJob's tables, those of our hosts and of Java's: ElasticJob
// deletes none.
func (s *cleaner) purgeElasticJob(ctx context.Context, now time.Time) error {
	keep := s.config.Retention.Failures
	if !s.config.ElasticJob || keep == 0 {
		return nil
	}
	for _, t := range elasticJobTimes() {
		if err := s.purgeTraces(ctx, t.table, t.by+" < ?", now.Add(-keep)); err != nil {
			return err
		}
	}
	return nil
}

// elasticJobTimes are ElasticJob's tables and the columns by which they are purged. The columns have no index.
func elasticJobTimes() []struct{ table, by string } {
	return []struct{ table, by string }{{"JOB_EXECUTION_LOG", "start_time"}, {"JOB_STATUS_TRACE_LOG", "creation_time"}}
}

// purgeTraces deletes the rows of one of ElasticJob's tables whose time meets a condition. It finds them
// without locks and deletes each by its key, so that MySQL does not lock the whole table and no writer waits.
func (s *cleaner) purgeTraces(ctx context.Context, table, condition string, before time.Time) error {
	key, err := s.dialect.traceKey(ctx, s.db, table)
	if err != nil {
		return err
	}
	for {
		keys, err := s.keys(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT %d", key, table, condition, windowRows), s.dialect.timestamp(before))
		if err != nil || len(keys) == 0 {
			return err
		}
		if err := s.delete(ctx, "DELETE FROM "+table+" WHERE "+key+" = ?", keys...); err != nil {
			return err
		}
		if len(keys) < windowRows {
			return nil
		}
		if !wait(ctx, windowPause, nil, nil) {
			return ctx.Err()
		}
	}
}

// keys returns the results of a query, one column a row.
func (s *cleaner) keys(ctx context.Context, query string, args ...any) (list [][]any, err error) {
	rows, err := s.db.QueryContext(ctx, s.dialect.bind(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		list = append(list, []any{key})
	}
	return list, rows.Err()
}

// purgeDays drops PostgreSQL's old partitions, and replaces those that keep only their failures.
func (s *cleaner) purgeDays(ctx context.Context, now time.Time) error {
	r := s.config.Retention
	for _, t := range daily() {
		days, err := s.daysOf(ctx, t.table)
		if err != nil {
			return err
		}
		for name, d := range days {
			end := time.Unix(0, (d+1)*int64(day))
			switch {
			case r.Failures != 0 && !end.After(now.Add(-r.Failures)):
				err = s.again(ctx, func() error { return s.dropDay(ctx, name) })
			case r.Successes != 0 && !end.After(now.Add(-r.Successes)) && !strings.HasSuffix(name, keptSuffix):
				err = s.again(ctx, func() error { return s.thinDay(ctx, t.table, name, d, t.kept) })
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// daysOf returns a table's partitions by day.
func (s *cleaner) daysOf(ctx context.Context, table string) (map[string]int64, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)", table)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	days := make(map[string]int64)
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		text := strings.TrimSuffix(strings.TrimPrefix(name, table+"_"), keptSuffix)
		if at, err := time.Parse("20060102", text); err == nil { // another program made the others
			days[name] = dayOf(at.UnixNano())
		}
	}
	return days, rows.Err()
}

func (s *cleaner) dropDay(ctx context.Context, name string) error {
	_, err := s.db.ExecContext(ctx, "DROP TABLE "+name)
	return err
}

// thinDay replaces a partition by one with the rows that meet one of the conditions, if there are any. Writers
// of the old day, which are rare, wait meanwhile; readers wait only for the exchange.
func (s *cleaner) thinDay(ctx context.Context, table, name string, d int64, conditions []string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to roll back
	kept := partitionName(table, d) + keptSuffix
	fresh := kept + "_new" // the replaced partition may have the name
	var rows []string      // each condition has an index
	for _, condition := range conditions {
		rows = append(rows, "SELECT * FROM "+name+" WHERE "+condition)
	}
	for _, statement := range []string{
		"LOCK TABLE " + name + " IN SHARE MODE",
		"CREATE TABLE " + fresh + " (LIKE " + table + " INCLUDING DEFAULTS INCLUDING STORAGE)",
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	result, err := tx.ExecContext(ctx, "INSERT INTO "+fresh+" "+strings.Join(rows, " UNION ALL "))
	if err != nil {
		return err
	}
	statements := []string{"ALTER TABLE " + table + " DETACH PARTITION " + name, "DROP TABLE " + name}
	if n, err := result.RowsAffected(); err == nil && n == 0 {
		statements = append(statements, "DROP TABLE "+fresh)
	} else {
		statements = append(statements,
			fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%d) TO (%d)", table, fresh, d*int64(day), (d+1)*int64(day)),
			"ALTER TABLE "+fresh+" RENAME TO "+kept)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}
