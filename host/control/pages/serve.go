package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed static
var static embed.FS

// ThemeCookie is the cookie with the theme that was chosen in the console: light, dark, or none for the system's.
const ThemeCookie = "wasmjob-theme"

// ServeHTTP answers /docs/, /docs/NAME, /docs/NAME.md, /docs/llms.txt, the files beside them, and
// /schemas/KIND.json.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if kind, ok := strings.CutPrefix(r.URL.Path, "/schemas/"); ok {
		name, json := strings.CutSuffix(kind, ".json")
		if !json || strings.Contains(name, "/") {
			http.NotFound(w, r)
			return
		}
		s.file(w, r, name+".schema.json")
		return
	}
	name, below := strings.CutPrefix(r.URL.Path, "/docs/")
	if !below {
		http.Redirect(w, r, "/docs/", http.StatusMovedPermanently)
		return
	}
	l, err := s.read()
	if err != nil { // cannot happen: a test reads the files of the program
		http.Error(w, "the documents cannot be read", http.StatusInternalServerError)
		return
	}
	p := l.pages[name]
	switch {
	case name == "":
		p = l.pages[index]
	case name == index:
		http.Redirect(w, r, "/docs/", http.StatusMovedPermanently)
		return
	case name == "llms.txt":
		serve(w, r, name, "text/plain; charset=utf-8", l.llms())
		return
	case name == "docs.css":
		s.style(w, r)
		return
	}
	if p == nil {
		s.file(w, r, name)
		return
	}
	v := view{Site: s, library: l, page: p, Theme: themeOf(r), Query: r.URL.Query().Get("q"), Search: true, Home: "/"}
	if v.Query != "" {
		v.Found = l.search(v.Query)
	}
	var b bytes.Buffer
	if err := s.layout.Execute(&b, v); err != nil { // cannot happen: a test renders all pages
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Add("Vary", "Cookie")
	serve(w, r, name, "text/html; charset=utf-8", b.Bytes())
}

// file serves a file as it is.
func (s *Site) file(w http.ResponseWriter, r *http.Request, name string) {
	data, err := fs.ReadFile(s.files, name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	kinds := map[string]string{".md": "text/markdown; charset=utf-8", ".json": "application/schema+json", ".yaml": "application/yaml", ".webp": "image/webp"}
	kind, ok := kinds[filepath.Ext(name)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	serve(w, r, name, kind, data)
}

func (s *Site) style(w http.ResponseWriter, r *http.Request) {
	data, err := static.ReadFile("static/docs.css")
	if err != nil {
		http.NotFound(w, r)
		return
	}
	serve(w, r, "docs.css", "text/css; charset=utf-8", data)
}

// serve answers with a content that browsers may keep and ask about.
func serve(w http.ResponseWriter, r *http.Request, name, kind string, data []byte) {
	sum := sha256.Sum256(data)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(ThemeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// view is what the layout shows.
type view struct {
	*Site
	library *library
	page    *page
	Theme   string
	Query   string
	Found   []Found
	// Search says whether there is something that searches, Home is where the console is; empty: there is none.
	Search bool
	Home   string
}

// Title is the page's.
func (v view) Title() string { return v.page.Title }

// Shelves are all pages.
func (v view) Shelves() []shelf { return v.library.shelves }

// Here reports whether a page is the one that is shown.
func (v view) Here(p *page) bool { return v.Query == "" && p == v.page }

// Link is the address of a page.
func (v view) Link(p *page) string { return v.address(p.Name + ".md") }

// Index is the address of the index.
func (v view) Index() string { return v.address(index + ".md") }

// Body is the page. It is ours, and made from Markdown without HTML.
func (v view) Body() template.HTML { return template.HTML(v.page.html) }

// Source is the address of the page as Markdown.
func (v view) Source() string { return v.page.Name + ".md" }

// searchIndex is a script with the data of search.js: for each section of each page its address, the page's
// title, its heading and its text. It is a script because a page opened as a file can load nothing else.
func (s *Site) searchIndex(l *library) ([]byte, error) {
	var all [][4]string
	for _, name := range slices.Sorted(maps.Keys(l.pages)) {
		p := l.pages[name]
		for _, c := range p.sections {
			address := s.address(p.Name + ".md")
			if c.anchor != "" {
				address += "#" + c.anchor
			}
			all = append(all, [4]string{address, p.Title, c.heading, c.text})
		}
	}
	data, err := json.Marshal(all)
	return slices.Concat([]byte("const sections = "), data, []byte(";\n")), err
}

// Write writes the documents as a static site into a directory, which is made: a page is NAME.html, the index
// index.html. A script searches them, without a server.
func Write(files fs.FS, dir string) error {
	s, err := site(files, ".html")
	if err != nil {
		return err
	}
	l, err := s.read()
	if err != nil {
		return err
	}
	out := map[string][]byte{"llms.txt": l.llms()}
	for _, name := range []string{"docs.css", "search.js"} {
		if out[name], err = static.ReadFile("static/" + name); err != nil {
			return err
		}
	}
	if out["search-index.js"], err = s.searchIndex(l); err != nil {
		return err
	}
	for name, p := range l.pages {
		var b bytes.Buffer
		if err := s.layout.Execute(&b, view{Site: s, library: l, page: p}); err != nil {
			return err
		}
		if name == index {
			name = "index"
		}
		out[name+".html"] = b.Bytes()
	}
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		out[name], err = fs.ReadFile(files, name)
		return err
	})
	if err != nil {
		return err
	}
	for name, data := range out {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
