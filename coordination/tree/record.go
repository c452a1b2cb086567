package tree

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/reason"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Fire identifies one firing of a job: by its scheduled instant, or by the number of a trigger round.
type Fire struct {
	// Instant is the scheduled time in Unix milliseconds. For a trigger it is the time at which this host saw
	// it, or the instant in the trigger's arguments.
	Instant int64 `json:"instant"`
	// Trigger is the number of the round (see coordination.Member.TriggerRound), 0
	// for a scheduled fire. It is the same on all hosts of the round.
	Trigger int64 `json:"trigger,omitempty"`
	// Source is one of abi.Source's values.
	Source string `json:"source"`
	// Only are the selected items of a trigger, as Ranges; empty: all.
	Only string `json:"only,omitempty"`
	// Param is the job's parameter in this fire, if the trigger set one (WithParam).
	WithParam bool   `json:"withParam,omitempty"`
	Param     string `json:"param,omitempty"`
	// Given is set if the trigger set Instant, Backfill if a backfill made it: see [Backfill].
	Given    bool `json:"given,omitempty"`
	Backfill bool `json:"backfill,omitempty"`
	// Queued is the number under which the trigger of the round was queued; 0 if it was not.
	Queued int64 `json:"queued,omitempty"`
}

// Time returns the instant.
func (f Fire) Time() time.Time { return time.UnixMilli(f.Instant) }

// HasArgs reports whether the fire's trigger selected items, set a parameter or an instant, or was queued: then
// no other fire can stand for it.
func (f Fire) HasArgs() bool { return f.Only != "" || f.WithParam || f.Given || f.Queued != 0 }

// Total returns how many items the fire is for, in a job of items.
func (f Fire) Total(items int) int {
	if only, err := ParseRanges(f.Only); err == nil && len(only) > 0 {
		return min(only.Len(), items)
	}
	return items
}

// ID is "2026-03-01T10:00:00.000Z", or "t" and the round's number.
func (f Fire) ID() string {
	if f.Trigger != 0 {
		return "t" + strconv.FormatInt(f.Trigger, 10)
	}
	return f.Time().UTC().Format("2006-01-02T15:04:05.000Z")
}

// Same reports whether both are one firing, whatever their source.
func (f Fire) Same(g Fire) bool {
	if f.Trigger != 0 || g.Trigger != 0 {
		return f.Trigger == g.Trigger
	}
	return f.Instant == g.Instant
}

// RunID is job/instant/item, unique for every item of every fire.
func RunID(job string, f Fire, item int) string {
	return job + "/" + f.ID() + "/" + strconv.Itoa(item)
}

// Record is the stored state of a sharding item: node sharding/{i} of our tree. Every begin and completion sets
// it, so that its version guards the writes of the run's owner, and the transaction number of the begin is the
// run's fence token.
type Record struct {
	// Owner is the instance that last began the item.
	Owner string `json:"owner,omitempty"`
	// Instant is the newest scheduled instant that was begun, or that came due while the item or the servers
	// were disabled, or the time at which the item was created, in Unix milliseconds. No instant up to it ever
	// begins again, except by failover.
	Instant int64 `json:"instant"`
	// Trigger is the newest trigger round that was begun.
	Trigger int64 `json:"trigger,omitempty"`
	// After is the transaction that wrote the previous record, if known; once the run has ended or was killed,
	// the run's fence. Package fence compares the two.
	After int64 `json:"after,omitempty"`
	// Begun and Ended are the times of the newest run, Unix milliseconds.
	// Ended is 0 while the run is open.
	Begun  int64  `json:"begun,omitempty"`
	Ended  int64  `json:"ended,omitempty"`
	Source string `json:"source,omitempty"`
	// Outcome of the newest run: one of abi.Outcome's values, LOST when its host died and failover was off,
	// HELD when the item is held back because of it, empty while it is open.
	Outcome string `json:"outcome,omitempty"`
	// Reason explains the outcome if necessary: who killed the run, or the first line of a failed run's
	// message.
	Reason string `json:"reason,omitempty"`
	// Failures counts the newest runs in a row that were not OK; runs that an operator ended or that were lost
	// do not count.
	Failures int `json:"failures,omitempty"`
	// Failing is when the first of those runs ended, Unix milliseconds; 0: there is none, or a host of an
	// earlier version has written the record since.
	Failing int64 `json:"failing,omitempty"`
	// Succeeded is when the last OK run ended, Unix milliseconds, unless it is the newest: then Ended has it.
	// 0: unknown.
	Succeeded int64 `json:"succeeded,omitempty"`
	// Deaths counts the hosts that have died in a row in runs of the item; the next completion resets it to 0.
	// Died are the ids of the newest of them, at most maxDied, oldest first, separated by blanks.
	Deaths int    `json:"deaths,omitempty"`
	Died   string `json:"died,omitempty"`
	// Held is since when the item does not begin, Unix milliseconds, because Deaths reached the job's limit; 0:
	// it is not held.
	Held int64 `json:"held,omitempty"`
	// Back is a scheduled instant that was begun and handed back, because it had not run or because the item
	// moves, Unix milliseconds: its next owner runs it, or a newer one. It counts while it is after Instant;
	// the next begin resets it to 0. BackTrigger is the same for a trigger round.
	Back        int64 `json:"back,omitempty"`
	BackTrigger int64 `json:"backTrigger,omitempty"`
	// BackArgs is used instead of BackTrigger if the trigger set the parameter BackParam, or the instant
	// BackAt, in Unix milliseconds: hosts of earlier versions, which would run it without, see none. BackBare
	// is set if it set no parameter, BackFill if it belongs to a backfill.
	BackArgs  int64  `json:"backArgs,omitempty"`
	BackParam string `json:"backParam,omitempty"`
	BackAt    int64  `json:"backAt,omitempty"`
	BackBare  bool   `json:"backBare,omitempty"`
	BackFill  bool   `json:"backFill,omitempty"`
	// Again is the earliest time of the next begin, Unix milliseconds, because the guest of the newest run
	// asked to run again then: its fire is Back, BackTrigger or BackArgs. The next begin resets it to 0. Hosts
	// of earlier versions do not wait for it.
	Again int64 `json:"again,omitempty"`
	// Owed are scheduled instants after Instant that the item must still run one by one: Unix milliseconds,
	// ascending, separated by blanks. It is set only for a job whose instants wait in a queue. Up to OwedTo the
	// list is complete: an instant that is not in it has its run, or its reason. 0 means up to Instant.
	Owed   string `json:"owed,omitempty"`
	OwedTo int64  `json:"owedTo,omitempty"`
	// Runs counts the scheduled instants that began and were not handed back, since the job has a limit of
	// them; 0 without a limit.
	Runs int `json:"runs,omitempty"`
	// Kill is an operator's request to end the open run; zero: none.
	Kill Kill `json:"kill,omitzero"`
	// Former is the run before the newest, if another instance began the newest: the former owner finds its
	// outcome here if it missed the answer to its completion.
	Former Former `json:"former,omitzero"`
}

// Former is what a [Record] keeps of the run before the newest.
type Former struct {
	Owner   string `json:"owner"`
	Begun   int64  `json:"begun"`
	Ended   int64  `json:"ended,omitempty"`
	Outcome string `json:"outcome,omitempty"`
}

// maxDied is how many hosts that died a record names.
const maxDied = 3

// Open reports whether a run was begun and is not completed.
func (r Record) Open() bool { return r.Begun != 0 && r.Ended == 0 }

// Accepts returns nil if the fire may begin after this record, or why not. Failover, which repeats an open run,
// does not call it.
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

// Begin returns the record of a run that owner begins for a fire; now is Unix milliseconds. The previous run
// becomes Former if another instance began it.
func (r Record) Begin(owner string, f Fire, now int64) Record {
	n := Record{Owner: owner, Instant: r.Instant, Trigger: r.Trigger, After: r.After, Begun: now, Source: f.Source, Deaths: r.Deaths, Died: r.Died,
		Failures: r.Failures, Failing: r.Failing, Succeeded: r.LastOK(), Runs: r.Runs}
	if f.Trigger != 0 {
		n.Trigger = max(f.Trigger, r.Trigger)
	} else {
		n.Instant = max(f.Instant, r.Instant)
	}
	if r.Begun != 0 && r.Owner != "" && r.Owner != owner {
		n.Former = Former{Owner: r.Owner, Begun: r.Begun, Ended: r.Ended, Outcome: r.Outcome}
	}
	return n.Owes(r.OwedInstants(), r.OwedTo)
}

// Owes returns the record with the scheduled instants that the item must still run, ascending, in Unix
// milliseconds; up to to the list is complete. Instants not after Instant are omitted.
func (r Record) Owes(instants []int64, to int64) Record {
	r.Owed, r.OwedTo = "", 0
	var text []byte
	for _, at := range instants {
		if at <= r.Instant {
			continue
		}
		if len(text) > 0 {
			text = append(text, ' ')
		}
		text = strconv.AppendInt(text, at, 10)
		to = max(to, at)
	}
	if r.Owed = string(text); to > r.Instant {
		r.OwedTo = to
	}
	return r
}

// OwedInstants returns the instants of Owed, ascending, without unreadable ones.
func (r Record) OwedInstants() (instants []int64) {
	for text := range strings.FieldsSeq(r.Owed) {
		at, err := strconv.ParseInt(text, 10, 64)
		if err == nil && at > r.Instant && (len(instants) == 0 || at > instants[len(instants)-1]) && len(instants) < jobconfig.MaxQueue {
			instants = append(instants, at)
		}
	}
	return instants
}

// Follow notes the transaction that wrote the previous record.
func (r Record) Follow(zxid int64) Record {
	r.After = max(r.After, zxid)
	return r
}

// Killed returns the record of an open run that an operator kills. zxid is the transaction that wrote the
// previous record.
func (r Record) Killed(k Kill, zxid int64) Record {
	if !r.Kill.Asked() { // otherwise After is the fence already
		r = r.Follow(zxid)
	}
	r.Kill = k
	return r
}

// Token returns the fence of an open run; zxid is the transaction that wrote the record.
func (r Record) Token(zxid int64) int64 {
	if r.Kill.Asked() {
		return r.After
	}
	return zxid
}

// EndKilled closes a run that an operator has killed and whose host does not end it; how, added to the kill's
// reason, says why not. now is Unix milliseconds.
func (r Record) EndKilled(how reason.Code, now int64) Record {
	return r.End(OutcomeCancelled, reason.New(how, r.Kill.Reason()).String(), max(now, r.Begun+1))
}

// Fire returns the newest run's fire. After a takeover it is unknown whether it was a trigger.
func (r Record) Fire() Fire {
	id := Fire{Instant: r.Instant, Source: r.Source}
	if r.Source == sourceTrigger || r.Source == SourceBackfill {
		id.Trigger = r.Trigger
	}
	return id
}

// IsOf reports whether the fire is the newest of its kind that was begun.
func (r Record) IsOf(f Fire) bool {
	if f.Trigger != 0 {
		return f.Trigger == r.Trigger
	}
	return f.Instant == r.Instant
}

// HandBack closes a run so that the fire may begin once more: it did not run, or continues with the item's next
// owner.
func (r Record) HandBack(f Fire) Record {
	r.Ended, r.Outcome, r.Kill = r.Begun, OutcomeCancelled, Kill{}
	if f.WithParam || f.Given {
		r.Trigger, r.BackArgs, r.BackParam = min(r.Trigger, f.Trigger-1), f.Trigger, f.Param
		r.BackBare = !f.WithParam
		if r.BackFill = f.Backfill; f.Given {
			r.BackAt = f.Instant
		}
	} else if f.Trigger != 0 {
		r.Trigger, r.BackTrigger = min(r.Trigger, f.Trigger-1), f.Trigger
	} else if f.Instant != 0 {
		r.Instant, r.Back, r.Runs = min(r.Instant, f.Instant-1), f.Instant, max(r.Runs-1, 0)
	}
	return r
}

// Postpone closes a run whose guest asks to run again at a time, in Unix milliseconds: the fire may begin again
// then.
func (r Record) Postpone(f Fire, at int64, reason string) Record {
	r = r.HandBack(f)
	r.Again, r.Reason = at, reason
	return r
}

// Hasten lets the item begin before the time that its guest asked for.
func (r Record) Hasten() Record {
	r.Again = 0
	return r
}

// LastOutcome is the outcome of the newest run, empty if it has not ended. A run whose guest asked to be run again later is handed back, and noted as
// cancelled; here it is what it was.
func (r Record) LastOutcome() string {
	if r.Again != 0 && !r.Open() && r.Outcome == OutcomeCancelled {
		return outcomeRetryAt
	}
	return r.Outcome
}

// NotBefore is before when the item does not begin, Unix milliseconds; 0: it may begin. What is further from now than a guest
// may ask for was written by a wrong clock.
func (r Record) NotBefore(now int64) int64 {
	if r.Open() || r.Again <= now || r.Again > now+furthestAgain.Milliseconds() {
		return 0
	}
	return r.Again
}

// furthestAgain is abi.MaxRetryAt plus the largest difference of two clocks.
const furthestAgain = 30*24*time.Hour + time.Hour

// HandedBackTrigger returns a trigger round that was begun and handed back, with its parameter and instant; 0
// if there is none.
func (r Record) HandedBackTrigger() (round int64, args TriggerArgs) {
	if r.Open() {
		return 0, args
	}
	if r.BackArgs > r.Trigger {
		args.At, args.Backfill = r.BackAt, r.BackFill
		if !r.BackBare {
			args.Param = &r.BackParam
		}
		return r.BackArgs, args
	}
	if r.BackTrigger > r.Trigger {
		return r.BackTrigger, args
	}
	return 0, args
}

// IsHandedBack reports whether the newest run was handed back, so that its fire is due.
func (r Record) IsHandedBack() bool {
	round, _ := r.HandedBackTrigger()
	return round != 0 || r.HandedBack() != 0
}

// HandedBack returns a scheduled instant that was handed back and is due; 0 if there is none.
func (r Record) HandedBack() int64 {
	if r.Open() || r.Back <= r.Instant {
		return 0
	}
	return r.Back
}

// End closes a run that its host, or a Java host, has completed.
func (r Record) End(outcome, reason string, now int64) Record {
	r.Ended, r.Outcome, r.Reason, r.Kill = now, outcome, reason, Kill{}
	r.Deaths, r.Died = 0, ""
	switch outcome {
	case outcomeOK:
		r.Failures, r.Failing, r.Succeeded = 0, 0, 0
	case OutcomeCancelled, OutcomeElsewhere:
	default:
		if r.Failures == 0 {
			r.Failing = now
		}
		r.Failures++
	}
	return r
}

// LastOK is when the last OK run ended, Unix milliseconds; 0: unknown.
func (r Record) LastOK() int64 {
	if r.Outcome == outcomeOK {
		return r.Ended
	}
	return r.Succeeded
}

// NoteDeath counts the death of the newest run's host.
func (r Record) NoteDeath(host string) Record {
	names := append(strings.Fields(r.Died), host)
	r.Deaths, r.Died = r.Deaths+1, strings.Join(names[max(0, len(names)-maxDied):], " ")
	return r
}

// Lose closes a run that no host repeats.
func (r Record) Lose(now int64) Record {
	r.Ended, r.Outcome, r.Kill = now, OutcomeLost, Kill{}
	return r
}

// Hold closes a run that no host repeats, and holds the item back.
func (r Record) Hold(now int64) Record {
	r.Ended, r.Outcome, r.Held, r.Kill = now, OutcomeHeld, now, Kill{}
	return r
}

// Release lets the item begin again, for instants after the given one.
func (r Record) Release(instant int64) Record {
	r.Deaths, r.Died, r.Held = 0, "", 0
	r.Instant = max(r.Instant, instant)
	return r
}

// HeldBack returns why the item does not begin.
func (r Record) HeldBack(job string, item int) reason.Reason {
	hosts := reason.New(reason.AHost)
	if r.Deaths > 1 {
		hosts = reason.New(reason.HostsInARow, r.Deaths)
	}
	return reason.New(reason.HeldSince, time.UnixMilli(r.Held).UTC(), hosts, strings.ReplaceAll(r.Died, " ", ", "), words.Command("job release", job, "--item", strconv.Itoa(item)))
}

// Data is what the node holds, JSON.
func (r Record) Data() []byte {
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
	flag := func(text string, set bool) {
		if set {
			b = append(b, text...)
		}
	}
	b = append(b, `{"owner":`...)
	b = appendText(b, r.Owner)
	b = append(b, `,"instant":`...)
	b = strconv.AppendInt(b, r.Instant, 10)
	num(`,"trigger":`, r.Trigger)
	num(`,"after":`, r.After)
	num(`,"begun":`, r.Begun)
	num(`,"ended":`, r.Ended)
	text(`,"source":`, r.Source)
	text(`,"outcome":`, r.Outcome)
	text(`,"reason":`, r.Reason)
	num(`,"failures":`, int64(r.Failures))
	num(`,"failing":`, r.Failing)
	num(`,"succeeded":`, r.Succeeded)
	num(`,"deaths":`, int64(r.Deaths))
	text(`,"died":`, r.Died)
	num(`,"held":`, r.Held)
	num(`,"back":`, r.Back)
	num(`,"backTrigger":`, r.BackTrigger)
	num(`,"backArgs":`, r.BackArgs)
	text(`,"backParam":`, r.BackParam)
	num(`,"backAt":`, r.BackAt)
	flag(`,"backBare":true`, r.BackBare)
	flag(`,"backFill":true`, r.BackFill)
	num(`,"again":`, r.Again)
	text(`,"owed":`, r.Owed)
	num(`,"owedTo":`, r.OwedTo)
	num(`,"runs":`, int64(r.Runs))
	if r.Kill.Asked() {
		b = append(b, `,"kill":{"at":`...)
		b = strconv.AppendInt(b, r.Kill.At, 10)
		text(`,"by":`, r.Kill.By)
		num(`,"graceMs":`, r.Kill.Grace)
		b = append(b, '}')
	}
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

// ParseRecord reads a record leniently: an unreadable one, or a run without a host, counts as an item that
// never ran.
func ParseRecord(data []byte) Record {
	r, written := readRecord(data)
	if !written {
		if r = (Record{}); json.Unmarshal(data, &r) != nil {
			return Record{}
		}
	}
	if !FitsANode(r.Owner) {
		r.Owner = ""
		if r.Open() {
			r.Begun = 0
		}
	}
	if !r.Open() {
		r.Kill = Kill{}
	}
	return r
}

// SourceFailover is the source of a run that was taken over.
const SourceFailover = "failover"

// sourceTrigger is the source of a run that was triggered.
const sourceTrigger = "trigger"

// SourceBackfill is the source of a run of a backfill. Such a run has the number of a trigger round, too.
const SourceBackfill = "backfill"
