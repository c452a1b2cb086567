package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// sample is a request of an operation that is well formed, and the problems that the code has
// for such requests, beside those that all operations have.
type sample struct {
	query, body string
	answers     []int
}

// samples has each operation.
func samples() map[string]sample {
	none, noJob := []int(nil), []int{404}
	removed := []int{404, 409} // the job is not there, or was removed and is still defined
	return map[string]sample{
		"getStatus": {answers: none}, "getOverview": {answers: none}, "listJobs": {answers: none}, "getJob": {answers: noJob}, "listHosts": {answers: none}, "listGoneHosts": {answers: none},
		"getBackup": {answers: none}, "getRestart": {query: "?host=nowhere", answers: noJob}, "listModules": {answers: none}, "getCalendar": {answers: none}, "trySchedule": {query: "?cron=0+0+*+*+*+*"}, "listRegistryJobs": {answers: none}, "listLimits": {answers: none},
		"getShards": {answers: removed}, "getKept": {answers: removed}, "getConfig": {answers: removed}, "explainFire": {answers: none},
		"editConfig": {body: `{"settings":{"cron":"0 0 4 * * ?"}}`, answers: []int{404, 409, 412}},
		"listFires":  {answers: none}, "listRuns": {answers: none}, "listEvents": {answers: none}, "listLines": {answers: none}, "listChanges": {answers: none},
		"getRun":     {query: "?id=none%2F2026-01-01T00:00:00Z%2F0", answers: noJob},
		"streamJobs": {answers: none}, "streamLines": {query: "?job=there", answers: none},
		"listAlerts": {answers: none}, "silenceAlerts": {body: `{"jobs":"*","for":"1h"}`, answers: none}, "unsilenceAlerts": {answers: noJob},
		"testAlerts": {body: `{}`, answers: []int{409}},
		"enableAll":  {answers: none}, "disableAll": {answers: none}, "enableServerForAll": {answers: noJob}, "disableServerForAll": {answers: noJob},
		"enableJob": {answers: removed}, "disableJob": {answers: removed}, "enableServer": {answers: removed}, "disableServer": {answers: removed},
		"enableItem": {answers: removed}, "disableItem": {answers: removed},
		"getBackfill": {answers: noJob}, "startBackfill": {body: `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`, answers: removed}, "cancelBackfill": {answers: removed},
		"triggerJob": {body: `{}`, answers: removed}, "startJob": {answers: noJob}, "restoreJob": {answers: []int{404, 409}},
		"shutdownInstances": {query: "?server=127.0.0.9", answers: noJob}, "startInstances": {query: "?server=127.0.0.9", answers: noJob}, "shutdownJob": {answers: removed}, "removeJob": {answers: removed},
		"releaseItems": {answers: removed}, "changeKept": {query: "?item=0", body: `{"offset":"1"}`, answers: removed}, "killRuns": {answers: removed},
	}
}

// nulls is a value that is null: no list and no object is.
var nulls = regexp.MustCompile(`"[A-Za-z]+":null`)

// TestAnswersAreDescribed sends each operation requests that are well formed and others: of
// jobs that there are, that were removed, whose module is being compiled and that there never
// were, with and without the role, with a session and when time is over. The description has
// each answer; and the answers that the table has do come.
func TestAnswersAreDescribed(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("there", "0 0 3 * * ?", 2, servicetest.OK), servicetest.Job("removed", "0 0 3 * * ?", 2, servicetest.OK)}})
	s.Pending.Store(&report.Pending{Compiling: []report.Compiling{{Module: "soon.wasm", Jobs: []string{"soon"}}}})
	if a := s.ask("DELETE", "/v1/jobs/removed", ""); a.code/100 != 2 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	s.Until("the host has left it", func() bool {
		return slices.ContainsFunc(s.Host.Status().Jobs, func(j *engine.JobStatus) bool { return j.Name == "removed" && j.State == engine.JobRemoved })
	})
	root := auth.HostToken(auth.ByHostToken)
	other := auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{"etl-*"}}}}
	table := samples()
	for path, item := range s.api.huma.OpenAPI().Paths {
		for method, o := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PATCH": item.Patch, "DELETE": item.Delete} {
			if o == nil || o.OperationID == "createLoginLink" { // which the server before the API answers
				continue
			}
			want, known := table[o.OperationID]
			if !known {
				t.Errorf("%s is not in the table", o.OperationID)
			}
			came := make(map[int]bool)
			ask := func(p auth.Principal, job, query, body string, change func(*http.Request) *http.Request) {
				t.Helper()
				at := strings.NewReplacer("{job}", job, "{item}", "0", "{ip}", "127.0.0.9", "{id}", "0123456789abcdef").Replace(path) + query
				r := httptest.NewRequest(method, at, strings.NewReader(body))
				r.Header.Set("If-Match", "*")
				if body != "" {
					r.Header.Set("Content-Type", "application/json")
				}
				r = r.WithContext(auth.With(r.Context(), p))
				if change != nil {
					r = change(r)
				}
				w := httptest.NewRecorder()
				s.api.ServeHTTP(w, r)
				came[w.Code] = true
				if found := nulls.Find(w.Body.Bytes()); found != nil {
					t.Errorf("%s: %s %s answers %s, expected an empty list, or nothing: %s", o.OperationID, method, at, found, w.Body)
				}
				if o.Responses[strconv.Itoa(w.Code)] == nil || w.Code == http.StatusInternalServerError {
					t.Errorf("%s: %s %s answers %d, which is not described: %s", o.OperationID, method, at, w.Code, w.Body)
				}
			}
			late := func(r *http.Request) *http.Request {
				ctx, cancel := context.WithDeadline(r.Context(), time.Now().Add(-time.Second))
				t.Cleanup(cancel)
				return r.WithContext(ctx)
			}
			ask(auth.Principal{}, "there", want.query, want.body, nil)
			ask(other, "there", want.query, want.body, nil)
			ask(root, "there", "?nosuch=1", want.body, nil)
			if strings.Contains(path, "stream") {
				continue // what is well formed does not end
			}
			ends := o.OperationID == "removeJob" || o.OperationID == "shutdownJob"
			for _, job := range []string{"there", "removed", "soon", "none", "a%2Fb"} {
				if job == "removed" && (o.OperationID == "startJob" || o.OperationID == "restoreJob") {
					continue // the others find it removed
				}
				if job != "there" || !ends {
					ask(root, job, want.query, want.body, nil)
				}
				ask(root, job, want.query, want.body, late)
			}
			if want.body != "" {
				ask(root, "there", want.query, "{", nil)
				ask(root, "there", want.query, `{"x":1}`, nil)
				ask(root, "there", want.query, `"`+strings.Repeat("x", 8<<20)+`"`, nil)
				ask(root, "there", want.query, "", nil)
				ask(root, "there", want.query, want.body, func(r *http.Request) *http.Request {
					r.Header.Set("Content-Type", "text/plain")
					return r
				})
			}
			ask(root, "there", want.query, want.body, func(r *http.Request) *http.Request {
				r.Header.Set("If-Match", `"1"`)
				if ends {
					return late(r)
				}
				return r
			})
			if strings.Contains(path, "{job}") {
				want.answers = append(want.answers, http.StatusUnauthorized, http.StatusForbidden)
			}
			for _, code := range append(want.answers, http.StatusUnprocessableEntity) {
				if !came[code] {
					t.Errorf("%s: no request is answered with %d, only %v", o.OperationID, code, came)
				}
			}
		}
	}
}
