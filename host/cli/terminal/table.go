package terminal

import (
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// table aligns columns. A cell is text and its colour.
type table struct {
	style Style
	// Spare are the heads of columns that are left out if the table is too wide.
	Spare []string
	// Optional are the heads of columns that are left out if all their cells are empty. None is the last.
	Optional []string
	rows     [][]Cell
}

// Cell is text and its colour.
type Cell struct{ Text, Colour string }

// NewTable begins a table with the heads of its columns.
func NewTable(s Style, heads ...string) *table {
	row := make([]Cell, len(heads))
	for i, h := range heads {
		row[i] = Plain(h)
	}
	return &table{style: s, rows: [][]Cell{row}}
}

// Plain is a cell without a colour.
func Plain(text string) Cell { return Cell{Text: text} }

// Coloured is a cell in a colour.
func Coloured(text, colour string) Cell { return Cell{text, colour} }

// Add appends a row.
func (t *table) Add(cells ...Cell) { t.rows = append(t.rows, cells) }

// Empty reports whether there are only heads.
func (t *table) Empty() bool { return len(t.rows) <= 1 }

// leastLast is the least width of the last column when it is cut, leastWidth that of any column.
const leastLast, leastWidth = 10, 8

// fit returns the largest width of each column, 0 for no limit, so that a row fits the terminal. It first leaves out
// spare columns, then narrows the last column, which is prose, then the widest.
func (t *table) fit(widths []int) {
	over := func() int {
		total := -2
		for _, w := range widths {
			if w > 0 {
				total += w + 2
			}
		}
		return total - t.style.Width
	}
	if t.style.Width <= 0 || len(t.rows) == 0 {
		return
	}
	for i, head := range t.rows[0] {
		if over() > 0 && slices.Contains(t.Spare, head.Text) {
			widths[i] = 0
		}
	}
	last := len(widths) - 1
	if n := over(); n > 0 && widths[last] > leastLast {
		widths[last] = max(leastLast, widths[last]-n)
	}
	for over() > 0 {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= leastWidth {
			return // too narrow for any table
		}
		widths[widest]--
	}
}

// line returns the text on one line, because a line break in a cell could imitate a row.
func (c Cell) line() string {
	return strings.ReplaceAll(strings.ReplaceAll(words.Printable(c.Text), "\n", `\n`), "\t", `\t`)
}

func (t *table) String() string {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(c.line()))
		}
	}
	for i, head := range t.rows[0] {
		if slices.Contains(t.Optional, head.Text) && !slices.ContainsFunc(t.rows[1:], func(row []Cell) bool { return row[i].Text != "" }) {
			widths[i] = 0
		}
	}
	t.fit(widths)
	var b strings.Builder
	for n, row := range t.rows {
		var line strings.Builder
		for i, c := range row {
			if widths[i] == 0 {
				continue
			}
			text := Shorten(c.line(), widths[i])
			if i < len(row)-1 {
				text = Pad(text, widths[i]+2)
			}
			colour := c.Colour
			if n == 0 {
				colour = Grey
			}
			line.WriteString(t.style.Paint(colour, text))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Fact is a line with what is known of something.
func (s Style) Fact(what, text string) string { return s.FactCell(what, Plain(text)) }

// FactCell is Fact in a colour.
func (s Style) FactCell(what string, c Cell) string {
	return s.Paint(Grey, Pad(what, 9)) + "  " + s.Paint(c.Colour, s.printable(c.Text)) + "\n"
}

// printable escapes text that a terminal might interpret, except for the style's own commands. No other text can contain
// these, because they have the seal.
func (s Style) printable(text string) string {
	if s.Seal.mark == "" {
		return words.Printable(text)
	}
	start := s.Seal.order("")
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, start)
		b.WriteString(words.Printable(before))
		if !found {
			return b.String()
		}
		order, after, _ := strings.Cut(rest, "m")
		b.WriteString(start + words.Printable(order) + "m")
		text = after
	}
}

// Screen returns text on an empty screen: at most its number of lines, with the number of lines that were left out, and
// none wider than the screen.
func (s Style) Screen(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if most := s.Height - 1; most > 0 && len(lines) > most { // behind the last one stands the cursor
		more := len(lines) - most + 1
		lines = append(lines[:most-1], s.Paint(Grey, words.Count(more, "line")+" more: the terminal is too small"))
	}
	for i, line := range lines {
		if bare := s.bare(line); s.Width > 0 && Width(bare) > s.Width {
			lines[i] = Shorten(bare, s.Width)
		}
	}
	return s.Top() + strings.Join(lines, "\n") + "\n"
}

// Cut shortens text to the rest of a line that already has used columns.
func (s Style) Cut(text string, used int) string {
	if s.Width <= used+leastLast {
		return text
	}
	return Shorten(text, s.Width-used)
}

// Wrapped breaks lines between words where they are wider than the terminal;
// what follows is indented by four.
func (s Style) Wrapped(text string) string {
	if s.Width < 2*leastLast {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		column, space := 0, ""
		for n, word := range strings.Split(strings.TrimSuffix(line, "\n"), " ") {
			w := Width(s.bare(word))
			switch {
			case n > 0 && w > 0 && column > 4 && column+len(space)+1+w > s.Width:
				b.WriteString("\n    ")
				column, space = 4, ""
			case n > 0:
				space += " "
			}
			if w > 0 {
				b.WriteString(space + word)
				column += len(space) + w
				space = ""
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
