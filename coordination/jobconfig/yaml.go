package jobconfig

import (
	"cmp"
	"encoding/base64"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// YAML returns the configuration byte for byte as ElasticJob 3.0.5 would store it, except that properties are
// in ascending order where Java has its hash table's. Every switch and number is written, because Java's values
// for absent ones differ from the defaults of its builder; empty texts that Java reads as null are left out.
//
// Parse reads the document back for any configuration that passes Validate. Bytes that are not UTF-8, which no
// Java text can hold, become U+FFFD.
func (c Configuration) YAML() []byte {
	w := &snakeWriter{}
	for _, key := range documentKeys() {
		switch key {
		case keyThreadPool, keyThreadPoolBefore305:
			if key == cmp.Or(c.JobExecutorThreadPoolKey, keyThreadPool) && c.JobExecutorThreadPoolValue != "" {
				w.text(key, c.JobExecutorThreadPoolValue)
			}
		case keyExtraConfigurations:
			w.extra(c.ExtraConfigurations)
		case keyListeners:
			w.list(key, c.JobListenerTypes)
		case keyProps:
			w.props(c.Props)
		default:
			s, _ := keyed(key)
			w.setting(s, s.in(&c, nil))
		}
	}
	return []byte(w.b.String())
}

// documentKeys are all keys of ElasticJob's document, in its order.
func documentKeys() []string {
	keys := []string{keyThreadPool, keyThreadPoolBefore305, keyExtraConfigurations, keyListeners}
	for _, s := range settings {
		if s.Key != "" {
			keys = append(keys, s.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// The keys that are no settings: ElasticJob's thread pool, before 3.0.5 and since, its tracing block and its
// listeners, which are kept for Java hosts; and the properties.
const (
	keyListeners           = "jobListenerTypes"
	keyProps               = "props"
	keyThreadPoolBefore305 = "jobExecutorServiceHandlerType"
	keyThreadPool          = "jobExecutorThreadPoolSizeProviderType"
	keyExtraConfigurations = "jobExtraConfigurations"
)

// snakeWriter writes block YAML as SnakeYAML 2.2 does with its default options, which ElasticJob uses. Columns
// and lengths count UTF-16 units, as in Java.
type snakeWriter struct {
	b      strings.Builder
	column int
}

// snakeWidth is the column after which SnakeYAML breaks a line at a blank.
const snakeWidth = 80

func (w *snakeWriter) text(key, value string) {
	w.key(0, key)
	w.scalar(2, value)
	w.endLine()
}

func (w *snakeWriter) setting(s Setting, value any) {
	switch v := value.(type) {
	case *string:
		if *v != "" || !s.omitEmpty {
			w.text(s.Key, *v)
		}
	case *bool:
		w.bool(s.Key, *v)
	case *int:
		w.int(s.Key, *v)
	case **string:
		if *v != nil {
			w.text(s.Key, **v)
		}
	}
}

func (w *snakeWriter) extra(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	w.key(0, keyExtraConfigurations)
	w.newline()
	w.b.WriteString(strings.ToValidUTF8(text, "\uFFFD"))
	if !strings.HasSuffix(text, "\n") {
		w.newline()
	}
}

func (w *snakeWriter) list(key string, texts []string) {
	if len(texts) == 0 {
		return
	}
	w.key(0, key)
	w.newline()
	for _, text := range texts {
		w.raw("-")
		w.scalar(2, text)
		w.endLine()
	}
}

func (w *snakeWriter) props(props map[string]string) {
	if len(props) == 0 {
		return
	}
	w.key(0, keyProps)
	w.newline()
	for _, key := range slices.Sorted(maps.Keys(props)) {
		w.key(2, key)
		w.scalar(4, props[key])
		w.endLine()
	}
}

func (w *snakeWriter) bool(key string, value bool) {
	w.raw(key + ": " + strconv.FormatBool(value) + "\n")
}

func (w *snakeWriter) int(key string, value int) { w.raw(key + ": " + strconv.Itoa(value) + "\n") }

// raw writes s, which may contain line feeds.
func (w *snakeWriter) raw(s string) {
	w.b.WriteString(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		w.column = utf16Len(s[i+1:])
		return
	}
	w.column += utf16Len(s)
}

func (w *snakeWriter) newline() { w.raw("\n") }

// endLine ends a started line.
func (w *snakeWriter) endLine() {
	if w.column > 0 {
		w.newline()
	}
}

func (w *snakeWriter) wrap(indent int) { w.raw("\n" + strings.Repeat(" ", indent)) }

// key writes a key of a block mapping with its colon. A key that is empty, long or has several lines needs the
// form with the question mark.
func (w *snakeWriter) key(indent int, key string) {
	w.raw(strings.Repeat(" ", indent))
	content, tag := key, "!!str"
	if !printable(key) {
		content, tag = base64.StdEncoding.EncodeToString([]byte(key)), "!!binary"
	}
	if key != "" && !strings.ContainsAny(content, lineBreaks) && utf16Len(content)+len(tag) < 128 {
		w.scalarBody(indent+2, key, true)
		w.raw(":")
		return
	}
	w.raw("?")
	w.scalar(indent+2, key)
	w.endLine()
	w.raw(strings.Repeat(" ", indent) + ":")
}

// scalar writes a blank and then the text in SnakeYAML's style. Further lines begin at the indent.
func (w *snakeWriter) scalar(indent int, s string) {
	w.raw(" ")
	w.scalarBody(indent, s, false)
}

func (w *snakeWriter) scalarBody(indent int, s string, simpleKey bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if !printable(s) {
		w.raw("!!binary ")
		encoded := base64.StdEncoding.EncodeToString([]byte(s))
		if simpleKey {
			w.double(indent, encoded, false)
			return
		}
		w.literal(indent, encoded)
		return
	}
	switch {
	case strings.ContainsAny(s, lineBreaks):
		if literalAllowed(s) {
			w.literal(indent, s)
			return
		}
		w.double(indent, s, !simpleKey)
	case strings.ContainsAny(s, "\t\r"):
		w.double(indent, s, !simpleKey)
	case plainAllowed(s):
		w.words(indent, s, !simpleKey)
	default:
		w.raw("'")
		w.words(indent, strings.ReplaceAll(s, "'", "''"), !simpleKey)
		w.raw("'")
	}
}

// words writes a text of one line, and breaks it at single blanks, though not at its ends, once the width is
// passed.
func (w *snakeWriter) words(indent int, s string, split bool) {
	for i := 0; i < len(s); {
		n := strings.IndexByte(s[i:], ' ')
		if n < 0 {
			n = len(s) - i
		}
		w.raw(s[i : i+n])
		i += n
		blanks := len(s[i:]) - len(strings.TrimLeft(s[i:], " "))
		if blanks == 1 && split && w.column > snakeWidth && i > 0 && i+1 < len(s) {
			w.wrap(indent)
		} else {
			w.raw(s[i : i+blanks])
		}
		i += blanks
	}
}

// literal writes the text line by line, with a hint for blanks in front and
// for the line feeds at the end.
func (w *snakeWriter) literal(indent int, s string) {
	w.raw("|")
	if first, _ := utf8.DecodeRuneInString(s); first == ' ' || isLineBreak(first) {
		w.raw("2")
	}
	last, size := utf8.DecodeLastRuneInString(s)
	before, _ := utf8.DecodeLastRuneInString(s[:len(s)-size])
	switch {
	case !isLineBreak(last):
		w.raw("-")
	case size == len(s) || isLineBreak(before):
		w.raw("+")
	}
	w.newline()
	margin := strings.Repeat(" ", indent)
	lineStart := true
	for _, r := range s {
		if isLineBreak(r) {
			w.b.WriteRune(r)
			lineStart = true
			continue
		}
		if lineStart {
			w.b.WriteString(margin)
			lineStart = false
		}
		w.b.WriteRune(r)
	}
	w.column = 0
	if !lineStart {
		w.newline()
	}
}

// double writes a text with escapes. It breaks a line before a blank, or after an escape, where the line would
// pass the width.
func (w *snakeWriter) double(indent int, s string, split bool) {
	total := utf16Len(s)
	w.raw(`"`)
	var pending strings.Builder // plain characters not yet written
	unit := -1                  // the last UTF-16 unit of the current character
	for i, r := range s {
		size := utf16Len(string(r))
		unit += size
		escape, special := doubleEscapes[r]
		if !special && r > '~' {
			escape, special = string(r), true
		}
		length := pending.Len()
		rest := s[i:]
		if special {
			w.raw(pending.String() + escape)
			pending.Reset()
			length = -1 // SnakeYAML counts one ahead here
			rest = s[i+len(string(r)):]
		}
		mayBreak := special || r == ' ' || length == 0
		if split && mayBreak && 0 < unit && unit < total-1 && w.column+length > snakeWidth {
			w.raw(pending.String() + `\`)
			pending.Reset()
			w.wrap(indent)
			if strings.HasPrefix(rest, " ") {
				w.raw(`\`)
			}
		}
		if !special {
			pending.WriteRune(r)
		}
	}
	w.raw(pending.String() + `"`)
}

// doubleEscapes are the characters that a double-quoted text always escapes. A text with unprintable characters
// is written as binary instead.
var doubleEscapes = map[rune]string{
	'\t': `\t`, '\n': `\n`, '\r': `\r`, '"': `\"`, '\\': `\\`,
	'\u0085': `\N`, '\u00A0': `\_`, '\u2028': `\L`, '\u2029': `\P`,
}

const lineBreaks = "\n\u0085\u2028\u2029"

func isLineBreak(r rune) bool { return strings.ContainsRune(lineBreaks, r) }

// printable reports whether YAML 1.1 can hold the text as text.
func printable(s string) bool {
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r' || r == 0x85:
		case 0x20 <= r && r <= 0x7E:
		case 0xA0 <= r && r <= 0xFFFD, r >= 0x10000:
		default:
			return false
		}
	}
	return true
}

// literalAllowed reports whether a printable text of several lines may be written as a literal block.
func literalAllowed(s string) bool {
	if strings.HasSuffix(s, " ") || strings.ContainsAny(s, "\t\r") {
		return false
	}
	var before rune
	for _, r := range s {
		if isLineBreak(r) && before == ' ' {
			return false
		}
		before = r
	}
	return true
}

// plainAllowed reports whether a printable text of one line without tabs may be written without quotes.
func plainAllowed(s string) bool {
	if s == "" || looksTyped(s) || leadingZeros(s) {
		return false
	}
	if s[0] == ' ' || s[len(s)-1] == ' ' || strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...") {
		return false
	}
	if strings.IndexByte("#,[]{}&*!|>'\"%@`", s[0]) >= 0 {
		return false
	}
	if strings.IndexByte("?:-", s[0]) >= 0 && (len(s) == 1 || s[1] == ' ') {
		return false
	}
	return !strings.Contains(s[1:], ": ") && !strings.HasSuffix(s[1:], ":") && !strings.Contains(s, " #")
}

func leadingZeros(s string) bool {
	return len(s) > 1 && s[0] == '0' && strings.Trim(s, "0123456789_") == ""
}

// looksTyped reports whether an unquoted text would be read as something else
// than a text: as null, a boolean, a number, a date or the merge key of YAML
// 1.1. SnakeYAML does not look at very long ones.
func looksTyped(s string) bool { return yamlKind(s) != kindText }

type scalarKind uint8

const (
	kindText scalarKind = iota
	kindNull
	kindBool
	kindInt
	kindFloat
	kindTime
	kindMerge
)

// yamlKind says what an unquoted text means to SnakeYAML.
func yamlKind(s string) scalarKind {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return kindNull
	case "<<":
		return kindMerge
	case "yes", "Yes", "YES", "no", "No", "NO", "true", "True", "TRUE", "false", "False", "FALSE",
		"on", "On", "ON", "off", "Off", "OFF":
		return kindBool
	}
	switch {
	case len(s) > 1024 || strings.IndexByte("+-.0123456789", s[0]) < 0:
		return kindText
	case yamlInt.MatchString(s):
		return kindInt
	case yamlFloat.MatchString(s):
		return kindFloat
	case len(s) <= 50 && yamlTime.MatchString(s):
		return kindTime
	}
	return kindText
}

// The number and time forms of YAML 1.1, as SnakeYAML 2.2 reads them.
var (
	yamlInt = regexp.MustCompile(`^[-+]?(0b_*[01][01_]*|0_*[0-7][0-7_]*|0|[1-9][0-9_]*(:[0-5]?[0-9])*|0x_*[0-9a-fA-F][0-9a-fA-F_]*)$`)

	yamlFloat = regexp.MustCompile(`^([-+]?([0-9][0-9_]*(\.[0-9_]*([eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)|\.[0-9_]+([eE][-+]?[0-9]+)?|` +
		`[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|\.(inf|Inf|INF))|\.(nan|NaN|NAN))$`)

	yamlTime = regexp.MustCompile(`^\d{4}-(\d\d-\d\d|\d\d?-\d\d?([Tt]|[ \t]+)\d\d?:\d\d:\d\d(\.\d*)?([ \t]*(Z|[-+]\d\d?(:\d\d)?))?)$`)
)

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r >= 0x10000 {
			n++
		}
	}
	return n
}
