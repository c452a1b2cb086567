package definition

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/config/yamlnode"
)

const (
	// maxMended is the largest file in bytes, and maxMends the highest number of syntax errors, for which a
	// broken file is analysed further: each error is another pass over its document.
	maxMended = 64 << 10
	maxMends  = 20
)

// mended notes the error that ended the decoding, and the file's other errors. It returns what can be read of
// each document after missing quotes are added and other broken lines are removed. The result defines no job;
// it is only used to find more problems.
func (p *parser) mended(data []byte, before []*yaml.Node, err error) []*yaml.Node {
	if len(data) > maxMended || !utf8.Valid(data) || bytes.HasPrefix(data, []byte("\ufeff")) {
		p.note(syntaxProblem(data, err))
		return before
	}
	p.lost = map[*yaml.Node][]string{}
	var roots []*yaml.Node
	known := p.problems.Len()
	left := maxMends
	first := 0
	for _, lines := range splitDocuments(strings.Split(string(data), "\n")) {
		if left == 0 || p.problems.Full() {
			break
		}
		for _, root := range p.mend(lines, first, &left) {
			shift(root, first)
			roots = append(roots, root)
		}
		first += len(lines)
	}
	if p.problems.Len() == known { // the parts are good, the whole is not
		p.note(syntaxProblem(data, err))
		return before
	}
	return roots
}

// splitDocuments cuts at the lines that begin another document.
func splitDocuments(lines []string) (parts [][]string) {
	begun, from := false, 0
	for i, line := range lines {
		separator := separates(line)
		if separator && begun {
			parts = append(parts, lines[from:i])
			begun, from = false, i
		}
		text := strings.TrimSpace(line)
		begun = begun || (!separator && text != "" && text[0] != '#' && text[0] != '%')
	}
	return append(parts, lines[from:])
}

func separates(line string) bool {
	after, ok := strings.CutPrefix(line, "---")
	return ok && (after == "" || strings.ContainsAny(after[:1], " \t\r"))
}

func shift(n *yaml.Node, lines int) {
	n.Line += lines
	for _, c := range n.Content {
		shift(c, lines)
	}
}

// mend reads one document, whose lines begin after the first ones of the file.
func (p *parser) mend(lines []string, first int, left *int) []*yaml.Node {
	lines = slices.Clone(lines)
	touched, better := make([]bool, len(lines)), make([]bool, len(lines))
	var lost []string
	for {
		data := []byte(strings.Join(lines, "\n"))
		roots, err := yamlnode.Decode(data)
		if err == nil {
			for _, root := range roots {
				p.lost[root] = lost
			}
			return roots
		}
		found := syntaxProblem(data, err)
		at := found.Line - 1
		if from := begins(lines, touched, at); *left == 0 || from < len(lines) {
			// Usually the line before caused this one: the rest is unreliable.
			if roots, err = yamlnode.Decode([]byte(strings.Join(lines[:from], "\n"))); err != nil {
				return nil
			}
			for _, root := range roots {
				p.lost[root] = fieldNames()
			}
			return roots
		}
		*left--
		if !better[at] { // or else quotes were not all it wanted
			found.Line += first
			p.note(found)
			if line, ok := quote(lines[at], found.Column); ok {
				lines[at], better[at] = line, true
				continue
			}
			if before := previous(lines, at); before >= 0 && strings.Contains(found.Message, "<document start>") {
				// The lines before are further to the right.
				deeper := strings.Repeat(" ", max(0, indent(lines[before])-indent(lines[at])))
				for i := at; i < len(lines); i++ {
					lines[i] = deeper + lines[i]
				}
				better[at] = true
				continue
			}
		}
		lost = append(lost, leaveOut(lines, touched, at)...)
	}
}

// begins is the first of the lines that were left out right before a line, or
// at it; the number of lines if there are none.
func begins(lines []string, touched []bool, at int) int {
	from := len(lines)
	for ; at >= 0 && (touched[at] || strings.TrimSpace(lines[at]) == ""); at-- {
		if touched[at] {
			from = at
		}
	}
	return from
}

// quote adds quotes to the value at a column, from 1, if it needs them, and replaces a tab at the beginning of
// a line by blanks.
func quote(line string, column int) (string, bool) {
	line = strings.TrimRight(line, "\r")
	if column > len(line) {
		return "", false
	}
	if at := yamlnode.Tab(line); at > 0 {
		return strings.ReplaceAll(line[:at], "\t", "  ") + line[at:], true
	}
	before, value := line[:column-1], line[column-1:]
	if mark := value[0]; mark == '"' || mark == '\'' {
		return line + string(mark), endOfQuote(value[1:], mark) < 0
	}
	if c, hint := syntaxHint(line); hint == "" || c != column {
		return "", false
	}
	value, _, _ = strings.Cut(value, " #")
	return before + "'" + strings.ReplaceAll(strings.TrimSpace(value), "'", "''") + "'", true
}

var nameOfField = regexp.MustCompile(`^\s*(?:-\s+)?["']?([A-Za-z.]+)["']?\s*:`)

// leaveOut empties a line and the lines below that belong to it, and returns the names of their fields.
func leaveOut(lines []string, touched []bool, at int) (names []string) {
	depth := indent(lines[at])
	for i := at; i < len(lines); i++ {
		text := strings.TrimSpace(lines[i])
		if i > at && text != "" && indent(lines[i]) <= depth && !strings.HasPrefix(text, "- ") {
			break
		}
		if m := nameOfField.FindStringSubmatch(lines[i]); m != nil {
			names = append(names, m[1])
		}
		lines[i], touched[i] = "", true
	}
	return names
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }
