package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/wasmjob/wasmjob/test/zkserver"
)

var pictures = flag.String("pictures", "", "directory for the pictures of the documentation: nothing else is done then")

// maxPicture bounds a picture of the documentation, in bytes.
const maxPicture = 100 << 10

// shopJobs are the jobs of the pictures.
func shopJobs() []string {
	return []string{
		definition("etl-orders", "* * * * * ?", "4 20ms 13 orders; shop 3: the connection was reset", 12, "timeZone: Asia/Shanghai", "description: loads the orders of all shops", "failover: true"),
		definition("etl-invoices", "0 30 2 ? * MON-FRI", "3 30ms 0 invoices", 6, "timeZone: Europe/Berlin", "description: loads the invoices of the day before"),
		definition("payments-export", "0 0/20 * * * ?", "3 60ms 1 payments; the bank does not answer: 503 Service Unavailable", 4, "retry: {attempts: 3, on: [FAIL]}", "description: sends the payments of the day to the bank"),
		definition("prices-refresh", "0 0/10 8-23 ? * MON-SAT", "2 30ms 0 prices", 8, "timeZone: Europe/Berlin"),
		definition("stock-sync", "0 0/15 * * * ?", "4 40ms 0 articles", 6, "failover: true"),
		definition("search-index", "0 10,40 * * * ?", "5 40ms 0 documents", 3),
		definition("thumbnails", "", "900 1s 0 pictures", 9, "description: scales pictures, which takes its time", "maxConcurrency: 4"),
		definition("mail-digest", "0 0 7,12,19 * * ?", "2 50ms 0 mails", 4, "timeZone: Europe/Berlin"),
		definition("report-weekly", "0 0 6 ? * MON", "3 50ms 0 rows", 1),
		definition("ledger-close", "0 0 23 L * ?", "3 50ms 0 entries", 1, "timeZone: Asia/Shanghai"),
		definition("backup", "0 0 1-4 * * ?", "3 50ms 0 tables", 2),
		definition("ledger-check", "0 45 2-3 * * ?", "3 50ms 0 entries", 1),
		definition("对账", "0 0/20 9-10 * * ?", "3 50ms 0 笔", 2, "timeZone: Asia/Shanghai", "description: 每日对账"),
	}
}

// TestPictures takes the pictures of the documentation, of a shop with three hosts.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("without -pictures; the other tests look at all pages")
	}
	t.Parallel()
	module := filepath.Join(t.TempDir(), "shop.wasm")
	build := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags", "-s -w", "-o", module, "./testdata/shop")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	guest, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	zk := zkserver.ForTest(t, zkserver.Options{})
	histories, err := os.MkdirTemp("", "shop-") // whose name pages show
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(histories) })
	var hosts []*host
	for n := range 3 {
		h := start(t, nil, "--zk", zk.Connect(), "--namespace", "shop", "--users", "users.yaml", "--history", filepath.Join(histories, fmt.Sprintf("%d.jsonl", n+1)),
			"--server-ip", fmt.Sprintf("10.0.0.%d", n+1), "--admin", fmt.Sprintf("127.0.0.%d:9771", n+11))
		h.put("password", "correct horse battery")
		h.command("", "access", "user", "add", "ann", "--users", h.path("users.yaml"), "--role", "admin=*", "--password-file", h.path("password"))
		h.put("plugins/shop.wasm", string(guest))
		h.put("plugins/shop.yaml", strings.ReplaceAll(strings.Join(shopJobs(), "\n---\n"), "guest.wasm", "shop.wasm"))
		hosts = append(hosts, h)
	}
	h := hosts[0]
	h.await("/v1/jobs/etl-orders", func(_ int, text string) bool {
		return strings.Count(text, `"ready"`)+strings.Count(text, `"running"`) >= 3
	})
	h.await("/v1/fires?job=etl-orders&limit=60", func(_ int, text string) bool {
		return strings.Count(text, `"instant"`) >= 60 && strings.Contains(text, "connection was reset")
	})
	b := h.tab(t, look{lang: "en", script: true, stranger: true})
	b.signIn()
	b.change("etl-orders", "set.cron", "0 0/5 * * * ?", "every five minutes is enough")
	h.must(http.MethodPost, "/v1/jobs/report-weekly/disable?reason=the+new+report+is+checked+first", nil)
	for _, job := range []string{"payments-export", "stock-sync", "prices-refresh", "thumbnails", "mail-digest", "search-index"} {
		h.must(http.MethodPost, "/v1/jobs/"+job+"/trigger", nil)
	}
	h.await("/v1/jobs/payments-export", func(_ int, text string) bool { return strings.Contains(text, `"health":"failing"`) })
	h.await("/v1/jobs/thumbnails", func(_ int, text string) bool { return strings.Contains(text, `"running":9`) })

	b.open("/")
	b.shows("payments-export")
	b.picture("overview")
	b.open("/jobs")
	b.shows("对账")
	b.picture("jobs")
	b.open("/jobs/etl-orders")
	b.until("document.querySelectorAll('.chart canvas').length === 2")
	b.picture("job")
	b.open("/runs?failed=true&job=payments-export")
	b.click("tbody .when a")
	b.until("location.pathname === '/run' && document.querySelectorAll('#log .line').length > 2")
	b.picture("run")

	dark := h.tab(t, look{dark: true, lang: "en", script: true, stranger: true})
	dark.signIn()
	dark.open("/hosts")
	dark.until("document.querySelectorAll('.card .host-live').length === 3")
	dark.picture("hosts")
	reader := h.tab(t, look{lang: "zh", script: true, stranger: true})
	reader.signIn()
	reader.open("/calendar?from=" + time.Now().AddDate(0, 0, 7).Format(time.DateOnly)) // a whole week
	reader.until("document.querySelector('.week a')")
	reader.picture("calendar")
}

// signIn signs ann in.
func (b *tab) signIn() {
	b.t.Helper()
	b.open("/")
	b.until("document.querySelector('[name=password]')")
	b.fill("[name=name]", "ann")
	b.fill("[name=password]", "correct horse battery")
	b.key("\r")
	b.until("location.pathname === '/'")
}

// change edits a setting of a job.
func (b *tab) change(job, field, value, reason string) {
	b.t.Helper()
	b.open("/jobs/" + job + "/config")
	b.fill(fmt.Sprintf("[name=%q]", field), value)
	b.until("document.querySelector('#preview')")
	b.fill("[name=reason]", reason)
	b.click(`button[value="save"]`)
	b.shows("Saved: ")
}

// picture takes a picture for the documentation, when nothing on the page moves any more.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.shot("picture-" + name)
	eval[bool](b, "document.activeElement.blur(), true")
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	quality := int64(85)
	result, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
	b.ok(err)
	if len(result.Data) > maxPicture {
		b.t.Errorf("%s has %d bytes, expected at most %d", name, len(result.Data), maxPicture)
	}
	b.ok(os.MkdirAll(*pictures, 0o755))
	b.ok(os.WriteFile(filepath.Join(*pictures, name+".webp"), result.Data, 0o644))
}
