package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/history"
)

// askAs sends a request as somebody.
func (s *served) askAs(p auth.Principal, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("If-Match", "*")
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r.WithContext(auth.With(r.Context(), p)))
	return w
}

// TestRoles goes through all endpoints of the description: who may see the jobs etl-* alone
// finds no other job's name anywhere, learns nothing of which there are, and changes
// nothing; and who sends a request that nobody let through, gets nothing at all.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{
		Jobs:    []engine.Job{servicetest.Job("etl-1", "0 0 3 * * ?", 2, servicetest.Fail), servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.Fail)},
		Refused: []engine.Refusal{{File: "pay-2.yaml", Reasons: []string{"line 1: job \"pay-2\": no"}}},
	})
	s.Pending.Store(&report.Pending{Compiling: []report.Compiling{{Module: "pay-3.wasm", Jobs: []string{"pay-3"}}}})
	for _, job := range []string{"pay", "etl-1"} {
		if a := s.ask("POST", "/v1/jobs/"+job+"/trigger", ""); a.code/100 != 2 {
			t.Fatalf("%d %s", a.code, a.body)
		}
	}
	viewer := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}}
	looked, refused := 0, 0
	for path, item := range s.api.huma.OpenAPI().Paths {
		if strings.Contains(path, "stream") {
			continue // it does not end
		}
		with := func(job string) string {
			if strings.HasPrefix(path, "/v1/silences/") { // whose id is no job's
				return "/v1/silences/0123456789abcdef"
			}
			return strings.NewReplacer("{job}", job, "{run}", job+"%2F2026-01-01T00:00:00Z%2F0", "{id}", job+"%2F2026-01-01T00:00:00Z%2F0", "{item}", "0", "{ip}", "127.0.0.1").Replace(path)
		}
		if strings.Contains(with("x"), "{") {
			t.Errorf("%s has a part that this test does not know", path)
		}
		if item.Get != nil {
			w := s.askAs(viewer, "GET", with("etl-1")+queryOf(path), "")
			looked++
			if text := strings.ReplaceAll(w.Body.String(), "ann", ""); strings.Contains(text, "pay") || w.Code >= 500 {
				t.Errorf("GET %s shows another job: %d %s", path, w.Code, text)
			}
		}
		for method, o := range map[string]any{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if fmt.Sprint(o) == "<nil>" {
				continue
			}
			body := map[string]string{"POST/kept": `{"offset":"1"}`, "PATCH/config": `{"settings":{"cron":"0 0 4 * * ?"}}`, "POST/backfill": `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`}[method+path[strings.LastIndexByte(path, '/'):]]
			if w := s.askAs(auth.Principal{}, method, with("pay")+queryOf(path), body); w.Code != 401 && strings.Contains(w.Body.String(), `"pay`) {
				t.Errorf("%s %s without a principal: %d %s", method, path, w.Code, w.Body)
			}
			if method == "GET" && !strings.Contains(path, "{") {
				continue
			}
			there, not := s.askAs(viewer, method, with("pay")+queryOf(path), body), s.askAs(viewer, method, with("poy")+queryOf(path), body)
			refused++
			if there.Code != not.Code || strings.ReplaceAll(there.Body.String(), "pay", "poy") != not.Body.String() {
				t.Errorf("%s %s shows whether a job exists: %d %s; %d %s", method, path, there.Code, there.Body, not.Code, not.Body)
			}
			if strings.Contains(path, "{job}") && there.Code != http.StatusForbidden {
				t.Errorf("%s %s: %d %s", method, path, there.Code, there.Body)
			}
		}
	}
	if looked < 10 || refused < 10 {
		t.Errorf("%d endpoints were looked at, %d refused", looked, refused)
	}
	some := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleOperator, Jobs: []string{"etl-*"}}}}
	for _, verb := range []string{"disable", "enable"} { // what would be done in part is not done
		if w := s.askAs(some, "POST", "/v1/"+verb, ""); w.Code != http.StatusForbidden {
			t.Errorf("%s all: %d %s", verb, w.Code, w.Body)
		}
	}
	var p auth.Problem
	w := s.askAs(viewer, "POST", "/v1/jobs/etl-1/trigger", "")
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 403 || p.Type != auth.RoleMissing || !strings.Contains(p.Detail, `to operate job "etl-1" you need the role operator for it; ann has viewer of etl-*`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// queryOf is what a path wants in its query.
func queryOf(path string) string {
	if path == "/v1/schedule" {
		return "?cron=0+0+*+*+*+*"
	}
	return ""
}

// changing is a source of a guard whose answer changes.
type changing struct{ role atomic.Value }

func (s *changing) Identify(*http.Request) (auth.Principal, error) {
	return auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: s.role.Load().(auth.Role), Jobs: []string{"*"}}}}, nil
}

// TestStreamOfAnother: a stream ends soon after who opened it has another role.
func TestStreamOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &API{o: Options{Cluster: cluster.New(cluster.Options{})}}
		source := &changing{}
		source.role.Store(auth.RoleViewer)
		guard := auth.NewGuard(zap.NewNop(), func(*http.Request) string { return "" }, source)
		guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, end := a.until(r.Context())
			defer end()
			time.Sleep(10 * stillThere)
			if ctx.Err() != nil {
				t.Error("the stream ended, and nothing has changed")
			}
			source.role.Store(auth.RoleOperator)
			time.Sleep(stillThere + time.Second)
			if ctx.Err() == nil {
				t.Error("the stream goes on with another role")
			}
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/stream", http.NoBody))
	})
}

// TestKillOfAnother: the answer of a kill that waits for long ends soon after who sent it has
// another role, or is not let in any more, and shows nothing more then. What runs ends all
// the same.
func TestKillOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := servicetest.Start(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("long", "", 1, servicetest.Wait)}})
		a := New(Options{Service: h.Service, Cluster: h.Cluster, Local: h.Local, Tail: h.Tail, Store: h.Store})
		source := &changing{}
		source.role.Store(auth.RoleOperator)
		guarded := auth.NewGuard(zap.NewNop(), func(*http.Request) string { return "" }, source).Handler(a)
		if err := h.Registry.Trigger(t.Context(), "long"); err != nil {
			t.Fatal(err)
		}
		h.Until("it runs", func() bool {
			return len(h.Host.Status().Jobs) == 1 && h.Host.Status().Jobs[0].State == engine.JobRunning
		})
		time.Sleep(2 * time.Second) // a kill of a run that is younger takes effect then
		time.AfterFunc(time.Minute, func() { source.role.Store(auth.RoleViewer) })
		began, w := time.Now(), httptest.NewRecorder()
		guarded.ServeHTTP(w, httptest.NewRequest("POST", "/v1/jobs/long/kill?grace=10m&wait=1h", http.NoBody))
		lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
		if took := time.Since(began); took < time.Minute || took > time.Minute+stillThere {
			t.Errorf("it took %s", took)
		}
		if last := lines[len(lines)-1]; w.Code != http.StatusOK || len(lines) < 2 || !strings.Contains(last, `"error":"who asked is signed out by now, or has other roles`) || strings.Contains(last, "long/") {
			t.Errorf("%d %q", w.Code, lines)
		}
		time.Sleep(10 * time.Minute)
		h.Until("it was killed", func() bool { return h.Host.Status().Jobs[0].State != engine.JobRunning })
	})
}

// TestNextOfOthers: the answer to a request for records is the same whether another job,
// whose records it asks for, has some or not: also the cursor of the next page.
func TestNextOfOthers(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("etl-1", "0 0 3 * * ?", 1, servicetest.Fail), servicetest.Job("etl-2", "0 0 3 * * ?", 1, servicetest.Fail), servicetest.Job("pay", "0 0 3 * * ?", 2, servicetest.Fail)}})
	began := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	line := func(minute int, job string) {
		s.Store.AddLine(history.Line{Time: began.Add(time.Duration(minute) * time.Minute), Job: job, RunID: job + "/x/0", Message: "sum of " + job})
	}
	for minute := range 120 { // more than the pages of a store that are read for one page
		line(minute, "pay")
		line(minute, "pay")
	}
	line(60, "etl-1")
	line(61, "etl-1")
	line(62, "etl-2")
	triggered := map[string]int{"etl-1": 2, "etl-2": 1, "pay": 4}
	for job, runs := range triggered {
		for done := 0; done < runs; {
			if a := s.ask("POST", "/v1/jobs/"+job+"/trigger", ""); a.code/100 != 2 {
				t.Fatalf("%d %s", a.code, a.body)
			}
			s.Until("it has run", func() bool {
				now := len(get[cluster.Found[history.Run]](s, "/v1/runs?job="+job).Records)
				ran := now > done
				if ran {
					done = now
				}
				return ran
			})
		}
	}
	long := []string{"etl-*"} // more than other hosts are sent
	for n := range 100 {
		long = append(long, fmt.Sprintf("%050d", n))
	}
	for name, patterns := range map[string][]string{"one pattern": {"etl-*"}, "many patterns": long, "no-job's too": {"etl-*", "e**"}} {
		viewer := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: patterns}}}
		ask := func(query string) (found cluster.Found[struct {
			Job string `json:"job"`
		}]) {
			t.Helper()
			w := s.askAs(viewer, "GET", query, "")
			if err := json.Unmarshal(w.Body.Bytes(), &found); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s: %s: %d %s", name, query, w.Code, w.Body)
			}
			return found
		}
		for _, list := range []string{"/v1/logs", "/v1/runs", "/v1/fires", "/v1/events", "/v1/audit"} {
			for _, query := range []string{"?limit=1&job=pay", "?limit=1&job=p*", "?limit=1&job=pa%5Cy", "?limit=1&job=p*&job=pay", "?limit=1&job=pay&oldest=true", "?limit=1&text=pay", "?limit=1&job=*&text=pay"} {
				if found := ask(list + query); len(found.Records) > 0 || found.Next != "" {
					t.Errorf("%s: %s%s shows that another job has records: %+v", name, list, query, found)
				}
			}
			for query, want := range map[string]string{"?": "etl-1 etl-2", "?job=*": "etl-1 etl-2", "?job=etl-1&job=pay": "etl-1", "?job=etl-1&job=p*": "etl-1", "?job=*-2": "etl-2", "?job=*&oldest=true": "etl-1 etl-2"} {
				jobs, after := []string{}, ""
				for page := 0; ; page++ {
					found := ask(list + query + "&limit=1&after=" + url.QueryEscape(after))
					for _, r := range found.Records {
						if !slices.Contains(jobs, r.Job) {
							jobs = append(jobs, r.Job)
						}
					}
					if after = found.Next; after == "" || page > 300 {
						break
					}
				}
				slices.Sort(jobs)
				if got := strings.Join(jobs, " "); got != want {
					t.Errorf("%s: %s%s: found %q, want %q", name, list, query, got, want)
				}
			}
		}
		if w := s.askAs(viewer, "GET", "/v1/logs?job=%5B", ""); w.Code != 422 {
			t.Errorf("%s: a pattern that is wrong: %d %s", name, w.Code, w.Body)
		}
		// The newest line of all is of the other job: the last page of one's own ends the same.
		if first, second := ask("/v1/logs?limit=1&oldest=true&job=etl-2"), ask("/v1/logs?limit=1&job=etl-2"); len(first.Records) != 1 || len(second.Records) != 1 || first.Next != second.Next {
			t.Errorf("%s: %+v, %+v", name, first, second)
		}
	}
}

// TestFramesOfPatterns: events are shared by those alone who may see the same, whatever is
// in the names of jobs.
func TestFramesOfPatterns(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{once("a", 1)}})
	get[service.Jobs](s, "/v1/jobs") // so that they are known
	for _, patterns := range [][]string{{"a", "b"}, {"a b"}} {
		var since cluster.Mark
		p := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: patterns}}}
		event, _ := s.api.frames.next(auth.With(t.Context(), p), s.Service, &since)
		if got, want := strings.Contains(string(event), `"name":"a"`), patterns[0] == "a"; got != want {
			t.Errorf("%q: sees a: %t, want %t: %s", patterns, got, want, event)
		}
	}
}

// elsewhere is a store that says it is in a database.
type elsewhere struct{ history.Store }

func (elsewhere) State() history.State {
	return history.State{Where: "postgres://wasmjob@db.internal/history", Shared: true, Problem: "dial tcp 10.1.2.3:5432: refused"}
}

// TestOverview_history: where the history is, is for who operates all jobs.
func TestOverview_history(t *testing.T) {
	t.Parallel()
	h := serve(t, servicetest.Options{})
	s := service.New(service.Options{Namespace: servicetest.Namespace, Cluster: h.Cluster, Histories: h.Histories, Store: elsewhere{h.Store}, Logger: zap.NewNop()})
	for role, want := range map[auth.Role]string{auth.RoleViewer: "postgres: the host's log says why", auth.RoleOperator: "postgres://wasmjob@db.internal/history: dial tcp 10.1.2.3:5432: refused"} {
		p := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: role, Jobs: []string{auth.AllJobs}}}}
		o, err := s.Overview(auth.With(t.Context(), p))
		if err != nil || o.History.Where+": "+o.History.Problem != want {
			t.Errorf("a %s of all jobs sees %+v, %v", role, o, err)
		}
	}
}

// TestRefusedChanges: a change that is refused because a role is missing is recorded with all that was
// asked for; of many of the same user the first are.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("etl-1", "0 0 3 * * ?", 2, servicetest.Fail)}})
	viewer := auth.Principal{Name: "ann", Method: auth.ByPassword, From: "10.9.9.9", Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}}
	requests := []string{"/v1/jobs/etl-1/trigger?reason=now", "/v1/jobs/etl-1/servers/10.0.0.7/disable", "/v1/jobs/etl-1/shutdown?instance=i-1", "/v1/enable"}
	for range 20 {
		requests = append(requests, "/v1/jobs/etl-1/enable")
	}
	for _, path := range requests {
		if w := s.askAs(viewer, "POST", path, ""); w.Code != http.StatusForbidden {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	bob := viewer
	bob.Name = "bob"
	s.askAs(bob, "POST", "/v1/jobs/etl-1/start", "")
	var list []history.Change
	s.Until("the record of bob", func() bool {
		page, err := s.Store.Changes(t.Context(), history.Filter{Oldest: true})
		if err != nil {
			t.Fatal(err)
		}
		list = slices.DeleteFunc(page.Records, func(c history.Change) bool { return c.What == "create" })
		return len(list) > 0 && list[len(list)-1].Who == "bob"
	})
	if n := len(list); n < 11 || n > 13 { // 10, and bob's; one more may come every six seconds
		t.Fatalf("%d records: %+v", n, list)
	}
	for i, want := range []history.Change{{What: "trigger", Job: "etl-1", Why: "now"}, {What: "disable", Job: "etl-1", Host: "10.0.0.7"}, {What: "shutdown", Job: "etl-1", Host: "i-1"}, {What: "enable"}} {
		got := list[i]
		if !strings.Contains(got.Error, "you need the role operator") || got.Time.IsZero() {
			t.Errorf("record %d: %+v", i, got)
		}
		want.Who, want.From, want.Error, want.Time = "ann", "10.9.9.9", got.Error, got.Time
		if got != want {
			t.Errorf("record %d is\n%+v, want\n%+v", i, got, want)
		}
	}
}
