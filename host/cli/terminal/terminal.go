package terminal

import (
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Seal distinguishes the orders to a terminal that this program gives, such as colours, from those that stand in
// somebody's text. Styles put it into each order, and a [Terminal] of the same seal carries out those orders and no
// others. Nobody else knows it: it is random, and leaves the program nowhere.
type Seal struct{ mark string }

// NewSeal makes a seal.
func NewSeal() Seal { return Seal{rand.Text()} }

const escape = '\x1b'

// order writes an order, which is what follows ESC [ in it.
func (s Seal) order(text string) string { return string(escape) + s.mark + "[" + text }

// orders are all that are given: colours, the end of one, and to begin at the top of an empty screen.
var orders = [...]string{Red + "m", Green + "m", Yellow + "m", cyan + "m", Grey + "m", Bold + "m", "0m", "H", "2J"}

// Terminal is the writer to a stream of the process, a terminal or what may be shown on one later. Text passes; what
// a terminal might obey, or show in another order than it stands there, is shown escaped, as [words.Escaped] does:
// control characters but line breaks and tabs, characters that turn the direction of text, and what is no UTF-8. Of
// JSON the escaped form has the same value. The orders of styles with its seal are carried out.
//
// A character may come in several writes: its beginning is held until the rest comes, or Flush is called. It is safe
// for concurrent use.
type Terminal struct {
	seal Seal

	mu   sync.Mutex
	out  io.Writer
	held []byte
}

// NewTerminal returns a writer to a stream.
func NewTerminal(out io.Writer, seal Seal) *Terminal { return &Terminal{out: out, seal: seal} }

// Write implements [io.Writer].
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes what was held. It does not wait for a write that goes on: a terminal that is halted must not keep the
// process from its end.
func (t *Terminal) Flush() error {
	if !t.mu.TryLock() {
		return nil
	}
	defer t.mu.Unlock()
	return t.write(nil, true)
}

func (t *Terminal) write(p []byte, last bool) error {
	text := append(t.held, p...)
	t.held = nil
	var b strings.Builder
	b.Grow(len(text))
	for len(text) > 0 {
		n, ok := t.next(&b, text, last)
		if !ok {
			t.held = append([]byte(nil), text...)
			break
		}
		text = text[n:]
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(t.out, b.String())
	return err
}

// next writes what the text begins with, and returns how many bytes that is. It reports false if that depends on
// what follows.
func (t *Terminal) next(b *strings.Builder, text []byte, last bool) (n int, ok bool) {
	for n < len(text) && isPlain(text[n]) {
		n++
	}
	if n > 0 {
		b.Write(text[:n])
		return n, true
	}
	if text[0] == escape && t.seal.mark != "" {
		for _, order := range orders {
			sealed := t.seal.order(order)
			switch {
			case strings.HasPrefix(string(text[:min(len(text), len(sealed))]), sealed):
				b.WriteString(string(escape) + "[" + order)
				return len(sealed), true
			case !last && strings.HasPrefix(sealed, string(text[:min(len(text), len(sealed))])):
				return 0, false
			}
		}
	}
	if !last && !utf8.FullRune(text) {
		return 0, false
	}
	r, n := utf8.DecodeRune(text)
	if words.Harmless(r) {
		b.Write(text[:n])
	} else {
		b.WriteString(words.Escaped(r))
	}
	return n, true
}

func isPlain(c byte) bool { return (' ' <= c && c < 0x7F) || c == '\n' || c == '\t' }

// bare is text without the orders of the style.
func (s Style) bare(text string) string {
	start := s.Seal.order("")
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, start)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, text, _ = strings.Cut(rest, "m")
	}
}
