package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/login"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/cluster"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/control/service/servicetest"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// maxWeight is how much a browser loads for all pages together, compressed, in bytes.
const maxWeight = 300 << 10

func newConsole(t testing.TB) *Console {
	t.Helper()
	c, err := New(Options{Namespace: "ns", Version: "test", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAssets(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	weight := 0
	for name, a := range c.assets.files {
		weight += len(a.small)
		for _, accept := range []string{"gzip, br", ""} {
			r := httptest.NewRequest(http.MethodGet, c.assets.prefix+name, nil)
			r.Header.Set("Accept-Encoding", accept)
			w := httptest.NewRecorder()
			c.ServeHTTP(w, r)
			body := w.Body.Bytes()
			if accept != "" {
				z, err := gzip.NewReader(w.Body)
				if err != nil {
					t.Fatal(err)
				}
				if body, err = io.ReadAll(z); err != nil {
					t.Fatal(err)
				}
			}
			if w.Code != 200 || !bytes.Equal(body, a.plain) || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %q: %d %v", name, accept, w.Code, w.Header())
			}
		}
		if strings.HasSuffix(name, ".js") && !strings.HasPrefix(a.kind, "text/javascript") {
			t.Errorf("%s is %s: browsers load no module of that kind", name, a.kind)
		}
		// Nothing comes from elsewhere: no address but names of formats, and the source of a library.
		for _, found := range regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}`).FindAll(a.plain, -1) {
			if text := string(found); text != "http://www.w3.org" && text != "https://github.com" && !strings.HasSuffix(name, "LICENSE") {
				t.Errorf("%s has the address %s", name, text)
			}
		}
	}
	if weight > maxWeight {
		t.Errorf("%d bytes, at most %d are allowed", weight, maxWeight)
	}
	t.Logf("%d bytes, compressed", weight)
	if !strings.Contains(string(c.assets.files["uplot.LICENSE"].plain), "MIT License") {
		t.Error("the library's licence is not beside it")
	}
	for path, want := range map[string]int{"/static/0000/app.css": 200, "/static/": 404, "/static/x/none.js": 404, "/static/x/../console.go": 404, "/static/x/app.go": 404} {
		w := httptest.NewRecorder()
		c.assets.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != want || strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	// The modules that scripts import are there.
	for name, a := range c.assets.files {
		for _, m := range regexp.MustCompile(`from '\./([^']+)'`).FindAllSubmatch(a.plain, -1) {
			if _, known := c.assets.files[string(m[1])]; !known {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
	}
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	s := open(t, servicetest.Options{})
	s.get("/").has(t, 200, "No jobs yet")
	if a := s.get("/preferences?lang=zh&back=" + url.QueryEscape("/jobs?q=a+b")); a.path != "/jobs?q=a+b" {
		t.Errorf("back at %s", a.path)
	}
	s.get("/jobs").has(t, 200, "作业")
	dark := s.get("/preferences?theme=dark&back=//evil.example")
	if dark.path != "/" || !strings.Contains(dark.body, `<html lang="zh" data-theme="dark"`) {
		t.Errorf("%s: %s", dark.path, dark.body[:200])
	}
	system := s.get("/preferences?theme=%22%3E%3Cscript%3E&lang=xx")
	if strings.Contains(system.body, "data-theme") || !strings.Contains(system.body, `<html lang="en"`) {
		t.Errorf("a theme that is none was taken: %s", system.body[:200])
	}
	// A zone that is none is none.
	for zone, want := range map[string]string{"Asia/Shanghai": `data-zone="Asia/Shanghai"`, "../../../etc/passwd": "", "Local": "", "Mars/Olympus": "", "": ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: cookieZone, Value: url.QueryEscape(zone)})
		p := newConsole(t).newPage(t.Context(), r)
		if known := want != ""; p.ZoneKnown != known || (known && p.Zone.String() != zone) {
			t.Errorf("%q: %s", zone, p.Zone)
		}
	}
}

func TestFlash(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "done": "done", strings.Repeat("长", 2000): strings.Repeat("长", 500) + "…"} {
		w := httptest.NewRecorder()
		setFlash(w, flash{"done", text, "/fires?trigger=7"})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for _, c := range w.Result().Cookies() {
			if len(c.Value) > 4000 || !c.HttpOnly {
				t.Errorf("%d bytes, %+v", len(c.Value), c)
			}
			r.AddCookie(c)
		}
		got := readFlash(r)
		if (got == nil) != (want == "") || (got != nil && (got.Text != want || got.Fires != "/fires?trigger=7")) {
			t.Errorf("%v, expected %q", got, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: cookieFlash, Value: base64.RawURLEncoding.EncodeToString([]byte(`{"k":"done","t":"x","f":"//evil.example/"}`))})
	if f := readFlash(r); f == nil || f.Fires != "" {
		t.Errorf("it leads elsewhere: %+v", f)
	}
	for _, value := range []string{"", "x", "e30", "%%%"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: cookieFlash, Value: value})
		if f := readFlash(r); f != nil {
			t.Errorf("%q is read as %+v", value, f)
		}
	}
}

// TestRegistryDown: without the registry, pages show what was known, and say since when.
func TestRegistryDown(t *testing.T) {
	t.Parallel()
	server := servicetest.NewServer(t)
	s := open(t, servicetest.Options{Server: server, Jobs: []engine.Job{servicetest.Job("a", "0 0 3 * * ?", 2, servicetest.OK)}})
	s.post("/jobs/a/trigger")
	s.until("/fires", "2 ok")
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	a := s.until("/", "has not been reachable from this host since")
	a.has(t, 200, "0 in error", "1 ok", "Nothing failed, and nothing was late, when the registry was reached last.")
	s.get("/jobs/a").has(t, 200, "no session", "2 ok", "has not been reachable")
	s.get("/jobs/a/config").has(t, 503, "Not now")
	s.get("/jobs/a/items/0").has(t, 200, "has not been reachable")
	s.post("/jobs/a/trigger", "back", "/jobs/a").has(t, 200, "has not been reachable", "session")
	s.get("/fires").has(t, 200, "2 ok")
	s.lang = "zh"
	s.get("/hosts").has(t, 200, "无法访问注册中心")
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	show := func(l login.Page) answer {
		w := httptest.NewRecorder()
		c.Login(w, httptest.NewRequest(http.MethodGet, "/login", nil), l)
		return answer{w.Code, "/login", w.Header(), w.Body.String()}
	}
	a := show(login.Page{Passwords: true, Provider: "Okta <x>", ProviderURL: "/oidc/start?next=%2Fjobs", Name: `"ann"`, Next: "/jobs?a=b", Plain: true})
	a.has(t, 200, "Sign in", "Okta <x>", "not encrypted")
	for _, want := range []string{`<form method="post" action="/login">`, `name="next" value="/jobs?a=b"`, `name="name" value="&#34;ann&#34;"`, `href="/oidc/start?next=%2Fjobs"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the page lacks %s:\n%s", want, a.body)
		}
	}
	if strings.Contains(a.body, "<nav") {
		t.Error("who is not signed in has a menu")
	}
	show(login.Page{Problem: auth.NewProblem(auth.TooMany, 429, "too many attempts")}).has(t, 429, "too many attempts", "no way to sign in here but a link")
	show(login.Page{Why: auth.SessionElsewhere}).has(t, 200, "Your session is one of another cluster. Sign in to this one.")
	w := httptest.NewRecorder()
	c.Refused(w, httptest.NewRequest(http.MethodPost, "/jobs/a/trigger", nil), auth.NewProblem(auth.Forged, 403, "sent by another site"))
	answer{w.Code, "/", w.Header(), w.Body.String()}.has(t, 403, "This form was not taken", "sent by another site", "load the page again")
}

// FuzzEscape: whatever jobs, hosts and guests say, a page has the same structure, and its
// links lead to the job.
func FuzzEscape(f *testing.F) {
	for _, name := range hostile() {
		f.Add(name, "message "+name)
	}
	f.Add("x", `"><script>alert(1)</script>`)
	f.Add("x", "\x00\xff\u2028</textarea><!--")
	c := newConsole(f)
	render := func(ctx context.Context, name, text string) string {
		at := time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
		p := c.newPage(ctx, httptest.NewRequest(http.MethodGet, "/jobs", nil))
		p.Now, p.User = at, text
		j := cluster.Job{Name: name, Description: text, Health: cluster.HealthError, State: engine.JobError, Reason: text, Cron: text, Module: text, Hosts: []string{text},
			Last: &cluster.Last{Outcome: abi.OutcomeFail, Message: text, Ended: at}, Warnings: []string{text}, Granted: []string{text}, Signer: text, Leader: text, TimeZone: text, Digests: []string{text},
			Waits: []engine.WaitStatus{{What: "slot", Reason: text, Since: at}}, ShardingTotalCount: 1}
		p.Banners, p.Flash = []banner{{"warn", text}}, &flash{"done", text, text}
		p.Query = url.Values{"q": {text}, "job": {text}, "text": {text}}
		p.Frame = &frame{P: p, Name: name, Tab: "now", JobDetail: &service.JobDetail{Job: j}, Missing: "x" + text, Why: "x" + text, Since: at, Acts: p.jobActs(&j)}
		fire := history.Fire{Job: name, Instant: at, Begun: at, Message: text, Outcome: abi.OutcomeFail, Hosts: []string{text}, Source: abi.Source("x" + text)}
		run := history.Run{ID: name + "/1/0", Job: name, Message: text, Outcome: abi.OutcomeFail, Host: text, Digest: text, Signer: text, Outside: map[string]abi.OutsideCount{"http": {Calls: 1, Targets: []string{text}}}}
		line := history.Line{Job: name, RunID: run.ID, Message: text, Attrs: []string{"a" + text, text}}
		change := history.Change{Who: text, What: text, Job: name, Why: text, From: "x" + text, Error: "x" + text, Before: text, After: "x" + text}
		row := settingRow{Setting: jobconfig.Settings()[1], Now: text, Given: text, Was: text, Problem: "x" + text, Origin: admin.Origin{From: admin.FromEdit, Who: text, Time: at, Why: "x" + text}}
		item := cluster.Item{Host: text, ItemStatus: engine.ItemStatus{LastOutcome: abi.OutcomeFail, LastMessage: text, Parameter: "x" + text}}
		changes := changeTable{p, []history.Change{change}, true}
		var out strings.Builder
		for _, v := range []view{
			{"jobs", jobsView{P: p, Jobs: &service.Jobs{}, Rows: []jobRow{{P: p, Job: j, Why: "x" + text}}, Operable: true}},
			{"job", jobView{P: p, JobDetail: &service.JobDetail{Job: j}, Grid: []gridRow{{Host: text, Cells: p.cells([]cluster.Item{item})}}, Bars: []bar{{Fire: fire, Title: text}}, Fires: fireTable{p, []history.Fire{fire}, true},
				Shown: []cluster.Item{item}, Changes: changes}},
			{"run", runView{P: p, RunDetail: &service.RunDetail{Run: run}, Log: logView{P: p, Lines: []history.Line{line}, Runs: true, Jobs: true, Stream: p.Link("/v1/logs/stream", "run", run.ID)}, Attempts: []attempt{{Reason: text, Host: text}}, Explained: explanation{P: p, Problem: "x" + text, Sentences: []sentence{{p, text, true, []event.Event{{Reason: text, Host: text}}}}}}},
			{"audit", auditView{P: p, Changes: changes, Filter: filterView{P: p}}},
			{"config", &configView{P: p, Name: name, File: "x" + text, Rows: []settingRow{row}, Editable: true, Reason: text, Problems: []string{text}, Preview: &previewed{Changes: []settingRow{row}}}},
			{"hosts", hostsView{P: p, Rows: []hostRow{{P: p, Host: cluster.Host{ID: text, Disabled: []string{name}}}}}},
			{"limits", limitsView{P: p, Permits: []permitsOf{{admin.Permits{Key: text, Max: 1, Running: []admin.Under{{Job: name, Host: text}}}, 0}}, Rates: []rateOf{{admin.Rate{Key: text, Per: text, PausedBy: text, PausedUntil: at}, 0}}}},
			{"backfill", backfillView{P: p, Name: name, From: text, To: text, Items: text, Every: text, Overlap: text, Problem: "x" + text, Operable: true, Plan: &planned{Fields: []field{{"from", text}}, OwnZone: text}}},
			{"item", itemView{P: p, Name: name, Known: true, State: item, KeptProblem: "x" + text}},
			{"modules", modulesView{p, &service.Modules{Modules: []service.Module{{Digest: text, Files: []string{text}, Jobs: []string{name}, Hosts: []string{text}, Granted: []string{text}}}, Refused: []service.Refusal{{Hosts: []string{text}, Refusal: engine.Refusal{File: text, Reasons: []string{text}}}}}}},
			{"problem", problemView{p, "missing", text, text}},
			{"login", loginView{p, login.Page{Name: "x" + text, Next: text, Passwords: true, Provider: "x" + text}, "/login"}},
		} {
			if err := c.templates.ExecuteTemplate(&out, v.template, v.data); err != nil {
				f.Fatal(err)
			}
		}
		return out.String()
	}
	count := func(page string) [3]int {
		return [3]int{strings.Count(page, "<"), strings.Count(page, ">"), strings.Count(page, `"`)}
	}
	plain := count(render(f.Context(), "x", "y"))
	f.Fuzz(func(t *testing.T, name, text string) {
		if name == "" || text == "" {
			return
		}
		page := render(t.Context(), name, text)
		// A text of several lines or of none but blanks is shown otherwise; its quotes count.
		if found := count(page); found != plain && jobconfig.CheckJobName(name) == nil && strings.TrimSpace(text) != "" {
			t.Fatalf("%q, %q: the page has %v tags and quotes, expected %v", name, text, found, plain)
		}
		if jobconfig.CheckJobName(name) != nil {
			return
		}
		m := regexp.MustCompile(`<td class="name"><a href="([^"]*)">`).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("%q: the page has no link to it", name)
		}
		if u, err := url.Parse(html.UnescapeString(m[1])); err != nil || u.Path != "/jobs/"+name {
			t.Fatalf("%q: its link leads to %v (%v)", name, u, err)
		}
	})
}

// FuzzBack: no path leads to another site.
func FuzzBack(f *testing.F) {
	for _, path := range []string{"/", "//x", "/\\x", "/jobs?a=b#c", "https:/x", "/%2f/x", "/\tx", "javascript:x"} {
		f.Add(path)
	}
	base := &url.URL{Scheme: "https", Host: "console.example", Path: "/jobs"}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := base.Parse(local(path, "/"))
		if err != nil || u.Host != base.Host || u.Scheme != base.Scheme {
			t.Errorf("%q leads to %v (%v)", path, u, err)
		}
	})
}
