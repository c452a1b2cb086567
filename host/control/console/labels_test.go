package console

import (
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
)

// TestLabels: the labels of a job stand below its name, and each lists the jobs that have it.
func TestLabels(t *testing.T) {
	t.Parallel()
	job := servicetest.Job("bill", "0 0 3 * * ?", 1, servicetest.OK)
	job.Definition.Props = map[string]string{"wasm.labels": "team=billing,tier=gold"}
	s := open(t, servicetest.Options{Jobs: []engine.Job{job, servicetest.Job("etl", "0 0 3 * * ?", 1, servicetest.OK)}})
	const chip = `<a class="tag" href="/jobs?label=team%3Dbilling">team=billing</a>`
	for _, path := range []string{"/jobs", jobPath("bill")} {
		if page := s.get(path); !strings.Contains(page.body, chip) {
			t.Errorf("%s does not show the label:\n%s", path, page.text())
		}
	}
	page := s.get("/jobs?label=team%3Dbilling&label=tier")
	if !strings.Contains(page.body, jobPath("bill")) || strings.Contains(page.body, jobPath("etl")) {
		t.Errorf("the list is not that of the label:\n%s", page.text())
	}
	if !strings.Contains(page.body, `name="label" value="team=billing,tier"`) {
		t.Errorf("the form does not have the selector:\n%s", page.text())
	}
	for _, path := range []string{"/fires", "/runs", "/logs", "/audit", "/calendar"} {
		if page := s.get(path + "?label=team%3Dbilling"); !strings.Contains(page.body, `name="label" value="team=billing"`) {
			t.Errorf("%s has no filter of labels:\n%s", path, page.text())
		}
	}
}
