package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/history/jsonl"
	"github.com/wasmjob/wasmjob/host/history/verify"
)

// bare sees that drained hosts have left nothing of these jobs but what is
// meant to stay, and that the offsets come out. Whatever the hosts did, the sums
// tell.
func (s *stage) bare(ctx context.Context, list []job) error {
	r, err := s.looked(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	children := func(path string) []string {
		var nodes []registry.Node
		if err == nil {
			nodes, err = r.Read(ctx, registry.Children(path))
		}
		if err != nil {
			return nil
		}
		return nodes[0].Names
	}
	var every []string
	for _, h := range s.hosts {
		every = append(every, h.ip+"@-@")
	}
	left, err := s.traces(ctx, r, list, every)
	if err != nil {
		return err
	}
	for _, text := range left {
		s.violate("all hosts have drained, and there is %s", text)
	}
	for _, j := range list {
		l := tree.NewLayout(s.o.Namespace, j.name)
		if err == nil {
			var members []registry.Node
			if members, err = r.Read(ctx, registry.Data(l.Sibling()+"/members")); err == nil && len(members[0].Data) > 0 {
				s.violate("all hosts have drained, and the members of %s are %q", j.name, members[0].Data)
			}
		}
		for _, folder := range []string{
			l.Root() + "/instances", l.Root() + "/leader/election/instance", l.Root() + "/leader/failover/items", l.Root() + "/trigger",
			l.Root() + "/leader/election/latch", l.Root() + "/leader/failover/latch",
			l.Sibling() + "/instances", l.Sibling() + "/runs", l.Sibling() + "/assignment",
		} {
			if left := children(folder); len(left) > 0 {
				s.violate("all hosts have drained, and there is %s/%s", folder, strings.Join(left, ", "))
			}
		}
		for _, item := range children(l.Root() + "/sharding") {
			for _, mark := range children(l.Root() + "/sharding/" + item) {
				switch mark {
				case "running", "failover", "failovering":
					s.violate("all hosts have drained, and item %s of %s has the mark %s", item, j.name, mark)
				}
			}
		}
		if err != nil {
			return err
		}
		if !j.adds {
			continue
		}
		for i := range j.items {
			if err := s.total(ctx, r, l, itemID{j.name, i}); err != nil {
				return err
			}
		}
	}
	return nil
}

// total checks the offset of an item against the truth.
func (s *stage) total(ctx context.Context, r registry.Center, l tree.Layout, id itemID) error {
	nodes, err := r.Read(ctx, registry.Data(fmt.Sprintf("%s/offset/%d", l.Sibling(), id.item)))
	if err != nil {
		return err
	}
	if !nodes[0].Exists {
		s.violate("item %s has no offset", id)
		return nil
	}
	s.report.Offsets++
	e, err := parseEntry(nodes[0].Data)
	if err == nil {
		err = e.check(id.item)
	}
	if err != nil {
		s.violate("offset of %s: %v", id, err)
		return nil
	}
	s.report.Numbers += e.count
	if said := s.evidence.most(id, "committed"); said > e.count {
		s.violate("the guest of %s was told that number %d is committed, and the offset ends at %d", id, said, e.count)
	}
	return nil
}

// judge weighs the evidence when all processes have ended.
func (s *stage) judge() error {
	r := s.report
	r.Ended = time.Now()

	stints, overlaps := s.evidence.overlaps()
	r.Stints, r.Lines = stints, s.evidence.lines
	for _, o := range overlaps {
		r.Overlaps++
		s.violateAt(o.latter.begun, "overlap, by the guests' own words: %s", o)
	}
	if n, example := s.evidence.outdated(s.rolled, fmt.Sprintf("version %d", s.module%10)); n > 0 {
		s.violate("%d items were begun with an old module after all hosts had the new one: %s", n, example)
	}
	for _, line := range s.evidence.oddment {
		if strings.Contains(line, "panic:") || strings.Contains(line, "fatal error:") || strings.Contains(line, "DATA RACE") {
			s.violate("a host broke: %s", line)
		}
	}

	completed := func(string) bool { return false }
	if s.own != nil {
		a, err := s.readOwnJournal()
		if err != nil {
			return err
		}
		completed = func(run string) bool { _, ok := a.completed[run]; return ok }
	}

	options := verify.Options{Skew: -1, Settle: 5 * s.o.SessionTimeout, Completed: completed, MaxFindings: 200}
	var files []string
	for _, h := range s.hosts {
		files = append(files, h.history())
	}
	found, err := verify.Files(context.Background(), options, files...)
	if err != nil {
		return err
	}
	r.History = found
	for _, j := range found.Jobs {
		r.Runs += j.Runs
		r.Completed += j.Completed
	}
	for _, f := range found.Findings {
		text := fmt.Sprintf("%s: job %s, item %d, %s: %s", f.Class, f.Job, f.Item, f.RunID, f.Text)
		for _, l := range f.Lines {
			text += fmt.Sprintf("\n      %s:%d %s %s", filepath.Base(filepath.Dir(l.File)), l.Line, clock(l.Time), l.Text)
		}
		at := time.Time{}
		if len(f.Lines) > 0 {
			at = f.Lines[0].Time
		}
		switch {
		case f.Class == verify.Fenced && s.evidence.excused(f):
			r.Fenced++
			r.Notes = append(r.Notes, text)
		case f.Class == verify.Unproven && s.own == nil:
			r.Unproven++
			r.Notes = append(r.Notes, text)
		case f.Invariant == verify.Accounted && completed(unseen(f)):
			r.Notes = append(r.Notes, "the lines about it died with a host, but ZooKeeper's log has the completion: "+text)
		case f.Invariant == verify.Accounted:
			r.Losses++
			s.violateAt(at, "%s", text)
		case f.Invariant == verify.OneOwner:
			r.Overlaps++
			s.violateAt(at, "%s", text)
		default:
			s.violateAt(at, "%s", text)
		}
	}
	for n := range r.Events {
		e := &r.Events[n]
		e.Crashed, e.Retaken = s.retaken(e.crashed, e.From) // all of them, by now
	}
	var late []string
	r.Halted, late = s.evidence.late(s.o.SessionTimeout)
	r.Late = len(late)
	for _, text := range late {
		s.violate("a guest of a halted host went on: %s", text)
	}
	s.nextFires()
	for _, f := range r.Figures() {
		if f.Violated {
			s.violate("a figure is missed: %s", f.Text)
		}
	}
	return s.keepReport()
}

// fireSlack is how much longer than a period, and than what may still run, it
// may take on a busy machine until a job fires again.
const fireSlack = 5 * time.Second

// nextFires looks when each item of each job began for the first time after the
// cluster was whole again, wherever there was the time to see it: the next fault
// may come first.
func (s *stage) nextFires() {
	for n, e := range s.report.Events {
		if e.Whole.IsZero() {
			continue
		}
		end, latest := s.calm, n+1 == len(s.report.Events)
		if !latest {
			end = s.report.Events[n+1].From
		}
		for _, j := range jobs() {
			if j.cron == "" || j.name == flexJob && (!latest || s.report.Interrupted || e.Word != "") {
				continue // nobody fires it, or operators disable it
			}
			bound := j.period + j.lasts + fireSlack
			for i := range j.items {
				begins := s.evidence.begins(itemID{j.name, i})
				k := slices.IndexFunc(begins, e.Whole.Before)
				switch {
				case k >= 0 && begins[k].Sub(e.Whole) <= bound && !begins[k].After(end):
					s.report.Fires++
					s.report.Overdue = max(s.report.Overdue, begins[k].Sub(e.Whole)-j.period-j.lasts)
				case end.Sub(e.Whole) > bound:
					s.violateAt(e.Whole, "item %d of %s, which fires every %s, did not begin within %s after the cluster was whole again after %s of %s, at %s",
						i, j.name, j.period, bound, e.Kind, e.Target, clock(e.Whole))
				}
			}
		}
	}
}

// unseen is the run that a finding misses every line of; empty if it is about
// something else.
func unseen(f verify.Finding) string {
	m := regexp.MustCompile(`neither ran for (\S+) nor`).FindStringSubmatch(f.Text)
	if m == nil || f.RunID != "" || f.Item < 0 {
		return ""
	}
	return fmt.Sprintf("%s/%s/%d", f.Job, m[1], f.Item)
}

func (s *stage) readOwnJournal() (*audit, error) {
	if err := s.own.Close(); err != nil { // so that nothing is written any more
		return nil, err
	}
	dir := filepath.Join(s.dir, "zookeeper")
	list, err := readJournals(dir)
	if err != nil {
		return nil, err
	}
	if s.report.Broken, err = disagreements(dir); err != nil {
		return nil, err
	}
	a := newAudit(s.o.Namespace)
	for i := range list {
		a.take(&list[i])
	}
	s.report.Journal = &Journal{Transactions: a.transactions, Begins: a.begins, Completions: a.completions, Offsets: a.offsets,
		Stale: a.stale, Findings: len(a.findings)}
	if a.begins == 0 || a.offsets == 0 {
		return nil, errors.New("ZooKeeper's transaction logs show nothing of the jobs")
	}
	for _, f := range a.findings {
		s.violate("by ZooKeeper's transaction log: %s", f)
	}
	return a, nil
}

// disagreements are what the servers themselves wrote of data that they do not
// have in common: then ZooKeeper has lost what it had confirmed.
func disagreements(dir string) ([]string, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*", "server.log"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "digest mismatch") {
				found = append(found, filepath.Base(filepath.Dir(name))+": "+strings.TrimSpace(line))
			}
		}
	}
	return found, nil
}

func (s *stage) violate(format string, args ...any) {
	s.violateAt(time.Time{}, format, args...)
}

// violationMark begins what is said of one.
const violationMark = "VIOLATION: "

// violateAt notes a violation, with what happened around the time, if known.
func (s *stage) violateAt(at time.Time, format string, args ...any) {
	v := Violation{Text: fmt.Sprintf(format, args...), At: at}
	s.say("%s%s", violationMark, v.Text)
	s.report.Violations = append(s.report.Violations, v)
}

// keepReport writes the report, with a timeline around each violation, to where
// the rest of the evidence is.
func (s *stage) keepReport() error {
	var text strings.Builder
	s.report.Write(&text)
	for _, v := range s.report.Violations {
		if !v.At.IsZero() {
			fmt.Fprintf(&text, "\nAround %s\n  %s\n%s", clock(v.At), v.Text, s.timeline(v.At))
		}
	}
	for _, note := range s.report.Notes {
		fmt.Fprintf(&text, "\nNote: %s\n", note)
	}
	var table strings.Builder
	s.report.Markdown(&table)
	data, err := json.MarshalIndent(s.report, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, "report.txt"), []byte(text.String()), 0o644),
		os.WriteFile(filepath.Join(s.dir, "report.md"), []byte(table.String()), 0o644),
		os.WriteFile(filepath.Join(s.dir, "report.json"), data, 0o644))
}

// timeline shows the faults and the hosts' events about a time.
func (s *stage) timeline(at time.Time) string {
	type entry struct {
		at   time.Time
		text string
	}
	from, to := at.Add(-s.o.SessionTimeout), at.Add(s.o.SessionTimeout)
	var list []entry
	for _, e := range s.report.Events {
		list = append(list, entry{e.From, fmt.Sprintf("FAULT %s of %s", e.Kind, e.Target)}, entry{e.To, fmt.Sprintf("FAULT %s ends", e.Kind)})
	}
	for _, h := range s.hosts {
		for e, err := range jsonl.Read(h.history()) {
			if err != nil || e.Time.Before(from) || e.Time.After(to) {
				continue
			}
			text := fmt.Sprintf("%s %s %s", h.name, e.Kind, e.RunID)
			if e.Item == nil && len(e.Items) > 0 {
				text += fmt.Sprintf(" %s %v", e.Job, e.Items)
			}
			if e.Fence != 0 {
				text += fmt.Sprintf(" fence %d", e.Fence)
			}
			list = append(list, entry{e.Time, strings.Join([]string{text, string(e.Source), string(e.Outcome), e.Reason}, " ")})
		}
	}
	list = slices.DeleteFunc(list, func(e entry) bool { return e.at.Before(from) || e.at.After(to) })
	slices.SortStableFunc(list, func(a, b entry) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "  %s %s\n", clock(e.at), strings.TrimSpace(e.text))
	}
	return b.String()
}
