package pages_test

import (
	"encoding/json"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/docs"
	"github.com/wasmjob/wasmjob/host/control/pages"
)

// answer is what the site answers to a request.
func answer(t *testing.T, s http.Handler, target string, header http.Header) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func newSite(t *testing.T) *pages.Site {
	t.Helper()
	s, err := pages.New(docs.Files())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var (
	linkInPage = regexp.MustCompile(`(?:href|src|action)="([^"]*)"`)
	idInPage   = regexp.MustCompile(` id="([^"]*)"`)
)

// walk follows all links from a page, and returns how many pages there are. get is the content of an address;
// ok is false if there is none.
func walk(t *testing.T, start string, get func(address string) (content string, ok bool)) int {
	t.Helper()
	contents := make(map[string]string)
	read := func(from, address string) string {
		if _, seen := contents[address]; !seen {
			content, ok := get(address)
			if !ok {
				t.Errorf("%s links to %s, which is not there", from, address)
			}
			contents[address] = content
		}
		return contents[address]
	}
	next, followed, count := []string{start}, map[string]bool{start: true}, 0
	for len(next) > 0 {
		from := next[0]
		next = next[1:]
		content := read("the test", from)
		if !strings.HasPrefix(content, "<!doctype html>") {
			continue
		}
		count++
		base := &url.URL{Path: from}
		for _, m := range linkInPage.FindAllStringSubmatch(content, -1) {
			link, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil {
				t.Errorf("%s: %q: %v", from, m[1], err)
				continue
			}
			to := base.ResolveReference(link)
			if link.IsAbs() {
				if strings.HasPrefix(m[0], "src") {
					t.Errorf("%s loads %s from another machine", from, m[1])
				}
				continue
			}
			if to.Path == "/" { // the console
				continue
			}
			found := read(from, to.Path)
			if to.Fragment != "" && !slices.ContainsFunc(idInPage.FindAllStringSubmatch(found, -1), func(id []string) bool { return html.UnescapeString(id[1]) == to.Fragment }) {
				t.Errorf("%s links to %s, which has no %q", from, to.Path, to.Fragment)
			}
			if !followed[to.Path] {
				followed[to.Path] = true
				next = append(next, to.Path)
			}
		}
	}
	return count
}

// TestLinks: each link of each page that a host serves, and of the static site, leads to something that is there.
func TestLinks(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(docs.Files(), "*.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("host", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		count := walk(t, "/docs/", func(address string) (string, bool) {
			w := answer(t, s, address, nil)
			return w.Body.String(), w.Code == http.StatusOK
		})
		if count != len(files) {
			t.Errorf("%d of %d pages are reached from the index", count, len(files))
		}
	})
	t.Run("static", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := pages.Write(docs.Files(), dir); err != nil {
			t.Fatal(err)
		}
		count := walk(t, "/index.html", func(address string) (string, bool) {
			data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path.Clean(address))))
			return string(data), err == nil
		})
		if count != len(files) {
			t.Errorf("%d of %d pages are reached from the index", count, len(files))
		}
	})
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, c := range []struct {
		target string
		code   int
		kind   string
		has    []string
	}{
		{"/docs", 301, "", nil},
		{"/docs/README", 301, "", nil},
		{"/docs/", 200, "text/html", []string{"<h1", "Tutorials", "Search the documents"}},
		{"/docs/kill", 200, "text/html", []string{"Ending what runs", `aria-current="page"`, `href="kill.md"`}},
		{"/docs/kill.md", 200, "text/markdown", []string{"# Ending what runs"}},
		{"/docs/llms.txt", 200, "text/plain", []string{"# wasmjob\n\n> ", "## How-to", "- [Ending what runs](kill.md): After this page you can"}},
		{"/docs/docs.css", 200, "text/css", []string{"light-dark("}},
		{"/docs/openapi.yaml", 200, "application/yaml", []string{"openapi:"}},
		{"/docs/pictures/run.webp", 200, "image/webp", nil},
		{"/docs/?q=dead+man+timer", 200, "text/html", []string{`href="frozen-hosts`}},
		{"/docs/?q=" + url.QueryEscape("<script>alert(1)</script>"), 200, "text/html", []string{"No page has all", "&lt;script&gt;"}},
		{"/docs/?q=" + strings.Repeat("é+", 4000), 200, "text/html", nil},
		{"/schemas/job.json", 200, "application/schema+json", []string{`"shardingTotalCount"`}},
		{"/schemas/alerts.json", 200, "application/schema+json", []string{`"receivers"`}},
		{"/schemas/none.json", 404, "", nil},
		{"/schemas/../docs/docs.go", 404, "", nil},
		{"/docs/docs.go", 404, "", nil},
		{"/docs/pictures", 404, "", nil},
		{"/docs/none", 404, "", nil},
		{"/docs/../go.mod", 404, "", nil},
	} {
		w := answer(t, s, c.target, nil)
		if w.Code != c.code || !strings.HasPrefix(w.Header().Get("Content-Type"), c.kind) {
			t.Errorf("%s: %d, %s", c.target, w.Code, w.Header().Get("Content-Type"))
		}
		for _, text := range c.has {
			if !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s has no %q", c.target, text)
			}
		}
	}
	if again := answer(t, s, "/docs/kill", http.Header{"If-None-Match": {answer(t, s, "/docs/kill", nil).Header().Get("ETag")}}); again.Code != http.StatusNotModified {
		t.Errorf("a page that a browser has: %d", again.Code)
	}
	for cookie, want := range map[string]string{"dark": `data-theme="dark"`, "light": `data-theme="light"`, `"><script>`: `<html lang="en">`} {
		w := answer(t, s, "/docs/kill", http.Header{"Cookie": {pages.ThemeCookie + "=" + cookie}})
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the theme %q gives %.80s", cookie, w.Body)
		}
	}
}

// TestStaticSearch: the static site has a search whose index has each section of each page, at an address that is there.
// TestLinks has each page's script at its address.
func TestStaticSearch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := pages.Write(docs.Files(), dir); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, text := range []string{`<script src="search.js"></script>`, `<form class="find" action="index.html"`} {
		if !strings.Contains(read("kill.html"), text) {
			t.Errorf("the page has no %q", text)
		}
	}
	if !strings.Contains(read("search.js"), `"search-index.js"`) {
		t.Error("the script does not load the index")
	}
	text, isScript := strings.CutPrefix(read("search-index.js"), "const sections = ")
	var sections [][4]string
	if err := json.Unmarshal([]byte(strings.TrimSuffix(text, ";\n")), &sections); err != nil || !isScript {
		t.Fatalf("%v: %.80s", err, text)
	}
	indexed := make(map[string]bool)
	for _, s := range sections {
		page, anchor, _ := strings.Cut(s[0], "#")
		indexed[page] = true
		if anchor != "" && !strings.Contains(read(page), ` id="`+html.EscapeString(anchor)+`"`) {
			t.Errorf("%s is not there", s[0])
		}
	}
	files, err := fs.Glob(docs.Files(), "*.md")
	if err != nil || len(indexed) != len(files) {
		t.Errorf("%d of %d pages are in the index, %v", len(indexed), len(files), err)
	}
	if strings.Contains(answer(t, newSite(t), "/docs/kill", nil).Body.String(), "<script") {
		t.Error("a page of a host has a script, which its search does not need")
	}
}

// TestQuestions: what people ask of every cron is among the first five that a search finds, as a short answer or as the
// page about it.
func TestQuestions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for query, want := range map[string]string{
		"time zone": "faq#which-time-zone", "email": "faq#how-do-i-get-an-email", "notification": "faq#how-do-i-get-an-email",
		"overlap": "schedules#overlap", "missed": "faq#the-machine-was-off", "retry": "faq#how-do-i-retry",
		"environment variable": "faq#how-do-i-pass", "run now": "faq#how-do-i-run-a-job-now", "maximum duration": "faq#how-do-i-limit",
		"dependencies": "faq#can-jobs-have", "random delay": "faq#can-a-start", "output of a run": "faq#where-is-the-output",
		"daylight": "faq#what-happens-when-the-clock", "crontab": "from-crontab", "backup": "backup",
	} {
		body := answer(t, s, "/docs/?q="+url.QueryEscape(query), nil).Body.String()
		found := regexp.MustCompile(`<article><h2><a href="([^"]*)`).FindAllStringSubmatch(body, 5)
		if !slices.ContainsFunc(found, func(f []string) bool { return strings.HasPrefix(f[1], want) }) {
			t.Errorf("%q: found %.40q, expected %s among the first five", query, found, want)
		}
	}
}

// TestSearchRanksHeadings: a page that is about the words comes before one that mentions them.
func TestSearchRanksHeadings(t *testing.T) {
	t.Parallel()
	body := answer(t, newSite(t), "/docs/?q=session+timeout", nil).Body.String()
	first := regexp.MustCompile(`<article><h2><a href="([^"#]*)`).FindStringSubmatch(body)
	if first == nil || first[1] != "session-timeout" {
		t.Errorf("found first: %v", first)
	}
}
