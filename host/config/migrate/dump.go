package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// Table is what a table of a database holds, as text.
type Table struct {
	Columns []string
	Rows    [][]string
}

// all yields the rows: each returns its value in a column, by lower-case name; empty for NULL, and for a column
// that the table does not have.
func (t Table) all() iter.Seq[func(column string) string] {
	at := make(map[string]int, len(t.Columns))
	for n, c := range t.Columns {
		at[strings.ToLower(c)] = n
	}
	return func(yield func(func(string) string) bool) {
		for _, row := range t.Rows {
			if !yield(func(column string) string {
				if n, ok := at[column]; ok && n < len(row) {
					return row[n]
				}
				return ""
			}) {
				return
			}
		}
	}
}

// mostRows is the most rows that are read of a dump.
const mostRows = 200_000

// Dump reads the tables of an SQL dump: the INSERTs of mysqldump, with the columns of its CREATE TABLE or their
// own, and the COPYs of pg_dump. It skips other statements. NULL becomes an empty text, and so does a value
// that is no literal.
func Dump(text []byte) (map[string]Table, error) {
	d := &dump{text: text, tables: make(map[string]Table)}
	for {
		word := d.word()
		if word == "" {
			if len(d.tables) == 0 {
				return nil, errors.New("found no INSERT and no COPY, expected a dump of tables in SQL")
			}
			return d.tables, nil
		}
		var err error
		switch strings.ToUpper(word) {
		case "CREATE":
			err = d.create()
		case "INSERT", "REPLACE":
			err = d.insert()
		case "COPY":
			err = d.copy()
		case ";":
		default:
			d.statement()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", 1+bytes.Count(text[:d.at], []byte("\n")), err)
		}
		if d.rows > mostRows {
			return nil, fmt.Errorf("more than %d rows: dump the tables of jobs and triggers alone", mostRows)
		}
	}
}

// dump is a text that is being read.
type dump struct {
	text   []byte
	at     int
	rows   int
	tables map[string]Table
}

// space passes over blanks and comments.
func (d *dump) space() {
	for d.at < len(d.text) {
		rest := d.text[d.at:]
		switch {
		case strings.ContainsRune(" \t\r\n", rune(rest[0])):
			d.at++
		case bytes.HasPrefix(rest, []byte("--")) || rest[0] == '#':
			d.line()
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest, []byte("*/"))
			if end < 0 {
				d.at = len(d.text)
				return
			}
			d.at += end + 2
		default:
			return
		}
	}
}

// line passes over the rest of the line, and returns it.
func (d *dump) line() string {
	rest := d.text[d.at:]
	end := bytes.IndexByte(rest, '\n')
	if end < 0 {
		d.at = len(d.text)
		return string(rest)
	}
	d.at += end + 1
	return strings.TrimSuffix(string(rest[:end]), "\r")
}

// word is the next word, name or sign; empty at the end. A quoted name is without its quotes
// and without a schema.
func (d *dump) word() string {
	d.space()
	if d.at >= len(d.text) {
		return ""
	}
	switch c := d.text[d.at]; {
	case c == '`' || c == '"':
		end := bytes.IndexByte(d.text[d.at+1:], c)
		if end < 0 {
			d.at = len(d.text)
			return ""
		}
		name := string(d.text[d.at+1 : d.at+1+end])
		d.at += end + 2
		return name
	case isWord(c):
		begin := d.at
		for d.at < len(d.text) && (isWord(d.text[d.at]) || d.text[d.at] == '$') {
			d.at++
		}
		return string(d.text[begin:d.at])
	default:
		d.at++
		return string(c)
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// peek is the next word, which stays.
func (d *dump) peek() string {
	at := d.at
	word := d.word()
	d.at = at
	return word
}

// name is a table's, without its schema.
func (d *dump) name() string {
	name := d.word()
	for d.peek() == "." {
		d.word()
		name = d.word()
	}
	return name
}

// statement passes over the rest of a statement.
func (d *dump) statement() {
	for {
		d.space()
		if d.at < len(d.text) && d.text[d.at] == '\'' {
			d.literal()
			continue
		}
		if w := d.word(); w == ";" || w == "" {
			return
		}
	}
}

// create reads the columns of CREATE TABLE.
func (d *dump) create() error {
	for strings.ToUpper(d.peek()) != "TABLE" {
		if w := d.peek(); w == ";" || w == "" {
			d.statement()
			return nil
		}
		d.word()
	}
	d.word()
	for _, w := range []string{"IF", "NOT", "EXISTS"} {
		if strings.EqualFold(d.peek(), w) {
			d.word()
		}
	}
	name := d.name()
	if d.peek() != "(" {
		d.statement()
		return nil
	}
	d.word()
	var columns []string
	for {
		d.space()
		quoted := d.at < len(d.text) && (d.text[d.at] == '`' || d.text[d.at] == '"')
		word := d.word()
		switch strings.ToUpper(word) {
		case "PRIMARY", "KEY", "UNIQUE", "CONSTRAINT", "INDEX", "FOREIGN", "FULLTEXT", "CHECK":
			if quoted {
				columns = append(columns, word)
			}
		default:
			columns = append(columns, word)
		}
		for depth := 0; ; { // to the comma behind the column
			d.space()
			if d.at < len(d.text) && d.text[d.at] == '\'' {
				d.literal()
				continue
			}
			switch d.word() {
			case "":
				return errors.New("CREATE TABLE has no end")
			case "(":
				depth++
				continue
			case ")":
				if depth--; depth < 0 {
					d.tables[name] = Table{Columns: columns, Rows: d.tables[name].Rows}
					d.statement()
					return nil
				}
				continue
			case ",":
				if depth > 0 {
					continue
				}
			default:
				continue
			}
			break
		}
	}
}

// columns reads a list of names, if there is one.
func (d *dump) columns() []string {
	if d.peek() != "(" {
		return nil
	}
	d.word()
	var list []string
	for {
		switch w := d.word(); w {
		case ")", "":
			return list
		case ",":
		default:
			list = append(list, w)
		}
	}
}

func (d *dump) insert() error {
	for !strings.EqualFold(d.peek(), "INTO") {
		if w := d.word(); w == ";" || w == "" {
			return errors.New("INSERT without INTO")
		}
	}
	d.word()
	name := d.name()
	t := d.tables[name]
	if columns := d.columns(); columns != nil {
		t.Columns = columns
	}
	if t.Columns == nil {
		return fmt.Errorf("INSERT INTO %s: found no names of columns, and no CREATE TABLE before", name)
	}
	if !strings.EqualFold(d.peek(), "VALUES") && !strings.EqualFold(d.peek(), "VALUE") {
		d.statement()
		return nil
	}
	d.word()
	for {
		if w := d.word(); w != "(" {
			return fmt.Errorf("INSERT INTO %s: found %q, expected a row in parentheses", name, w)
		}
		row, err := d.row()
		if err != nil {
			return fmt.Errorf("INSERT INTO %s: %w", name, err)
		}
		t.Rows = append(t.Rows, row)
		if d.rows++; d.rows > mostRows {
			return nil
		}
		switch w := d.word(); w {
		case ",":
		default:
			d.tables[name] = t
			if w != ";" && w != "" {
				d.statement()
			}
			return nil
		}
	}
}

// row reads values up to the closing parenthesis.
func (d *dump) row() ([]string, error) {
	var row []string
	value, literal := "", false
	for depth := 0; ; {
		d.space()
		if d.at >= len(d.text) {
			return nil, errors.New("a row has no end")
		}
		if d.text[d.at] == '\'' {
			value, literal = d.literal(), true
			continue
		}
		switch w := d.word(); {
		case w == "(":
			depth++
		case w == ")" && depth > 0:
			depth--
		case (w == "," || w == ")") && depth == 0:
			if !literal && strings.EqualFold(value, "NULL") {
				value = ""
			}
			row = append(row, value)
			value, literal = "", false
			if w == ")" {
				return row, nil
			}
		case strings.HasPrefix(w, "_") && !literal: // _binary '...'
		case !literal:
			value += w
		}
	}
}

// literal reads a text in quotes.
func (d *dump) literal() string {
	escapes := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '0': 0, 'b': '\b', 'Z': 26}
	var b strings.Builder
	for d.at++; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '\\' && d.at+1 < len(d.text):
			d.at++
			if e, ok := escapes[d.text[d.at]]; ok {
				b.WriteByte(e)
			} else {
				b.WriteByte(d.text[d.at])
			}
		case c == '\'' && d.at+1 < len(d.text) && d.text[d.at+1] == '\'':
			b.WriteByte('\'')
			d.at++
		case c == '\'':
			d.at++
			return b.String()
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// copy reads the rows of pg_dump.
func (d *dump) copy() error {
	name := d.name()
	columns := d.columns()
	if columns == nil {
		columns = d.tables[name].Columns
	}
	if columns == nil {
		return fmt.Errorf("COPY %s: found no names of columns, and no CREATE TABLE before", name)
	}
	if rest := strings.ToUpper(d.line()); !strings.Contains(rest, "FROM STDIN") {
		return nil
	}
	t := Table{Columns: columns, Rows: d.tables[name].Rows}
	unescape := strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\N`, "")
	for d.at < len(d.text) {
		line := d.line()
		if line == `\.` {
			break
		}
		row := strings.Split(line, "\t")
		for n, value := range row {
			row[n] = unescape.Replace(value)
		}
		t.Rows = append(t.Rows, row)
		if d.rows++; d.rows > mostRows {
			return nil
		}
	}
	d.tables[name] = t
	return nil
}
