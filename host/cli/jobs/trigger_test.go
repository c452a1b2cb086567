package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// triggering is a host that triggers the job cities as number 7, and says in turn what became of its items; the
// last of these again and again.
type triggering struct {
	*http.ServeMux
	triggers, looks atomic.Int64
	keys            []string
	made            string        // what the trigger becomes
	idle            chan struct{} // closed when it has nothing more to say
}

func newTriggering(history string, answers ...string) *triggering {
	h := &triggering{ServeMux: http.NewServeMux(), idle: make(chan struct{}), made: `{"trigger":7}`}
	var idle sync.Once
	h.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":{"started":"2026-03-01T10:00:00Z"}%s}`, history)
	})
	h.HandleFunc("POST /v1/jobs/cities/trigger", func(w http.ResponseWriter, r *http.Request) {
		h.triggers.Add(1)
		h.keys = append(h.keys, r.Header.Get("Idempotency-Key"))
		fmt.Fprint(w, h.made)
	})
	h.HandleFunc("GET /v1/jobs/cities/explain", func(w http.ResponseWriter, r *http.Request) {
		n := int(h.looks.Add(1)) - 1
		if r.FormValue("trigger") != "7" || r.FormValue("wait") != "10s" {
			http.Error(w, r.URL.RawQuery, http.StatusTeapot)
			return
		}
		answer := answers[min(n, len(answers)-1)]
		if answer == "" {
			panic(http.ErrAbortHandler)
		}
		if n >= len(answers) {
			idle.Do(func() { close(h.idle) })
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, answer)
	})
	return h
}

const keeps = `,"history":{"file":"h.jsonl"}`

func answerOf(verdicts ...string) string {
	var items []string
	for n, v := range verdicts {
		items = append(items, fmt.Sprintf(`{"item":%d,"verdict":%q}`, n, v))
	}
	return `{"job":"cities","verdict":"unknown","sentences":[],"items":[` + strings.Join(items, ",") + `]}`
}

// TestTriggerWaits: the exit code and the text say how all items ended. The fire of a job of several items has ended when
// the last of them has, and a host that breaks off an answer is asked again.
func TestTriggerWaits(t *testing.T) {
	t.Parallel()
	const why = "'wasmjob explain cities --trigger 7' says why\n"
	for name, c := range map[string]struct {
		answers []string
		exit    command.Exit
		want    string
	}{
		"all OK":        {[]string{`{"verdict":"unknown"}`, answerOf("running", "pending"), answerOf("ran", "running"), answerOf("ran", "late")}, 0, "OK: 0-1\n"},
		"one fails":     {[]string{answerOf("failed", "running"), answerOf("failed", "ran")}, command.ExitFailed, "failed: 0; OK: 1\n" + why},
		"killed":        {[]string{answerOf("ran", "killed")}, command.ExitFailed, "killed: 1; OK: 0\n" + why},
		"lost":          {[]string{answerOf("lost", "disabled")}, command.ExitFailed, "lost: 0; paused: 1\n" + why},
		"not run":       {[]string{answerOf("ran", "disabled")}, command.ExitNotRun, "paused: 1; OK: 0\n" + why},
		"in a newer":    {[]string{answerOf("coalesced")}, command.ExitNotRun, "coalesced: 0\n" + why},
		"of no item":    {[]string{`{"verdict":"disabled"}`}, command.ExitNotRun, "nothing is known of its items\n" + why},
		"an answer ...": {[]string{"", answerOf("elsewhere"), answerOf("ran")}, 0, "OK: 0\n"},
	} {
		host := newTriggering(keeps, c.answers...)
		shown, said, err := operated(t, host, "", "trigger", "cities", "--wait")
		var exit command.Exit
		errors.As(err, &exit)
		want := "triggered cities; 'wasmjob job runs cities --trigger 7' shows its runs\ntrigger 7 of cities has ended; " + c.want
		if (err != nil) != (exit != 0) || exit != c.exit || shown != want || host.triggers.Load() != 1 {
			t.Errorf("%s: %v, %d triggers\n%s", name, err, host.triggers.Load(), shown)
		}
		if broken := c.answers[0] == ""; broken != strings.Contains(said, "the command asks again until it answers\n") {
			t.Errorf("%s: %s", name, said)
		}
	}
	shown, _, err := operated(t, newTriggering(keeps, answerOf("ran", "failed")), "", "trigger", "cities", "--wait", "-o", "json")
	if want := "{\n  \"job\": \"cities\",\n  \"trigger\": 7,\n  \"outcome\": \"failed\",\n  \"items\": [\n    {\n      \"item\": 0,\n      \"verdict\": \"ran\"\n    },\n    {\n      \"item\": 1,\n      \"verdict\": \"failed\"\n    }\n  ]\n}\n"; !errors.Is(err, command.ExitFailed) || shown != want {
		t.Errorf("%v\n%s", err, shown)
	}
}

// TestTriggerWaits_queued: a trigger that is queued is waited for under the number of the queue, until its run has a number, and then
// until that has ended.
func TestTriggerWaits_queued(t *testing.T) {
	t.Parallel()
	runs := strings.Replace(answerOf("ran"), `"job":"cities"`, `"job":"cities","trigger":9`, 1)
	host := newTriggering(keeps, `{"verdict":"unknown","trigger":7}`, strings.ReplaceAll(runs, "ran", "running"), runs)
	host.made = `{"queued":7,"ahead":2}`
	shown, said, err := operated(t, host, "", "trigger", "cities", "--wait")
	want := "triggered cities; it is queued as number 7 behind 2 triggers, and runs when they have begun everywhere; 'wasmjob explain cities --trigger 7' says how it stands\n" +
		"trigger 9 of cities has ended; OK: 0\n"
	if err != nil || shown != want {
		t.Errorf("%v, %s\n%s", err, said, shown)
	}
	host = newTriggering(keeps, `{"verdict":"skipped","trigger":7}`)
	host.made = `{"queued":7,"ahead":2}`
	if shown, _, err := operated(t, host, "", "trigger", "cities", "--wait"); !errors.Is(err, command.ExitNotRun) || !strings.Contains(shown, "trigger 7 of cities has ended") {
		t.Errorf("dropped from the queue: %v\n%s", err, shown)
	}
}

// TestTriggerFollows_ends: a host answers at once when the fire has ended, as often as it is asked; the command ends all the same, and does
// not ask again.
func TestTriggerFollows_ends(t *testing.T) {
	t.Parallel()
	host := newTriggering(keeps, slices.Repeat([]string{answerOf("failed")}, 100_000)...)
	host.HandleFunc("GET /v1/logs/stream", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	shown, said, err := operated(t, host, "", "trigger", "cities", "--follow", "--timeout", "10s")
	if !errors.Is(err, command.ExitFailed) || !strings.Contains(shown, "trigger 7 of cities has ended; failed: 0") || host.looks.Load() > 2 {
		t.Errorf("%v, asked %d times, %s\n%s", err, host.looks.Load(), said, shown)
	}
}

// TestTriggerGoesOn: when the time is over, or a signal comes, the command ends, and says that the run goes on.
func TestTriggerGoesOn(t *testing.T) {
	t.Parallel()
	goesOn := ": trigger 7 of cities goes on; running: 1; OK: 0. 'wasmjob explain cities --trigger 7' says how it stands, and 'wasmjob job kill cities' ends it.\n"
	_, said, err := operated(t, newTriggering(keeps, answerOf("ran", "running")), "", "trigger", "cities", "--wait", "--timeout", "1s")
	if !errors.Is(err, command.ExitRunning) || said != "wasmjob: --timeout 1s is over"+goesOn {
		t.Errorf("%v\n%s", err, said)
	}
	host := newTriggering(keeps, answerOf("ran", "running"))
	signals := make(chan os.Signal)
	go func() { // ends with the command, which takes the signal
		<-host.idle
		signals <- os.Interrupt
	}()
	shown, said, err := operatedWith(t, host, signals, "", "trigger", "cities", "--wait", "-o", "json")
	if !errors.Is(err, command.ExitRunning) || said != "wasmjob: Ctrl-C"+goesOn || !strings.Contains(shown, `"outcome": "running"`) {
		t.Errorf("%v\n%s%s", err, said, shown)
	}
}

// TestTriggerFollows: the lines of the fire are shown, each once, and no others, also if the stream breaks.
func TestTriggerFollows(t *testing.T) {
	t.Parallel()
	host := newTriggering(keeps, answerOf("running", "running"), answerOf("running", "ran"), answerOf("ran", "ran"))
	ready := make(chan struct{})
	var streams atomic.Int64
	host.HandleFunc("GET /v1/logs/stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		say := func(run string, second int) {
			fmt.Fprintf(w, "event: line\ndata: {\"runId\":%q,\"job\":\"cities\",\"time\":\"2026-03-01T10:00:%02dZ\",\"message\":\"%s at %d\"}\n\n", run, second, run, second)
		}
		say("cities/t7/0", 1)
		if streams.Add(1) == 1 {
			say("cities/t77/0", 2)
			return
		}
		say("cities/2026-03-01T10:00:00.000Z/0", 3)
		say("cities/t7/1", 4)
		w.(http.Flusher).Flush()
		close(ready)
		<-r.Context().Done()
	})
	outer := http.NewServeMux()
	outer.Handle("/", host)
	outer.HandleFunc("GET /v1/jobs/cities/explain", func(w http.ResponseWriter, r *http.Request) {
		if host.looks.Load() > 0 {
			<-ready
		}
		host.ServeHTTP(w, r)
	})
	shown, _, err := operated(t, outer, "", "trigger", "cities", "--follow")
	if err != nil || strings.Count(shown, "cities/t7/0 at 1") != 1 || strings.Count(shown, "cities/t7/1 at 4") != 1 || strings.Contains(shown, "t77") || strings.Contains(shown, "at 3") || !strings.HasSuffix(shown, "trigger 7 of cities has ended; OK: 0-1\n") {
		t.Errorf("%v\n%s", err, shown)
	}
}

// TestTriggerOnce: a trigger whose answer is lost is sent again under the same name, but not to another process, which does not
// know the name.
func TestTriggerOnce(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		host := newTriggering("")
		outer := http.NewServeMux()
		var posts, reports atomic.Int64
		outer.HandleFunc("POST /v1/jobs/cities/trigger", func(w http.ResponseWriter, r *http.Request) {
			if posts.Add(1) < 3 {
				host.keys = append(host.keys, r.Header.Get("Idempotency-Key"))
				panic(http.ErrAbortHandler) // it may have triggered
			}
			host.ServeHTTP(w, r)
		})
		outer.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
			second := int64(0)
			if restarted {
				second = reports.Add(1)
			}
			fmt.Fprintf(w, `{"status":{"started":"2026-03-01T10:00:%02dZ"}}`, second)
		})
		shown, _, err := operated(t, outer, "", "trigger", "cities")
		switch {
		case restarted:
			if err == nil || posts.Load() != 1 || !strings.Contains(err.Error(), `it is not known whether job "cities" was triggered: 'wasmjob access audit --job cities --what trigger' shows it`) {
				t.Errorf("%d requests: %v\n%s", posts.Load(), err, shown)
			}
		case err != nil || len(host.keys) != 3 || host.keys[0] == "" || host.keys[0] != host.keys[1] || host.keys[1] != host.keys[2]:
			t.Errorf("%v, names %q\n%s", err, host.keys, shown)
		}
	}
}

// TestTriggerRefuses: what cannot be waited for is refused before anything is triggered.
func TestTriggerRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--wait":               "the host keeps no history (--history off), so it cannot say how a trigger ends; trigger without --wait",
		"--timeout 1s":         "--timeout is for --wait and --follow",
		"--wait --timeout -1s": "--timeout: found -1s, expected 0s or more",
		"--wait --timeout x":   `"x" is not a duration`,
	} {
		host := newTriggering("")
		_, _, err := operated(t, host, "", append([]string{"trigger", "cities"}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) || host.triggers.Load() != 0 {
			t.Errorf("%s: %v, %d triggers", args, err, host.triggers.Load())
		}
	}
}
