package terminal

import (
	"context"
	"io"
	"log/slog"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/host/event"
)

// NewLogger makes a logger of the level, which writes JSON to w, or else prints
// through c.
func NewLogger(json bool, level zapcore.Level, c *Console, w io.Writer) *zap.Logger {
	if !json {
		return zap.New(&consoleCore{LevelEnabler: level, console: c})
	}
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "time", LevelKey: "level", NameKey: "logger", MessageKey: "message",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeDuration: zapcore.SecondsDurationEncoder,
	}), zapcore.AddSync(w), level))
}

// AtLeast is the logger without what is below the level.
func AtLeast(log *zap.Logger, level zapcore.Level) *zap.Logger {
	if !log.Core().Enabled(level) {
		return log // it has a higher one already
	}
	return log.WithOptions(zap.IncreaseLevel(level))
}

// GuestLog prints one line of a guest. The guest's own keys come last, below
// "attrs" in JSON, so that they cannot pass for the host's.
func GuestLog(log *zap.Logger, l event.GuestLog) {
	entry := log.Check(ZapLevel(l.Level), l.Message)
	if entry == nil {
		return
	}
	fields := []zap.Field{zap.String(FieldJob, l.Job)}
	if l.Item >= 0 {
		fields = append(fields, zap.Int(fieldItem, l.Item))
	}
	fields = append(fields, zap.String(fieldTask, l.TaskID))
	if l.Fence != 0 {
		fields = append(fields, zap.Int64(fieldFence, l.Fence))
	}
	if len(l.Attrs) > 0 {
		if _, pretty := log.Core().(*consoleCore); pretty {
			for i := 0; i+1 < len(l.Attrs); i += 2 {
				key := l.Attrs[i]
				if key == FieldJob || key == fieldItem || key == fieldTask || key == fieldFence {
					key = "guest." + key
				}
				fields = append(fields, zap.String(key, l.Attrs[i+1]))
			}
		} else {
			fields = append(fields, zap.Object("attrs", attrs(l.Attrs)))
		}
	}
	entry.Write(fields...)
}

// attrs alternates keys and values.
type attrs []string

// MarshalLogObject implements [zapcore.ObjectMarshaler].
func (a attrs) MarshalLogObject(e zapcore.ObjectEncoder) error {
	for i := 0; i+1 < len(a); i += 2 {
		e.AddString(a[i], a[i+1])
	}
	return nil
}

// Slog is a logger of log/slog that passes records to zap.
func Slog(log *zap.Logger) *slog.Logger { return slog.New(slogHandler{log: log}) }

// slogHandler passes records to zap: the runtime of the guests speaks slog.
type slogHandler struct {
	log    *zap.Logger
	prefix string
}

// Enabled implements [slog.Handler].
func (h slogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.log.Core().Enabled(ZapLevel(int(l)))
}

// Handle implements [slog.Handler].
func (h slogHandler) Handle(_ context.Context, r slog.Record) error {
	if entry := h.log.Check(ZapLevel(int(r.Level)), r.Message); entry != nil {
		var fields []zap.Field
		r.Attrs(func(a slog.Attr) bool {
			fields = h.field(fields, h.prefix, a)
			return true
		})
		entry.Write(fields...)
	}
	return nil
}

func (h slogHandler) field(fields []zap.Field, prefix string, a slog.Attr) []zap.Field {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		return append(fields, zap.Any(prefix+a.Key, v.Any()))
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, g := range v.Group() {
		fields = h.field(fields, prefix, g)
	}
	return fields
}

// WithAttrs implements [slog.Handler].
func (h slogHandler) WithAttrs(as []slog.Attr) slog.Handler {
	var fields []zap.Field
	for _, a := range as {
		fields = h.field(fields, h.prefix, a)
	}
	h.log = h.log.With(slices.Clip(fields)...)
	return h
}

// WithGroup implements [slog.Handler].
func (h slogHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}
