package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// complaint is a reason why a file is not taken, with the place it is about; 0
// is none.
type complaint struct {
	line, column int
	text         string
	job          string // that it is about; empty for none
	// module is what is wrong with the job's module, missing that there is none.
	module  string
	missing bool
}

// about makes complaints about a file as a whole.
func about(texts ...string) (list complaints) {
	for _, t := range texts {
		list.Add(complaint{text: words.Reason(t)})
	}
	return list
}

// state is what is known about a directory. Its methods do not change it: they
// return the next one.
type state struct {
	// unnamed lets modules be there that no definition names.
	unnamed bool
	// ceilings say how many jobs are taken.
	ceilings  ceiling.List
	placement Placement // of the jobs' guests
	// grants are the operator's, grantsProblem is why their files are not taken as
	// they are now; mounts are granted beside them.
	grants        *grants.Set
	grantsProblem string
	mounts        map[string][]plugin.Mount
	// ungranted says that what jobs want is not compared with grants.
	ungranted bool
	// signed says who signed the modules, by digest.
	signed map[string]signed
	// dir names the directory, problem is why it cannot be read; what was
	// known before stays.
	dir, problem string
	// excess says of which files there are too many.
	excess []string
	past   past
	files  map[string]file
	// jobs are those in force, by name.
	jobs map[string]*binding
	// refused are the refusals, by file.
	refused map[string]engine.Refusal
	// judged are the jobs that name calendars, by their definitions; sets are the days of calendars that they share.
	judged map[*definition.Definition]judged
	sets   map[string]*daySet
	// spent says that no more jobs with calendars are judged by this decision; nil has no bound.
	spent func() bool
}

// file is one file of the directory. The version that it has and the version
// that is in use can differ.
type file struct {
	// stamp is the newest that was seen, since is when it was first seen.
	stamp stamp
	since time.Time
	// restless is since when it has not been at rest; zero if it is.
	restless time.Time
	// read is the stamp of the version that was read; zero if the newest
	// was not, or not with success.
	read stamp
	// problems say why the newest version is not taken.
	problems complaints
	// digest is the newest version's, empty if that is not known.
	digest string

	// good is the digest of the version of a module that was the last to
	// compile.
	good string
	// docs are the jobs of the version of a definition that was the last
	// without problems; none if there was no such version.
	docs []definition.Definition
	// calendar is the days of the version of a calendar that was the last without problems; nil if there was none.
	calendar *daysOf
	// shared are the defaults of the version of a file of defaults that was the last without problems, with
	// its digest; nil if there was none.
	shared       *definition.Shared
	sharedDigest string
	// under is the key of the defaults that a definition was read with.
	under string
}

// unread says that what the newest version holds is not known yet.
func (f file) unread() bool { return f.read.none() && f.problems.Len() == 0 }

// binding is a job in force. It is never changed; a job whose binding is the
// same pointer is the same job.
type binding struct {
	doc     definition.Definition
	digest  string
	granted string // granted.key
	by      signed // granted.by
	job     engine.Job
}

// outcome is what became of compiling a digest.
type outcome struct {
	compiled compiled // nil if it failed
	problems []string
	// unjudged says that the host failed before it learned anything of the module: the next start tries it at once.
	unjudged bool
	// trials say, by job, how it went with a costly configuration; see costly.
	trials map[string]trial
	// again says that what failed is worth another try; until then this
	// outcome holds.
	again bool
}

// trial is whether a module goes together with a definition.
type trial struct {
	doc     definition.Definition
	granted string // granted.key
	problem string
}

// wish is a job that is to be tried.
type wish struct {
	doc     definition.Definition
	granted granted
}

// want is a module to compile, unless that is done, and to try with some jobs.
type want struct {
	file, digest string
	apart        bool      // all jobs that name it run in processes of their own
	due          time.Time // when the first of its jobs fires; zero is not known
	try          []wish
	groups       []string // of its jobs
	urgency      int
	turn         int // among those of its groups
}

// plan is what a state asks for.
type plan struct {
	jobs    []*binding       // by name
	refused []engine.Refusal // by file
	compile []want           // in turn
	// waiting are the jobs that are not in force and will be, if all goes
	// well, when a digest is compiled; by name.
	waiting map[string][]string
	// needed are the digests that must stay compiled.
	needed map[string]bool
	// complaints are what refused says in words, by file.
	complaints map[string]complaints
	// timetables is how many were made for jobs with calendars. more says that some of these jobs wait for the next decision.
	timetables int
	more       bool
}

// patience is how many times the rest time a file may be restless before that
// is reported.
const patience = 5

// look takes over what was found in the directory. It returns the files to be
// read now: those at rest whose newest version was not read, or with all set
// every one at rest. A file is at rest if it was last modified a rest time ago,
// or else (clocks differ) if it has looked the same for that long. wake is when
// the first of the others may be at rest; zero if none is waited for.
func (s state) look(l look, now time.Time, rest time.Duration, all bool) (next state, read []string, wake time.Time) {
	next = s
	next.problem = l.problem
	if l.problem != "" {
		return next, nil, time.Time{}
	}
	next.excess = l.excess
	next.files = make(map[string]file, len(l.entries))
	for name, e := range l.entries {
		f := s.files[name]
		if e.problem != "" {
			f.stamp, f.read, f.digest, f.restless = stamp{}, stamp{}, "", time.Time{}
			f.problems = about(e.problem)
			next.files[name] = f
			continue
		}
		if f.stamp.none() || !f.stamp.equal(e.stamp) {
			if f.stamp.none() {
				f.problems = complaints{}
			}
			f.stamp, f.since, f.read = e.stamp, now, stamp{}
			if f.restless.IsZero() {
				f.restless = now
			}
		}
		at := earlier(f.stamp.modified.Add(rest), f.since.Add(rest))
		switch {
		case !f.restless.IsZero() && now.Before(at):
			if now.Sub(f.restless) >= patience*rest {
				f.problems, f.digest = about("is still being written"), ""
			}
			wake = earlier(wake, at)
		default:
			f.restless = time.Time{}
			if all || f.read.none() || next.stale(name, f) {
				read = append(read, name)
			}
		}
		next.files[name] = f
	}
	slices.Sort(read)
	return next, read, wake
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// read takes over the contents of files. wake is when to look again at those
// that were not at rest after all; zero if all were.
func (s state) read(contents map[string]content, now time.Time, rest time.Duration) (next state, wake time.Time) {
	next = s
	next.files = maps.Clone(s.files)
	explained := s.explained()
	for name, c := range contents {
		f := next.files[name]
		if len(c.problems.Kept()) > 1 {
			c.problems = brief(c.problems, explained >= mostRefused)
			explained++
		}
		switch {
		case c.busy:
			f.stamp, f.since, f.read = c.stamp, now, stamp{}
			if f.restless.IsZero() {
				f.restless = now
			}
			wake = now.Add(rest)
		case c.failed:
			f.read, f.digest, f.problems = stamp{}, "", c.problems
		default:
			f = f.with(c)
		}
		next.files[name] = f
	}
	return next, wake
}

// with is a file whose newest version was read.
func (f file) with(c content) file {
	f.read = c.stamp
	if same := c.digest != "" && c.digest == f.digest && c.under == f.under; same {
		return f
	}
	f.digest, f.problems, f.under = c.digest, c.problems, c.under
	if len(c.docs) > 0 && c.problems.Len() == 0 {
		f.docs = c.docs
	}
	if c.calendar != nil && (f.calendar == nil || f.calendar.text != c.calendar.text) {
		f.calendar = c.calendar
	}
	if c.shared != nil {
		f.shared, f.sharedDigest = c.shared, c.digest
	}
	return f
}

// forget makes the next look read the file again.
func (s state) forget(name string) state {
	f, ok := s.files[name]
	if !ok {
		return s
	}
	f.read, f.digest = stamp{}, ""
	s.files = maps.Clone(s.files)
	s.files[name] = f
	return s
}

// claim is a job in a definition file.
type claim struct {
	file string
	doc  definition.Definition
	// lacks says what is wrong with the calendars that the job names, or with the jobs that it comes after; unread says that one of
	// them was not read yet.
	lacks  string
	unread bool
	// table is the timetable of a job with calendars, without its jitter; nil for all others.
	table *timetable.Timetable
}

// complaints are those about one file: the first ones, and how many others there are.
type complaints = words.Few[complaint]

// report gathers why files are refused.
type report struct {
	complaints map[string]complaints
	kept       map[string]bool
}

func (r *report) add(file string, c complaints) {
	if c.Len() > 0 {
		all := r.complaints[file]
		all.Take(c)
		r.complaints[file] = all
	}
}

func (r *report) put(file string, c complaint) {
	all := r.complaints[file]
	if all.Full() {
		all.Count(1)
	} else {
		c.text = words.Reason(c.text)
		all.Add(c)
	}
	r.complaints[file] = all
}

// addJob says what is wrong with a job. Of a version that is not in force, and that another has
// followed which cannot be read, nothing is said: what counts is what is wrong with the new one.
func (r *report) addJob(s state, c claim, inForce bool, says complaint) {
	if problems := s.files[c.file].problems; inForce || problems.Len() == 0 {
		says.line, says.job = c.doc.Line, c.doc.Configuration.JobName
		says.text = fmt.Sprintf("job %q: %s", says.job, says.text)
		r.put(c.file, says)
	}
}

// decide works out which jobs are in force, which files are refused, and what
// has to be compiled, from what the files hold and what became of the modules.
//
// A job is in force with the newest version of its definition that is in order
// and the newest version of its module that compiled. While the module is
// being compiled the job stays as it was, so that a definition and a module
// that were replaced together take effect together. If the two do not go
// together, or the module cannot be had, the job stays as it was too. It
// leaves when its definition or its module is deleted.
//
// If several definitions have the same job, the one in force stays, also over a
// restart; if none is, the file with the job's name, and then the first by name, is taken. The others are refused, their files'
// other jobs are not.
func (s state) decide(outcomes map[string]outcome, now time.Time) (state, plan) {
	s.files = s.withBuiltin()
	next := s
	next.files = maps.Clone(s.files)
	next.jobs = make(map[string]*binding, len(s.jobs))
	p := plan{needed: make(map[string]bool), waiting: make(map[string][]string)}
	r := &report{complaints: make(map[string]complaints), kept: make(map[string]bool)}

	names := slices.Sorted(maps.Keys(s.files))
	claims := make(map[string][]claim) // by job
	users := make(map[string][]claim)  // the jobs that name a module
	files := make(map[string][]string) // the definitions that name a module
	named := make(map[string]bool)     // modules that a definition names
	unread := false                    // a definition may name any module
	refused := make(map[string]bool)   // by stem: the same, most likely the one beside it
	after := s.circular()
	s.judged, s.sets, p.timetables, p.more = s.judge()
	next.judged, next.sets = s.judged, s.sets
	for _, name := range names {
		f := s.files[name]
		if k := kindOf(name); k == aCalendar || k == aShared {
			r.add(name, f.problems)
			r.kept[name] = f.calendar != nil || f.shared != nil
		}
		if kindOf(name) != aDefinition {
			continue
		}
		for i, d := range f.docs {
			job := d.Configuration.JobName
			c := inChain(s.withCalendars(claim{file: name, doc: d}, &f.docs[i]), after)
			d = c.doc
			claims[job] = append(claims[job], c)
			users[d.Module] = append(users[d.Module], c)
			if by := files[d.Module]; len(by) == 0 || by[len(by)-1] != name {
				files[d.Module] = append(by, name)
			}
			named[d.Module] = true
		}
		unread = unread || (len(f.docs) == 0 && f.problems.Len() == 0)
		refused[stem(name)] = len(f.docs) == 0
		r.add(name, f.problems)
	}

	compile := make(map[string]want) // by digest
	for _, name := range names {
		f := next.files[name]
		if kindOf(name) != aModule {
			continue
		}
		r.add(name, f.problems)
		if !named[name] {
			continue
		}
		if o, known := outcomes[f.digest]; f.digest != "" {
			p.needed[f.digest] = true
			if !known || (o.again && o.compiled == nil) {
				compile[f.digest] = want{file: name, digest: f.digest, apart: s.apart(f.digest, users[name]), due: firstFire(users[name], now), groups: s.groupsOf(f.digest, files[name]), urgency: s.urgency(f.digest, o)}
			}
			if o.compiled != nil {
				f.good = f.digest
				next.files[name] = f
			}
			r.add(name, about(o.problems...))
		}
		if f.good != "" {
			p.needed[f.good] = true
		}
		r.kept[name] = outcomes[f.good].compiled != nil
	}

	room := s.roomFor(claims)
	for _, job := range s.inOrder(claims) {
		before := s.jobs[job]
		home := s.home(job, claims[job])
		owner := choose(claims[job], before, home)
		if before == nil && home != "" && owner.file != home {
			f := s.files[home]
			for _, c := range claims[job] {
				if !f.unread() {
					r.addJob(s, c, false, complaint{text: fmt.Sprintf("is that of %s, whose newest version is not in order", home)})
				}
			}
			continue // what it holds is not known yet, or it is being repaired
		}
		a := next.attempt(room, owner, before, outcomes)
		b := next.stay(a, owner, before, outcomes)
		if b == nil && before != nil {
			// Nothing runs any more that could claim to have been first.
			owner = choose(claims[job], nil, home)
			a = next.attempt(room, owner, nil, outcomes)
			b = a.binding
		}
		room.take(job, before, a, b, owner)
		for _, c := range claims[job] {
			if c.file != owner.file || c.doc.Line != owner.doc.Line {
				r.addJob(s, c, false, complaint{text: fmt.Sprintf("is defined in %s (line %d), expected one definition", owner.file, owner.doc.Line)})
			}
		}
		if a.try {
			w, known := compile[a.digest]
			if !known {
				w.due, w.groups = firstFire(users[owner.doc.Module], now), s.groupsOf(a.digest, []string{owner.file})
				w.urgency = s.urgency(a.digest, outcomes[a.digest])
				if s.past.Jobs[job].Digest != a.digest {
					w.urgency = max(w.urgency, isNew)
				}
			}
			w.file, w.digest, w.try = owner.doc.Module, a.digest, append(w.try, wish{owner.doc, a.granted})
			compile[a.digest] = w
		}
		if !a.open() {
			says := complaint{text: a.full}
			if a.full == "" {
				says.module, says.missing = fmt.Sprintf("%q: %s", owner.doc.Module, a.problem), a.problem == missingModule
				says.text = "module " + says.module
			}
			r.addJob(s, owner, b != nil, says)
			r.kept[owner.file] = r.kept[owner.file] || b != nil
		}
		if digest := cmp.Or(a.digest, s.files[owner.doc.Module].digest); b == nil && a.open() && digest != "" {
			p.waiting[digest] = append(p.waiting[digest], job)
		}
		if b != nil {
			next.jobs[job] = b
			p.jobs = append(p.jobs, b)
			problems := s.files[b.job.File].problems
			r.kept[b.job.File] = r.kept[b.job.File] || problems.Len() > 0
			p.needed[b.digest] = true
			named[b.job.ModuleFile] = true
		}
	}
	slices.SortFunc(p.jobs, func(a, b *binding) int { return strings.Compare(a.job.Definition.JobName, b.job.Definition.JobName) })
	for _, jobs := range p.waiting {
		slices.Sort(jobs)
	}

	for _, name := range names {
		if kindOf(name) == aModule && !named[name] && !unread && !refused[stem(name)] && !s.unnamed && !s.files[name].read.none() {
			r.put(name, complaint{text: fmt.Sprintf("no definition names it, expected one such as %s.yaml beside it", stem(name))})
		}
	}
	p.compile = inTurn(slices.Collect(maps.Values(compile)))
	if s.grantsProblem != "" {
		r.add("grants", about(s.grantsProblem))
		r.kept["grants"] = true
	}
	if s.problem != "" {
		r.add(s.dir, about(s.problem))
		r.kept[s.dir] = len(p.jobs) > 0
	}
	r.add(s.dir, about(s.excess...))
	r.limit(mostRefused, s.dir)
	next.refused, p.refused = r.refusals(s.refused, now)
	p.complaints = r.complaints
	return next, p
}

// withBuiltin are the files, and beside them the host's own modules that definitions name.
func (s state) withBuiltin() map[string]file {
	files := maps.Clone(s.files)
	delete(files, builtin.HTTP)
	for _, f := range s.files {
		if slices.ContainsFunc(f.docs, func(d definition.Definition) bool { return d.Module == builtin.HTTP }) {
			old := s.files[builtin.HTTP]
			at := stamp{size: 1}
			files[builtin.HTTP] = file{stamp: at, read: at, digest: builtin.Digest(builtin.HTTP), good: old.good}
			break
		}
	}
	return files
}

// apart reports whether all jobs that name a module run outside of this process.
func (s state) apart(digest string, users []claim) bool {
	return !slices.ContainsFunc(users, func(c claim) bool { return s.inside(c.doc.Configuration, digest) })
}

// firstFire is when the first of the jobs that name a module fires; zero if none
// has a schedule.
func firstFire(users []claim, now time.Time) time.Time {
	first := time.Time{}
	for _, c := range users {
		if c.doc.Configuration.Disabled || c.lacks != "" || c.unread {
			continue
		}
		s := c.table
		if s == nil {
			s, _ = timetable.New(c.doc.Configuration, "")
		}
		if s != nil {
			first = earlier(first, s.Next(now))
		}
	}
	return first
}

// urgency is how soon a module is compiled or tried.
func (s state) urgency(digest string, o outcome) int {
	switch {
	case o.again:
		return hasFailed
	case s.past.accepted[digest]:
		return wasInForce
	}
	return isNew
}

// choose picks the claim that gets the job: that of the file in force, else of its home, else the first one.
func choose(claims []claim, before *binding, home string) claim {
	if before != nil {
		home = before.job.File
	}
	if i := slices.IndexFunc(claims, func(c claim) bool { return c.file == home }); i >= 0 {
		return claims[i]
	}
	return claims[0]
}

// stay is the new binding if there is one, else the one before if it may go on:
// its definition still claims the job, and its module is still there. It goes on
// with what is granted now.
func (s state) stay(a attempt, owner claim, before *binding, outcomes map[string]outcome) *binding {
	if a.binding != nil || before == nil || before.job.File != owner.file || outcomes[before.digest].compiled == nil {
		return a.binding
	}
	if _, ok := s.files[before.job.ModuleFile]; !ok {
		return nil
	}
	return s.regrant(before, outcomes[before.digest].compiled)
}

// attempt is what came of putting a job together: a binding, or a problem, or
// neither if that is not known yet.
type attempt struct {
	binding *binding
	problem string // of the module
	full    string // why there is no room for the job, or why it cannot have its calendars
	// try asks for a trial of the job with the digest.
	try     bool
	digest  string
	granted granted
}

// open reports whether the job is taken, or may be.
func (a attempt) open() bool { return a.problem == "" && a.full == "" }

// attempt makes the job if there is room for it.
func (s state) attempt(r *room, c claim, before *binding, outcomes map[string]outcome) attempt {
	if full := cmp.Or(r.full(c.doc, before), c.lacks); full != "" {
		return attempt{full: full}
	}
	if c.unread {
		return attempt{}
	}
	return s.bind(c, before, outcomes)
}

// missingModule is the problem of a definition whose module is not there, or not
// there yet.
const missingModule = "there is no such file beside the definition"

// bind makes the job from the newest versions that are to be had.
func (s state) bind(c claim, before *binding, outcomes map[string]outcome) attempt {
	name, conf := c.doc.Module, c.doc.Configuration
	if (path.Dir(name) != path.Dir(c.file) && name != builtin.HTTP) || strings.Contains(name, `\`) || kindOf(name) != aModule {
		return attempt{problem: "expected the name of a file NAME.wasm beside the definition"}
	}
	f, ok := s.files[name]
	switch {
	case !ok:
		return attempt{problem: missingModule}
	case f.unread():
		return attempt{}
	}
	digest := f.digest
	o, known := outcomes[digest]
	if digest != "" && !known {
		return attempt{}
	}
	if o.compiled == nil {
		if digest, o = f.good, outcomes[f.good]; o.compiled == nil {
			return attempt{problem: "the file is refused"}
		}
	}
	g, err := s.granted(c.doc, digest, o.compiled)
	if err != nil {
		return attempt{problem: err.Error()}
	}
	if before != nil && before.job.File == c.file && before.digest == digest && before.granted == g.key && sameDocument(before.doc, c.doc) {
		return attempt{binding: before}
	}
	g.file = c.file
	m := o.compiled.bind(conf.JobName, g)
	if before != nil && before.digest == digest && before.granted == g.key && path.Dir(before.job.File) == path.Dir(c.file) {
		m = before.job.Module
	}
	if s.costly(conf, digest, o.compiled) {
		t, ok := o.trials[conf.JobName]
		if ok = ok && sameDocument(t.doc, c.doc) && t.granted == g.key; !ok || (o.again && t.problem != "") {
			if !ok {
				t.problem = ""
			}
			return attempt{problem: t.problem, try: true, digest: digest, granted: g}
		}
		if t.problem != "" {
			return attempt{problem: t.problem}
		}
	} else if err := fit(m, conf); err != nil {
		return attempt{problem: err.Error()}
	}
	return attempt{binding: &binding{doc: c.doc, digest: digest, granted: g.key, by: g.by, job: engine.Job{
		Definition: conf, JobClass: c.doc.JobClass, Module: m, File: c.file, Inherited: c.doc.Inherited, ModuleFile: name, Apart: s.alone(conf),
		Group: groupOf(g.by.signer, c.file),
	}}}
}

// groupOf is the group of a job on its host: those whose modules one key has signed, else those
// of one definition file.
func groupOf(signer, file string) string {
	if signer != "" {
		return "key " + signer
	}
	return "file " + file
}

// sameDocument ignores where in the file the job is.
func sameDocument(a, b definition.Definition) bool {
	a.Line = b.Line
	return reflect.DeepEqual(a, b)
}

// refusals puts the report in order. A refusal that was there before keeps its
// time while its reasons are the same.
func (r *report) refusals(before map[string]engine.Refusal, now time.Time) (map[string]engine.Refusal, []engine.Refusal) {
	by := make(map[string]engine.Refusal, len(r.complaints))
	var list []engine.Refusal
	for _, name := range slices.Sorted(maps.Keys(r.complaints)) {
		all := r.complaints[name]
		slices.SortStableFunc(all.Kept(), func(a, b complaint) int {
			return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.column, b.column))
		})
		var texts, jobs []string
		modules := make(map[string]string)
		for _, c := range all.Kept() {
			text := c.text
			if c.line > 0 {
				text = fmt.Sprintf("line %d: %s", c.line, text)
			}
			texts, jobs = append(texts, text), append(jobs, c.job)
			if c.module != "" {
				modules[c.job] = words.Reason(c.module)
			}
		}
		refusal := engine.Refusal{File: name, Since: now, Kept: r.kept[name], Reasons: words.Strings(texts, all.More()), Modules: modules}
		refusal.Jobs = jobs[:min(len(jobs), len(refusal.Reasons))]
		if b, ok := before[name]; ok && slices.Equal(b.Reasons, refusal.Reasons) {
			refusal.Since = b.Since
		}
		by[name] = refusal
		list = append(list, refusal)
	}
	return by, list
}
