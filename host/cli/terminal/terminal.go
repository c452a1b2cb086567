package terminal

import (
	"crypto/rand"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Seal distinguishes terminal commands of this program, such as colours, from those in foreign text. Styles put the seal
// into each command; a [Terminal] with the same seal executes these commands and no others. A seal is random and never
// leaves the program, so that others cannot know it.
type Seal struct{ mark string }

// NewSeal makes a seal.
func NewSeal() Seal { return Seal{rand.Text()} }

const escape = '\x1b'

// order returns a terminal command; text is the part after ESC [.
func (s Seal) order(text string) string { return string(escape) + s.mark + "[" + text }

// orders are all commands that styles use: colours, the end of a colour, and clearing the screen.
var orders = [...]string{Red + "m", Green + "m", Yellow + "m", cyan + "m", Grey + "m", Bold + "m", "0m", "H", "2J"}

// Terminal writes to a stream of the process: a terminal, or a file that may be shown on one later. It passes text on,
// and escapes, as [words.Escaped] does, what a terminal might execute or reorder: control characters except line breaks
// and tabs, characters that change the direction of text, and invalid UTF-8. Escaped JSON has the same value. It executes
// commands of styles with its seal.
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

// Flush writes what was held. It does not wait for a write in progress: a halted terminal must not keep the process from
// ending.
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

// next writes the beginning of the text, and returns how many bytes that is. It returns false if that depends on later
// bytes.
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
