package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/host/history/database"
)

var whole = flag.Bool("histories.whole", false, "play all seeds of the histories of many hosts, not every sixth")

// seeds returns every sixth seed below total, from another one on each day; make nightly
// plays all (-histories.whole). The subtest that fails is named by its seed.
func seeds(total uint64) []uint64 {
	first, step := uint64(time.Now().Unix()/(24*60*60))%6, uint64(6)
	if *whole {
		first, step = 0, 1
	}
	var list []uint64
	for seed := first; seed < total; seed += step {
		list = append(list, seed)
	}
	return list
}

// library is a host with a store; it answers as the API does.
type library struct {
	id     string
	store  *database.Store
	silent bool
}

func (l *library) peer() Peer {
	return Peer{l.id, tree.ClusterDetail{ServerIP: "10.0.0." + l.id, API: "http://" + l.id}}
}

func (l *library) answer(ctx context.Context, path string) (any, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, err
	}
	if u.Path == PathParts {
		return AnswerParts(ctx, l.store, u.Query())
	}
	f, err := ParseQuery(u.Query())
	if err != nil {
		return nil, err
	}
	switch u.Path {
	case PathFires:
		return l.store.Fires(ctx, f)
	case PathRuns:
		return l.store.Runs(ctx, f)
	case PathEvents:
		return l.store.Events(ctx, f)
	case PathLines:
		return l.store.Lines(ctx, f)
	case PathChanges:
		return l.store.Changes(ctx, f)
	}
	return nil, errors.New("no such path: " + path)
}

// libraries are histories over hosts, seen from one of them.
type libraries []*library

func newLibraries(t testing.TB, n int) (list libraries) {
	t.Helper()
	for i := range n {
		s, err := database.Open(context.Background(), database.Options{Config: database.InMemory()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		list = append(list, &library{id: fmt.Sprint(i), store: s})
	}
	return list
}

// settle returns when the stores have what they have taken.
func (list libraries) settle(t testing.TB) {
	t.Helper()
	for _, l := range list {
		l.store.Sync(t.Context())
	}
}

// from are the histories as host n finds them.
func (list libraries) from(n int) *Histories {
	return &Histories{
		waits: time.Hour, // those that are silent say so at once; the others may be slow
		Store: list[n].store, Self: list[n].peer,
		Peers: func() (peers []Peer) {
			for _, l := range list {
				if l != list[n] {
					peers = append(peers, l.peer())
				}
			}
			return peers
		},
		Get: func(ctx context.Context, p Peer, path string, into any) error {
			l := list[slices.IndexFunc(list, func(l *library) bool { return l.id == p.ID })]
			if l.silent {
				return errors.New("it does not answer")
			}
			v, err := l.answer(ctx, path)
			if err != nil {
				return err
			}
			data, err := json.Marshal(v)
			if err != nil {
				return err
			}
			return json.Unmarshal(data, into)
		},
	}
}

var began = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// pages reads all pages, each from another host, and has between run before each.
func pages[T any](t *testing.T, list libraries, f history.Filter, find func(*Histories, history.Filter) (Found[T], error), between func(page int)) (all []T) {
	t.Helper()
	seen := make(map[string]bool)
	for n := 0; ; n++ {
		between(n)
		found, err := find(list.from(n%len(list)), f)
		if err != nil {
			t.Fatalf("page %d of %+v: %v", n, f, err)
		}
		if len(found.Records) > f.Limit {
			t.Fatalf("a page of %d records, the limit is %d", len(found.Records), f.Limit)
		}
		all = append(all, found.Records...)
		if found.Next == "" {
			return all
		}
		if seen[found.Next] {
			t.Fatalf("the cursor %s comes again", found.Next)
		}
		seen[found.Next] = true
		f.After = found.Next
	}
}

// TestPagesOverHosts: each record that a filter finds is on one page, in the order of its
// time, whatever times are equal and whichever host is asked for a page.
func TestPagesOverHosts(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dice := rand.New(rand.NewPCG(seed, 2))
			list := newLibraries(t, 1+dice.IntN(4))
			spread := []int{1, 3, 30, 1000}[dice.IntN(4)] // times that there are
			var all []history.Line
			for n := range 200 {
				l := list[dice.IntN(len(list))]
				line := history.Line{Time: began.Add(time.Duration(dice.IntN(spread)) * time.Second), Job: fmt.Sprint("job", dice.IntN(3)), RunID: fmt.Sprint("r", n),
					Host: l.id, Item: dice.IntN(3), Message: fmt.Sprint("line ", n)}
				all = append(all, line)
				l.store.AddLine(line)
			}
			list.settle(t)
			for range 10 {
				f := history.Filter{Limit: 1 + dice.IntN(60), Oldest: dice.IntN(2) == 0}
				if dice.IntN(3) == 0 {
					f.Jobs = []string{"job1", "job2"}
				}
				if dice.IntN(3) == 0 {
					f.From = began.Add(time.Duration(dice.IntN(spread+1)) * time.Second)
				}
				if dice.IntN(3) == 0 {
					f.To = began.Add(time.Duration(dice.IntN(2*spread)+spread) * time.Second)
				}
				see := func(job string) bool { return job != "job2" }
				silent := -1 // a host that does not answer from some page on
				if len(list) > 1 && dice.IntN(3) == 0 {
					silent = dice.IntN(len(list))
				}
				var want []string
				for _, l := range all {
					if f.MatchLine(&l) && see(l.Job) {
						want = append(want, l.RunID)
					}
				}
				got := pages(t, list, f, func(h *Histories, f history.Filter) (Found[history.Line], error) { return h.Lines(t.Context(), f, see) }, func(page int) {
					for n, l := range list {
						l.silent = n == silent && page > 1
					}
				})
				for n := 1; n < len(got); n++ {
					if order := got[n-1].Time.Compare(got[n].Time); order != 0 && (order < 0) != f.Oldest {
						t.Fatalf("%+v: %s comes before %s", f, got[n-1].Time, got[n].Time)
					}
				}
				var ids []string
				for _, l := range got {
					ids = append(ids, l.RunID)
				}
				slices.Sort(ids)
				slices.Sort(want)
				if silent >= 0 { // its own pages are whole; of the others nothing is lost for it
					own := func(ids []string) []string {
						return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
							return slices.ContainsFunc(all, func(l history.Line) bool { return l.RunID == id && l.Host == fmt.Sprint(silent) })
						})
					}
					if len(slices.Compact(slices.Clone(ids))) != len(ids) {
						t.Fatalf("%+v: a record is there twice", f)
					}
					ids, want = own(ids), own(want)
				}
				if !slices.Equal(ids, want) {
					t.Fatalf("%+v: found %d records, want %d", f, len(ids), len(want))
				}
			}
		})
	}
}

// TestPagesOfSome: a page of records that may be seen, and its cursor, are the same with and
// without others before, between and behind them.
func TestPagesOfSome(t *testing.T) {
	t.Parallel()
	see := func(job string) bool { return job == "seen" }
	walk := func(others bool, f history.Filter) (got []string) {
		list := newLibraries(t, 2)
		for n := range 200 {
			l := history.Line{Time: began.Add(time.Duration(n) * time.Second), Job: "other", RunID: fmt.Sprint("r", n)}
			if n == 90 || n == 91 || n == 150 {
				l.Job = "seen"
			}
			if others || l.Job == "seen" {
				list[n%2].store.AddLine(l)
			}
		}
		list.settle(t)
		for {
			found, err := list.from(0).Lines(t.Context(), f, see)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range found.Records {
				got = append(got, l.RunID)
			}
			if got = append(got, found.Next); found.Next == "" {
				return got
			}
			f.After = found.Next
		}
	}
	for _, oldest := range []bool{false, true} {
		for limit := 1; limit <= 4; limit++ {
			f := history.Filter{Limit: limit, Oldest: oldest}
			if with, without := walk(true, f), walk(false, f); !slices.Equal(with, without) {
				t.Errorf("%+v: %q with others, %q without", f, with, without)
			}
		}
	}
}

// TestManyOfOneTime: more records of one time than a page, or a store's page, can have.
func TestManyOfOneTime(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	const each = 2500
	for n := range each {
		for _, l := range list {
			l.store.AddLine(history.Line{Time: began, Job: "a", RunID: fmt.Sprint("r", n), Host: l.id})
		}
	}
	list.settle(t)
	for _, limit := range []int{97, 999, history.MaxLimit} {
		got := pages(t, list, history.Filter{Limit: limit}, func(h *Histories, f history.Filter) (Found[history.Line], error) { return h.Lines(t.Context(), f, nil) }, func(int) {})
		seen := make(map[string]bool)
		for _, l := range got {
			seen[l.Host+l.RunID] = true
		}
		if len(got) != 2*each || len(seen) != 2*each {
			t.Errorf("limit %d: %d records, %d of them different; want %d", limit, len(got), len(seen), 2*each)
		}
	}
}

// TestFiresOverHosts: a fire is one record with all its parts, and on one page, however
// far apart its hosts began it.
func TestFiresOverHosts(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			dice := rand.New(rand.NewPCG(seed, 3))
			list := newLibraries(t, 2+dice.IntN(2))
			fires := make(map[history.FireKey][]history.Fire) // by parts
			for n := range 60 {
				instant := began.Add(time.Duration(n) * time.Minute)
				trigger := int64(0)
				if dice.IntN(4) == 0 {
					trigger = int64(n + 1)
				}
				item := 0
				for _, l := range list {
					if dice.IntN(4) == 0 {
						continue
					}
					at := instant.Add(time.Duration(dice.IntN(5)*dice.IntN(100)) * time.Second)
					e := event.Event{Time: at, Kind: event.FireStarted, Host: l.id, Job: fmt.Sprint("job", n%3), Instant: instant, Trigger: trigger, Source: abi.SourceSchedule,
						Items: []int{item, item + 1}, Total: 2 * len(list)}
					if trigger != 0 { // each host has its own time of it
						e.Instant, e.Source = at, abi.SourceTrigger
					}
					l.store.AddEvent(e)
					e.Kind, e.Time, e.Outcome = event.FireEnded, at.Add(time.Second), []abi.Outcome{abi.OutcomeOK, abi.OutcomeOK, abi.OutcomeFail}[dice.IntN(3)]
					l.store.AddEvent(e)
					var p history.Part
					e.Kind, e.Time = event.FireStarted, at
					p.Apply(e)
					e.Kind, e.Time = event.FireEnded, at.Add(time.Second)
					p.Apply(e)
					sum := history.Sum([]history.Part{p}, nil)
					fires[sum.Key()] = append(fires[sum.Key()], sum)
					item += 2
				}
			}
			list.settle(t)
			for range 10 {
				f := history.Filter{Limit: 1 + dice.IntN(20), Oldest: dice.IntN(2) == 0, Failed: dice.IntN(3) == 0, Running: dice.IntN(5) == 0}
				if dice.IntN(4) == 0 {
					f.Outcomes = []abi.Outcome{abi.OutcomeOK}
				}
				if dice.IntN(3) == 0 {
					f.From, f.To = began.Add(10*time.Minute), began.Add(40*time.Minute)
				}
				if dice.IntN(3) == 0 {
					f.Host = "1"
				}
				var want []history.Fire
				for _, parts := range fires {
					sum := parts[0]
					for _, p := range parts[1:] {
						sum = history.Join(sum, p)
					}
					of := f
					of.From, of.To = time.Time{}, time.Time{}
					if slices.ContainsFunc(parts, func(p history.Fire) bool { return f.MatchFire(&p) }) && of.MatchFire(&sum) {
						want = append(want, sum)
					}
				}
				got := pages(t, list, f, func(h *Histories, f history.Filter) (Found[history.Fire], error) { return h.Fires(t.Context(), f, nil) }, func(int) {})
				order := func(a, b history.Fire) int {
					return cmp.Or(strings.Compare(a.Job, b.Job), a.Instant.Compare(b.Instant), cmp.Compare(a.Trigger, b.Trigger))
				}
				slices.SortFunc(got, order)
				slices.SortFunc(want, order)
				if !reflect.DeepEqual(normal(got), normal(want)) {
					t.Fatalf("%+v: found %d fires, want %d\n%+v\n%+v", f, len(got), len(want), normal(got), normal(want))
				}
			}
		})
	}
}

// normal are fires as JSON, in which equal times are equal.
func normal(fires []history.Fire) []string {
	var list []string
	for _, f := range fires {
		data, _ := json.Marshal(f)
		list = append(list, string(data))
	}
	return list
}

// TestFireThatWasTakenOver: an item that a dead host began, and another one ended, does not
// run any more.
func TestFireThatWasTakenOver(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	e := event.Event{Time: began, Kind: event.FireStarted, Host: "0", Job: "a", Instant: began, Source: abi.SourceSchedule, Items: []int{0, 1}, Total: 2}
	list[0].store.AddEvent(e)
	e.Host, e.Time, e.Items, e.Source = "1", began.Add(time.Minute), []int{1, 0}, abi.SourceFailover
	list[1].store.AddEvent(e)
	e.Kind, e.Time, e.Outcome = event.FireEnded, began.Add(2*time.Minute), abi.OutcomeOK
	list[1].store.AddEvent(e)
	list.settle(t)
	found, err := list.from(0).Fires(t.Context(), history.Filter{}, nil)
	if err != nil || len(found.Records) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if f := found.Records[0]; f.Running != 0 || f.Succeeded != 2 || f.Source != abi.SourceSchedule || !f.Ended.Equal(began.Add(2*time.Minute)) || f.Duration != 2*time.Minute || strings.Join(f.Hosts, " ") != "0 1" {
		t.Errorf("%+v", f)
	}
}

// TestFireOfHostThatIsBack: an item that another host has taken over counts as what became of it there, also
// when the host that began it is back and has a file in which it never ended, or ended with its session;
// whichever of the hosts began first, and whatever else they have of the fire.
func TestFireOfHostThatIsBack(t *testing.T) {
	t.Parallel()
	for what, cancelled := range map[string]bool{"killed": false, "without its session": true} {
		for _, firstBegins := range []int{0, 1} {
			t.Run(fmt.Sprint(what, " ", firstBegins), func(t *testing.T) {
				t.Parallel()
				list := newLibraries(t, 3)
				say := func(host, seconds int, kind event.Kind, item int, fence int64, change func(*event.Event)) {
					e := event.Event{Kind: kind, Job: "a", Instant: began, Trigger: 7, Source: abi.SourceTrigger, Time: began.Add(time.Duration(seconds) * time.Second), Host: fmt.Sprint(host, "@-@1-x")}
					if e.Items, e.Total = []int{item}, 3; kind != event.FireStarted && kind != event.FireEnded {
						e.Items, e.Total, e.Item, e.RunID, e.Fence, e.Attempt = nil, 0, &item, fmt.Sprint("a/t7/", item), fence, 1
					}
					if change != nil {
						change(&e)
					}
					list[host].store.AddEvent(e)
				}
				ok := func(e *event.Event) { e.Outcome = abi.OutcomeOK }
				taken := func(e *event.Event) { e.Source = abi.SourceFailover }
				for item := range 2 {
					at := 1 + (item+firstBegins)%2
					say(item, at, event.FireStarted, item, 0, nil)
					say(item, at, event.ItemStarted, item, 5, nil)
				}
				say(0, 2, event.FireStarted, 2, 0, nil) // another item, which ended well
				say(0, 2, event.ItemStarted, 2, 5, nil)
				say(0, 3, event.ItemEnded, 2, 5, ok)
				say(0, 3, event.ItemCompleted, 2, 5, ok)
				if cancelled {
					say(0, 4, event.ItemEnded, 0, 5, func(e *event.Event) { e.Outcome, e.Reason = abi.OutcomeCancelled, "no session" })
				}
				say(1, 5, event.FireStarted, 0, 0, taken)
				say(1, 5, event.ItemStarted, 0, 6, taken)
				for item := range 2 {
					say(1, 20, event.ItemEnded, item, int64(6-item), ok)
					say(1, 20, event.ItemCompleted, item, int64(6-item), ok)
				}
				say(1, 20, event.FireEnded, 0, 0, ok)
				list[0].store.AddEvent(event.Event{Time: began.Add(time.Hour), Kind: event.HostStarted, Host: "0@-@2"})
				list.settle(t)
				for n := range list {
					found, err := list.from(n).Fires(t.Context(), history.Filter{}, nil)
					if err != nil || len(found.Records) != 1 {
						t.Fatalf("%+v, %v", found, err)
					}
					if f := found.Records[0]; f.Succeeded != 3 || f.Failed+f.Unknown+f.Running != 0 || f.Outcome != abi.OutcomeOK || f.Message != "" || f.Source != abi.SourceTrigger ||
						!f.Ended.Equal(began.Add(20*time.Second)) || f.Duration != 19*time.Second || len(f.Hosts) != 2 || len(f.Items) != 3 {
						t.Errorf("from host %d: %+v", n, f)
					}
					if found, err := list.from(n).Fires(t.Context(), history.Filter{Failed: true}, nil); err != nil || len(found.Records) != 0 {
						t.Errorf("failed from host %d: %+v, %v", n, found.Records, err)
					}
				}
			})
		}
	}
}

// TestFireThatWasTakenOver_waits: an item that another host has taken over counts as what became of it there, also
// while that host has items that wait for a worker. They count as running.
func TestFireThatWasTakenOver_waits(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	say := func(host int, kind event.Kind, fence int64, outcome abi.Outcome, items ...int) {
		e := event.Event{Kind: kind, Job: "a", Instant: began, Source: abi.SourceSchedule, Time: began.Add(time.Duration(fence) * time.Second), Host: fmt.Sprint(host, "@-@1-x"), Outcome: outcome}
		if kind == event.FireStarted || kind == event.FireEnded {
			e.Items, e.Total = items, 3
		} else {
			e.Item, e.RunID, e.Fence, e.Attempt = &items[0], tree.RunID("a", tree.Fire{Instant: began.UnixMilli()}, items[0]), fence, 1
		}
		list[host].store.AddEvent(e)
	}
	say(0, event.FireStarted, 1, "", 0)
	say(0, event.ItemStarted, 1, "", 0)
	say(0, event.ItemEnded, 1, abi.OutcomeCancelled, 0) // with its session
	say(0, event.FireEnded, 1, abi.OutcomeCancelled, 0)
	say(1, event.FireStarted, 2, "", 1, 2)
	say(1, event.ItemStarted, 2, "", 1)
	say(1, event.FireStarted, 3, "", 0)
	say(1, event.ItemStarted, 3, "", 0)
	say(1, event.ItemEnded, 3, abi.OutcomeOK, 0)
	say(1, event.FireEnded, 3, abi.OutcomeOK, 0)
	list.settle(t)
	for n := range list {
		found, err := list.from(n).Fires(t.Context(), history.Filter{Running: true}, nil)
		if err != nil || len(found.Records) != 1 {
			t.Fatalf("%+v, %v", found, err)
		}
		if f := found.Records[0]; f.Succeeded != 1 || f.Running != 2 || f.Cancelled+f.Failed+f.Unknown != 0 || f.Outcome != abi.OutcomeOK || !f.Ended.IsZero() {
			t.Errorf("from host %d: %+v", n, f)
		}
	}
}

// TestRunThatWasTakenOver: a run that hosts have records of is one, on one page, as the host has it
// that had it last, whatever the others say of it.
func TestRunThatWasTakenOver(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 3)
	item, id := 1, "a/2026-03-01T03:00:00.000Z/1"
	base := event.Event{Kind: event.ItemStarted, Job: "a", Instant: began, Source: abi.SourceSchedule, Item: &item, RunID: id, Attempt: 1}
	say := func(host int, after time.Duration, change func(*event.Event)) {
		e := base
		e.Host, e.Time = fmt.Sprint(host, "@-@1-x"), began.Add(after)
		change(&e)
		list[host].store.AddEvent(e)
	}
	start := func(host int, after time.Duration, id string, instant time.Time, fence int64, source abi.Source) {
		say(host, after, func(e *event.Event) { e.RunID, e.Instant, e.Fence, e.Source = id, instant, fence, source })
	}
	fire := func(host int, after time.Duration, kind event.Kind, source abi.Source) {
		say(host, after, func(e *event.Event) {
			e.Kind, e.Source, e.Items, e.Item, e.RunID, e.Attempt = kind, source, []int{1}, nil, "", 0
		})
	}
	fire(0, 2*time.Second, event.FireStarted, abi.SourceSchedule)
	start(0, 2*time.Second, id, began, 5, abi.SourceSchedule)
	fire(1, time.Minute, event.FireStarted, abi.SourceFailover)
	start(1, time.Minute, id, began, 6, abi.SourceFailover)
	say(1, 2*time.Minute, func(e *event.Event) {
		e.Kind, e.Fence, e.Source, e.Outcome = event.ItemEnded, 6, abi.SourceFailover, abi.OutcomeOK
	})
	for n := range 20 { // between the two
		other := began.Add(time.Duration(n+3) * time.Second)
		start(n%3, 4*time.Second+time.Duration(n)*time.Second, "a/"+other.Format("2006-01-02T15:04:05.000Z")+"/1", other, 1, abi.SourceSchedule)
	}
	// Another one is given up by a host that never had it.
	lost := began.Add(-time.Hour)
	lostID := "a/2026-03-01T02:00:00.000Z/1"
	start(0, -time.Hour, lostID, lost, 4, abi.SourceSchedule)
	say(2, -time.Minute, func(e *event.Event) {
		e.Kind, e.RunID, e.Instant, e.Attempt, e.Outcome, e.Cause, e.Reason = event.ItemSkipped, lostID, lost, 0, history.Lost, event.SkipLost, "its host died"
	})
	list[0].store.AddEvent(event.Event{Time: began.Add(time.Hour), Kind: event.HostStarted, Host: "0@-@2"})
	list.settle(t)
	for n, f := range []history.Filter{{Limit: 4}, {Limit: 4, Oldest: true}, {Limit: 50}} {
		got := pages(t, list, f, func(h *Histories, f history.Filter) (Found[history.Run], error) { return h.Runs(t.Context(), f, nil) }, func(int) {})
		byID := make(map[string][]history.Run)
		for i, r := range got {
			byID[r.ID] = append(byID[r.ID], r)
			if i > 0 && got[i-1].At().Before(r.At()) != f.Oldest && r.ID != lostID {
				t.Errorf("filter %d: %s stands where it does not belong", n, r.ID)
			}
		}
		if runs := byID[id]; len(got) != 22 || len(runs) != 1 || runs[0].Host != "1@-@1-x" || runs[0].Outcome != abi.OutcomeOK || runs[0].Lag != 2*time.Second ||
			!runs[0].First.Equal(began.Add(2*time.Second)) || !runs[0].Begun.Equal(began.Add(time.Minute)) {
			t.Errorf("filter %d: %d runs, the one that was taken over: %+v", n, len(got), runs)
		}
		if runs := byID[lostID]; len(runs) != 1 || runs[0].Host != "0@-@1-x" || runs[0].Outcome != history.Lost || runs[0].Message != "its host died" || !runs[0].Begun.Equal(lost) {
			t.Errorf("filter %d: the one that was given up: %+v", n, runs)
		}
	}
	for what, want := range map[string]struct {
		f     history.Filter
		found int
	}{"failed": {history.Filter{Failed: true}, 8}, "outcome": {history.Filter{Outcomes: []abi.Outcome{history.Unknown}}, 7}, "host that had it first": {history.Filter{Host: "0@-@1-x", Run: id}, 0},
		"host that had it last": {history.Filter{Host: "1@-@1-x", Run: id}, 1}} {
		if found, err := list.from(2).Runs(t.Context(), want.f, nil); err != nil || len(found.Records) != want.found {
			t.Errorf("%s: %d runs, want %d, %v", what, len(found.Records), want.found, err)
		}
	}
	if found, err := list.from(2).Fires(t.Context(), history.Filter{Instant: began}, nil); err != nil || len(found.Records) != 1 || found.Records[0].Unknown != 0 || found.Records[0].Outcome != abi.OutcomeOK ||
		!found.Records[0].Ended.Equal(began.Add(2*time.Minute)) {
		t.Errorf("the fire: %+v, %v", found.Records, err)
	}
	list[1].silent = true // what is known without it
	if found, err := list.from(2).Fires(t.Context(), history.Filter{Instant: began}, nil); err != nil || len(found.Records) != 1 || found.Records[0].Unknown != 1 || found.Records[0].Duration != 0 {
		t.Errorf("the fire as others know it: %+v, %v", found.Records, err)
	}
}

// TestRunThatWasRepeated: a run that its host began twice stands where it began first, among those of other
// hosts, too, and is on one page.
func TestRunThatWasRepeated(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	item := 0
	start := func(host, seconds int, id string, fence int64) {
		list[host].store.AddEvent(event.Event{Kind: event.ItemStarted, Job: "a", Instant: began, Source: abi.SourceSchedule, Item: &item, Host: fmt.Sprint(host, "@-@1-x"), Attempt: 1,
			RunID: id, Fence: fence, Time: began.Add(time.Duration(seconds) * time.Second)})
	}
	start(0, 10, "a/2026-03-01T03:00:00.000Z/0", 1)
	start(1, 20, "b/2026-03-01T03:00:00.000Z/0", 1)
	start(0, 30, "c/2026-03-01T03:00:00.000Z/0", 1)
	start(1, 40, "d/2026-03-01T03:00:00.000Z/0", 1)
	start(0, 50, "a/2026-03-01T03:00:00.000Z/0", 2)
	list.settle(t)
	for order, f := range map[string]history.Filter{"dcba": {Limit: 1}, "abcd": {Limit: 1, Oldest: true}} {
		got := ""
		for _, r := range pages(t, list, f, func(h *Histories, f history.Filter) (Found[history.Run], error) { return h.Runs(t.Context(), f, nil) }, func(int) {}) {
			got += r.ID[:1]
			if r.ID[0] == 'a' && (!r.First.Equal(began.Add(10*time.Second)) || !r.Begun.Equal(began.Add(50*time.Second))) {
				t.Errorf("%+v", r)
			}
		}
		if got != order {
			t.Errorf("found in the order %s, want %s", got, order)
		}
	}
}

// TestClocksApart: a fire of hosts whose clocks are an hour apart is one record, is on one
// page, and takes no negative time, also if an item went to a host that is behind.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	const apart = time.Hour
	for n := range 20 {
		instant := began.Add(time.Duration(n) * time.Minute)
		for i, l := range list {
			at := instant.Add(-time.Duration(i) * apart)
			e := event.Event{Time: at, Kind: event.FireStarted, Host: l.id, Job: "a", Instant: instant, Source: abi.SourceSchedule, Items: []int{i}, Total: 2}
			if i == 1 && n%2 == 0 { // what the other host has begun
				e.Items, e.Source = []int{0, 1}, abi.SourceFailover
			}
			l.store.AddEvent(e)
			if i == 0 && n%2 == 0 {
				continue // it died
			}
			e.Kind, e.Time, e.Outcome = event.FireEnded, at.Add(time.Second), abi.OutcomeOK
			l.store.AddEvent(e)
		}
	}
	list.settle(t)
	got := pages(t, list, history.Filter{Limit: 3}, func(h *Histories, f history.Filter) (Found[history.Fire], error) { return h.Fires(t.Context(), f, nil) }, func(int) {})
	seen := make(map[time.Time]bool)
	for _, f := range got {
		if seen[f.Instant] || len(f.Hosts) != 2 || f.Succeeded != 2 || f.Running != 0 || f.Duration < 0 || f.Ended.Before(f.Begun) {
			t.Errorf("%+v", f)
		}
		seen[f.Instant] = true
	}
	if len(got) != 20 {
		t.Errorf("%d fires, want 20", len(got))
	}
}

// silences remembers who does not answer.
type silences map[string]string

func (s silences) WhySilent(id string) string { return s[id] }
func (s silences) NoteSlow(id, why string)    { s[id] = why }

// TestSilentHistories: who does not answer is named, not waited for longer than a second, and
// then not again.
func TestSilentHistories(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 3)
	for _, l := range list {
		l.store.AddChange(history.Change{Time: began, Who: "ann", What: "trigger", Job: l.id})
	}
	list.settle(t)
	h := list.from(0)
	h.waits, h.Silences = 0, silences{}
	get := h.Get
	h.Get = func(ctx context.Context, p Peer, path string, into any) error {
		if p.ID == "1" {
			<-ctx.Done()
			return ctx.Err()
		}
		return get(ctx, p, path, into)
	}
	from := time.Now()
	found, err := h.Changes(t.Context(), history.Filter{}, nil)
	if took := time.Since(from); took < patience || took > 10*patience {
		t.Errorf("it took %s", took)
	}
	want := "10.0.0.1: " + errLate.Error()
	if err != nil || len(found.Records) != 2 || len(found.Silent) != 1 || found.Silent[0] != want || found.Next != "" {
		t.Errorf("%+v, %v", found, err)
	}
	h.waits = time.Hour
	found, err = h.Changes(t.Context(), history.Filter{}, nil)
	if err != nil || len(found.Records) != 2 || len(found.Silent) != 1 || found.Silent[0] != want {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestOneOfThreeIsSilent: the second that a page waits for a frozen host is not taken from
// others, and a fire of which a host has stopped to answer is one record all the same.
func TestOneOfThreeIsSilent(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]string{"from the beginning": PathFires, "after its page": PathParts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				list := newLibraries(t, 3)
				for n, l := range list {
					l.store.AddEvent(event.Event{Time: began.Add(time.Duration(n) * time.Second), Kind: event.FireStarted, Host: l.id, Job: "a", Instant: began, Source: abi.SourceSchedule, Items: []int{n}, Total: 3})
				}
				list.settle(t)
				h := list.from(0)
				h.waits = 0
				get := h.Get
				h.Get = func(ctx context.Context, p Peer, path string, into any) error {
					if p.ID == "1" && strings.HasPrefix(path, frozen) {
						<-ctx.Done()
						return ctx.Err()
					}
					if err := ctx.Err(); err != nil {
						t.Errorf("host %s is asked in vain: %v", p.ID, err)
					}
					return get(ctx, p, path, into)
				}
				from := time.Now()
				found, err := h.Fires(t.Context(), history.Filter{}, nil)
				if took := time.Since(from); took != patience {
					t.Errorf("it took %s", took)
				}
				if err != nil || len(found.Records) != 1 || len(found.Silent) != 1 || found.Silent[0] != "10.0.0.1: "+errLate.Error() {
					t.Fatalf("%+v, %v", found, err)
				}
				want := "0 1 2"
				if frozen == PathFires {
					want = "0 2"
				}
				if got := strings.Join(found.Records[0].Hosts, " "); got != want {
					t.Errorf("hosts %s, want %s", got, want)
				}
			})
		})
	}
}

// TestHostStopsAtParts: a page has as many records of the other hosts as are wanted, also if one
// that has more does not say what it knows of some.
func TestHostStopsAtParts(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	for n := range 16 { // all began on host 0, and an hour later on host 1
		instant := began.Add(time.Duration(n%8) * time.Minute)
		at := instant.Add(time.Duration(n/8) * time.Hour)
		list[n/8].store.AddEvent(event.Event{Time: at, Kind: event.FireStarted, Host: fmt.Sprint(n / 8), Job: "a", Instant: instant, Source: abi.SourceSchedule, Items: []int{n / 8}, Total: 2})
	}
	list.settle(t)
	h := list.from(0)
	get := h.Get
	h.Get = func(ctx context.Context, p Peer, path string, into any) error {
		if strings.HasPrefix(path, PathParts) {
			return errors.New("it ends")
		}
		return get(ctx, p, path, into)
	}
	found, err := h.Fires(t.Context(), history.Filter{Limit: 4}, nil)
	if err != nil || len(found.Records) != 4 || len(found.Silent) != 1 {
		t.Errorf("%d fires, silent %q, %v", len(found.Records), found.Silent, err)
	}
}

// TestRunsOfOlderHost: a host of an earlier version, which is not asked for runs by their ids, answers
// all the same: its runs are found, on as many pages as there are, and it is not called silent.
func TestRunsOfOlderHost(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	item := 0
	for n := range 30 {
		at := began.Add(time.Duration(n) * time.Second)
		e := event.Event{Kind: event.ItemStarted, Job: "a", Instant: at, Time: at, Source: abi.SourceSchedule, Item: &item, RunID: "a/" + at.Format("2006-01-02T15:04:05.000Z") + "/0", Fence: 1, Host: "1@-@1-x"}
		list[1].store.AddEvent(e)
	}
	list.settle(t)
	h := list.from(0)
	get := h.Get
	h.Get = func(ctx context.Context, p Peer, path string, into any) error {
		switch u, _ := url.Parse(path); {
		case u.Path == PathParts && len(u.Query()["fire"]) == 0: // it knows of no other parameter
			return json.Unmarshal([]byte("[]"), into)
		case u.Path == PathParts || u.Path == PathRuns:
			return get(ctx, p, path, into)
		}
		return errors.New("answers 404 Not Found")
	}
	found, err := h.Runs(t.Context(), history.Filter{Limit: 20}, nil)
	if err != nil || len(found.Records) != 20 || len(found.Silent) != 0 {
		t.Errorf("%d runs, silent %q, %v", len(found.Records), found.Silent, err)
	}
}

// TestChangesOfOlderHost: a host of an earlier version knows no filter by who and by operation; what it
// finds without them is left out.
func TestChangesOfOlderHost(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	for n := range 40 { // of one time each, by turns
		c := history.Change{Time: began.Add(time.Duration(n/4) * time.Second), Who: "ann", What: "trigger", Job: fmt.Sprint(n)}
		if n%3 == 0 {
			c.Who, c.What = "bob", "sign in"
		}
		list[1].store.AddChange(c)
	}
	list.settle(t)
	for _, f := range []history.Filter{{Limit: 5, Who: "ann"}, {Limit: 5, What: []string{"!sign"}, Oldest: true}} {
		var got []history.Change
		for n := 0; ; n++ {
			h := list.from(0)
			get := h.Get
			h.Get = func(ctx context.Context, p Peer, path string, into any) error {
				u, _ := url.Parse(path)
				q := u.Query()
				q.Del("who")
				q.Del("what")
				return get(ctx, p, u.Path+"?"+q.Encode(), into)
			}
			found, err := h.Changes(t.Context(), f, nil)
			if err != nil || len(found.Silent) != 0 || n == 20 {
				t.Fatalf("page %d: %+v, %v", n, found, err)
			}
			got = append(got, found.Records...)
			if f.After = found.Next; f.After == "" {
				break
			}
		}
		jobs := make(map[string]bool)
		for _, c := range got {
			jobs[c.Job] = true
			if c.Who != "ann" {
				t.Errorf("%s is found", c.What)
			}
		}
		if len(got) != 26 || len(jobs) != 26 {
			t.Errorf("%d changes of %d jobs", len(got), len(jobs))
		}
	}
}

// TestSlowHistory: a host that has answered a question of a page, and whose next answer takes
// longer than the page waits, is missing in the page, but is not called silent elsewhere.
func TestSlowHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		list := newLibraries(t, 2)
		for n := range 20 {
			list[1].store.AddEvent(event.Event{Time: began.Add(time.Duration(n) * time.Second), Kind: event.FireStarted, Host: "1", Job: "a", Instant: began.Add(time.Duration(n) * time.Minute), Source: abi.SourceSchedule, Items: []int{n}, Total: 3})
		}
		list.settle(t)
		h := list.from(0)
		noted := silences{}
		h.waits, h.Silences = 0, noted
		get := h.Get
		h.Get = func(ctx context.Context, p Peer, path string, into any) error {
			select {
			case <-time.After(700 * time.Millisecond):
				return get(ctx, p, path, into)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		found, err := h.Fires(t.Context(), history.Filter{Limit: 20}, nil)
		if err != nil || len(found.Records) != 20 || len(found.Silent) != 1 || len(noted) != 0 {
			t.Errorf("%d fires, silent %q, noted %v, %v", len(found.Records), found.Silent, noted, err)
		}
	})
}

// TestSharedStore answers alone, also with the cursors of pages.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	for n := range 30 {
		list[0].store.AddLine(history.Line{Time: began.Add(time.Duration(n/3) * time.Second), Job: "a", RunID: fmt.Sprint(n)})
	}
	list.settle(t)
	h := list.from(0)
	h.Store = shared{list[0].store}
	h.Get = func(context.Context, Peer, string, any) error { t.Error("a host was asked"); return nil }
	seen := make(map[string]bool)
	f := history.Filter{Limit: 4}
	for range 100 {
		found, err := h.Lines(t.Context(), f, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range found.Records {
			if seen[l.RunID] {
				t.Errorf("%s is there twice", l.RunID)
			}
			seen[l.RunID] = true
		}
		if f.After = found.Next; f.After == "" {
			break
		}
	}
	if len(seen) != 30 {
		t.Errorf("found %d", len(seen))
	}
}

type shared struct{ history.Store }

func (s shared) State() history.State { return history.State{Shared: true} }

// aside is a shared store whose database is away.
type aside struct{ shared }

func (s aside) Lines(ctx context.Context, f history.Filter) (history.Page[history.Line], error) {
	p, err := s.Store.Lines(ctx, f)
	p.Missing = history.Away
	return p, err
}

// TestSharedStoreAway: while the database that all hosts share is away, a page has what each of them has not written there, and says
// that the rest is missing.
func TestSharedStoreAway(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 3)
	for n := range 30 {
		list[n%3].store.AddLine(history.Line{Time: began.Add(time.Duration(n/4) * time.Second), Job: "a", RunID: fmt.Sprint(n)})
	}
	list.settle(t)
	h := list.from(0)
	h.Store = aside{shared{list[0].store}}
	get := h.Get
	h.Get = func(ctx context.Context, p Peer, path string, into any) error {
		if !strings.Contains(path, "unwritten=true") {
			t.Errorf("%s is asked for what it has written, too", path)
		}
		return get(ctx, p, path, into)
	}
	list[2].silent = true
	seen := make(map[string]bool)
	f := history.Filter{Limit: 4}
	for range 100 {
		found, err := h.Lines(t.Context(), f, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Silent) != 2 || found.Silent[0] != history.Away || !strings.HasSuffix(found.Silent[1], "it does not answer") {
			t.Errorf("silent are %q", found.Silent)
		}
		for _, l := range found.Records {
			if seen[l.RunID] {
				t.Errorf("%s is there twice", l.RunID)
			}
			seen[l.RunID] = true
		}
		if f.After = found.Next; f.After == "" {
			break
		}
	}
	if len(seen) != 20 {
		t.Errorf("found %d", len(seen))
	}
}

// TestForgedCursors are refused, or find nothing that they should not.
func TestForgedCursors(t *testing.T) {
	t.Parallel()
	list := newLibraries(t, 2)
	for n := range 10 {
		list[n%2].store.AddLine(history.Line{Time: began, Job: "a", RunID: fmt.Sprint(n)})
	}
	list.settle(t)
	h := list.from(0)
	for _, after := range []string{"x", ".", "..", "1", "1.1", "1.-1.x", "1.x.x", "99999999999999999999.1.x", "1.1000001.x", " 1.1.x", "AQ"} {
		var wrong *QueryError
		if _, err := h.Lines(t.Context(), history.Filter{After: after}, nil); !errors.As(err, &wrong) || wrong.Name != "after" {
			t.Errorf("%q: %v", after, err)
		}
	}
	at := began.UnixNano()
	for after, want := range map[string]int{
		fmt.Sprintf("%d.0.", at): 10, fmt.Sprintf("%d.1000000.http://0", at): 5, fmt.Sprintf("%d.5.zzz", at): 0, fmt.Sprintf("%d.5.\x00\"%%", at): 10,
		"9223372036854775807.0.": 10, "-9223372036854775808.0.": 0, "0.0.": 0,
	} {
		found, err := h.Lines(t.Context(), history.Filter{After: after}, nil)
		if err != nil || len(found.Records) != want {
			t.Errorf("%q: %d records, %v; want %d", after, len(found.Records), err, want)
		}
	}
}

func FuzzPlace(f *testing.F) {
	for _, text := range []string{"", "1.2.x", "-1.0.", "1.2.http://10.0.0.1:9770", "1.2.a.b"} {
		f.Add(text)
	}
	list := newLibraries(f, 2)
	list[0].store.AddLine(history.Line{Time: began, Job: "a"})
	list.settle(f)
	h := list.from(1)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(text)
		if err == nil {
			if again, err := parsePlace(p.String()); err != nil || again != p {
				t.Errorf("%q is %+v, and then %+v, %v", text, p, again, err)
			}
		}
		for _, oldest := range []bool{false, true} {
			found, ferr := h.Lines(t.Context(), history.Filter{After: text, Oldest: oldest}, nil)
			if (ferr == nil) != (err == nil || text == "") || len(found.Records) > 1 {
				t.Errorf("%q: %+v, %v", text, found, ferr)
			}
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	for _, q := range []string{"", "job=a&job=b*&item=3&level=-4&failed=true&running=true", "from=90m&to=2026-03-01T03:00:00Z&limit=7&oldest=true", "instant=2026-03-01T03:00:00.123456789%2B01:00", "trigger=9&outcome=fail&kind=log", "who=ann&what=edit&what=!sign", "%zz"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		for _, name := range []string{"from", "to", "instant"} { // those before now are others each time
			if _, err := time.ParseDuration(q.Get(name)); err == nil {
				return
			}
		}
		filter, err := ParseQuery(q)
		if err != nil {
			var wrong *QueryError
			if !errors.As(err, &wrong) || wrong.Name == "" || wrong.Expected == "" {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := ParseQuery(Query(filter))
		if err != nil {
			t.Fatalf("%q: %+v: %v", text, filter, err)
		}
		a, _ := json.Marshal(filter)
		b, _ := json.Marshal(again)
		if string(a) != string(b) {
			t.Errorf("%q is %s, and then %s", text, a, b)
		}
	})
}

func FuzzParseParts(f *testing.F) {
	f.Add("a", int64(5), int64(0))
	f.Add("a b%/&=", int64(-5), int64(7))
	f.Fuzz(func(t *testing.T, job string, instant, trigger int64) {
		q, err := url.ParseQuery(partsQueries([]history.FireKey{{Job: job, Instant: instant, Trigger: trigger}})[0])
		if err != nil {
			t.Fatal(err)
		}
		keys, err := parseParts(q)
		if good := !strings.Contains(job, "/") && trigger >= 0; good != (err == nil) {
			t.Errorf("%q %d %d: %+v, %v", job, instant, trigger, keys, err)
		}
		if err == nil && (len(keys) != 1 || keys[0] != history.FireKey{Job: job, Instant: instant, Trigger: trigger}) {
			t.Errorf("%q %d %d is %+v", job, instant, trigger, keys)
		}
	})
}
