package history

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestCursor(t *testing.T) {
	t.Parallel()
	for _, p := range []Position{{}, {1, ""}, {-1, "a"}, {math.MinInt64, "\x00\xff"}, {math.MaxInt64, "cities/2026-03-01T03:00:00.000Z/7"}} {
		got, ok, err := ParseCursor(ListRuns, p.Cursor(ListRuns))
		if got != p || !ok || err != nil {
			t.Errorf("%+v came back as %+v, %v, %v", p, got, ok, err)
		}
		if _, _, err := ParseCursor(ListFires, p.Cursor(ListRuns)); !errors.Is(err, ErrFilter) {
			t.Errorf("a cursor of runs for fires: %v", err)
		}
	}
	if _, ok, err := ParseCursor(ListRuns, ""); ok || err != nil {
		t.Errorf("no cursor: %v, %v", ok, err)
	}
}

func TestNanos(t *testing.T) {
	t.Parallel()
	now := time.Now()
	if Nanos(now) != now.UnixNano() || Nanos(time.Time{}) >= Nanos(time.Unix(-1, 0)) || Nanos(time.Unix(1<<50, 0)) <= Nanos(now) || Nanos(time.Unix(1<<40, 0)) != Nanos(time.Unix(1<<50, 0)) {
		t.Error(Nanos(now), Nanos(time.Time{}), Nanos(time.Unix(1<<50, 0)))
	}
}

// FuzzParseCursor: no text panics, and what is taken is what was made.
func FuzzParseCursor(f *testing.F) {
	f.Add(byte('r'), Position{12345, "a/t1/0"}.Cursor('r'))
	f.Add(byte('e'), "")
	f.Add(byte('f'), "AWYAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, list byte, cursor string) {
		p, ok, err := ParseCursor(list, cursor)
		switch {
		case err != nil && (ok || !errors.Is(err, ErrFilter)):
			t.Errorf("%v %v", ok, err)
		case ok:
			if again, _, err := ParseCursor(list, p.Cursor(list)); again != p || err != nil {
				t.Errorf("%+v came back as %+v, %v", p, again, err)
			}
		}
	})
}

// FuzzRecord: a record that is read is written and read as the same.
func FuzzRecord(f *testing.F) {
	f.Add(`{"kind":"log","time":"2026-03-01T00:00:00Z","job":"j","message":"m","attrs":["a","b"],"gap":3}`)
	f.Add(`{"kind":"change","who":"w","item":3}`)
	f.Add(`{"time":"2026-03-01T00:00:00Z","kind":"item.ended","item":1,"outside":{"http":{"calls":1}}}`)
	f.Add(`{}`)
	f.Fuzz(func(t *testing.T, line string) {
		var r, again Record
		if r.UnmarshalJSON([]byte(line)) != nil {
			return
		}
		data, err := r.MarshalJSON()
		if err != nil {
			return // a year that JSON has no form for
		}
		if err := again.UnmarshalJSON(data); err != nil || again.Job() != r.Job() || !again.Time().Equal(r.Time()) {
			t.Errorf("%s became %s: %v", line, data, err)
		}
	})
}
