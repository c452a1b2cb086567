package migrate

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/schedule"
)

// quartzJob is a job of Quartz, from its XML or its tables.
type quartzJob struct {
	Name        string `xml:"name"`
	Group       string `xml:"group"`
	Description string `xml:"description"`
	Class       string `xml:"job-class"`
	Recover     string `xml:"recover"`
	Data        []struct {
		Key   string `xml:"key"`
		Value string `xml:"value"`
	} `xml:"job-data-map>entry"`
}

// quartzTrigger is a trigger of Quartz.
type quartzTrigger struct {
	Name           string `xml:"name"`
	Group          string `xml:"group"`
	JobName        string `xml:"job-name"`
	JobGroup       string `xml:"job-group"`
	Cron           string `xml:"cron-expression"`
	TimeZone       string `xml:"time-zone"`
	Misfire        string `xml:"misfire-instruction"`
	Start          string `xml:"start-time"`
	End            string `xml:"end-time"`
	Calendar       string `xml:"calendar-name"`
	Priority       string `xml:"priority"`
	RepeatCount    string `xml:"repeat-count"`
	RepeatInterval string `xml:"repeat-interval"` // milliseconds; of a calendar interval, units
	Unit           string `xml:"repeat-interval-unit"`
	kind           string // cron, simple, calendar-interval
	paused         bool
}

// Quartz reads jobs and triggers of Quartz: its job-scheduling-data in XML, or a dump of its
// tables (QRTZ_JOB_DETAILS and those of triggers) in SQL, as mysqldump and pg_dump write it. The
// error is that of a text that is neither.
func Quartz(text []byte) (*Imported, error) {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		return quartzXML(text)
	}
	tables, err := Dump(text)
	if err != nil {
		return nil, err
	}
	return QuartzTables(tables)
}

func quartzXML(text []byte) (*Imported, error) {
	if err := fits(text); err != nil {
		return nil, err
	}
	var jobs []quartzJob
	var triggers []quartzTrigger
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict = true
	within := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if len(jobs)+len(triggers) > 2*mostForeign {
			return nil, fmt.Errorf("found more than %d jobs and triggers, expected at most that: an import has at most %d jobs", 2*mostForeign, mostForeign)
		}
		switch e.Name.Local {
		case "job":
			var j quartzJob
			if err := d.DecodeElement(&j, &e); err != nil {
				return nil, err
			}
			jobs = append(jobs, j)
		case "trigger":
			within = "trigger"
		case "cron", "simple", "calendar-interval":
			if within != "trigger" {
				continue
			}
			t := quartzTrigger{kind: e.Name.Local}
			if err := d.DecodeElement(&t, &e); err != nil {
				return nil, err
			}
			triggers = append(triggers, t)
		}
	}
	if len(jobs)+len(triggers) == 0 {
		return nil, errors.New("found no <job> and no <trigger>, expected Quartz's job-scheduling-data")
	}
	return quartzJobs(jobs, triggers), nil
}

// QuartzTables makes jobs of the tables of Quartz's JDBC store.
func QuartzTables(tables map[string]Table) (*Imported, error) {
	find := func(name string) Table {
		for table, t := range tables { // QRTZ_ is a prefix that can be chosen
			if strings.HasSuffix(strings.ToLower(table), name) && (name != "triggers" || !strings.HasSuffix(strings.ToLower(table), "_"+"cron_triggers") &&
				!strings.HasSuffix(strings.ToLower(table), "simple_triggers") && !strings.HasSuffix(strings.ToLower(table), "simprop_triggers") &&
				!strings.HasSuffix(strings.ToLower(table), "blob_triggers") && !strings.HasSuffix(strings.ToLower(table), "fired_triggers")) {
				return t
			}
		}
		return Table{}
	}
	details, all := find("job_details"), find("triggers")
	if details.Columns == nil {
		return nil, errors.New("found no table whose name ends with JOB_DETAILS, expected those of Quartz's JDBC store")
	}
	var jobs []quartzJob
	for r := range details.all() {
		jobs = append(jobs, quartzJob{Name: r("job_name"), Group: r("job_group"), Description: r("description"), Class: r("job_class_name"), Recover: r("requests_recovery")})
	}
	type key struct{ name, group string }
	crons, simples := make(map[key]quartzTrigger), make(map[key]quartzTrigger)
	for r := range find("cron_triggers").all() {
		crons[key{r("trigger_name"), r("trigger_group")}] = quartzTrigger{Cron: r("cron_expression"), TimeZone: r("time_zone_id")}
	}
	for r := range find("simple_triggers").all() {
		simples[key{r("trigger_name"), r("trigger_group")}] = quartzTrigger{RepeatCount: r("repeat_count"), RepeatInterval: r("repeat_interval")}
	}
	var triggers []quartzTrigger
	for r := range all.all() {
		k := key{r("trigger_name"), r("trigger_group")}
		t := quartzTrigger{kind: r("trigger_type")}
		if c, ok := crons[k]; ok {
			t = c
			t.kind = "cron"
		} else if s, ok := simples[k]; ok {
			t = s
			t.kind = "simple"
		}
		t.Name, t.Group, t.JobName, t.JobGroup = k.name, k.group, r("job_name"), r("job_group")
		t.Calendar, t.Priority, t.paused = r("calendar_name"), r("priority"), strings.HasPrefix(strings.ToUpper(r("trigger_state")), "PAUSED")
		t.Start, t.End = milliseconds(r("start_time")), milliseconds(r("end_time"))
		switch r("misfire_instr") {
		case "2":
			t.Misfire = "MISFIRE_INSTRUCTION_DO_NOTHING"
		case "-1":
			t.Misfire = "MISFIRE_INSTRUCTION_IGNORE_MISFIRE_POLICY"
		}
		triggers = append(triggers, t)
	}
	return quartzJobs(jobs, triggers), nil
}

// milliseconds is a time of Quartz's tables as its XML has it; empty for none.
func milliseconds(text string) string {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return ""
	}
	return time.UnixMilli(n).UTC().Format(time.RFC3339)
}

// quartzJobs makes a job of each trigger, and of each job that has none.
func quartzJobs(jobs []quartzJob, triggers []quartzTrigger) *Imported {
	i := &Imported{}
	byName := make(map[string]*quartzJob)
	used := make(map[*quartzJob]int)
	id := func(group, name string) string { return cmp.Or(group, "DEFAULT") + "." + name }
	for n := range jobs {
		byName[id(jobs[n].Group, jobs[n].Name)] = &jobs[n]
	}
	count := make(map[*quartzJob]int)
	for _, t := range triggers {
		count[byName[id(t.JobGroup, t.JobName)]]++
	}
	for _, t := range triggers {
		place := "trigger " + id(t.Group, t.Name)
		j := byName[id(t.JobGroup, t.JobName)]
		if j == nil {
			i.note("%s: left out: there is no job %s", place, id(t.JobGroup, t.JobName))
			continue
		}
		used[j]++
		name := j.Name
		if count[j] > 1 {
			name += "-" + t.Name
		}
		f := j.foreign(name, place)
		if f.trigger(t) {
			i.add(f)
		} else {
			i.note("%s: left out: found a trigger of type %s, expected cron, simple or calendar-interval", place, cmp.Or(t.kind, "unknown"))
		}
	}
	for n := range jobs {
		if j := &jobs[n]; used[j] == 0 {
			f := j.foreign(j.Name, "job "+id(j.Group, j.Name))
			f.note("no trigger fires it: the job has no schedule, and runs when it is triggered")
			i.add(f)
		}
	}
	return i.end()
}

func (j *quartzJob) foreign(name, place string) Foreign {
	f := newForeign(name, place)
	f.Class, f.Configuration.Description = strings.TrimSpace(j.Class), strings.TrimSpace(j.Description)
	if g := j.Group; g != "" && g != "DEFAULT" {
		f.note("its group was %s", g)
	}
	switch strings.ToLower(j.Recover) {
	case "true", "1", "t", "y":
		f.Configuration.Failover = true
	}
	for _, d := range j.Data {
		f.note("its data map had %s=%s: say it in jobParameter or props", d.Key, d.Value)
	}
	return f
}

// trigger takes a trigger's schedule; false if it has none that is known.
func (f *Foreign) trigger(t quartzTrigger) bool {
	c := &f.Configuration
	c.TimeZone = strings.TrimSpace(t.TimeZone)
	switch t.kind {
	case "cron":
		c.Cron = strings.Join(strings.Fields(t.Cron), " ")
	case "simple":
		f.every(t.RepeatInterval, time.Millisecond)
		if n, err := strconv.Atoi(strings.TrimSpace(t.RepeatCount)); err == nil && n >= 0 {
			f.note("it fired %d times: here maxRuns does that", n+1)
		}
	case "calendar-interval":
		units := map[string]time.Duration{"MILLISECOND": time.Millisecond, "SECOND": time.Second, "MINUTE": time.Minute, "HOUR": time.Hour, "DAY": 24 * time.Hour, "WEEK": 7 * 24 * time.Hour}
		unit, ok := units[strings.ToUpper(strings.TrimSpace(t.Unit))]
		if !ok {
			f.note("it fired every %s %s: there is no such interval here, write a cron expression", t.RepeatInterval, t.Unit)
			break
		}
		f.every(t.RepeatInterval, unit)
	default:
		return false
	}
	switch strings.TrimSpace(t.Misfire) {
	case "MISFIRE_INSTRUCTION_DO_NOTHING":
		c.Misfire = false
	case "MISFIRE_INSTRUCTION_IGNORE_MISFIRE_POLICY":
		f.guest(func(g *jobconfig.Guest) { g.CatchUp = jobconfig.CatchUpAll })
	}
	if t.Start != "" {
		f.note("it began at %s: say so in startAt, with a zone", strings.TrimSpace(t.Start))
	}
	if t.End != "" {
		f.note("it ended at %s: say so in endAt, with a zone", strings.TrimSpace(t.End))
	}
	if t.Calendar != "" {
		f.note("its calendar %s left out days: Quartz keeps calendars as Java objects, so write them anew as NAME.calendar.yaml (docs/calendars.md)", t.Calendar)
	}
	if p := strings.TrimSpace(t.Priority); p != "" && p != "5" {
		f.note("its priority was %s", p)
	}
	c.Disabled = t.paused
	return true
}

// every is an interval in units of one.
func (f *Foreign) every(text string, unit time.Duration) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n <= 0 || n > int64(365*24*time.Hour/unit) {
		f.note("its interval %q is none that can be written here", text)
		return
	}
	every := "@every " + (time.Duration(n) * unit).String()
	if _, err := schedule.Parse(every, nil); err != nil {
		f.note("its interval: %v", err)
		return
	}
	f.Configuration.Cron = every
	f.note("%s: it was counted from its start; here the count begins at 1970-01-01 00:00 UTC, the same on each host", every)
}
