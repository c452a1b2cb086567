package grants

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Set is what the operator's files grant to all jobs. It is immutable, and the nil Set grants nothing.
type Set struct {
	entries []entry
	trust   []trust
	keys    []signature.Key
	// files are all that were read, with absolute paths; sum is the digest of their
	// contents.
	files    []string
	sum      [32]byte
	warnings []warning
	more     int // warnings that were only counted
	// sources are the names of the files of grants, as messages have them.
	sources []string
}

// warning is about something granted that cannot be used as it is.
type warning struct {
	jobs []string // the entry's patterns
	text string
}

// entry is an entry of the list grants.
type entry struct {
	place            string // FILE:LINE, for messages
	jobs             []string
	digests, signers []string // conditions; none: any module
	grant            Grant    // what this entry gives
}

// trust is an entry of the list trust.
type trust struct {
	place string
	jobs  []string
	keys  []string
	// inProcess lets the modules that they signed run in the host's own process.
	inProcess bool
}

func (t *trust) what() string {
	text := "modules must be signed by " + strings.Join(t.keys, " or ")
	if t.inProcess {
		text += ", and may run in the host's own process"
	}
	return text
}

// Module is what conditions of grants compare.
type Module struct {
	// Digest is the SHA-256 of its bytes in lower-case hex, Signer the name of the
	// key that signed it; empty if none did.
	Digest, Signer string
}

func matchesAny(patterns []string, job string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return ceiling.Matches(p, job) })
}

// unmet returns which condition of the entry the module does not meet; empty if it meets all.
func (e *entry) unmet(m Module) string {
	switch {
	case len(e.digests) > 0 && !slices.Contains(e.digests, m.Digest):
		return "is for modules with another digest"
	case len(e.signers) > 0 && !slices.Contains(e.signers, m.Signer):
		return "is for modules signed by " + words.Some(e.signers, " or ")
	}
	return ""
}

// For returns what a job with this module may do; never nil. It merges the entries that match the job and whose
// conditions the module meets: lists in their order; if two set the same secret, variable, guest directory or
// configuration, the first wins; for quotas the largest wins.
func (s *Set) For(job string, m Module) *Grant {
	g := &Grant{job: job}
	if s == nil {
		return g
	}
	g.sources = s.sources
	for i := range s.entries {
		e := &s.entries[i]
		if !matchesAny(e.jobs, job) {
			continue
		}
		if reason := e.unmet(m); reason != "" {
			g.withheld = append(g.withheld, withheld{e.place, reason, &e.grant})
			continue
		}
		g.add(&e.grant)
	}
	return g
}

// add merges an entry.
func (g *Grant) add(e *Grant) {
	g.HTTP = append(g.HTTP, e.HTTP...)
	g.Net = append(g.Net, e.Net...)
	have := make(map[string]bool, len(g.Dirs))
	for _, d := range g.Dirs {
		have[d.Guest] = true
	}
	for _, d := range e.Dirs {
		if !have[d.Guest] {
			g.Dirs, have[d.Guest] = append(g.Dirs, d), true
		}
	}
	g.KV = g.KV || e.KV
	g.Secrets = merged(g.Secrets, e.Secrets)
	g.Env = merged(g.Env, e.Env)
	if g.Config == nil {
		g.Config = e.Config
	}
	q, o := &g.Quotas, e.Quotas
	*q = Quotas{
		Requests: max(q.Requests, o.Requests), InFlight: max(q.InFlight, o.InFlight), Connections: max(q.Connections, o.Connections),
		Received: max(q.Received, o.Received), Sent: max(q.Sent, o.Sent), Connect: max(q.Connect, o.Connect), FirstByte: max(q.FirstByte, o.FirstByte),
	}
}

// merged has the entries of both; the first wins.
func merged[V any](first, second map[string]V) map[string]V {
	if len(second) == 0 {
		return first
	}
	all := maps.Clone(second)
	maps.Copy(all, first)
	return all
}

// TrustFor returns the keys one of which must have signed the job's module; nil if no signature is required.
// The first entry of trust that matches the job decides.
func (s *Set) TrustFor(job string) []signature.Key {
	if t := s.trustOf(job); t != nil {
		return s.named(t.keys)
	}
	return nil
}

// InProcess reports whether the key that signed a job's module allows it to run in the host's own process.
func (s *Set) InProcess(job, signer string) bool {
	t := s.trustOf(job)
	return t != nil && t.inProcess && slices.Contains(t.keys, signer)
}

func (s *Set) trustOf(job string) *trust {
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.trust, func(t trust) bool { return matchesAny(t.jobs, job) })
	if i < 0 {
		return nil
	}
	return &s.trust[i]
}

// named are the keys with one of the names.
func (s *Set) named(names []string) []signature.Key {
	keys := make([]signature.Key, 0, len(names))
	for _, k := range s.keys {
		if slices.Contains(names, k.Name) {
			keys = append(keys, k)
		}
	}
	return keys
}

// Keys are all named keys, in the order of the files.
func (s *Set) Keys() []signature.Key {
	if s == nil {
		return nil
	}
	return slices.Clone(s.keys)
}

// Signer returns the name of the key that signed the module, for [Module] and for the record of a run. module
// are all its bytes, sig is the signature file beside it, nil if there is none. The error says why the job may
// not run the module: its entry of trust requires a signature by another key. If no signature is required, an
// unverifiable one counts as none.
func (s *Set) Signer(job string, module, sig []byte) (signer string, err error) {
	t := s.trustOf(job)
	if t == nil {
		if s == nil || len(s.keys) == 0 || len(sig) == 0 {
			return "", nil
		}
		signer, err = signature.Check(module, sig, s.keys)
		if err != nil {
			signer = ""
		}
		return signer, nil
	}
	signer, err = signature.Check(module, sig, s.named(t.keys))
	if err != nil {
		return "", fmt.Errorf("%w; %s demands one by %s for job %q", err, t.place, words.Some(t.keys, " or "), job)
	}
	return signer, nil
}

// Warnings lists what may not be intended: the first [words.MostProblems] entries that match none of jobs, and
// the warnings of [Set.WarningsFor].
func (s *Set) Warnings(jobs []string) []string {
	if s == nil {
		return nil
	}
	var unmatched words.Few[string]
	none := func(place string, patterns []string) {
		for _, p := range patterns {
			if unmatched.Full() { // of the rest it is not found out
				return
			}
			if !slices.ContainsFunc(jobs, func(job string) bool { return ceiling.Matches(p, job) }) {
				unmatched.Add(fmt.Sprintf("%s: there is no job that matches %q", place, p))
			}
		}
	}
	for _, e := range s.entries {
		none(e.place, e.jobs)
	}
	for _, t := range s.trust {
		none(t.place, t.jobs)
	}
	return append(unmatched.Kept(), s.WarningsFor("")...)
}

// WarningsFor lists what is granted and cannot be used as it is: files that were missing when the grants were
// read, and addresses that are not public. It covers all jobs, or one if it is named.
func (s *Set) WarningsFor(job string) []string {
	if s == nil {
		return nil
	}
	var list []string
	for _, w := range s.warnings {
		if job == "" || matchesAny(w.jobs, job) {
			list = append(list, w.text)
		}
	}
	if s.more > 0 {
		list = append(list, words.More(s.more))
	}
	return list
}

// Files are the absolute paths of all files that were read.
func (s *Set) Files() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.files)
}

// Same reports whether two sets were read from files with the same contents.
func (s *Set) Same(o *Set) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.sum == o.sum
}

// First returns a set that grants every job extra, before the grants of s: for flags of a command line. place
// is what messages show instead of a file, such as "the command line".
func (s *Set) First(place string, extra Grant) *Set {
	n := &Set{sources: []string{place}}
	if s != nil {
		*n = *s
		n.sources = append([]string{place}, s.sources...)
	}
	extra.HTTP, extra.Net = slices.Clone(extra.HTTP), slices.Clone(extra.Net)
	for i := range extra.HTTP {
		extra.HTTP[i].place = place
	}
	for i := range extra.Net {
		extra.Net[i].place = place
	}
	n.entries = append([]entry{{place: place, jobs: []string{"*"}, grant: extra}}, n.entries...)
	return n
}

// Line is a thing that is granted, in words.
type Line struct {
	// Place is FILE:LINE of the entry.
	Place string `json:"place"`
	// Jobs are the entry's patterns.
	Jobs []string `json:"jobs"`
	// If is the condition that the entry has for modules; empty: none.
	If string `json:"if,omitempty"`
	// Kind is http, net, dir, kv, secret, env, config, quota or trust.
	Kind string `json:"kind"`
	// What is granted, with its details and without secrets.
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
}

// Explain lists what is granted to whom, in the order of the files: all entries, or those that match the job if
// one is named. With a module it skips entries whose conditions the module does not meet.
func (s *Set) Explain(job string, m *Module) []Line {
	if s == nil {
		return nil
	}
	var lines []Line
	for i := range s.entries {
		e := &s.entries[i]
		if (job != "" && !matchesAny(e.jobs, job)) || (m != nil && e.unmet(*m) != "") {
			continue
		}
		for _, l := range e.grant.lines() {
			l.Place, l.Jobs, l.If = e.place, e.jobs, e.condition()
			lines = append(lines, l)
		}
	}
	for _, t := range s.trust {
		if job != "" && !matchesAny(t.jobs, job) {
			continue
		}
		lines = append(lines, Line{Place: t.place, Jobs: t.jobs, Kind: "trust", What: t.what()})
		if job != "" {
			break // the first decides
		}
	}
	return lines
}

func (e *entry) condition() string {
	var all []string
	if len(e.digests) > 0 {
		short := make([]string, len(e.digests))
		for i, d := range e.digests {
			short[i] = d[:12] + "…"
		}
		all = append(all, "digest "+strings.Join(short, " or "))
	}
	if len(e.signers) > 0 {
		all = append(all, "signed by "+strings.Join(e.signers, " or "))
	}
	return strings.Join(all, ", ")
}

// base is the file's name in messages to guests, without its directory.
func base(file string) string { return filepath.Base(file) }

// byName sorts the entries of a map.
func byName[V any](m map[string]V) []string {
	return slices.SortedFunc(maps.Keys(m), cmp.Compare[string])
}
