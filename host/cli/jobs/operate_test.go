package jobs

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/cli/command"
)

// TestTriggerAsJSON: a program reads which fire it has asked for.
func TestTriggerAsJSON(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	answer := `{"trigger":7}`
	host.HandleFunc("POST /v1/jobs/cities/trigger", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	for form, want := range map[string]string{
		"json": "{\n  \"job\": \"cities\",\n  \"trigger\": 7\n}\n", "yaml": "job: cities\ntrigger: 7\n",
		"table": "triggered cities; 'wasmjob job runs cities --trigger 7' shows its runs\n",
	} {
		if shown, _, err := operated(t, host, "", "trigger", "cities", "-o", form); err != nil || shown != want {
			t.Errorf("%s: %v\n%s", form, err, shown)
		}
	}
	answer = `{"trigger":7,"earlier":5}`
	want := "triggered cities; hosts still keep trigger 5: those that have begun nothing of it run once for both, as trigger 7; 'wasmjob job runs cities --trigger 7' shows its runs\n"
	if shown, _, err := operated(t, host, "", "trigger", "cities"); err != nil || shown != want {
		t.Errorf("%v\n%s", err, shown)
	}
}

// TestTriggerWithoutRuns: of a trigger that has no runs the lists say what became of it, and that there is none if
// nothing is known of it.
func TestTriggerWithoutRuns(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	none := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"records":[]}`) }
	host.HandleFunc("/v1/runs", none)
	host.HandleFunc("/v1/fires", none)
	host.HandleFunc("/v1/jobs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"name":"slow"}]`) })
	host.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) })
	host.HandleFunc("/v1/registry/jobs", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"name":"slow"}]`) })
	host.HandleFunc("/v1/events", func(w http.ResponseWriter, r *http.Request) {
		event := map[string]string{
			"5": `"kind":"fire.skipped","reason":"trigger 7 came before this one had begun here: it counts for both"`, "8": `"kind":"fire.started"`,
		}[r.FormValue("trigger")]
		switch {
		case r.FormValue("trigger") == "8" && r.FormValue("after") == "": // of much, no answer looks through all
			fmt.Fprint(w, `{"records":[],"next":"1.0."}`)
		case r.FormValue("trigger") == "9":
			fmt.Fprint(w, `{"records":[],"silent":["10.0.0.8: it has not answered within 1s"]}`)
		case event == "":
			none(w, r)
		default:
			fmt.Fprintf(w, `{"records":[{"time":"2026-03-01T10:00:00Z","host":"10.0.0.1@-@1-aa","job":"slow",%s}]}`, event)
		}
	})
	host.HandleFunc("/v1/audit", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("trigger") != "6" {
			none(w, r)
			return
		}
		fmt.Fprint(w, `{"records":[{"time":"2026-03-01T10:00:00Z","who":"ann","what":"trigger","job":"slow","trigger":6}]}`)
	})
	const waits = "no host has begun trigger %s, as far as the histories go: it waits, or a later trigger ran for both\n"
	for trigger, want := range map[string]string{
		"5": "trigger 5 did not run on host 10.0.0.1: trigger 7 came before this one had begun here: it counts for both\n",
		"6": fmt.Sprintf(waits, "6"), "8": "no LIST\n", "9": fmt.Sprintf(waits, "9"),
	} {
		for list, of := range map[string]string{"runs": "runs", "history": "fires"} {
			if shown, _, err := operated(t, host, "", list, "slow", "--trigger", trigger); err != nil || !strings.HasSuffix(shown, strings.Replace(want, "LIST", of, 1)) {
				t.Errorf("%s --trigger %s: %v\n%s", list, trigger, err, shown)
			}
		}
	}
	for args, want := range map[string]string{"runs slow": ` of job "slow"`, "history slow -o json": ` of job "slow"`, "runs": ""} {
		shown, _, err := operated(t, host, "", append(strings.Fields(args), "--trigger", "7")...)
		if want = "there is no trigger 7" + want + ", as far as the histories go"; err == nil || err.Error() != want || shown != "" {
			t.Errorf("%s: %v, want %s\n%s", args, err, want, shown)
		}
	}
	if shown, _, err := operated(t, host, "no host", "runs", "slow", "--trigger", "7", "--watch"); err != nil || !strings.Contains(shown, "no runs") {
		t.Errorf("watched: %v\n%s", err, shown)
	}
}

// TestGoneHosts: hosts that are gone are named in each form of the list of hosts.
func TestGoneHosts(t *testing.T) {
	t.Parallel()
	host := http.NewServeMux()
	host.HandleFunc("/v1/hosts", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[]`) })
	host.HandleFunc("/v1/hosts/gone", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `[{"instance":"10.0.0.8@-@1","serverIp":"10.0.0.8","since":"2026-03-01T10:00:00Z","seenBy":["10.0.0.7"]}]`)
	})
	for _, form := range []string{"json", "yaml", "table"} {
		shown, said, err := operated(t, host, "", "host", "list", "-o", form)
		if form == "table" {
			said += shown
		}
		if err != nil || strings.Count(said, "10.0.0.8 is gone since") != 1 || (form == "json" && shown != "{\n  \"records\": []\n}\n") {
			t.Errorf("%s: %v\n%s%s", form, err, shown, said)
		}
	}
}

// TestPausedState: what is paused is found by the word that lists show, and by that of the API; both are completed or said
// in the help.
func TestPausedState(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"paused", "disabled"} {
		host := http.NewServeMux()
		host.HandleFunc("/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
			if got := r.URL.Query()["state"]; !slices.Equal(got, []string{"running", "disabled"}) {
				t.Errorf("--state running,%s asks for %q", word, got)
			}
			fmt.Fprint(w, `{"records":[{"name":"cities","state":"disabled","health":"paused"}]}`)
		})
		shown, _, err := operated(t, host, "", "list", "--state", "running,"+word)
		if err != nil || !strings.Contains(shown, " paused  paused ") {
			t.Errorf("%s: %v\n%s", word, err, shown)
		}
	}
	if list := stateWords(); !slices.Contains(list, "paused") || slices.Contains(list, "disabled") {
		t.Errorf("completed are %q", list)
	}
}

// TestRefusedQuery: what a host refuses of flags is a mistake on the command line, what it refuses
// otherwise is none.
func TestRefusedQuery(t *testing.T) {
	t.Parallel()
	for places, usage := range map[string]bool{
		`{"message":"found 5000, expected 1 to 1000","location":"query.limit"}`:                                        true,
		`{"message":"a","location":"query.limit"},{"message":"b","location":"query.outcome"}`:                          true,
		`{"message":"a","location":"query.limit"},{"message":"found \"a b\", expected a name","location":"path.name"}`: false,
		``: false,
	} {
		host := http.NewServeMux()
		host.HandleFunc("/v1/runs", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprintf(w, `{"status":422,"detail":"validation failed","errors":[%s]}`, places)
		})
		if _, _, err := operated(t, host, "", "runs", "cities", "--limit", "5000"); err == nil || errors.As(err, new(command.UsageError)) != usage {
			t.Errorf("%s: %v", places, err)
		}
	}
}
