package grants

import (
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
