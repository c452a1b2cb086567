package database

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// ElasticJob's tracing tables, as its version 3 makes them, so that its console shows our
// runs among those of Java hosts: names, types, and what the columns hold.

// The longest texts of the columns, in characters.
const (
	ejJobName = 100
	ejTaskID  = 255
	ejItems   = 100
	ejText    = 4000
	ejAddress = 50
)

// elasticJobTables makes the missing tables.
func (s *pool) elasticJobTables(ctx context.Context, q querier) error {
	for _, statement := range s.dialect.traceTables() {
		if _, err := q.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("ElasticJob's tables: %w", err)
		}
	}
	return nil
}

// traceColumns returns the statements that make the tables, up to their keys. number is a column before the
// others, flag the type of a boolean.
func traceColumns(number, flag string) (execution, trace string) {
	execution = "CREATE TABLE IF NOT EXISTS JOB_EXECUTION_LOG (" + number + "id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL, task_id VARCHAR(255) NOT NULL, " +
		"hostname VARCHAR(255) NOT NULL, ip VARCHAR(50) NOT NULL, sharding_item INT NOT NULL, execution_source VARCHAR(20) NOT NULL, failure_cause VARCHAR(4000) NULL, " +
		"is_success " + flag + " NOT NULL, start_time TIMESTAMP NULL, complete_time TIMESTAMP NULL, "
	trace = "CREATE TABLE IF NOT EXISTS JOB_STATUS_TRACE_LOG (" + number + "id VARCHAR(40) NOT NULL, job_name VARCHAR(100) NOT NULL, original_task_id VARCHAR(255) NOT NULL, " +
		"task_id VARCHAR(255) NOT NULL, slave_id VARCHAR(50) NOT NULL, source VARCHAR(50) NOT NULL, execution_type VARCHAR(20) NOT NULL, sharding_item VARCHAR(100) NOT NULL, " +
		"state VARCHAR(20) NOT NULL, message VARCHAR(4000) NULL, creation_time TIMESTAMP NULL, "
	return execution, trace
}

// plainTraces returns the statements that make the tables in SQLite and PostgreSQL.
func plainTraces(flag string) []string {
	execution, trace := traceColumns("", flag)
	return []string{execution + "PRIMARY KEY (id))", trace + "PRIMARY KEY (id))", "CREATE INDEX IF NOT EXISTS TASK_ID_STATE_INDEX ON JOB_STATUS_TRACE_LOG (task_id, state)"}
}

// traces returns the rows of ElasticJob's tables for events.
func (w *writing) traces(entries []history.Entry) []*insert {
	executions := &insert{table: "JOB_EXECUTION_LOG", lenient: true, keys: []string{"id"},
		columns: []string{"id", "job_name", "task_id", "hostname", "ip", "sharding_item", "execution_source", "failure_cause", "is_success", "start_time", "complete_time"}}
	states := &insert{table: "JOB_STATUS_TRACE_LOG", lenient: true,
		columns: []string{"id", "job_name", "original_task_id", "task_id", "slave_id", "source", "execution_type", "sharding_item", "state", "message", "creation_time"}}
	if w.loader.dialect.traceKeys() {
		states.keys = []string{"id"}
	}
	rows := make(map[string][]any) // of executions, by id: the last one counts
	for i := range entries {
		e := entries[i].Event
		if e == nil {
			continue
		}
		switch e.Kind {
		case event.ItemStarted, event.ItemEnded:
			row := w.executionRow(e)
			rows[text(row[0])] = row
		case event.FireStarted:
			states.rows = append(states.rows, w.stateRow(e, "TASK_STAGING", "Job '"+e.Job+"' execute begin."), w.stateRow(e, "TASK_RUNNING", ""))
		case event.FireEnded:
			if e.Outcome == abi.OutcomeOK {
				states.rows = append(states.rows, w.stateRow(e, "TASK_FINISHED", ""))
				continue
			}
			message := string(e.Outcome)
			if p := w.memory.parts[partKey(history.KeyOf(*e).String(), e.Host)]; p != nil && p.Message != "" {
				message += ": " + p.Message
			}
			states.rows = append(states.rows, w.stateRow(e, "TASK_ERROR", message))
		}
	}
	for _, row := range rows {
		executions.rows = append(executions.rows, row)
	}
	return []*insert{executions, states}
}

// executionRow returns the row of an attempt of an item.
func (w *writing) executionRow(e *event.Event) []any {
	address, _, _ := strings.Cut(e.Host, "@-@")
	source := "NORMAL_TRIGGER"
	switch e.Source {
	case abi.SourceMisfire:
		source = "MISFIRE"
	case abi.SourceFailover:
		source = "FAILOVER"
	}
	begun := e.Time
	var ended, cause any
	success := false
	if e.Kind == event.ItemEnded {
		begun, ended, success = e.Time.Add(-e.Duration), w.loader.dialect.timestamp(e.Time), e.Outcome == abi.OutcomeOK
		if !success {
			cause = clipMarked(string(e.Outcome)+": "+e.Reason, ejText)
		}
	}
	return []any{traceID(e.RunID, e.Host, strconv.FormatInt(e.Fence, 10), strconv.Itoa(e.Attempt)), clipMarked(e.Job, ejJobName), w.taskID(e), clipMarked(address, ejAddress), clipMarked(address, ejAddress),
		*e.Item, source, cause, w.loader.dialect.boolean(success), w.loader.dialect.timestamp(begun), ended}
}

// stateRow returns a row about a host's part of a fire.
func (w *writing) stateRow(e *event.Event, state, message string) []any {
	address, _, _ := strings.Cut(e.Host, "@-@")
	items := make([]string, len(e.Items))
	for i, n := range e.Items {
		items[i] = strconv.Itoa(n)
	}
	return []any{traceID(history.KeyOf(*e).String(), e.Host, strconv.FormatInt(e.Time.UnixNano(), 36), state), clipMarked(e.Job, ejJobName), "", w.taskID(e), clipMarked(address, ejAddress),
		"LITE_EXECUTOR", executionType(e), clipMarked("["+strings.Join(items, ", ")+"]", ejItems), state, clipMarked(message, ejText), w.loader.dialect.timestamp(e.Time)}
}

func executionType(e *event.Event) string {
	if e.Source == abi.SourceFailover {
		return "FAILOVER"
	}
	return "READY"
}

// taskID returns the id that ElasticJob would give the fire on its host.
func (w *writing) taskID(e *event.Event) string {
	items := e.Items
	if p := w.memory.parts[partKey(history.KeyOf(*e).String(), e.Host)]; p != nil && len(items) == 0 {
		items = p.Items
	}
	if len(items) == 0 && e.Item != nil {
		items = []int{*e.Item}
	}
	var b strings.Builder
	for i, n := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(n))
	}
	return clipMarked(e.Job+"@-@"+b.String()+"@-@"+executionType(e)+"@-@"+e.Host, ejTaskID)
}

// traceID returns an id of 36 characters, like ElasticJob's, made of the texts.
func traceID(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// jdbcTime is JDBC's layout of times.
const jdbcTime = "2006-01-02 15:04:05.000"
