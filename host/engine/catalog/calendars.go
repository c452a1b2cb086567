package catalog

import (
	"fmt"
	"maps"
	"path"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// readCalendar is the text of a calendar's days; empty with complaints.
func readCalendar(name, data string) (string, complaints) {
	days, problems := calendar.Parse(name, []byte(data))
	var all complaints
	for _, p := range problems {
		all.Add(complaint{p.Line, p.Column, words.Reason(p.Message)})
	}
	if len(problems) > 0 {
		return "", all
	}
	return days.Text(), all
}

// calendarOf are the days of a calendar, from the files beside a definition or in the nearest folder above it, or what stands
// against it. Neither is returned while the file was not read yet.
//
// A file that is broken has the days of its last version that was not.
func (s state) calendarOf(name, of string) (days, problem string) {
	files := [...]string{name + calendar.SuffixYAML, name + calendar.SuffixICS}
	at := ""
	for _, folder := range above(of) {
		for _, base := range files {
			file := path.Join(folder, base)
			if _, ok := s.files[file]; ok && at != "" {
				return "", fmt.Sprintf("calendar %q: both %s and %s are there, expected one", words.Clip(name), at, file)
			} else if ok {
				at = file
			}
		}
		if at != "" {
			break
		}
	}
	if at == "" {
		where := "beside the definition"
		if path.Dir(of) != "." {
			where += " or in a folder above it"
		}
		return "", fmt.Sprintf("calendar %q: there is neither %s nor %s %s", words.Clip(name), words.Clip(files[0]), words.Clip(files[1]), where)
	}
	switch f := s.files[at]; {
	case f.calendar != "":
		return f.calendar, ""
	case f.unread():
		return "", ""
	}
	return "", fmt.Sprintf("calendar %q: the file %s is refused", words.Clip(name), at)
}

// withCalendars has a claim's configuration have the days of its calendars.
func (s state) withCalendars(c claim) claim {
	names := timetable.Calendars(c.doc.Configuration)
	if len(names) == 0 {
		return c
	}
	days := make(map[string]string, len(names))
	for _, name := range names {
		text, problem := s.calendarOf(name, c.file)
		if c.lacks = problem; problem != "" {
			return c
		}
		if text == "" {
			c.unread = true
			return c
		}
		days[name] = text
	}
	with, err := timetable.WithDays(c.doc.Configuration, days)
	if err == nil {
		err = checkDays(with)
	}
	if err != nil {
		c.lacks = err.Error()
		return c
	}
	c.doc.Configuration = with
	return c
}

// checkDays finds what is wrong with a job's calendars once their days are known.
func checkDays(c jobconfig.Configuration) error {
	if n := len(c.YAML()); n > jobconfig.MaxYAML {
		return fmt.Errorf("with the days of its calendars the configuration takes %d bytes in the registry, expected at most %d", n, jobconfig.MaxYAML)
	}
	_, problems := timetable.New(c, "")
	return timetable.Of(problems)
}

// withDays has jobs of a definition file of a directory have the days of their calendars; those of broken or missing files are left out.
func withDays(dir, name string, c jobconfig.Configuration) jobconfig.Configuration {
	days := make(map[string]string)
	for _, cal := range timetable.Calendars(c) {
		for _, folder := range above(name) {
			for _, file := range []string{cal + calendar.SuffixYAML, cal + calendar.SuffixICS} {
				if data, ok := readIn(dir, path.Join(folder, path.Base(file)), calendar.MaxSize); ok && days[cal] == "" {
					days[cal], _ = readCalendar(file, string(data))
				}
			}
		}
	}
	maps.DeleteFunc(days, func(_, text string) bool { return text == "" })
	if len(days) == 0 {
		return c
	}
	with, err := timetable.WithDays(c, days)
	if err != nil {
		return c
	}
	return with
}
