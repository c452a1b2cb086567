package coordination

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fire identifies one firing of a job: by its scheduled instant, or by the
// number of a trigger round.
type Fire struct {
	// Instant is the scheduled time in Unix milliseconds; for a trigger, the
	// registry's number of the round is in Trigger and Instant is the time at
	// which this host saw it.
	Instant int64 `json:"instant"`
	// Trigger is the number of the round (see TriggerRound), 0 for a scheduled
	// fire. It is the same on all hosts of the round.
	Trigger int64 `json:"trigger,omitempty"`
	// Source is one of abi.Source's values.
	Source string `json:"source"`
}

// Time returns the instant.
func (f Fire) Time() time.Time { return time.UnixMilli(f.Instant) }

// ID is "2026-03-01T10:00:00.000Z", or "t" and the round's number.
func (f Fire) ID() string {
	if f.Trigger != 0 {
		return "t" + strconv.FormatInt(f.Trigger, 10)
	}
	return f.Time().UTC().Format("2006-01-02T15:04:05.000Z")
}

// same reports whether both are one firing, whatever made it run.
func (f Fire) same(g Fire) bool {
	if f.Trigger != 0 || g.Trigger != 0 {
		return f.Trigger == g.Trigger
	}
	return f.Instant == g.Instant
}

// RunID is job/instant/item, unique for every item of every fire.
func RunID(job string, f Fire, item int) string {
	return job + "/" + f.ID() + "/" + strconv.Itoa(item)
}

// Record is what is remembered of a sharding item: node sharding/{i} of our
// tree. Every begin and completion sets it, so that its version guards what
// the owner of a run writes, and the transaction number of the begin is the
// run's fence token.
type Record struct {
	// Owner is the instance that last began the item.
	Owner string `json:"owner,omitempty"`
	// Instant is the newest scheduled instant that was begun, or the time at
	// which the item came to be, in Unix milliseconds. No instant up to it is
	// ever begun again, except by failover.
	Instant int64 `json:"instant"`
	// Trigger is the newest trigger round that was begun.
	Trigger int64 `json:"trigger,omitempty"`
	// Begun and Ended are the times of the newest run, Unix milliseconds.
	// Ended is 0 while the run is open.
	Begun  int64  `json:"begun,omitempty"`
	Ended  int64  `json:"ended,omitempty"`
	Source string `json:"source,omitempty"`
	// Outcome of the newest run: one of abi.Outcome's values, LOST when its
	// host died and failover was off, empty while it is open.
	Outcome string `json:"outcome,omitempty"`
	// Former is the run before the newest, if another instance began that: so
	// that it learns what became of it if it did not hear of its completion.
	Former Former `json:"former,omitzero"`
}

// Former is what a [Record] keeps of the run before the newest.
type Former struct {
	Owner   string `json:"owner"`
	Begun   int64  `json:"begun"`
	Ended   int64  `json:"ended,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

// OutcomeLost is the outcome of a run whose host died while failover was off.
const OutcomeLost = "LOST"

// Open reports whether a run was begun and is not completed.
func (r Record) Open() bool { return r.Begun != 0 && r.Ended == 0 }

// Accepts says whether the fire may begin after what is recorded, and if not
// why. Failover repeats an open run and is not asked.
func (r Record) Accepts(f Fire) error {
	if f.Trigger != 0 {
		if f.Trigger <= r.Trigger {
			return fmt.Errorf("trigger round %d has been run already (newest: %d)", f.Trigger, r.Trigger)
		}
		return nil
	}
	if f.Instant <= r.Instant {
		return fmt.Errorf("instant %s is not after the newest one begun, %s",
			f.Time().UTC().Format(time.RFC3339Nano), time.UnixMilli(r.Instant).UTC().Format(time.RFC3339Nano))
	}
	return nil
}

func (r Record) begin(owner string, f Fire, now int64) Record {
	n := Record{Owner: owner, Instant: r.Instant, Trigger: r.Trigger, Begun: now, Source: f.Source}
	if f.Trigger != 0 {
		n.Trigger = max(f.Trigger, r.Trigger)
	} else {
		n.Instant = max(f.Instant, r.Instant)
	}
	if r.Begun != 0 && r.Owner != "" && r.Owner != owner {
		n.Former = Former{Owner: r.Owner, Begun: r.Begun, Ended: r.Ended, Outcome: r.Outcome}
	}
	return n
}

// isOf reports whether the fire is the newest that was begun of its kind.
func (r Record) isOf(f Fire) bool {
	if f.Trigger != 0 {
		return f.Trigger == r.Trigger
	}
	return f.Instant == r.Instant
}

// handedBack closes a run of which nothing ran, so that the fire may begin
// once more.
func (r Record) handedBack(f Fire) Record {
	r.Ended, r.Outcome = r.Begun, OutcomeCancelled
	if f.Trigger != 0 {
		r.Trigger = min(r.Trigger, f.Trigger-1)
	} else if f.Instant != 0 {
		r.Instant = min(r.Instant, f.Instant-1)
	}
	return r
}

func (r Record) end(outcome string, now int64) Record {
	r.Ended, r.Outcome = now, outcome
	return r
}

func (r Record) data() []byte {
	b := make([]byte, 0, 160)
	num := func(key string, v int64) {
		if v != 0 {
			b = append(b, key...)
			b = strconv.AppendInt(b, v, 10)
		}
	}
	text := func(key, v string) {
		if v != "" {
			b = append(b, key...)
			b = appendText(b, v)
		}
	}
	b = append(b, `{"owner":`...)
	b = appendText(b, r.Owner)
	b = append(b, `,"instant":`...)
	b = strconv.AppendInt(b, r.Instant, 10)
	num(`,"trigger":`, r.Trigger)
	num(`,"begun":`, r.Begun)
	num(`,"ended":`, r.Ended)
	text(`,"source":`, r.Source)
	text(`,"outcome":`, r.Outcome)
	if r.Former != (Former{}) {
		b = append(b, `,"former":{"owner":`...)
		b = appendText(b, r.Former.Owner)
		num(`,"begun":`, r.Former.Begun)
		num(`,"ended":`, r.Former.Ended)
		text(`,"outcome":`, r.Former.Outcome)
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendText appends a string of JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, err := json.Marshal(s)
			if err != nil { // strings always marshal
				return append(b, `""`...)
			}
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// parseRecord reads a record leniently: what cannot be read is as if the item
// had never run, and so is a run of nobody.
func parseRecord(data []byte) Record {
	var r Record
	if json.Unmarshal(data, &r) != nil {
		return Record{}
	}
	if !fitsANode(r.Owner) {
		r.Owner = ""
		if r.Open() {
			r.Begun = 0
		}
	}
	return r
}

// Run is a set of items that one host has begun for one fire.
type Run struct {
	Fire
	Items Items `json:"items"`
	// Marked is set for runs whose running marks outlive their host: Java hosts
	// know of them.
	Marked bool `json:"marked,omitempty"`
}

// Runs is what one host has begun and not completed: node runs/{id}. While
// the host lives, resharding goes around these items; when it is gone, they
// are what is owed.
type Runs struct {
	Runs []Run `json:"runs,omitempty"`
	// Java is the id of a Java host that died, if a host of ours has written
	// down here what that left running. The node has another name then: Java
	// ids come back.
	Java string `json:"java,omitempty"`
	// Owed is all that was left when the first host took something over, and
	// Takers are those among which it was divided then: the n-th of Owed is for
	// the n-th of Takers, in turn. Of a host that lives both are empty.
	Owed   Items    `json:"owed,omitempty"`
	Takers []string `json:"takers,omitempty"`
}

func parseRuns(data []byte) (Runs, error) {
	var r Runs
	if len(data) == 0 {
		return r, nil
	}
	err := json.Unmarshal(data, &r)
	if err == nil && r.Java != "" && !fitsANode(r.Java) {
		err = fmt.Errorf("java: found %q, expected the id of an instance", shorten(r.Java))
	}
	return r, err
}

func (r Runs) data() []byte {
	if len(r.Runs) == 0 {
		return nil
	}
	b, err := json.Marshal(r)
	if err != nil { // numbers and strings always marshal
		return nil
	}
	return b
}

// Items are all items of all runs, ascending.
func (r Runs) Items() Items {
	var all Items
	for _, run := range r.Runs {
		all = append(all, run.Items...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// markedOf reports whether the item's running mark outlives the host.
func (r Runs) markedOf(item int) bool {
	for _, run := range r.Runs {
		if run.Items.Contains(item) {
			return run.Marked
		}
	}
	return false
}

// fireOf is the fire for which an item was begun; zero if it was not.
func (r Runs) fireOf(item int) Fire {
	for _, run := range r.Runs {
		if run.Items.Contains(item) {
			return run.Fire
		}
	}
	return Fire{}
}

// size is about the length of data, at most.
func (r Runs) size() int {
	n := 16
	for _, run := range r.Runs {
		n += 128 + 8*len(run.Items)
	}
	return n
}

func (r Runs) with(f Fire, marked bool, items Items) Runs {
	if len(items) == 0 {
		return r
	}
	n := r.without(items)
	for i := range n.Runs {
		if n.Runs[i].Fire == f && n.Runs[i].Marked == marked {
			merged := append(slices.Clone(n.Runs[i].Items), items...)
			slices.Sort(merged)
			n.Runs[i].Items = merged
			return n
		}
	}
	sorted := slices.Sorted(slices.Values(items))
	n.Runs = append(n.Runs, Run{Fire: f, Items: sorted, Marked: marked})
	return n
}

func (r Runs) without(items Items) Runs {
	drop := make(map[int]bool, len(items))
	for _, i := range items {
		drop[i] = true
	}
	n := Runs{Java: r.Java, Owed: r.Owed, Takers: r.Takers}
	for _, run := range r.Runs {
		var kept Items
		for _, i := range run.Items {
			if !drop[i] {
				kept = append(kept, i)
			}
		}
		if len(kept) > 0 {
			n.Runs = append(n.Runs, Run{Fire: run.Fire, Items: kept, Marked: run.Marked})
		}
	}
	return n
}

// Items is a set of sharding items, ascending. Its text form is ranges:
// "0-3,7".
type Items []int

// String returns the text form.
func (s Items) String() string {
	var b strings.Builder
	for n := 0; n < len(s); {
		last := n
		for last+1 < len(s) && s[last+1] == s[last]+1 {
			last++
		}
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(itoa(s[n]))
		if last > n {
			b.WriteByte('-')
			b.WriteString(itoa(s[last]))
		}
		n = last + 1
	}
	return b.String()
}

// Contains reports whether the item is in the set.
func (s Items) Contains(item int) bool {
	_, ok := slices.BinarySearch(s, item)
	return ok
}

// MaxItems bounds what a range may expand to: the largest sharding total count.
const MaxItems = 1_000_000

// ParseItems reads the text form. The result is ascending and has no
// duplicates.
func ParseItems(text string) (Items, error) {
	var s Items
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, okA := itemNumber(from)
		b, okB := itemNumber(to)
		if !okA || !okB || b < a || b >= MaxItems {
			return nil, fmt.Errorf("items %q: %q is not an item or a range such as 0-3 below %d", shorten(text), shorten(part), MaxItems)
		}
		if len(s)+b-a+1 > MaxItems {
			return nil, fmt.Errorf("items %q: more than %d", shorten(text), MaxItems)
		}
		for i := a; i <= b; i++ {
			s = append(s, i)
		}
	}
	slices.Sort(s)
	return slices.Compact(s), nil
}

func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// MarshalText and UnmarshalText make Items a string in JSON.
func (s Items) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form.
func (s *Items) UnmarshalText(text []byte) (err error) {
	*s, err = ParseItems(string(text))
	return err
}
