package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/event"
)

// TestSoakInShort: a cluster lives through each kind of fault, with modules and
// definitions replaced all the time, and what it used is on file.
func TestSoakInShort(t *testing.T) {
	t.Parallel()
	o := SoakOptions{
		Program: program(t), Dial: dial, Dir: filepath.Join(t.TempDir(), "soak"), Say: func(line string) { t.Log(line) },
		Jobs: 25, Seed: 3, SessionTimeout: 4 * time.Second, Duration: 50 * time.Second, Faults: 5, Reload: time.Second, Fault: 3 * time.Second, Trigger: 2 * time.Second, Sample: 2 * time.Second,
	}
	r, err := Soak(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	r.Write(&text)
	t.Logf("\n%s", &text)
	// Whether it grows cannot be said so soon.
	if len(r.Violations) > 0 || r.History.Violations > 0 {
		t.Errorf("%d violations, and %d in the histories", len(r.Violations), r.History.Violations)
	}
	for _, kind := range []string{"kill -9", "cut off", "SIGSTOP", "ZooKeeper restarts", "SIGTERM"} {
		if r.Faults[kind] == 0 {
			t.Errorf("no %s was made", kind)
		}
	}
	measured := func(name string) bool {
		i := slices.IndexFunc(r.Trends, func(t Trend) bool { return t.Name == name })
		return i >= 0 && r.Trends[i].Samples >= 5
	}
	for _, name := range []string{"h1.rss", "h1.goroutines", "h1.fds", "zk.watches", "zk.znodes"} {
		if !measured(name) {
			t.Errorf("%s was hardly measured: %+v", name, r.Trends)
		}
	}
	if !measured("h2.fds") && !measured("h3.fds") { // chance may have all faults hit one of them
		t.Errorf("h2 and h3 were hardly measured: %+v", r.Trends)
	}
	if len(r.History.Jobs) != o.Jobs {
		t.Errorf("%d jobs ran, want %d", len(r.History.Jobs), o.Jobs)
	}
}

// recorded makes what a soak leaves: value is what a column has after so many
// seconds, and whether it was measured.
func recorded(t *testing.T, value func(column string, at int) (float64, bool)) string {
	t.Helper()
	dir := t.TempDir()
	columns := []string{"h1.life", "h1.age_s", "h1.cpu_s", "h1.rss", "h1.goroutines", "h1.fds", "zk.watches", "zk.data"}
	var csv strings.Builder
	fmt.Fprintf(&csv, "time,elapsed_s,fault,%s\n", strings.Join(columns, ","))
	for at := 0; at <= 7200; at += 30 {
		fmt.Fprintf(&csv, "2026-03-01T10:00:00Z,%d,", at)
		for _, c := range columns {
			if v, measured := value(c, at); measured {
				fmt.Fprintf(&csv, ",%g", v)
			} else {
				csv.WriteString(",")
			}
		}
		csv.WriteString("\n")
	}
	csv.WriteString("2026-03-01T12:00:30Z,72") // and it is killed
	event, err := json.Marshal(event.Event{Time: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Kind: event.HostStarted})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		samplesFile: csv.String(), soakLog: "10:00:01   20.0s  " + faultMark + "kill -9 (h1)\n10:00:02 all well\n",
		"h1/history.jsonl": string(event) + "\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWhatGrowsIsFound(t *testing.T) {
	t.Parallel()
	steady := map[string]float64{"h1.life": 1, "h1.rss": 300 << 20, "h1.goroutines": 240, "h1.fds": 14, "zk.watches": 6000, "zk.data": 1 << 20}
	for name, tc := range map[string]struct {
		value func(column string, at int) (float64, bool)
		grows string
	}{
		"nothing": {func(string, int) (float64, bool) { return 0, false }, ""},
		"it warms up, is halted, and there are outliers": {func(c string, at int) (float64, bool) {
			switch {
			case at < 600:
				return steady[c] / 10, true
			case at%600 < 60:
				return 0, c != "h1.rss"
			case at%900 < 60:
				return steady[c] * 5, true
			}
			return steady[c], true
		}, ""},
		"a leak": {func(c string, at int) (float64, bool) {
			if c == "zk.watches" {
				return steady[c] + float64(at)/8, true
			}
			return steady[c], true
		}, "zk.watches"},
		"a step at the end": {func(c string, at int) (float64, bool) {
			if c == "h1.fds" && at > 6000 {
				return steady[c] + 6, true
			}
			return steady[c], true
		}, "h1.fds"},
		"bursts that meet the measurements at the end": {func(c string, at int) (float64, bool) {
			if c == "h1.goroutines" && at > 5500 && at%90 != 0 {
				return steady[c] * 5, true
			}
			return steady[c], true
		}, ""},
		"a leak below bursts": {func(c string, at int) (float64, bool) {
			if c == "h1.goroutines" && at%60 == 0 {
				return steady[c] * 5, true
			}
			if c == "h1.goroutines" {
				return steady[c] + float64(at)/150, true
			}
			return steady[c], true
		}, "h1.goroutines"},
		"a young process": {func(c string, at int) (float64, bool) {
			if c == "h1.rss" && at > 3600 && at%400 < 180 {
				return steady[c] * 9, true // each of its lives
			}
			return steady[c], true
		}, ""},
		"what is only shown": {func(c string, at int) (float64, bool) {
			if c == "zk.data" {
				return float64(at), true
			}
			return steady[c], true
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := JudgeSoak(t.Context(), recorded(t, func(c string, at int) (float64, bool) {
				switch c {
				case "h1.age_s":
					if at > 3600 {
						return float64(at % 400), true
					}
					return float64(at), true
				case "h1.cpu_s":
					return float64(at) / 10, true
				}
				return tc.value(c, at)
			}))
			if err != nil {
				t.Fatal(err)
			}
			if r.Span != 2*time.Hour || r.Warm != 10*time.Minute || r.Faults["kill -9"] != 1 || len(r.Violations) != 0 {
				t.Errorf("read %+v", r)
			}
			if name == "nothing" {
				if r.OK() || !r.Trends[0].Grows || r.Trends[0].Samples != 0 {
					t.Errorf("nothing was measured, and the verdict is %+v", r.Trends)
				}
				var text strings.Builder
				if r.Write(&text); !strings.Contains(text.String(), "| h1.rss | – | – | – | – | 0 samples are too few |") {
					t.Errorf("nothing was measured, and it says\n%s", &text)
				}
				return
			}
			if d := r.CPU - 0.1; d < -0.01 || d > 0.01 {
				t.Errorf("%.3f cores, want 0.1", r.CPU)
			}
			for _, trend := range r.Trends {
				if trend.Grows != (trend.Name == tc.grows) {
					t.Errorf("%+v", trend)
				}
			}
			if r.OK() != (tc.grows == "") {
				t.Errorf("the verdict is %t", r.OK())
			}
			var text strings.Builder
			r.Write(&text)
			if strings.Contains(text.String(), "GROWS") != (tc.grows != "") {
				t.Errorf("said\n%s", &text)
			}
		})
	}
}

// TestARevisedModuleIsAnotherOne, and begins with the one that it was.
func TestARevisedModuleIsAnotherOne(t *testing.T) {
	t.Parallel()
	a, b := revised(guestModule, 1), revised(guestModule, 200)
	if string(a) == string(b) || !strings.HasPrefix(string(b), string(guestModule)) {
		t.Error("two revisions are the same, or not what they were")
	}
	if want := "\x00\x0c\x08revision200"; string(b[len(guestModule):]) != want {
		t.Errorf("the section is %q, want %q", b[len(guestModule):], want)
	}
}
