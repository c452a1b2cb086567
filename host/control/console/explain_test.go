package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// TestExplain: the page of a run, and that of a job's fires, say why, in sentences with
// the events that show it.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.Fail)}})
	s.post("/jobs/pay/trigger", "back", "/jobs", "reason", "month end")
	s.until("/runs?failed=true&job=pay", "pay")
	var run string
	for _, link := range s.get("/runs?job=pay").links() {
		if strings.HasPrefix(link, "/run?") {
			run = link
		}
	}
	s.get(run).has(t, http.StatusOK, "Why it went this way", "was triggered at", "began in time on host 127.0.0.1", "disk on fire", ": month end.")
	page := s.get("/jobs/pay/explain")
	page.has(t, http.StatusOK, "Why did it run, or not?", "failed", "disk on fire", "item.ended")
	s.get("/jobs/pay/explain?at=2026-01-01T04:00:00&item=1").has(t, http.StatusOK, "never due", "was not due at 2026-01-01 04:00:00", `"0 0 3 * * ?"`)
	s.get("/jobs/pay/explain?at=2026-01-01T04:00:00Z").has(t, http.StatusOK, "never due")
	s.get("/jobs/pay/explain?at=&item=").has(t, http.StatusOK, "disk on fire") // as its form sends it
	s.get("/jobs/pay/explain?at=noonish").has(t, http.StatusBadRequest, "at", "noonish")
	s.get("/jobs/pay/explain?item=x").has(t, http.StatusBadRequest, "item", "a number from 0")
	s.lang = "zh"
	s.get("/jobs/pay/explain").has(t, http.StatusOK, "为何运行或未运行？", "失败", "被触发，并按时在主机 127.0.0.1 上开始。", "失败（“disk on fire”）。", "执行了“触发”", "，原因：“month end”。")
	s.get(run).has(t, http.StatusOK, "为何如此", "被触发，并按时在主机 127.0.0.1 上开始。")
	s.get("/jobs/pay/explain?at=2026-01-01T04:00:00&item=1").has(t, http.StatusOK, "无此时刻", "作业在 2026-01-01 04:00:00 无需执行", "“0 0 3 * * ?”")
	s.who = as(auth.RoleViewer, "etl-*")
	s.get("/jobs/pay/explain").has(t, http.StatusForbidden)
	s.get("/jobs/pay/explain").lacks(t, "disk on fire")
}

// TestTrigger: what "Run now" has done leads to the fire, or says that it waits; the fire leads to who asked for it,
// and back. A trigger that comes while an earlier one waits says that it is queued.
func TestTrigger(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("long", "", 1, servicetest.Wait)}})
	link := func(page answer, path string) string {
		t.Helper()
		for _, l := range page.links() {
			if strings.HasPrefix(l, path) && strings.Contains(l, "trigger=") {
				return l
			}
		}
		t.Fatalf("no link to %s and a trigger in\n%s", path, page.text())
		return ""
	}
	post := func(says string) (fires string) {
		t.Helper()
		page := s.post("/jobs/long/trigger", "back", "/jobs/long")
		page.has(t, http.StatusOK, says, "Show its fire")
		return link(page, "/fires?")
	}
	began := post("long is triggered.")
	fire := s.get(link(s.until(began, "running"), "/jobs/long/fire?"))
	fire.has(t, http.StatusOK, "Who asked for it")
	if back := link(s.until(link(fire, "/audit?"), "host token"), "/fires?"); back != began {
		t.Errorf("the record of a trigger leads to %s, want %s", back, began)
	}
	waits := post("long is triggered.")
	number := strings.TrimPrefix(waits, "/fires?job=long&trigger=")
	s.get(waits).has(t, http.StatusOK, "No host has begun trigger "+number)
	s.get(waits).lacks(t, "Nothing matches")
	s.post("/jobs/long/trigger", "back", "/jobs/long").has(t, http.StatusOK, "it is queued behind 1")
	s.post("/jobs/long/kill", "back", "/jobs/long")
	s.Until("the trigger that waited has begun", func() bool {
		return slices.ContainsFunc(s.get(waits).links(), func(l string) bool { return strings.HasPrefix(l, "/jobs/long/fire?") })
	})
	s.get(waits+"&failed=true").has(t, http.StatusOK, "Nothing matches")
	s.get("/runs?job=long&trigger=999999").has(t, http.StatusOK, "There is no trigger 999999")
	for _, list := range []byte{history.ListEvents, history.ListChanges} {
		store := s.Histories.Store
		s.Histories.Store = partly{store, list}
		s.get("/runs?job=long&trigger=999999").lacks(t, "There is no trigger")
		s.Histories.Store = store
	}
	s.Histories.Peers = func() []cluster.Peer {
		return []cluster.Peer{{ID: "x", ClusterDetail: tree.ClusterDetail{ServerIP: "10.0.0.9"}}}
	}
	s.Histories.Get = func(context.Context, cluster.Peer, string, any) error { return errors.New("it is halted") }
	s.get("/runs?job=long&trigger=999999").has(t, http.StatusOK, "None is known. The histories of some hosts are missing") // it may be known there
}

// partly has a list that is so long that no page looks through it to the end.
type partly struct {
	history.Store
	list byte
}

func (p partly) next(list byte) string {
	if list != p.list {
		return ""
	}
	return history.PositionOf(time.Now().Add(-time.Hour), "1").Cursor(list)
}

func (p partly) Events(context.Context, history.Filter) (history.Page[event.Event], error) {
	return history.Page[event.Event]{Next: p.next(history.ListEvents)}, nil
}

func (p partly) Changes(context.Context, history.Filter) (history.Page[history.Change], error) {
	return history.Page[history.Change]{Next: p.next(history.ListChanges)}, nil
}

// TestNoSuchJob: a list of one job that there is not says so; a pattern finds nothing.
func TestNoSuchJob(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	for path, empty := range map[string]string{"/fires": "Nothing matches", "/runs": "Nothing matches", "/logs": "Nothing matches", "/audit": "Nothing matches", "/calendar": "No job fires in this week."} {
		s.get(path+"?job=nosuch").has(t, http.StatusOK, `No host has a job "nosuch"`)
		s.get(path+"?job=nosuch").lacks(t, empty)
		s.get(path+"?job=nosuch*").has(t, http.StatusOK, empty)
	}
	s.get("/fires?job=a").has(t, http.StatusOK, "Nothing has run yet")
	s.get("/fires?job=a&failed=true").has(t, http.StatusOK, "Nothing matches")
	s.who = as(auth.RoleViewer, "b")
	s.get("/fires?job=nosuch").has(t, http.StatusOK, "Nothing matches")
}

// TestExplain_zone: the instant above the sentences is in their zone, which the page names; the reader's is beside it.
func TestExplain_zone(t *testing.T) {
	t.Parallel()
	nightly := servicetest.Job("nightly", "0 0 3 * * ?", 1, servicetest.OK)
	nightly.Definition.TimeZone = "Asia/Shanghai"
	s := open(t, servicetest.Options{Jobs: []engine.Job{nightly}})
	page := s.get("/jobs/nightly/explain?at=2026-01-01T03:00:00Z")
	page.has(t, http.StatusOK, "The fire of 2026-01-01 11:00:00 Asia/Shanghai ( 01-01 03:00:00 UTC)", "Their times are in Asia/Shanghai.", "was not due at 2026-01-01 11:00:00")
	s.lang = "zh"
	s.get("/jobs/nightly/explain?at=2026-01-01T03:00:00Z").has(t, http.StatusOK, "2026-01-01 11:00:00 Asia/Shanghai", "时区为 Asia/Shanghai。")
}

// TestBannerOfTheClock: a host whose clock is not to be trusted says so above each page.
func TestBannerOfTheClock(t *testing.T) {
	t.Parallel()
	p := &page{reader: reader{Lang: i18n.English, Now: time.Now(), Zone: time.UTC, texts: table(t)}}
	h := cluster.Host{Here: true, Report: &report.Report{Status: engine.Status{State: engine.HostLive, Clock: &engine.ClockStatus{Drift: 90 * time.Second, Off: true}}}}
	if got := p.bannersOf(h); len(got) != 1 || got[0].Kind != "warn" || !strings.Contains(got[0].Text, "1m30s") {
		t.Errorf("%+v", got)
	}
	h.Report.Status.Clock.Off = false
	if got := p.bannersOf(h); len(got) != 0 {
		t.Errorf("a clock that is right: %+v", got)
	}
}

// TestRemovedWhileOpen: what a page of a job offers after the job was removed, or is gone
// from its host, changes nothing and says what has become of it.
func TestRemovedWhileOpen(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 3 * * ?", 1, servicetest.OK), servicetest.Job("etl", "0 0 3 * * ?", 1, servicetest.OK)}})
	s.get("/jobs/pay").has(t, http.StatusOK, "Run now")
	config := s.get("/jobs/pay/config")
	config.has(t, http.StatusOK, "Save")
	if err := s.Service.Remove(auth.With(t.Context(), auth.HostToken(auth.ByHostToken)), "pay", false, "not wanted"); err != nil {
		t.Fatal(err)
	}
	s.until("/jobs/pay", "removed")
	for _, act := range []string{"/jobs/pay/trigger", "/jobs/pay/items/0/pause"} { // the page that it came from says what happened
		s.post(act, "back", "/jobs/pay").has(t, http.StatusOK, `job "pay": the job was removed from the registry`)
	}
	s.post("/jobs/pay/config", "version", "-1", "was.cron", "0 0 3 * * ?", "set.cron", "0 0 4 * * ?", "do", "save").has(t, http.StatusConflict, "removed")
	s.Host.Apply([]engine.Job{servicetest.Job("etl", "0 0 3 * * ?", 1, servicetest.OK)}, nil)
	s.until("/jobs/pay", "no host has a job")
	s.post("/jobs/pay/trigger", "back", "/jobs").has(t, http.StatusOK, `there is no job "pay"`)
	s.get("/jobs/pay/config").has(t, http.StatusNotFound, `"pay"`)
	s.get("/jobs/pay/explain").has(t, http.StatusOK, "Why did it run, or not?")
	s.get("/jobs").has(t, http.StatusOK, "etl")
}

// TestUnheld: a job of the registry of which no host has the definition any more is in the
// lists, with a page that says so and offers to remove it.
func TestUnheld(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.OK)}})
	s.Host.Apply(nil, nil)
	s.until("/jobs", "none of its servers has a definition of it any more")
	s.get("/").lacks(t, "none of its servers")
	s.get("/jobs?state=without+a+definition").has(t, http.StatusOK, "pay", "0 0 3 * * ?")
	s.get("/jobs/pay").has(t, http.StatusOK, "without a definition", "0 0 3 * * ?", "wasmjob job remove pay", "Remove")
	s.get("/jobs/pay/config").has(t, http.StatusOK, "No host has a definition file of this job")
}

// TestMissingLines: a run's page and the search say where lines are missing, and how many.
func TestMissingLines(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.OK)}})
	item, id := 1, "pay/2026-03-01T03:00:00.000Z/1"
	at := time.Now().Add(-time.Minute)
	s.Store.AddEvent(event.Event{Time: at, Kind: event.ItemStarted, Host: "10.0.0.1@-@1-a", Job: "pay", Item: &item, RunID: id, Instant: at, Source: abi.SourceSchedule, Fence: 5, Attempt: 1})
	s.Store.AddLine(history.Line{Time: at, Job: "pay", RunID: id, Item: 1, Host: "10.0.0.1@-@1-a", Message: "first"})
	s.Store.AddLine(history.Line{Time: at.Add(time.Second), Job: "pay", RunID: id, Item: 1, Host: "10.0.0.1@-@1-a", Message: "last", Gap: 442})
	for _, page := range []string{"/run?run=" + url.QueryEscape(id), "/logs?job=pay"} {
		s.until(page, "missing before this: 442 lines").lacks(t, "missing before this: 0")
	}
}

// TestTakenOver: lists have when a run that was taken over began on the host that has it, and its page
// when it began first as well.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.OK)}})
	at := time.Now().UTC().Truncate(time.Minute).Add(-90 * time.Minute) // whose minute is no other time of the pages
	item := 1
	e := event.Event{Time: at.Add(11 * time.Second), Kind: event.ItemStarted, Host: "10.0.0.1@-@1-a", Job: "pay", Item: &item, RunID: "pay/" + at.Format("2006-01-02T15:04:05.000Z") + "/1",
		Instant: at, Source: abi.SourceSchedule, Fence: 5, Attempt: 1}
	s.Store.AddEvent(e)
	e.Host, e.Source, e.Fence, e.Time = "10.0.0.2@-@2-b", abi.SourceFailover, 6, at.Add(47*time.Second)
	s.Store.AddEvent(e)
	minute := at.Format("04:")
	s.until("/runs?job=pay", minute+"47").lacks(t, minute+"11")
	s.get("/run?run="+url.QueryEscape(e.RunID)).has(t, http.StatusOK, minute+"47", "first began", minute+"11")
}
