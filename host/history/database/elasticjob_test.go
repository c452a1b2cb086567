package database

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

// TestElasticJobTables reads what ElasticJob's console does, as it does: every column
// of both tables by name, with its filters, its order and its count; and writes as its
// hosts do.
func TestElasticJobTables(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		s := openStore(t, url+sign+"elasticjob=true", credentials, t.TempDir())
		if where := s.State().Where; !strings.HasSuffix(where, " (elasticjob=true)") {
			t.Errorf("the status has %q, which does not say that these tables are written", where)
		}
		at := time.Now().Truncate(time.Second)
		host := "10.0.0.1@-@7-abc"
		item := 1
		base := event.Event{Host: host, Job: "cities", Instant: at, Source: abi.SourceMisfire}
		tell := func(kind event.Kind, after time.Duration, change func(*event.Event)) {
			e := base
			e.Kind, e.Time = kind, at.Add(after)
			change(&e)
			s.AddEvent(e)
		}
		run := func(e *event.Event) { e.Item, e.RunID, e.Fence, e.Attempt = &item, "cities/x/1", 5, 1 }
		tell(event.FireStarted, 0, func(e *event.Event) { e.Items = []int{0, 1} })
		tell(event.ItemStarted, time.Second, run)
		tell(event.ItemEnded, 3*time.Second, func(e *event.Event) {
			run(e)
			e.Outcome, e.Reason, e.Duration = abi.OutcomeTrap, strings.Repeat("作业'", 3000), 2*time.Second
		})
		tell(event.FireEnded, 4*time.Second, func(e *event.Event) { e.Items, e.Outcome = []int{0, 1}, abi.OutcomeFail })
		tell(event.ItemStarted, 5*time.Second, func(e *event.Event) { run(e); e.Source, e.Attempt = abi.SourceFailover, 2 }) // and it does not end
		await(t, "both tables", func() bool {
			return count(t, s, "SELECT COUNT(*) FROM JOB_STATUS_TRACE_LOG") == 3 && count(t, s, "SELECT COUNT(*) FROM JOB_EXECUTION_LOG") == 2
		})

		query := func(statement string, columns int, args ...any) (rows [][]string) {
			t.Helper()
			found, err := s.db.QueryContext(t.Context(), s.dialect.bind(statement), args...)
			if err != nil {
				t.Fatal(err)
			}
			defer found.Close()
			for found.Next() {
				values, into := make([]any, columns), make([]any, columns)
				for i := range values {
					into[i] = &values[i]
				}
				if err := found.Scan(into...); err != nil {
					t.Fatal(err)
				}
				var row []string
				for _, v := range values {
					if b, ok := v.([]byte); ok {
						v = string(b)
					}
					if b, ok := v.(bool); ok {
						v = flag(b)
					}
					if at, ok := v.(time.Time); ok {
						v = at.Format("2006-01-02 15:04:05")
					}
					row = append(row, fmt.Sprint(v))
				}
				rows = append(rows, row)
			}
			return rows
		}
		shown := func(after time.Duration) string { return s.dialect.timestamp(at.Add(after))[:19] }
		executions := query(`select j.id, j.complete_time, j.execution_source, j.failure_cause, j.hostname, j.ip, j.is_success, j.job_name, j.sharding_item, j.start_time, j.task_id
			from JOB_EXECUTION_LOG j where j.start_time > ? and j.start_time < ? and j.job_name = ? and j.ip = ? order by j.start_time desc limit 10`, 11,
			s.dialect.timestamp(at), s.dialect.timestamp(at.Add(time.Hour)), "cities", "10.0.0.1")
		if len(executions) != 2 {
			t.Fatalf("executions: %v", executions)
		}
		open, ended := executions[0], executions[1]
		if len(ended[0]) != 36 || !strings.HasPrefix(ended[1], shown(3*time.Second)) || ended[2] != "MISFIRE" || !strings.HasPrefix(ended[3], "TRAP: 作业'作业'") || len([]rune(ended[3])) != ejText ||
			ended[4] != "10.0.0.1" || ended[5] != "10.0.0.1" || ended[6] != "0" || ended[7] != "cities" || ended[8] != "1" || !strings.HasPrefix(ended[9], shown(time.Second)) || ended[10] != "cities@-@0,1@-@READY@-@"+host {
			t.Errorf("the run that ended: %q", ended)
		}
		if open[1] != "<nil>" || open[2] != "FAILOVER" || open[3] != "<nil>" || open[6] != "0" {
			t.Errorf("the run that runs: %q", open)
		}
		if n := query("select count(j.id) from JOB_EXECUTION_LOG j where j.is_success = "+map[bool]string{true: "false", false: "0"}[s.dialect == postgres], 1); n[0][0] != "2" {
			t.Errorf("counted: %v", n)
		}
		states := query(`select j.id, j.creation_time, j.execution_type, j.job_name, j.message, j.original_task_id, j.sharding_item, j.slave_id, j.source, j.state, j.task_id
			from JOB_STATUS_TRACE_LOG j where j.job_name = ? order by j.creation_time asc, j.state desc`, 11, "cities")
		var text []string
		for _, row := range states {
			if len(row[0]) != 36 || row[2] != "READY" || row[5] != "" || row[6] != "[0, 1]" || row[7] != "10.0.0.1" || row[8] != "LITE_EXECUTOR" || row[10] != "cities@-@0,1@-@READY@-@"+host {
				t.Errorf("state: %q", row)
			}
			text = append(text, row[9])
		}
		if got := strings.Join(text, " "); got != "TASK_STAGING TASK_RUNNING TASK_ERROR" || !strings.HasPrefix(states[2][4], "TRAP: 作业") && !strings.HasPrefix(states[2][4], "FAIL") {
			t.Errorf("states: %s %q", got, states[2][4])
		}

		// A Java host writes there, too.
		success := any(1)
		if s.dialect == postgres {
			success = true
		}
		if _, err := s.db.ExecContext(t.Context(), s.dialect.bind("INSERT INTO JOB_EXECUTION_LOG (id, job_name, task_id, hostname, ip, sharding_item, execution_source, is_success, start_time, complete_time) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
			"00000000-0000-0000-0000-000000000000", "java", "java@-@0@-@READY@-@10.0.0.9@-@1", "h", "10.0.0.9", 0, "NORMAL_TRIGGER", success, s.dialect.timestamp(at.Add(-100*day)), s.dialect.timestamp(at)); err != nil {
			t.Fatal(err)
		}
		if err := s.cleaner.round(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM JOB_EXECUTION_LOG"); n != 2 {
			t.Errorf("%d executions after the purge", n)
		}
	})
}

// TestElasticJobPurgeWhileWriting: a purge does not wait for rows that others write, nor they
// for it.
func TestElasticJobPurgeWhileWriting(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		s := openStore(t, url+sign+"elasticjob=true", credentials, t.TempDir())
		now := time.Now()
		aRun(s, "old", "h", now.Add(-100*day), abi.OutcomeOK)
		await(t, "the run", func() bool { return count(t, s, "SELECT COUNT(*) FROM JOB_STATUS_TRACE_LOG") == 3 })
		tx, err := s.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // it is open until the purge is done
		if _, err := tx.ExecContext(t.Context(), s.dialect.bind("INSERT INTO JOB_STATUS_TRACE_LOG (id, job_name, original_task_id, task_id, slave_id, source, execution_type, sharding_item, state, creation_time) VALUES ('new', 'java', '', 't', 'h', 's', 'READY', '[0]', 'TASK_RUNNING', ?)"), s.dialect.timestamp(now)); err != nil {
			t.Fatal(err)
		}
		if err := s.cleaner.round(t.Context(), now); err != nil {
			t.Error(err)
		}
		if n := count(t, s, "SELECT COUNT(*) FROM JOB_STATUS_TRACE_LOG") + count(t, s, "SELECT COUNT(*) FROM JOB_EXECUTION_LOG"); n != 0 {
			t.Errorf("%d old rows are left", n)
		}
	})
}

// TestElasticJobTablesOfOthers: tables whose columns are narrower than ElasticJob's, or cannot hold
// all characters, get every row. What does not fit is cut with a mark, or written as "?".
func TestElasticJobTablesOfOthers(t *testing.T) {
	t.Parallel()
	servers(t, func(t *testing.T, fresh func(*testing.T) (string, string)) {
		url, credentials := fresh(t)
		plain := openStore(t, url, credentials, t.TempDir())
		end := ""
		if plain.dialect == mySQL {
			end = " DEFAULT CHARSET=latin1"
		}
		flag := map[bool]string{true: "BOOLEAN", false: "INT"}[plain.dialect == postgres]
		for _, statement := range []string{
			"CREATE TABLE JOB_EXECUTION_LOG (id VARCHAR(40) NOT NULL PRIMARY KEY, job_name VARCHAR(10) NOT NULL, task_id VARCHAR(30) NOT NULL, hostname VARCHAR(255) NOT NULL, ip VARCHAR(50) NOT NULL, " +
				"sharding_item INT NOT NULL, execution_source VARCHAR(20) NOT NULL, failure_cause VARCHAR(20) NULL, is_success " + flag + " NOT NULL, start_time TIMESTAMP NULL, complete_time TIMESTAMP NULL)" + end,
			"CREATE TABLE JOB_STATUS_TRACE_LOG (id VARCHAR(40) NOT NULL PRIMARY KEY, job_name VARCHAR(100) NOT NULL, original_task_id VARCHAR(255) NOT NULL, task_id VARCHAR(255) NOT NULL, slave_id VARCHAR(50) NOT NULL, " +
				"source VARCHAR(50) NOT NULL, execution_type VARCHAR(20) NOT NULL, sharding_item VARCHAR(8) NOT NULL, state VARCHAR(20) NOT NULL, message VARCHAR(12) NULL, creation_time TIMESTAMP NULL)" + end,
		} {
			if _, err := plain.db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		sign := "?"
		if strings.Contains(url, "?") {
			sign = "&"
		}
		s := openStore(t, url+sign+"elasticjob=true", credentials, t.TempDir())
		at, item := time.Now().Truncate(time.Second), 1
		e := event.Event{Time: at, Kind: event.FireStarted, Host: "10.0.0.1@-@7-abc", Job: "每日报表 nightly", Instant: at, Source: abi.SourceSchedule, Items: []int{0, 1, 2, 3}}
		s.AddEvent(e)
		e.Kind, e.Items, e.Item, e.RunID, e.Outcome, e.Reason, e.Attempt = event.ItemEnded, nil, &item, "每日报表 nightly/x/1", abi.OutcomeTrap, strings.Repeat("a", 30), 1
		s.AddEvent(e)
		await(t, "rows of both tables", func() bool {
			if p := s.State(); p.Problem != "" || p.Dropped > 0 {
				t.Fatalf("%+v", p)
			}
			return count(t, s, "SELECT COUNT(*) FROM JOB_STATUS_TRACE_LOG") == 2 && count(t, s, "SELECT COUNT(*) FROM JOB_EXECUTION_LOG") == 1
		})
		var name, cause, items string
		if err := s.db.QueryRowContext(t.Context(), "SELECT job_name, failure_cause FROM JOB_EXECUTION_LOG").Scan(&name, &cause); err != nil {
			t.Fatal(err)
		}
		if err := s.db.QueryRowContext(t.Context(), "SELECT MAX(sharding_item) FROM JOB_STATUS_TRACE_LOG").Scan(&items); err != nil {
			t.Fatal(err)
		}
		want := "每日报表 ni..."
		if s.dialect == mySQL {
			want = "???? ni..."
		}
		if name != want || cause != "TRAP: aaaaaaaaaaa..." || items != "[0, 1..." {
			t.Errorf("found %q, %q, %q, expected %q, cut texts", name, cause, items, want)
		}
		if n := s.State().Dropped; n != 0 {
			t.Errorf("%d records were dropped", n)
		}
	})
}

// TestNarrowDatabase: a database of PostgreSQL whose encoding has not all characters loses no record.
func TestNarrowDatabase(t *testing.T) {
	t.Parallel()
	p := shared.postgres.get(t, func(ctx context.Context) (*pgserver.Server, error) { return pgserver.Start(ctx, pgserver.Options{}) }, pgserver.ErrNotInstalled)
	name := databaseName(t)
	if _, err := p.Query(t.Context(), "CREATE DATABASE "+name+" ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, strings.Replace(p.URL(), "/"+pgserver.Database+"?", "/"+name+"?", 1)+"&elasticjob=true", pgserver.User+":"+p.Password, t.TempDir())
	at, item := time.Now().Truncate(time.Second), 1
	s.AddEvent(event.Event{Time: at, Kind: event.ItemEnded, Host: "10.0.0.1@-@7-abc", Job: "café 报表", Instant: at, Source: abi.SourceSchedule, Item: &item, RunID: "café 报表/x/1", Outcome: abi.OutcomeTrap, Reason: "坏了", Attempt: 1})
	await(t, "both rows", func() bool {
		return count(t, s, "SELECT COUNT(*) FROM JOB_EXECUTION_LOG WHERE job_name = 'café ??'") == 1 && count(t, s, "SELECT COUNT(*) FROM wasmjob_items WHERE job = 'café ??'") == 1
	})
	if n := s.State().Dropped; n != 0 {
		t.Errorf("%d records were dropped", n)
	}
}
