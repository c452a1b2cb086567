package definition

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// parser collects what is wrong with one file.
type parser struct {
	base     string // of the file's name
	problems []Problem
	// aliased is how many bytes aliases stood for so far.
	aliased int
}

func (p *parser) problem(n *yaml.Node, field, format string, args ...any) {
	p.problems = append(p.problems, Problem{n.Line, n.Column, field, fmt.Sprintf(format, args...)})
}

// documents returns the mappings of a file; after a problem those before it.
func (p *parser) documents(data []byte) (roots []*yaml.Node) {
	if len(data) > MaxSize {
		p.problems = append(p.problems, Problem{Message: fmt.Sprintf("found %d bytes, expected at most %d", len(data), MaxSize)})
		return nil
	}
	// The parser is not ours; whatever it does with a file, the host goes on.
	defer func() {
		if r := recover(); r != nil {
			p.problems = append(p.problems, Problem{Message: fmt.Sprintf("not YAML: %v", r)})
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.problems = append(p.problems, syntaxProblem(data, err))
			return roots
		}
		root := &document
		if len(document.Content) > 0 {
			root = document.Content[0]
		}
		switch {
		case root.Kind == yaml.MappingNode:
			roots = append(roots, root)
		case !isNull(root):
			p.problem(root, "", "found %s, expected the fields of a job, such as cron: \"0 0/10 * * * ?\"", describe(root))
		}
	}
	if len(roots) == 0 && len(p.problems) == 0 {
		p.problems = append(p.problems, Problem{Message: "the file defines no job, expected at least shardingTotalCount"})
	}
	return roots
}

var lineOfError = regexp.MustCompile(`^line (\d+): `)

// syntaxProblem gives the parser's error its place, and a hint if the line
// shows one of the mistakes that people make.
func syntaxProblem(data []byte, err error) Problem {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	lines := strings.Split(string(data), "\n")
	at := 1 // the parser does not count its first line
	if m := lineOfError.FindStringSubmatch(message); m != nil {
		at, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	} else if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		at = lineWith(lines, func(line string) bool { return strings.Contains(line, "*"+m[1]) })
	} else if strings.HasPrefix(message, "control characters") {
		at = lineWith(lines, func(line string) bool {
			return strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' || 0x7F <= r && r < 0xA0 })
		})
	}
	at = min(at, len(lines))
	column := 1
	// The parser's line can be one off where it looked for what follows.
	for _, n := range []int{at, at - 1} {
		if n < 1 {
			continue
		}
		if c, hint := syntaxHint(lines[n-1]); hint != "" {
			at, column, message = n, c, message+": "+hint
			break
		}
	}
	return Problem{at, column, "", "not YAML: " + message}
}

var (
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
	indentTab     = regexp.MustCompile(`^ *\t`)
	// valueNeedsQuotes is a value, or an element, that begins with a
	// character that is YAML's own.
	valueNeedsQuotes = regexp.MustCompile("^\\s*(?:-\\s+|[A-Za-z.]+:\\s+)([*@`%&!|>].*)$")
	valueHasColon    = regexp.MustCompile(`^\s*[A-Za-z.]+:\s+([^'"\s].*:(?:\s.*)?)$`)
)

// syntaxHint looks for the usual mistakes; the column begins with 1.
func syntaxHint(line string) (column int, hint string) {
	line = strings.TrimRight(line, "\r")
	if m := indentTab.FindString(line); m != "" {
		return len(m), "a tab cannot indent, expected blanks"
	}
	if m := valueNeedsQuotes.FindStringSubmatchIndex(line); m != nil {
		return m[2] + 1, fmt.Sprintf("a value that begins with %s has to be quoted: %q", line[m[2]:m[2]+1], clipped(line[m[2]:]))
	}
	if m := valueHasColon.FindStringSubmatchIndex(line); m != nil {
		return m[2] + 1, fmt.Sprintf("a value with a colon has to be quoted: %q", clipped(line[m[2]:]))
	}
	return 0, ""
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

func isPlain(n *yaml.Node) bool {
	const marked = yaml.TaggedStyle | yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Style&marked == 0
}

func isNull(n *yaml.Node) bool {
	if !isPlain(n) {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// describe says what was found.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case isNull(n):
		return "nothing"
	}
	return strconv.Quote(clipped(n.Value))
}

// clipped cuts a text that goes into a message.
func clipped(s string) string {
	const limit = 60
	n := 0
	for i := range s {
		if n++; n > limit {
			return s[:i] + "…"
		}
	}
	return s
}
