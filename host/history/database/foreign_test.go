package database

import (
	"strings"
	"testing"
)

// TestTables: tables of others are read by the ends of their names, with their columns and
// NULLs; what is no such database is refused without its password.
func TestTables(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		c, err := Parse(url, credentials)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Shared() {
			if _, err := Tables(t.Context(), url, credentials, "job_info"); err == nil || !strings.Contains(err.Error(), "found SQLite") {
				t.Errorf("SQLite: %v", err)
			}
			return
		}
		db, err := c.open()
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		charset := ""
		if c.dialect == mySQL {
			charset = " CHARACTER SET utf8mb4"
		}
		for _, statement := range []string{
			"CREATE TABLE xxl_job_info (id INTEGER, job_desc VARCHAR(50), added TIMESTAMP NULL)" + charset,
			"INSERT INTO xxl_job_info VALUES (1, '日报', NULL)", "INSERT INTO xxl_job_info VALUES (2, 'it''s', NULL)",
			"CREATE TABLE other (id INTEGER)",
		} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		found, err := Tables(t.Context(), url, credentials, "job_info")
		if err != nil {
			t.Fatal(err)
		}
		got := found["xxl_job_info"]
		if len(found) != 1 || strings.Join(got.Columns, ",") != "id,job_desc,added" || len(got.Rows) != 2 || strings.Join(got.Rows[0], "|") != "1|日报|" || strings.Join(got.Rows[1], "|") != "2|it's|" {
			t.Errorf("found %+v", found)
		}
		if _, err := Tables(t.Context(), url, "wasmjob:s3cret", "job_info"); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("a wrong password: %v", err)
		}
	})
}
