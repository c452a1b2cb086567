package words

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestSizesForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 3515904: "3.4 MiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// TestArgument has each shell that there is here read what is written for one.
func TestArgument(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"etl-daily": "etl-daily", "城市": "城市", "10.0.0.1@-@7-x": "10.0.0.1@-@7-x", "": `""`, "two words": `"two words"`, "o'brien & co": `"o'brien & co"`,
		`a"b`: `'a"b'`, "it's $HOME!": `'it'\''s $HOME!'`, "`id`": "'`id`'", `a\b`: `'a\b'`, "*": `"*"`, "~x": `"~x"`, "=ls": `"=ls"`, "!x": "'!x'", "a!'b": `'a!'\''b'`, "#1": `"#1"`,
	} {
		if got := Argument(arg); got != want {
			t.Errorf("%q is %s, want %s", arg, got, want)
		}
		for _, shell := range []string{"sh", "bash", "zsh"} {
			if _, err := exec.LookPath(shell); err != nil {
				continue
			}
			if read, err := exec.Command(shell, "-c", "printf %s "+Argument(arg)).Output(); err != nil || string(read) != arg {
				t.Errorf("%s reads %s as %q, %v", shell, Argument(arg), read, err)
			}
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Command("status", "etl-daily"):                  "wasmjob status etl-daily",
		Command("kill", "two words", "--item", "3"):     `wasmjob kill "two words" --item 3`,
		Command("status", "--admin=x"):                  `wasmjob status -- "--admin=x"`,
		Command("kill", "-h", "--item", "3"):            "wasmjob kill --item 3 -- -h",
		Command("shutdown", "a", "--instance", "1 `2`"): "wasmjob shutdown a --instance '1 `2`'",
	} {
		if got != want {
			t.Errorf("found %s, want %s", got, want)
		}
	}
}

// TestState: what an operator has paused has one word for people, whether the API or the registry says it; other states
// stay, of whatever type they are.
func TestState(t *testing.T) {
	t.Parallel()
	type state string
	for found, want := range map[state]string{"disabled": "paused", "DISABLED": "PAUSED", "running": "running", "no session": "no session", "": ""} {
		if got := State(found); got != want {
			t.Errorf("%q is shown as %q, want %q", found, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"start", "status", "jobs", "trigger", "enable", "disable", "logLevel"}
	for found, want := range map[string]string{
		"statsu": "status", "job": "jobs", "trigegr": "trigger", "log-level": "logLevel", "LOG_LEVL": "logLevel",
		"enabel": "enable", "disabled": "disable", "stat": "status", "trig": "trigger", "st": "", "startt": "start", "xyz": "", "": "", strings.Repeat("status", 100): "",
	} {
		if got := Nearest(found, names); got != want {
			t.Errorf("%q is near %q, want %q", found, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcd", "acbd", 1}} {
		if got := Edits(c.a, c.b); got != c.want {
			t.Errorf("%s to %s: %d edits, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := Clip(strings.Repeat("ü", 100)); got != strings.Repeat("ü", 40)+"…" {
		t.Errorf("clipped to %q", got)
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234 * time.Nanosecond: "1µs", 1234567: "1.23ms", 12345678: "12.3ms", 123456789: "123ms",
		1234567890: "1.23s", 12345678901: "12.3s", 59*time.Second + 999*time.Millisecond: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", -2 * time.Second: "-2s",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 500 * time.Millisecond: "500ms", 3700 * time.Millisecond: "4s", 2*time.Minute + 10*time.Second: "2m10s",
		26*time.Hour + 40*time.Minute: "1d3h", 48 * time.Hour: "2d", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m",
	} {
		if got := Ago(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

// TestUntil: a span that no duration holds is in years.
func TestUntil(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, to := range map[string]time.Time{
		"0s": from.Add(-time.Hour), "1h": from.Add(time.Hour), "365d": from.AddDate(1, 0, 0), "90945d": from.AddDate(249, 0, 0), "250 years": from.AddDate(250, 0, 1),
		"1000 years": from.AddDate(1000, 0, 1), "7973 years": time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC),
	} {
		if got := Until(from, to); got != want {
			t.Errorf("until %v: %s, want %s", to, got, want)
		}
	}
}
