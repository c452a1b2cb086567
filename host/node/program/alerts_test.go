package program

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/control/service"
)

// TestAlertFile: alert test sends a message to who is meant and says who has not taken it;
// alert export makes rules of the file. Neither needs a host.
func TestAlertFile(t *testing.T) {
	t.Parallel()
	var taken atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(text), "test") {
			t.Errorf("%q, %v", text, err)
		}
		if r.URL.Path == "/full" {
			http.Error(w, "full", http.StatusInsufficientStorage)
			return
		}
		taken.Add(1)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	text := fmt.Sprintf(`defaults: {failures: 2}
receivers:
  ops: {webhook: {url: "%s/"}}
  full: {webhook: {url: "%[1]s/full"}}
routes:
  - {name: nights, jobs: "etl-*", to: ops}
  - {name: rest, to: [ops, full]}
`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runCLI(t, nil, "alert", "test", "--route", "nights", "--alerts", file).expect(t, exitOK, "nights/ops (webhook): sent")
	if n := taken.Load(); n != 1 {
		t.Errorf("%d messages to one receiver of one route", n)
	}
	runCLI(t, nil, "alert", "test", "--alerts", file).expect(t, exitFailure, "nights/ops (webhook): sent", "rest/ops (webhook): sent", "rest/full (webhook): not sent: ", "507")
	if n := taken.Load(); n != 3 {
		t.Errorf("%d messages in all", n)
	}
	runCLI(t, nil, "alert", "test", "--route", "nigths", "--alerts", file).expect(t, exitUsage, `there is no route "nigths"; did you mean "nights"?`)
	runCLI(t, []string{"WASMJOB_ALERTS=" + file}, "alert", "export").expect(t, exitOK, "groups:", "(wasmjob_job_failures_in_a_row{}) >= 2")
	runCLI(t, nil, "alert", "export").expect(t, exitUsage, "--alerts is missing")
	runCLI(t, nil, "alert", "export", "--alerts", file+"x").expect(t, exitUsage, "alerts.yamlx")
}

// TestHandlerProblem: error handlers that send something need a file of alerts with a route.
func TestHandlerProblem(t *testing.T) {
	t.Parallel()
	none, some := &system{}, &system{alertFile: &service.AlertFile{Current: func() *alert.File {
		return &alert.File{Handlers: map[string]string{"WECHAT": "rest"}}
	}}}
	for handler, want := range map[string][2]string{
		"EMAIL": {"--alerts", "errorHandlers"}, "wechat": {"--alerts", ""}, "LOG": {"", ""}, "": {"", ""},
	} {
		for i, s := range []*system{none, some} {
			if got := s.handlerProblem(handler); (want[i] == "") != (got == "") || !strings.Contains(got, want[i]) {
				t.Errorf("%q: found %q, expected %q", handler, got, want[i])
			}
		}
	}
}
