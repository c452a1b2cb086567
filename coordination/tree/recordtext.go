package tree

import (
	"bytes"
	"math"
)

// readRecord reads a record as Data writes it: encoding/json takes ten times as long, and a job may have a million.
// It returns false for any other text, also if that is the same in JSON.
func readRecord(data []byte) (r Record, ok bool) {
	t := recordText{rest: data}
	t.must(`{"owner":`)
	t.text(&r.Owner)
	t.must(`,"instant":`)
	t.number(&r.Instant)
	t.int64(`,"trigger":`, &r.Trigger)
	t.int64(`,"after":`, &r.After)
	t.int64(`,"begun":`, &r.Begun)
	t.int64(`,"ended":`, &r.Ended)
	t.string(`,"source":`, &r.Source)
	t.string(`,"outcome":`, &r.Outcome)
	t.string(`,"reason":`, &r.Reason)
	t.int(`,"failures":`, &r.Failures)
	t.int64(`,"failing":`, &r.Failing)
	t.int64(`,"succeeded":`, &r.Succeeded)
	t.int(`,"deaths":`, &r.Deaths)
	t.string(`,"died":`, &r.Died)
	t.int64(`,"held":`, &r.Held)
	t.int64(`,"back":`, &r.Back)
	t.int64(`,"backTrigger":`, &r.BackTrigger)
	t.int64(`,"backArgs":`, &r.BackArgs)
	t.string(`,"backParam":`, &r.BackParam)
	t.int64(`,"backAt":`, &r.BackAt)
	r.BackBare = t.has(`,"backBare":true`)
	r.BackFill = t.has(`,"backFill":true`)
	t.int64(`,"again":`, &r.Again)
	t.string(`,"owed":`, &r.Owed)
	t.int64(`,"owedTo":`, &r.OwedTo)
	t.int(`,"runs":`, &r.Runs)
	if t.has(`,"kill":{"at":`) {
		t.number(&r.Kill.At)
		t.string(`,"by":`, &r.Kill.By)
		t.int64(`,"graceMs":`, &r.Kill.Grace)
		t.must(`}`)
	}
	if t.has(`,"former":{"owner":`) {
		t.text(&r.Former.Owner)
		t.int64(`,"begun":`, &r.Former.Begun)
		t.int64(`,"ended":`, &r.Former.Ended)
		t.string(`,"outcome":`, &r.Former.Outcome)
		t.must(`}`)
	}
	t.must(`}`)
	return r, !t.bad && len(t.rest) == 0
}

// recordText is what is left to read of a record. bad is set once it is not as Data writes it.
type recordText struct {
	rest []byte
	bad  bool
}

func (t *recordText) has(s string) bool {
	if len(t.rest) < len(s) || string(t.rest[:len(s)]) != s {
		return false
	}
	t.rest = t.rest[len(s):]
	return true
}

func (t *recordText) must(s string) { t.bad = !t.has(s) || t.bad }

// int64, int and string read a field that may be missing.
func (t *recordText) int64(key string, v *int64) {
	if t.has(key) {
		t.number(v)
	}
}

func (t *recordText) int(key string, v *int) {
	var n int64
	if t.int64(key, &n); n < math.MinInt32 || n > math.MaxInt32 {
		t.bad = true
	}
	*v = int(n)
}

func (t *recordText) string(key string, v *string) {
	if t.has(key) {
		t.text(v)
	}
}

// number reads an integer of at most 18 digits.
func (t *recordText) number(v *int64) {
	minus := t.has("-")
	n, digits := int64(0), 0
	for digits < len(t.rest) && t.rest[digits] >= '0' && t.rest[digits] <= '9' && digits <= 18 {
		n = 10*n + int64(t.rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 18 || (t.rest[0] == '0' && digits > 1) {
		t.bad = true
		return
	}
	if t.rest = t.rest[digits:]; minus {
		n = -n
	}
	*v = n
}

// text reads a string in which nothing is escaped.
func (t *recordText) text(v *string) {
	if !t.has(`"`) {
		t.bad = true
		return
	}
	end := bytes.IndexByte(t.rest, '"')
	if end < 0 {
		t.bad = true
		return
	}
	for _, c := range t.rest[:end] {
		if c < ' ' || c > '~' || c == '\\' {
			t.bad = true
			return
		}
	}
	*v, t.rest = string(t.rest[:end]), t.rest[end+1:]
}
