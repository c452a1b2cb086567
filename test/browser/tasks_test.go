package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/wasmjob/wasmjob/test/oidcserver"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestWhatFails: from the first page it is two clicks to what a failed run said.
func TestWhatFails(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("payments", "", "fail:no money left", 2, "retry: {attempts: 1}"), definition("fine", "0 0 3 * * ?", "say", 1)})
	b := h.tab(t, plain)
	b.open("/")
	b.shows("Nothing fails, and nothing is late.")
	h.must(http.MethodPost, "/v1/jobs/payments/trigger", nil)
	// The page changes by itself.
	b.shows("failed: no money left")
	b.until("document.querySelector('.tile.health-failing b').innerText === '1'")
	b.click("#trouble .name a")
	b.until("location.pathname === '/jobs/payments'")
	b.shows("no money left")
	b.click("#strip tbody .when a")
	b.until("location.pathname === '/jobs/payments/fire'")
	b.click("#runs tbody .when a")
	b.until("location.pathname === '/run'")
	b.shows("Run of item 0")
	b.until("document.querySelector('pre.because').innerText === 'no money left'")
}

// TestFollow: the log of a run comes while it runs, and the page says when it has ended.
func TestFollow(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("slow", "", "hold:slow", 1), definition("other", "", "say", 1)}, mounted(t, "slow")...)
	b := h.tab(t, plain)
	b.open("/jobs/slow")
	b.press("main", "Run now")
	b.until("document.querySelector('details.act[open] [name=reason]')")
	b.fill("details[open] [name=reason]", "the shop waits")
	b.click("details[open] button")
	b.shows("slow is triggered. Show its fire")
	b.accessible("triggered")
	b.shows("the shop waits")
	b.until("document.querySelector('#items tbody .item-running')")
	b.click("#strip tbody .when a")
	b.click("#runs tbody .when a")
	b.until("document.querySelector('#log .msg')?.innerText === 'holding'")
	b.shows("follows while it runs")
	b.shot("follow")
	h.release(t, "slow")
	b.until("document.querySelector('#ended .badge').innerText === 'ok'")
	b.until("!document.querySelector('#log').hasAttribute('data-follow')")
	if n := eval[int](b, "document.querySelectorAll('#log .line').length"); n != 1 {
		t.Errorf("%d lines, expected one", n)
	}
}

// TestFollowMany: lines that differ by an attribute alone come while a run goes on, each once and in
// order, also those of one millisecond.
func TestFollowMany(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("noise", "", "rows:go", 1)}, mounted(t, "noise")...)
	b := h.tab(t, plain)
	h.must(http.MethodPost, "/v1/jobs/noise/trigger", nil)
	b.open("/jobs/noise")
	b.click("#strip tbody .when a")
	b.click("#runs tbody .when a")
	b.until("document.querySelector('#log .msg')?.innerText === 'holding'")
	h.release(t, "go")
	var want []string
	for n := range 60 {
		want = append(want, fmt.Sprintf("n=%02d", n))
	}
	const rows = "[...document.querySelectorAll('#log .line .attr')].map((a) => a.innerText).join()"
	b.until("document.querySelector('#ended .badge').innerText === 'ok'")
	b.until("!document.querySelector('#log').hasAttribute('data-follow')")
	if got := eval[string](b, rows); got != strings.Join(want, ",") {
		t.Errorf("while it ran: %s", got)
	}
	b.open(eval[string](b, "location.pathname + location.search"))
	if got := eval[string](b, rows); got != strings.Join(want, ",") {
		t.Errorf("afterwards: %s", got)
	}
}

// TestPauseAndResume: a job is paused with a reason, which the audit has, and resumed.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("nightly", "0 0 3 * * ?", "say", 2)})
	b := h.tab(t, plain)
	b.open("/jobs/nightly")
	b.press("main", "Pause")
	b.until("document.querySelector('details.act[open] [name=reason]')")
	b.fill("details[open] [name=reason]", `disk <b>full</b> & "so"`)
	b.key("\r") // in the field
	b.shows("nightly is paused.")
	b.shows("It fires by triggers or after other jobs, or is paused.")
	b.press(".tabs", "Audit")
	b.until("location.pathname === '/audit'")
	b.shows(`disk <b>full</b> & "so"`)
	b.open("/jobs")
	b.shows("paused by login link (")
	b.shows(`): disk <b>full</b> & "so"`)
	b.accessible("a list with a job that is paused")
	b.shot("jobs-paused")
	b.open("/jobs/nightly")
	b.shows("paused by login link (")
	b.shows(`): disk <b>full</b> & "so"`)
	b.press("main", "Resume")
	b.until("document.querySelector('details.act[open] button')")
	b.click("details[open] button")
	b.shows("nightly is resumed.")
	b.until("document.querySelectorAll('#next tbody tr').length === 10")
}

// TestBackfill: a range of past days shows what would run, and is begun with a reason; the job's page has a bar that moves by itself, and
// a button that ends the backfill.
func TestBackfill(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("nightly", "0 0 3 * * ?", "say", 2, "timeZone: UTC")})
	b := h.tab(t, plain)
	b.open("/jobs/nightly")
	b.press("main", "Backfill")
	b.until("location.pathname === '/jobs/nightly/backfill'")
	day := func(ago int) string { return time.Now().UTC().AddDate(0, 0, -ago).Format("2006-01-02T00:00:00") }
	set := func(name, value string) { // a browser splits such an input into fields
		b.until(fmt.Sprintf("(document.querySelector('[name=%s]').value = %q) !== ''", name, value))
	}
	set("from", day(9))
	set("to", day(2))
	b.fill(".filter [name=items]", "0")
	b.fill(".filter [name=every]", "3600")
	b.press("main", "Show what would run")
	b.shows("7 instants with 1 item each, oldest first. It takes 6h or more.")
	b.until("document.querySelectorAll('#plan tbody tr').length === 7")
	b.accessible("the plan of a backfill")
	b.shot("backfill-plan")
	if text := h.must(http.MethodGet, "/v1/jobs/nightly/backfill", nil); strings.Contains(text, "now") {
		t.Errorf("a plan has begun: %s", text)
	}
	b.fill("#begin [name=reason]", "wrong rates")
	b.click("#begin button")
	b.shows("The backfill of nightly has begun: 7 instants.")
	b.until("location.pathname === '/jobs/nightly' && document.querySelector('#backfill progress')?.value === 1")
	b.shows("1 of 7 instants")
	b.accessible("a backfill that goes on")
	b.shot("backfill")
	b.press("main", "Cancel backfill")
	b.until("document.querySelector('details.act[open] button')")
	b.click("details[open] button")
	b.shows("The backfill of nightly is cancelled.")
	b.until("!document.querySelector('#backfill')")
	b.open("/jobs/nightly/backfill")
	b.shows("Last backfill")
	b.shows("1 of 7 instants")
}

// TestEdit: an edit says at once what it would change, and what is wrong with it; one that
// somebody else was faster than shows both.
func TestEdit(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("nightly", "0 0 3 * * ?", "say", 2, "timeZone: Europe/Berlin")})
	b := h.tab(t, plain)
	b.open("/jobs/nightly/config")
	b.fill(`[name="set.cron"]`, "0 0 25 * * ?")
	b.until(`document.querySelector('tr.failed [name="set.cron"]') && document.querySelector('tr.failed .problem').innerText.includes('25 is out of range 0-23')`)
	b.shot("edit-wrong")
	b.accessible("a wrong edit")
	b.fill(`[name="set.cron"]`, "0 30 4 ? * MON-FRI")
	b.until(`document.querySelector('#preview')?.innerText.includes('at 04:30, on Monday to Friday') && !document.querySelector('.problem')`)
	if !eval[bool](b, `document.activeElement.name === 'set.cron'`) {
		t.Error("the preview has taken the focus away")
	}
	b.accessible("a preview")
	b.shot("edit-preview")
	if text := h.must(http.MethodGet, "/v1/jobs/nightly/config", nil); strings.Contains(text, "MON-FRI") {
		t.Errorf("a preview was saved: %s", text)
	}
	b.fill("#settings [name=reason]", "weekends are quiet")
	b.click(`button[value="save"]`)
	b.shows("Saved: cron.")
	b.shows("weekends are quiet")
	b.until(`document.querySelector('[name="set.cron"]').value === '0 30 4 ? * MON-FRI'`)

	// Two tabs: the second is too late.
	second := h.tab(t, plain)
	second.open("/jobs/nightly/config")
	b.fill(`[name="set.description"]`, "the first")
	b.click(`button[value="save"]`)
	b.shows("Saved: description.")
	second.fill(`[name="set.description"]`, "the second")
	second.shows("Another user has changed the configuration")
	second.shows("now the first · yours the second")
	second.shot("edit-stale")
	second.click(`button[value="save"]`)
	second.shows("Saved: description.")
	second.until(`document.querySelector('[name="set.description"]').value === 'the second'`)
}

// TestBulk: several jobs are found and paused by the keyboard alone, and what is ticked stays
// ticked while the page changes.
func TestBulk(t *testing.T) {
	t.Parallel()
	var jobs []string
	for n := range 5 {
		jobs = append(jobs, definition(fmt.Sprintf("etl-%d", n), "0 0 3 * * ?", "say", 1), definition(fmt.Sprintf("pay-%d", n), "0 0 3 * * ?", "fail:no", 1, "retry: {attempts: 1}"))
	}
	h := start(t, jobs)
	b := h.tab(t, plain)
	b.open("/")
	b.key("/")
	b.until("document.activeElement.name === 'q'")
	b.key("ETL")
	b.key("\r")
	b.shows("5 of 10")
	b.open("/jobs?sort=-last")
	b.until("document.querySelectorAll('#bulk [name=job]').length === 10")
	b.ok(b.do(chromedp.Focus(chromedp.CSS(`[value="etl-3"]`))))
	b.key(" ")
	b.shows("1 jobs")
	// pay-0 moves to the top; the tick stays with its job, wherever that is now.
	h.must(http.MethodPost, "/v1/jobs/pay-0/trigger", nil)
	b.until("document.querySelector('tr[data-key=pay-0] .outcome-bad')")
	if ticked := eval[[]string](b, "[...document.querySelectorAll('#bulk [name=job]:checked')].map((e) => e.value)"); len(ticked) != 1 || ticked[0] != "etl-3" {
		t.Errorf("ticked are %v", ticked)
	}
	b.click("[data-all]")
	b.shows("10 jobs")
	b.fill("#bulk [name=reason]", "all of them")
	b.click(`#bulk [value="pause"]`)
	b.shows("10 jobs are paused.")
	b.until("document.querySelector('.chip.health-paused b').innerText === '9'") // pay-0 is failing
	b.open("/audit")
	b.until("document.querySelectorAll('tbody tr').length === 22") // ten jobs made, a trigger, ten paused, and who has signed in
}

// TestWithoutScripts: everything can be read, and done, by a browser without scripts.
func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("nightly", "0 0 3 * * ?", "say", 2)})
	b := h.tab(t, look{lang: "en"})
	page := func(path string) string {
		b.open(path)
		return strings.Join(strings.Fields(b.words("body")), " ")
	}
	for path, want := range map[string]string{"/": "Next hour", "/jobs": "nightly", "/jobs/nightly": "Items by host", "/jobs/nightly/config": "Comes from", "/fires": "Nothing has run yet", "/hosts": "this host",
		"/calendar?from=" + time.Now().AddDate(0, 0, 7).Format(time.DateOnly): "7 fires"} {
		if text := page(path); !strings.Contains(text, want) {
			t.Errorf("%s lacks %q: %s", path, want, text)
		}
	}
	b.open("/jobs/nightly")
	b.click("details.act:first-child summary")
	b.click("details.act[open] button")
	h.await("/v1/fires", func(_ int, text string) bool { return strings.Contains(text, `"job":"nightly"`) })
	b.open("/jobs")
	b.click(`[value="nightly"]`)
	b.click(`#bulk [value="pause"]`)
	h.await("/v1/jobs/nightly", func(_ int, text string) bool { return strings.Contains(text, `"health":"paused"`) })
	b.open("/jobs/nightly/config")
	b.fill(`[name="set.description"]`, "typed")
	b.click(`button[value="preview"]`)
	if text := b.words("#preview"); !strings.Contains(text, "typed") {
		t.Errorf("the preview is %q", text)
	}
	b.click(`button[value="save"]`)
	h.await("/v1/jobs/nightly/config", func(_ int, text string) bool { return strings.Contains(text, "typed") })
	for _, dark := range []bool{false, true} {
		b := h.tab(t, look{lang: "en", phone: true, dark: dark})
		b.open("/audit")
		b.inMenu("audit")
		b.shot(fmt.Sprintf("audit-phone-without-scripts-dark-%t", dark))
	}
}

// TestNames: names that look like something else are names, in a browser too.
func TestNames(t *testing.T) {
	t.Parallel()
	names := []string{`"><img src=x onerror=alert(1)>`, `'; alert(1)`, `<svg onload=alert(1)>`, `100% %3Cb%3E`, `对账 每日`, `a?b=c#d&e`, `javascript:alert(1)`, `{{7*7}}`}
	var jobs []string
	for _, name := range names {
		jobs = append(jobs, definition(name, "", "fail:"+name, 1, "retry: {attempts: 1}", "description: "+quote(name)))
	}
	h := start(t, jobs)
	for _, name := range names {
		h.must(http.MethodPost, "/v1/jobs/"+url.PathEscape(name)+"/trigger", nil)
	}
	h.await("/v1/jobs?health=failing", func(_ int, text string) bool { return strings.Contains(text, fmt.Sprintf(`"total":%d`, len(names))) })
	b := h.tab(t, plain)
	for _, name := range names {
		b.open("/jobs?sort=name")
		b.press("td.name", name)
		b.until(fmt.Sprintf("document.querySelector('h1').innerText === %s && document.querySelector('.because').innerText.includes(%s)", quote(name), quote(name)))
		b.press(".tabs", "History")
		b.until(fmt.Sprintf("location.pathname === '/fires' && document.querySelector('td.message')?.innerText === %s", quote(name)))
		b.click("tbody .when a")
		b.click("#runs tbody .when a")
		b.until(fmt.Sprintf("location.pathname === '/run' && document.querySelector('pre.because').innerText === %s", quote(name)))
	}
}

// TestCluster: any host shows both; one that stops answering is shown as that, and without
// the registry pages say since when.
func TestCluster(t *testing.T) {
	t.Parallel()
	zk := zkserver.ForTest(t, zkserver.Options{})
	jobs := []string{definition("spread", "0/2 * * * * ?", "say", 8, "failover: true"), definition("nightly", "0 0 3 * * ?", "say", 2)}
	flags := []string{"--zk", zk.Connect(), "--namespace", "shop", "--session-timeout", "6s"}
	first, second := start(t, jobs, flags...), start(t, jobs, flags...)
	b := first.tab(t, plain)
	b.open("/hosts")
	b.until("document.querySelectorAll('.card .host-live').length === 2")
	b.shows("50 %")
	b.accessible("two hosts")
	b.shot("hosts-two")
	b.open("/jobs/spread")
	b.until("document.querySelectorAll('.gridrow').length === 2 && document.querySelectorAll('.gridrow:first-child .cell[class*=item-]').length === 4")
	b.until("document.querySelector('#strip tbody td.w2:nth-last-child(2)')?.innerText.includes(', ')") // fires on both
	b.until("[...document.querySelectorAll('#strip tbody .counts')].some((e) => e.innerText === '8 ok')")
	b.until("document.querySelectorAll('#bars rect').length > 1 && document.querySelectorAll('.chart canvas').length === 2") // how long and how late
	b.accessible("a job on two hosts")
	b.shot("job-two-hosts")
	// A host that is halted does not answer, and is shown with what it said last.
	second.signal(syscall.SIGSTOP)
	b.open("/hosts")
	b.until("document.querySelector('.card.silent')")
	b.shows("does not answer; it last answered")
	b.accessible("a silent host")
	b.shot("hosts-silent")
	second.signal(syscall.SIGCONT)
	b.until("!document.querySelector('.card.silent') && document.querySelectorAll('.card').length === 2")
	// Without the registry.
	tabs := make(map[string]*tab)
	for name, l := range extremes() {
		tabs[name] = first.tab(t, l)
	}
	if err := zk.Kill(0); err != nil {
		t.Fatal(err)
	}
	b.open("/")
	b.shows("has not been reachable from this host since")
	// What was known before is shown, dimmed, under one banner.
	b.until("document.querySelectorAll('.banner.stale').length === 1 && document.querySelector('.tiles.dim .tile.health-error.zero')")
	b.open("/jobs")
	b.until("document.querySelectorAll('tr.is-ok.dim').length === 2 && document.querySelectorAll('.banner.stale').length === 1")
	b.open("/jobs/spread")
	b.until("document.querySelectorAll('.gridrow.silent .cell[class*=item-good]').length > 0")
	for name, b := range tabs {
		for _, page := range append(general(), "jobs/spread", "jobs/spread/items/3") {
			b.open("/" + page)
			b.until("document.querySelector('.banner.stale')?.innerText.length > 20 && !document.querySelector('.lone')")
			b.accessible("no registry: " + page)
			b.shot("registry-down-" + strings.ReplaceAll(page, "/", "-") + "-" + name)
		}
	}
	b.open("/jobs/spread/config")
	b.shows("Not now")
	b.shot("registry-down-config")
	if err := zk.Restart(0); err != nil {
		t.Fatal(err)
	}
	b.open("/")
	b.until("!document.querySelector('.banner.stale')")
}

// TestLostHost: a page says when it is not up to date any more, and that it is again.
func TestLostHost(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("nightly", "0 0 3 * * ?", "say", 1)})
	b := h.tab(t, plain)
	b.open("/")
	b.until("document.querySelector('#live').innerText === 'live'")
	h.signal(syscall.SIGKILL)
	<-h.ended
	b.until("document.querySelector('#live').innerText.startsWith('not live since')")
	b.shot("lost")
}

// TestTooManyStreams: a log whose stream the host refuses says so, and follows when there is room again.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("slow", "", "hold:slow", 1)}, append(mounted(t, "slow"), "--users", "users.yaml")...)
	h.put("password", "correct horse battery")
	h.command("", "access", "user", "add", "ann", "--users", h.path("users.yaml"), "--role", "viewer=*", "--password-file", h.path("password"))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Client{Jar: jar, Transport: &http.Transport{}} // another browser of ann's
	defer other.CloseIdleConnections()
	ctx, release := context.WithCancel(t.Context())
	defer release()
	h.must(http.MethodPost, "/v1/jobs/slow/trigger", nil)
	h.await("/v1/jobs/slow", func(_ int, text string) bool { return strings.Contains(text, `"running":1`) })
	b := h.tab(t, look{lang: "en", script: true, stranger: true})
	b.open("/login")
	b.fill("[name=name]", "ann")
	b.fill("[name=password]", "correct horse battery")
	b.key("\r")
	b.until("location.pathname === '/'")
	signed, err := other.PostForm(h.url+"/login", url.Values{"name": {"ann"}, "password": {"correct horse battery"}})
	if err != nil {
		t.Fatal(err)
	}
	_ = signed.Body.Close()
	for n := range 20 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/v1/logs/stream?job=slow", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := other.Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %v, %v", n, answer, err)
		}
	}
	b.open("/jobs/slow")
	b.click("#strip tbody .when a")
	b.click("#runs tbody .when a")
	b.until("document.querySelector('#log-off')?.hidden === false")
	b.shows("the host does not take another stream")
	b.accessible("refused")
	release()
	b.until("document.querySelector('#log-off')?.hidden === true")
}

// TestSignIn: who is not known signs in, sees what the role allows, and signs out.
func TestSignIn(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("etl-a", "0 0 3 * * ?", "say", 1), definition("pay", "0 0 3 * * ?", "say", 1)}, "--users", "users.yaml")
	h.put("password", "correct horse battery")
	h.command("", "access", "user", "add", "ann", "--users", h.path("users.yaml"), "--role", "operator=etl-*", "--password-file", h.path("password"))
	b := h.tab(t, look{lang: "en", script: true, stranger: true})
	b.open("/jobs/etl-a")
	b.until("location.pathname === '/login' && document.querySelector('[name=password]')")
	b.accessible("sign in")
	b.shot("sign-in")
	b.fill("[name=name]", "ann")
	b.fill("[name=password]", "wrong horse battery")
	b.key("\r")
	b.shows("there is no user of this name with this password")
	b.accessible("not signed in")
	b.fill("[name=password]", "correct horse battery")
	b.key("\r")
	b.until("location.pathname === '/jobs/etl-a'")
	b.shows("Run now")
	if eval[bool](b, "document.body.innerText.includes('Remove')") {
		t.Error("an operator may not remove jobs")
	}
	b.press("main", "Run now")
	b.until("document.querySelector('details.act[open] button')")
	b.click("details[open] button")
	b.shows("etl-a is triggered.")
	b.open("/jobs")
	b.shows("Jobs 1")
	b.open("/jobs/pay")
	b.shows("You may not see this")
	b.accessible("forbidden")
	b.shot("forbidden")
	b.open("/audit")
	b.shows("ann")
	b.click(".menu summary")
	b.press(".menu", "Sign out")
	b.until("location.pathname === '/login'")
	b.open("/jobs")
	b.until("location.pathname === '/login'")
}

// TestProvider: who has an account at the company's provider signs in there.
func TestProvider(t *testing.T) {
	t.Parallel()
	op, err := oidcserver.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := start(t, []string{definition("etl-a", "0 0 3 * * ?", "say", 1), definition("pay", "0 0 3 * * ?", "say", 1)}, "--users", "users.yaml")
	provider, err := op.Start(oidcserver.Options{ClientID: "wasmjob", Redirects: []string{h.url + "/oidc/callback"}, Users: []oidcserver.User{
		{Name: "ann", Password: "correct horse battery", Email: "ann@example.com", Verified: true, Groups: []string{"etl"}},
		{Name: "bob", Password: "correct horse battery", Email: "bob@example.com", Verified: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := provider.Close(); err != nil {
			t.Error(err)
		}
	})
	h.put("users.yaml", fmt.Sprintf("oidc:\n  name: Example SSO\n  issuer: %s\n  clientId: wasmjob\n  groups:\n    etl: {operator: 'etl-*'}\n", provider.Issuer))
	for name, then := range map[string]func(b *tab){
		"ann": func(b *tab) {
			b.until("location.pathname === '/jobs/etl-a' && location.search === ''")
			b.shows("Run now")
			b.shows("ann@example.com")
			b.open("/jobs")
			b.shows("Jobs 1")
		},
		"bob": func(b *tab) {
			b.shows("none of your groups there has a role here")
			b.accessible("no role")
			b.open("/jobs")
			b.until("location.pathname === '/login'")
		},
	} {
		b := h.tab(t, look{lang: "en", script: true, stranger: true})
		b.also = []string{provider.Issuer}
		for b.open("/jobs/etl-a"); !eval[bool](b, "document.body.innerText.includes('Example SSO')"); b.open("/jobs/etl-a") {
			pause(t.Context()) // the host has not read the file yet
		}
		b.accessible("sign in at a provider")
		b.shot("sign-in-provider")
		b.click("a.button.wide")
		b.until("document.querySelector('[name=username]')")
		b.fill("[name=username]", name)
		b.fill("[name=password]", "correct horse battery")
		b.key("\r")
		then(b)
	}
}

// TestSharedAddress: what is filtered is in the address, and language and theme are kept.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	h := start(t, []string{definition("etl-a", "0 0 3 * * ?", "say", 1), definition("pay", "0 0 3 * * ?", "say", 1)})
	b := h.tab(t, plain)
	b.open("/jobs")
	b.fill("#filter [name=q]", "etl")
	b.click(".chip.health-ok input")
	b.press("#filter", "Filter")
	b.shows("1 of 2")
	address := eval[string](b, "location.pathname + location.search")
	other := h.tab(t, look{lang: "zh", script: true})
	other.open(address)
	other.shows("1 / 2")
	other.press(".tools", "English")
	other.shows("1 of 2")
	other.click(".menu summary")
	other.press(".menu", "Dark")
	other.until("document.documentElement.dataset.theme === 'dark'")
	if got := eval[string](other, "getComputedStyle(document.body).colorScheme + getComputedStyle(document.documentElement).colorScheme"); !strings.Contains(got, "dark") {
		t.Errorf("the theme is %s", got)
	}
	if got := eval[string](other, "location.search"); !strings.Contains(got, "q=etl") {
		t.Errorf("the filter was lost: %s", got)
	}
	other.accessible("dark by choice")
}
