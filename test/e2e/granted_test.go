package e2e_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/demo/server"
)

const token = "only-the-host-has-it"

// webhook is where plugins/grants.yaml and notify.yaml expect the webhook.
const webhook = "http://127.0.0.1:9780"

// outside is a place with the grants of the repository, the sales, a directory for
// reports and a webhook that says to be busy once.
func outside(t *testing.T) (*place, *server.Webhook, func(text string) string) {
	t.Helper()
	p, w := newPlace(t), &server.Webhook{Token: token, Busy: 2}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	here := func(text string) string { return strings.ReplaceAll(text, webhook, s.URL) }
	if err := os.CopyFS(p.path("out", "sales"), os.DirFS("../../plugins/examples/report/sales")); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"out/reports", "conf"} {
		if err := os.MkdirAll(p.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.put("out/webhook-token", []byte(token+"\n"))
	p.put("out/db-password", []byte("of nothing\n"))
	p.put("conf/grants.yaml", []byte(here(string(read(t, "../../plugins/grants.yaml")))))
	return p, w, here
}

// sell appends a row to the newest file of a shop.
func (p *place) sell(shop, row string) {
	p.t.Helper()
	f, err := os.OpenFile(p.path("out", "sales", shop, "2026-11-03.csv"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(row + "\n"); err != nil {
		p.t.Fatal(err)
	}
}

// reported is the last row of a shop's report: the sums.
func (p *place) reported(shop string) string {
	p.t.Helper()
	for line := range strings.Lines(string(read(p.t, p.path("out", "reports", shop+".md")))) {
		if sums, ok := strings.CutPrefix(line, "| **all** | "); ok {
			return strings.TrimSuffix(strings.TrimSpace(sums), " |")
		}
	}
	return "none"
}

// TestInvokeWithGrants invokes the examples of the capabilities as their README says.
func TestInvokeWithGrants(t *testing.T) {
	t.Parallel()
	p, w, here := outside(t)
	report := []string{"invoke", example(t, "report"), "--cache", cache(t), "--param", "0=north,1=south"}
	p.refused(1, []string{"job_v1_kv, which is not granted", "--grants"}, report...)
	p.refused(1, []string{"no sales: grant this job a directory with guest: /sales"}, append(report, "--kv")...)
	grants := []string{"--grants", p.path("conf", "grants.yaml")}
	if out := p.must(append(report, grants...)...); !strings.Contains(out, "report_rows_total=120") {
		t.Errorf("report says %s", out)
	}
	if north, south := p.reported("north"), p.reported("south"); north != "301 | 896.60" || south != "191 | 609.20" {
		t.Errorf("reports: %s, %s", north, south)
	}

	url := here(webhook + "/webhook")
	notify := []string{"invoke", example(t, "notify"), "--cache", cache(t), "--job-parameter", url, "--param", "0=north"}
	p.refused(1, []string{"job_v1_http, which is not granted"}, notify...)
	short := append(slices.Clone(notify), "--http-allow", url)
	p.refused(1, []string{"no reports: grant this job a directory with guest: /reports"}, short...)
	p.refused(1, []string{`the secret "WEBHOOK_TOKEN" is not granted`}, append(short, "--mount", p.path("out", "reports")+":/reports")...)
	p.must(append(notify, grants...)...)
	if m := w.Messages(); len(m) != 1 || m[0].Report != "north" || !slices.Contains(m[0].Text, "| **all** | 301 | 896.60 |") {
		t.Errorf("the webhook got %+v", m)
	}
}

// TestReportAndNotify runs both on a host, and again after it was killed.
func TestReportAndNotify(t *testing.T) {
	t.Parallel()
	p, w, here := outside(t)
	for _, name := range []string{"report", "notify"} {
		p.drop(name+".wasm", read(t, example(t, name)))
		definition := here(string(read(t, "../../plugins/examples/"+name+".yaml")))
		p.drop(name+".yaml", []byte(strings.ReplaceAll(definition, "\ncron:", "\n# cron:")))
	}
	flags := []string{"--data", p.path("data"), "--grants", p.path("conf", "grants.yaml")}
	h := p.start(flags...)
	fire := func(job string) (from int) {
		t.Helper()
		from = h.mark()
		h.of(job, 0, owned())
		p.must("job", "run", job)
		h.of(job, from, kind(event.FireEnded), outcome(abi.OutcomeOK))
		return from
	}
	fire("report")
	from := fire("notify")
	h.of("notify", from, kind(event.ItemEnded), outcome(abi.OutcomeRetry), because("webhook: status 503: busy, try again"))
	if m := w.Messages(); len(m) != 2 {
		t.Errorf("the webhook got %+v", m)
	}

	p.sell("north", "cup,2,12.00")
	h.kill()
	h = p.start(flags...)
	fire("report")
	fire("notify")
	if north, south := p.reported("north"), p.reported("south"); north != "303 | 920.60" || south != "191 | 609.20" {
		t.Errorf("reports: %s, %s", north, south)
	}
	m := w.Messages()
	if len(m) != 3 || m[2].Report != "north" || !slices.Contains(m[2].Text, "| **all** | 303 | 920.60 |") {
		t.Errorf("the webhook got %+v", m)
	}
	h.stop()
	files, err := filepath.Glob(p.path("data", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, h.history) {
		if strings.Contains(string(read(t, name)), token) {
			t.Errorf("the token is in %s", name)
		}
	}
}

// TestGrantsOfARunningHost: what the operator grants, corrects and takes away in the files
// takes effect with the next fire, without a restart; signatures likewise.
func TestGrantsOfARunningHost(t *testing.T) {
	t.Parallel()
	p, w, here := outside(t)
	w.Busy = 0
	p.put("out/reports/north.md", []byte("# north\n"))
	p.put("out/reports/south.md", []byte("# south\n"))
	good := string(read(t, p.path("conf", "grants.yaml")))
	grant := func(text string) { p.put("conf/grants.yaml", []byte(text)) }
	grant(strings.ReplaceAll(good, "methods: [POST]", "methods: [PUT]"))

	definition := here(string(read(t, "../../plugins/examples/notify.yaml")))
	definition = strings.ReplaceAll(definition, "\ncron:", "\n# cron:")
	h := p.start("--grants", p.path("conf", "grants.yaml"))
	p.drop("notify.wasm", read(t, example(t, "notify")))
	h.refuse("notify.yaml", []byte(definition), false, "http POST", "PUT")

	p.refused(1, []string{`the host has no job "notify" in force`}, "access", "grants", "notify")
	grant(good)
	h.of("notify", 0, owned())
	inForce := func(want ...string) {
		t.Helper()
		for _, args := range [][]string{{"access", "grants"}, {"access", "grants", "notify", "--json"}} {
			out := p.must(args...)
			for _, text := range want {
				if !strings.Contains(out, text) {
					t.Errorf("%s says %s, want %s", args, out, text)
				}
			}
		}
	}
	inForce("notify", here("http "+webhook+"/webhook"), "secret WEBHOOK_TOKEN", "dir /reports")
	fire := func() (from int) {
		t.Helper()
		from = h.mark()
		p.must("job", "run", "notify")
		h.of("notify", from, kind(event.FireEnded))
		return from
	}
	from := fire()
	h.of("notify", from, kind(event.FireEnded), outcome(abi.OutcomeOK))
	sent := len(w.Messages())
	if sent != 2 {
		t.Fatalf("the webhook got %d messages", sent)
	}

	// Taken away: the job is there, and may do nothing outside.
	line := h.logMark()
	grant("grants: []\n")
	h.line(line, "notify.yaml", "wants what is not granted")
	h.line(line, "other grants are in force")
	if out := p.must("access", "grants", "notify"); !strings.Contains(out, "nothing") || strings.Contains(out, "WEBHOOK_TOKEN") {
		t.Errorf("grants says %s", out)
	}
	p.put("out/reports/north.md", []byte("# north\n\nnews\n"))
	from = fire()
	h.of("notify", from, kind(event.FireEnded), outcome(abi.OutcomeFail))
	if ended := h.of("notify", from, kind(event.ItemEnded)); !strings.Contains(ended.Reason, "nothing is mounted at this path: the job is granted no directory") {
		t.Errorf("without its directory the job says %s", ended.Reason)
	}
	if got := len(w.Messages()); got != sent {
		t.Errorf("the webhook got %d messages, %d of them before the grant was taken away", got, sent)
	}

	// Broken or gone it stays as it is; given back, it is as it was.
	line = h.logMark()
	grant("grants: [{jobs: notify, kv: tru")
	h.line(line, "grants", "grants.yaml")
	grant(good)
	h.line(line, "other grants are in force")
	from = fire()
	h.of("notify", from, kind(event.FireEnded), outcome(abi.OutcomeOK))
	if m := w.Messages(); len(m) != sent+1 || m[sent].Report != "north" {
		t.Errorf("the webhook got %+v", m)
	}
	h.stop()
}
