// Package pages serves the documents of this version: as HTML with a search, as Markdown, and as one list for
// language models (llms.txt). The same code writes them as a static site.
//
// The documents are part of the program and hold no secret; nothing here reads a file of the machine or asks
// another one.
package pages

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// index is the name of the page that lists the others.
const index = "README"

// source is the URL of project files that are no documents.
const source = "https://github.com/wasmjob/wasmjob/blob/main/"

// Site are the documents. It is safe for concurrent use.
type Site struct {
	files fs.FS
	// suffix is what the address of a page has after its name.
	suffix string
	layout *template.Template
	// pages are read when the first one is asked for.
	read func() (*library, error)
}

// New makes a site of the files of package docs.
func New(files fs.FS) (*Site, error) { return site(files, "") }

func site(files fs.FS, suffix string) (*Site, error) {
	s := &Site{files: files, suffix: suffix}
	s.read = sync.OnceValues(s.library)
	var err error
	s.layout, err = template.ParseFS(static, "static/layout.html")
	return s, err
}

// library are all pages.
type library struct {
	pages   map[string]*page
	shelves []shelf
}

// shelf is a kind of pages.
type shelf struct {
	Name  string
	Pages []*page
}

// page is a document.
type page struct {
	// Name is that of the file without its ending, Title its first heading, Summary what its reader can do after it.
	Name, Title, Summary string
	html                 []byte
	sections             []section
}

// section is the text below a heading, for the search; found has heading and text in lower case.
type section struct {
	heading, anchor, text string
	foundHeading, found   string
}

var (
	shelfLine = regexp.MustCompile(`(?m)^## (.+)$|\]\(([a-z0-9-]+)\.md\)`)
	summary   = regexp.MustCompile(`(?s)\A# [^\n]*\n+(.*?)\n\n`)
)

// library reads all pages, and the shelves from the index.
func (s *Site) library() (*library, error) {
	names, err := fs.Glob(s.files, "*.md")
	if err != nil {
		return nil, err
	}
	l := &library{pages: make(map[string]*page)}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	var contents []byte
	for _, file := range names {
		data, err := fs.ReadFile(s.files, file)
		if err != nil {
			return nil, err
		}
		p, err := s.page(markdown, strings.TrimSuffix(file, ".md"), data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		l.pages[p.Name] = p
		if p.Name == index {
			contents = data
		}
	}
	for _, m := range shelfLine.FindAllStringSubmatch(string(contents), -1) {
		if m[1] != "" {
			l.shelves = append(l.shelves, shelf{Name: m[1]})
			continue
		}
		if n := len(l.shelves); n > 0 && l.pages[m[2]] != nil {
			l.shelves[n-1].Pages = append(l.shelves[n-1].Pages, l.pages[m[2]])
		}
	}
	return l, nil
}

// page renders a page, and cuts it into sections.
func (s *Site) page(markdown goldmark.Markdown, name string, data []byte) (*page, error) {
	p := &page{Name: name, Title: name}
	root := markdown.Parser().Parse(text.NewReader(data), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{given: make(map[string]int)}))))
	if m := summary.FindSubmatch(data); m != nil {
		p.Summary = strings.Join(strings.Fields(plain(m[1])), " ")
	}
	var current section
	var words strings.Builder
	end := func() {
		if current.text = strings.Join(strings.Fields(words.String()), " "); current.heading+current.text != "" {
			current.foundHeading, current.found = strings.ToLower(p.Title+" "+current.heading), strings.ToLower(current.text)
			p.sections = append(p.sections, current)
		}
		words.Reset()
	}
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			end()
			id, _ := n.AttributeString("id")
			anchor, _ := id.([]byte)
			current = section{heading: plain(n.Lines().Value(data)), anchor: string(anchor)}
			if n.Level == 1 {
				p.Title, current.anchor = current.heading, ""
			}
		case *ast.Link:
			n.Destination = []byte(s.address(string(n.Destination)))
		case *ast.Text:
			words.Write(n.Segment.Value(data))
			words.WriteByte(' ')
		case *ast.FencedCodeBlock:
			words.Write(n.Lines().Value(data))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	end()
	var html bytes.Buffer
	if err := markdown.Renderer().Render(&html, data, root); err != nil {
		return nil, err
	}
	p.html = html.Bytes()
	return p, nil
}

// address is where a link of a page leads: to another page, to a file beside it, or to the project's sources.
func (s *Site) address(link string) string {
	target, fragment, _ := strings.Cut(link, "#")
	if fragment != "" {
		fragment = "#" + fragment
	}
	name, isPage := strings.CutSuffix(target, ".md")
	switch {
	case target == "" || strings.Contains(target, ":"):
		return link
	case strings.HasPrefix(target, "../"):
		return source + path.Clean(strings.TrimPrefix(target, "../")) + fragment
	case isPage && name == index:
		if s.suffix != "" {
			return "index" + s.suffix + fragment
		}
		return "./" + fragment
	case isPage:
		return name + s.suffix + fragment
	}
	return link
}

// plain is Markdown without its marks.
func plain(markdown []byte) string {
	return string(linkOrMark.ReplaceAll(markdown, []byte("$1")))
}

var linkOrMark = regexp.MustCompile("\\[([^]]*)\\]\\([^)]*\\)|[`*]")

// anchors names headings as the forge does on which the sources are, so that links lead to the same places there and
// here.
type anchors struct{ given map[string]int }

// Generate implements [parser.IDs].
func (a *anchors) Generate(heading []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(string(heading)) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r > 127:
			b.WriteRune(r)
		}
	}
	name := b.String()
	n := a.given[name]
	a.given[name]++
	if n > 0 {
		name = fmt.Sprintf("%s-%d", name, n)
	}
	return []byte(name)
}

// Put implements [parser.IDs].
func (a *anchors) Put(id []byte) { a.given[string(id)]++ }

// Bounds of a search.
const (
	mostQuery = 200 // bytes
	mostWords = 8
	mostFound = 40
	excerpt   = 240 // bytes around the first word that was found
)

// Found is a section that a search found.
type Found struct {
	Page            *page
	Heading, Anchor string
	Excerpt         string
	rank            int
}

// search finds the sections that have all words of a query: those first that have them in their headings.
func (l *library) search(query string) (list []Found) {
	words := strings.Fields(strings.ToLower(query[:min(len(query), mostQuery)]))
	words = words[:min(len(words), mostWords)]
	if len(words) == 0 {
		return nil
	}
	for _, p := range l.pages {
		for _, s := range p.sections {
			rank, first := 0, -1
			for _, w := range words {
				inHeading, at := strings.Contains(s.foundHeading, w), strings.Index(s.found, w)
				if !inHeading && at < 0 {
					rank = -1
					break
				}
				if inHeading {
					rank++
				}
				if first < 0 {
					first = at
				}
			}
			if rank >= 0 {
				list = append(list, Found{p, s.heading, s.anchor, around(s.text, max(0, first)), rank})
			}
		}
	}
	slices.SortFunc(list, func(a, b Found) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.Page.Title, b.Page.Title), cmp.Compare(a.Anchor, b.Anchor))
	})
	return list[:min(len(list), mostFound)]
}

// around cuts a text to what stands around a place.
func around(s string, at int) string {
	begin := min(max(0, at-excerpt/3), len(s))
	end := min(len(s), begin+excerpt)
	cut := strings.ToValidUTF8(s[begin:end], "")
	if begin > 0 {
		cut = "…" + cut
	}
	if end < len(s) {
		cut += "…"
	}
	return cut
}

// llms is the list of all pages for language models, in the form of llmstxt.org.
func (l *library) llms() []byte {
	var b strings.Builder
	b.WriteString("# wasmjob\n\n> A distributed cron: it runs jobs on schedule, on one machine or shared among many, each in a WebAssembly sandbox.\n")
	for _, s := range l.shelves {
		fmt.Fprintf(&b, "\n## %s\n\n", s.Name)
		for _, p := range s.Pages {
			fmt.Fprintf(&b, "- [%s](%s.md): %s\n", p.Title, p.Name, p.Summary)
		}
	}
	return []byte(b.String())
}
