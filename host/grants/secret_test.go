package grants

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"plain": "geheim", "line": "geheim\n", "windows": "geheim\r\n", "two": "geheim\n\n", "empty": "\n",
		"most": strings.Repeat("x", MaxSecret) + "\n", "more": strings.Repeat("x", MaxSecret+1),
	} {
		write(t, at(name), text)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	link(t, "line", at("link"))
	t.Setenv("WASMJOB_TEST_SECRET", "geheim")
	for _, c := range []struct {
		secret      Secret
		value, want string
	}{
		{Secret{File: at("plain")}, "geheim", ""},
		{Secret{File: at("line")}, "geheim", ""},
		{Secret{File: at("windows")}, "geheim", ""},
		{Secret{File: at("two")}, "geheim\n", ""},
		{Secret{File: at("link")}, "geheim", ""},
		{Secret{File: at("most")}, strings.Repeat("x", MaxSecret), ""},
		{Secret{File: at("more")}, "", "its file has more than 65536 bytes"},
		{Secret{File: at("empty")}, "", "its file is empty"},
		{Secret{File: at("none")}, "", "its file cannot be read: it does not exist"},
		{Secret{File: at("pipe")}, "", "its file is no regular file"},
		{Secret{File: dir}, "", "is a directory"},
		{Secret{Env: "WASMJOB_TEST_SECRET"}, "geheim", ""},
		{Secret{Env: "WASMJOB_TEST_NONE"}, "", "the variable WASMJOB_TEST_NONE of the host is not set, or empty"},
		{Secret{}, "", "no place"},
	} {
		value, err := Resolve(c.secret)
		if value != c.value || (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %d bytes, %v", c.secret, len(value), err)
		}
	}
	if os.Getuid() != 0 {
		if err := os.Chmod(at("plain"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := Resolve(Secret{File: at("plain")}); err == nil {
			t.Error("a file that may not be read is read")
		}
	}
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	const secret = `s3cr3t/+ "ä"&`
	quoted, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	pem := "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAfalsefalsefalse\n-----END PRIVATE KEY-----\n"
	r := NewRedactor(map[string]string{"A": secret, "LONG": secret + " and more", "SHORT": "abc", "PEM": pem})
	for text, want := range map[string]string{
		"nothing":                    "nothing",
		"abc stays":                  "abc stays",
		"x" + secret + "y":           "x[secret A]y",
		secret + " and more":         "[secret LONG]",
		string(quoted):               `"[secret A]"`,
		url.QueryEscape(secret):      "[secret A]",
		"/" + url.PathEscape(secret): "/[secret A]",
		"key MC4CAQAwBQYDK2VwBCIEIAfalsefalsefalse": "key [secret PEM]",
		"-----BEGIN PRIVATE KEY-----":               "-----BEGIN PRIVATE KEY-----",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%s: %s, expected %s", text, got, want)
		}
	}
	// Whatever is before and after it in what is encoded.
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for before := range 5 {
			for after := range 5 {
				text := e.EncodeToString([]byte(strings.Repeat("u", before) + secret + strings.Repeat("v", after)))
				if got := r.Redact(text); !strings.Contains(got, "[secret A]") || len(got) > len("[secret A]")+16 {
					t.Errorf("%d before, %d after: %s of %s", before, after, got, text)
				}
			}
		}
	}
	if r := NewRedactor(map[string]string{"SHORT": "abc"}); r != nil || r.Redact("abc") != "abc" {
		t.Error("a redactor of nothing")
	}
}
