package database

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.uber.org/zap"
)

// fit has the limits of texts in the database. Texts beyond them are cut, or characters replaced, so that no
// row is lost.
type fit struct {
	// highest is the last character of PostgreSQL's encoding; 0: all characters.
	highest rune
	// columns are those of ElasticJob's tables, which another program may have made, by
	// "table.column" in small letters.
	columns map[string]column
}

// column is a text column.
type column struct {
	width int // in characters; 0 is not limited
}

// prepare makes the tables or brings them up to date, and reads their limits.
func (s *pool) prepare(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return s.learnFit(ctx, s.db)
}

// learnFit reads the limits of texts, and warns if there are any.
func (s *pool) learnFit(ctx context.Context, q querier) error {
	last, encoding, err := s.dialect.highest(ctx, q)
	if err != nil {
		return err
	}
	f := fit{highest: last, columns: make(map[string]column)}
	if last > 0 {
		s.log.Warn("the history's database cannot hold all characters: others are written as ?; make it with the encoding UTF8", zap.String("database", s.config.Where), zap.String("encoding", encoding))
	}
	var narrow []string
	if query := s.dialect.traceWidths(); s.config.ElasticJob && query != "" {
		if narrow, err = learnColumns(ctx, q, query, &f); err != nil {
			return fmt.Errorf("ElasticJob's tables: %w", err)
		}
	}
	if len(narrow) > 0 {
		s.log.Warn("columns of ElasticJob's tables cannot hold all characters: others are written as ?; convert the tables to utf8mb4",
			zap.String("database", s.config.Where), zap.Strings("columns", narrow))
	}
	s.fit = f
	return nil
}

// columnsOf is a query for the columns of ElasticJob's tables in a database that has an information schema.
func columnsOf(schema, charset string) string {
	return "SELECT LOWER(TABLE_NAME), LOWER(COLUMN_NAME), COALESCE(CHARACTER_MAXIMUM_LENGTH, 0), " + charset +
		" FROM information_schema.columns WHERE TABLE_SCHEMA = " + schema + " AND LOWER(TABLE_NAME) IN ('job_execution_log', 'job_status_trace_log')"
}

// learnColumns reads the widths of the columns of ElasticJob's tables. It returns those whose character set
// lacks characters.
func learnColumns(ctx context.Context, q querier, query string, f *fit) (narrow []string, err error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, name, charset string
		var width int64
		if err := rows.Scan(&table, &name, &width, &charset); err != nil {
			return nil, err
		}
		c := column{width: int(min(width, mostText))}
		if charset != "" {
			narrow = append(narrow, table+"."+name+" ("+charset+")")
		}
		f.columns[table+"."+name] = c
	}
	slices.Sort(narrow)
	return narrow, rows.Err()
}

// mark ends a cut text.
const mark = "..."

// clipMarked cuts a text to a number of characters, with a mark at its end.
func clipMarked(s string, most int) string {
	s = clean(s)
	if most <= len(mark) || utf8.RuneCountInString(s) <= most {
		return clip(s, most)
	}
	return clip(s, most-len(mark)) + mark
}

// value returns a value within the column's limits.
func (f *fit) value(table, name string, v any) any {
	s, isText := v.(string)
	if c := f.columns[strings.ToLower(table+"."+name)]; isText && c.width > 0 {
		return clipMarked(s, c.width)
	}
	return v
}

// narrowed passes statements on with their texts within an encoding.
type narrowed struct {
	querier
	highest rune
}

// narrow returns a querier that keeps texts within the database's encoding.
func (s *pool) narrow(q querier) querier {
	if s.fit.highest == 0 {
		return q
	}
	return narrowed{q, s.fit.highest}
}

func (n narrowed) args(args []any) []any {
	args = slices.Clone(args)
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = strings.Map(func(r rune) rune {
				if r > n.highest {
					return '?'
				}
				return r
			}, s)
		}
	}
	return args
}

func (n narrowed) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return n.querier.ExecContext(ctx, query, n.args(args)...)
}

func (n narrowed) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return n.querier.QueryContext(ctx, query, n.args(args)...)
}

func (n narrowed) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return n.querier.QueryRowContext(ctx, query, n.args(args)...)
}
