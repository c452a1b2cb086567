package engine

import (
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/coordination"
	"github.com/wasmjob/wasmjob/host/engine/run"
)

// offsets are the offsets that guests stage while they run, and that the loop writes.
type offsets struct {
	job     *access
	items   *items
	denials *denials
	at      time.Time // when to save what is staged; zero: nothing is
}

// save makes the offsets that streaming loops have staged durable, in one commit, at most once per offsetInterval.
func (o *offsets) save(now moment) {
	o.job.mail.mu.Lock()
	staged := o.job.mail.offsets
	o.job.mail.mu.Unlock()
	if staged && o.at.IsZero() {
		o.at = now.Add(offsetInterval)
	}
	if o.at.IsZero() || now.Before(o.at) || o.job.rests(now) {
		return
	}
	o.flush(now)
}

// flush makes the staged offsets durable now.
func (o *offsets) flush(now moment) {
	o.at = time.Time{}
	o.job.mail.mu.Lock()
	o.job.mail.offsets = false
	o.job.mail.mu.Unlock()

	saves := make(map[int]coordination.Ended)
	var saving []*run.Execution
	for n, it := range o.items.of {
		if it.run == nil {
			continue
		}
		save, staged, busy := it.run.Save()
		if busy { // left for next time
			o.at = now.Add(offsetInterval)
		}
		if staged {
			saving = append(saving, it.run)
			saves[n] = save
		}
	}
	if len(saving) == 0 {
		return
	}
	out, err := coordination.SaveOffsets(o.job.work, o.job.member.Registry, o.job.member.Layout, saves)
	o.denials.note(now, "", out.Denied, o.job.log)
	for n := range out.Items {
		o.denials.end(n)
	}
	if len(out.Denied) > 0 {
		o.at = o.denials.next(now)
	}
	for _, e := range saving {
		if state, ok := out.Items[e.Item]; ok && err == nil {
			e.Saved(&state, false)
		} else {
			e.Saved(nil, slices.Contains(out.Lost, e.Item))
		}
	}
	if err != nil {
		o.job.failed(now, "saving offsets", err)
		o.at = now.Add(offsetInterval)
	}
}
