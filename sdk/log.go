package sdk

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/sdk/internal/border"
)

// LogHandler returns the handler that writes to the host's log. In a guest it
// is slog's default already.
//
// Levels are slog's own numbers. Groups become prefixes of their attributes'
// keys, joined by dots. The time of a record is left out: the host has its
// own. Whether a level is enabled is for the host to say.
func LogHandler() slog.Handler { return &logHandler{} }

type logHandler struct {
	prefix string // of keys: "group.subgroup."
	pairs  []byte // the attributes of WithAttrs, as a key/value list
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return border.LogEnabled(int32(level))
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	pairs := h.pairs[:len(h.pairs):len(h.pairs)]
	r.Attrs(func(a slog.Attr) bool {
		pairs = appendAttr(pairs, h.prefix, a)
		return true
	})
	border.Log(int32(r.Level), r.Message, pairs)
	return nil
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	pairs := h.pairs[:len(h.pairs):len(h.pairs)]
	for _, a := range attrs {
		pairs = appendAttr(pairs, h.prefix, a)
	}
	return &logHandler{prefix: h.prefix, pairs: pairs}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{prefix: h.prefix + name + ".", pairs: h.pairs}
}

func appendAttr(pairs []byte, prefix string, a slog.Attr) []byte {
	a.Value = a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return pairs
	}
	if a.Value.Kind() != slog.KindGroup {
		return appendPair(pairs, prefix+a.Key, text(a.Value))
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range a.Value.Group() {
		pairs = appendAttr(pairs, prefix, member)
	}
	return pairs
}

func text(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		if b, ok := v.Any().([]byte); ok {
			return string(b)
		}
		return fmt.Sprintf("%+v", v.Any())
	}
	return v.String()
}

// appendPair appends to a key/value list. A NUL would end the string early;
// it becomes U+FFFD.
func appendPair(pairs []byte, key, value string) []byte {
	for _, s := range [...]string{key, value} {
		if strings.IndexByte(s, 0) >= 0 {
			s = strings.ReplaceAll(s, "\x00", "\uFFFD")
		}
		pairs = append(append(pairs, s...), 0)
	}
	return pairs
}
