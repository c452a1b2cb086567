package sdk

import (
	"strings"
	"testing"
)

func TestHint(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"get: Connection refused":                              "guests have no sockets",
		"open /a: Bad file number":                             "(nothing is mounted at this path: the job is granted /out, /in, and a guest has no other files)",
		"x: stat /outer: No such file or directory, y":         "the job is granted /out, /in,",
		"rename /out/a /b: Read-only file system":              "nothing is mounted",
		"open /in/a: Read-only file system":                    " (/in is mounted to be read only: its grant has no write: true)",
		"open /in: Read-only file system":                      " (/in is mounted",
		"open /out/a: No such file or directory":               "",
		"open data/a: No such file or directory":               "",
		"No such file or directory":                            "",
		"open /a: no such file or directory":                   "", // another system's
		"open /a: Permission denied":                           "",
		"the server says: No such file or directory: /out/abc": "",
	} {
		got := hint(reason, func() []string { return []string{"/out", "/in"} })
		if !strings.Contains(got, want) || (want == "" && got != "") {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
	if got := hint("open /a: No such file or directory", func() []string { return []string{"/"} }); got != "" {
		t.Errorf("with a root: %q", got)
	}
}
