// Package yamlnode reads files that people write as YAML into nodes, which know their lines, and
// says what a node is. Nothing in it knows what the files are about.
package yamlnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Check refuses data with more than [jobconfig.MaxNodes] values, which would take more memory than a file is worth.
func Check(data []byte) error { return jobconfig.CheckNodes(data) }

// Decode returns the roots of all documents; of those before it if one is broken. It takes what [Check] takes.
func Decode(data []byte) (roots []*yaml.Node, err error) {
	if err := Check(data); err != nil {
		return nil, err
	}
	// The parser is not ours; whatever it does with a file, the host goes on.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return roots, err
		}
		root := &document
		if len(document.Content) > 0 {
			root = document.Content[0]
		}
		roots = append(roots, root)
	}
}

var lineOfError = regexp.MustCompile(`^line (\d+): `)

// Syntax takes the line out of an error of Decode; it is 0 if the error has none. It can be one
// off.
func Syntax(err error) (line int, message string) {
	message = words.ClipTo(strings.TrimPrefix(err.Error(), "yaml: "), 200) // it can quote an anchor
	if m := lineOfError.FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1]) // digits
		message = message[len(m[0]):]
	}
	return line, message
}

// NoTab is the hint where Tab finds one.
const NoTab = "a tab cannot indent, expected blanks"

var indentTab = regexp.MustCompile(`^ *\t`)

// Tab is the column of a tab that indents a line, from 1 on; 0 if none does.
func Tab(line string) int { return len(indentTab.FindString(line)) }

// Explain gives an error of Decode its place, from 1 on, and says of a tab that it is the
// mistake: the parser says only that some character cannot stand there.
func Explain(data []byte, err error) (line, column int, message string) {
	line, message = Syntax(err)
	line = max(line, 1)
	lines := strings.Split(string(data), "\n")
	for _, n := range []int{line, line - 1, line + 1} {
		if n < 1 || n > len(lines) {
			continue
		}
		if column := Tab(lines[n-1]); column > 0 {
			return n, column, message + ": " + NoTab
		}
	}
	return line, 1, message
}

// IsPlain reports whether a text stands without quotes and tags.
func IsPlain(n *yaml.Node) bool {
	const marked = yaml.TaggedStyle | yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Style&marked == 0
}

// IsNull reports whether there is no value.
func IsNull(n *yaml.Node) bool {
	if !IsPlain(n) {
		return false
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return true
	}
	return false
}

// Describe says what was found as the value of a field.
func Describe(n *yaml.Node) string {
	if f := Form(n); f != aText {
		return f
	}
	return strconv.Quote(jobconfig.Clip(n.Value))
}

const aText = "a text"

// Form says of what kind something is, without its content.
func Form(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case IsNull(n):
		return "nothing"
	}
	return aText
}
