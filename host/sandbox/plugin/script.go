package plugin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/wasmjob/wasmjob/abi"
)

// exitRetry is the exit code of a command that asks to be run again: EX_TEMPFAIL.
const exitRetry = 75

// script runs a WASI command. It passes the context in three ways: as JSON in the last argument and on stdin,
// and in environment variables.
func (w *worker) script(ctx context.Context, inv *abi.Invocation) abi.Result {
	config, err := w.scriptConfig(inv)
	if err != nil {
		return failure(abi.OutcomeError, &Error{Kind: KindHost, Op: abi.ExportStart, Err: err}, "")
	}
	in, outcome, e := w.x.instantiate(ctx, w.engine, w.account, inv, config, abi.ExportStart)
	if e != nil {
		return failure(outcome, e, "")
	}
	defer in.close()
	in.begin(ctx, inv, abi.PhaseItem)
	r := in.command(ctx)
	in.finish(&r)
	return r
}

func (in *instance) command(ctx context.Context) abi.Result {
	_, err := in.call(ctx, in.entry[0])
	if ctx.Err() == nil {
		exit, exited := errors.AsType[*sys.ExitError](err)
		switch {
		case err == nil, exited && exit.ExitCode() == 0:
			return abi.Result{Outcome: abi.OutcomeOK, Offset: in.staged, Staged: in.isStaged}
		case exited && exit.ExitCode() == exitRetry:
			r := abi.Result{Outcome: abi.OutcomeRetry, Status: abi.StatusRetry, Message: in.message}
			if r.Message == "" {
				r.Message = fmt.Sprintf("exited with code %d", exitRetry)
				if words := lastWords(string(in.err.tail)); words != "" {
					r.Message += ": " + words
				}
			}
			in.later(&r)
			return r
		}
	}
	outcome, e := in.failed(ctx, ctx, abi.ExportStart, err, "")
	return failure(outcome, e, in.message)
}

func (w *worker) scriptConfig(inv *abi.Invocation) (wazero.ModuleConfig, error) {
	c := &inv.Context
	for _, v := range [...]struct{ what, value string }{
		{"the job's name", c.JobName}, {"the task id", c.TaskID},
		{"the item's parameter", c.ShardingParameter}, {"the job's parameter", c.JobParameter},
	} {
		if strings.ContainsRune(v.value, 0) {
			return nil, fmt.Errorf("%s contains a NUL byte, which no environment variable can hold", v.what)
		}
	}
	text := string(contextJSON(c))
	args := append([]string{w.x.name}, w.x.settings.Args...)
	config := w.x.config.
		WithArgs(append(args, text)...).
		WithStdin(strings.NewReader(text + "\n"))
	env := func(name, value string) { config = config.WithEnv(name, value) }
	env("JOB_NAME", c.JobName)
	env("JOB_TASK_ID", c.TaskID)
	env("JOB_SHARDING_TOTAL_COUNT", strconv.Itoa(c.ShardingTotalCount))
	env("JOB_SHARDING_ITEM", strconv.Itoa(c.ShardingItem))
	if c.HasShardingParameter {
		env("JOB_SHARDING_PARAMETER", c.ShardingParameter)
	}
	env("JOB_PARAMETER", c.JobParameter)
	if !c.FireTime.IsZero() {
		env("JOB_FIRE_TIME_MS", strconv.FormatInt(c.FireTime.UnixMilli(), 10))
	}
	deadline := int64(0)
	if !c.Deadline.IsZero() {
		deadline = c.Deadline.UnixMilli()
	}
	env("JOB_DEADLINE_MS", strconv.FormatInt(deadline, 10))
	env("JOB_ATTEMPT", strconv.Itoa(max(c.Attempt, 1)))
	if o := string(inv.Offset); inv.HasOffset && utf8.ValidString(o) && !strings.ContainsRune(o, 0) {
		env("JOB_OFFSET", o)
	}
	return config, nil
}

// contextJSON writes the sharding context as ElasticJob gives it to scripts:
// its keys in its order, an absent item parameter left out, and its escapes.
func contextJSON(c *abi.ShardingContext) []byte {
	b := append(make([]byte, 0, 256), `{"jobName":`...)
	b = appendJSON(b, c.JobName)
	b = append(b, `,"taskId":`...)
	b = appendJSON(b, c.TaskID)
	b = append(b, `,"shardingTotalCount":`...)
	b = strconv.AppendInt(b, int64(c.ShardingTotalCount), 10)
	b = append(b, `,"jobParameter":`...)
	b = appendJSON(b, c.JobParameter)
	b = append(b, `,"shardingItem":`...)
	b = strconv.AppendInt(b, int64(c.ShardingItem), 10)
	if c.HasShardingParameter {
		b = append(b, `,"shardingParameter":`...)
		b = appendJSON(b, c.ShardingParameter)
	}
	return append(b, '}')
}

// appendJSON quotes a string with the escapes that are safe inside HTML and
// JavaScript, as ElasticJob does; encoding/json leaves '=' and '\” alone.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		if short := strings.IndexRune("\"\\\t\b\n\r\f", r); short >= 0 {
			b = append(b, '\\', `"\tbnrf`[short])
		} else if r < ' ' || strings.ContainsRune("<>&='\u2028\u2029", r) {
			b = fmt.Appendf(b, `\u%04x`, r)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
