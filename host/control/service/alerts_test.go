package service_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestAlerts_Without: a host that has no session judges nothing just now, but not for want of a file.
func TestAlerts_Without(t *testing.T) {
	t.Parallel()
	host := func(name, instance, file string) cluster.Host {
		r := new(report.Report)
		r.Status.Instance, r.About.Alerts = instance, file
		return cluster.Host{Name: name, Report: r}
	}
	list := service.Alerts{Judges: []string{"a"}}
	hosts := []cluster.Host{host("judges", "a", "alerts.yaml"), host("without", "b", ""), host("no session", "", ""), host("a new session", "c", "alerts.yaml"), {Name: "silent"}}
	if got := list.Without(hosts); !slices.Equal(got, []string{"without"}) {
		t.Errorf("%q, want the one without a file alone", got)
	}
}

// TestAlertsOf: an alert that goes on is silenced by what covers it now, of several by what
// ends last; its targets are those of the file.
func TestAlertsOf(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f, err := alert.Parse("alerts.yaml", []byte(`{receivers: {ops: {webhook: {url: "http://127.0.0.1:1"}}}, routes: [{name: a, jobs: a, to: ops, continue: true}, {name: all, to: ops}]}`))
	if err != nil {
		t.Fatal(err)
	}
	silences := []alert.Silence{
		{ID: "1", Jobs: "*", Until: now.Add(time.Hour)}, {ID: "2", Jobs: "a", Until: now.Add(2 * time.Hour)},
		{ID: "3", Jobs: "*", Until: now.Add(time.Minute)}, {ID: "4", Jobs: "*", Until: now}, {ID: "5", Jobs: "*", Rules: []alert.Rule{alert.Lost}, Until: now.Add(9 * time.Hour)},
	}
	list := service.AlertsOf([]alert.Alert{{Rule: alert.Failures, Job: "a"}, {Rule: alert.Failures, Job: "b"}, {Rule: alert.Failures, Job: "a", Resolved: now}}, silences, f, now)
	if len(list) != 3 || list[0].Silenced.ID != "2" || list[1].Silenced.ID != "1" || list[2].Silenced != nil {
		t.Errorf("%+v", list)
	}
	if got := list[0].Targets; len(got) != 2 || got[0] != "a/ops" || got[1] != "all/ops" || len(list[1].Targets) != 1 {
		t.Errorf("%+v", list)
	}
	if list := service.AlertsOf([]alert.Alert{{Rule: alert.Failures}}, nil, nil, now); list[0].Targets != nil || list[0].Silenced != nil {
		t.Errorf("%+v", list)
	}
}

// TestAlertProblems: what is wrong on several hosts is said once.
func TestAlertProblems(t *testing.T) {
	t.Parallel()
	says := func(name string, problems ...string) cluster.Host {
		return cluster.Host{Name: name, Report: &report.Report{AlertProblems: problems}}
	}
	silent := says("d", "x")
	silent.Silent = "no answer"
	got := service.AlertProblems([]cluster.Host{says("a", "x"), says("b"), says("c", "y", "x"), silent, {Name: "e"}})
	if want := []string{"a, c: x", "c: y"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAlertsOfSession: the alert about the session of the host that answers is in the list, though it does not
// stand in the registry.
func TestAlertsOfSession(t *testing.T) {
	t.Parallel()
	own := alert.Alert{ID: "0000000000000001", Rule: alert.Session, Subject: "127.0.0.1", Text: "in doubt"}
	f := &service.AlertFile{Current: func() *alert.File { return &alert.File{} }, Own: func() []alert.Alert { return []alert.Alert{own} }}
	s := servicetest.Start(t, servicetest.Options{AlertFile: f}).Service.Alerting()
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	list, err := s.List(ctx)
	if err != nil || len(list.Alerts) != 1 || list.Alerts[0].Text != own.Text {
		t.Errorf("%+v, %v", list, err)
	}
	if n, of, err := s.Count(ctx); n != 1 || of != list.Version || err != nil {
		t.Errorf("%d alerts of %d, %v", n, of, err)
	}
}

// blind is a session whose watch of alerts shows what was there when it began, and no more.
type blind struct{ registry.Center }

func (b blind) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	snapshots, err := b.Center.Watch(ctx, queries...)
	if err != nil || !strings.Contains(queries[0].Path, "@-@alerts") {
		return snapshots, err
	}
	first := make(chan registry.Snapshot, 1)
	first <- <-snapshots
	go func() { // ends with the watch
		defer close(first)
		for range snapshots {
		}
	}()
	return first, nil
}

// TestAlertsAfterChange: what somebody has changed by this host is shown at once, also before
// the watch shows it; a silence that has ended is not. One that another host has made is ended
// before the watch shows it.
func TestAlertsAfterChange(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{Wrap: func(c registry.Center) registry.Center { return blind{c} }})
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	s := h.Service.Alerting()
	silences := func() int {
		t.Helper()
		list, err := s.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Silences)
	}
	if n := silences(); n != 0 {
		t.Errorf("%d silences", n)
	}
	made, err := s.Silence(ctx, service.WantedSilence{Jobs: "a", For: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	if n := silences(); n != 1 {
		t.Errorf("%d silences after one was made", n)
	}
	b := store.Of(h.Center(), servicetest.Namespace)
	if err := b.Unsilence(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Unsilence(ctx, made.ID, ""); err == nil || !strings.Contains(err.Error(), "somebody has ended it") {
		t.Errorf("%v", err)
	}
	if n := silences(); n != 0 {
		t.Errorf("%d silences after it was ended by somebody else", n)
	}
	over, err := b.Silence(t.Context(), alert.Silence{Jobs: "*", Until: time.Now().Add(-time.Second), By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Silence(ctx, service.WantedSilence{Jobs: "b", For: "1h"}); err != nil {
		t.Fatal(err)
	}
	if n := silences(); n != 1 {
		t.Errorf("%d silences, one of which has ended", n)
	}
	if err := s.Unsilence(ctx, over.ID, ""); err == nil {
		t.Error("a silence that has ended is ended")
	}
	newer, err := b.Silence(t.Context(), alert.Silence{Jobs: "c", Until: time.Now().Add(time.Hour), By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Unsilence(ctx, newer.ID, ""); err != nil {
		t.Errorf("a silence that another host has made a moment ago: %v", err)
	}
}

// TestAlerts_version: who may see some jobs alone does not learn that something has changed elsewhere.
func TestAlerts_version(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	s, b := h.Service.Alerting(), store.Of(h.Center(), servicetest.Namespace)
	version := func(jobs string) int64 {
		t.Helper()
		ctx := auth.With(t.Context(), auth.Principal{Name: "eve", Method: auth.ByToken, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{jobs}}}})
		for {
			list, err := s.List(ctx)
			_, counted, err2 := s.Count(ctx)
			now, more, err3 := s.Changed(ctx)
			after, err4 := s.List(ctx)
			if err := errors.Join(err, err2, err3, err4); err != nil || more == nil {
				t.Fatalf("%v %v", more, err)
			}
			if after.Version != list.Version { // something changed meanwhile
				continue
			}
			if counted != list.Version || now != list.Version {
				t.Errorf("%s: the list has version %d, the count %d, a stream %d", jobs, list.Version, counted, now)
			}
			return list.Version
		}
	}
	all, some := version("*"), version("a-*")
	// step changes something, and waits until who may see all learns of it.
	step := func(what string, err error, visible bool) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		h.Until(what, func() bool { return version("*") != all })
		now := version("a-*")
		if (now != some) != visible {
			t.Errorf("after %s who may see a-* has version %d, before %d", what, now, some)
		}
		if now < 0 || now >= 1<<53 {
			t.Errorf("version %d is not exact in JavaScript", now)
		}
		all, some = version("*"), now
	}
	b1, b2 := alert.Alert{ID: "0000000000000001", Rule: alert.Failures, Job: "b"}, alert.Alert{ID: "0000000000000002", Rule: alert.Failures, Job: "a-b"}
	step("the nodes are made", b.Join(t.Context(), "10.0.0.1@-@1-a", nil), false)
	step("an alert of another job", b.Write(t.Context(), []alert.Alert{b1}), false)
	step("an alert of a-b", b.Write(t.Context(), []alert.Alert{b2}), true)
	_, err := b.Silence(t.Context(), alert.Silence{Jobs: "b", Until: time.Now().Add(time.Hour), By: "ann"})
	step("a silence of another job", err, false)
	_, err = b.Silence(t.Context(), alert.Silence{Jobs: "a-*", Until: time.Now().Add(time.Hour), By: "ann"})
	step("a silence of a-*", err, true)
	_, err = b.Silence(t.Context(), alert.Silence{Jobs: "*", Until: time.Now().Add(2 * time.Hour), By: "ann"})
	step("a silence of all, which a-b has the end of", err, true)
	b2.Resolved = time.Now()
	step("the alert of a-b is over", b.Write(t.Context(), []alert.Alert{b2}), true)
}

// countedReads counts the readings of the board.
type countedReads struct {
	registry.Center
	n *atomic.Int64
}

func (c countedReads) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	if strings.Contains(queries[0].Path, "@-@alerts") {
		c.n.Add(1)
	}
	return c.Center.Read(ctx, queries...)
}

// TestUnsilence_roles: who may not end a silence is refused at no cost to the registry, and learns
// nothing of one that they may not see.
func TestUnsilence_roles(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	h := servicetest.Start(t, servicetest.Options{Wrap: func(c registry.Center) registry.Center { return countedReads{c, &reads} }})
	as := func(role auth.Role, jobs string) context.Context {
		return auth.With(t.Context(), auth.Principal{Name: "eve", Method: auth.ByToken, Bindings: []auth.Binding{{Role: role, Jobs: []string{jobs}}}})
	}
	s := h.Service.Alerting()
	made, err := s.Silence(as(auth.RoleAdmin, "*"), service.WantedSilence{Jobs: "a-*", For: "1h"})
	if err != nil {
		t.Fatal(err)
	}
	h.Until("the silence is in the copy of the board", func() bool {
		before := reads.Load()
		list, err := s.List(as(auth.RoleViewer, "*"))
		return err == nil && len(list.Silences) == 1 && reads.Load() == before
	})
	before := reads.Load()
	var refused *auth.Problem
	var unknown *service.NotFoundError
	for _, who := range []context.Context{as(auth.RoleViewer, "*"), as(auth.RoleViewer, "a-*"), as(auth.RoleAuthor, "*")} {
		if err := s.Unsilence(who, made.ID, ""); !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
			t.Errorf("who may see the silence alone: %v", err)
		}
		if err := s.Unsilence(who, "00000000000000ff", ""); !errors.As(err, &unknown) {
			t.Errorf("of no silence: %v", err)
		}
	}
	if err := s.Unsilence(as(auth.RoleViewer, "b"), made.ID, ""); !errors.As(err, &unknown) {
		t.Errorf("who may not see the silence: %v", err)
	}
	if _, err := s.List(as(auth.RoleViewer, "*")); err != nil || reads.Load() != before {
		t.Errorf("the board was read %d times, %v", reads.Load()-before, err)
	}
	if err := s.Unsilence(as(auth.RoleAdmin, "a-*"), made.ID, ""); err != nil {
		t.Error(err)
	}
}

// TestRefusedChanges_longTexts: who may not change something cannot fill the audit and the log with
// what they send.
func TestRefusedChanges_longTexts(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	ctx := auth.With(t.Context(), auth.Principal{Name: "eve", Method: auth.ByToken, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"a-*"}}}})
	s := h.Service.Alerting()
	long := strings.Repeat("x", 60_000)
	var input *service.InputError
	if _, err := s.Silence(ctx, service.WantedSilence{Jobs: long, For: "1h"}); !errors.As(err, &input) || input.Where != "body.jobs" {
		t.Errorf("%v", err)
	}
	if _, err := s.Test(ctx, long, ""); err == nil {
		t.Error("a viewer sends test messages")
	}
	if _, err := h.Service.StartOn(ctx, "", long, ""); err == nil {
		t.Error("a viewer starts jobs")
	}
	if _, err := h.Service.Kill(ctx, long, admin.KillOptions{Item: -1, Server: long, Run: long}, "", func(*admin.Kills) {}); err == nil {
		t.Error("a viewer ends runs")
	}
	changes, err := h.Service.Changes(auth.With(t.Context(), auth.HostToken(auth.ByHostToken)), history.Filter{Limit: 10})
	if err != nil || len(changes.Records) != 3 {
		t.Fatalf("%d records, %v", len(changes.Records), err)
	}
	for _, c := range changes.Records {
		if max(len(c.Job), len(c.Host), len(c.After)) > event.MaxReason {
			t.Errorf("the record of %q has %d, %d and %d bytes", c.What, len(c.Job), len(c.Host), len(c.After))
		}
	}
}

// TestSilencesInTheAudit: who may not see a silence does not find it in the audit either, also not
// because a pattern of theirs matches the text of its pattern.
func TestSilencesInTheAudit(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	if _, err := h.Service.Alerting().Silence(auth.With(t.Context(), auth.HostToken(auth.ByHostToken)), service.WantedSilence{Jobs: "a-*", For: "1h", Why: "b moves"}); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]int{"*": 1, "a-*": 1, "a-?": 0, "b": 0} {
		ctx := auth.With(t.Context(), auth.Principal{Name: "eve", Method: auth.ByToken, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{pattern}}}})
		changes, err := h.Service.Changes(ctx, history.Filter{Limit: 10})
		list, listed := h.Service.Alerting().List(ctx)
		if err != nil || listed != nil || len(changes.Records) != want || len(list.Silences) != want {
			t.Errorf("a viewer of %s finds %d records and %d silences, want %d; %v, %v", pattern, len(changes.Records), len(list.Silences), want, err, listed)
		}
	}
}

// TestSilenceByLabels: a silence with a selector covers what is of jobs with such labels, and its record says so.
func TestSilenceByLabels(t *testing.T) {
	t.Parallel()
	h := servicetest.Start(t, servicetest.Options{})
	s := h.Service.Alerting()
	ctx := auth.With(t.Context(), auth.HostToken(auth.ByHostToken))
	var wrong *service.InputError
	if _, err := s.Silence(ctx, service.WantedSilence{Jobs: "*", Labels: "a b", For: "2h"}); !errors.As(err, &wrong) || wrong.Where != "body.labels" {
		t.Errorf("found %v, expected what is wrong with body.labels", err)
	}
	made, err := s.Silence(ctx, service.WantedSilence{Jobs: "*", Labels: "team=billing", For: "2h"})
	if err != nil || made.Labels.String() != "team=billing" {
		t.Fatalf("%+v, %v", made, err)
	}
	h.Until("the record says which labels", func() bool {
		found, err := h.Service.Changes(ctx, history.Filter{})
		return err == nil && slices.ContainsFunc(found.Records, func(c history.Change) bool {
			return c.Error == "" && strings.HasSuffix(c.After, ", labels team=billing")
		})
	})
	list, err := s.List(ctx)
	if err != nil || len(list.Silences) != 1 || list.Silences[0].Labels.String() != "team=billing" {
		t.Errorf("%+v, %v", list, err)
	}
}
