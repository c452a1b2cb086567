package tree

import (
	"fmt"
	"strings"
	"testing"
)

// TestQueue: triggers stay in their order and keep their arguments and numbers, whatever is written in between.
func TestQueue(t *testing.T) {
	t.Parallel()
	param := "day-1"
	var q Queue
	for n := range int64(3) {
		args := TriggerArgs{Param: &param}
		if n == 1 {
			args = TriggerArgs{} // a plain one
		}
		q = ParseQueue(q.With(args).Data(), 100+n)
	}
	q = ParseQueue(q.Rest(1).Data(), 200)
	if len(q.Triggers) != 2 || q.Triggers[0].Number != 101 || !q.Triggers[0].Args.Plain() || q.Triggers[1].Number != 102 || *q.Triggers[1].Args.Param != param {
		t.Fatalf("%+v", q)
	}
	round := q.Triggers[0].Round()
	if round.Plain() || round.Queued != 101 || q.Triggers[0].Args.Queued != 0 {
		t.Errorf("a queued trigger is no plain round: %+v", round)
	}
	if got := ParseTriggerArgs(round.Data()); !got.Same(round) || got.Unreadable() || !got.Has(7) {
		t.Errorf("read as %+v", got)
	}
	if f := round.Fire(300, 5, "trigger"); f.Queued != 101 || !f.HasArgs() || f.WithParam {
		t.Errorf("its fire is %+v", f)
	}
	if q.Full(3, TriggerArgs{}) || !q.Full(2, TriggerArgs{}) {
		t.Error("two triggers fill a queue of two, and not of three")
	}
	if empty := q.Rest(5); empty.Data() != nil || len(ParseQueue(empty.Data(), 1).Triggers) != 0 {
		t.Errorf("%+v is not empty", empty)
	}
	long := strings.Repeat("x", MaxTriggerArg)
	for n := 0; !q.Full(1000, TriggerArgs{Param: &long}); n++ {
		if q = q.With(TriggerArgs{Param: &long}); n > 100 || len(q.Data()) > maxQueue {
			t.Fatalf("%d triggers take %d bytes", n, len(q.Data()))
		}
	}
}

// FuzzQueue: what cannot be read is no queue, and what is read is read again as it is written.
func FuzzQueue(f *testing.F) {
	for _, data := range []string{"", "{}", `{"triggers":[{"number":5,"args":{"param":"a"}},{}]}`, `{"triggers":[null,{"args":{"items":"x"}}]}`, `{"triggers":[{"number":"5"}]}`} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		q := ParseQueue(data, 7)
		again := ParseQueue(q.Data(), 8)
		if len(again.Triggers) != len(q.Triggers) {
			t.Fatalf("%q: %+v is read as %+v", data, q, again)
		}
		for n, trigger := range q.Triggers {
			if a := again.Triggers[n]; !a.Args.Same(trigger.Args) || (a.Number != trigger.Number && n < len(q.Triggers)-1) {
				t.Fatalf("%q: trigger %d, %+v, is read as %s", data, n, trigger, fmt.Sprint(a))
			}
		}
	})
}
