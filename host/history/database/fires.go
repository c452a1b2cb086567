package database

import (
	"context"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// fires queries fires. The rows are hosts' parts of fires. A fire takes the place of its first part, in the
// page's order, that the filter finds.
func (s *Store) fires(ctx context.Context, f history.Filter) (history.Page[history.Fire], error) {
	if err := s.check(ctx, &f); err != nil {
		return history.Page[history.Fire]{}, err
	}
	p := newPage[history.Fire](&f)
	l := &list[part]{kind: history.ListFires, table: "wasmjob_executions", columns: strings.Join(partColumns, ", "), time: "begun", ids: []string{"fire", "host"},
		id: func(id string) ([]any, error) {
			fire, host, _ := strings.Cut(clean0(id), "\x00")
			return []any{clean(fire), clean(host)}, nil
		},
		scan: func(row scanner) (part, history.Position, error) {
			x, err := scanPart(row)
			return x, history.PositionOf(x.Begun, x.fire+"\x00"+x.Host), err
		}}
	s.partConditions(&f, l)
	seen := make(map[string]bool)
	l.take = func(ctx context.Context, rows []part, at []history.Position) (bool, error) {
		groups, err := s.groups(ctx, rows)
		if err != nil {
			return false, err
		}
		for i := range rows {
			fire, first := groups.of(&f, &rows[i])
			if !first || seen[rows[i].fire+"\x00"+fire.Begun.String()] || !f.MatchFire(&fire) {
				continue
			}
			if !p.add(fire, at[i], l.kind) {
				return false, nil
			}
			seen[rows[i].fire+"\x00"+fire.Begun.String()] = true
		}
		return true, nil
	}
	next, more, err := query(ctx, s, &f, l)
	if err != nil {
		return history.Page[history.Fire]{}, err
	}
	if more {
		p.Next = next.Cursor(l.kind)
	}
	return p.Page, nil
}

func clean0(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// partConditions limits parts to those of fires that the filter may want.
func (s *Store) partConditions(f *history.Filter, l *list[part]) {
	if job, ok := f.OnlyJob(); ok && (!f.Instant.IsZero() || f.Trigger != 0) {
		l.indexed.add("fire = ?", clip(fireOf(job, f), mostID))
	} else {
		s.common(f, &l.indexed, &l.filter)
		s.instant(f, &l.filter)
	}
	if f.Run != "" {
		if i := strings.LastIndexByte(f.Run, '/'); i >= 0 {
			l.indexed.add("fire = ?", clip(f.Run[:i], mostID))
		}
	}
	if f.Failed {
		l.indexed.add("failed = 1")
	}
	if f.Running {
		l.indexed.add("ended = 0")
	}
	s.outcomes(f, &l.filter)
	if f.Text != "" {
		l.filter.add(s.dialect.like("message"), pattern(f.Text))
	}
}

// groups has fires by name, with all their parts.
type groups struct {
	parts map[string][]part
	runs  map[string][]history.Run
}

// groups reads all parts of the fires of the given parts, and the runs of fires whose parts are not complete.
func (s *Store) groups(ctx context.Context, rows []part) (*groups, error) {
	g := &groups{parts: make(map[string][]part), runs: make(map[string][]history.Run)}
	var fires []any
	var earliest, latest time.Time
	for i := range rows {
		if _, known := g.parts[rows[i].fire]; !known {
			g.parts[rows[i].fire] = nil
			fires = append(fires, rows[i].fire)
		}
		if earliest.IsZero() || rows[i].Begun.Before(earliest) {
			earliest = rows[i].Begun
		}
		if rows[i].Begun.After(latest) {
			latest = rows[i].Begun
		}
	}
	for len(fires) > 0 {
		n := min(len(fires), 500)
		var c conditions
		c.in("fire", fires[:n])
		c.add("begun >= ?", nanos(earliest.Add(-mostApart)))
		c.add("begun <= ?", nanos(latest.Add(mostApart)))
		found, _, err := fetch(ctx, s, "SELECT "+strings.Join(partColumns, ", ")+" FROM wasmjob_executions"+c.where()+" ORDER BY begun", c.args, func(row scanner) (part, history.Position, error) {
			p, err := scanPart(row)
			return p, history.Position{}, err
		})
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			g.parts[p.fire] = append(g.parts[p.fire], p)
		}
		fires = fires[n:]
	}
	for fire, parts := range g.parts {
		if complete(parts) {
			continue
		}
		runs, err := s.runsOf(ctx, fire, parts)
		if err != nil {
			return nil, err
		}
		g.runs[fire] = runs
	}
	return g, nil
}

// mostApart bounds the time between the begins of a fire's parts: a host takes items over when another has
// died, or catches up.
const mostApart = 24 * time.Hour

// complete reports whether the parts describe the whole fire: all have ended, and no item is in two of them.
func complete(parts []part) bool {
	items := make(map[int]bool)
	for _, p := range parts {
		if p.Ended.IsZero() || p.Succeeded+p.Failed != len(p.Items) {
			return false
		}
		for _, n := range p.Items {
			if items[n] {
				return false
			}
			items[n] = true
		}
	}
	return true
}

// runsOf reads the runs of a fire.
func (s *Store) runsOf(ctx context.Context, fire string, parts []part) ([]history.Run, error) {
	var c conditions
	c.add("id > ? AND id < ?", fire+"/", fire+"0")
	c.add("begun >= ?", nanos(parts[0].Begun.Add(-clockSlack)))
	runs, _, err := fetch(ctx, s, "SELECT "+strings.Join(runColumns, ", ")+" FROM wasmjob_items"+c.where(), c.args, func(row scanner) (history.Run, history.Position, error) {
		r, err := scanRun(row)
		return r, history.Position{}, err
	})
	return runs, err
}

// of returns the fire of a part. first is true if the fire takes this part's place.
func (g *groups) of(f *history.Filter, row *part) (fire history.Fire, first bool) {
	var parts []history.Part
	best := *row
	for _, p := range g.parts[row.fire] {
		if p.Reused(&row.Part) { // another round of the same number
			continue
		}
		parts = append(parts, p.Part)
		if found(f, &p) && before(f, &p, &best) {
			best = p
		}
	}
	var runs []history.Run
	for _, r := range g.runs[row.fire] {
		if !(&history.Part{Instant: r.Instant, Trigger: r.Trigger}).Reused(&row.Part) {
			runs = append(runs, r)
		}
	}
	if len(parts) == 0 { // deleted meanwhile
		parts = []history.Part{row.Part}
	}
	return history.Sum(parts, runs), best.Begun.Equal(row.Begun) && best.Host == row.Host
}

// found reports whether the filter finds a fire by this part.
func found(f *history.Filter, p *part) bool {
	one := history.Sum([]history.Part{p.Part}, nil)
	if p.Ended.IsZero() {
		one.Failed, one.Outcome, one.Message = flag(p.Outcome.Failed()), p.Outcome, p.Message
	}
	narrow := history.Filter{Host: f.Host, Failed: f.Failed, Running: f.Running, Outcomes: f.Outcomes, Text: f.Text, From: f.From, To: f.To}
	return narrow.MatchFire(&one)
}

// before reports whether a part comes before another in the page's order.
func before(f *history.Filter, p, q *part) bool {
	a, b := history.PositionOf(p.Begun, p.fire+"\x00"+p.Host), history.PositionOf(q.Begun, q.fire+"\x00"+q.Host)
	if f.Oldest {
		return a.Before(b)
	}
	return b.Before(a)
}
