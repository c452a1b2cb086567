package history

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// Kinds of lists, each with cursors of its own.
const (
	ListFires   byte = 'f'
	ListRuns    byte = 'r'
	ListEvents  byte = 'e'
	ListLines   byte = 'l'
	ListChanges byte = 'c'
)

// Values of [Page.Missing] while a database that hosts share does not answer; [State] says why. AwayForLong:
// more records exist than were found.
const (
	Away        = "the history's database does not answer: shown is what was not written there yet"
	AwayForLong = "the history's database does not answer: shown is the newest of what was not written there yet"
)

// ErrUnavailable is wrapped by the errors of a store whose database does not answer.
var ErrUnavailable = errors.New("the history's database does not answer")

// ErrFilter is wrapped by the errors of filters that no store can answer. The text names the field.
var ErrFilter = errors.New("bad filter")

// Position is the place of a record in a list: ordered by Time, then by ID, which is the run's id or a number.
type Position struct {
	Time int64 // Unix nanoseconds
	ID   string
}

// PositionOf returns the position of a record with that time.
func PositionOf(t time.Time, id string) Position { return Position{Nanos(t), id} }

// Nanos returns a time in Unix nanoseconds. A time out of their range, such as zero, becomes the nearest in
// range.
func Nanos(t time.Time) int64 {
	const most = math.MaxInt64 / int64(time.Second)
	switch s := t.Unix(); {
	case s <= -most:
		return -most * int64(time.Second)
	case s >= most:
		return most * int64(time.Second)
	}
	return t.UnixNano()
}

// Before reports whether p comes before q in time.
func (p Position) Before(q Position) bool {
	if p.Time != q.Time {
		return p.Time < q.Time
	}
	return p.ID < q.ID
}

const (
	cursorVersion = 1
	cursorHead    = 2 + 8
	maxCursorID   = 1 << 10
)

// Cursor returns the position as a [Filter.After] of that kind of list.
func (p Position) Cursor(list byte) string {
	b := make([]byte, 0, cursorHead+len(p.ID))
	b = append(b, cursorVersion, list)
	b = binary.BigEndian.AppendUint64(b, uint64(p.Time))
	b = append(b, p.ID...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads a cursor of that kind of list. For an empty cursor ok is false.
func ParseCursor(list byte, cursor string) (p Position, ok bool, err error) {
	if cursor == "" {
		return Position{}, false, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < cursorHead || len(b) > cursorHead+maxCursorID || b[0] != cursorVersion || b[1] != list {
		return Position{}, false, fmt.Errorf("%w: after: found %.40q, expected the next of a page of the same list", ErrFilter, cursor)
	}
	return Position{int64(binary.BigEndian.Uint64(b[2:])), string(b[cursorHead:])}, true, nil
}
