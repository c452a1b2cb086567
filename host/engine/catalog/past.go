package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

const (
	// mostRemembered is how many refusals of modules are kept over a restart, with rememberedSize bytes of reasons
	// at most.
	mostRemembered = 10_000
	rememberedSize = 4 << 20
	// mostPast is how large the file is at most that is read, in bytes.
	mostPast = 64 << 20
	// saveTime is how long a change waits before it is saved.
	saveTime = 5 * time.Second
)

// past is what a host knows of its plugins directory from before its start.
type past struct {
	// Jobs are those that were in force, by name.
	Jobs map[string]pastJob `json:"jobs"`
	// Refused are the reasons why modules were refused, by digest.
	Refused map[string][]string `json:"refused"`

	accepted map[string]bool // digests of the jobs' modules
	files    map[string]bool // of the jobs
}

type pastJob struct {
	File   string `json:"file"`
	Module string `json:"module"`
	Digest string `json:"digest"`
}

// pastFile is where the past of a plugins directory is kept; empty if there is no cache directory.
func pastFile(cache, dir string) string {
	if cache == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(cache, "plugins-"+hex.EncodeToString(sum[:8])+".json")
}

// readPast reads the past; what cannot be read is none.
func readPast(name string) (past, error) {
	var p past
	if name == "" {
		return p, nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	defer f.Close() // only read
	if err := json.NewDecoder(io.LimitReader(f, mostPast)).Decode(&p); err != nil {
		return past{}, fmt.Errorf("%s: %w", name, err)
	}
	return p.indexed(), nil
}

func (p past) indexed() past {
	p.accepted, p.files = make(map[string]bool), make(map[string]bool)
	for _, j := range p.Jobs {
		p.accepted[j.Digest], p.files[j.File], p.files[j.Module] = true, true, true
	}
	return p
}

// next is the past as of now. A job whose file is there stays its file's, also while the file is not in order.
func (p past) next(s state, jobs []*binding, outcomes map[string]outcome, settled bool) past {
	next := past{Jobs: make(map[string]pastJob), Refused: make(map[string][]string)}
	claims := make(map[string][]claim)
	for name, f := range s.files {
		for _, d := range f.docs {
			claims[d.Configuration.JobName] = append(claims[d.Configuration.JobName], claim{file: name})
		}
	}
	for job, j := range p.Jobs {
		if _, there := s.files[j.File]; there && (!settled || s.reserved(j.File, claims[job])) {
			next.Jobs[job] = j
		}
	}
	for _, b := range jobs {
		next.Jobs[b.doc.Configuration.JobName] = pastJob{b.job.File, b.job.ModuleFile, b.digest}
	}
	size := 0
	remember := func(digest string, problems []string) {
		_, known := next.Refused[digest]
		for _, text := range problems {
			size += len(text)
		}
		if !known && len(next.Refused) < mostRemembered && size <= rememberedSize {
			next.Refused[digest] = problems
		}
	}
	for _, digest := range slices.Sorted(maps.Keys(outcomes)) {
		if o := outcomes[digest]; o.compiled == nil && !o.unjudged && len(o.problems) > 0 {
			remember(digest, words.Strings(o.problems, 0))
		}
	}
	if !settled {
		for _, digest := range slices.Sorted(maps.Keys(p.Refused)) {
			if _, known := outcomes[digest]; !known {
				remember(digest, p.Refused[digest])
			}
		}
	}
	return next.indexed()
}

// reserved reports whether a file may still define a job: it does, or what it holds is not in order.
func (s state) reserved(name string, claims []claim) bool {
	f, there := s.files[name]
	return there && (f.unread() || f.problems.Len() > 0 || claimed(name, claims))
}

func claimed(name string, claims []claim) bool {
	return slices.ContainsFunc(claims, func(c claim) bool { return c.file == name })
}

// home is the file that a job belongs to if none of its definitions is in force: the one that was in force before
// the host started, else the one that has its name. Empty if neither is there.
func (s state) home(job string, claims []claim) string {
	if file := s.past.Jobs[job].File; file != "" && s.reserved(file, claims) {
		return file
	}
	for _, name := range []string{job + ".yaml", job + ".yml"} {
		if f, there := s.files[name]; there && (f.unread() || claimed(name, claims)) {
			return name
		}
	}
	return ""
}

// inTurn orders what is to be compiled: what was in force before the host started, then what is new, then what
// has failed before. Of each kind groups come one after the other, and of a group what is due first.
func inTurn(all []want) []want {
	due := func(a, b want) int {
		switch {
		case a.due.Equal(b.due):
			return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.digest, b.digest))
		case a.due.IsZero() || (!b.due.IsZero() && b.due.Before(a.due)):
			return 1
		}
		return -1
	}
	slices.SortFunc(all, due)
	type lot struct {
		urgency int
		group   string
	}
	turns := make(map[lot]int)
	for i := range all {
		w := &all[i]
		for j, g := range w.groups {
			if n := turns[lot{w.urgency, g}]; j == 0 || n < w.turn {
				w.turn = n
			}
		}
		for _, g := range w.groups {
			turns[lot{w.urgency, g}]++
		}
	}
	slices.SortStableFunc(all, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.urgency, b.urgency), cmp.Compare(a.turn, b.turn))
	})
	return all
}

// The urgencies of a want.
const (
	wasInForce = iota
	isNew
	hasFailed
)

// groupsOf are the groups of the jobs that name a module: the key that has signed it, else their files.
func (s state) groupsOf(digest string, files []string) []string {
	if by := s.signed[digest].signer; by != "" {
		return []string{groupOf(by, "")}
	}
	groups := make([]string, len(files))
	for i, f := range files {
		groups[i] = groupOf("", f)
	}
	return groups
}

// mayBegin reports whether a task may begin beside others: a group has fewer than are free, so that there is
// always a place for another group, and what has failed before has at most two.
func (r *run) mayBegin(w want) bool {
	failed, have := 0, make(map[string]int)
	for _, t := range r.tasks {
		if t.urgency == hasFailed {
			failed++
		}
		for _, g := range t.groups {
			have[g]++
		}
	}
	if w.urgency == hasFailed && failed >= 2 {
		return false
	}
	return len(w.groups) == 0 || slices.ContainsFunc(w.groups, func(g string) bool { return have[g] < maxTasks-len(r.tasks) })
}

// recall takes the refusals of before the start for modules that are there now. They are tried again when there is time.
func (r *run) recall() {
	if len(r.state.past.Refused) == 0 {
		return
	}
	for name, f := range r.state.files {
		if kindOf(name) != aModule || f.digest == "" {
			continue
		}
		problems, known := r.state.past.Refused[f.digest]
		if _, tried := r.outcomes[f.digest]; !known || tried {
			continue
		}
		r.outcomes[f.digest] = outcome{problems: problems}
		r.failures[f.digest] = failure{times: 1, retry: time.Now().Add(r.rescan)}
	}
}

// save writes the past down if it is another one than before.
func (r *run) save() {
	r.saveAt = time.Time{}
	if r.pastFile == "" || !r.applied || r.state.problem != "" {
		return
	}
	r.state.past = r.state.past.next(r.state, r.plan.jobs, r.outcomes, r.settled())
	text, err := json.Marshal(r.state.past)
	if err != nil || string(text) == r.saved {
		return // it cannot fail
	}
	tmp := r.pastFile + ".tmp"
	if err = os.WriteFile(tmp, text, 0o600); err == nil {
		err = os.Rename(tmp, r.pastFile)
	}
	if err != nil {
		r.log.Warn("what is in force could not be saved, for the next start", zap.String("file", r.pastFile), zap.Error(plain(err)))
		return
	}
	r.saved = string(text)
}
