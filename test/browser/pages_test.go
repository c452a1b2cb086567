package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// shop is a host with jobs as people have them: some fail, one runs, one waits.
func shop(t *testing.T) *host {
	t.Helper()
	h := start(t, []string{
		definition("etl-orders", "0 0 3 * * ?", "say", 8, "timeZone: Asia/Shanghai", "description: loads the orders of the night"),
		definition("etl-invoices", "0 30 2 ? * MON-FRI", "say", 2, "timeZone: Europe/Berlin"),
		definition("mail-digest", "0 0/10 * * * ?", "say", 4),
		definition("payments-export", "", "fail:the bank does not answer: 503", 4, "retry: {attempts: 1}", "description: sends the payments of the day to the bank"),
		definition("stock-sync", "0 0/15 * * * ?", "say", 6, "failover: true"),
		definition("thumbnails", "", "hold:thumbnails", 12, "description: scales pictures, which takes its time"),
		definition("report-weekly", "0 0 6 ? * MON", "say", 1, "disabled: true"),
		definition(`对账 "每日" <i> 100%`, "0 0 4 * * ?", "say", 2),
		definition("large", "0 0 5 * * ?", "say", 1500),
	}, mounted(t, "thumbnails")...)
	h.put("plugins/broken.yaml", "jobName: broken\ncron: 0 0 25 * * ?\nshardingTotalCount: 1\n")
	for _, job := range []string{"payments-export", "stock-sync", "mail-digest", "thumbnails", "etl-orders"} {
		h.must(http.MethodPost, "/v1/jobs/"+job+"/trigger", nil)
	}
	h.await("/v1/fires?failed=true", func(_ int, text string) bool { return strings.Contains(text, "payments-export") })
	h.await("/v1/jobs/etl-orders", func(_ int, text string) bool { return strings.Contains(text, `"outcome":"OK"`) })
	h.await("/v1/jobs/thumbnails", func(_ int, text string) bool {
		var job struct{ Running, Queued int } // how many run depends on the machine's processors
		return json.Unmarshal([]byte(text), &job) == nil && job.Running > 0 && job.Running+job.Queued == 12
	})
	h.await("/v1/modules", func(_ int, text string) bool { return strings.Contains(text, "broken.yaml") })
	return h
}

// looks are all in which pages are looked at.
func looks() map[string]look {
	return map[string]look{
		"light": plain, "dark": {dark: true, lang: "en", script: true}, "chinese": {lang: "zh-CN,zh;q=0.9", script: true},
		"phone": {phone: true, lang: "en", script: true}, "phone-dark-chinese": {phone: true, dark: true, lang: "zh", script: true},
	}
}

// TestPages looks at every page in every way: nothing is wider than the window, nothing
// fails, nothing comes from elsewhere, and axe finds nothing serious.
func TestPages(t *testing.T) {
	t.Parallel()
	h := shop(t)
	odd := url.PathEscape(`对账 "每日" <i> 100%`)
	pages := []struct{ name, path string }{
		{"overview", "/"}, {"jobs", "/jobs"}, {"job", "/jobs/payments-export"}, {"job-running", "/jobs/thumbnails"}, {"job-large", "/jobs/large"}, {"job-odd", "/jobs/" + odd},
		{"why", "/jobs/payments-export/explain"}, {"config", "/jobs/etl-orders/config"}, {"item", "/jobs/etl-orders/items/3"}, {"history", "/fires"}, {"job-history", "/fires?job=payments-export"}, {"job-logs", "/logs?job=etl-orders"}, {"job-audit", "/audit?job=payments-export"}, {"runs", "/runs?failed=true"}, {"alerts", "/alerts"}, {"limits", "/limits"}, {"hosts", "/hosts"},
		{"modules", "/modules"}, {"calendar", "/calendar"}, {"logs", "/logs"}, {"audit", "/audit"}, {"missing", "/jobs/none"}, {"wrong", "/jobs?limit=x"},
	}
	for name, l := range looks() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := h.tab(t, l)
			for _, p := range pages {
				b.open(p.path)
				if p.name == "job" {
					b.click(".legend li") // scripts have run: charts are drawn next
				}
				b.until("document.readyState === 'complete'")
				b.accessible(p.name)
				b.shot(p.name + "-" + name)
			}
			// The pages of a fire and of a run are found by links.
			b.open("/fires?failed=true")
			b.click("tbody .when a")
			b.until("location.pathname.endsWith('/fire')")
			b.accessible("fire")
			b.shot("fire-" + name)
			b.click("#runs tbody a")
			b.until("location.pathname === '/run'")
			b.accessible("run")
			b.shot("run-" + name)
		})
	}
}

// TestTables: a column that is empty, or has short texts, takes no room from names, which stand in one line where there is room; a
// long text takes what is left.
func TestTables(t *testing.T) {
	t.Parallel()
	const name = "etl-orders-of-all-shops-of-the-night"
	h := start(t, []string{definition(name, "", "say", 2), definition("fails-with-few-words", "", "fail:no money", 1, "retry: {attempts: 1}"),
		definition("fails-with-many-words", "", "fail:"+strings.Repeat("there is no money left in the bank, ", 3), 1, "retry: {attempts: 1}")})
	b := h.tab(t, plain)
	const names, part = "[...document.querySelectorAll('tbody .name a')]", "document.querySelector('tbody td.message').offsetWidth / document.querySelector('table.list').offsetWidth"
	for n, c := range []struct {
		job         string
		lines       float64 // of a name, at most
		least, most float64 // of the message's part
	}{{name, 1.5, 0, 0.3}, {"fails-with-few-words", 1.5, 0, 0.3}, {"fails-with-many-words", 2.5, 0.25, 0.7}} {
		h.must(http.MethodPost, "/v1/jobs/"+c.job+"/trigger", nil)
		for _, page := range []string{"/fires", "/runs"} {
			b.open(page)
			b.until(fmt.Sprintf("new Set(%s.map((a) => a.innerText)).size === %d && !document.querySelector('.outcome-running')", names, n+1))
			b.shot(fmt.Sprintf("tables-%s-%d", page[1:], n))
			if lines := eval[float64](b, "Math.max(..."+names+".map((a) => a.getBoundingClientRect().height / parseFloat(getComputedStyle(a).lineHeight)))"); lines > c.lines {
				t.Errorf("%s, %s: a name has %.1f lines", page, c.job, lines)
			}
			if got := eval[float64](b, part); got < c.least || got > c.most {
				t.Errorf("%s, %s: the messages have %.0f %% of the width", page, c.job, 100*got)
			}
		}
	}
}

// extremes are two looks that have both themes, both languages and both widths: for what
// is not looked at in every way.
func extremes() map[string]look {
	return map[string]look{"light": plain, "phone-dark-chinese": looks()["phone-dark-chinese"]}
}

// general are the pages that every host has, whatever its jobs are.
func general() []string {
	return []string{"", "jobs", "fires", "runs", "calendar", "alerts", "limits", "hosts", "modules", "logs", "audit"}
}

// TestEmpty: a host without jobs says what to do.
func TestEmpty(t *testing.T) {
	t.Parallel()
	h := start(t, nil)
	b := h.tab(t, plain)
	for name, text := range map[string]string{"": "No jobs yet", "jobs": "No jobs yet", "fires": "Nothing has run yet", "logs": "No line has been logged yet", "audit": "sign in", "alerts": "No host looks for alerts", "hosts": "this host", "modules": "No module runs yet", "calendar": "0 fires"} {
		b.open("/" + name)
		b.shows(text)
	}
	for name, l := range extremes() {
		b := h.tab(t, l)
		for _, page := range general() {
			b.open("/" + page)
			b.accessible("empty " + page)
			b.shot("empty-" + page + "-" + name)
		}
	}
}

// maxWeight is how much a first visit may load, in bytes on the wire.
const maxWeight = 300 << 10

// TestManyJobs: 5,000 jobs are found, filtered and turned over, a hundred at a time.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	var jobs []string
	for n := range 5000 {
		jobs = append(jobs, definition(fmt.Sprintf("job-%04d", n), fmt.Sprintf("%d %d %d * * ?", n%60, n/60%60, n%24), "say", 1))
	}
	h := start(t, jobs)
	b := h.tab(t, plain)
	b.open("/jobs?sort=name")
	b.shows("Jobs 5,000")
	if rows := eval[int](b, "document.querySelectorAll('tbody tr').length"); rows != 100 {
		t.Errorf("%d rows", rows)
	}
	b.press(".pager", "Next page")
	b.until("document.querySelector('tbody .name').innerText.startsWith('job-0100')")
	b.fill(".find input", "JOB-499")
	b.key("\r")
	b.shows("10 of 5,000")
	for name, l := range extremes() {
		b := h.tab(t, l)
		for _, page := range append(general(), "jobs/job-4711") {
			b.open("/" + page)
			b.until("document.readyState === 'complete'")
			b.accessible("many jobs: " + page)
			b.shot("many-" + strings.ReplaceAll(page, "/", "-") + "-" + name)
		}
	}
	// What a first visit loads: the overview, to which signing in leads, another page, and
	// the files of the console.
	for _, page := range []string{"jobs", "calendar", "jobs/job-4711"} {
		first := h.tab(t, plain) // has no files yet
		first.open("/" + page)
		first.until("document.readyState === 'complete'")
		weight := first.weight()
		t.Logf("/%s: %d bytes", page, weight)
		if weight > maxWeight || weight < maxWeight/20 {
			t.Errorf("/%s: a first visit loads %d bytes, expected at most %d, and more than nothing", page, weight, maxWeight)
		}
	}
}
