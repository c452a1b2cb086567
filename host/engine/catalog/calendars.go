package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// daysOf are the days of one version of a calendar. They are never changed; the same pointer is the same days.
type daysOf struct {
	text string // as a job's configuration has them
	set  *calendar.Days
}

// readCalendar is the days of a calendar; nil with complaints.
func readCalendar(name, data string) (*daysOf, complaints) {
	days, problems := calendar.Parse(name, []byte(data))
	var all complaints
	for _, p := range problems {
		all.Add(complaint{line: p.Line, column: p.Column, text: words.Reason(p.Message)})
	}
	if len(problems) > 0 {
		return nil, all
	}
	return &daysOf{days.Text(), days}, all
}

// calendarOf are the days of a calendar, from the files beside a definition or in the nearest folder above it, or what stands
// against it. Neither is returned while the file was not read yet.
//
// A file that is broken has the days of its last version that was not.
func (s state) calendarOf(name, of string) (days *daysOf, problem string) {
	files := [...]string{name + calendar.SuffixYAML, name + calendar.SuffixICS}
	at := ""
	for _, folder := range above(of) {
		for _, base := range files {
			file := path.Join(folder, base)
			if _, ok := s.files[file]; ok && at != "" {
				return nil, fmt.Sprintf("calendar %q: both %s and %s are there, expected one", words.Clip(name), at, file)
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
		return nil, fmt.Sprintf("calendar %q: there is neither %s nor %s %s", words.Clip(name), words.Clip(files[0]), words.Clip(files[1]), where)
	}
	switch f := s.files[at]; {
	case f.calendar != nil:
		return f.calendar, ""
	case f.unread():
		return nil, ""
	}
	return nil, fmt.Sprintf("calendar %q: the file %s is refused", words.Clip(name), at)
}

// mostDays is how many bytes the days of calendars take in the configurations of all jobs of one definition file.
const mostDays = 16 << 20

// daySet are the days of some calendars that jobs of a folder name together. The same pointer is the same days.
type daySet struct {
	days    []*daysOf // by the order of the names
	text    string    // of timetable.DaysText; its jobs share it
	sets    map[string]*calendar.Days
	problem string
}

// judged is what a job became with its calendars. It holds while its definition and its set are the same.
type judged struct {
	names []string // of its calendars
	set   *daySet
	verdict
	conf jobconfig.Configuration // with the days
}

// verdict is what is wrong with the schedule of jobs that have calendars, or their timetable, which has no jitter
// of a job's own.
type verdict struct {
	problem string
	table   *timetable.Timetable
}

// instants are what a verdict depends on.
type instants struct {
	set               *daySet
	cron, zone, terms string
}

// judging judges jobs that name calendars: each once for a version of its definition and of its calendars, and one of
// those that have the same schedule for all of them.
type judging struct {
	state
	before   map[*definition.Definition]judged
	now      map[*definition.Definition]judged
	sets     map[string]*daySet
	verdicts map[instants]verdict
	count    int // timetables that were made
}

// judge is what the jobs with calendars became, by their definitions. What s.spent leaves no time for is missing;
// files with little to judge come first. count is how many timetables were made, more says that something is missing.
func (s state) judge() (jobs map[*definition.Definition]judged, sets map[string]*daySet, count int, more bool) {
	j := judging{state: s, before: s.judged, now: make(map[*definition.Definition]judged), sets: make(map[string]*daySet), verdicts: make(map[instants]verdict)}
	left := make(map[string][]*definition.Definition)
	for name, f := range s.files {
		size := 0
		for i := range f.docs {
			if d := &f.docs[i]; !j.keep(name, d, &size) {
				left[name] = append(left[name], d)
			}
		}
	}
	few := func(a, b string) int { return cmp.Or(cmp.Compare(len(left[a]), len(left[b])), strings.Compare(a, b)) }
	begun := false
	for _, name := range slices.SortedFunc(maps.Keys(left), few) {
		for _, d := range left[name] {
			if begun && s.spent != nil && s.spent() {
				return j.now, j.sets, j.count, true
			}
			j.judge(d)
			begun = true
		}
	}
	return j.now, j.sets, j.count, false
}

// keep takes over what is known of a job, or can be known without making its timetable; false if it must be judged.
// size is what the days of the file's jobs before it take.
func (j *judging) keep(name string, d *definition.Definition, size *int) bool {
	old, known := j.before[d]
	if !known {
		if d.Configuration.InstantProps() == nil { // most jobs have none
			return true
		}
		old.names = timetable.Calendars(d.Configuration)
	}
	if len(old.names) == 0 {
		j.now[d] = old
		return true
	}
	set, problem := j.setOf(old.names, name)
	next := judged{names: old.names, set: set}
	switch {
	case problem != "":
		next.problem = problem
	case set == nil:
	case set.problem != "":
		next.problem = set.problem
	default:
		if *size += len(set.text); *size > mostDays {
			next.set = nil // it may have room when others have fewer days
			next.problem = fmt.Sprintf("the days of the calendars of the file's jobs take more than %d bytes, expected at most that: name calendars with fewer days, or divide the jobs among several files", mostDays)
			break
		}
		if old.set == set && (old.table != nil || old.problem != "") {
			j.now[d] = old
			return true
		}
		j.now[d] = next
		return false
	}
	j.now[d] = next
	return true
}

// setOf are the days of calendars that a job of a file names; nil while one of them was not read yet.
func (j *judging) setOf(names []string, of string) (*daySet, string) {
	key := path.Dir(of) + "\x00" + strings.Join(names, "\x00")
	if set, known := j.sets[key]; known {
		return set, ""
	}
	days := make([]*daysOf, len(names))
	for i, name := range names {
		var problem string
		if days[i], problem = j.calendarOf(name, of); problem != "" || days[i] == nil {
			return nil, problem
		}
	}
	set := j.state.sets[key]
	if set == nil || !slices.Equal(set.days, days) {
		set = &daySet{days: days, sets: make(map[string]*calendar.Days, len(names))}
		texts := make(map[string]string, len(names))
		for i, name := range names {
			texts[name], set.sets[name] = days[i].text, days[i].set
		}
		var err error
		if set.text, err = timetable.DaysText(texts); err != nil {
			set.problem = err.Error()
		}
	}
	j.sets[key] = set
	return set, ""
}

// judge judges a job that keep has found the days of.
func (j *judging) judge(d *definition.Definition) {
	next := j.now[d]
	bare := d.Configuration
	next.conf = timetable.WithDays(bare, next.set.text)
	if n := len(next.conf.YAML()); n > jobconfig.MaxYAML {
		next.problem = fmt.Sprintf("with the days of its calendars the configuration takes %d bytes in the registry, expected at most %d", n, jobconfig.MaxYAML)
		j.now[d] = next
		return
	}
	key := instants{next.set, bare.Cron, bare.TimeZone, timetable.WithDays(bare, "").Terms()}
	v, known := j.verdicts[key]
	if !known {
		j.count++
		table, problems := timetable.NewWith(bare, "", next.set.sets)
		if v.table = table; len(problems) > 0 {
			v.problem = timetable.Of(problems).Error()
		} else if table == nil {
			v.table = &timetable.Timetable{}
		}
		j.verdicts[key] = v
	}
	next.verdict = v
	j.now[d] = next
}

// withCalendars has a claim's configuration have the days of its calendars, as they were judged.
func (s state) withCalendars(c claim, d *definition.Definition) claim {
	j, has := s.judged[d]
	switch {
	case !has || len(j.names) == 0:
	case j.problem != "":
		c.lacks = j.problem
	case j.table == nil:
		c.unread = true
	default:
		c.doc.Configuration, c.table = j.conf, j.table
	}
	return c
}

// withDays has jobs of a definition file of a directory have the days of their calendars; those of broken or missing files are left out. texts are
// the days of the directory's files that were read, by their paths: each is read once.
func withDays(dir, name string, c jobconfig.Configuration, texts map[string]string) jobconfig.Configuration {
	days := make(map[string]string)
	for _, cal := range timetable.Calendars(c) {
		for _, folder := range above(name) {
			for _, file := range []string{cal + calendar.SuffixYAML, cal + calendar.SuffixICS} {
				at := path.Join(folder, path.Base(file))
				text, known := texts[at]
				if !known {
					if data, ok := readIn(dir, at, calendar.MaxSize); ok {
						if found, _ := readCalendar(file, string(data)); found != nil {
							text = found.text
						}
					}
					texts[at] = text
				}
				if days[cal] == "" {
					days[cal] = text
				}
			}
		}
	}
	text, err := timetable.DaysText(days)
	if err != nil || text == "" {
		return c
	}
	return timetable.WithDays(c, text)
}
