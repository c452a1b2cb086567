package terminal

import (
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// lineBurst is how many bytes of lines of one kind may be written at once: a line for each of 10,000 jobs. lineRate
	// is how many bytes are refilled per second: 170 MB a day.
	lineBurst, lineRate = 4 << 20, 2 << 10
	// maxKinds is how many kinds are distinguished, by their first kindBytes bytes.
	maxKinds, kindBytes = 1000, 40
	// fieldOutcome is a field of lines about what ran.
	fieldOutcome = "outcome"
	fieldLeftOut = "leftOut"
)

// Bounded returns a logger with a limit for lines that others can cause. Lines of one kind, which have the same level and
// the same beginning of the message, share a bucket of bytes. Lines that do not fit are dropped; the next line of the
// kind has their number (leftOut). Lines with an outcome do not count: those of failed items and listeners, for which
// each job has its own quota, and those of fires.
func Bounded(log *zap.Logger) *zap.Logger {
	b := &lineBuckets{kinds: make(map[lineKind]*lineBucket)}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return boundedCore{Core: c, buckets: b} }))
}

// boundedCore passes on what its buckets have room for.
type boundedCore struct {
	zapcore.Core
	buckets *lineBuckets
	with    []zapcore.Field
}

// With implements [zapcore.Core].
func (c boundedCore) With(fields []zapcore.Field) zapcore.Core {
	return boundedCore{c.Core.With(fields), c.buckets, append(c.with[:len(c.with):len(c.with)], fields...)}
}

// Check implements [zapcore.Core].
func (c boundedCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements [zapcore.Core].
func (c boundedCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	all := zapcore.NewMapObjectEncoder()
	for _, list := range [][]zapcore.Field{c.with, fields} {
		for _, f := range list {
			f.AddTo(all)
		}
	}
	if _, counted := all.Fields[fieldOutcome]; !counted {
		ok, left := c.buckets.take(e, len(e.Message)+len(fmt.Sprint(all.Fields)))
		if !ok {
			return nil
		}
		if left > 0 {
			fields = append(fields[:len(fields):len(fields)], zap.Int(fieldLeftOut, left))
		}
	}
	if checked := c.Core.Check(e, nil); checked != nil {
		checked.Write(fields...)
	}
	return nil
}

// lineBuckets are the buckets of all kinds of lines. They are safe for concurrent use.
type lineBuckets struct {
	mu    sync.Mutex
	kinds map[lineKind]*lineBucket
}

// lineKind is what lines have in common that share a bucket.
type lineKind struct {
	level zapcore.Level
	begin string
}

// lineBucket is what one kind may write.
type lineBucket struct {
	bytes float64
	at    time.Time
	left  int // lines that were left out since the last one
}

// kindOf is the kind of a line: a message may go on with an address or a name.
func kindOf(e zapcore.Entry) lineKind {
	begin := e.Message
	if i := strings.IndexAny(begin, "0123456789"); i >= 0 {
		begin = begin[:i]
	}
	for i := kindBytes; i > 0 && len(begin) > kindBytes; i-- {
		if utf8.RuneStart(begin[i]) {
			begin = begin[:i]
		}
	}
	return lineKind{e.Level, begin}
}

// take removes a line's bytes from its bucket, if it has any. left is the number of lines that were dropped since the
// last accepted one.
func (l *lineBuckets) take(e zapcore.Entry, size int) (ok bool, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := kindOf(e)
	b := l.kinds[kind]
	if b == nil && len(l.kinds) >= maxKinds {
		kind.begin = "" // of those that were not seen before
		b = l.kinds[kind]
	}
	if b == nil {
		b = &lineBucket{bytes: lineBurst, at: e.Time}
		l.kinds[kind] = b
	}
	switch passed := e.Time.Sub(b.at); {
	case passed > 0:
		b.bytes = min(lineBurst, b.bytes+passed.Seconds()*lineRate)
		b.at = e.Time
	case passed < -time.Minute: // the clock was set back; lines are late by less
		b.at = e.Time
	}
	if b.bytes <= 0 {
		b.left++
		return false, 0
	}
	b.bytes -= float64(size)
	left, b.left = b.left, 0
	return true, left
}
