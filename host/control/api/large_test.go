package api

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestLargeAnswersAreFew: who has as many answers about all jobs, or all items of one, made as
// one may have at once gets no other one of any kind, and hears when to come back. Others get
// theirs.
func TestLargeAnswersAreFew(t *testing.T) {
	t.Parallel()
	s := serve(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "0 0 3 * * ?", 2, servicetest.OK)}})
	as := func(ctx context.Context, name string) context.Context {
		return auth.With(ctx, auth.Principal{Name: name, Method: auth.ByPassword, Bindings: []auth.Binding{{Role: auth.RoleViewer, Jobs: []string{auth.AllJobs}}}})
	}
	var leaves []func()
	for range 2 {
		leave, err := s.Service.Large(as(t.Context(), "ann"))
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	ask := func(ctx context.Context, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, httptest.NewRequest("GET", path, nil).WithContext(ctx))
		return w
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // who does not wait
	for _, path := range []string{
		"/v1/status", "/v1/status?full=true", "/v1/overview", "/v1/jobs", "/v1/jobs/a", "/v1/hosts", "/v1/hosts/gone", "/v1/modules", "/v1/calendar",
		"/v1/registry/jobs", "/v1/jobs/a/shards", "/v1/jobs/a/kept?item=0",
	} {
		if w := ask(as(gone, "ann"), path); w.Code != 429 || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "2 requests about all jobs or items of ann are open") {
			t.Errorf("GET %s, one more: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
		if w := ask(as(t.Context(), "bob"), path); w.Code != 200 {
			t.Errorf("GET %s of someone else: %d %s", path, w.Code, w.Body)
		}
	}
	for _, leave := range leaves {
		leave()
	}
	for range 3 { // each gives its place back
		if w := ask(as(gone, "ann"), "/v1/status"); w.Code != 200 {
			t.Errorf("when the others are made: %d %s", w.Code, w.Body)
		}
	}
}
