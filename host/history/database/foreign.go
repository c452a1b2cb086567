package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// Table has the content of a table as text; NULL is empty.
type Table struct {
	Columns []string
	Rows    [][]string
}

// mostForeignRows is the most rows that Tables reads of a table.
const mostForeignRows = 200_000

// Tables reads tables of another program in the database at a URL of PostgreSQL or MySQL: those
// of its schema whose names end with one of the given ones, in any case. credentials are those
// of Parse. It writes nothing. No error shows a password.
func Tables(ctx context.Context, url, credentials string, names ...string) (map[string]Table, error) {
	c, err := Parse(url, credentials)
	if err != nil {
		return nil, err
	}
	if !c.Shared() {
		return nil, errors.New("found SQLite, expected postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE")
	}
	db, err := c.open()
	if err != nil {
		return nil, c.hide(err)
	}
	found, err := tables(ctx, db, c.dialect == mySQL, names)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, c.hide(err)
	}
	return found, nil
}

func tables(ctx context.Context, db *sql.DB, isMySQL bool, names []string) (map[string]Table, error) {
	schema, quote := "current_schema()", `"`
	if isMySQL {
		schema, quote = "database()", "`"
	}
	all, err := rowsOf(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = "+schema)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Table)
	for _, row := range all.Rows {
		name := row[0]
		for _, suffix := range names {
			if !strings.HasSuffix(strings.ToLower(name), suffix) {
				continue
			}
			if found[name], err = rowsOf(ctx, db, "SELECT * FROM "+quote+strings.ReplaceAll(name, quote, quote+quote)+quote); err != nil {
				return nil, fmt.Errorf("table %s: %w", name, err)
			}
		}
	}
	return found, nil
}

func rowsOf(ctx context.Context, db *sql.DB, query string) (t Table, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if t.Columns, err = rows.Columns(); err != nil {
		return t, err
	}
	values, into := make([]sql.RawBytes, len(t.Columns)), make([]any, len(t.Columns))
	for n := range values {
		into[n] = &values[n]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return t, err
		}
		row := make([]string, len(values))
		for n, v := range values {
			row[n] = string(v)
		}
		if t.Rows = append(t.Rows, row); len(t.Rows) > mostForeignRows {
			return t, fmt.Errorf("more than %d rows", mostForeignRows)
		}
	}
	return t, rows.Err()
}
