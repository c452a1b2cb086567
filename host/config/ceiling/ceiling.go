// Package ceiling has the operator's ceilings: limits that no job of a host may exceed, whatever its definition
// or the registry says.
//
// A [List] is read like firewall rules: for each ceiling, the first entry that matches the job and sets that
// ceiling decides. All functions are pure, and safe for concurrent use.
package ceiling

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Name names a ceiling, in the configuration, in messages and in metrics.
type Name string

// The ceilings. A ceiling on a field of the definition has the field's name; a definition that exceeds it is
// refused.
const (
	// Timeout bounds the field timeout, in nanoseconds. 0, which means no limit, exceeds every ceiling.
	Timeout Name = "timeout"
	// MaxConcurrency bounds the field maxConcurrency, and is the default of a job that does not set it.
	MaxConcurrency Name = "maxConcurrency"
	// MemoryLimit bounds the field memoryLimit, in bytes, and the default of a job that does not set it.
	MemoryLimit Name = "memoryLimit"
	// ShardingTotalCount bounds the field shardingTotalCount.
	ShardingTotalCount Name = "shardingTotalCount"
	// Jobs bounds how many of the jobs that one entry applies to the host takes.
	Jobs Name = "maxJobs"
	// Items bounds the total number of items, by their definitions, of the jobs that one entry applies to.
	// Without it ShardingTotalCount and Jobs would multiply.
	Items Name = "maxItems"
	// Share bounds the part of the host's slots that one job may have, in per
	// cent.
	Share Name = "maxShare"
	// LogLines and LogBytes bound what one job logs on this host in a second.
	LogLines Name = "logLines"
	LogBytes Name = "logBytes"
	// HistoryBytes bounds what the events of one job take in the history file,
	// in bytes a day.
	HistoryBytes Name = "historyBytes"
	// OffsetCommits bounds how often the guests of one job on this host commit
	// an offset in a second.
	OffsetCommits Name = "offsetCommits"
)

// Quotas are the ceilings of a running job's usage, as opposed to its definition.
func Quotas() []Name { return []Name{LogLines, LogBytes, HistoryBytes, OffsetCommits} }

// Names are all ceilings, in the order in which they are shown.
func Names() []Name {
	return []Name{Timeout, MaxConcurrency, MemoryLimit, ShardingTotalCount, Jobs, Items, Share, LogLines, LogBytes, HistoryBytes, OffsetCommits}
}

// The defaults.
const (
	DefaultShardingTotalCount = 10_000
	DefaultJobs               = 10_000
	DefaultItems              = 100_000
	DefaultShare              = 75 // per cent
	DefaultLogLines           = 1_000
	DefaultLogBytes           = 1 << 20
	DefaultOffsetCommits      = 100
)

// Off is the value of a ceiling that is switched off.
const Off int64 = 0

const off = "off"

// Default is the entry after all others. historyBytes is the ceiling HistoryBytes.
func Default(historyBytes int64) Entry {
	return Entry{Jobs: "*", Values: map[Name]int64{
		ShardingTotalCount: DefaultShardingTotalCount, Jobs: DefaultJobs, Items: DefaultItems, Share: DefaultShare,
		LogLines: DefaultLogLines, LogBytes: DefaultLogBytes, HistoryBytes: historyBytes, OffsetCommits: DefaultOffsetCommits,
	}}
}

// Entry sets ceilings for the jobs whose names match a pattern.
type Entry struct {
	// Jobs is the pattern, in the form of [path.Match]: * stands for any
	// number of characters.
	Jobs string
	// Values has the ceilings that the entry sets; Off lifts one.
	Values map[Name]int64
}

// List is a host's ceilings; the first entry that matches and sets one counts.
// The empty list has none.
type List []Entry

// Ceiling is a ceiling that applies to one job.
type Ceiling struct {
	Name Name
	// Value is Off if there is no such ceiling.
	Value int64
	// Jobs is the pattern of the entry that decided.
	Jobs string
}

// Of returns the ceiling of a job.
func (l List) Of(job string, name Name) Ceiling {
	for _, e := range l {
		if value, sets := e.Values[name]; sets && e.matches(job) {
			return Ceiling{name, value, e.Jobs}
		}
	}
	return Ceiling{Name: name}
}

func (e Entry) matches(job string) bool { return Matches(e.Jobs, job) }

// Matches reports whether a pattern, in the form of [path.Match], matches a job.
func Matches(pattern, job string) bool {
	ok, err := path.Match(pattern, job)
	return ok && err == nil
}

// Cap returns n, or the ceiling if that is lower. n is the default of a job that sets no limit; 0 is none.
func (c Ceiling) Cap(n int64) int64 {
	if c.Value != Off && (n == 0 || n > c.Value) {
		return c.Value
	}
	return n
}

// Beyond reports whether n is more than the ceiling allows.
func (c Ceiling) Beyond(n int64) bool { return c.Value != Off && n > c.Value }

func (c Ceiling) String() string {
	return fmt.Sprintf("the host's ceiling %s for jobs %q is %s", c.Name, c.Jobs, kindOf(c.Name).measure(c.Value))
}

// Flag is the flag that raises the ceiling.
func (c Ceiling) Flag() string { return fmt.Sprintf("--ceiling '%s:%s=N'", c.Jobs, c.Name) }

// Slots returns how many of a host's slots one job may have: its share, rounded down, but at least one.
func (c Ceiling) Slots(slots int) int {
	if c.Value == Off {
		return slots
	}
	return max(1, int(int64(slots)*c.Value/100))
}

// Error says how a configuration exceeds the ceilings.
type Error struct {
	// Problems name the fields; there is at least one.
	Problems []*jobconfig.FieldError
}

func (e *Error) Error() string { return errors.Join(e.Unwrap()...).Error() }

// Unwrap has each problem as an error.
func (e *Error) Unwrap() []error {
	list := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		list[i] = p
	}
	return list
}

// Check returns an [*Error] if a configuration exceeds its job's ceilings. It ignores unreadable settings.
func (l List) Check(c jobconfig.Configuration) error {
	var problems []*jobconfig.FieldError
	check := func(name Name, n int64) {
		ceiling := l.Of(c.JobName, name)
		switch {
		case ceiling.Beyond(n):
			problems = append(problems, &jobconfig.FieldError{Field: string(name),
				Problem: fmt.Sprintf("found %s, %s", kindOf(name).show(n), ceiling)})
		case name == Timeout && n == 0 && ceiling.Value != Off:
			problems = append(problems, &jobconfig.FieldError{Field: string(name),
				Problem: fmt.Sprintf("found 0, which is no limit, %s", ceiling)})
		}
	}
	g, _ := c.Guest() // has its defaults where it cannot be read
	check(ShardingTotalCount, int64(c.ShardingTotalCount))
	check(Timeout, int64(g.Timeout))
	check(MaxConcurrency, int64(g.MaxConcurrency))
	check(MemoryLimit, g.MemoryLimit)
	if len(problems) == 0 {
		return nil
	}
	return &Error{problems}
}

// Parse reads an entry of the form JOBS:NAME=VALUE,NAME=VALUE, such as
// team-a-*:timeout=1h,memoryLimit=256MiB.
func Parse(text string) (Entry, error) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return Entry{}, fmt.Errorf("found %q, expected JOBS:NAME=VALUE,…, such as team-a-*:timeout=1h", jobconfig.Clip(text))
	}
	e := Entry{Jobs: text[:at]}
	var problems words.Problems
	problems.Add(CheckPattern(e.Jobs))
	for pair := range strings.SplitSeq(text[at+1:], ",") {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			problems.Addf("found %q, expected NAME=VALUE, such as timeout=1h", jobconfig.Clip(pair))
			continue
		}
		problems.Add(e.Set(strings.TrimSpace(name), value))
	}
	return e, problems.Err()
}

// CheckPattern checks a pattern of jobs: a name, in which * stands for any number of
// characters and ? for one. A list of names, and what no name can have, is refused.
func CheckPattern(jobs string) error {
	if _, err := path.Match(jobs, ""); err != nil || jobs == "" || jobs != strings.TrimSpace(jobs) || strings.ContainsAny(jobs, ",/") {
		return fmt.Errorf("found %q, expected one job's name or one pattern, such as team-a-* or *, without commas, slashes and blanks around it", jobconfig.Clip(jobs))
	}
	return nil
}

// Set adds a ceiling to the entry, by its name and its value as text.
func (e *Entry) Set(name, value string) error {
	n := Name(name)
	if !slices.Contains(Names(), n) {
		var known []string
		for _, n := range Names() {
			known = append(known, string(n))
		}
		return fmt.Errorf("found the ceiling %q, expected one of %s", jobconfig.Clip(name), strings.Join(known, ", "))
	}
	if _, twice := e.Values[n]; twice {
		return fmt.Errorf("%s: is given twice", name)
	}
	v := Off
	if value = strings.TrimSpace(value); value != off {
		k := kindOf(n)
		var ok bool
		if v, ok = k.parse(value); !ok || v <= 0 || v > k.most {
			return fmt.Errorf("%s: found %q, expected %s, or off", name, jobconfig.Clip(value), k.expected)
		}
	}
	if e.Values == nil {
		e.Values = make(map[Name]int64)
	}
	e.Values[n] = v
	return nil
}

// Settings are the names and values that the entry sets, as Set reads them.
func (e Entry) Settings() (list [][2]string) {
	for _, n := range Names() {
		if v, sets := e.Values[n]; sets {
			list = append(list, [2]string{string(n), kindOf(n).show(v)})
		}
	}
	return list
}

// kind is how the values of a ceiling are written.
type kind struct {
	parse    func(string) (int64, bool)
	text     func(int64) string
	unit     string // for sentences, after the value
	most     int64
	expected string
}

func (k kind) show(v int64) string {
	if v == Off {
		return off
	}
	return k.text(v)
}

func (k kind) measure(v int64) string { return k.show(v) + k.unit }

func kindOf(n Name) kind {
	number := kind{parse: parseNumber, text: showNumber, most: math.MaxInt32, expected: "a whole number from 1"}
	size := kind{parse: jobconfig.ParseSize, text: jobconfig.ShowSize, most: math.MaxInt64, expected: "a size such as 64MiB"}
	switch n {
	case Timeout:
		return kind{parse: parseDuration, text: func(v int64) string { return words.Duration(time.Duration(v)) }, most: math.MaxInt64, expected: jobconfig.DurationExample}
	case MemoryLimit:
		size.parse, size.expected = parseMemory, "a size from 64KiB to 2GiB"
		return size
	case Share:
		return kind{parse: parsePercent, text: func(v int64) string { return showNumber(v) + "%" }, unit: " of its slots", most: 100,
			expected: "a share from 1% to 100%"}
	case LogLines, OffsetCommits:
		number.unit = " a second"
		return number
	case LogBytes:
		size.unit = " a second"
		return size
	case HistoryBytes:
		size.unit = " a day"
		return size
	}
	return number
}

func parseNumber(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int64(n), err == nil
}

func showNumber(v int64) string { return strconv.FormatInt(v, 10) }

func parsePercent(s string) (int64, bool) {
	digits, ok := strings.CutSuffix(s, "%")
	n, is := parseNumber(digits)
	return n, ok && is
}

func parseMemory(s string) (int64, bool) {
	n, err := jobconfig.ParseMemoryLimit(s)
	return n, err == nil
}

func parseDuration(s string) (int64, bool) {
	d, err := jobconfig.ParseDuration(s, jobconfig.MaxTimeout)
	return int64(d), err == nil
}
