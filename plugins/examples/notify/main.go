// Command notify is a SIMPLE job that posts a report to a webhook when the report has
// changed. The item's parameter is the report's name: "north" is /reports/north.md,
// which the job report has written. The job's parameter is the URL.
//
// The webhook wants a token. The job names it in a header and never has it: the host
// puts the secret in the place of {{secret:WEBHOOK_TOKEN}}, in requests to the address
// for which the operator has granted it.
//
// A status of 429 or 5xx and a connection that cannot be made are worth another
// attempt: the job asks for it (RETRY), and the host waits and tries again as the
// definition says. The receiver may have got the message all the same, if only its
// answer was lost. So each attempt has the same Idempotency-Key, which the host adds: it
// is the run's id. And each attempt sends the same message: what is to be sent is
// committed, in the offset, before it is sent for the first time, and one run sends
// one message. Without that an attempt might send a newer report under an old key,
// and the receiver would drop it.
//
// The module has about 4 MB, since package sdk/http does without net/http.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"

	"github.com/wasmjob/wasmjob/sdk"
	"github.com/wasmjob/wasmjob/sdk/http"
	"github.com/wasmjob/wasmjob/sdk/simple"
)

// job is the directory of reports, as the guest sees it.
type job struct{ reports string }

func init() {
	j := job{"/reports"}
	simple.Register(j.run)
}

func main() {}

// state is the offset.
type state struct {
	// Posted is the digest of the report that was posted last.
	Posted string `json:"posted,omitempty"`
	// Run is the run that has prepared Message, of the report with the digest Report.
	Run     string          `json:"run,omitempty"`
	Report  string          `json:"report,omitempty"`
	Message json.RawMessage `json:"message,omitempty"`
}

// message is the body of the request.
type message struct {
	Report string   `json:"report"`
	Text   []string `json:"text"`
}

func (j job) run(ctx context.Context, sc sdk.ShardingContext) error {
	url, name := sc.JobParameter, sc.ShardingParameter
	if url == "" || name == "" {
		return fmt.Errorf("expected the webhook's URL as job parameter and the name of a report as parameter of item %d", sc.ShardingItem)
	}
	s, err := load()
	if err != nil {
		return err
	}
	if s.Run != sc.RunID {
		something, err := j.prepare(&s, sc.RunID, name)
		if err != nil || !something {
			return err
		}
	}
	if err := post(ctx, url, s.Message); err != nil {
		return err
	}
	slog.Info("posted", "report", name, "attempt", sc.Attempt)
	return state{Posted: s.Report}.save()
}

// prepare commits what this run sends. It is false if there is nothing new.
func (j job) prepare(s *state, run, name string) (bool, error) {
	file := path.Join(j.reports, name+".md")
	report, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, none := os.Stat(j.reports); none != nil {
			return false, fmt.Errorf("no reports: grant this job a directory with guest: %s, and run the host with --grants (plugins/grants.yaml does): %w", j.reports, none)
		}
		slog.Info("no report yet", "file", file)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(report)
	s.Run, s.Report = run, hex.EncodeToString(sum[:])
	if s.Report == s.Posted {
		slog.Info("nothing new", "report", name)
		return false, nil
	}
	if s.Message, err = json.Marshal(message{name, lines(report)}); err != nil {
		return false, err
	}
	if err := s.save(); err != nil {
		return false, err
	}
	return true, sdk.CommitOffset()
}

// lines are the lines of the report that are worth a message: those of its totals. An
// offset has 4 KiB, so the message is short.
func lines(report []byte) []string {
	var found []string
	for line := range strings.Lines(string(report)) {
		if strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "| **") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// post sends the message.
func post(ctx context.Context, url string, body []byte) error {
	resp, err := http.Do(ctx, http.Request{
		Method: "POST",
		URL:    url,
		Header: http.Header{
			"Authorization": {"Bearer {{secret:WEBHOOK_TOKEN}}"},
			"Content-Type":  {"application/json"},
		},
		Body: bytes.NewReader(body),
	})
	if errors.Is(err, sdk.ErrDenied) {
		return err // another attempt is refused as well
	}
	if err != nil {
		return sdk.Retry(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 200))
	switch {
	case resp.Status == 429 || resp.Status >= 500:
		return sdk.Retry(fmt.Errorf("webhook: status %d: %s", resp.Status, bytes.TrimSpace(answer)))
	case resp.Status/100 != 2:
		return fmt.Errorf("webhook: status %d: %s", resp.Status, bytes.TrimSpace(answer))
	case err != nil:
		return sdk.Retry(err)
	}
	return nil
}

// load reads the offset.
func load() (s state, err error) {
	offset, ok := sdk.Offset()
	if !ok {
		return s, nil
	}
	if err := json.Unmarshal(offset, &s); err != nil {
		return s, fmt.Errorf("the offset is none of this job: %w", err)
	}
	return s, nil
}

func (s state) save() error {
	offset, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return sdk.SetOffset(offset)
}
