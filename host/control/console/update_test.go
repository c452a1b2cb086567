package console

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestParts: the parts of a page are the page, there are few of them, and a line that changes,
// comes or goes changes those next to it alone.
func TestParts(t *testing.T) {
	t.Parallel()
	seed := maphash.MakeSeed()
	for _, lines := range []int{0, 1, 3, 100, 1000, 20000} {
		rows := make([]string, lines)
		for i := range rows {
			rows[i] = fmt.Sprintf("<tr><td>%d</td>%s</tr>\n", i, strings.Repeat("x", i%700))
		}
		page := strings.Join(rows, "") + "</html>"
		list := parts(seed, page)
		var again strings.Builder
		ids := make([]string, len(list))
		for i, p := range list {
			again.WriteString(p.Text)
			ids[i] = p.ID
		}
		if again.String() != page || len(list) > 2*mostParts {
			t.Fatalf("%d lines: %d parts of %d bytes in place of %d", lines, len(list), again.Len(), len(page))
		}
		if lines < 100 {
			continue
		}
		changed := slices.Clone(rows)
		changed[lines/2] = "<tr><td>changed</td></tr>\n"
		newer := 0
		for _, p := range parts(seed, strings.Join(changed, "")+"</html>") {
			if !slices.Contains(ids, p.ID) {
				newer++
			}
		}
		if newer == 0 || newer > 3 {
			t.Errorf("%d lines: of %d parts %d are others after one line has changed", lines, len(list), newer)
		}
	}
}

// TestUpdate: a browser that has a page gets what has changed of it, and has the whole page then.
func TestUpdate(t *testing.T) {
	t.Parallel()
	// Seconds are shown until then, and pass between two requests.
	soon := fmt.Sprintf("0 %d * * * ?", (time.Now().Minute()+30)%60)
	jobs := make([]engine.Job, 60)
	for i := range jobs {
		jobs[i] = servicetest.Job(fmt.Sprintf("job-%02d", i), soon, 1, servicetest.OK)
	}
	s := open(t, servicetest.Options{Jobs: jobs})
	s.Until("all jobs are shown", func() bool { return strings.Count(s.get("/jobs").body, "/jobs/job-") >= 60 })
	kept := map[string]string{}
	ask := func() (page string, sent int) {
		t.Helper()
		have := []string{"nothing"}
		for id := range kept {
			have = append(have, id)
		}
		r := httptest.NewRequest(http.MethodGet, "/jobs", http.NoBody)
		r.Header.Set(headerHave, strings.Join(have, " "))
		w := httptest.NewRecorder()
		s.console.ServeHTTP(w, r.WithContext(auth.With(r.Context(), s.who)))
		var u update
		if err := json.Unmarshal(w.Body.Bytes(), &u); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		var b strings.Builder
		for _, p := range u.Parts {
			if p.Text != "" {
				kept[p.ID] = p.Text
				sent += len(p.Text)
			}
			b.WriteString(kept[p.ID])
		}
		return b.String(), sent
	}
	first, whole := ask()
	if !strings.HasPrefix(first, "<!") || !strings.Contains(first, "job-59") || whole < len(first)/2 {
		t.Fatalf("%d bytes of %d were sent at first", whole, len(first))
	}
	s.post("/jobs/job-07/pause", "reason", "broken disk", "back", "/jobs")
	time.Sleep(1100 * time.Millisecond) // all that is shown of times from now is another second then
	s.until("/jobs", "broken disk")
	next, sent := ask()
	if !strings.Contains(next, "broken disk") || sent == 0 || sent > whole/4 {
		t.Errorf("%d bytes of %d were sent for one job", sent, whole)
	}
}
