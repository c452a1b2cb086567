package database

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
)

// purgeSize deletes the oldest records of a history that is too large, but not runs that
// have not ended.
func (s *cleaner) purgeSize(ctx context.Context, now time.Time) (err error) {
	switch {
	case s.maxBytes <= 0:
	case s.dialect.divided():
		err = s.purgeOldestDays(ctx, now)
	default:
		err = s.purgeOldestRows(ctx, now)
	}
	for _, statement := range s.dialect.vacuum() {
		if err == nil {
			_, err = s.db.ExecContext(ctx, statement)
		}
	}
	return err
}

// tableSize is what a table takes by MySQL's statistics. rows is an estimate.
type tableSize struct{ bytes, rows int64 }

func dailyNames() (names []string) {
	for _, t := range daily() {
		names = append(names, t.table)
	}
	return names
}

// purgeOldestRows deletes the oldest rows of SQLite and MySQL.
func (s *cleaner) purgeOldestRows(ctx context.Context, now time.Time) error {
	size, tables, err := s.dialect.size(ctx, s.db)
	before := time.Unix(0, 0)
	for err == nil && size > s.maxBytes {
		var oldest time.Time
		if oldest, err = s.oldest(ctx, before, now); err != nil || !oldest.Before(now) {
			break // what is left runs
		}
		// A twentieth of the time that the history has, or all that it has of a moment.
		before = oldest.Add(max(now.Sub(oldest)/20, 1))
		if tables != nil {
			size, err = s.sizeAfter(ctx, size, tables, before)
		}
		if err == nil {
			err = s.purgeBefore(ctx, before)
		}
		if err == nil && tables == nil {
			size, _, err = s.dialect.size(ctx, s.db)
		}
	}
	return err
}

// sizeAfter is about what size becomes by purgeBefore, by how many rows that deletes. MySQL
// would say it late: it frees what deleted rows took when it has time.
func (s *cleaner) sizeAfter(ctx context.Context, size int64, tables map[string]tableSize, before time.Time) (int64, error) {
	for _, t := range daily() {
		var n int64
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+t.table+" WHERE "+t.by+" < ? AND NOT ("+t.open+")", nanos(before)).Scan(&n); err != nil {
			return size, err
		}
		size -= int64(float64(tables[t.table].bytes) * float64(n) / float64(max(n, tables[t.table].rows, 1)))
	}
	return size, nil
}

// sized are the tables that purgeBefore makes smaller. On a server who changed what stays:
// there are few changes, and what a job reports must not push them out.
func (s *cleaner) sized() []dailyTable {
	if s.dialect.shared() {
		return daily()
	}
	return append(daily(), dailyTable{table: "wasmjob_audit", by: "time", open: "1 = 0"})
}

// ranTraces are the rows of ElasticJob's tables that may go: not those of what runs.
func ranTraces(table string) string {
	if table == "JOB_EXECUTION_LOG" {
		return "complete_time IS NOT NULL AND "
	}
	return ""
}

// oldest is the time of the oldest row from a time on that may go; now if there is none.
func (s *cleaner) oldest(ctx context.Context, from, now time.Time) (time.Time, error) {
	first := now
	for _, t := range s.sized() {
		var n int64
		query := "SELECT " + t.by + " FROM " + t.table + " WHERE " + t.by + " >= ? AND NOT (" + t.open + ") ORDER BY " + t.by + " LIMIT 1"
		err := s.db.QueryRowContext(ctx, s.dialect.bind(query), nanos(from)).Scan(&n)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return first, err
		}
		if at := time.Unix(0, n); err == nil && at.Before(first) {
			first = at
		}
	}
	if !s.config.ElasticJob || s.dialect.shared() {
		return first, nil
	}
	for _, t := range elasticJobTimes() {
		var text sql.NullString
		if err := s.db.QueryRowContext(ctx, "SELECT MIN("+t.by+") FROM "+t.table+" WHERE "+ranTraces(t.table)+t.by+" IS NOT NULL").Scan(&text); err != nil {
			return first, err
		}
		if at, err := time.ParseInLocation("2006-01-02 15:04:05.000", text.String, time.Local); err == nil && !at.Before(from) && at.Before(first) { // else somebody else wrote it
			first = at
		}
	}
	return first, nil
}

// purgeBefore deletes what may go and is from before a time.
func (s *cleaner) purgeBefore(ctx context.Context, before time.Time) error {
	for _, t := range s.sized() {
		condition := "NOT (" + t.open + ")"
		if err := s.purgeRows(ctx, t.table, t.by, before, 1, condition); err != nil {
			return err
		}
		delete(s.from, t.table+" AND "+condition) // a run that has begun before may end
	}
	return s.purgeTracesBefore(ctx, before)
}

// purgeTracesBefore does it with ElasticJob's tables.
func (s *cleaner) purgeTracesBefore(ctx context.Context, before time.Time) error {
	if !s.config.ElasticJob {
		return nil
	}
	for _, t := range elasticJobTimes() {
		// Times there have milliseconds.
		if err := s.purgeTraces(ctx, t.table, ranTraces(t.table)+t.by+" < ?", before.Add(time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// purgeOldestDays drops PostgreSQL's oldest days but for what runs. Today stays: its
// partitions could be made smaller only while their writers and readers wait.
func (s *cleaner) purgeOldestDays(ctx context.Context, now time.Time) error {
	tables := make(map[int64]map[string]dailyTable) // by day and partition
	for _, t := range daily() {
		days, err := s.daysOf(ctx, t.table)
		if err != nil {
			return err
		}
		for name, d := range days {
			if tables[d] == nil {
				tables[d] = make(map[string]dailyTable)
			}
			tables[d][name] = t
		}
	}
	for _, d := range slices.Sorted(maps.Keys(tables)) {
		size, _, err := s.dialect.size(ctx, s.db)
		if err != nil || size <= s.maxBytes {
			return err
		}
		end := time.Unix(0, (d+1)*int64(day))
		if end.After(now) {
			s.log.Warn("today's records alone take more than the URL of the history allows; give a larger size there", zap.Int64("bytes", size), zap.Int64("size", s.maxBytes))
			return nil
		}
		for name, t := range tables[d] {
			if err := s.again(ctx, func() error { return s.thinDay(ctx, t.table, name, d, []string{t.open}) }); err != nil {
				return err
			}
		}
		if err := s.purgeTracesBefore(ctx, end); err != nil {
			return err
		}
	}
	return nil
}
