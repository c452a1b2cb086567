package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestMayRestart: scripts go by the exit code, people by what it rests on.
func TestMayRestart(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	host.HandleFunc("GET /v1/hosts/restart", func(w http.ResponseWriter, r *http.Request) {
		switch name := r.FormValue("host"); name {
		case "nowhere":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"detail":"there is no host \"nowhere\""}`)
		case "no":
			fmt.Fprint(w, `{"host":"no","answer":"no","runs":[{"job":"pay","item":3,"since":"2026-03-01T10:00:00Z"}],"only":[{"job":"etl","why":["b: disabled"]},{"job":"x","why":[]}],"slots":4,"free":1,"needed":1}`)
		case "unknown":
			fmt.Fprint(w, `{"host":"unknown","answer":"unknown","unknown":["host b does not answer: no"]}`)
		default:
			fmt.Fprintf(w, `{"host":"a%s","answer":"yes","slots":4,"free":4}`, name)
		}
	})
	for name, c := range map[string]struct {
		exit command.Exit
		want []string
	}{
		"":        {0, []string{"yes: host a\n  capacity  4 of 4 slots on other hosts are free; 0 items run or wait here\n"}},
		"no":      {command.ExitNo, []string{"no: host no\n  runs      pay, item 3, for ", "  only here etl (b: disabled)\n  only here x (there is no other host)\n  capacity  1 of 4 slots"}},
		"unknown": {command.ExitUnknown, []string{"unknown: host unknown\n", "  unknown   host b does not answer: no\n"}},
	} {
		shown, _, err := operated(t, host, "", append([]string{"host", "may-restart"}, strings.Fields(name)...)...)
		var exit command.Exit
		if errors.As(err, &exit); (err != nil) != (exit != 0) || exit != c.exit {
			t.Errorf("%q: %v", name, err)
		}
		for _, text := range c.want {
			if !strings.Contains(shown, text) {
				t.Errorf("%q: %q is not in\n%s", name, text, shown)
			}
		}
	}
	if _, _, err := operated(t, host, "", "host", "may-restart", "nowhere"); err == nil || !strings.Contains(err.Error(), `there is no host "nowhere"`) {
		t.Error(err)
	}
	for args, want := range map[string]string{"a b": `unexpected argument "b"`, "-o xml": `found "xml", expected table, json or yaml`} {
		if _, _, err := operated(t, host, "", append([]string{"host", "may-restart"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
