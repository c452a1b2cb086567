package database

import (
	"context"
	"fmt"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// dailyTable is a table that PostgreSQL divides by days.
type dailyTable struct {
	table string
	by    string // the column that divides it
	open  string // holds for rows that the bound of the size does not delete
	// kept are conditions that exclude each other. A row for which one holds is kept as long as failures.
	kept []string
}

// daily returns all tables that PostgreSQL divides by days.
func daily() []dailyTable {
	const open, none = "ended = 0", "1 = 0"
	ended, worse := []string{open, "failed = 1"}, []string{"keep = 1"}
	return []dailyTable{
		{"wasmjob_executions", "begun", open, ended}, {"wasmjob_items", "begun", open, ended},
		{"wasmjob_events", "time", none, worse}, {"wasmjob_logs", "time", none, worse},
	}
}

// keptSuffix ends the names of partitions that have only rows kept longer.
const keptSuffix = "_kept"

// dayOf returns the number of a time's day.
func dayOf(n int64) int64 {
	d := n / int64(day)
	if n%int64(day) < 0 {
		d--
	}
	return d
}

// partitionName returns the name of a table's partition for a day.
func partitionName(table string, d int64) string {
	return fmt.Sprintf("%s_%s", table, time.Unix(0, d*int64(day)).UTC().Format("20060102"))
}

// partitions makes the partitions that records need.
func (s *loader) partitions(ctx context.Context, entries []history.Entry) error {
	if !s.dialect.divided() {
		return nil
	}
	for i := range entries {
		if entries[i].Change != nil {
			continue
		}
		d := dayOf(nanos(entries[i].Time()))
		if s.days[d] {
			continue
		}
		if err := s.makeDay(ctx, d); err != nil {
			return fmt.Errorf("partitions of a day: %w", err)
		}
		s.days[d] = true
	}
	return nil
}

// makeDay makes the missing partitions of a day.
func (s *loader) makeDay(ctx context.Context, d int64) error {
	for _, t := range daily() {
		name := partitionName(t.table, d)
		var found bool
		err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_inherits WHERE inhrelid IN (to_regclass($1), to_regclass($2)))", name, name+keptSuffix).Scan(&found)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		if err := s.makePartition(ctx, t.table, name, d); err != nil {
			return err
		}
	}
	return nil
}

func (s *loader) makePartition(ctx context.Context, table, name string, d int64) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after the commit there is nothing to roll back
	for _, statement := range []string{
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", advisoryLock+1), // another host may do the same
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s PARTITION OF %s FOR VALUES FROM (%d) TO (%d)", name, table, d*int64(day), (d+1)*int64(day)),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}
