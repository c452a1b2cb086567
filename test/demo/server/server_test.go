package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestWebhook: a message is taken once, from who has the token.
func TestWebhook(t *testing.T) {
	t.Parallel()
	var lines []string
	w := &Webhook{Token: "right", Busy: 2, Report: func(line string) { lines = append(lines, line) }}
	for n, c := range []struct {
		method, token, key, body string
		status                   int
	}{
		{"GET", "right", "a", `{}`, 405},
		{"POST", "wrong", "a", `{}`, 401},
		{"POST", "", "a", `{}`, 401},
		{"POST", "right", "", `{}`, 400},
		{"POST", "right", "a", `{`, 400},
		{"POST", "right", "a", `{"report":"north"}`, 200},
		{"POST", "right", "a", `{"report":"other"}`, 200}, // taken before
		{"POST", "right", "b", `{"report":"south"}`, 503},
		{"POST", "right", "b", `{"report":"south"}`, 200},
		{"POST", "right", "c", `{"report":"north"}`, 200},
	} {
		r := httptest.NewRequest(c.method, "/webhook", strings.NewReader(c.body))
		r.Header = http.Header{"Authorization": {"Bearer " + c.token}, "Idempotency-Key": {c.key}}
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, r)
		if answer.Code != c.status {
			t.Errorf("request %d: %d %s, want %d", n, answer.Code, answer.Body, c.status)
		}
	}
	var taken []string
	for _, m := range w.Messages() {
		taken = append(taken, m.Key+" "+m.Report)
	}
	if got := strings.Join(taken, ", "); got != "a north, b south, c north" || len(lines) != 5 {
		t.Errorf("taken: %s; lines: %q", got, lines)
	}
}
