package yamlnode

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	roots, err := Decode([]byte("a: 1\n---\n\n---\n- x\n---\nb: [\n"))
	if err == nil || len(roots) != 3 || Form(roots[0]) != "a mapping" || !IsNull(roots[1]) || Form(roots[2]) != "a list" || roots[2].Line != 5 {
		t.Errorf("%d documents before the broken one, %v", len(roots), err)
	}
	if line, message := Syntax(err); line != 7 || !strings.HasPrefix(message, "did not find") {
		t.Errorf("line %d: %s", line, message)
	}
	_, err = Decode([]byte("a: *b\n"))
	if line, message := Syntax(err); line != 0 || message != "unknown anchor 'b' referenced" {
		t.Errorf("line %d: %s", line, message)
	}
	if roots, err := Decode(nil); len(roots) != 0 || err != nil {
		t.Errorf("%d documents in nothing, %v", len(roots), err)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"~": "nothing", "null": "nothing", `"null"`: `"null"`, "!!str null": `"null"`, "[a]": "a list", "{a: b}": "a mapping", "12": `"12"`, "|\n  a": `"a"`,
		strings.Repeat("x", 100): `"` + strings.Repeat("x", 40) + `…"`,
	} {
		roots, err := Decode([]byte(text))
		if err != nil || len(roots) != 1 {
			t.Fatalf("%s: %d documents, %v", text, len(roots), err)
		}
		if got := Describe(roots[0]); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestExplain: of a tab that indents, the place and the mistake are named.
func TestExplain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		line, column int
		tab          bool
	}{
		"a: 1\nb:\n\tc: 1\n":    {3, 1, true},
		"a:\n  \tb: 1\n":        {2, 3, true},
		"a: 1\nb: @c\nd: \t1\n": {2, 1, false},
		"a: [":                  {1, 1, false},
	} {
		_, err := Decode([]byte(text))
		if err == nil {
			t.Errorf("%q is taken", text)
			continue
		}
		line, column, message := Explain([]byte(text), err)
		if line != want.line || column != want.column || strings.HasSuffix(message, ": "+NoTab) != want.tab {
			t.Errorf("%q: %d:%d %s", text, line, column, message)
		}
	}
}
