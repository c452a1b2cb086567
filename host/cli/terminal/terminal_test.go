package terminal

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// terminal writes texts to a terminal, and returns what arrives.
func terminal(t *testing.T, seal Seal, texts ...string) string {
	t.Helper()
	var out bytes.Buffer
	w := NewTerminal(&out, seal)
	for _, text := range texts {
		if n, err := io.WriteString(w, text); n != len(text) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	seal := NewSeal()
	for text, want := range map[string]string{
		"":                      "",
		"plain äöü 城市 😀\t\n":    "plain äöü 城市 😀\t\n",
		"two\u00a0words\u3000x": "two\u00a0words\u3000x",
		"\x1b[31mred\x1b[0m":    `\x1b[31mred\x1b[0m`,
		"\x1b]0;TITLE\x07":      `\x1b]0;TITLE\a`,
		"a\rb\bc\x00":           `a\rb\bc\x00`,
		"\x7f\u009b31m\u0085":   `\u007f\u009b31m\u0085`,
		"\u202eevil\u202c\u2066x\u2069\u200f\ufeff\u2028": `\u202eevil\u202c\u2066x\u2069\u200f\ufeff\u2028`,
		"\U000e0041":             `\udb40\udc41`,
		"\xff\xc3(\xe5\x9f":      `\ufffd\ufffd(\ufffd\ufffd`,
		"\x9b31m":                `\ufffd31m`,
		"\x1b" + seal.mark + "]": `\x1b` + seal.mark + "]",
		"\x1b":                   `\x1b`,
	} {
		if got := terminal(t, seal, text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		if got := words.Printable(text); !strings.Contains(text, "\x1b"+seal.mark) && got != terminal(t, Seal{}, text) {
			t.Errorf("%q is %q elsewhere", text, got)
		}
	}
	// Colours arrive, with others' text in them.
	s := Style{Colour: true, Seal: seal}
	for _, colour := range []string{Red, Green, Yellow, cyan, Grey, Bold} {
		if got := terminal(t, seal, s.Paint(colour, "a\x1b[2J")); got != "\x1b["+colour+`ma\x1b[2J`+"\x1b[0m" {
			t.Errorf("in colour %s: %q", colour, got)
		}
		if got := terminal(t, NewSeal(), s.Paint(colour, "a")); strings.Contains(got, "\x1b") {
			t.Errorf("with another seal: %q", got)
		}
	}
	if got := terminal(t, seal, s.Top()); got != "\x1b[H\x1b[2J" {
		t.Errorf("the top is %q", got)
	}
	if got := (Style{Colour: true}).Paint(Red, "a"); got != "\x1b[31ma\x1b[0m" || terminal(t, Seal{}, got) != `\x1b[31ma\x1b[0m` {
		t.Errorf("without a seal: %q", got)
	}
}

// TestTerminalInPieces: it does not matter where a text is cut into writes, and only what cannot be decided waits.
func TestTerminalInPieces(t *testing.T) {
	t.Parallel()
	seal := NewSeal()
	text := "a城" + Style{Colour: true, Seal: seal}.Paint(Red, "é\x1b[31m") + "\x1b\x1b" + seal.mark[:5] + "😀\xff\xe5\x9f"
	whole := terminal(t, seal, text)
	for i := range len(text) {
		if got := terminal(t, seal, text[:i], text[i:]); got != whole {
			t.Errorf("cut at %d: %q, want %q", i, got, whole)
		}
	}
	if got := terminal(t, seal, strings.Split(text, "")...); got != whole {
		t.Errorf("byte for byte: %q", got)
	}
	var out bytes.Buffer
	w := NewTerminal(&out, seal)
	_, _ = io.WriteString(w, "prompt: ")
	if out.String() != "prompt: " {
		t.Errorf("a prompt waits: %q", out.String())
	}
}

func TestTerminalReportsErrors(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	_ = r.CloseWithError(errors.New("gone"))
	if n, err := NewTerminal(w, Seal{}).Write([]byte("a")); n != 0 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestTerminalThatIsHalted: the end of a process does not wait for a stream that takes nothing.
func TestTerminalThatIsHalted(t *testing.T) {
	t.Parallel()
	r, out := io.Pipe()
	w := NewTerminal(out, Seal{})
	written := make(chan error)
	go func() {
		_, err := io.WriteString(w, "ab")
		written <- err
	}()
	first := make([]byte, 1)
	if _, err := io.ReadFull(r, first); err != nil { // the write goes on, and nobody reads the rest
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	_ = r.Close()
	<-written
}

func TestTerminalOfMany(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := NewTerminal(&out, NewSeal())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				_, _ = io.WriteString(w, "城市\x1b\n")
			}
		})
	}
	all.Wait()
	if out.String() != strings.Repeat("城市\\x1b\n", 800) {
		t.Error("lines are mixed")
	}
}

// FuzzTerminal: nothing but text arrives, once more it arrives as it is, and JSON keeps its value.
func FuzzTerminal(f *testing.F) {
	f.Add("a\x1b[31m\u202e\x9b\r\n", 3)
	f.Add("城\xe5", 1)
	f.Fuzz(func(t *testing.T, text string, at int) {
		at = min(max(at, 0), len(text))
		seal := NewSeal()
		got := terminal(t, seal, text[:at], text[at:])
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !words.Harmless(r) }) {
			t.Errorf("%q arrives as %q", text, got)
		}
		if terminal(t, seal, got) != got {
			t.Errorf("%q is not left alone", got)
		}
		document, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if err := errors.Join(json.Unmarshal(document, &before), json.Unmarshal([]byte(terminal(t, seal, string(document))), &after)); err != nil || before != after {
			t.Errorf("%s: %q became %q, %v", document, before, after, err)
		}
	})
}

// TestWrappedPainted: the orders of a colour take no room.
func TestWrappedPainted(t *testing.T) {
	t.Parallel()
	seal := NewSeal()
	s := Style{Colour: true, Width: 24, Seal: seal}
	text := "one " + s.Paint(Red, "two") + " three four five six\n"
	plain := Style{Width: 24}.Wrapped("one two three four five six\n")
	if got := terminal(t, Seal{}, s.bare(s.Wrapped(text))); got != plain {
		t.Errorf("%q, want %q", got, plain)
	}
}
