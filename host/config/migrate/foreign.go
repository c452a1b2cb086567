package migrate

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/schedule"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Foreign is a job of another scheduler as it was found.
type Foreign struct {
	Job
	// Place says where it was found: line 3, CronJob shop/report.
	Place string
	// Theirs is its schedule as the other scheduler reads it; nil if this host reads it the same way.
	Theirs cron.Schedule
}

// Imported is what was read of another scheduler.
type Imported struct {
	Jobs []Foreign
	// Notes say what was not imported, and why: the first ones, and the number of the others.
	Notes []string
	more  int
	// taken are the names of the jobs, in lower case; next is the number that is tried first for another job of a name.
	taken map[string]bool
	next  map[string]int
}

func (i *Imported) note(format string, args ...any) {
	if len(i.Notes) == words.MostProblems {
		i.more++
		return
	}
	i.Notes = append(i.Notes, words.Cut(fmt.Sprintf(format, args...), mostNote))
}

// mostForeign is how many jobs one import reads. mostText is the longest text that is read, in bytes, except
// for a database dump; mostEntries is how many entries it may have: each takes memory, however short it is.
const (
	mostForeign = 10_000
	mostText    = 64 << 20
	mostEntries = 1_000_000
)

// fits checks the size of a text.
func fits(text []byte) error {
	if len(text) > mostText {
		return fmt.Errorf("found %d bytes, expected at most %d: import it in parts", len(text), mostText)
	}
	return nil
}

// add adds a job under a unique name. A job whose configuration is invalid is left out, with a note.
func (i *Imported) add(f Foreign) {
	if len(i.Jobs) == mostForeign {
		i.note("%s: left out: an import has at most %d jobs", f.Place, mostForeign)
		return
	}
	if f.Configuration.Cron != "" {
		if _, err := f.schedule(); err != nil {
			i.note("%s: left out: %v", f.Place, err)
			return
		}
	}
	f.Name = i.unused(f.Name)
	if err := jobconfig.CheckJobName(f.Name); err != nil {
		i.note("%s: left out: %v", f.Place, err)
		return
	}
	f.Configuration.JobName = f.Name
	if f.more > 0 {
		f.Notes = append(f.Notes, words.More(f.more))
	}
	i.Jobs = append(i.Jobs, f)
}

// unused is a name like the wished one that no job of the import has, by the names of files.
func (i *Imported) unused(name string) string {
	if i.taken == nil {
		i.taken, i.next = make(map[string]bool), make(map[string]int)
	}
	name = plain(name)
	free, wished := name, strings.ToLower(name)
	for n := max(i.next[wished], 2); i.taken[strings.ToLower(free)]; n++ {
		free, i.next[wished] = fmt.Sprintf("%s-%d", name, n), n+1
	}
	i.taken[strings.ToLower(free)] = true
	return free
}

// plain is a name with what a file may be called on any system; "job" if nothing is left.
func plain(name string) string {
	var b strings.Builder
	for _, r := range name {
		if (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || r == '_' || r == '.' {
			b.WriteRune(r)
		} else if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
		if b.Len() == 60 {
			break
		}
	}
	if name = strings.Trim(b.String(), "-._"); name == "" {
		return "job"
	}
	return name
}

// In sets a time zone for jobs whose schedules name none.
func (i *Imported) In(zone string) error {
	if zone == "" {
		return nil
	}
	loc, err := schedule.Zone(zone)
	if err != nil {
		return err
	}
	for n := range i.Jobs {
		f := &i.Jobs[n]
		if f.Configuration.TimeZone == "" && f.Configuration.Cron != "" {
			f.Configuration.TimeZone = zone
			if w, ok := f.Theirs.(within); ok {
				f.Theirs = within{w.Schedule, loc}
			}
		}
	}
	return nil
}

// end closes the list of notes.
func (i *Imported) end() *Imported {
	if i.more > 0 {
		i.Notes = append(i.Notes, words.More(i.more))
	}
	return i
}

// newForeign is a job with the defaults of a definition.
func newForeign(name, place string) Foreign {
	return Foreign{Place: place, Job: Job{Found: Found{Name: name}, Kind: KindSimple, Configuration: jobconfig.Configuration{
		ShardingTotalCount: 1, MonitorExecution: true, Misfire: true, MaxTimeDiffSeconds: -1, ReconcileIntervalMinutes: 10,
	}}}
}

// guest changes settings of the guest.
func (f *Foreign) guest(change func(g *jobconfig.Guest)) {
	g, _ := f.Configuration.Guest() // it was made here
	change(&g)
	if f.Configuration.Props == nil {
		f.Configuration.Props = make(map[string]string)
	}
	g.Props(f.Configuration.Props)
}

func (f *Foreign) schedule() (cron.Schedule, error) {
	loc, err := schedule.Zone(f.Configuration.TimeZone)
	if err != nil {
		return nil, err
	}
	return schedule.Parse(f.Configuration.Cron, loc)
}

// Next returns up to n instants after a time at which the job fires here, and those at which the other
// scheduler fires it, nil if they are the same.
func (f *Foreign) Next(from time.Time, n int) (ours, theirs []time.Time) {
	if f.Configuration.Cron == "" {
		return nil, nil
	}
	s, err := f.schedule()
	if err != nil {
		return nil, nil
	}
	ours = schedule.Next(s, from, n)
	if f.Theirs == nil {
		return ours, nil
	}
	theirs = schedule.Next(f.Theirs, from, n)
	if slices.EqualFunc(ours, theirs, time.Time.Equal) {
		return ours, nil
	}
	return ours, theirs
}

// commandName guesses a command line's name: the first word that is neither a wrapper nor a variable, without
// folder and extension.
func commandName(line string) string {
	wrappers := []string{"sudo", "nice", "ionice", "flock", "timeout", "env", "exec", "sh", "bash", "dash", "zsh", "cd", "chronic", "nohup", "time", "test", "[", "command", "setsid",
		"python", "python2", "python3", "perl", "php", "ruby", "node", "java"}
	skip := false
	for word := range strings.FieldsSeq(line) {
		word = strings.Trim(word, `"'();`)
		base := path.Base(word)
		switch {
		case skip:
			skip = false
			continue
		case word == "" || strings.HasPrefix(word, "-") || strings.ContainsAny(word, "&|<>") || strings.Contains(word, "="):
			continue
		case base == "cd" || base == "flock" || base == "timeout":
			skip = true // its argument
			continue
		case slices.Contains(wrappers, base):
			continue
		}
		if short := strings.TrimSuffix(base, path.Ext(base)); short != "" {
			return short
		}
		return base
	}
	return "job"
}
