package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a console over a real host, and a browser without scripts.
type site struct {
	*servicetest.House
	t       *testing.T
	url     string
	client  *http.Client
	console *Console
	// Who sends requests; Lang is what the browser wants.
	who  auth.Principal
	lang string
}

// open starts a host with jobs, and a console.
func open(t *testing.T, o servicetest.Options) *site {
	t.Helper()
	s := &site{t: t, who: auth.HostToken(auth.ByHostToken), lang: "en"}
	s.House = servicetest.Start(t, o)
	failed := zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m"}), zapcore.AddSync(complains{t}), zap.ErrorLevel) // templates
	c, err := New(Options{Service: s.Service, Namespace: servicetest.Namespace, Version: "test", Logger: zap.New(failed)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r.WithContext(auth.With(r.Context(), s.who)))
	}))
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.url, s.client, s.console = server.URL, server.Client(), c
	s.client.Jar = jar
	return s
}

// complains fails a test for each line that is logged.
type complains struct{ t *testing.T }

func (c complains) Write(line []byte) (int, error) {
	c.t.Errorf("%s", line)
	return len(line), nil
}

// as is a principal with a role for jobs.
func as(role auth.Role, jobs ...string) auth.Principal {
	return auth.Principal{Name: "ann", Method: auth.ByPassword, Bindings: []auth.Binding{{Role: role, Jobs: jobs}}}
}

// answer is an answer.
type answer struct {
	code   int
	path   string // after redirects
	header http.Header
	body   string
}

func (s *site) ask(method, path string, form url.Values) answer {
	s.t.Helper()
	var body io.Reader = http.NoBody
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept-Language", s.lang)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	got, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{got.StatusCode, got.Request.URL.RequestURI(), got.Header, string(text)}
}

// get is a page, which has to be as good as all pages.
func (s *site) get(path string) answer {
	s.t.Helper()
	a := s.ask(http.MethodGet, path, nil)
	s.check(path, a)
	return a
}

func (s *site) post(path string, pairs ...string) answer {
	s.t.Helper()
	form := make(url.Values)
	for n := 0; n < len(pairs); n += 2 {
		form.Add(pairs[n], pairs[n+1])
	}
	a := s.ask(http.MethodPost, path, form)
	s.check(path, a)
	return a
}

// pointer is what a program shows of a pointer.
var pointer = regexp.MustCompile(`\b0x[0-9a-f]{6,}`)

var inline = regexp.MustCompile(`(?i)<[^>]*\s(style|on[a-z]+)\s*=|<script(?:[^>]*)>[^<]|<style|\s(href|src|action|formaction)="\s*javascript:|ZgotmplZ`)

// check is what holds for every page.
func (s *site) check(path string, a answer) {
	s.t.Helper()
	if kind := a.header.Get("Content-Type"); kind != "text/html; charset=utf-8" {
		s.t.Errorf("%s: %d %s %s", path, a.code, kind, a.body)
		return
	}
	if found := pointer.FindString(a.body); found != "" {
		s.t.Errorf("%s: shows an address in memory: %s", path, found)
	}
	if found := inline.FindString(a.body); found != "" {
		s.t.Errorf("%s: the policy keeps this from working, or it was made harmless: %s", path, found)
	}
	if a.header.Get("Content-Security-Policy") != policy || a.header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%s: headers %v", path, a.header)
	}
	if !strings.Contains(a.body, "</html>") || strings.Contains(a.body, "%!") || strings.Contains(a.body, "<no value>") {
		s.t.Errorf("%s: not a whole page:\n%s", path, a.body)
	}
}

// has reports what a page shows, as text.
func (a answer) has(t *testing.T, code int, texts ...string) {
	t.Helper()
	plain := a.text()
	for _, text := range texts {
		if !strings.Contains(plain, text) {
			t.Errorf("%s does not have %q:\n%s", a.path, text, plain)
		}
	}
	if a.code != code {
		t.Errorf("%s: %d, expected %d:\n%s", a.path, a.code, code, plain)
	}
}

func (a answer) lacks(t *testing.T, texts ...string) {
	t.Helper()
	plain := a.text()
	for _, text := range texts {
		if strings.Contains(plain, text) {
			t.Errorf("%s has %q:\n%s", a.path, text, plain)
		}
	}
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
	hrefs  = regexp.MustCompile(`href="([^"]*)"`)
)

// text is what a page says.
func (a answer) text() string {
	_, main, _ := strings.Cut(a.body, "<div id=\"notes\">")
	return blanks.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(main, " ")), " ")
}

// links are the addresses that a page links to.
func (a answer) links() []string {
	var list []string
	for _, m := range hrefs.FindAllStringSubmatch(a.body, -1) {
		list = append(list, html.UnescapeString(m[1]))
	}
	return list
}

// until asks for a page until it shows something.
func (s *site) until(path, text string) answer {
	s.t.Helper()
	var a answer
	s.Until(path+" shows "+text, func() bool {
		a = s.get(path)
		return strings.Contains(a.text(), text)
	})
	return a
}

func hostile() []string {
	return []string{`"quoted" 'twice'`, `<script>alert(1)`, `a&amp;b<i>`, `100% %41 %zz`, `对账 每日`, `{{.P.User}}`, `a?b=c#d`, `a+b c;d`, `*[a-z]?\`, `javascript:alert(1)`, `--`, `ünïcödé ` + "\u202e" + `rtl`}
}

// TestPages follows every link from the first page on, in both languages: all lead to a
// page, whatever the jobs are called.
func TestPages(t *testing.T) {
	t.Parallel()
	jobs := []engine.Job{
		servicetest.Job("fails", "", 3, servicetest.Fail), servicetest.Job("runs", "", 2, servicetest.Wait),
		servicetest.Job("nightly", "0 0 3 * * ?", 4, servicetest.OK), servicetest.Job("large", "0 0 * * * ?", 300, servicetest.OK),
	}
	for _, name := range hostile() {
		jobs = append(jobs, servicetest.Job(name, "", 1, servicetest.Fail))
	}
	s := open(t, servicetest.Options{Jobs: jobs, Refused: []engine.Refusal{{File: "bad<b>.yaml", Reasons: []string{"line 1: <i>no"}, Since: time.Now()}}})
	for _, name := range append([]string{"fails", "runs"}, hostile()...) {
		if a := s.post(jobPath(name, "trigger"), "back", "/jobs", "reason", "<b>why"); a.path != "/jobs" {
			t.Errorf("%s: back at %s", name, a.path)
		}
	}
	for _, name := range append([]string{"fails"}, hostile()...) {
		s.until("/fires?failed=true&job="+url.QueryEscape(name2pattern(name)), name)
	}
	for _, lang := range []string{"en", "zh-CN,zh;q=0.9,en;q=0.8"} {
		s.lang = lang
		seen, queue := map[string]bool{"/": true}, []string{"/"}
		for len(queue) > 0 {
			path := queue[0]
			queue = queue[1:]
			a := s.get(path)
			if a.code != http.StatusOK {
				t.Errorf("%s: %d %s", path, a.code, a.text())
			}
			for _, link := range a.links() {
				link, _, _ = strings.Cut(link, "#")
				if page, is := strings.CutPrefix(link, "/docs/"); is { // package pages serves them
					if _, err := os.Stat("../../../docs/" + cmp.Or(page, "README") + ".md"); err != nil && !seen[link] {
						t.Errorf("%s leads to %s: %v", path, link, err)
					}
					seen[link] = true
				}
				skip := link == "" || strings.HasPrefix(link, "/static/") || strings.HasPrefix(link, "/preferences") || path == "/calendar"
				if !strings.HasPrefix(link, "/") && link != "" {
					t.Errorf("%s links to %s, which is elsewhere", path, link)
				}
				if !skip && !seen[link] && len(seen) < 400 {
					seen[link], queue = true, append(queue, link)
				}
			}
		}
		if len(seen) < 60 {
			t.Errorf("only %d pages were found", len(seen))
		}
	}
	for _, name := range hostile() {
		s.get(jobPath(name)).has(t, http.StatusOK, name, "disk on fire")
	}
	s.get("/audit").has(t, http.StatusOK, "<b>why")
	s.get("/modules").has(t, http.StatusOK, "bad<b>.yaml", "line 1: <i>no")
}

// counted counts the requests to the registry.
type counted struct {
	registry.Center
	n *atomic.Int64
}

func (c counted) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	c.n.Add(1)
	return c.Center.Read(ctx, queries...)
}

func (c counted) Commit(ctx context.Context, ops ...registry.Op) ([]registry.Result, error) {
	c.n.Add(1)
	return c.Center.Commit(ctx, ops...)
}

func (c counted) Watch(ctx context.Context, queries ...registry.Query) (<-chan registry.Snapshot, error) {
	c.n.Add(1)
	return c.Center.Watch(ctx, queries...)
}

// TestPagesAskTheRegistryNothing: pages show what hosts know. An item's page reads what the item
// keeps, the page of a configuration reads that, that of a backfill the job's backfills, and that of limits who has a permit.
func TestPagesAskTheRegistryNothing(t *testing.T) {
	t.Parallel()
	const visits = 4
	var requests atomic.Int64
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("fails", "", 3, servicetest.Fail), servicetest.Job("nightly", "0 0 3 * * ?", 4, servicetest.OK)},
		Wrap: func(c registry.Center) registry.Center { return counted{c, &requests} }})
	s.post("/jobs/fails/trigger")
	fire := s.until("/fires?failed=true", "fails")
	link := func(a answer, prefix string) string {
		t.Helper()
		at := slices.IndexFunc(a.links(), func(l string) bool { return strings.HasPrefix(l, prefix) })
		if at < 0 {
			t.Fatalf("no link to %s", prefix)
		}
		return a.links()[at]
	}
	pages := []string{"/", "/jobs", "/jobs/nightly", "/jobs/fails", "/jobs/fails/explain", "/fires", "/runs", link(fire, "/jobs/fails/fire"),
		link(s.get("/runs"), "/run?"), "/calendar", "/hosts", "/modules", "/logs", "/audit", "/alerts"}
	for _, path := range pages {
		s.get(path).has(t, http.StatusOK) // the first reads the alerts
		before := requests.Load()
		for range visits {
			s.get(path)
		}
		if n := requests.Load() - before; n >= visits { // fewer are the host's own
			t.Errorf("%s: %d requests in %d visits", path, n, visits)
		}
	}
	for _, path := range []string{"/jobs/fails/items/1", "/jobs/fails/config", "/jobs/nightly/backfill", "/limits"} {
		before := requests.Load()
		if s.get(path); requests.Load() == before {
			t.Errorf("%s asks the registry nothing", path)
		}
	}
}

// TestLiveRows: on pages that are kept up to date each row with a link, and each form of an action, is told by what it is about: what a
// reader has opened or focused stays with it when others come in before it.
func TestLiveRows(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("fails", "", 3, servicetest.Fail), servicetest.Job("waits", "", 2, servicetest.Wait), servicetest.Job("nightly", "0 0 3 * * ?", 4, servicetest.OK)}})
	s.post("/jobs/fails/trigger")
	s.post("/jobs/waits/trigger")
	fire := s.until("/fires?failed=true", "fails")
	s.until("/runs?running=true", "waits")
	link := func(a answer, prefix string) string {
		t.Helper()
		at := slices.IndexFunc(a.links(), func(l string) bool { return strings.HasPrefix(l, prefix) })
		if at < 0 {
			t.Fatalf("no link to %s", prefix)
		}
		return a.links()[at]
	}
	keyed := func(path, what string, tags []string) {
		t.Helper()
		known := make(map[string]bool)
		for _, tag := range tags {
			_, key, found := strings.Cut(tag, ` data-key="`)
			if key, _, _ = strings.Cut(key, `"`); !found || key == "" || known[key] {
				t.Errorf("%s: %s: found %s; want a key that no other one beside it has", path, what, tag)
			}
			known[key] = true
		}
	}
	for _, path := range []string{"/", "/jobs", "/jobs/waits", "/jobs/waits/items/0", "/fires", "/runs", link(fire, "/jobs/fails/fire"), link(s.get("/runs?failed=true"), "/run?"), "/hosts", "/modules", "/alerts"} {
		page := s.get(path)
		if !strings.Contains(page.body, ` data-live="`) {
			t.Errorf("%s is not kept up to date", path)
		}
		for _, table := range strings.Split(page.body, `<table class="list`)[1:] {
			table, _, _ = strings.Cut(table, "</table>")
			var list []string
			_, body, _ := strings.Cut(table, "<tbody>")
			for _, row := range strings.Split(body, "<tr")[1:] {
				if tag, rest, _ := strings.Cut(row, ">"); strings.Contains(rest, "<a ") { // others have nothing to focus
					list = append(list, tag)
				}
			}
			keyed(path, "a row", list)
		}
		for _, acts := range strings.Split(page.body, `<div class="acts">`)[1:] {
			var forms []string
			for _, form := range strings.Split(acts, `<details class="act"`)[1:] {
				tag, rest, _ := strings.Cut(form, ">")
				forms = append(forms, tag)
				if strings.Contains(rest, "</details>\n</div>") || strings.Contains(rest, "</details></div>") {
					break
				}
			}
			keyed(path, "a form", forms)
		}
	}
}

// TestZones: the next fires of a job are shown in its zone and in the reader's, in UTC for a
// reader in the job's.
func TestZones(t *testing.T) {
	t.Parallel()
	nightly := servicetest.Job("nightly", "0 0 3 * * ?", 1, servicetest.OK)
	nightly.Definition.TimeZone = "Asia/Shanghai"
	s := open(t, servicetest.Options{Jobs: []engine.Job{nightly}})
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for reader, want := range map[string][2]string{"Asia/Tokyo": {"Asia/Tokyo", "04:00:00"}, "Asia/Shanghai": {"UTC", "19:00:00"}} {
		s.client.Jar.SetCookies(at, []*http.Cookie{{Name: cookieZone, Value: url.QueryEscape(reader)}})
		_, next, _ := strings.Cut(s.get("/jobs/nightly").body, `id="next"`)
		next, _, _ = strings.Cut(next, "</section>")
		if !strings.Contains(next, "<th>Asia/Shanghai</th><th>"+want[0]+"</th>") || strings.Count(next, " 03:00:00<") != 10 || strings.Count(next, " "+want[1]+"<") != 10 {
			t.Errorf("a reader in %s: %s", reader, next)
		}
	}
}

// TestTimes: times that hosts write in UTC are shown in the page's zone, and the zone of a job that goes by
// its hosts' is named.
func TestTimes(t *testing.T) {
	t.Parallel()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	r := reader{Lang: i18n.English, Now: time.Now(), Zone: tokyo, texts: table(t)}
	if got, want := r.Times("held back since 2026-03-01T20:00:00Z: a host \x1b died"), `held back since 2026-03-02 05:00:00 JST: a host \x1b died`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	goes := func(id, zone string) cluster.Host {
		return cluster.Host{ID: id, Report: &report.Report{Status: engine.Status{Zone: zone}}}
	}
	hosts := []cluster.Host{goes("a", "JST +09:00"), goes("b", "CET +01:00"), goes("c", "CET +01:00"), goes("other", "UTC +00:00"), {ID: "silent"}, goes("older", "")}
	ids := []string{"a", "b", "c", "silent", "older"}
	for zone, want := range map[string]string{"Local": "the host's (CET +01:00, JST +09:00)", "": "the host's (CET +01:00, JST +09:00)", "UTC": "UTC"} {
		if got := r.zoneName(zone, ownZones(ids, hosts)); got != want {
			t.Errorf("%q is called %q, want %q", zone, got, want)
		}
	}
}

// TestOffset: a run's page shows the offset before and after the run, and how often it was written.
func TestOffset(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("sync", "", 1, func(_ context.Context, inv *abi.Invocation) abi.Result {
		return abi.Result{Outcome: abi.OutcomeOK, Offset: append(slices.Clone(inv.Offset), "9<"...), Staged: true}
	})}})
	var runs []string
	for n, want := range []string{"Offset none → 9< written 1 times in this run, 1 in all", "Offset 9< → 9<9< written 1 times in this run, 2 in all"} {
		s.post("/jobs/sync/trigger")
		s.Until("the run is in the list", func() bool {
			runs = slices.DeleteFunc(s.get("/runs?job=sync").links(), func(l string) bool { return !strings.HasPrefix(l, "/run?") })
			return len(runs) == n+1
		})
		s.until(runs[0], want)
	}
}

func name2pattern(name string) string { return (&address{}).Pattern(name) }

func TestOverview(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("fails", "", 1, servicetest.Fail), servicetest.Job("runs", "", 2, servicetest.Wait), servicetest.Job("soon", "0 * * * * ?", 1, servicetest.OK),
	}})
	s.get("/").has(t, 200, "Nothing fails, and nothing is late", "Nothing runs", "soon")
	s.post("/jobs/fails/trigger")
	s.post("/jobs/runs/trigger")
	s.until("/", "failed: disk on fire")
	s.until("/", "runs 2 items").has(t, 200, "Needs attention 1", "1 failing")
	s.lang = "zh"
	s.get("/").has(t, 200, "需要处理", "失败: disk on fire")
	empty := open(t, servicetest.Options{})
	empty.get("/").has(t, 200, "No jobs yet")
	empty.get("/jobs").has(t, 200, "No jobs yet")
	for path, text := range map[string]string{"/fires": "Nothing has run yet", "/runs": "Nothing has run yet", "/logs": "No line has been logged yet", "/audit": "No changes yet", "/modules": "No module runs yet"} {
		empty.get(path).has(t, 200, text)
		if !strings.Contains(path, "modules") {
			empty.get(path+"?job=x*").has(t, 200, "Nothing matches")
		}
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	var jobs []engine.Job
	for n := range 230 {
		jobs = append(jobs, servicetest.Job(fmt.Sprintf("job-%03d", n), "0 0 3 * * ?", 1, servicetest.OK))
	}
	jobs = append(jobs, servicetest.Job("broken", "", 1, servicetest.Fail))
	s := open(t, servicetest.Options{Jobs: jobs})
	s.post("/jobs/broken/trigger")
	s.until("/jobs?health=failing", "disk on fire").has(t, 200, "1 of 231", "broken")
	// Three pages by name, without a job twice or none.
	var names []string
	for path, pages := "/jobs?sort=name", 0; path != ""; pages++ {
		a := s.get(path)
		path = ""
		for _, m := range regexp.MustCompile(`name="job" value="([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
			names = append(names, m[1])
		}
		if m := regexp.MustCompile(`href="([^"]*)">Next page`).FindStringSubmatch(a.body); m != nil {
			path = html.UnescapeString(m[1])
		}
		if pages > 5 {
			t.Fatal("the pages do not end")
		}
	}
	if len(names) != 231 || !slices.IsSorted(names) || len(slices.Compact(names)) != 231 {
		t.Errorf("%d jobs: %v", len(names), names)
	}
	first := s.get("/jobs")
	first.has(t, 200, "Jobs 231")
	if at := strings.Index(first.body, `value="broken"`); at < 0 || at > strings.Index(first.body, `value="job-000"`) {
		t.Error("what fails is not first")
	}
	s.get("/jobs?q=JOB-22").has(t, 200, "10 of 231", "job-229")
	s.get("/jobs?outcome=fail").has(t, 200, "1 of 231", "broken")
	s.get("/jobs?outcome=OK&outcome=").has(t, 200, "Nothing matches")
	s.get("/jobs?q=nothing").has(t, 200, "Nothing matches")
	s.get("/jobs?sort=colour").has(t, 400, "sort", "expected name, next")
	s.get("/jobs?limit=x").has(t, 400, "limit", "expected a number")
	s.get("/jobs?health=foo").has(t, 400, "health", `found "foo", expected error, failing`)
	s.get("/jobs?state=runing").has(t, 400, "state", `did you mean "running"?`)
	s.get("/jobs?outcome=fial").has(t, 400, "outcome", "expected OK, FAIL")
	for _, page := range []string{"/jobs", "/fires", "/runs", "/logs", "/audit", "/calendar"} {
		s.get(page+"?job=[").has(t, 400, "job", `found "[", expected a name or a pattern such as team-a-*`)
	}
	s.get("/jobs?limit=1001").has(t, 400, "limit")
	s.get("/jobs?after=gone").has(t, 400, "begin anew")
	s.get("/runs?item=x").has(t, 400, "item", "a number")
	s.get("/runs?from=yesterday").has(t, 400, "from", "a time such as")
	s.get("/runs?item=&from=&job=").has(t, 200, "broken")
	s.get("/nowhere").has(t, 404, "there is no page /nowhere")
	s.get("/jobs/nope").has(t, 404, "no host has a job")
	s.get("/jobs/job-000/items/7").has(t, 404, "has no item 7")
	s.get("/jobs/job-000/items/x").has(t, 400, "item")
	s.get("/run?run=a/1/2").has(t, 404, "no run")
	s.get("/run").has(t, 400, "run")
	s.get("/jobs/job-000/fire?instant=2020-01-01T00:00:00Z").has(t, 404, "this fire of job")
}

func TestActions(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("a", "0 0 3 * * ?", 2, servicetest.OK), servicetest.Job("b", "0 0 3 * * ?", 2, servicetest.OK), servicetest.Job("runs", "", 2, servicetest.Wait),
	}})
	page := s.get("/jobs/a")
	page.has(t, 200, "Run now", "Pause", "Remove")
	s.post("/jobs/a/trigger", "reason", "because", "back", "/jobs/a").has(t, 200, "a is triggered.")
	s.get("/jobs/a").lacks(t, "a is triggered.")
	s.until("/jobs/a", "2 ok").has(t, 200, "trigger", "because")
	page.has(t, 200, "Until (empty: until it is resumed)")
	s.post("/jobs/a/pause", "until", "2h", "back", "/jobs/a").has(t, 200, "a is paused.")
	s.until("/jobs/a", "it ends by itself at")
	s.post("/jobs/a/resume", "back", "/jobs/a")
	s.until("/jobs/a", "Pause")
	s.post("/jobs/a/pause", "reason", "broken disk", "back", "/jobs/a").has(t, 200, "a is paused.")
	s.until("/jobs/a", "paused by host token: broken disk")
	s.until("/jobs", "paused by host token: broken disk") // so do lists
	s.lang = "zh"
	s.get("/jobs").has(t, 200, "已暂停，操作者：host token，原因：broken disk")
	s.lang = "en"
	s.until("/jobs/a", "Resume").has(t, 200, "broken disk", "disable", "create", "shardingTotalCount 2")
	s.post("/jobs/a/resume", "back", "/jobs/a")
	s.until("/jobs?health=ok", "a")
	s.Until("lists do not say that it is paused", func() bool { return !strings.Contains(s.get("/jobs").text(), "paused by") })
	s.post("/jobs/a/items/1/pause", "reason", "bad data", "until", "2h", "back", "/jobs/a/items/1")
	s.until("/jobs/a/items/1", "Resume item").has(t, 200, "paused by host token: bad data; it ends by itself at")
	s.lang = "zh"
	s.get("/jobs/a/items/1").has(t, 200, "已暂停，操作者：host token，原因：bad data；将于", "自动恢复")
	s.lang = "en"
	s.post("/jobs/a/items/1/pause", "until", "yesterday", "back", "/jobs/a/items/1").has(t, 400, "is not a time")
	s.post("/jobs/a/items/1/pause", "until", "2020-01-01", "back", "/jobs/a/items/1").has(t, 400, "expected a time that is to come")
	s.until("/jobs?q=a", "1 paused") // before the item is due
	s.get("/jobs/a").has(t, 200, "1 paused")
	s.post("/jobs/a/items/1/offset", "do", "set", "offset", "17\nline <2>", "back", "/jobs/a/items/1").has(t, 200, "is changed")
	s.get("/jobs/a/items/1").has(t, 200, "17 line <2>")
	// A browser sends what the page has with other ends of lines, and cannot send all.
	for sent, want := range map[string]string{"\r\n17\r\nline": ">\n\n17\nline</textarea>", "a\x01b": " required>\n</textarea>"} {
		s.post("/jobs/a/items/1/offset", "do", "set", "offset", sent, "back", "/jobs/a/items/1").has(t, 200, "is changed")
		if a := s.get("/jobs/a/items/1"); !strings.Contains(a.body, want) {
			t.Errorf("the form of an offset that was sent as %q lacks %q", sent, want)
		}
	}
	s.post("/jobs/a/items/1/offset", "do", "reset", "back", "/jobs/a/items/1")
	s.get("/jobs/a/items/1").has(t, 200, "Offset none")
	s.post("/jobs/runs/trigger")
	run := s.until("/jobs/runs", "Kill runs")
	run.has(t, 200, "running")
	s.post("/jobs/runs/kill", "reason", "stuck", "back", "/jobs/runs").has(t, 200, "2 runs of runs are asked to end.")
	s.until("/fires?job=runs", "cancelled")
	s.post("/jobs/runs/release", "back", "/jobs/runs").has(t, 200, "No item of runs was held back.")
	s.get("/jobs/runs").has(t, 200, "Only these items (empty: all)", "Another parameter, this once (nothing typed", "An empty parameter, this once")
	s.post("/jobs/runs/trigger", "items", "1", "param", "<b>day 1", "back", "/jobs/runs").has(t, 200, "runs is triggered.")
	both := s.post("/jobs/runs/trigger", "param", "x", "emptyParam", "true", "back", "/jobs/runs")
	both.has(t, http.StatusBadRequest, "found a parameter, and that it is to be empty; expected one of the two")
	for _, page := range []string{"/run?", "/jobs/runs/fire?"} {
		var link string
		s.Until("the run is listed", func() bool {
			for _, l := range s.get("/runs?job=runs").links() {
				if strings.HasPrefix(l, "/run?") && strings.Contains(s.get(l).text(), "Parameter <b>day 1") {
					link = l
				}
			}
			return link != ""
		})
		if page != "/run?" {
			links := s.get(link).links()
			link = links[slices.IndexFunc(links, func(l string) bool { return strings.HasPrefix(l, page) })]
		}
		s.until(link, "Parameter <b>day 1").has(t, 200, "Asked for items 1")
	}
	s.post("/jobs/runs/trigger", "items", "1", "back", "/jobs/runs").has(t, 200, "runs is triggered.") // it waits until the item is idle
	s.post("/jobs/runs/trigger", "items", "0", "back", "/jobs/runs").has(t, 200, "it is queued behind 1")
	s.until("/jobs/runs", "Triggers that wait 1 queued").has(t, 200, "It waits for what runs on 127.0.0.1.", "waits for the one before · items 0")
	s.until("/audit?job=runs", `items 1 and parameter "<b>day 1"`)
	s.post("/jobs/runs/trigger", "items", "0-2", "back", "/jobs/runs").has(t, 400, "items: found 2, expected 0 to 1: the job has 2")
	s.post("/jobs/runs/trigger", "items", "one", "back", "/jobs/runs").has(t, 400, "expected numbers and ranges such as 0,3-5")
	s.post("/jobs/nope/trigger", "back", "/jobs").has(t, 200, "there is no job")
	s.post("/jobs/a/explode", "back", "/jobs").has(t, 200, "there is no page /jobs/a/explode")
	s.post("/jobs/a/items/-1/pause").has(t, 400, "expected a number from 0")
	// Several at once: what cannot be done keeps nothing else from being done.
	s.post("/bulk", "do", "pause", "job", "a", "job", "b", "job", "gone", "back", "/jobs").has(t, 200, "2 jobs are paused.", "there is no job \"gone\"")
	s.until("/jobs?health=paused", "2 of 3")
	s.post("/bulk", "do", "resume", "job", "a", "job", "b", "back", "/jobs").has(t, 200, "2 jobs are resumed.")
	s.post("/bulk", "do", "trigger", "back", "/jobs").has(t, 200, "No job is ticked.")
	s.post("/bulk", "do", "explode", "job", "a").has(t, 400, "expected trigger, pause or resume")
	s.post("/jobs/b/remove", "name", "a", "back", "/jobs").has(t, 400, "expected the job's name, \"b\"")
	// Of a job that was removed, the page offers what can be done.
	s.post("/jobs/b/remove", "name", "b", "back", "/jobs/b")
	s.until("/jobs/b", "Restore").lacks(t, "Run now", "Resume", "Pause", "Remove b", "Remove job")
	if acts := regexp.MustCompile(`action="(/jobs/b/[a-z]+)"`).FindAllStringSubmatch(s.get("/jobs/b").body, -1); len(acts) != 1 || acts[0][1] != "/jobs/b/restore" {
		t.Errorf("a removed job has forms for %v", acts)
	}
	s.post("/jobs/b/restore", "back", "/jobs/b")
	s.until("/jobs/b", "Run now")
}

// TestBack: a form leads to no other site, whatever it says.
func TestBack(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/jobs?a=b": "/jobs?a=b", "": "/", "//evil.example": "/", "/\\evil.example": "/", "https://evil.example": "/", "javascript:alert(1)": "/",
		"jobs": "/", "/a\r\nSet-Cookie: x": "/", "/jobs/%2f%2fevil": "/jobs/%2f%2fevil", "///evil.example": "/", "http:/evil": "/",
	} {
		if got := local(path, "/"); got != want {
			t.Errorf("%q: %q, expected %q", path, got, want)
		}
	}
}

// TestCalendar: jobs that fire every hour are in the week; what is not in it is said.
func TestCalendar(t *testing.T) {
	t.Parallel()
	minutely := servicetest.Job("minutely", "0 * * * * ?", 1, servicetest.OK)
	s := open(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("daily", "0 30 3 * * ?", 1, servicetest.OK), servicetest.Job("hourly", "0 10 * * * ?", 1, servicetest.OK), minutely}})
	monday := firstDay(time.Now().UTC()).AddDate(0, 0, 7)
	week := "/calendar?from=" + monday.Format(time.DateOnly)
	a := s.get(week)
	a.has(t, 200, "175 fires · 1 job more than once an hour", "does not count them", "minutely")
	if n := strings.Count(a.body, ">1</a></td>"); n != 7*23 {
		t.Errorf("%d hours have one fire, expected 161", n)
	}
	s.get(week+"&at="+monday.Add(3*time.Hour).Format(time.RFC3339)).has(t, 200, "Fires hourly", "daily "+monday.Format("01-02"))
	s.get(week+"&job=minutely").has(t, 200, "0 fires", "All jobs that fire in this week do so more often than once an hour")
	s.get("/calendar?from="+monday.AddDate(0, 0, -14).Format(time.DateOnly)).has(t, 200, "0 fires", "This week is over")
	s.get(week+"&job=none*").has(t, 200, "0 fires", "No job fires in this week")
}

// TestEnding: a host that ends is no failure of the console's, as for the API.
func TestEnding(t *testing.T) {
	t.Parallel()
	if kind := kindOf(fmt.Errorf("the jobs: %w", cluster.ErrEnded)); kind.name != "unavailable" || kind.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", kind)
	}
}

// TestTooMany: a page that is refused because its reader asks for much at once says so, and when to come back.
func TestTooMany(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("etl-a", "0 0 3 * * ?", 1, servicetest.OK)}})
	places := auth.NewPlaces(auth.PlacesOptions{What: "searches in logs", All: 9, Each: 0, Retry: 7 * time.Second})
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/logs", http.NoBody)
	r = r.WithContext(auth.With(r.Context(), as(auth.RoleViewer, "*")))
	s.console.show(w, r, func(ctx context.Context, _ *Console, _ *http.Request, _ *page) (view, error) {
		_, err := places.Take(ctx)
		return view{}, fmt.Errorf("the lines: %w", err)
	})
	if body := w.Body.String(); w.Code != 429 || w.Header().Get("Retry-After") != "7" || !strings.Contains(body, "Too much at once") || !strings.Contains(body, "0 searches in logs of ann") {
		t.Errorf("%d %v %s", w.Code, w.Header(), body)
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("etl-a", "0 0 3 * * ?", 1, servicetest.OK), servicetest.Job("pay", "0 0 3 * * ?", 1, servicetest.OK),
	}, Refused: []engine.Refusal{{File: "secret.yaml", Reasons: []string{"no"}, Since: time.Now()}}})
	s.who = as(auth.RoleViewer, "etl-*")
	s.get("/jobs").has(t, 200, "etl-a")
	s.get("/jobs").lacks(t, "pay", "Run now", "Pause")
	if a := s.get("/jobs"); strings.Contains(a.body, `name="job" value`) || strings.Contains(a.body, "data-all") {
		t.Errorf("jobs can be ticked, and none may be operated:\n%s", a.body)
	}
	s.get("/").lacks(t, "pay", "secret.yaml")
	s.get("/jobs/etl-a").lacks(t, "Run now", "Remove", "Kill")
	s.get("/jobs/etl-a/config").lacks(t, "Save", "Preview")
	s.get("/hosts").lacks(t, "Drain")
	s.get("/modules").lacks(t, "pay", "secret.yaml")
	s.get("/calendar").lacks(t, "pay")
	// A job that may not be seen looks the same as one that is not there.
	for _, name := range []string{"pay", "none"} {
		s.get("/jobs/"+name).has(t, 403, "You may not see this", "ann")
		s.post("/jobs/"+name+"/trigger").has(t, 403, "You may not do this")
	}
	s.post("/jobs/etl-a/trigger").has(t, 403, "You may not do this", "operator")
	s.post("/jobs/etl-a/config", "version", "-1", "was.cron", "0 0 3 * * ?", "set.cron", "0 0 4 * * ?", "do", "save").has(t, 403, "author")
	s.post("/hosts/pause", "server", "127.0.0.1").has(t, 403, "operator")
	s.who = as(auth.RoleOperator, "etl-*")
	s.get("/jobs/etl-a").has(t, 200, "Run now")
	s.get("/jobs/etl-a").lacks(t, "Remove")
	s.post("/jobs/etl-a/trigger", "back", "/jobs/etl-a").has(t, 200, "etl-a is triggered.")
	// Of several, those that may be operated are, and the page says so; where none may be
	// it says that alone.
	s.post("/bulk", "do", "pause", "job", "etl-a", "job", "pay", "back", "/jobs").has(t, 200, "1 job is paused.", "to operate job \"pay\" you need")
	s.until("/jobs?health=paused", "etl-a")
	s.post("/bulk", "do", "resume", "job", "pay", "back", "/jobs").has(t, 403, "You may not do this", "pay")
	s.who.Bindings = append(s.who.Bindings, auth.Binding{Role: auth.RoleViewer, Jobs: []string{"*"}})
	if a := s.get("/jobs"); !strings.Contains(a.body, `name="job" value="etl-a"`) || strings.Contains(a.body, `name="job" value="pay"`) || !strings.Contains(a.text(), "pay") {
		t.Errorf("what can be ticked is not what may be operated:\n%s", a.body)
	}
	s.who = auth.Principal{}
	s.get("/jobs/etl-a").has(t, 401, "sign in first")
}

// away is a store whose database does not answer.
type away struct{ history.Store }

func (away) Fires(context.Context, history.Filter) (p history.Page[history.Fire], err error) {
	return p, history.ErrUnavailable
}

func (away) Runs(context.Context, history.Filter) (p history.Page[history.Run], err error) {
	return p, history.ErrUnavailable
}

func (away) Changes(context.Context, history.Filter) (p history.Page[history.Change], err error) {
	return p, history.ErrUnavailable
}

func (away) Events(context.Context, history.Filter) (p history.Page[event.Event], err error) {
	return p, history.ErrUnavailable
}

// TestNoHistory: what is not known because the history cannot be read is not said to be none.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "0 0 3 * * ?", 1, servicetest.Fail)}})
	s.get("/").has(t, 200, "No fire has failed in the last 24 hours.")
	s.Histories.Store = away{s.Store}
	const unknown = "Not known while the history cannot be read."
	overview := s.get("/")
	overview.has(t, 200, unknown, "What has run is not shown: the history's database does not answer")
	overview.lacks(t, "No fire has failed")
	job := s.get("/jobs/a")
	job.lacks(t, "No fire is known", "No changes")
	if n := strings.Count(job.text(), unknown); n != 2 {
		t.Errorf("the job's page says %d times that something is not known:\n%s", n, job.text())
	}
	item := s.get("/jobs/a/items/0")
	item.has(t, 200, unknown)
	item.lacks(t, "No run is known")
	for _, page := range []string{"/fires", "/runs", "/audit"} {
		a := s.get(page)
		a.has(t, 503, "The history cannot be read", "until its database answers again")
		a.lacks(t, "registry")
	}
	s.lang = "zh"
	s.get("/").has(t, 200, "无法读取历史，情况未知。")
}

// TestNoSession: while the registry cannot be reached, pages show the jobs as they were then, under one banner that says since
// when, and that nothing fires.
func TestNoSession(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "0 * * * * ?", 4, servicetest.OK), servicetest.Job("f", "", 2, servicetest.Fail), servicetest.Job("p", "0 0 3 * * ?", 1, servicetest.OK)}})
	s.post("/jobs/p/pause", "back", "/")
	for _, job := range []string{"a", "f"} {
		s.post("/jobs/"+job+"/trigger", "back", "/")
	}
	s.until("/jobs/f", "failing")
	s.until("/jobs/a", "4 ok")
	s.until("/jobs/p", "paused")
	s.get("/").has(t, 200, "Next hour 60 fires", "0 in error 1 failing 0 late 1 paused 1 ok")
	if err := s.Server.Close(); err != nil {
		t.Fatal(err)
	}
	const banner = "The registry has not been reachable from this host since"
	s.until("/", banner)
	overview := s.until("/", "Nothing fires until the registry can be reached.")
	overview.lacks(t, "0 fires", "its hosts have no session")
	overview.has(t, 200, "127.0.0.1 this host no session", "0 in error 1 failing 0 late 1 paused 1 ok", "Needs attention 1 ", "failed: disk on fire")
	if n := strings.Count(overview.text(), banner); n != 1 || !strings.Contains(overview.body, `<ul class="tiles dim"`) || !strings.Contains(overview.body, `<tr class="is-failing dim" data-key="`) {
		t.Errorf("%d banners, or what is known of before is not dimmed:\n%s", n, overview.body)
	}
	s.get("/limits").has(t, 200, banner, "Who runs and who waits stands in the registry alone")
	jobs := s.get("/jobs")
	jobs.has(t, 200, "failed: disk on fire", banner)
	jobs.lacks(t, "its hosts have no session")
	if n := strings.Count(jobs.body, ` dim" data-key=`); n != 3 {
		t.Errorf("%d of 3 rows are dimmed", n)
	}
	a := s.get("/jobs/a")
	a.has(t, 200, "its hosts have no session", "Nothing fires until the registry can be reached.", "4 ok")
	if n := strings.Count(a.body, `class="cell item-good" href=`); n != 4 || !strings.Contains(a.body, `<div class="gridrow silent">`) {
		t.Errorf("%d of 4 items are shown as they were:\n%s", n, a.body)
	}
	a.lacks(t, "leader", "no item runs here")
	s.get("/fires?job=f").has(t, 200, "f failing", "its hosts have no session")
}

// TestWhyError: a job whose hosts have had no session since they began says since when, and others what keeps them.
func TestWhyError(t *testing.T) {
	t.Parallel()
	c, err := New(Options{Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	p := c.newPage(t.Context(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	p.hosts = []cluster.Host{
		{ID: "1", Name: "10.0.0.1", Report: &report.Report{Status: engine.Status{State: engine.HostLive}}},
		{ID: "2", Name: "10.0.0.2", Report: &report.Report{Status: engine.Status{State: engine.HostStarting, Started: now.Add(-time.Minute)}}},
		{ID: "3", Name: "10.0.0.3", Report: &report.Report{Status: engine.Status{State: engine.HostStarting, Started: now.Add(-time.Hour)}}},
	}
	j := cluster.Job{Name: "a", Health: cluster.HealthError, State: engine.JobNoSession, Reason: "x", Hosts: []string{"2"}}
	if why, since := p.why(&j); why != "its hosts have no session with the registry: nothing begins until it can be reached" || !since.Equal(now.Add(-time.Minute)) {
		t.Errorf("%q %s", why, since)
	}
	for _, j.State = range []engine.JobState{engine.JobError, engine.JobNoSession} { // the second had the error before it lost its session
		j.Reason, j.SessionLost = "its module is missing", now
		if why, since := p.why(&j); why != j.Reason || !since.IsZero() {
			t.Errorf("%q %s", why, since)
		}
	}
}

// TestWhyFailing: a job that fails says since when it has been failing, not when it failed last, and
// how many times in a row; the one that has been failing longest comes first.
func TestWhyFailing(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.Fail), servicetest.Job("b", "", 1, servicetest.Fail)}})
	for _, job := range []string{"b", "a", "b", "b"} {
		before, _, _, _ := s.Cluster.Job(job)
		s.post("/jobs/"+job+"/trigger", "back", "/jobs/"+job)
		s.Until(job+" has failed once more", func() bool {
			if err := s.Cluster.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			j, _, _, _ := s.Cluster.Job(job)
			return j.Failures == before.Failures+1
		})
	}
	b, _, _, _ := s.Cluster.Job("b")
	if !b.Failing.Before(b.Last.Ended) {
		t.Errorf("b is failing since %s, and failed last at %s", b.Failing, b.Last.Ended)
	}
	overview := s.until("/", "disk on fire (3 times in a row)")
	rows := regexp.MustCompile(`(?s)<tr class="is-failing" data-key=".*?</tr>`).FindAllString(overview.body, -1)
	iso := b.Failing.UTC().Format(isoTime)
	if len(rows) != 2 || !strings.Contains(rows[0], "/jobs/b") || !strings.Contains(rows[0], iso) || strings.Contains(rows[1], "in a row") {
		t.Errorf("rows, expected b first, since %s:\n%s", iso, strings.Join(rows, "\n"))
	}
}

// TestGone: a host that is gone without a word is shown until it is back.
func TestGone(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	s.get("/hosts").lacks(t, "Gone in the last")
	s.Local.NoteGone(event.Event{Kind: event.HostGone, Time: time.Now().Add(-time.Hour), Host: s.Host.Status().Instance, Other: "10.0.0.2@-@4711-x"})
	s.Local.NoteGone(event.Event{Kind: event.HostGone, Time: time.Now().Add(-25 * time.Hour), Host: s.Host.Status().Instance, Other: "10.0.0.3@-@4711-x"})
	s.until("/hosts", "Gone in the last 24 hours, and not back").has(t, 200, "10.0.0.2 (4711)", "127.0.0.1")
	s.get("/hosts").lacks(t, "10.0.0.3")
	s.get("/").has(t, 200, "10.0.0.2 (4711) gone since", "seen by 127.0.0.1")
	s.who = as(auth.RoleViewer, "a")
	s.get("/").lacks(t, "10.0.0.2")
	s.get("/hosts").lacks(t, "10.0.0.2")
	s.who = auth.HostToken(auth.ByHostToken)
	s.Histories.Store = away{s.Store}
	s.get("/hosts").has(t, 200, "10.0.0.2 (4711)") // no history is asked
}

// TestAuditFilter: changes are found by who and by operation; signing in and out can be left out.
func TestAuditFilter(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	for _, c := range []history.Change{{Who: "ann", What: "sign in"}, {Who: "Bob", What: "edit cron, timeZone", Job: "a"}, {Who: "ann", What: "disable", Job: "a"}, {Who: "eve", What: "sign out"}} {
		c.Time = time.Now()
		s.Store.AddChange(c)
	}
	s.until("/audit", "sign out").has(t, 200, "ann", "Bob", "sign in", "all but signing in and out")
	row := regexp.MustCompile(`(?s)<tbody>.*</tbody>`)
	for query, want := range map[string][]string{
		"who=bob": {"Bob"}, "who=ANN": {"ann", "ann"}, "what=!sign&who=ann": {"ann"}, "what=sign": {"eve", "ann"}, "what=edit": {"Bob"}, "what=edit&what=disable": {"ann", "Bob"},
	} {
		var who []string
		for _, m := range regexp.MustCompile(`</time></td>\s*<td>([A-Za-z]+)`).FindAllStringSubmatch(row.FindString(s.get("/audit?"+query).body), -1) {
			who = append(who, m[1])
		}
		if !slices.Equal(who, want) {
			t.Errorf("%s: %v, expected %v", query, who, want)
		}
	}
	s.get("/audit?who=nobody").has(t, 200, "Nothing matches")
}

// TestNextHour: jobs that fire too often to be drawn are no part of what is counted by the minute,
// and one job alone is not counted twice.
func TestNextHour(t *testing.T) {
	t.Parallel()
	often := []engine.Job{servicetest.Job("often", "*/20 * * * * ?", 1, servicetest.OK), servicetest.Job("more", "*/5 * * * * ?", 1, servicetest.OK)}
	s := open(t, servicetest.Options{Jobs: often})
	overview := s.get("/")
	overview.has(t, 200, "Next hour 2 jobs more than once a minute")
	overview.lacks(t, "Up to once a minute", "0/min")
	jobs := append(often, servicetest.Job("seldom", "0 * * * * ?", 1, servicetest.OK))
	s = open(t, servicetest.Options{Jobs: jobs})
	one := s.get("/")
	one.has(t, 200, "60 fires · 2 jobs more than once a minute")
	one.lacks(t, "Up to once a minute", "1/min")
	s = open(t, servicetest.Options{Jobs: append(jobs, servicetest.Job("rare", "0 */10 * * * ?", 1, servicetest.OK))})
	s.get("/").has(t, 200, "66 fires · 2 jobs more than once a minute", "Up to once a minute", "2/min")
}

// TestPartialHistory: while the history of a host is missing, it is not said that no fire has failed.
func TestPartialHistory(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	s.Histories.Peers = func() []cluster.Peer {
		return []cluster.Peer{{ID: "x", ClusterDetail: tree.ClusterDetail{ServerIP: "10.0.0.9"}}}
	}
	s.Histories.Get = func(context.Context, cluster.Peer, string, any) error { return errors.New("it is halted") }
	a := s.get("/")
	a.has(t, 200, "10.0.0.9: it is halted", "None is known. The histories of some hosts are missing")
	a.lacks(t, "No fire has failed")
}

// TestPartialLists: where a list is shown of which a host's part is missing, the page says whose, and
// nothing is said to be none.
func TestPartialLists(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	e := event.Event{Time: time.Now(), Job: "a", RunID: "a/t9/0", Trigger: 9, Item: new(0), Instant: time.Now(), Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x", Items: []int{0}, Attempt: 1}
	for _, e.Kind = range []event.Kind{event.FireStarted, event.ItemStarted, event.ItemEnded, event.FireEnded} {
		if e.Kind == event.ItemEnded {
			e.Outcome = abi.OutcomeOK
		}
		s.Store.AddEvent(e)
	}
	s.until("/run?run=a/t9/0", "The guest logged nothing")
	s.Histories.Peers = func() []cluster.Peer {
		return []cluster.Peer{{ID: "x", ClusterDetail: tree.ClusterDetail{ServerIP: "10.0.0.9"}}}
	}
	all := []string{cluster.PathFires, cluster.PathRuns, cluster.PathEvents, cluster.PathLines, cluster.PathChanges}
	for page, lists := range map[string][]string{
		"/":                      {cluster.PathFires},
		"/jobs/a":                {cluster.PathFires, cluster.PathChanges},
		"/jobs/a/items/0":        {cluster.PathRuns},
		"/jobs/a/fire?trigger=9": {cluster.PathFires, cluster.PathRuns, cluster.PathEvents},
		"/run?run=a/t9/0":        {cluster.PathRuns, cluster.PathEvents, cluster.PathLines},
		"/fires":                 {cluster.PathFires},
		"/fires?trigger=77":      {cluster.PathFires, cluster.PathEvents, cluster.PathChanges},
		"/runs":                  {cluster.PathRuns},
		"/logs":                  {cluster.PathLines},
		"/audit":                 {cluster.PathChanges},
	} {
		for _, slow := range all {
			s.Histories.Get = func(_ context.Context, _ cluster.Peer, path string, _ any) error {
				if strings.HasPrefix(path, slow) {
					return errors.New("it is slow")
				}
				return nil
			}
			a := s.get(page)
			if missing := strings.Contains(a.text(), "Records are missing: 10.0.0.9: it is slow"); missing != slices.Contains(lists, slow) {
				t.Errorf("%s without %s: says that records are missing: %t\n%s", page, slow, missing, a.text())
			}
			if slices.Contains(lists, slow) {
				a.lacks(t, "The guest logged nothing", "Nothing has run yet", "No line has been logged", "No changes yet", "No host has begun trigger", "There is no trigger")
			}
		}
	}
}

// TestQueued: what waits for a slot is queued on all pages, and does not count as running.
func TestQueued(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hold := func(ctx context.Context, _ *abi.Invocation) abi.Result {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return abi.Result{Outcome: abi.OutcomeOK}
	}
	const more = 5
	many, one := servicetest.Job("many", "", engine.DefaultMaxConcurrency()+more, hold), servicetest.Job("one", "", 1, hold)
	many.Definition.Props[jobconfig.PropMaxConcurrency] = strconv.Itoa(engine.DefaultMaxConcurrency() + more)
	s := open(t, servicetest.Options{Jobs: []engine.Job{many, one}})
	s.post("/jobs/many/trigger", "back", "/jobs/many")
	counts := fmt.Sprintf("%d running %d queued", engine.DefaultMaxConcurrency(), more)
	s.until("/jobs", counts)
	s.post("/jobs/one/trigger", "back", "/jobs/one")
	s.until("/jobs?state=queued", "one").lacks(t, "many")
	s.until("/", "1 running 1 queued").has(t, http.StatusOK, fmt.Sprintf("%d running · %d queued", engine.DefaultMaxConcurrency(), more+1))
	s.get("/hosts").has(t, http.StatusOK, fmt.Sprintf("%d used, 0 free %d queued", engine.DefaultMaxConcurrency(), more+1))
	s.get("/jobs/one/items/0").has(t, http.StatusOK, "queued", "Kill")
	s.get("/jobs/one").has(t, http.StatusOK, "Kill")
	s.until("/fires", counts)
	close(release)
	s.until("/jobs?state=ready", "one").has(t, http.StatusOK, "many")
}

// TestOverview_more: a list of the overview that has no room for all jobs says how many there are besides.
func TestOverview_more(t *testing.T) {
	t.Parallel()
	const shown, more = 20, 3
	slots := engine.DefaultMaxConcurrency()
	var jobs []engine.Job
	for n := range slots + shown + more {
		jobs = append(jobs, servicetest.Job(fmt.Sprintf("job%03d", n), "", 1, servicetest.Wait))
	}
	s := open(t, servicetest.Options{Jobs: jobs})
	for _, j := range jobs {
		s.post("/jobs/" + j.Definition.JobName + "/trigger")
	}
	_, list, _ := strings.Cut(s.until("/", fmt.Sprintf("%d queued", shown+more)).body, `<section id="running">`)
	if list, _, _ = strings.Cut(list, "</section>"); !strings.Contains(list, fmt.Sprintf("and %d more", more)) {
		t.Errorf("the overview does not say that %d more are queued:\n%s", more, list)
	}
	o, err := s.Service.Overview(auth.With(t.Context(), auth.HostToken(auth.ByHostToken)))
	if err != nil || len(o.Queued) != shown || o.More.Queued != more || o.More.Running != max(slots-shown, 0) {
		t.Fatalf("%d queued, more are %+v, %v", len(o.Queued), o.More, err)
	}
}

// TestBars: a fire that runs is drawn as long as it has taken so far, and has no point in the charts; nor
// has one of which it is not known how long it took. What a trigger began was not late.
func TestBars(t *testing.T) {
	t.Parallel()
	c, err := New(Options{Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	p := c.newPage(t.Context(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
	at := func(ago time.Duration) time.Time { return p.Now.Add(-ago) }
	bars, longest := p.bars([]history.Fire{
		{Instant: at(40 * time.Second), Begun: at(40 * time.Second), Running: 1},
		{Instant: at(time.Minute), Begun: at(time.Minute), Ended: at(50 * time.Second), Duration: 10 * time.Second, Lag: time.Second, Outcome: abi.OutcomeOK},
		{Instant: at(time.Hour), Begun: at(time.Hour), Ended: at(time.Hour), Unknown: 1, Outcome: history.Unknown},
		{Trigger: 7, Instant: at(2 * time.Hour), Begun: at(2 * time.Hour), Ended: at(119 * time.Minute), Duration: time.Minute, Outcome: abi.OutcomeOK},
	})
	type drawn struct {
		h          int
		took, late string
	}
	var got []drawn
	for _, b := range bars {
		got = append(got, drawn{b.H, b.TookMS, b.LateMS})
	}
	if want := []drawn{{48, "60000", ""}, {3, "", "0"}, {8, "10000", "1000"}, {32, "", "0"}}; !slices.Equal(got, want) || longest != time.Minute {
		t.Errorf("bars %+v, the longest %s; want %+v", got, longest, want)
	}
	if !strings.HasSuffix(bars[3].Title, "running  40s") {
		t.Errorf("the one that runs says %q", bars[3].Title)
	}
}

// TestKnownItems: a fire with items of which nothing is known has how many it has, and says that they are not
// known if histories are missing.
func TestKnownItems(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	e := event.Event{Time: time.Now(), Job: "a", Trigger: 900, Instant: time.Now(), Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x", Items: []int{0}, Total: 2, Kind: event.FireStarted}
	s.Store.AddEvent(e)
	e.Kind, e.Outcome = event.FireEnded, abi.OutcomeOK
	s.Store.AddEvent(e)
	e.Trigger, e.Items, e.Total = 901, []int{7}, 1 // which the trigger asked for
	for _, e.Kind = range []event.Kind{event.FireStarted, event.FireEnded} {
		s.Store.AddEvent(e)
	}
	s.until("/jobs/a/fire?trigger=901", "1 ok of 1")
	a := s.get("/fires?trigger=900")
	a.has(t, http.StatusOK, "1 ok of 2 ")
	a.lacks(t, "known")
	s.get("/fires?trigger=901").lacks(t, "of 1")
	s.Histories.Peers = func() []cluster.Peer {
		return []cluster.Peer{{ID: "x", ClusterDetail: tree.ClusterDetail{ServerIP: "10.0.0.9"}}}
	}
	s.Histories.Get = func(context.Context, cluster.Peer, string, any) error { return errors.New("it is halted") }
	for _, page := range []string{"/fires?trigger=900", "/jobs/a/fire?trigger=900"} {
		s.get(page).has(t, http.StatusOK, "1 ok 1 of 2 known")
	}
}

// TestRunningFires: a page has what runs, for how long, and how long it usually takes.
func TestRunningFires(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	e := event.Event{Job: "a", Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x", Items: []int{0}, Total: 1}
	for n := range 6 {
		e.Trigger, e.Kind, e.Outcome = int64(900+n), event.FireStarted, ""
		e.Time = time.Now().Add(time.Duration(n-6) * 100 * time.Hour)
		e.Instant = e.Time
		s.Store.AddEvent(e)
		if n < 5 {
			e.Time, e.Kind, e.Outcome = e.Time.Add(42*time.Minute), event.FireEnded, abi.OutcomeOK
			s.Store.AddEvent(e)
		}
	}
	s.until("/fires?running=true", "4d4h usually 42m").lacks(t, "1 ok")
	s.get("/fires").has(t, http.StatusOK, "1 ok", "1 running", "4d4h")
	s.get("/fires").lacks(t, "usually")
}

// TestAttempts: a run of several attempts took from its begin to its end, and says what the last took.
func TestAttempts(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	at := time.Now().Add(-time.Minute)
	e := event.Event{Time: at, Kind: event.FireStarted, Job: "a", Trigger: 900, Items: []int{0}, Total: 1, Instant: at, Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x"}
	s.Store.AddEvent(e)
	e.RunID, e.Item, e.Items, e.Total, e.Fence = "a/t900/0", new(0), nil, 0, 1
	for _, now := range []struct {
		after   time.Duration
		kind    event.Kind
		attempt int
		outcome abi.Outcome
	}{
		{0, event.ItemStarted, 1, ""},
		{300 * time.Millisecond, event.ItemEnded, 1, abi.OutcomeRetry},
		{4 * time.Second, event.ItemStarted, 2, ""},
		{4500 * time.Millisecond, event.ItemEnded, 2, abi.OutcomeOK},
	} {
		e.Time, e.Kind, e.Attempt, e.Outcome, e.Duration = at.Add(now.after), now.kind, now.attempt, now.outcome, 288*time.Millisecond
		s.Store.AddEvent(e)
	}
	s.until("/run?run=a/t900/0", "Took 4.5s attempt 2: 288ms")
	for _, page := range []string{"/runs?run=a/t900/0", "/jobs/a/fire?trigger=900"} {
		a := s.get(page)
		a.has(t, http.StatusOK, "4.5s")
		a.lacks(t, "288ms")
	}
	e.RunID, e.Trigger = "a/t901/0", 901
	for n, kind := range []event.Kind{event.ItemStarted, event.ItemEnded, event.ItemCompleted} {
		e.Time, e.Kind, e.Attempt, e.Outcome = at.Add(time.Duration(5+n)*time.Second), kind, 3, abi.OutcomeRetry
		if n == 0 {
			e.Outcome = ""
		}
		s.Store.AddEvent(e)
	}
	s.until("/run?run=a/t901/0", "no success in 3 attempts")
	s.get("/runs").has(t, http.StatusOK, "no success in 3 attempts")
}

// TestRunOfADeadHost: a run that another host has ended, because its own died, is over: no attempt follows.
// It is shown on the host that had it, and how long it took is not known.
func TestRunOfADeadHost(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{servicetest.Job("a", "", 1, servicetest.OK)}})
	run := func(trigger int64) event.Event {
		return event.Event{Job: "a", RunID: fmt.Sprintf("a/t%d/0", trigger), Trigger: trigger, Item: new(0), Instant: time.Now(), Time: time.Now(), Source: abi.SourceTrigger, Host: "127.0.0.1@-@1-x"}
	}
	const follows = "another attempt follows"
	for n, outcome := range []abi.Outcome{history.Lost, history.Held, abi.OutcomeCancelled} {
		e := run(int64(900 + n))
		e.Kind, e.Other, e.Outcome, e.Cause, e.Reason = event.ItemSkipped, "127.0.0.2@-@2-y", outcome, event.SkipDisabled, "its host died"
		if outcome == history.Held {
			e.Kind = event.ItemHeld
		}
		s.Store.AddEvent(e)
		page := s.until("/run?run="+e.RunID, "its host died")
		page.has(t, http.StatusOK, "127.0.0.2@-@2-y", string(outcome)+" its host died")
		page.lacks(t, follows)
	}
	s.get("/runs").lacks(t, "0s")
	e := run(990)
	e.Kind, e.Fence, e.Attempt, e.Outcome, e.Duration = event.ItemEnded, 1, 1, abi.OutcomeCancelled, time.Second
	s.Store.AddEvent(e)
	s.until("/run?run=a/t990/0", follows)
}

// TestDrain: a host whose jobs an operator stops says so, and for which items it waits; one form
// has them back.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{Jobs: []engine.Job{
		servicetest.Job("a", "0 0 3 * * ?", 2, servicetest.OK), servicetest.Job("b", "", 1, servicetest.OK), servicetest.Job("runs", "", 2, servicetest.Wait),
	}})
	s.get("/hosts").has(t, 200, "live", "3 jobs")
	s.get("/hosts").lacks(t, "Start again")
	s.post("/jobs/runs/trigger")
	s.until("/jobs/runs", "Kill runs")
	instance := s.Host.Status().Instance
	form := []string{"server", "127.0.0.1", "instance", instance, "reason", "new disk", "back", "/hosts"}
	s.post("/hosts/shutdown", form...).has(t, 200, "is draining")
	s.until("/hosts", "draining").has(t, 200, "runs items 0-1", "Start again")
	s.until("/", "draining")
	s.until("/jobs/runs", "an operator stops it here").has(t, 200, "items 0-1 to end, because this host leaves the job")
	s.who = as(auth.RoleViewer, "a")
	s.get("/hosts").lacks(t, "runs items")
	s.who = auth.HostToken(auth.ByHostToken)
	s.post("/jobs/runs/kill")
	stopped := s.until("/hosts", "3 jobs were stopped here by an operator")
	stopped.has(t, 200, "stopped", "0 jobs", "Start again")
	stopped.lacks(t, "live", "Drain")
	s.until("/jobs", "0 of 1")
	s.post("/hosts/start", form...).has(t, 200, "joins its jobs again")
	s.until("/hosts", "live").lacks(t, "Start again", "stopped here")
	s.until("/jobs?health=ok", "3 of 3") // that the runs of one were killed is no failure
	s.get("/audit").has(t, 200, "shutdown", "start", "new disk")
	s.post("/hosts/start", form...).has(t, 200, "no job is stopped on "+instance)
	s.post("/hosts/start", "server", "10.9.9.9", "back", "/hosts").has(t, 200, "no host 10.9.9.9 is known")
}

// TestDisabledServer: the page of hosts names the jobs that a server is disabled for.
func TestDisabledServer(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	p := c.newPage(t.Context(), httptest.NewRequest(http.MethodGet, "/hosts", nil))
	for want, jobs := range map[string][]string{
		"": nil,
		"Paused on this server: a <b> , pay Jobs": {"a <b>", "pay"},
		"a7 , a8 , a9 and 1 more Jobs":            {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b"},
	} {
		var out strings.Builder
		if err := c.templates.ExecuteTemplate(&out, "hosts", hostsView{P: p, Rows: []hostRow{{P: p, Host: cluster.Host{ID: "h", Disabled: jobs}}}}); err != nil {
			t.Fatal(err)
		}
		a := answer{200, "/hosts", nil, out.String()}
		if jobs == nil {
			a.lacks(t, "Paused on this server")
			continue
		}
		a.has(t, 200, want)
	}
}

// TestButtons: the console carries out what each button of the catalogue asks for.
func TestButtons(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{})
	for _, o := range operation.All() {
		for _, b := range o.Row().Buttons {
			path := "/jobs/gone/" + b.Action
			if action, ofItem := strings.CutPrefix(b.Action, "item."); ofItem {
				path = "/jobs/gone/items/0/" + action
			}
			if action, ofHost := strings.CutPrefix(b.Action, "host."); ofHost {
				path = "/hosts/" + action
			}
			if o == operation.Unsilence || o == operation.TestAlerts {
				path = "/alerts/" + strings.TrimPrefix(b.Action, "alerts.")
			}
			s.post(path, "name", "gone", "server", "10.9.9.9", "instance", "10.9.9.9@-@1-x", "back", "/jobs").lacks(t, "there is no page")
		}
	}
}

// TestArgumentsForm: a job that declares arguments has a field for each in place of the parameter, and the form starts a run
// with them.
func TestArgumentsForm(t *testing.T) {
	t.Parallel()
	job := servicetest.Job("settle", "", 1, servicetest.OK)
	job.Definition.JobParameter = `{"how":"<b>"}`
	job.Definition.Props["wasm.arguments"] = `[{"name":"day","type":"date","description":"which <day>"},{"name":"limit","type":"integer","default":"100","min":"1","max":"1000"},` +
		`{"name":"dry","type":"boolean","default":"false"},{"name":"how","type":"enum","values":["all","<b>"],"default":"all"},{"name":"note","type":"string","default":"hello","max":"80"}]`
	s := open(t, servicetest.Options{Jobs: []engine.Job{job}})
	page := s.get("/jobs/settle")
	for _, field := range []string{
		`which &lt;day&gt;`, `<input type="date" name="arg.day" value="" required`, `<input type="number" name="arg.limit" value="100" min="1" max="1000" step="1"`,
		`<select name="arg.dry"><option value="true">true</option><option value="false" selected>`, `<option value="&lt;b&gt;" selected>`,
		`<input name="arg.text.note" value="hello" maxlength="80"`,
	} {
		if !strings.Contains(page.body, field) {
			t.Errorf("the form lacks %s", field)
		}
	}
	page.lacks(t, "Another parameter, this once")
	s.post("/jobs/settle/trigger", "arg.day", "", "arg.limit", "5", "back", "/jobs/settle").has(t, http.StatusBadRequest, "arguments.day: is missing, expected a date")
	s.post("/jobs/settle/trigger", "arg.day", "2026-12-24", "arg.limit", "5000", "back", "/jobs/settle").has(t, http.StatusBadRequest, `arguments.limit: found "5000", expected a whole number from 1 to 1000`)
	s.post("/jobs/settle/trigger", "arg.day", "2026-12-24", "arg.limit", "", "arg.dry", "true", "arg.how", "all", "arg.text.note", "", "back", "/jobs/settle").has(t, 200, "settle is triggered.")
	s.Until("the run shows its arguments", func() bool {
		for _, l := range s.get("/runs?job=settle").links() {
			if strings.HasPrefix(l, "/run?") && strings.Contains(s.get(l).text(), `Parameter {"day":"2026-12-24","limit":100,"dry":true,"how":"all","note":""}`) {
				return true
			}
		}
		return false
	})
}
