package sdktest

import (
	"log/slog"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// imports are the functions of the ABI as package abi specifies them, while they are
// allowed: package border sees to that.
type imports struct{ h *Host }

func (i imports) CtxStr(field uint32, buf []byte) int32 {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	c := &i.h.context
	var value string
	present := true
	switch field {
	case abi.CtxJobName:
		value = c.JobName
	case abi.CtxTaskID:
		value = c.TaskID
	case abi.CtxItemParameter:
		value, present = c.ShardingParameter, c.HasShardingParameter
	case abi.CtxJobParameter:
		value = c.JobParameter
	case abi.CtxPluginConfig:
		value, present = string(c.PluginConfig), c.PluginConfig != nil
	case abi.CtxTraceparent:
		value, present = c.Traceparent, c.Traceparent != ""
	case abi.CtxHostInfo:
		value = c.HostInfo
	case abi.CtxRunID:
		value = c.RunID
	case abi.CtxSource:
		value = string(c.Source)
	default:
		present = false
	}
	if !present {
		return int32(abi.ErrNotFound)
	}
	return give(buf, []byte(value))
}

// give is the rule for reading: the whole value or nothing, and its length.
func give(buf, value []byte) int32 {
	if len(value) <= len(buf) {
		copy(buf, value)
	}
	return int32(len(value))
}

func (i imports) CtxInt(field uint32) int64 {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	c := &i.h.context
	instant := func(t time.Time, missing int64) int64 {
		if t.IsZero() {
			return missing
		}
		return t.UnixMilli()
	}
	switch field {
	case abi.CtxTotalCount:
		return int64(c.ShardingTotalCount)
	case abi.CtxItem:
		if c.ShardingItem < 0 {
			return int64(abi.ErrNotFound)
		}
		return int64(c.ShardingItem)
	case abi.CtxFireTime:
		return instant(c.FireTime, 0)
	case abi.CtxPreviousFire:
		return instant(c.PreviousFireTime, int64(abi.ErrNotFound))
	case abi.CtxNextFire:
		return instant(c.NextFireTime, int64(abi.ErrNotFound))
	case abi.CtxAttempt:
		return int64(c.Attempt)
	case abi.CtxDeadline:
		return instant(c.Deadline, 0)
	case abi.CtxFence:
		return c.Fence
	case abi.CtxFetchDataCount:
		if c.FetchDataCount == 0 && i.h.flows {
			return abi.DefaultFetchDataCount
		}
		return int64(c.FetchDataCount)
	}
	return int64(abi.ErrNotFound)
}

func (i imports) Log(level int32, msg string, kv []byte) {
	attrs, err := abi.ParseList(kv)
	if err != nil {
		attrs = []string{"error", err.Error()}
	}
	if len(msg) > abi.MaxLogMessage {
		msg = msg[:abi.MaxLogMessage]
	}
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	if slog.Level(level) < i.h.LogLevel {
		return
	}
	i.h.logs = append(i.h.logs, Log{Level: slog.Level(level), Message: strings.ToValidUTF8(msg, "\uFFFD"), Attrs: attrs})
}

func (i imports) LogEnabled(level int32) bool {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	return slog.Level(level) >= i.h.LogLevel
}

func (i imports) SetError(msg string) {
	if len(msg) > abi.MaxError {
		msg = msg[:abi.MaxError]
	}
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	i.h.reason = strings.ToValidUTF8(msg, "\uFFFD")
}

func (i imports) Progress(done, total int64) {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	i.h.progress = append(i.h.progress, Progress{Done: done, Total: total})
}

func (i imports) RetryAt(at int64, flags int32) int32 {
	if at <= 0 || at > time.Now().Add(abi.MaxRetryAt).UnixMilli() || flags&^abi.RetryPausesKey != 0 {
		return int32(abi.ErrInvalid)
	}
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	i.h.retryAt, i.h.pauseKey = time.UnixMilli(at), flags&abi.RetryPausesKey != 0
	return int32(abi.OK)
}

func (i imports) Metric(kind int32, name string, value int64) int32 {
	if !abi.ValidMetric(int(kind), name) {
		return int32(abi.ErrInvalid)
	}
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	if !i.h.names[name] {
		if len(i.h.names) == abi.MaxMetricNames {
			return int32(abi.ErrQuota)
		}
		if i.h.names == nil {
			i.h.names = make(map[string]bool)
		}
		i.h.names[name] = true
	}
	i.h.metrics = append(i.h.metrics, Metric{Kind: int(kind), Name: name, Value: value})
	return int32(abi.OK)
}

func (i imports) OffsetGet(buf []byte) int32 {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	if i.h.isStaged {
		return give(buf, i.h.staged)
	}
	if i.h.Offset != nil {
		return give(buf, i.h.Offset)
	}
	return int32(abi.ErrNotFound)
}

func (i imports) OffsetSet(b []byte) int32 {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	if len(b) > abi.MaxOffset {
		return int32(abi.ErrTooLarge)
	}
	i.h.staged, i.h.isStaged = append([]byte{}, b...), true
	return int32(abi.OK)
}

func (i imports) OffsetCommit() int32 { return int32(i.h.commitStaged()) }

func (i imports) Cancelled() int32 {
	i.h.mu.Lock()
	defer i.h.mu.Unlock()
	i.h.questions++
	if i.h.cancel == abi.CancelNone && i.h.OnCancelled != nil {
		i.h.cancel = i.h.OnCancelled(i.h.questions)
	}
	if d := i.h.context.Deadline; i.h.cancel == abi.CancelNone && !d.IsZero() && !time.Now().Before(d) {
		i.h.cancel = abi.CancelDeadline
	}
	return int32(i.h.cancel)
}
