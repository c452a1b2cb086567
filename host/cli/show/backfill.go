package show

import (
	"fmt"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/cli/terminal"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// mostBackfilled bounds the instants of a backfill that are shown: of more, those at the beginning and the end.
	mostBackfilled = 40
	// barWide is how many columns the bar of a backfill has.
	barWide = 30
)

// BackfillPlan lists what a backfill runs.
func BackfillPlan(s terminal.Style, job string, plan *service.BackfillPlan) string {
	t := terminal.NewTable(s, "N", "INSTANT", "ITEMS")
	left := len(plan.Instants) - mostBackfilled
	for n, at := range plan.Instants {
		switch {
		case left > 0 && n == mostBackfilled/2:
			t.Add(terminal.Plain("…"), terminal.Plain(words.Count(left, "instant")+" more"), terminal.Plain(""))
			continue
		case left > 0 && n > mostBackfilled/2 && n < mostBackfilled/2+left:
			continue
		}
		t.Add(terminal.Plain(fmt.Sprint(n+1)), terminal.Plain(at.Format(time.RFC3339)), terminal.Plain(fmt.Sprint(plan.Items)))
	}
	least := time.Duration(len(plan.Instants)-1) * plan.Every
	return t.String() + fmt.Sprintf("%s of %s with %s each, oldest first, one each %s at most: %s or more\n",
		words.Count(len(plan.Instants), "instant"), job, words.Count(plan.Items, "item"), words.Duration(plan.Every), words.Duration(least))
}

// Backfills shows the backfill of a job that goes on, and the last that has ended.
func Backfills(s terminal.Style, job string, all *service.Backfills) string {
	var b strings.Builder
	if all.Now == nil && all.Last == nil {
		return "no backfill of " + job + "\n"
	}
	for _, f := range []*engine.BackfillStatus{all.Now, all.Last} {
		if f == nil {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.Fact("Backfill", f.From.Format(time.RFC3339)+" to "+f.To.Format(time.RFC3339)))
		b.WriteString(s.Fact("Instants", fmt.Sprintf("%s %d of %d", bar(f.Done, f.Total), f.Done, f.Total)))
		for _, fact := range [][2]string{{"Items", f.Items}, {"Overlap", f.Overlap}, {"Every", words.Duration(f.Every)}, {"By", f.By}, {"Why", f.Why}, {"Began", f.Since.Format(time.RFC3339)}, {"Waits", f.Waits}, {"State", backfillState(f)}} {
			if fact[1] != "" {
				b.WriteString(s.Fact(fact[0], fact[1]))
			}
		}
	}
	return b.String()
}

// backfillState says whether a backfill goes on, and how it ended.
func backfillState(f *engine.BackfillStatus) string {
	switch {
	case f.Ended.IsZero() && !f.Newest.IsZero():
		return "goes on; the newest instant is " + f.Newest.Format(time.RFC3339)
	case f.Ended.IsZero():
		return "goes on"
	case f.Cancelled != "":
		return "cancelled " + f.Ended.Format(time.RFC3339) + " by " + f.Cancelled
	}
	return "ended " + f.Ended.Format(time.RFC3339)
}

// bar draws how many of how many are done.
func bar(done, total int) string {
	full := 0
	if total > 0 {
		full = barWide * min(done, total) / total
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat("-", barWide-full) + "]"
}
