package definition

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/yamlnode"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// parser collects what is wrong with one file.
type parser struct {
	base     string // of the file's name
	ceilings ceiling.List
	// known has the settings and their names, which each job of the file needs.
	known    known
	problems words.Few[Problem]
	// aliased is how many bytes aliases stood for so far.
	aliased int
	// inherited is how many bytes the jobs so far have from files of defaults.
	inherited int
	// lost has, by the root of what was mended of a document, the fields whose
	// lines were left out.
	lost map[*yaml.Node][]string
}

func (p *parser) problem(n *yaml.Node, field, format string, args ...any) {
	if p.problems.Full() {
		p.problems.Count(1)
		return
	}
	p.note(Problem{n.Line, n.Column, field, fmt.Sprintf(format, args...)})
}

// note adds a problem. Its message is cut.
func (p *parser) note(one Problem) {
	one.Message = words.Reason(one.Message)
	p.problems.Add(one)
}

// documents returns the mappings of a file. If the syntax is broken it returns what is left, so that the rest
// is checked, too.
func (p *parser) documents(data []byte) (roots []*yaml.Node) {
	if len(data) > MaxSize {
		p.note(Problem{Message: fmt.Sprintf("found %d bytes, expected at most %d", len(data), MaxSize)})
		return nil
	}
	if err := yamlnode.Check(data); err != nil {
		p.note(Problem{Message: err.Error()})
		return nil
	}
	documents, err := yamlnode.Decode(data)
	if err != nil {
		documents = p.mended(data, documents, err)
	}
	if len(documents) > MaxJobs {
		p.note(Problem{Message: fmt.Sprintf("found %d documents, each of which defines a job, expected at most %d", len(documents), MaxJobs)})
		return nil
	}
	for _, root := range documents {
		switch {
		case root.Kind == yaml.MappingNode:
			roots = append(roots, root)
		case !yamlnode.IsNull(root):
			p.problem(root, "", "found %s, expected the fields of a job, such as cron: \"0 0/10 * * * ?\"", yamlnode.Form(root))
		}
	}
	if len(roots) == 0 && p.problems.Len() == 0 {
		p.note(Problem{Message: "the file defines no job, expected at least shardingTotalCount"})
	}
	return roots
}

// syntaxProblem gives the parser's error its place, and a hint if the line has a common mistake.
func syntaxProblem(data []byte, err error) Problem {
	at, message := yamlnode.Syntax(err)
	lines := strings.Split(string(data), "\n")
	if at == 0 {
		at, message = placeOf(message, lines)
	}
	if within.MatchString(message) {
		at = firstBroken(lines, at+1)
	}
	at = min(at, len(lines))
	// The parser's line can be one off where it looked for what follows.
	for _, n := range []int{at, at - 1} {
		if n < 1 {
			continue
		}
		if column, hint := syntaxHint(lines[n-1]); hint != "" {
			return Problem{n, column, "", "not YAML: " + message + ": " + hint}
		}
	}
	if m := valueIsOpen.FindStringSubmatchIndex(lines[at-1]); m != nil && strings.HasPrefix(message, "did not find expected ',' or") {
		return Problem{at, m[2] + 1, "", fmt.Sprintf("not YAML: %s: the %s that begins here does not end", message, lines[at-1][m[2]:m[3]])}
	}
	if line, column := openQuote(lines[:at]); line > 0 { // it swallows what follows
		return Problem{line, column, "", "not YAML: " + message + ": the quote that begins here does not end"}
	}
	if before := previous(lines, at-1); before >= 0 && placed.MatchString(message) && indent(lines[at-1]) != indent(lines[before]) {
		message += fmt.Sprintf(": the line is indented by %d, the one before by %d", indent(lines[at-1]), indent(lines[before]))
	}
	return Problem{at, 1, "", "not YAML: " + message}
}

// placeOf finds the line of a mistake for which the parser names none.
func placeOf(message string, lines []string) (line int, short string) {
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		return lineWith(lines, func(line string) bool { return strings.Contains(line, "*"+m[1]) }), "unknown anchor referenced"
	}
	if strings.HasPrefix(message, "control characters") {
		return lineWith(lines, func(line string) bool {
			return strings.ContainsFunc(line, func(r rune) bool { return (r < ' ' && r != '\t' && r != '\r') || (0x7F <= r && r < 0xA0) })
		}), message
	}
	return 1, message // the parser does not count its first line
}

// within is what the parser says with the line before the mapping or list that
// has the mistake somewhere.
var within = regexp.MustCompile(`^did not find expected (key|node content|'-' indicator|',' or|<)`)

// placed is what the parser says of a line that is indented wrongly.
var placed = regexp.MustCompile(`^(did not find expected (key|<document)|mapping values are not allowed)`)

// previous is the index of the line before another one that has text, or -1.
func previous(lines []string, at int) int {
	for at--; at >= 0 && strings.TrimSpace(lines[at]) == ""; at-- {
	}
	return at
}

// firstBroken returns the first line, from 1, up to which the text is not valid YAML. For a long text it
// returns otherwise.
func firstBroken(lines []string, otherwise int) int {
	const most, bytes = 200, 16 << 10
	size := 0
	for _, l := range lines {
		size += len(l)
	}
	if len(lines) > most || size > bytes {
		return otherwise
	}
	for n := len(lines) - 1; n > 0; n-- {
		if _, err := yamlnode.Decode([]byte(strings.Join(lines[:n], "\n"))); err == nil {
			for n < len(lines)-1 && strings.TrimSpace(lines[n]) == "" {
				n++
			}
			return n + 1
		}
	}
	return 1
}

var (
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
	// valueNeedsQuotes is a value, or an element, that begins with a
	// character that is YAML's own.
	valueNeedsQuotes = regexp.MustCompile("^\\s*(?:-\\s+|[A-Za-z.]+:\\s+)([*@`%&!|>].*)$")
	valueHasColon    = regexp.MustCompile(`^\s*[A-Za-z.]+:\s+([^'"{[\s].*:(?:\s.*)?)$`)
	// valueIsOpen is a mapping or list that its line does not end.
	valueIsOpen = regexp.MustCompile(`^\s*(?:-\s+|[A-Za-z.]+:\s+)([{[])[^}\]]*$`)
)

// syntaxHint looks for the usual mistakes; the column begins with 1.
func syntaxHint(line string) (column int, hint string) {
	line = strings.TrimRight(line, "\r")
	if column := yamlnode.Tab(line); column > 0 {
		return column, yamlnode.NoTab
	}
	if m := valueNeedsQuotes.FindStringSubmatchIndex(line); m != nil {
		return m[2] + 1, fmt.Sprintf("a value that begins with %s has to be quoted", line[m[2]:m[2]+1]) + example(line, m[2])
	}
	if m := valueHasColon.FindStringSubmatchIndex(line); m != nil {
		return m[2] + 1, "a value with a colon has to be quoted" + example(line, m[2])
	}
	return 0, ""
}

// example shows the value that begins at an index with its quotes, if it is a
// known field's. A file that is no definition, reached by whatever mistake, must
// not be read out in messages.
func example(line string, at int) string {
	m := nameOfField.FindStringSubmatch(line)
	if m == nil || (!isField(m[1], fieldNames()) && !isField(m[1], fieldsBelow()["retry"])) {
		return ""
	}
	return fmt.Sprintf(": %q", jobconfig.Clip(line[at:]))
}

// quoted is a value that begins with a quote, up to the end of its line.
var quoted = regexp.MustCompile(`^\s*(?:-\s+)?(?:[A-Za-z.]+:\s+)?(["'].*)$`)

// openQuote is the place of a quote that does not end, or ends in the middle of
// another line, as a forgotten one does. Both are from 1; 0 if there is none.
func openQuote(lines []string) (line, column int) {
	for i := 0; i < len(lines); i++ {
		m := quoted.FindStringSubmatchIndex(lines[i])
		if m == nil {
			continue
		}
		mark, rest := lines[i][m[2]], lines[i][m[2]+1:]
		for n := i; ; rest = lines[n] {
			if end := endOfQuote(rest, mark); end >= 0 {
				if tail := strings.TrimSpace(rest[end+1:]); n > i && tail != "" && tail[0] != '#' {
					return i + 1, m[2] + 1
				}
				i = n
				break
			}
			if n++; n == len(lines) {
				return i + 1, m[2] + 1
			}
		}
	}
	return 0, 0
}

// endOfQuote is the index of the mark that ends a quote, or -1.
func endOfQuote(s string, mark byte) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && mark == '"', s[i] == mark && mark == '\'' && i+1 < len(s) && s[i+1] == mark:
			i++
		case s[i] == mark:
			return i
		}
	}
	return -1
}

func lineWith(lines []string, found func(string) bool) int {
	for i, line := range lines {
		if found(line) {
			return i + 1
		}
	}
	return 1
}

// target is what an alias stands for, or the node itself. One big text that
// many aliases repeat is a problem.
func (p *parser) target(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode || n.Alias == nil {
		return n
	}
	before := p.aliased
	if p.aliased += len(n.Alias.Value); p.aliased > MaxSize {
		if before <= MaxSize { // said once
			p.problem(n, "", "aliases stand for more than %d bytes in this file", MaxSize)
		}
		p.aliased = MaxSize + 1
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "?", Line: n.Line, Column: n.Column}
	}
	// A problem is shown where the alias stands.
	t := *n.Alias
	t.Line, t.Column = n.Line, n.Column
	return &t
}
