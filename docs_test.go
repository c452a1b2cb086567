package wasmjob_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/wasmjob/wasmjob/host/node/program"
)

// page is a document for people.
type page struct {
	name, text string
	// code are its code spans and the lines of its code blocks.
	code []string
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
)

// pages are all that users and operators read.
func pages(t *testing.T) []page {
	t.Helper()
	names := []string{"README.md", "README.zh.md", "SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "RATIONALE.md", "CHANGELOG.md"}
	for _, pattern := range []string{"docs/*.md", "deploy/*.md", "sdk/*.md", "plugins/*/*.md", "test/*.md", "bench/*.md", "coordination/*.md", "internal/*.md", "host/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(more), err)
		}
		names = append(names, more...)
	}
	var all []page
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		p := page{name: filepath.ToSlash(name)}
		p.text = codeBlock.ReplaceAllStringFunc(string(data), func(block string) string {
			m := codeBlock.FindStringSubmatch(block)
			if slices.Contains([]string{"", "sh", "console"}, m[1]) { // the others are code, or what commands print
				p.code = append(p.code, strings.Split(m[2], "\n")...)
			}
			return ""
		})
		for _, m := range codeSpan.FindAllStringSubmatch(p.text, -1) {
			p.code = append(p.code, strings.Join(strings.Fields(m[1]), " "))
		}
		all = append(all, p)
	}
	return all
}

var (
	// commandLine is a line that calls the program: at its begin, after
	// assignments, or by its path in a container.
	commandLine = regexp.MustCompile(`(?:^(?:[A-Z_]+=\S* )*(?:bin/)?| /)wasmjob ([^|;&#]*)`)
	commandWord = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	longFlag    = regexp.MustCompile(`^--[a-z][a-z-]*`)
)

// TestDocs holds the pages, and the texts of the program, against its commands.
func TestDocs(t *testing.T) {
	t.Parallel()
	root := program.Commands()
	t.Run("commands", func(t *testing.T) { commandsInDocs(t, root) })
	t.Run("texts", func(t *testing.T) { commandsInTexts(t, root) })
	t.Run("code", func(t *testing.T) { commandsInCode(t, root) })
	t.Run("names", func(t *testing.T) { namesInDocs(t, root) })
}

// commandOf is the command that the words name, and what follows its name. unknown is a word that should name a command
// below it, and names none; nor does a former name, or another name of a command but "why", which is one of two that all
// texts use.
func commandOf(root *cobra.Command, words []string) (cmd *cobra.Command, rest []string, unknown string) {
	cmd, rest = root, words
	if len(rest) > 0 && rest[0] == "help" {
		rest = rest[1:]
	}
	for len(rest) > 0 && commandWord.MatchString(rest[0]) && cmd.HasSubCommands() {
		n := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == rest[0] || (rest[0] == "why" && c.HasAlias(rest[0])) })
		if n < 0 {
			return cmd, rest, rest[0]
		}
		cmd, rest = cmd.Commands()[n], rest[1:]
	}
	return cmd, rest, ""
}

// commandsInDocs: a reader who follows a page finds the commands and flags that it
// names.
func commandsInDocs(t *testing.T, root *cobra.Command) {
	found := 0
	for _, p := range pages(t) {
		if p.name == "CHANGELOG.md" {
			continue // it tells what was
		}
		for _, code := range p.code {
			m := commandLine.FindStringSubmatch(code)
			if m == nil {
				continue
			}
			found++
			cmd, rest, unknown := commandOf(root, strings.Fields(m[1]))
			if unknown != "" {
				t.Errorf("%s: %q: there is no command %q below %q", p.name, code, unknown, cmd.CommandPath())
				continue
			}
			for _, f := range rest {
				flag := strings.TrimPrefix(longFlag.FindString(strings.TrimLeft(f, "[(")), "--")
				if flag != "" && flag != "help" && flag != "version" && cmd.Flag(flag) == nil {
					t.Errorf("%s: %q: %q has no flag --%s", p.name, code, cmd.CommandPath(), flag)
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("found %d commands only: the pages are not read as they are written", found)
	}
}

// commandInText is a command behind a quote in a text that is no page, and its words.
var commandInText = regexp.MustCompile("(['`“>])wasmjob((?: +[a-z][a-z-]*)+)")

// commandsInTexts: what messages, helps, comments of examples and files of deploy suggest are commands, where they stand
// behind a quote or are the example of a command. Elsewhere "wasmjob" may be the subject of a sentence.
func commandsInTexts(t *testing.T, root *cobra.Command) {
	all := texts(t)
	for _, pattern := range []string{"plugins/examples/*.yaml", "deploy/*/*", "deploy/helm/wasmjob/templates/*", "host/control/console/*.tsv", "host/control/console/templates/*", "host/node/program/demo/*.yaml", "cmd/*/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			if data, err := os.ReadFile(name); err == nil { // else a folder
				all = append(all, string(data))
			}
		}
	}
	var examples func(c *cobra.Command)
	examples = func(c *cobra.Command) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			all = append(all, "'"+strings.TrimSpace(line))
		}
		for _, below := range c.Commands() {
			examples(below)
		}
	}
	examples(root)
	found := 0
	for _, text := range all {
		for _, m := range commandInText.FindAllStringSubmatch(text, -1) {
			found++
			if cmd, _, unknown := commandOf(root, strings.Fields(m[2])); unknown != "" {
				t.Errorf("%q: there is no command %q below %q", m[0], unknown, cmd.CommandPath())
			}
		}
	}
	if found < 150 {
		t.Errorf("found %d commands only: the texts are not read as they are written", found)
	}
}

// commandsInCode: words.Command, of which hints are made, is asked for commands; and what tests and tools run has the name
// that it has now. A table test of package program alone has the former ones.
func commandsInCode(t *testing.T, root *cobra.Command) {
	t.Helper()
	fset, folders := sources(t)
	former := formerNames(t, folders)
	// runs are the functions that run a command, with the first argument that is of its line.
	runs := map[string]int{"must": 0, "cli": 0, "registry": 0, "Run": 1, "begin": 1, "command": 1, "Command": 1, "cliEnv": 1, "refused": 2, "CommandContext": 2}
	hints, lines := 0, 0
	for dir, files := range folders {
		for _, f := range files {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				name, of := "", ""
				switch fun := call.Fun.(type) {
				case *ast.Ident:
					name = fun.Name
				case *ast.SelectorExpr:
					name = fun.Sel.Name
					if x, ok := fun.X.(*ast.Ident); ok {
						of = x.Name
					}
				}
				if of == "words" && name == "Command" {
					if line := literal(call.Args[0]); line != "" && !f.test {
						hints++
						if cmd, _, unknown := commandOf(root, strings.Fields(line)); unknown != "" || !cmd.Runnable() {
							t.Errorf("%s: there is no command %q", fset.Position(n.Pos()), line)
						}
					}
					return true
				}
				first, known := runs[name]
				if !known || first >= len(call.Args) || !(f.test || strings.HasPrefix(dir, "test/") || strings.HasPrefix(dir, "bench/") || strings.HasPrefix(dir, "cmd/")) {
					return true
				}
				for _, arg := range call.Args[first:] {
					word := literal(arg)
					if word == "__complete" || word == "help" {
						continue
					}
					if word != "" {
						lines++
					}
					if slices.Contains(former, word) {
						t.Errorf("%s: %q is a former name of a command", fset.Position(n.Pos()), word)
					}
					break
				}
				return true
			})
		}
	}
	if hints < 20 || lines < 300 || len(former) < 30 {
		t.Errorf("found %d hints, %d lines that are run, %d former names: the code is not read as it is written", hints, lines, len(former))
	}
}

// literal is a string that stands in the code; empty if another expression does.
func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return ""
}

// formerNames are the keys of the program's table newNames.
func formerNames(t *testing.T, folders map[string][]source) (names []string) {
	t.Helper()
	for _, f := range folders["host/node/program"] {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Names) != 1 || spec.Names[0].Name != "newNames" || len(spec.Values) != 1 {
				return true
			}
			table, ok := spec.Values[0].(*ast.CompositeLit)
			if !ok {
				return true
			}
			for _, row := range table.Elts {
				if pair, ok := row.(*ast.KeyValueExpr); ok {
					names = append(names, literal(pair.Key))
				}
			}
			return false
		})
	}
	return names
}

// texts are the texts in the code of the program, tests and guests apart.
func texts(t *testing.T) (all []string) {
	t.Helper()
	_, folders := sources(t)
	for dir, files := range folders {
		first, _, _ := strings.Cut(dir, "/")
		if !slices.Contains([]string{"host", "cmd", "coordination", "internal"}, first) {
			continue
		}
		for _, f := range files {
			if f.test {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					if s := literal(e); s != "" {
						all = append(all, s)
					}
				}
				return true
			})
		}
	}
	return all
}

// metrics are those in the table of docs/metrics.md, which a test in host/node/program holds against
// the program.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, m := range metricRow.FindAllStringSubmatch(string(data), -1) {
		all[m[1]] = true
	}
	return all
}

var (
	metricRow      = regexp.MustCompile("(?m)^\\| `(wasmjob_[a-z_]+)` \\| (?:counter|gauge|histogram) ")
	metricInDocs   = regexp.MustCompile(`\bwasmjob_[a-z_]+`)
	variableInDocs = regexp.MustCompile(`\bWASMJOB_[A-Z_]+[A-Z]\b`)
	// metricSuffix is what Prometheus adds to a histogram's name.
	metricSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// namesInDocs: metrics and variables that a page names exist.
func namesInDocs(t *testing.T, root *cobra.Command) {
	all, known := texts(t), metrics(t)
	run, _, _ := commandOf(root, []string{"run"})
	flags := run.Long + run.UsageString()
	found := 0
	for _, p := range pages(t) {
		script := "\n" + strings.Join(p.code, "\n") // which may have variables of its own
		for _, code := range p.code {
			for _, name := range metricInDocs.FindAllString(code, -1) {
				found++
				if !known[name] && !known[metricSuffix.ReplaceAllString(name, "")] && !slices.Contains(all, name) { // a table of a history
					t.Errorf("%s: there is no metric, and no table, %s", p.name, name)
				}
			}
			for _, name := range variableInDocs.FindAllString(code, -1) {
				flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "WASMJOB_"), "_", "-"))
				if !strings.Contains(flags, flag) && !strings.Contains(flags, name) && !slices.Contains(all, name) && !strings.Contains(script, "\nexport "+name+"=") {
					t.Errorf("%s: there is no variable %s", p.name, name)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d metrics only: the pages are not read as they are written", found)
	}
}

// TestLinesInRunbook: what the runbook quotes of log and reasons is in the
// code. A "…" stands for what differs from time to time, and "; " joins parts
// that the code may join, too.
func TestLinesInRunbook(t *testing.T) {
	t.Parallel()
	all := texts(t)
	data, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	check := func(quote string) {
		for piece := range strings.SplitSeq(quote, "…") {
			for part := range strings.SplitSeq(piece, "; ") {
				part = strings.Trim(part, " :;")
				if part == "" {
					continue
				}
				found++
				if !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, part) }) {
					t.Errorf("docs/runbook.md: %q: nothing in the code says %q", quote, part)
				}
			}
		}
	}
	quotes := regexp.MustCompile(`(?i)^- log|\blog(: |'s? \(| \()|\breasons? ` + "`" + `|^\| ` + "`[^`]*` \\| ")
	reasons := false
	for line := range strings.SplitSeq(string(data), "\n") {
		if strings.HasPrefix(line, "| ") {
			if strings.HasPrefix(line, "| Reason in the event ") {
				reasons = true
			}
			if m := codeSpan.FindStringSubmatch(line); reasons && m != nil {
				check(m[1])
			}
			continue
		}
		reasons = false
		if quotes.MatchString(line) {
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], " ") && !strings.HasPrefix(m[1], "wasmjob ") {
					check(m[1])
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d quotes only: the page is not read as it is written", found)
	}
}

// TestLinksInDocs: links within the tree lead somewhere.
func TestLinksInDocs(t *testing.T) {
	t.Parallel()
	headings := make(map[string][]string)
	anchors := func(name string) []string {
		if _, ok := headings[name]; !ok {
			found, err := headingsOf(name)
			if err != nil {
				t.Fatal(err)
			}
			headings[name] = found
		}
		return headings[name]
	}
	for _, p := range pages(t) {
		for _, m := range mdLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(p.text, ""), -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := p.name
			if target != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(p.name), target))
			}
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
				t.Errorf("%s: link %s: %v", p.name, m[1], err)
				continue
			}
			if fragment != "" && !slices.Contains(anchors(file), fragment) {
				t.Errorf("%s: link %s: %s has no such heading", p.name, m[1], file)
			}
		}
	}
}

// howtoWords is the most that a page on the shelf of how-tos has: two screens.
const howtoWords = 1000

// firstQuestions is the part of the index that leads to answers.
const firstQuestions = "First questions"

// TestFirstQuestions: what people ask first is one click away from the index, and the answer, which the index has in short, is at
// most two screens below the place to which the link leads.
func TestFirstQuestions(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(index), "## "+firstQuestions+"\n")
	part, _, _ = strings.Cut(part, "\n## ")
	found := 0
	for line := range strings.SplitSeq(part, "\n") {
		link, short := mdLink.FindStringSubmatch(line), codeSpan.FindAllStringSubmatch(line, -1)
		if !strings.HasPrefix(line, "| ") || link == nil {
			continue
		}
		found++
		if len(short) == 0 {
			t.Errorf("%s: expected the answer in short, with the command or the setting", line)
		}
		name, fragment, _ := strings.Cut(link[1], "#")
		data, err := os.ReadFile("docs/" + name)
		if err != nil {
			t.Error(err)
			continue
		}
		text := string(data)
		if fragment != "" {
			for _, at := range mdHeading.FindAllStringSubmatchIndex(text, -1) {
				if anchor(text[at[2]:at[3]]) == fragment {
					text = text[at[0]:]
					break
				}
			}
		}
		fields := strings.Fields(text)
		screens := strings.Join(fields[:min(len(fields), howtoWords)], " ")
		for _, answer := range short {
			before, _, there := strings.Cut(screens, strings.Join(strings.Fields(answer[1]), " "))
			if !there {
				t.Errorf("%s: %q is not in the two screens below %s", line, answer[1], link[1])
			}
			t.Logf("%s: %q after %d words of %s", strings.Split(line, "|")[1], answer[1], len(strings.Fields(before)), link[1])
		}
	}
	if found != 10 {
		t.Errorf("found %d questions, expected 10", found)
	}
}

// TestShelves: each page stands on one shelf of the index, once; a how-to has two screens at most;
// and a page begins with what its reader can do after it.
func TestShelves(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("docs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	shelfOf := make(map[string]string)
	shelves := make(map[string]int)
	shelf := ""
	for line := range strings.SplitSeq(string(index), "\n") {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			shelf = heading
		}
		if shelf == firstQuestions {
			continue // whose answers stand on the shelves
		}
		for _, m := range mdLink.FindAllStringSubmatch(line, -1) {
			name, _, _ := strings.Cut(m[1], "#")
			if strings.Contains(name, "/") {
				continue
			}
			if had, ok := shelfOf[name]; ok {
				t.Errorf("docs/README.md: %s stands on the shelf %s and again on %s", name, had, shelf)
			}
			shelfOf[name] = shelf
			shelves[shelf]++
		}
	}
	for _, name := range []string{"Tutorials", "How-to", "Reference", "Background"} {
		if shelves[name] == 0 {
			t.Errorf("docs/README.md: no page stands on the shelf %s", name)
		}
	}
	files, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "README.md" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		shelf, ok := shelfOf[name]
		if !ok {
			t.Errorf("docs/README.md: %s stands on no shelf", name)
		}
		if words := len(strings.Fields(text)); shelf == "How-to" && words > howtoWords {
			t.Errorf("%s has %d words, and a how-to at most %d: split it, or put it on another shelf", file, words, howtoWords)
		}
		if opening := strings.SplitN(text, "\n\n", 3); len(opening) < 3 || !strings.HasPrefix(opening[0], "# ") || !regexp.MustCompile(`^After (this|an entry of this) page you `).MatchString(opening[1]) {
			t.Errorf("%s: expected a title, and then the sentence \"After this page you can …\"", file)
		}
	}
}

var pageInText = regexp.MustCompile(`\bdocs/([a-z0-9-]+\.(?:md|yaml|json))((?:#[a-z0-9-]+)?)`)

// TestDocsNamedElsewhere: a page that the code, the console, an error or another file of the tree names is
// there, with the heading.
func TestDocsNamedElsewhere(t *testing.T) {
	t.Parallel()
	found := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || name == "docs" || name == "bin" || name == "out"):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !slices.Contains([]string{".go", ".tsv", ".html", ".js", ".yaml", ".yml", ".sh", ".service", ".h", ".rs", ""}, filepath.Ext(name)):
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range pageInText.FindAllStringSubmatch(string(data), -1) {
			found++
			anchors, err := headingsOf("docs/" + m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", name, m[0], err)
			} else if m[2] != "" && !slices.Contains(anchors, m[2][1:]) {
				t.Errorf("%s: %s: the page has no such heading", name, m[0])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 50 {
		t.Errorf("found %d names of pages only: the tree is not read as it is written", found)
	}
}

// headingsOf are the anchors of a page.
func headingsOf(name string) (anchors []string, err error) {
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	for _, m := range mdHeading.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(data), ""), -1) {
		anchors = append(anchors, anchor(m[1]))
	}
	return anchors, nil
}

// anchor is the name that a heading gets in links.
func anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r > 127:
			b.WriteRune(r)
		}
	}
	return b.String()
}

var (
	flawRow  = regexp.MustCompile(`(?m)^\| (\d+) \|.*\| ([^|]*) \|$`)
	testName = regexp.MustCompile(`^Test[A-Za-z]+(_[A-Za-z]+)?(/[a-z_]+)?$`)
)

// testsByName are the tests of all packages.
func testsByName(t *testing.T) map[string]bool {
	t.Helper()
	_, folders := sources(t)
	tests := make(map[string]bool)
	for _, files := range folders {
		for _, f := range files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
					tests[fn.Name.Name] = true
				}
			}
		}
	}
	return tests
}

var complaintRow = regexp.MustCompile(`(?m)^\| (T\d+) \|.*\| ([^|]*) \|$`)

// TestComplaintsPageNamesTests: each complaint has a test, and the tests that the page
// names exist.
func TestComplaintsPageNamesTests(t *testing.T) {
	t.Parallel()
	tests := testsByName(t)
	data, err := os.ReadFile("docs/complaints.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, row := range complaintRow.FindAllStringSubmatch(string(data), -1) {
		found = append(found, row[1])
		names := codeSpan.FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 {
			t.Errorf("docs/complaints.md: complaint %s: no test shows that it is not possible", row[1])
		}
		for _, m := range names {
			if !testName.MatchString(m[1]) || !tests[m[1]] {
				t.Errorf("docs/complaints.md: complaint %s: there is no test %s", row[1], m[1])
			}
		}
	}
	if want := []string{"T1", "T3", "T4", "T5", "T6"}; !slices.Equal(found, want) {
		t.Errorf("found complaints %v, expected %v: the page is not read as it is written", found, want)
	}
}

// TestElasticJobPageNamesTests: each of ElasticJob's flaws has a test that shows what
// happens here, and the tests that the page names exist.
func TestElasticJobPageNamesTests(t *testing.T) {
	t.Parallel()
	const scenarios = "coordination/testdata/scenarios/"
	tests := testsByName(t)
	data, err := os.ReadFile("docs/elasticjob.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := flawRow.FindAllStringSubmatch(string(data), -1)
	for n, row := range rows {
		if row[1] != strconv.Itoa(n+1) {
			t.Errorf("docs/elasticjob.md: flaw %s is at place %d", row[1], n+1)
		}
		names := codeSpan.FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 {
			t.Errorf("docs/elasticjob.md: flaw %s: no test shows it", row[1])
		}
		for _, m := range names {
			name, script, _ := strings.Cut(m[1], "/")
			if !testName.MatchString(m[1]) || !tests[name] {
				t.Errorf("docs/elasticjob.md: flaw %s: there is no test %s", row[1], m[1])
			}
			if script == "" {
				continue
			}
			if _, err := os.Stat(scenarios + script + ".txt"); err != nil {
				t.Errorf("docs/elasticjob.md: flaw %s: test %s has no script: %v", row[1], m[1], err)
			}
		}
	}
	if len(rows) != 26 {
		t.Errorf("found %d flaws, expected 26: the page is not read as it is written", len(rows))
	}
}

// clients is the module of the programs that need client libraries.
const clients = "sdk/net/testdata/clients"

// TestProgramsInDocs: the Go programs of the pages compile as jobs.
func TestProgramsInDocs(t *testing.T) {
	t.Parallel()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range []string{"docs/first-job.md", "docs/writing-jobs.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range codeBlock.FindAllStringSubmatch(string(data), -1) {
			if m[1] != "go" || !strings.Contains(m[2], "\nfunc main() {}\n") {
				continue
			}
			found++
			t.Run(fmt.Sprintf("%s_%d", filepath.Base(name), found), func(t *testing.T) {
				t.Parallel()
				compiles(t, root, m[2])
			})
		}
	}
	if found < 6 {
		t.Errorf("found %d programs only: the pages are not read as they are written", found)
	}
}

// compiles builds a program in a folder that is not there: a go.mod is above it.
func compiles(t *testing.T, root, program string) {
	t.Helper()
	dir := root
	if strings.Contains(program, "jackc/pgx") {
		dir = filepath.Join(root, filepath.FromSlash(clients))
	}
	written := filepath.Join(t.TempDir(), "main.go")
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, "program", "main.go"): written}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{written: []byte(program), overlay: replace} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "program.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildmode=c-shared", "-overlay", overlay, "-o", out, "./program")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, b, program)
	}
	if info, err := os.Stat(out); err == nil {
		t.Logf("%.1f MB", float64(info.Size())/1e6)
	}
}

// TestMakefileNamesTests: go test succeeds if -run fits no test, so that a target whose tests
// were renamed would check nothing. What -skip leaves out in all packages may not have the name of another test.
func TestMakefileNamesTests(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		tests.Write(source)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(string(file), -1)
	if len(names) < 20 {
		t.Fatalf("the Makefile names %d tests: it is not read as it is written", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "\nfunc "+name) {
			t.Errorf("the Makefile has %s run, and there is no such test", name)
		}
	}
	lists := regexp.MustCompile(`(?m)^(?:STEPS|HOSTS|ELSEWHERE|REPEATED) :=(.*(?:\\\n.*)*)$`).FindAllStringSubmatch(string(file), -1)
	if len(lists) != 4 {
		t.Fatalf("the Makefile has %d lists of tests, want 4", len(lists))
	}
	for _, list := range lists {
		for name := range strings.FieldsSeq(strings.ReplaceAll(list[1], "\\", " ")) {
			if n := strings.Count(tests.String(), "\nfunc "+name+"("); n != 1 {
				t.Errorf("the Makefile leaves out %s, and %d tests have that name, want 1", name, n)
			}
		}
	}
}
