package password

import (
	"strings"
	"testing"
)

func TestHash(t *testing.T) {
	t.Parallel()
	h, err := New("correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	other, err := New("correct horse battery")
	if err != nil || other.String() == h.String() {
		t.Errorf("two hashes of one password are the same: %v", err)
	}
	read, err := Parse(h.String())
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"correct horse battery": true, "correct horse batterx": false, "": false, strings.Repeat("x", MaxLength+1): false} {
		if got := read.Verify(text); got != want {
			t.Errorf("%.30q: %t", text, got)
		}
	}
	if (Hash{}).Verify("") || !(Hash{}).Zero() || h.Zero() {
		t.Error("the zero hash has a password")
	}
	for _, bad := range []string{"", "short", "eleven char", strings.Repeat("x", MaxLength+1)} {
		if _, err := New(bad); err == nil {
			t.Errorf("%.20q is taken", bad)
		}
	}
	if _, err := New("пароль из слов"); err != nil {
		t.Errorf("characters are counted as bytes: %v", err)
	}
}

// TestAnotherProgram: a hash that Debian's argon2 has written:
// echo -n 'correct horse battery' | argon2 somesaltsomesalt -id -m 13 -t 3 -p 2
func TestAnotherProgram(t *testing.T) {
	t.Parallel()
	h, err := Parse("$argon2id$v=19$m=8192,t=3,p=2$c29tZXNhbHRzb21lc2FsdA$etgolg4vfhDEDIyIF7HJpZSBhNAa2kIdZWuGHd6Ow+A")
	if err != nil || !h.Verify("correct horse battery") || h.Verify("correct horse batterx") {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const salt, sum = "c29tZXNhbHRzb21lc2FsdA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	good := "$argon2id$v=19$m=32768,t=2,p=1$" + salt + "$" + sum
	if _, err := Parse(good); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", "secret", "$2y$10$abc", strings.Replace(good, "argon2id", "argon2i", 1), strings.Replace(good, "v=19", "v=16", 1),
		strings.Replace(good, "m=32768", "m=4294967295", 1), strings.Replace(good, "m=32768", "m=1", 1), strings.Replace(good, "t=2", "t=0", 1),
		strings.Replace(good, "t=2", "t=1000000", 1), strings.Replace(good, "p=1", "p=256", 1), strings.Replace(good, "p=1", "p=0", 1),
		strings.Replace(good, salt, "", 1), strings.Replace(good, sum, "AAAA", 1), strings.Replace(good, "m=", "t=", 1), good + "$", good + "=",
	} {
		_, err := Parse(bad)
		if err == nil {
			t.Errorf("%q is taken", bad)
		} else if strings.Contains(err.Error(), salt) || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the hash: %v", err)
		}
	}
}
