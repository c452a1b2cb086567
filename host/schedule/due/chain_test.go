package due

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// TestFollow: which fires of the jobs before are followed, and why others are not. An end is written as instant, how it
// ended, and when; a trigger's as t and its number, or the root after a slash.
func TestFollow(t *testing.T) {
	t.Parallel()
	const s, f, open = true, false, 0
	at := func(instant, ended int64, ok bool) tree.End {
		return tree.End{Instant: instant * 1000, First: 1, Ended: ended * 1000, Success: ok}
	}
	round := func(trigger, root, ended int64) tree.End {
		return tree.End{Instant: 1_000_000, Trigger: trigger, Root: root, First: 1, Ended: ended * 1000, Success: true}
	}
	before := func(job, on, within string, since int64, fires ...tree.End) Before {
		return Before{jobconfig.After{Job: job, On: on, Within: within}, tree.Ends{Since: since * 1000, Fires: fires}}
	}
	for _, tt := range []struct {
		name   string
		now    int64
		before []Before
		want   string
	}{
		{"one", 2000, []Before{before("a", "", "", 1, at(1000, 1010, s), at(1100, 1110, f), at(1200, open, f))}, "1000 due 1010; unmet 1100 job a failed, and after demands success; until 87605"},
		{"failure", 2000, []Before{before("a", "failure", "", 1, at(1000, 1010, s), at(1100, 1110, f))}, "1100 due 1110; unmet 1000 job a was a success, and after demands failure"},
		{"both", 2000, []Before{before("a", "", "", 1, at(1000, 1010, s), at(1100, 1110, s)), before("b", "always", "", 1, at(1000, 1050, f))}, "1000 due 1050; until 87505"},
		{"an instant that one does not have", 2000, []Before{before("a", "", "", 1, at(1000, 1010, s), at(1100, 1110, s)), before("b", "", "", 1, at(1100, 1150, s))}, "1100 due 1150; unmet 1000 job b had no fire for it"},
		{"not ended, between two that failed", 2000, []Before{before("a", "", "", 1, at(1000, 1010, f), at(1100, 1110, f), at(1200, open, f), at(1300, 1310, f))},
			"unmet 1000 job a failed, and after demands success; unmet 1100 job a failed, and after demands success; apart, unmet 1300 job a failed, and after demands success; until 87605"},
		{"late", 1064, []Before{before("a", "", "", 1, at(1000, 1010, s)), before("b", "", "1m", 1)}, "until 1065"},
		{"too late", 1065, []Before{before("a", "", "", 1, at(1000, 1010, s)), before("b", "", "1m", 1)}, "late 1000 job b had not ended 1m after the instant"},
		{"it ended too late", 1500, []Before{before("a", "", "1m", 1, at(1000, 1061, s))}, "late 1000 job a had not ended 1m after the instant"},
		{"not noted by all", 1500, []Before{before("a", "", "", 1, at(1000, 1010, s)), before("b", "", "", 1001)}, ""},
		{"not told yet", 1500, []Before{before("a", "", "", 1, at(1000, 1010, s)), before("b", "", "", 0)}, ""},
		{"triggers", 2000, []Before{before("a", "", "", 1, round(7, 5, 1010), round(9, 0, 1020)), before("b", "", "", 1, round(8, 5, 1030))}, "round 5; until 87405"},
	} {
		got := Follow(time.UnixMilli(tt.now*1000), tt.before)
		var list []string
		for _, x := range got.Starts {
			list = append(list, fmt.Sprint(x.At.Unix(), " due ", x.Due.Unix()))
		}
		for _, x := range got.Rounds {
			list = append(list, fmt.Sprint("round ", x.Root))
		}
		for _, x := range got.Unmet {
			word := "unmet"
			if x.Late {
				word = "late"
			}
			if x.Apart {
				word = "apart, " + word
			}
			list = append(list, fmt.Sprint(word, " ", x.Fire.Instant/1000, " ", x.Reason))
		}
		if !got.At.IsZero() {
			list = append(list, fmt.Sprint("until ", got.At.Unix()))
		}
		if text := strings.Join(list, "; "); text != tt.want {
			t.Errorf("%s: %s\nwant %s", tt.name, text, tt.want)
		}
	}
}

// TestListed: an instant that is given late comes due then, also if a clock has passed it.
func TestListed(t *testing.T) {
	t.Parallel()
	sec := func(n int64) time.Time { return time.Unix(n, 0) }
	var c Calendar
	if c.Extend(NewListed(nil)) {
		t.Error("the first list has grown")
	}
	c.Arm(sec(100))
	if c.Due(sec(200)) {
		t.Error("nothing is due")
	}
	c.Extend(NewListed([]Start{{sec(50), sec(205)}}))
	if !c.Due(sec(205)) || c.Due(sec(204)) || c.Delay(sec(50)) != 155*time.Second {
		t.Errorf("next %v, delay %v", c.Next, c.Delay(sec(50)))
	}
	if at, skip := c.Take(sec(205), sec(10), true); !at.Equal(sec(50)) || skip != nil || !c.Next.IsZero() {
		t.Errorf("took %v, skip %v, next %v", at, skip, c.Next)
	}
	// Two come at once: the newer one stands for the other. One that is not due holds up those after it.
	l := NewListed([]Start{{sec(80), sec(300)}, {sec(50), sec(205)}, {sec(60), sec(210)}, {sec(70), sec(220)}, {sec(90), sec(230)}})
	if c.Extend(l); !c.Next.Equal(sec(60)) {
		t.Errorf("next %v", c.Next)
	}
	if at, skip := c.Take(sec(250), sec(50), true); !at.Equal(sec(70)) || skip == nil || !skip.First.Equal(sec(60)) || !c.Next.Equal(sec(80)) {
		t.Errorf("took %v, skip %+v, next %v", at, skip, c.Next)
	}
	if !c.DueAt().Equal(sec(300)) || !l.Newest().Equal(sec(90)) || l.Jitter() != 220*time.Second || !l.Reached(sec(299)).Before(sec(80)) {
		t.Errorf("due at %v, newest %v, jitter %v", c.DueAt(), l.Newest(), l.Jitter())
	}
	// An item that is given to a host now is made up for: the window begins when the instant came due.
	c = Calendar{Window: 5 * time.Minute}
	c.Extend(NewListed([]Start{{sec(50), sec(5000)}}))
	c.Arm(sec(5010))
	if at, _ := c.CatchUp(sec(5010), sec(10), time.Time{}, true); !at.Equal(sec(50)) {
		t.Errorf("the catch-up is for %v", at)
	}
}
