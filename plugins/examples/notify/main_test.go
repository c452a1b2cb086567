package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
)

const url = "https://hooks.example.com/notify"

// receiver notes what it gets, and answers with one status after the other, and then
// with 200.
type receiver struct {
	statuses []int
	got      []string // Authorization, key, body
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.got = append(r.got, req.Header.Get("Authorization")+" "+req.Header.Get("Idempotency-Key")+" "+string(body))
	if len(r.statuses) > 0 {
		status := r.statuses[0]
		r.statuses = r.statuses[1:]
		w.WriteHeader(status)
		fmt.Fprintln(w, "as the test says")
	}
}

func setup(t *testing.T, statuses ...int) (*sdktest.Host, job, *receiver) {
	t.Helper()
	j := job{filepath.ToSlash(t.TempDir())}
	write(t, j, 1)
	r := &receiver{statuses: statuses}
	h := &sdktest.Host{Secrets: map[string]string{"WEBHOOK_TOKEN": "s3cret"}}
	h.Context.JobParameter, h.Context.ShardingParameter, h.Context.RunID = url, "north", "run/1"
	h.AllowHTTP(url, r)
	return h, j, r
}

// write writes a version of the report.
func write(t *testing.T, j job, version int) {
	t.Helper()
	report := fmt.Sprintf("# Sales of north\n\n| cup | 1 | 1.00 |\n| **all** | %d | 1.00 |\n", version)
	if err := os.WriteFile(filepath.Join(j.reports, "north.md"), []byte(report), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sent(key string, version int) string {
	return fmt.Sprintf(`Bearer s3cret %s {"report":"north","text":["# Sales of north","| **all** | %d | 1.00 |"]}`, key, version)
}

func run(t *testing.T, h *sdktest.Host, j job, want abi.Outcome, text string) {
	t.Helper()
	if r := h.Run(j.run); r.Outcome != want || !strings.Contains(r.Message, text) {
		t.Errorf("%s %q, want %s %q", r.Outcome, r.Message, want, text)
	}
}

func check(t *testing.T, r *receiver, want ...string) {
	t.Helper()
	if !slices.Equal(r.got, want) {
		t.Errorf("received\n%s\nwant\n%s", strings.Join(r.got, "\n"), strings.Join(want, "\n"))
	}
}

// TestPostsWhatIsNew: each version of a report is posted once.
func TestPostsWhatIsNew(t *testing.T) {
	t.Parallel()
	h, j, r := setup(t)
	run(t, h, j, abi.OutcomeOK, "")
	h.Context.RunID = "run/2"
	run(t, h, j, abi.OutcomeOK, "")
	check(t, r, sent("run/1", 1))
	write(t, j, 2)
	h.Context.RunID = "run/3"
	run(t, h, j, abi.OutcomeOK, "")
	check(t, r, sent("run/1", 1), sent("run/3", 2))
}

// TestAttemptsSendTheSame: an attempt sends what the first one of its run has sent, even
// if the report has changed since; the next run sends the change.
func TestAttemptsSendTheSame(t *testing.T) {
	t.Parallel()
	h, j, r := setup(t, 503, 429)
	run(t, h, j, abi.OutcomeRetry, "webhook: status 503: as the test says")
	write(t, j, 2)
	run(t, h, j, abi.OutcomeRetry, "webhook: status 429: as the test says")
	run(t, h, j, abi.OutcomeOK, "")
	check(t, r, sent("run/1", 1), sent("run/1", 1), sent("run/1", 1))
	h.Context.RunID = "run/2"
	run(t, h, j, abi.OutcomeOK, "")
	check(t, r, sent("run/1", 1), sent("run/1", 1), sent("run/1", 1), sent("run/2", 2))
}

// TestOutcomes: only what may pass is tried again.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	h, j, _ := setup(t, 401)
	run(t, h, j, abi.OutcomeFail, "webhook: status 401: as the test says")

	h, j, _ = setup(t)
	h.AllowHTTPTrip(url, broken{})
	run(t, h, j, abi.OutcomeRetry, "the line is cut")

	h, j, _ = setup(t)
	h.Context.JobParameter = "https://elsewhere.example.com/"
	run(t, h, j, abi.OutcomeFail, "not granted")

	h, j, _ = setup(t)
	h.Secrets = nil
	run(t, h, j, abi.OutcomeFail, `"WEBHOOK_TOKEN" is not granted`)

	h, j, _ = setup(t)
	j.reports += "/none"
	run(t, h, j, abi.OutcomeFail, "no reports: grant this job a directory")

	h, j, r := setup(t)
	h.Context.ShardingParameter = "west"
	run(t, h, j, abi.OutcomeOK, "")
	check(t, r)

	h, j, _ = setup(t)
	h.Offset = []byte("x")
	run(t, h, j, abi.OutcomeFail, "is none of this job")

	h, j, _ = setup(t)
	h.Context.JobParameter = ""
	run(t, h, j, abi.OutcomeFail, "expected the webhook's URL")
}

type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("the line is cut")
}
