package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/registry/registrytest"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "team/prod"
	one       = "10.0.0.1@-@1-aa"
	two       = "10.0.0.2@-@1-bb"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stage is a registry with sessions.
type stage struct {
	t      *testing.T
	server *embedded.Server
}

func newStage(t *testing.T) *stage {
	t.Helper()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return &stage{t, server}
}

func (s *stage) session() registry.Center {
	s.t.Helper()
	r, err := s.server.Connect(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = r.Close() })
	return r
}

func (s *stage) do(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// seen is what a host sees of the board now.
func (s *stage) seen(b *store.Board) store.Seen {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	c, err := s.session().Watch(ctx, b.Watch()...)
	s.do(err)
	return b.See(<-c)
}

func failing(job string) alert.Alert {
	return alert.Alert{ID: fmt.Sprintf("%016x", len(job)), Rule: alert.Failures, Job: job, Host: one, Text: job + " failed", Since: noon}
}

// TestBoard_hosts: who is there, who keeps the alerts, and who is gone.
func TestBoard_hosts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	first, second := s.session(), s.session()
	a, b := store.Of(first, namespace), store.Of(second, namespace)
	s.do(a.Join(t.Context(), one, nil))
	s.do(a.Join(t.Context(), one, nil)) // an answer was lost
	s.do(b.Join(t.Context(), two, []string{"10.0.0.2@-@1-before"}))
	s.do(a.Keep(t.Context(), one))
	s.do(b.Keep(t.Context(), two))
	if seen := s.seen(b); seen.Keeper != one || len(seen.Cluster.Gone()) != 0 || !slices.Equal(seen.Cluster.Alive, []string{one, two}) {
		t.Errorf("%+v", seen)
	}
	s.do(first.Close()) // its session ends
	seen := s.seen(b)
	if seen.Keeper != "" || !slices.Equal(seen.Cluster.Gone(), []string{one}) {
		t.Errorf("%+v", seen)
	}
	s.do(b.Keep(t.Context(), two))
	s.do(b.Forget(t.Context(), seen.Cluster.Gone()))
	s.do(b.Forget(t.Context(), seen.Cluster.Gone())) // is no mistake
	if seen := s.seen(b); seen.Keeper != two || len(seen.Cluster.Gone()) != 0 {
		t.Errorf("%+v", seen)
	}
	// A host that stops in good order is not gone when its session ends, and one that
	// comes back takes its former self away.
	third := s.session()
	c := store.Of(third, namespace)
	s.do(c.Join(t.Context(), "10.0.0.3@-@1-cc", nil))
	s.do(c.Forget(t.Context(), []string{"10.0.0.3@-@1-cc"}))
	s.do(third.Close())
	s.do(second.Close())
	d := store.Of(s.session(), namespace)
	s.do(d.Join(t.Context(), "10.0.0.2@-@1-dd", []string{two}))
	if seen := s.seen(d); len(seen.Cluster.Gone()) != 0 {
		t.Errorf("%+v", seen)
	}
}

// TestBoard_alerts: an alert begins once, keeps what was sent of it, and goes when its end was
// sent.
func TestBoard_alerts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx := t.Context()
	b := store.Of(s.session(), namespace)
	s.do(b.Join(ctx, one, nil))
	before := s.seen(b).Change
	s.do(b.Write(ctx, []alert.Alert{failing("a"), failing("bb")}))
	seen := s.seen(b)
	if len(seen.Active) != 2 || seen.Change == before {
		t.Errorf("%+v", seen)
	}
	again := failing("a")
	again.Since, again.Text = noon.Add(time.Hour), "another begin"
	s.do(b.Write(ctx, []alert.Alert{again}))
	if now := s.seen(b).Change; now != seen.Change {
		t.Error("what stands there already was written")
	}
	s.do(b.Sent(ctx, "all/ops", noon.Add(time.Minute), []string{failing("a").ID, "0000000000000099"}, nil))
	over := failing("a")
	over.Resolved, over.Why = noon.Add(2*time.Minute), "it is well"
	s.do(b.Write(ctx, []alert.Alert{over, {ID: "0000000000000098", Resolved: noon}}))
	if seen := s.seen(b); !slices.Equal(seen.Active, []string{failing("bb").ID}) {
		t.Errorf("%+v", seen)
	}
	content, err := b.Read(ctx)
	s.do(err)
	a := find(content.Alerts, over.ID)
	if a == nil || a.Firing() || a.Why != "it is well" || !a.Since.Equal(noon) || a.Text != "a failed" || !a.Sent["all/ops"].At.Equal(noon.Add(time.Minute)) {
		t.Fatalf("%+v", content.Alerts)
	}
	// It begins again before its end was sent: to who has heard of it that is one alert.
	s.do(b.Write(ctx, []alert.Alert{again}))
	content, err = b.Read(ctx)
	s.do(err)
	if a := find(content.Alerts, over.ID); a == nil || !a.Firing() || a.Sent["all/ops"].Resolved || len(a.Sent) != 1 || len(content.Alerts) != 2 {
		t.Errorf("%+v", content.Alerts)
	}
	s.do(b.Drop(ctx, []string{over.ID})) // goes on: it stays
	s.do(b.Write(ctx, []alert.Alert{over}))
	s.do(b.Sent(ctx, "all/ops", noon, nil, []string{over.ID}))
	content, err = b.Read(ctx)
	s.do(err)
	if a := find(content.Alerts, over.ID); a == nil || !a.Sent["all/ops"].Resolved {
		t.Errorf("%+v", content.Alerts)
	}
	s.do(b.Drop(ctx, []string{over.ID, over.ID[:15] + "f"}))
	content, err = b.Read(ctx)
	if s.do(err); len(content.Alerts) != 1 {
		t.Errorf("%+v", content.Alerts)
	}
}

func find(alerts []alert.Alert, id string) *alert.Alert {
	for i := range alerts {
		if alerts[i].ID == id {
			return &alerts[i]
		}
	}
	return nil
}

// TestBoard_ofHost: what a host says of itself is its next life's, too.
func TestBoard_ofHost(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	s.do(b.Join(t.Context(), one, nil))
	a := failing("a")
	a.OfHost = true
	s.do(b.Write(t.Context(), []alert.Alert{a}))
	a.Host, a.Text = "10.0.0.1@-@2-next", "still"
	s.do(b.Write(t.Context(), []alert.Alert{a}))
	content, err := b.Read(t.Context())
	s.do(err)
	if got := content.Alerts; len(got) != 1 || got[0].Host != "10.0.0.1@-@2-next" || !got[0].Since.Equal(noon) {
		t.Errorf("%+v", got)
	}
}

// TestBoard_merge: whatever stands on the board, and whatever is said of it, the outcome is one of a
// few, and the board changes only if what stands there does: each host reads it again then.
func TestBoard_merge(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	r := s.session()
	b := store.Of(r, namespace)
	s.do(b.Join(t.Context(), one, nil))
	change := func() int64 {
		t.Helper()
		n, err := r.Read(t.Context(), registry.Data(tree.AlertsOf(namespace).Changes()))
		s.do(err)
		return n[0].Mzxid
	}
	over := noon.Add(time.Minute)
	n := 0
	for _, stands := range []string{"nothing", "begun", "over"} {
		for _, says := range []string{"begins", "ends", "ends unheard"} {
			for _, ofHost := range []bool{false, true} {
				for _, host := range []string{one, two} {
					n++
					what := fmt.Sprintf("%s stands, %s, of a host: %t, by %s", stands, says, ofHost, host)
					old := alert.Alert{ID: fmt.Sprintf("%016x", n), Rule: alert.Failures, Host: one, Text: "old", Since: noon, OfHost: ofHost}
					if stands != "nothing" {
						s.do(b.Write(t.Context(), []alert.Alert{old}))
						s.do(b.Sent(t.Context(), "mail", noon, []string{old.ID}, nil))
					}
					if stands == "over" {
						old.Resolved, old.Why = over, "was"
						s.do(b.Write(t.Context(), []alert.Alert{old}))
					}
					said := alert.Alert{ID: old.ID, Rule: alert.Failures, Host: host, Text: "new", Since: over, OfHost: ofHost}
					switch says {
					case "ends":
						said.Resolved, said.Why, said.Text = over.Add(time.Minute), "is", ""
					case "ends unheard":
						said.Resolved, said.Why = over.Add(time.Minute), "is"
					}
					other := host != one
					want, writes := old, false
					switch {
					case stands == "nothing" && says == "ends":
						want = alert.Alert{}
					case stands == "nothing", stands == "over" && says == "begins":
						want, writes = said, true
					case stands == "begun" && says == "begins" && ofHost && other:
						want.Host, want.Text, writes = said.Host, said.Text, true
					case stands == "begun" && says != "begins" && !(ofHost && other):
						want.Resolved, want.Why, writes = said.Resolved, said.Why, true
					}
					before := change()
					s.do(b.Write(t.Context(), []alert.Alert{said}))
					if wrote := change() != before; wrote != writes {
						t.Errorf("%s: the board was written: %t", what, wrote)
					}
					content, err := b.Read(t.Context())
					s.do(err)
					var got alert.Alert
					if a := find(content.Alerts, old.ID); a != nil {
						got = *a
					}
					if _, sent := got.Sent["mail"]; sent != (stands != "nothing") {
						t.Errorf("%s: it was sent: %t", what, sent)
					}
					if got.Host != want.Host || got.Text != want.Text || !got.Since.Equal(want.Since) || !got.Resolved.Equal(want.Resolved) || got.Why != want.Why {
						t.Errorf("%s:\n%+v, expected\n%+v", what, got, want)
					}
				}
			}
		}
	}
	before := change()
	s.do(b.Drop(t.Context(), []string{"00000000000000ff"}))
	if change() != before {
		t.Error("the board was written though nothing was dropped")
	}
}

// TestBoard_refused: a reading of which any request is refused says so, and never that less stands there.
func TestBoard_refused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	s.do(b.Join(t.Context(), one, nil))
	a := failing("a")
	s.do(b.Write(t.Context(), []alert.Alert{a, failing("bb")}))
	a.Resolved = noon.Add(time.Minute)
	s.do(b.Write(t.Context(), []alert.Alert{a}))
	_, err := b.Silence(t.Context(), alert.Silence{By: "ann", From: noon, Until: noon.Add(time.Hour)})
	s.do(err)
	for nth := 1; ; nth++ {
		calls := 0
		unsure := store.Of(registrytest.Faulty(s.session(), func(int, string) registrytest.Fault {
			if calls++; calls == nth {
				return registrytest.Refused
			}
			return registrytest.NoFault
		}), namespace)
		content, err := unsure.Read(t.Context())
		if calls < nth {
			if s.do(err); len(content.Alerts) != 2 || len(content.Silences) != 1 || nth < 4 {
				t.Errorf("with %d requests: %+v", calls, content)
			}
			return
		}
		if err == nil {
			t.Errorf("request %d was refused: %+v", nth, content)
		}
	}
}

// TestBoard_contested: many hosts write the same and other alerts at once, over a registry
// that loses answers; each alert is there once.
func TestBoard_contested(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.do(store.Of(s.session(), namespace).Join(t.Context(), one, nil))
	var wg sync.WaitGroup
	for n := range 6 {
		calls := 0
		r := registrytest.Faulty(s.session(), func(_ int, op string) registrytest.Fault {
			if calls++; op == "commit" && calls%5 == 4 {
				return registrytest.LostAnswer
			}
			return registrytest.NoFault
		})
		wg.Go(func() {
			b := store.Of(r, namespace)
			var list []alert.Alert
			for k := range 250 {
				list = append(list, alert.Alert{ID: fmt.Sprintf("%016x", k+n*50), Rule: alert.Failures, Since: noon})
			}
			for len(list) > 0 {
				if err := b.Write(t.Context(), list[:min(40, len(list))]); err != nil {
					t.Error(err)
					return
				}
				list = list[min(40, len(list)):]
			}
		})
	}
	wg.Wait()
	content, err := store.Of(s.session(), namespace).Read(t.Context())
	if s.do(err); len(content.Alerts) != 500 {
		t.Errorf("%d alerts, want 500", len(content.Alerts))
	}
}

// TestBoard_lostAnswer: a silence whose commit has no answer is made once, whether that took effect or not; so
// is what is dropped. An alert that begins again between the look and the commit stays.
func TestBoard_lostAnswer(t *testing.T) {
	t.Parallel()
	for _, fault := range []registrytest.Fault{registrytest.LostAnswer, registrytest.LostRequest} {
		s := newStage(t)
		b := store.Of(s.session(), namespace)
		s.do(b.Join(t.Context(), one, nil))
		over := alert.Alert{ID: "0000000000000001", Rule: alert.Failures, Since: noon}
		s.do(b.Write(t.Context(), []alert.Alert{over}))
		over.Resolved = noon.Add(time.Minute)
		s.do(b.Write(t.Context(), []alert.Alert{over}))
		lost := false
		unsure := store.Of(registrytest.Faulty(s.session(), func(_ int, op string) registrytest.Fault {
			if op != "commit" || lost {
				return registrytest.NoFault
			}
			lost = true
			return fault
		}), namespace)
		made, err := unsure.Silence(t.Context(), alert.Silence{By: "ann", From: noon, Until: noon.Add(time.Hour)})
		s.do(err)
		lost = false
		s.do(unsure.Drop(t.Context(), []string{over.ID}))
		s.do(unsure.Drop(t.Context(), []string{over.ID}))
		content, err := b.Read(t.Context())
		if s.do(err); len(content.Silences) != 1 || content.Silences[0].ID != made.ID || len(content.Alerts) != 0 {
			t.Errorf("fault %d: %+v", fault, content)
		}
	}
}

// TestBoard_border: a write that goes beyond the last room fills it, and no more; an alert about a host keeps the
// text that it began with as long as the host has that life; all hosts of a call are forgotten.
func TestBoard_border(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	const two = "10.0.0.2@-@1-a"
	s.do(b.Join(t.Context(), one, nil))
	s.do(b.Join(t.Context(), two, nil))
	write := func(from, to int) error {
		var list []alert.Alert
		for k := from; k < to; k++ {
			list = append(list, alert.Alert{ID: fmt.Sprintf("%016x", k), Rule: alert.Failures, Since: noon})
		}
		return b.Write(t.Context(), list)
	}
	of := alert.Alert{ID: "ffffffffffffffff", Rule: alert.Session, OfHost: true, Host: one, Text: "first", Since: noon}
	s.do(b.Write(t.Context(), []alert.Alert{of}))
	of.Text = "second"
	s.do(b.Write(t.Context(), []alert.Alert{of}))
	s.do(write(0, store.MostAlerts-6))
	if err := write(store.MostAlerts-6, store.MostAlerts+4); !errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	content, err := b.Read(t.Context())
	if s.do(err); len(content.Alerts) != store.MostAlerts {
		t.Errorf("%d alerts", len(content.Alerts))
	}
	for _, a := range content.Alerts {
		if a.ID == of.ID && a.Text != "first" {
			t.Errorf("its text is %q", a.Text)
		}
	}
	s.do(b.Forget(t.Context(), []string{one, two}))
	if hosts := s.seen(b).Cluster.Hosts; len(hosts) != 0 {
		t.Errorf("hosts that are not forgotten: %v", hosts)
	}
	refuses := store.Of(registrytest.Faulty(s.session(), func(int, string) registrytest.Fault { return registrytest.Refused }), namespace)
	if err := refuses.Unsilence(t.Context(), "0000000000000001"); err == nil || errors.Is(err, store.ErrNoSilence) {
		t.Errorf("a silence that cannot be ended: %v", err)
	}
}

// before is a session that does something before its first commit.
func (s *stage) before(do func()) registry.Center {
	done := false
	return registrytest.Faulty(s.session(), func(_ int, op string) registrytest.Fault {
		if op == "commit" && !done {
			done = true
			do()
		}
		return registrytest.NoFault
	})
}

// TestBoard_between: what another host does between the look and the commit of a step is kept.
func TestBoard_between(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx := t.Context()
	b := store.Of(s.session(), namespace)
	const former = "10.0.0.2@-@1-before"
	s.do(b.Join(ctx, one, nil))
	s.do(b.Join(ctx, former, nil))
	s.do(store.Of(s.before(func() { s.do(b.Forget(ctx, []string{former})) }), namespace).Join(ctx, two, []string{former}))
	if hosts := s.seen(b).Cluster.Hosts; !slices.Equal(hosts, []string{one, two}) {
		t.Errorf("the hosts are %q", hosts)
	}
	over := failing("a")
	over.Resolved = noon.Add(time.Minute)
	s.do(b.Write(ctx, []alert.Alert{failing("a")}))
	s.do(b.Write(ctx, []alert.Alert{over}))
	sends := s.before(func() { s.do(b.Sent(ctx, "all/ops", noon, nil, []string{over.ID})) })
	s.do(store.Of(sends, namespace).Write(ctx, []alert.Alert{failing("a")}))
	content, err := b.Read(ctx)
	s.do(err)
	if a := find(content.Alerts, over.ID); a == nil || !a.Firing() || !a.Sent["all/ops"].Resolved {
		t.Errorf("%+v: it begins again, and its end was sent meanwhile", content.Alerts)
	}
}

// TestBoard_full: the board is bounded, and what does not fit is an error.
func TestBoard_full(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	s.do(b.Join(t.Context(), one, nil))
	var list []alert.Alert
	for k := range store.MostAlerts + 10 {
		list = append(list, alert.Alert{ID: fmt.Sprintf("%016x", k), Rule: alert.Failures, Since: noon})
	}
	if err := b.Write(t.Context(), list); !errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	if n := len(s.seen(b).Active); n != store.MostAlerts {
		t.Errorf("%d alerts", n)
	}
	s.do(b.Sent(t.Context(), "all/ops", noon, []string{list[0].ID}, nil)) // what stands there needs no room
	// All are over but one, of a host, and are dropped at once; that changes, and others fill the board.
	of := alert.Alert{ID: "ffffffffffffffff", Rule: alert.Session, OfHost: true, Host: one, Since: noon}
	list = list[:store.MostAlerts]
	var ids []string
	for k := range list {
		ids = append(ids, list[k].ID)
		list[k].Resolved = noon
	}
	s.do(b.Write(t.Context(), list))
	s.do(b.Drop(t.Context(), ids))
	content, err := b.Read(t.Context())
	if s.do(err); len(content.Alerts) != 0 {
		t.Errorf("%d alerts are left", len(content.Alerts))
	}
	for k := range list {
		list[k].Resolved = time.Time{}
	}
	s.do(b.Write(t.Context(), append([]alert.Alert{of}, list[:store.MostAlerts-2]...)))
	of.Host = two
	s.do(b.Write(t.Context(), []alert.Alert{of, list[store.MostAlerts-1]}))
	if n := len(s.seen(b).Active); n != store.MostAlerts {
		t.Errorf("%d alerts", n)
	}
}

// TestBoard_silences: a silence has an end, an author, and can be ended.
func TestBoard_silences(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace) // no host has joined yet
	added, err := b.Silence(t.Context(), alert.Silence{Jobs: "team-*", From: noon, Until: noon.Add(time.Hour), By: "alice", Why: "maintenance"})
	s.do(err)
	before := s.seen(b).Change
	content, err := b.Read(t.Context())
	s.do(err)
	if len(content.Silences) != 1 || content.Silences[0].ID != added.ID || content.Silences[0].By != "alice" || !alert.IsID(added.ID) {
		t.Errorf("%+v", content.Silences)
	}
	if err := b.Unsilence(t.Context(), "00000000000000ff"); !errors.Is(err, store.ErrNoSilence) || !strings.Contains(err.Error(), "00000000000000ff") {
		t.Error(err)
	}
	s.do(b.Unsilence(t.Context(), added.ID))
	content, err = b.Read(t.Context())
	if s.do(err); len(content.Silences) != 0 || s.seen(b).Change == before {
		t.Errorf("%+v", content.Silences)
	}
}

// TestBoard_tooManySilences: one author cannot use up the silences of all.
func TestBoard_tooManySilences(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	silence := func(by string) error {
		_, err := b.Silence(t.Context(), alert.Silence{Jobs: "a", From: noon.Add(-time.Hour), Until: noon, By: by})
		return err
	}
	over := make(map[string]string)
	for n := range 10 {
		over[tree.AlertsOf(namespace).Silence(fmt.Sprintf("ff%014x", n))] = fmt.Sprintf(`{"by":"alice","until":%q}`, noon.Add(-2*time.Hour).Format(time.RFC3339))
	}
	s.put(over) // which do not count: they are not deleted yet
	for range store.MostSilencesOf {
		s.do(silence("alice"))
	}
	if err := silence("alice"); !errors.Is(err, store.ErrTooManySilences) || !strings.Contains(err.Error(), "you have made 100") {
		t.Errorf("one more of an author: %v", err)
	}
	s.do(silence("bob"))
	others := make(map[string]string)
	for n := range store.MostSilences - store.MostSilencesOf - len(over) - 1 {
		others[tree.AlertsOf(namespace).Silence(fmt.Sprintf("%016x", n))] = fmt.Sprintf(`{"by":"author%d"}`, n)
	}
	s.put(others)
	if err := silence("bob"); !errors.Is(err, store.ErrTooManySilences) || !strings.Contains(err.Error(), "there are 1000") {
		t.Errorf("one more than there may be: %v", err)
	}
}

// put makes nodes, with their parents.
func (s *stage) put(nodes map[string]string) {
	s.t.Helper()
	r := s.session()
	for path, text := range nodes {
		if _, err := r.Commit(s.t.Context(), registry.Ensure(path), registry.Set(path, []byte(text), registry.AnyVersion)); err != nil {
			s.t.Fatal(path, err)
		}
	}
}

const config = "jobName: j\ncron: '0 * * * * ?'\ntimeZone: GMT\nshardingTotalCount: 3\nmisfire: true\nfailover: false\nmonitorExecution: true\nmaxTimeDiffSeconds: -1\nreconcileIntervalMinutes: 10\n"

// TestBoard_look: what a check finds of a job.
func TestBoard_look(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	check := alert.Check{Job: "j", Rule: alert.StartWithin, Instant: noon}
	look := func() alert.Found {
		t.Helper()
		f, err := b.Look(t.Context(), namespace, check)
		s.do(err)
		return f
	}
	if f := look(); f.Exists {
		t.Errorf("a job that is not there: %+v", f)
	}
	l := tree.NewLayout(namespace, "j")
	s.put(map[string]string{
		l.Config(): config, l.Members(): one, l.Record(0): string(tree.Record{Owner: one, Instant: 7}.Data()), l.Record(2): string(tree.Record{Owner: one, Instant: 9}.Data()), l.ItemDisabled(1): "",
	})
	f := look()
	if !f.Exists || !f.Enabled || f.Java || f.Hosts != 0 || len(f.Items) != 3 || f.More != 0 || f.Items[0].Record.Instant != 7 || !f.Items[1].Disabled || f.Items[2].Disabled || f.Settings.Items != 3 {
		t.Errorf("%+v", f)
	}
	s.put(map[string]string{l.Server("10.0.0.1"): "DISABLED", l.Config(): strings.NewReplacer("failover: false", "failover: true", "monitorExecution: true", "monitorExecution: false").Replace(config)})
	if f = look(); f.Enabled || f.Settings.Failover {
		t.Errorf("no host, its only server is disabled, and items are not watched: %+v", f)
	}
	s.put(map[string]string{l.Instance(one): "", l.Server("10.0.0.9"): "ENABLED", l.Config(): config})
	if f = look(); f.Enabled || f.Java || f.Hosts != 1 {
		t.Errorf("the server of its only host is disabled: %+v", f)
	}
	s.put(map[string]string{l.Instance(two): "", l.Server("10.0.0.2"): "ENABLED"})
	if f = look(); !f.Enabled || !f.Java || f.Hosts != 2 {
		t.Errorf("a host of ElasticJob's: %+v", f)
	}
	s.put(map[string]string{l.Server("10.0.0.1"): "ENABLED"})
	first, session := time.Time{}, s.session()
	for later := first; !later.After(first); { // by the registry's clock
		s.put(map[string]string{l.Server("10.0.0.2"): "ENABLED"})
		n, err := session.Read(t.Context(), registry.Data(l.Server("10.0.0.1")), registry.Data(l.Server("10.0.0.2")))
		s.do(err)
		first, later = n[0].Mtime, n[1].Mtime
	}
	if f = look(); !f.EnabledSince.Equal(first) {
		t.Errorf("enabled since %s, expected %s, when the first server was", f.EnabledSince, first)
	}
	s.put(map[string]string{l.Config(): strings.Replace(config, "Count: 3", "Count: 1200", 1)})
	check.From = 500
	if f = look(); len(f.Items) != 500 || f.Items[0].Item != 500 || f.More != 1000 {
		t.Errorf("%d items from %d, more from %d", len(f.Items), f.Items[0].Item, f.More)
	}
	s.put(map[string]string{l.Config(): strings.Replace(config, "Count: 3", "Count: -1", 1)})
	if f = look(); f.Exists {
		t.Errorf("a configuration that is refused: %+v", f)
	}
	s.put(map[string]string{l.Config(): "nonsense"})
	if f = look(); f.Exists {
		t.Errorf("a configuration that cannot be read: %+v", f)
	}
}

// TestBoard_orphans: jobs that no host has.
func TestBoard_orphans(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	if found, err := b.Orphans(t.Context(), namespace); err != nil || len(found) != 0 {
		t.Errorf("in an empty registry: %v, %v", found, err)
	}
	for n := range 250 {
		name := fmt.Sprintf("j%03d", n)
		l := tree.NewLayout(namespace, name)
		s.put(map[string]string{l.Config(): strings.Replace(config, "jobName: j", "jobName: "+name, 1)})
		if n%100 != 50 {
			s.put(map[string]string{l.Instance(one): ""})
		}
	}
	s.put(map[string]string{tree.NewLayout(namespace, "removed").Root(): "", tree.NewLayout(namespace, "spoilt").Config(): "nonsense"})
	found, err := b.Orphans(t.Context(), namespace)
	if err != nil || len(found) != 2 || found["j150"].Cron != "0 * * * * ?" {
		t.Errorf("%v, %v", found, err)
	}
}

// TestBoard_lives: the end of what a host had to say in a former life is not that of what it says
// in this one.
func TestBoard_lives(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx := t.Context()
	b := store.Of(s.session(), namespace)
	s.do(b.Join(ctx, one, nil))
	refused := failing("a")
	refused.OfHost, refused.Host = true, "10.0.0.1@-@1-before"
	over := refused
	over.Resolved, over.Why = noon, "its host is gone"
	s.do(b.Write(ctx, []alert.Alert{refused}))
	refused.Host = one
	s.do(b.Write(ctx, []alert.Alert{refused}))
	s.do(b.Write(ctx, []alert.Alert{over}))
	if seen := s.seen(b); len(seen.Active) != 1 {
		t.Errorf("%+v: it ended with the former life", seen)
	}
	over.Host = one
	s.do(b.Write(ctx, []alert.Alert{over}))
	if seen := s.seen(b); len(seen.Active) != 0 {
		t.Errorf("%+v: it did not end", seen)
	}
}

// TestBoard_gone: who lives is not gone, and who has left has not crashed, whatever a watch has
// shown.
func TestBoard_gone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := store.Of(s.session(), namespace)
	s.do(b.Join(t.Context(), one, nil))
	const three = "10.0.0.3@-@1-cc"
	other := s.session()
	s.do(store.Of(other, namespace).Join(t.Context(), two, nil))
	s.do(store.Of(other, namespace).Join(t.Context(), three, nil))
	s.do(store.Of(other, namespace).Forget(t.Context(), []string{two}))
	s.do(other.Close())
	gone, crashed, err := b.Gone(t.Context(), []string{one, two, three})
	if err != nil || !slices.Equal(gone, []string{two, three}) || !slices.Equal(crashed, []string{three}) {
		t.Errorf("gone %q, crashed %q, %v", gone, crashed, err)
	}
}

// TestBoard_fullEnds: what is over is written, however many alerts there are before it in line.
func TestBoard_fullEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ctx := t.Context()
	b := store.Of(s.session(), namespace)
	s.do(b.Join(ctx, one, nil))
	numbered := func(from, to int) (list []alert.Alert) {
		for n := from; n < to; n++ {
			a := failing("a")
			a.ID = fmt.Sprintf("%016x", n)
			list = append(list, a)
		}
		return list
	}
	s.do(b.Write(ctx, numbered(0, store.MostAlerts)))
	over := failing("a")
	over.ID, over.Resolved = fmt.Sprintf("%016x", 7), noon
	if err := b.Write(ctx, append(numbered(5000, 5200), over)); !errors.Is(err, store.ErrFull) {
		t.Error(err)
	}
	if seen := s.seen(b); len(seen.Active) != store.MostAlerts-1 {
		t.Errorf("%d alerts go on", len(seen.Active))
	}
}
