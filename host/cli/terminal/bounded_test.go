package terminal

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// TestBounded: a storm of lines of one kind leaves few of them, with a count of the others, and
// all of another kind.
func TestBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, seen := observer.New(zap.InfoLevel)
		log := Bounded(zap.New(core))
		// 10,000 jobs come at once.
		for n := range 10_000 {
			log.Info("job is defined", zap.String("job", fmt.Sprint("job", n)), zap.String("file", strings.Repeat("f", 100)), zap.String("digest", strings.Repeat("d", 64)))
		}
		if n := len(seen.TakeAll()); n != 10_000 {
			t.Errorf("%d lines of 10,000 jobs", n)
		}
		long := []string{strings.Repeat("r", 900), strings.Repeat("s", 100)}
		written, counted, storm := 0, 0, 0
		warn := log.With(zap.String("by", "ann"))
		count := func() {
			for _, line := range seen.TakeAll() {
				written++
				counted++
				if left, ok := line.ContextMap()[fieldLeftOut].(int64); ok {
					counted += int(left)
				}
			}
		}
		for range 10 * 60 {
			for range 100 {
				storm++
				warn.Warn("file is refused", zap.Strings("reasons", long), zap.Error(errors.New("no")))
			}
			time.Sleep(time.Second)
			count()
		}
		if bytes := written * 1000; bytes > lineBurst+11*60*lineRate || bytes < lineBurst*3/4 {
			t.Errorf("%d lines of 1,000 bytes in ten minutes, want 4 MiB and 2 KiB for each second", written)
		}
		log.Info("file is not refused any more")
		log.Debug("nobody listens")
		if list := seen.TakeAll(); len(list) != 1 {
			t.Errorf("of another kind: %v", list)
		}
		time.Sleep(time.Minute)
		storm++
		warn.Warn("file is refused", zap.Strings("reasons", long))
		if count(); counted != storm {
			t.Errorf("%d lines are written or counted, want %d", counted, storm)
		}
		for range 100_000 {
			log.Error("item failed", zap.String("reason", strings.Repeat("r", 100)), zap.String(fieldOutcome, "FAIL"))
		}
		if n := len(seen.TakeAll()); n != 100_000 {
			t.Errorf("%d lines of items that failed, which their job's quota bounds", n)
		}
	})
}

// TestBoundedKinds: lines share a bucket if they go on with an address; and however many kinds
// there are, what is kept is bounded.
func TestBoundedKinds(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zap.WarnLevel)
	log := Bounded(zap.New(core))
	b := log.Core().(boundedCore).buckets
	for n := range 50_000 {
		log.Warn(fmt.Sprintf("http: TLS handshake error from 192.0.%d.%d:%d: %s", n/256, n%256, n, strings.Repeat("x", 200)))
	}
	if n := seen.Len(); n*250 > lineBurst*5/4 || len(b.kinds) != 1 {
		t.Errorf("%d lines of %d kinds", n, len(b.kinds))
	}
	for _, late := range []time.Duration{0, 30 * time.Second} { // times that go to and fro fill no bucket
		for range 2 {
			b.take(zapcore.Entry{Message: "late", Time: time.Unix(1e9, 0).Add(-late)}, 2*lineBurst)
		}
	}
	if ok, _ := b.take(zapcore.Entry{Message: "late", Time: time.Unix(1e9, 0)}, 1); ok {
		t.Error("a line that is late has filled the bucket")
	}
	if b.take(zapcore.Entry{Message: "late", Time: time.Unix(1e9-3600, 0)}, 1); !b.kinds[lineKind{begin: "late"}].at.Equal(time.Unix(1e9-3600, 0)) {
		t.Error("when the clock was set back the bucket waits for the time before")
	}
	name := strings.NewReplacer("0", "a", "1", "b", "2", "c", "3", "d", "4", "e", "5", "f", "6", "g", "7", "h", "8", "i", "9", "j")
	for n := range 3 * maxKinds {
		log.Warn(name.Replace(fmt.Sprint("other ", n)))
		if k := kindOf(zapcore.Entry{Message: strings.Repeat("ö", n%70)}); len(k.begin) > kindBytes || strings.Trim(k.begin, "ö") != "" {
			t.Fatalf("a kind of %d bytes: %q", len(k.begin), k.begin)
		}
	}
	if len(b.kinds) > maxKinds+1 {
		t.Errorf("%d kinds are kept", len(b.kinds))
	}
}
