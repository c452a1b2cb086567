package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

func TestOperationsOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"sign in": {"sign in"}, "!sign,edit": {"!sign", "edit"}, "edit cron, timeZone": {"edit cron, timeZone"},
		"edit cron,timeZone, disable": {"edit cron, timeZone", "disable"}, "edit,sing": {"edit", "sing"},
		"pause,!resume": {"disable", "!enable"}, "drain,run": {"shutdown", "trigger"}, "!disable": {"!disable"},
	} {
		if got := operationsOf([]string{text}); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestNothingFound: that a job or a run is not there is said only if no host can have it yet, and
// never of what is followed or watched.
func TestNothingFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, found, fails, want string }{
		{"logs cities cities/t1/0", `{"records":[],"silent":["10.0.0.8: it has not answered within 1s"]}`, "", "what it knows is missing: 10.0.0.8"},
		{"logs cities cities/t1/0", `{"records":[],"next":"5.0.x"}`, "", "there are more: --after 5.0.x"},
		{"logs cities cities/t1/0", `{"records":[]}`, "no run", ""},
		{"logs new", `{"records":[]}`, `there is no job "new"`, ""},
		{"logs cities cities/t1/0 --follow", `{"records":[]}`, "", "a line"},
		{"logs cities/t1/0", `{"records":[]}`, "'wasmjob job logs cities cities/t1/0' shows its lines", ""},
		{"logs new --follow", `{"records":[]}`, "", "a line"},
		{"logs cities --follow -o json", `{"records":[{"time":"2026-03-01T10:00:00Z","message":"one"}],"next":"x"}`, "", "a line"},
		{"history new", `{"records":[]}`, `there is no job "new"`, ""},
		{"history new --watch", `{"records":[]}`, "", "no fires"},
		{"calendar new --watch", `{}`, "", "nothing fires"},
		{"list -o json", `{"records":[]}`, "", `"records": []`},
		{"explain new", `{"verdict":"no host","records":[],"silent":["10.0.0.8: no host runs there now"]}`, `no host that answers has a job "new"`, ""},
		{"explain cities", `{"verdict":"no host","records":[],"silent":["10.0.0.8: no host runs there now"]}`, "", ""},
		{"list --job new --watch", `{"records":[]}`, "", "no jobs"},
	} {
		t.Run(c.args+c.found, func(t *testing.T) {
			t.Parallel()
			host := http.NewServeMux()
			host.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, c.found) })
			host.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
			host.HandleFunc("/v1/registry/jobs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"name":"cities"}]`) })
			host.HandleFunc("/v1/run", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"status":404,"detail":"no run"}`)
			})
			host.HandleFunc("/v1/logs/stream", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				if r.FormValue("from") == "" {
					return
				}
				for _, line := range []string{`09:59:59Z","message":"older"`, `10:00:00Z","message":"one"`, `10:00:01Z","message":"a line"`} {
					fmt.Fprintf(w, "event: line\ndata: {\"time\":\"2026-03-01T%s}\n\n", line)
				}
			})
			out, errs, err := operated(t, host, c.want, strings.Fields(c.args)...)
			if (err == nil) != (c.fails == "") || (err != nil && !strings.Contains(err.Error(), c.fails)) || !strings.Contains(out, c.want) {
				t.Errorf("%v, want %q; shown, want %q:\n%s%s", err, c.fails, c.want, out, errs)
			}
			if strings.Contains(c.found, `"one"`) && (strings.Count(out, `"one"`) != 1 || strings.Contains(out, "older")) {
				t.Errorf("a line was shown twice, or one that was left out:\n%s", out)
			}
			if strings.Contains(c.found, "next") && strings.Contains(errs, "no lines") {
				t.Errorf("there are more, and it says %s", errs)
			}
		})
	}
}

// TestHostNotFound: that there is no such host is said if neither the list of hosts nor a history has it.
func TestHostNotFound(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	host.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("host") == "10.0.0.9" && r.URL.Path == "/v1/events" {
			fmt.Fprint(w, `{"records":[{"time":"2026-03-01T10:00:00Z","kind":"host.stopped","host":"10.0.0.9@-@7"}]}`)
			return
		}
		next := ""
		if r.FormValue("text") == "often" {
			next = "1.0."
		}
		fmt.Fprintf(w, `{"records":[],"next":%q}`, next)
	})
	host.HandleFunc("/v1/hosts", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"id":"new","name":"10.0.0.6","serverIp":"10.0.0.6"},{"id":"abc","name":"10.0.0.7:9771","serverIp":"10.0.0.7","report":{"status":{"instance":"10.0.0.7@-@4711-1f2e"}}}]`)
	})
	if shown, _, err := operated(t, host, "", "runs", "--host", "10.0.0.8", "--text", "often"); err != nil || !strings.Contains(shown, "there are more") {
		t.Errorf("not all is looked through: %v\n%s", err, shown)
	}
	for _, command := range []string{"history", "runs", "list"} {
		for name, known := range map[string]bool{"abc": true, "10.0.0.7:9771": true, "10.0.0.7": true, "10.0.0.7@-@4711": true, "10.0.0.9": true, "10.0.0.8": false, "10.0.0.7@-@4712": false} {
			shown, _, err := operated(t, host, "", command, "--host", name)
			if none := err != nil && err.Error() == `there is no host "`+name+`", and the histories have none; 'wasmjob host list' lists those that there are`; none == known || (err == nil) != known || (shown == "") == known {
				t.Errorf("%s --host %s: %v\n%s", command, name, err, shown)
			}
		}
	}
}

// operated is what a command shows that asks a host; it ends when it has shown want, empty: by itself.
func operated(t *testing.T, host http.Handler, want string, args ...string) (shown, said string, err error) {
	t.Helper()
	return operatedWith(t, host, nil, want, args...)
}

// operatedWith is operated with the signals that the command gets.
func operatedWith(t *testing.T, host http.Handler, signals chan os.Signal, want string, args ...string) (shown, said string, err error) {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("secret", 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(host)
	defer s.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	out := &until{words: want, then: end}
	var errs bytes.Buffer
	p := &command.Program{Out: out, Err: &errs, Notify: func() (<-chan os.Signal, func()) { return signals, func() {} }, RegistryFlags: func(flags *pflag.FlagSet) {
		for _, name := range []string{command.ConfigFlag, "registry", "zk", "namespace"} {
			flags.String(name, "", "")
		}
	}}
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(append(append(Look(p), Operate(p)...), Explain(p), command.Group("host", "", "", "", Hosts(p)...))...)
	root.SetArgs(append(args, "--admin", strings.TrimPrefix(s.URL, "http://"), "--token-file", token))
	err = root.ExecuteContext(ctx)
	return out.String(), errs.String(), err
}

// TestFollowed: lines that are followed are shown in one form, the oldest first, those of before as well.
func TestFollowed(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	host.HandleFunc("/v1/logs", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"records":[{"time":"2026-03-01T10:00:01Z","message":"two"},{"time":"2026-03-01T10:00:00Z","message":"one"}],"silent":["10.0.0.8: it has not answered within 1s"]}`)
	})
	host.HandleFunc("/v1/logs/stream", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range []string{`01Z","message":"two"`, `02Z","message":"three"`} {
			fmt.Fprintf(w, "event: line\ndata: {\"time\":\"2026-03-01T10:00:%s}\n\n", line)
		}
	})
	for form, line := range map[string]string{"json": `\{.*"message":"%s".*\}`, "yaml": `---\n(?:\w+: .*\n)*message: %s\n(?:\w+: .*\n)*?`} {
		want := ""
		for _, message := range []string{"one", "two", "three"} {
			want += strings.TrimSuffix(fmt.Sprintf(line, message), "\n") + "\n?"
		}
		shown, said, err := operated(t, host, "three", "logs", "cities", "--follow", "-o", form)
		if whole := regexp.MustCompile("^" + want + "$"); err != nil || !whole.MatchString(shown) || !strings.Contains(said, "10.0.0.8") {
			t.Errorf("%s: %v\n%s%s, want %s", form, err, shown, said, whole)
		}
	}
	for _, end := range []string{"--to", "--after"} {
		if _, _, err := operated(t, host, "", "logs", "cities", "--follow", end, "1m"); !errors.As(err, new(command.UsageError)) || !strings.Contains(err.Error(), end+" and --follow do not go together") {
			t.Errorf("%s: %v", end, err)
		}
	}
}

// TestFollowedRun: following the lines of a run ends soon after the run, with its last line.
func TestFollowedRun(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	looks := 0
	host := http.NewServeMux()
	host.HandleFunc("/v1/logs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"records":[]}`) })
	host.HandleFunc("/v1/runs", func(w http.ResponseWriter, r *http.Request) { // one at a time
		if looks++; r.FormValue("run") != "cities/t1/0" || looks < 3 {
			fmt.Fprint(w, `{"records":[{"id":"cities/t1/0"}]}`)
			return
		}
		fmt.Fprint(w, `{"records":[{"id":"cities/t1/0","ended":"2026-03-01T10:00:02Z"}]}`)
		close(ended)
	})
	host.HandleFunc("/v1/logs/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		<-ended
		fmt.Fprint(w, "event: line\ndata: {\"time\":\"2026-03-01T10:00:01Z\",\"message\":\"the last\"}\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	shown, _, err := operated(t, host, "", "logs", "cities", "cities/t1/0", "--follow")
	if err != nil || !strings.Contains(shown, "the last") || looks != 3 {
		t.Errorf("%v, after %d looks:\n%s", err, looks, shown)
	}
}

// until calls then when the words were written.
type until struct {
	bytes.Buffer
	words string
	then  func()
}

func (u *until) Write(b []byte) (int, error) {
	n, err := u.Buffer.Write(b)
	if u.words != "" && strings.Contains(u.String(), u.words) {
		u.then()
	}
	return n, err
}
