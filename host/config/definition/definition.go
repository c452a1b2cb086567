// Package definition reads job definitions: the NAME.yaml beside a NAME.wasm, one document per job. It is all
// or nothing: a file with a problem defines no job, and the error lists every problem with its place.
//
// docs/definitions.md describes the fields.
package definition

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Definition is one job as its file has it.
type Definition struct {
	// Configuration is valid, and so are its cron and time zone.
	Configuration jobconfig.Configuration
	// Module is the name of the module's file, beside the definition.
	Module string
	// JobClass is the class that a Java host of the same job runs; usually empty.
	JobClass string
	// Line is the first line of the job in its file, from 1.
	Line int
	// Inherited are the files of defaults, by the settings whose values they gave; nil if all are the
	// definition's own.
	Inherited map[string]string
	// InheritedSize is about how many bytes of its values they gave.
	InheritedSize int
}

// The defaults that differ from those of an ElasticJob configuration that was
// read from a registry. The switches are those of ElasticJob's builder.
const (
	// DefaultTimeout is the time limit of an item unless the file sets another one, or 0 for no limit.
	DefaultTimeout = 10 * time.Minute
	// DefaultReconcileIntervalMinutes is how often the registry is read again.
	DefaultReconcileIntervalMinutes = 10
)

// MaxSize is the largest file in bytes, MaxJobs how many jobs it may define.
const (
	MaxSize = 1 << 20
	MaxJobs = 5000
	// MaxInherited is how many bytes of values files of defaults may give to the jobs of one file: each job
	// has its own copy in the registry and on each host.
	MaxInherited = 16 << 20
)

// Problem is something wrong in a file.
type Problem struct {
	// Line and Column begin with 1; they are 0 if the problem is the file.
	Line, Column int
	// Field is the field's name, such as "cron" or "retry.attempts"; empty
	// if the problem is no field's.
	Field string
	// Message names what was found and what was expected.
	Message string
}

func (p Problem) String() string {
	s := ""
	if p.Line > 0 {
		s = fmt.Sprintf("%d:%d: ", p.Line, p.Column)
	}
	if p.Field != "" {
		s += p.Field + ": "
	}
	return s + p.Message
}

// Error is what is wrong with a file.
type Error struct {
	File string
	// Problems are in the order of their places: at least one, and at most [words.MostProblems]. More is how
	// many others there are.
	Problems []Problem
	More     int
}

// Error has one line for each problem: file:line:column: field: message.
func (e *Error) Error() string {
	var lines []string
	for _, p := range e.Problems {
		position := ":"
		if p.Line == 0 {
			position = ": "
		}
		lines = append(lines, e.File+position+p.String())
	}
	if e.More > 0 {
		lines = append(lines, e.File+": "+words.More(e.More))
	}
	return strings.Join(lines, "\n")
}

// Parse reads the jobs of a definition file. file is its name, with or without
// folders; it is used in messages, and its base name gives the module's and,
// for a file of one job, the job's. The error is an [*Error].
func Parse(file string, data []byte) ([]Definition, error) { return ParseWithin(file, data, nil) }

// ParseWithin is Parse for a host with ceilings: a value that exceeds one is a problem, and defaults are
// capped. shared are the defaults of the file's folder and then of those above; a job inherits fields from
// them.
func ParseWithin(file string, data []byte, ceilings ceiling.List, shared ...*Shared) ([]Definition, error) {
	p := &parser{ceilings: ceilings, known: knownSettings(), base: strings.TrimSuffix(path.Base(file), path.Ext(file))}
	var definitions []Definition
	documents := p.documents(data)
	first := map[string]int{}
	for _, root := range documents {
		d := newJob(p, root, len(documents) == 1)
		d.under = shared
		definition := d.read()
		name := definition.Configuration.JobName
		if line, twice := first[name]; twice && name != "" {
			d.problem(cmp.Or(d.nodes["jobName"], root), "jobName", "%q is defined in line %d already, expected a name of its own", name, line)
		} else {
			first[name] = definition.Line
		}
		definitions = append(definitions, definition)
	}
	if err := p.err(file); err != nil {
		return nil, err
	}
	return definitions, nil
}

// err is what is wrong with the file: nil, or an [*Error].
func (p *parser) err(file string) error {
	problems := p.problems.Kept()
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{file, problems, p.problems.More()}
}

// Defaults are the settings of a job whose definition states none, on a host with ceilings.
func Defaults(job string, ceilings ceiling.List) (jobconfig.Configuration, error) {
	list, err := ParseWithin(job+".yaml", []byte("shardingTotalCount: 1\n"), ceilings)
	if err != nil {
		return jobconfig.Configuration{}, err
	}
	return list[0].Configuration, nil
}

// Warnings lists settings that are valid but may not be intended, as of now.
func (d Definition) Warnings(now time.Time) []string {
	s := d.schedule()
	if s == nil {
		return nil // nothing to say, or a problem
	}
	if s.Next(now).IsZero() {
		if c := d.Configuration; c.InstantProps() == nil {
			return []string{fmt.Sprintf("cron %q never fires again", c.Cron)}
		}
		return []string{"the job never fires again"}
	}
	if understood := d.Understood(now); understood != "" {
		return []string{understood}
	}
	return nil
}

// Understood explains how a cron of five fields was read, whose author may have forgotten the seconds, and one
// with ambiguous days of the week; it is empty for any other.
func (d Definition) Understood(now time.Time) string {
	s := d.schedule()
	if s == nil || !s.Unix() {
		if s != nil {
			return s.Surprise()
		}
		return ""
	}
	return fmt.Sprintf("cron %q has five fields and is read as Unix cron: minutes first, no seconds; it fires next at %s",
		d.Configuration.Cron, s.Next(now).Format("2006-01-02 15:04:05 -07:00"))
}

// schedule is nil if there is none, or if it cannot be read.
func (d Definition) schedule() *timetable.Timetable {
	s, _ := timetable.New(d.Configuration, "")
	return s
}
