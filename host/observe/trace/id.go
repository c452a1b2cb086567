package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strconv"

	"github.com/wasmjob/wasmjob/host/event"
)

// traceID and spanID are those of W3C Trace Context.
type (
	traceID [16]byte
	spanID  [8]byte
)

// key names a fire of a job. A trigger has a number that all hosts know, and no instant
// that they agree on.
type key struct {
	job     string
	instant int64 // Unix milliseconds; 0 for a trigger
	trigger int64
}

func keyOf(e event.Event) key {
	return keyOfRun(event.Run{Job: e.Job, Instant: e.Instant, Trigger: e.Trigger})
}

func keyOfRun(r event.Run) key {
	k := key{job: r.Job, trigger: r.Trigger}
	if k.trigger == 0 {
		k.instant = r.Instant.UnixMilli()
	}
	return k
}

// traceOf derives the id of a fire's trace. It is the same in all versions: hosts of
// several may take part in a fire.
func traceOf(namespace string, k key) (id traceID) {
	b := append([]byte("wasmjob trace 1\x00"), namespace...)
	b = append(append(append(b, 0), k.job...), 0)
	if k.trigger != 0 {
		b = append(b, 't')
		b = strconv.AppendInt(b, k.trigger, 10)
	} else {
		b = strconv.AppendInt(b, k.instant, 10)
	}
	sum := sha256.Sum256(b)
	copy(id[:], sum[:])
	return id
}

// sampled reports whether the trace is one of the part that is recorded. It goes by the
// id, as OpenTelemetry's TraceIDRatioBased does: all hosts decide alike, and so do services
// that are called.
func sampled(id traceID, ratio float64) bool {
	if ratio >= 1 {
		return true
	}
	return binary.BigEndian.Uint64(id[8:])>>1 < uint64(ratio*(1<<63))
}

// newSpanID makes one that no other span has. 0 is none.
func newSpanID() (id spanID) {
	binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// parseSpanID reads 16 hexadecimal digits; the answer is 0 for anything else.
func parseSpanID(text string) (id spanID) {
	b, err := hex.DecodeString(text)
	if err == nil && len(b) == len(id) {
		copy(id[:], b)
	}
	return id
}

// traceparent is the W3C trace context of a span.
func traceparent(trace traceID, span spanID, recorded bool) string {
	flags := "-00"
	if recorded {
		flags = "-01"
	}
	return "00-" + hex.EncodeToString(trace[:]) + "-" + hex.EncodeToString(span[:]) + flags
}
