package migrate

import (
	"bufio"
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// assignment is a line of a crontab that sets a variable.
var assignment = regexp.MustCompile(`^\s*["']?([A-Za-z_][A-Za-z0-9_]*)["']?\s*=\s*(.*?)\s*$`)

// Crontab reads a crontab(5). system says that its lines have a user before the command, as
// those of /etc/crontab and /etc/cron.d. The error is that of a text that is no crontab.
func Crontab(text []byte, system bool) (*Imported, error) {
	if err := fits(text); err != nil {
		return nil, err
	}
	i := &Imported{}
	zone := ""
	var settings []string // variables that commands see, as they are written
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<10)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		place := fmt.Sprintf("line %d", n)
		if line == "" || line[0] == '#' {
			continue
		}
		if m := assignment.FindStringSubmatch(line); m != nil && !startsSchedule(line) {
			value := strings.Trim(m[2], `"'`)
			switch m[1] {
			case "CRON_TZ":
				zone = value
			case "MAILTO", "MAILFROM":
				i.note("%s: %s=%s: what a job logs is in the history, and who gets a message about a failure is in the file of alerts (--alerts)", place, m[1], value)
			default:
				settings = slices.DeleteFunc(settings, func(s string) bool { return strings.HasPrefix(s, m[1]+"=") })
				settings = append(settings, m[1]+"="+value)
			}
			continue
		}
		cron, rest, ok := cutSchedule(line)
		user := ""
		if ok && system {
			user, rest, ok = cutWord(rest)
		}
		if !ok || rest == "" {
			want := "five fields or an @word, and a command"
			if system {
				want = "five fields or an @word, a user, and a command"
			}
			i.note("%s: left out: found %q, expected %s", place, words60(line), want)
			continue
		}
		command, input, hasInput := percent(rest)
		f := newForeign(commandName(command), place)
		f.Kind, f.Command, f.Configuration.Cron, f.Configuration.TimeZone = KindScript, command, cron, zone
		if cron == "@reboot" {
			f.Configuration.Cron = ""
			f.note("@reboot: nothing here fires when a machine starts: the job has no schedule, and runs when it is triggered")
		}
		if user != "" && user != "root" {
			f.note("it ran as the user %s: a guest has no user, and what it may read is granted (docs/grants.md)", user)
		}
		if hasInput {
			f.note("what stood behind %% was its standard input: %q", input)
		}
		for _, s := range settings {
			if !strings.HasPrefix(s, "SHELL=") && !strings.HasPrefix(s, "PATH=") && !strings.HasPrefix(s, "HOME=") {
				f.note("the crontab set %s: grant it to the job as env, or have it in the module", s)
			}
		}
		i.add(f)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after %d jobs: %w", len(i.Jobs), err)
	}
	return i.end(), nil
}

func words60(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "..."
	}
	return s
}

// startsSchedule reports whether a line begins with a field of a schedule, so that an = in its command does not
// make it a variable.
func startsSchedule(line string) bool {
	return strings.ContainsRune("@*0123456789", rune(line[0]))
}

// cutSchedule takes the schedule off a line.
func cutSchedule(line string) (cron, rest string, ok bool) {
	if strings.HasPrefix(line, "@") {
		return cutWord(line)
	}
	var fields []string
	for rest = line; len(fields) < 5; {
		var field string
		if field, rest, ok = cutWord(rest); !ok {
			return "", "", false
		}
		fields = append(fields, field)
	}
	return strings.Join(fields, " "), rest, true
}

// cutWord takes the first word off a line.
func cutWord(line string) (word, rest string, ok bool) {
	line = strings.TrimLeft(line, " \t")
	at := strings.IndexAny(line, " \t")
	if at < 0 {
		return line, "", false
	}
	return line[:at], strings.TrimLeft(line[at:], " \t"), true
}

// percent divides a command at its first % that is not written \%: what follows is the
// command's standard input, with a new line for each other one.
func percent(s string) (command, input string, has bool) {
	var parts []string
	var b strings.Builder
	for n := 0; n < len(s); n++ {
		switch {
		case s[n] == '\\' && n+1 < len(s) && s[n+1] == '%':
			b.WriteByte('%')
			n++
		case s[n] == '%':
			parts = append(parts, b.String())
			b.Reset()
		default:
			b.WriteByte(s[n])
		}
	}
	parts = append(parts, b.String())
	return strings.TrimSpace(parts[0]), strings.Join(parts[1:], "\n"), len(parts) > 1
}
