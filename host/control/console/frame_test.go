package console

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// TestFrame: each page of a job has its name, its health, what can be done to it, and its tabs.
func TestFrame(t *testing.T) {
	t.Parallel()
	const name = "pay <b>[1]*"
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job(name, "", 1, servicetest.Fail), servicetest.Job("other", "", 1, servicetest.OK)}})
	s.post(jobPath(name, "trigger"), "back", "/")
	of := url.QueryEscape(name2pattern(name))
	list := s.until("/fires?failed=true&job="+of, "disk on fire")
	s.until(jobPath(name), name+" failing") // the status comes from the host, not from the history
	pages := map[string]string{
		jobPath(name): "now", "/fires?job=" + of: "fires", "/runs?failed=true&job=" + of: "fires", "/logs?job=" + of: "logs", "/audit?job=" + of: "audit",
		jobPath(name, "explain"): "explain", jobPath(name, "config"): "config", jobPath(name, "items", "0"): "now",
	}
	for _, link := range append(list.links(), s.get("/runs?job="+of).links()...) {
		if strings.HasPrefix(link, jobPath(name, "fire")+"?") || strings.HasPrefix(link, "/run?") {
			pages[link] = "fires"
		}
	}
	if len(pages) < 10 {
		t.Fatalf("no page of a fire and a run: %v", pages)
	}
	for path, tab := range pages {
		a := s.get(path)
		a.has(t, http.StatusOK, name+" failing", "Run now", "Pause", "Remove", "disk on fire", "Now History Logs Why Configuration Audit")
		if n := strings.Count(a.body, "<h1"); n != 1 {
			t.Errorf("%s: %d headings of the first level", path, n)
		}
		_, tabs, _ := strings.Cut(a.body, `<nav class="tabs"`)
		tabs, _, _ = strings.Cut(tabs, "</nav>")
		here := map[string]string{"now": "Now", "fires": "History", "logs": "Logs", "audit": "Audit", "explain": "Why", "config": "Configuration"}[tab]
		if strings.Count(tabs, "aria-current") != 1 || !strings.Contains(tabs, `">`+here+"</a>") || !strings.Contains(tabs[strings.Index(tabs, "aria-current"):], here) {
			t.Errorf("%s: the tabs are not at %s: %s", path, here, tabs)
		}
	}
	// The lists of one job do not name it in each row, and going back to all of its records keeps the job.
	s.get("/audit?job="+of).lacks(t, " Job ")
	if a := s.get("/fires?failed=true&job=" + of); !slices.Contains(a.links(), "/fires?job="+of) {
		t.Errorf("a filter of the job's fires is not taken away: %v", a.links())
	}
	for _, path := range []string{"/fires", "/runs", "/logs", "/audit", "/fires?job=pay*", "/fires?job=none"} {
		s.get(path).lacks(t, "Run now", "Configuration")
	}
	s.get("/logs?job=other").has(t, http.StatusOK, "No line has been logged yet")
}

// TestFrameGone: pages of what a job that no host has any more did are still there, and say that no host has it.
func TestFrameGone(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	s.Store.AddEvent(event.Event{Time: time.Now(), Job: "gone", RunID: "gone/t9/0", Trigger: 9, Item: new(0), Instant: time.Now(), Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x", Kind: event.ItemStarted, Attempt: 1, Fence: 1})
	a := s.until("/run?run=gone/t9/0", "Run of item 0")
	a.has(t, http.StatusOK, `No host has a job "gone"`, "History")
	a.lacks(t, "Run now")
}

// TestLongLog: a page that shows only the newest lines of a run says so, with a way to the rest.
func TestLongLog(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	at := time.Now().Add(-time.Minute)
	run := func(id string, lines int) {
		e := event.Event{Time: at, Job: "a", RunID: id, Trigger: 9, Item: new(0), Instant: at, Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x", Kind: event.ItemStarted, Attempt: 1, Fence: 1}
		s.Store.AddEvent(e)
		for n := range lines {
			s.Store.AddLine(history.Line{Time: at.Add(time.Duration(n+1) * time.Millisecond), Job: "a", RunID: id, Host: e.Host, Message: fmt.Sprintf("line %04d.", n)})
		}
	}
	run("a/t9/0", 1203)
	run("a/t10/0", 1000)
	s.Store.Sync(t.Context())
	a := s.get("/run?run=a/t9/0")
	a.has(t, http.StatusOK, "line 1202.", "Only the newest 1,000 lines are shown.", "line 0203.")
	a.lacks(t, "line 0202.")
	var earlier, whole string
	for _, link := range a.links() {
		u, err := url.Parse(link)
		if err != nil || u.Path != "/logs" || u.Query().Get("run") == "" {
			continue
		}
		if u.Query().Get("oldest") != "" {
			whole = link
		} else {
			earlier = link
		}
	}
	page := s.get(earlier)
	page.has(t, http.StatusOK, "line 0202.", "line 0103.")
	page.lacks(t, "line 0203.")
	page = s.get(whole)
	page.has(t, http.StatusOK, "line 0000.", "line 0099.", "Next page")
	page.lacks(t, "line 0100.")
	a = s.get("/run?run=a/t10/0")
	a.has(t, http.StatusOK, "line 0999.", "line 0000.")
	a.lacks(t, "Only the newest")
}
