package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// alerted starts a host that sends its alerts to a receiver of the test, and has a job fail.
// got has each message that the receiver took.
func alerted(t *testing.T) (h *host, got <-chan string) {
	t.Helper()
	taken := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			taken <- string(body)
		}
	}))
	t.Cleanup(receiver.Close)
	file := filepath.Join(t.TempDir(), "alerts.yaml")
	text := fmt.Sprintf("receivers:\n  ops: {webhook: {url: %q}}\nroutes:\n  - {name: payments, jobs: \"payments-*\", to: ops}\n  - {name: rest, to: ops}\n", receiver.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h = start(t, []string{definition("payments-export", "", "fail:the bank does not answer: 503", 2, "retry: {attempts: 1}"), definition("nightly", "0 0 3 * * ?", "say", 2)}, "--alerts", file)
	return h, taken
}

// TestAlerts: an operator sees what is wrong and who got a message, silences it by mouse and by
// keyboard, sees it silenced, ends the silence, and tries a route.
func TestAlerts(t *testing.T) {
	t.Parallel()
	h, got := alerted(t)
	b := h.tab(t, plain)
	b.open("/")
	b.until("[...document.querySelectorAll('.tile')].some((e) => e.innerText.replace(/\\s+/g, ' ') === '0 Alerts')")
	b.open("/alerts")
	b.shows("No alert is firing.")
	b.until("document.querySelector('.facts dd').innerText.startsWith('127.0.0.1')") // who sends
	b.accessible("no alerts")
	b.shot("alerts-none")
	h.must(http.MethodPost, "/v1/jobs/payments-export/trigger", nil)
	// The page changes by itself.
	b.until("document.querySelectorAll('#firing tbody tr').length === 1")
	b.shows("the bank does not answer: 503")
	b.shows("payments/ops sent")
	if m := <-got; !strings.Contains(m, "payments-export") {
		t.Errorf("the message is %s", m)
	}
	other := h.tab(t, plain)
	other.open("/")
	other.until("[...document.querySelectorAll('.tile')].some((e) => e.innerText.replace(/\\s+/g, ' ') === '1 Alerts')")
	other.press("main .tiles", "1Alerts")
	other.until("location.pathname === '/alerts'")

	b.press("#firing tr:first-child", "Silence")
	b.until("location.search.includes('payments-export')")
	b.until("document.querySelector('[name=jobs]').value === 'payments-export' && document.querySelector('[name=rule][value=failures]').checked")
	b.fill("[name=for]", "soon")
	b.key("\r")
	b.until("document.activeElement && document.querySelector('#problem-for')?.innerText.includes('found \"soon\"')")
	b.accessible("a silence that is wrong")
	b.shot("alerts-problem")
	b.fill("[name=for]", "1h30m")
	b.fill("#silence [name=reason]", "the bank knows")
	b.key("\r")
	b.shows("Alerts of payments-export are silenced until")
	b.until("document.querySelectorAll('#firing tr.is-silenced').length === 1")
	other.until("document.querySelectorAll('#firing tr.is-silenced').length === 1") // within a second
	other.shows("the bank knows")
	for name, l := range looks() {
		seen := h.tab(t, l)
		seen.open("/alerts")
		seen.until("document.readyState === 'complete' && document.querySelectorAll('#silences tbody tr').length === 1")
		seen.accessible("alerts " + name)
		seen.shot("alerts-" + name)
		seen.click("#silences details.act summary")
		seen.until("document.querySelector('#silences details.act[open] button')")
		seen.accessible("ending a silence " + name)
		seen.shot("alerts-end-" + name)
		seen.open("/")
		seen.accessible("overview with alerts " + name)
		seen.shot("alerts-overview-" + name)
	}

	b.press("#routes tr:last-child", "Send a test message")
	b.until("document.querySelector('#routes details[open] button')")
	b.click("#routes details[open] button")
	b.shows("The test message was taken by rest/ops.")
	if m := <-got; !strings.Contains(m, "this is a test of the route rest") {
		t.Errorf("the message is %s", m)
	}
	b.press("#silences", "End")
	b.until("document.querySelector('#silences details[open] [name=reason]')")
	b.fill("#silences details[open] [name=reason]", "it answers again")
	b.key("\r")
	b.shows("The silence is ended.")
	b.shows("Nothing is silenced.")
	other.shows("Nothing is silenced.")
	b.open("/audit")
	b.shows("it answers again")
	b.shows("test alerts")
}

// TestAlertsWithoutScripts: a browser without scripts silences and ends the silence.
func TestAlertsWithoutScripts(t *testing.T) {
	t.Parallel()
	h, _ := alerted(t)
	h.must(http.MethodPost, "/v1/jobs/payments-export/trigger", nil)
	h.await("/v1/alerts", func(_ int, text string) bool { return strings.Contains(text, "the bank does not answer") })
	b := h.tab(t, look{lang: "en"})
	b.open("/alerts")
	b.click("#firing td.do a")
	b.open("/alerts?jobs=payments-export&rule=failures") // where that leads
	b.click("#silence button.primary")
	h.await("/v1/alerts", func(_ int, text string) bool { return strings.Contains(text, `"silenced":{`) })
	b.open("/alerts")
	b.click("#silences details.act summary")
	b.click("#silences details.act[open] button")
	h.await("/v1/alerts", func(_ int, text string) bool { return !strings.Contains(text, `"silenced":{`) })
}
