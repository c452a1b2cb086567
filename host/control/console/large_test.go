package console

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
)

// TestPagesOfAllJobsAreFew: who has as many pages about all jobs made as one may have at once
// gets no other one.
func TestPagesOfAllJobsAreFew(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{})
	ctx := auth.With(t.Context(), as(auth.RoleViewer, "*"))
	var leaves []func()
	for range 8 {
		leave, err := s.Service.Page(ctx)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	paths := []string{"/", "/jobs", "/hosts", "/modules", "/calendar"}
	var waiting sync.WaitGroup
	for _, path := range paths {
		waiting.Go(func() {
			w := httptest.NewRecorder()
			s.console.ServeHTTP(w, httptest.NewRequest("GET", path, nil).WithContext(ctx))
			if w.Code != 429 || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "8 pages about all jobs of ann") {
				t.Errorf("GET %s, one more: %d %v %.300s", path, w.Code, w.Header(), w.Body)
			}
		})
	}
	waiting.Wait() // for the seconds in which a place may become free
	for _, leave := range leaves {
		leave()
	}
	for range 2 { // each gives its place back
		for _, path := range paths {
			s.get(path).has(t, 200)
		}
	}
}
