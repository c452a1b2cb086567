package cluster

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Mark is what a follower of the jobs has seen: all changes up to a generation, since one start of the host
// that was asked. The zero value has seen nothing.
type Mark struct {
	Epoch      string
	Generation uint64
}

// String is the mark as ParseMark reads it; empty if it is the zero value.
func (m Mark) String() string {
	if m == (Mark{}) {
		return ""
	}
	return m.Epoch + "." + strconv.FormatUint(m.Generation, 10)
}

// ParseMark reads a mark. What is none is the zero value, with which all jobs are given.
func ParseMark(text string) Mark {
	epoch, number, _ := strings.Cut(text, ".")
	generation, err := strconv.ParseUint(number, 10, 64)
	if err != nil || epoch == "" {
		return Mark{}
	}
	return Mark{epoch, generation}
}

// Changed is what has changed since a mark.
type Changed struct {
	// Mark is that of now.
	Mark Mark
	// Whole: Jobs are all jobs; others are gone. Otherwise they are those that changed; one without a health is
	// gone.
	Whole bool
	Jobs  []Job // by name
	// More is closed with the next change.
	More <-chan struct{}
}

// Mark is that of now; more is closed with the next change.
func (c *Cluster) Mark() (mark Mark, more <-chan struct{}) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return Mark{c.epoch, c.generation}, c.changed
}

// Changes is what has changed since a mark.
func (c *Cluster) Changes(since Mark) Changed {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := Changed{Mark: Mark{c.epoch, c.generation}, More: c.changed}
	out.Whole = since.Epoch != c.epoch || since.Generation > c.generation || since.Generation < c.log.forgotten
	if out.Whole {
		for _, j := range c.jobs {
			out.Jobs = append(out.Jobs, *j)
		}
	} else {
		for name := range c.log.after(since.Generation) {
			j := c.jobs[name]
			if j == nil {
				j = &Job{Name: name}
			}
			out.Jobs = append(out.Jobs, *j)
		}
	}
	slices.SortFunc(out.Jobs, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// changes is which jobs changed when.
type changes struct {
	list []change // by generation
	// forgotten is the newest generation whose changes may be missing.
	forgotten uint64
}

type change struct {
	generation uint64
	name       string
}

// leastLog is how many changes are remembered at least.
const leastLog = 1000

func (l *changes) add(generation uint64, name string) {
	l.list = append(l.list, change{generation, name})
}

// trim forgets the older half if there are more than so many.
func (l *changes) trim(most int) {
	if len(l.list) <= most {
		return
	}
	half := len(l.list) / 2
	l.forgotten = l.list[half-1].generation
	l.list = slices.Clone(l.list[half:])
}

// after are the names of jobs that changed after a generation.
func (l *changes) after(generation uint64) map[string]bool {
	set := make(map[string]bool)
	from := sort.Search(len(l.list), func(i int) bool { return l.list[i].generation > generation })
	for _, c := range l.list[from:] {
		set[c.name] = true
	}
	return set
}
