package jobconfig

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// MaxSize is the largest document that Parse reads, in bytes: the size limit of a registry node.
const MaxSize = 1 << 20

// Parse reads a configuration document as ElasticJob does: a missing switch is false and a missing number 0
// (maxTimeDiffSeconds -1), booleans and numbers are those of YAML 1.1, quoted or not, JSON is YAML, and a value
// in props that is no text becomes the text that Java makes of it.
//
// Parse also reads documents that Java refuses although their meaning is clear, for example with an unknown
// key; the warnings say what Java would do. An error names each key, its line, what was found and what was
// expected; it wraps a [*FieldError] for each. The first [words.MostProblems] warnings and errors are returned,
// with the number of the others. The result is not validated.
func Parse(data []byte) (Configuration, []string, error) {
	root, err := parseYAML(data)
	if err != nil {
		return Configuration{}, nil, err
	}
	r := configReader{data: data, root: root}
	r.c.MaxTimeDiffSeconds = -1
	r.read()
	if size := r.c.textSize(); size > MaxSize {
		r.problems.Add(&FieldError{"", fmt.Sprintf("not a configuration: its texts take %d bytes with all aliases resolved, expected at most %d", size, MaxSize)})
	}
	warnings := words.Strings(r.warnings.Kept(), r.warnings.More())
	if err := r.problems.Err(); err != nil {
		return Configuration{}, warnings, err
	}
	return r.c, warnings, nil
}

// parseYAML returns the mapping that is the document.
func parseYAML(data []byte) (root *yaml.Node, err error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("not a configuration: found %d bytes, expected at most %d", len(data), MaxSize)
	}
	if err := CheckNodes(data); err != nil {
		return nil, fmt.Errorf("not a configuration: %w", err)
	}
	// The parser is a third party's, and the document comes from a shared registry.
	defer func() {
		if p := recover(); p != nil {
			root, err = nil, fmt.Errorf("not a YAML document: %v", p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(readableJSON(data)))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("not a configuration: found nothing, expected a mapping of keys to values")
	case err != nil:
		return nil, yamlSyntax(err)
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("not a configuration: line %d: found a second document, expected one", more.Line)
	case !errors.Is(err, io.EOF):
		return nil, yamlSyntax(err)
	}
	root = resolveAlias(document.Content[0])
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("not a configuration: line %d: found %s, expected a mapping of keys to values", root.Line, describeNode(root))
	}
	return root, nil
}

func yamlSyntax(err error) error {
	return fmt.Errorf("not a YAML document: %s", words.ClipTo(strings.TrimPrefix(err.Error(), "yaml: "), 200)) // it can quote an anchor
}

// readableJSON rewrites a JSON document so that the YAML parser reads it: tabs between tokens become blanks, an
// escaped slash becomes a slash, and a surrogate pair of escapes becomes its character. Line numbers do not
// change.
func readableJSON(data []byte) []byte {
	if !bytes.ContainsAny(data, "\t\\") || !json.Valid(data) {
		return data
	}
	data = bytes.ReplaceAll(data, []byte("\t"), []byte(" ")) // in a string a tab is an escape
	unit := func(at int) rune {
		if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
			return -1
		}
		n, _ := strconv.ParseUint(string(data[at+2:at+6]), 16, 16)
		return rune(n)
	}
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); {
		size := 1
		if data[i] == '\\' {
			size = 2
			if data[i+1] == '/' {
				i++
				continue
			}
			if r := utf16.DecodeRune(unit(i), unit(i+6)); r != utf8.RuneError {
				out = utf8.AppendRune(out, r)
				i += 12
				continue
			}
		}
		out = append(out, data[i:i+size]...)
		i += size
	}
	return out
}

type configReader struct {
	data     []byte
	root     *yaml.Node
	c        Configuration
	problems words.Problems
	warnings words.Few[string]
}

func (r *configReader) read() {
	c := &r.c
	seen := map[string]bool{}
	for i := 0; i+1 < len(r.root.Content); i += 2 {
		key, value := resolveAlias(r.root.Content[i]), resolveAlias(r.root.Content[i+1])
		name := key.Value
		if key.Kind != yaml.ScalarNode {
			r.problem("", key, "a key that is a text")
			continue
		}
		if seen[name] {
			r.warn("%s: line %d: found twice; the later one counts", name, key.Line)
		}
		seen[name] = true
		switch name {
		case keyThreadPool, keyThreadPoolBefore305:
			r.threadPool(name, value, seen)
		case keyExtraConfigurations:
			r.extra(i, value)
		case keyListeners:
			r.list(name, value, &c.JobListenerTypes)
		case keyProps:
			r.props(name, value)
		case "<<":
			r.problem(name, key, "the keys themselves, not a merge of mappings")
		default:
			if setting, known := keyed(name); known {
				r.setting(name, value, setting.in(c, nil))
				continue
			}
			r.warn("%s: line %d: unknown key, ignored; a Java host stops working with this document", Clip(name), key.Line)
		}
	}
}

func (r *configReader) setting(name string, value *yaml.Node, into any) {
	switch p := into.(type) {
	case *string:
		r.text(name, value, p)
	case *bool:
		r.bool(name, value, p)
	case *int:
		r.int(name, value, p)
	case **string:
		*p = nil
		if !isNull(value) {
			*p = new(string)
			r.text(name, value, *p)
		}
	}
}

func (r *configReader) warn(format string, args ...any) {
	if r.warnings.Full() {
		r.warnings.Count(1)
		return
	}
	r.warnings.Add(fmt.Sprintf(format, args...))
}

func (r *configReader) problem(field string, n *yaml.Node, expected string) {
	if r.problems.Full() {
		r.problems.Count(1)
		return
	}
	r.problems.Add(&FieldError{field, fmt.Sprintf("line %d: found %s, expected %s", n.Line, describeNode(n), expected)})
}

func (r *configReader) text(field string, n *yaml.Node, into *string) {
	*into = ""
	if isNull(n) {
		return
	}
	if n.Kind != yaml.ScalarNode {
		r.problem(field, n, "a text")
		return
	}
	s, err := scalarText(n)
	if err != nil {
		r.problem(field, n, "a text")
		return
	}
	*into = s
}

func (r *configReader) bool(field string, n *yaml.Node, into *bool) {
	switch {
	case !mayBe(n, "!!bool"):
	case equalFoldAny(n.Value, "true", "yes", "on"):
		*into = true
		return
	case equalFoldAny(n.Value, "false", "no", "off"):
		*into = false
		return
	}
	r.problem(field, n, "true or false")
}

func (r *configReader) int(field string, n *yaml.Node, into *int) {
	if mayBe(n, "!!int") && yamlKind(n.Value) == kindInt {
		if v := yamlInteger(n.Value); v.IsInt64() && v.Int64() == int64(int32(v.Int64())) {
			*into = int(v.Int64())
			return
		}
	}
	r.problem(field, n, "a whole number of 32 bits")
}

func (r *configReader) threadPool(field string, n *yaml.Node, seen map[string]bool) {
	var value string
	r.text(field, n, &value)
	if value == "" {
		return
	}
	if seen[keyThreadPool] && seen[keyThreadPoolBefore305] {
		r.warn("%s and %s: found both; no Java host can read this document; %s is kept", keyThreadPool, keyThreadPoolBefore305, keyThreadPool)
		if field == keyThreadPoolBefore305 && r.c.JobExecutorThreadPoolValue != "" {
			return
		}
	}
	r.c.JobExecutorThreadPoolKey, r.c.JobExecutorThreadPoolValue = field, value
}

func (r *configReader) list(field string, n *yaml.Node, into *[]string) {
	*into = nil
	if isNull(n) {
		r.warnNull(field, n)
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.problem(field, n, "a list of texts")
		return
	}
	for i, item := range n.Content {
		item = resolveAlias(item)
		name := fmt.Sprintf("%s[%d]", field, i)
		if isNull(item) {
			r.problem(name, item, "a text")
			continue
		}
		var s string
		r.text(name, item, &s)
		*into = append(*into, s)
	}
}

func (r *configReader) warnNull(field string, n *yaml.Node) {
	r.warn("%s: line %d: found null, read as empty; a Java host stops working with this document", field, n.Line)
}

func (r *configReader) props(field string, n *yaml.Node) {
	r.c.Props = nil
	if isNull(n) {
		r.warnNull(field, n)
		return
	}
	if n.Kind != yaml.MappingNode {
		r.problem(field, n, "a mapping of texts to texts")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolveAlias(n.Content[i]), resolveAlias(n.Content[i+1])
		if key.Kind != yaml.ScalarNode || isNull(key) {
			r.problem(field, key, "a key that is a text")
			continue
		}
		name, err := scalarText(key)
		if err != nil {
			r.problem(field, key, "a key that is a text")
			continue
		}
		if isPlain(key) && yamlKind(name) != kindText {
			if name == "<<" {
				r.problem(field, key, "the keys themselves, not a merge of mappings")
				continue
			}
			r.warn("%s.%s: line %d: not a text unless it is quoted; a Java host stops working with this document", field, name, key.Line)
		}
		full := field + "." + Clip(name)
		if value.Kind != yaml.ScalarNode || isNull(value) {
			r.problem(full, value, "a text or a number")
			continue
		}
		s, err := r.property(full, value)
		if err != nil {
			r.problem(full, value, "a text or a number")
			continue
		}
		if _, twice := r.c.Props[name]; twice {
			r.warn("%s: line %d: found twice; the later one counts", full, key.Line)
		}
		if r.c.Props == nil {
			r.c.Props = map[string]string{}
		}
		r.c.Props[name] = s
	}
}

// property returns the text that Java makes of a value of unknown type.
func (r *configReader) property(field string, n *yaml.Node) (string, error) {
	if !isPlain(n) {
		return scalarText(n)
	}
	switch yamlKind(n.Value) {
	case kindBool:
		return strconv.FormatBool(equalFoldAny(n.Value, "true", "yes", "on")), nil
	case kindInt:
		return yamlInteger(n.Value).String(), nil
	case kindFloat:
		return javaDouble(yamlDouble(n.Value)), nil
	case kindTime:
		r.warn("%s: line %d: found the time %s, kept as it is written; a Java host takes it for a date of its own zone", field, n.Line, n.Value)
	}
	return n.Value, nil
}

// extra keeps the text of the block of tracing configurations if it is formatted as Java writes it, and
// otherwise rewrites it.
func (r *configReader) extra(index int, n *yaml.Node) {
	r.c.ExtraConfigurations = ""
	if isNull(n) {
		r.warnNull(keyExtraConfigurations, n)
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.problem(keyExtraConfigurations, n, "a list")
		return
	}
	if len(n.Content) == 0 {
		return
	}
	lines := bytes.SplitAfter(r.data, []byte("\n"))
	first, last := r.root.Content[index].Line, len(lines)
	if index+2 < len(r.root.Content) {
		last = r.root.Content[index+2].Line - 1
	}
	if first <= last && last <= len(lines) {
		if text := strings.TrimRight(string(bytes.Join(lines[first:last], nil)), "\n") + "\n"; sameExtra(text, n) {
			r.c.ExtraConfigurations = text
			return
		}
	}
	block := *n
	block.Style &^= yaml.FlowStyle
	block.Anchor = ""
	if text, err := yaml.Marshal(&block); err == nil && sameExtra(string(text), n) {
		r.c.ExtraConfigurations = string(text)
		return
	}
	r.problem(keyExtraConfigurations, n, "a list that can be kept as it is (no aliases to other parts of the document)")
}

// sameExtra reports whether the text, put below its key again, yields the list.
func sameExtra(text string, n *yaml.Node) bool {
	if strings.TrimSpace(text) == "" {
		return false
	}
	root, err := parseYAML([]byte(keyExtraConfigurations + ":\n" + text))
	return err == nil && len(root.Content) == 2 && sameNode(root.Content[1], n, true)
}

func sameNode(a, b *yaml.Node, top bool) bool {
	if a.Kind != b.Kind || a.ShortTag() != b.ShortTag() || isPlain(a) != isPlain(b) ||
		a.Value != b.Value || (a.Anchor != b.Anchor && !top) || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameNode(a.Content[i], b.Content[i], false) {
			return false
		}
	}
	return true
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// isPlain reports whether a scalar has neither quotes nor a tag, so that its text decides its type.
func isPlain(n *yaml.Node) bool {
	const marked = yaml.TaggedStyle | yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Kind == yaml.ScalarNode && n.Style&marked == 0
}

// mayBe reports whether a scalar has no tag or this one.
func mayBe(n *yaml.Node, tag string) bool {
	return n.Kind == yaml.ScalarNode && (n.Style&yaml.TaggedStyle == 0 || n.ShortTag() == tag)
}

func isNull(n *yaml.Node) bool { return isPlain(n) && yamlKind(n.Value) == kindNull }

func scalarText(n *yaml.Node) (string, error) {
	if n.Style&yaml.TaggedStyle == 0 || n.ShortTag() != "!!binary" {
		return n.Value, nil
	}
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), ""))
	return strings.ToValidUTF8(string(b), "\uFFFD"), err
}

// describeNode describes a node for an error message.
func describeNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case isNull(n):
		return "nothing"
	}
	return strconv.Quote(Clip(n.Value))
}

// Clip shortens a text to 40 characters, for quoting in a message.
func Clip(s string) string {
	const limit = 40
	n := 0
	for i := range s {
		if n++; n > limit {
			return s[:i] + "…"
		}
	}
	return s
}

func equalFoldAny(s string, names ...string) bool {
	for _, w := range names {
		if strings.EqualFold(s, w) {
			return true
		}
	}
	return false
}

// yamlInteger is the value of a text of kindInt: YAML 1.1 knows bases 2, 8,
// 10, 16 and 60.
func yamlInteger(s string) *big.Int {
	s = strings.ReplaceAll(s, "_", "")
	digits := strings.TrimLeft(s, "+-")
	v := new(big.Int)
	switch {
	case strings.Contains(digits, ":"):
		for part := range strings.SplitSeq(digits, ":") {
			p, _ := new(big.Int).SetString(part, 10)
			v.Add(v.Mul(v, big.NewInt(60)), p)
		}
	case strings.HasPrefix(digits, "0b"):
		v.SetString(digits[2:], 2)
	case strings.HasPrefix(digits, "0x"):
		v.SetString(digits[2:], 16)
	case strings.HasPrefix(digits, "0"):
		v.SetString(digits, 8)
	default:
		v.SetString(digits, 10)
	}
	if strings.HasPrefix(s, "-") {
		v.Neg(v)
	}
	return v
}

// yamlDouble is the value of a text of kindFloat.
func yamlDouble(s string) float64 {
	s = strings.ReplaceAll(s, "_", "")
	digits := strings.TrimLeft(s, "+-")
	var v float64
	switch {
	case equalFoldAny(digits, ".nan"):
		return math.NaN()
	case equalFoldAny(digits, ".inf"):
		v = math.Inf(1)
	case strings.Contains(digits, ":"):
		for part := range strings.SplitSeq(digits, ":") {
			p, _ := strconv.ParseFloat(part, 64)
			v = v*60 + p
		}
	default:
		v, _ = strconv.ParseFloat(digits, 64) // infinite if out of range
	}
	if strings.HasPrefix(s, "-") {
		return -v
	}
	return v
}

// javaDouble formats as Java's Double.toString does.
func javaDouble(v float64) string {
	switch abs := math.Abs(v); {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case v == 0 || (1e-3 <= abs && abs < 1e7):
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}
