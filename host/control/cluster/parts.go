package cluster

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// A fire is one record over all hosts, and each host's store has a part of it; a run that was taken over has a
// record in both hosts' stores. These begin at different times, so that parts of one fire or run may be on
// different pages. So each one found is requested from all other hosts by its key. It is listed only at the
// first of its parts that the filter matches.

// wholeFires puts fires together.
func wholeFires(ctx context.Context, m *paging[history.Fire], found []placed[history.Fire]) []history.Fire {
	keys := keysOf(found, (*history.Fire).Key)
	parts := placedParts(m, askParts(ctx, m, partsQueries(keys), func() []history.Fire { return firesIn(ctx, m.h.Store, keys) }))
	runs := runsOf(ctx, m, parts)
	return joined(m, found, parts, (*history.Fire).Key, (*history.Fire).Same, func(of []placed[history.Fire]) history.Fire { return runs.whole(m, of) }, (*history.Filter).MatchFire)
}

// wholeRuns puts runs together.
func wholeRuns(ctx context.Context, m *paging[history.Run], found []placed[history.Run]) []history.Run {
	id := func(r *history.Run) string { return r.ID }
	ids := keysOf(found, id)
	parts := placedParts(m, askParts(ctx, m, runsQueries(ids), func() []history.Run { return runsIn(ctx, m.h.Store, ids) }))
	return joined(m, found, parts, id, (*history.Run).Same, func(of []placed[history.Run]) history.Run { return folded(of, history.JoinRuns) }, (*history.Filter).MatchRun)
}

// folded is one record of those that sources have of it.
func folded[T any](of []placed[T], join func(T, T) T) T {
	whole := of[0].record
	for _, p := range of[1:] {
		whole = join(whole, p.record)
	}
	return whole
}

// fireRuns are the runs of fires that cannot be merged from their parts alone: an item that one host took over
// from another is in the parts of both.
type fireRuns map[history.FireKey][][]history.Run // by source

// mostRuns bounds how many runs one page asks the hosts for.
const mostRuns = history.MaxLimit

// runsOf asks all hosts for the runs of those fires that have an item in two parts.
func runsOf(ctx context.Context, m *paging[history.Fire], parts []placed[history.Fire]) fireRuns {
	type item struct {
		fire history.FireKey
		item int
	}
	known, shared := make(map[item]bool), make(map[history.FireKey]bool)
	for n := range parts {
		key := parts[n].record.Key()
		for _, i := range parts[n].record.Items {
			shared[key] = shared[key] || known[item{key, i}]
			known[item{key, i}] = true
		}
	}
	var ids []string
	for n := range parts {
		if f := &parts[n].record; shared[f.Key()] {
			ids = append(ids, f.RunIDs()...)
		}
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) == 0 || len(ids) > mostRuns {
		return nil
	}
	answers := askParts(ctx, m, runsQueries(ids), func() []history.Run { return runsIn(ctx, m.h.Store, ids) })
	of := make(fireRuns)
	for n, runs := range answers {
		for _, r := range runs {
			if of[r.Key()] == nil {
				of[r.Key()] = make([][]history.Run, len(answers))
			}
			of[r.Key()][n] = append(of[r.Key()][n], r)
		}
	}
	return of
}

// whole returns the fire made from its parts: from its runs, if those of all parts are known.
func (of fireRuns) whole(m *paging[history.Fire], parts []placed[history.Fire]) history.Fire {
	fire := folded(parts, history.Join)
	bySource := of[fire.Key()]
	if bySource == nil {
		return fire
	}
	runs := make(map[string]history.Run)
	waits := make(map[string]bool) // ids of runs that have not begun
	for _, p := range parts {
		known, open := make(map[string]bool), p.record.Running
		for _, r := range bySource[slices.Index(m.sources, p.source)] {
			if !fire.Has(&r) {
				continue
			}
			known[r.ID] = true
			if r.Ended.IsZero() {
				open--
			}
			if other, both := runs[r.ID]; both {
				r = history.JoinRuns(other, r)
			}
			runs[r.ID] = r
		}
		if len(known) >= p.record.Counted() {
			continue
		}
		unknown := slices.DeleteFunc(p.record.RunIDs(), func(id string) bool { return known[id] })
		if len(unknown) != open || len(known)+open != p.record.Counted() {
			return fire
		}
		for _, id := range unknown {
			waits[id] = true
		}
	}
	for id := range waits {
		if _, elsewhere := runs[id]; !elsewhere {
			runs[id] = history.Run{} // it counts as running
		}
	}
	fire.Recount(slices.Collect(maps.Values(runs)))
	return fire
}

// joined returns the records to show, each merged with what other sources have of it.
func joined[T any, K comparable](m *paging[T], found, asked []placed[T], key func(*T) K, same func(*T, *T) bool, whole func([]placed[T]) T, match func(*history.Filter, *T) bool) []T {
	parts := make(map[K][]placed[T])
	for _, f := range asked {
		parts[key(&f.record)] = append(parts[key(&f.record)], f)
	}
	for _, f := range found { // of a host that has stopped answering since
		if f.source.err != nil {
			parts[key(&f.record)] = append(parts[key(&f.record)], f)
		}
	}
	of := m.filter // of the whole record; its parts are within the times
	of.From, of.To = time.Time{}, time.Time{}
	var list []T
	for _, f := range found {
		all, first := []placed[T]{f}, true
		for _, p := range parts[key(&f.record)] {
			if slices.ContainsFunc(all, func(q placed[T]) bool { return q.source == p.source }) || !same(&p.record, &f.record) {
				continue
			}
			if match(&m.filter, &p.record) && m.earlier(p, f) {
				first = false
			}
			all = append(all, p)
		}
		if record := whole(all); first && match(&of, &record) {
			list = append(list, record)
		}
	}
	return list
}

// earlier reports whether a record of one source comes before that of another in time, whatever the page's
// order.
func (m *paging[T]) earlier(p, q placed[T]) bool {
	atP, atQ := m.kind.at(&p.record), m.kind.at(&q.record)
	if atP.Equal(atQ) {
		return p.source.name < q.source.name
	}
	return atP.Before(atQ)
}

// keysOf are the keys of records, each once.
func keysOf[T any, K comparable](found []placed[T], key func(*T) K) (keys []K) {
	known := make(map[K]bool)
	for _, f := range found {
		if k := key(&f.record); !known[k] {
			known[k] = true
			keys = append(keys, k)
		}
	}
	return keys
}

// askParts asks all hosts for their parts, by source; own are this host's.
func askParts[T, R any](ctx context.Context, m *paging[T], queries []string, own func() []R) [][]R {
	answers := make([][]R, len(m.sources))
	var asked sync.WaitGroup
	for n, s := range m.sources {
		if s.err != nil {
			continue
		}
		asked.Go(func() {
			if s.peer == nil {
				answers[n] = own()
				return
			}
			for _, query := range queries {
				var parts []R
				if s.err = m.get(ctx, s, PathParts+"?"+query, &parts); s.err != nil {
					s.more, answers[n] = false, nil
					return
				}
				answers[n] = append(answers[n], parts...)
			}
		})
	}
	asked.Wait()
	return answers
}

// placedParts are answers of the sources.
func placedParts[T any](m *paging[T], answers [][]T) (all []placed[T]) {
	for n, parts := range answers {
		for _, p := range parts {
			all = append(all, placed[T]{p, m.sources[n]})
		}
	}
	return all
}

// firesIn returns what a store has of fires, without unknown ones.
func firesIn(ctx context.Context, store history.Store, keys []history.FireKey) []history.Fire {
	fires := []history.Fire{}
	for _, key := range keys {
		f := history.Filter{Jobs: []string{Literal(key.Job)}, Trigger: key.Trigger, Limit: 1}
		if key.Trigger == 0 {
			f.Instant = time.UnixMilli(key.Instant)
		}
		if page, err := store.Fires(ctx, f); err == nil { // else it is as if it knew nothing of it
			fires = append(fires, page.Records...)
		}
	}
	return fires
}

// runsIn returns what a store has of runs, without unknown ones.
func runsIn(ctx context.Context, store history.Store, ids []string) []history.Run {
	runs := []history.Run{}
	for _, id := range ids {
		if page, err := store.Runs(ctx, history.Filter{Run: id, Limit: 1}); err == nil { // else it is as if it knew nothing of it
			runs = append(runs, page.Records...)
		}
	}
	return runs
}

// longestQuery bounds the query of one question for parts, in bytes.
const longestQuery = 6 << 10

// partsQueries are the questions for the fires, as queries of PathParts:
// fire=JOB/INSTANT/TRIGGER, the instant in milliseconds of Unix.
func partsQueries(keys []history.FireKey) []string {
	texts := make([]string, len(keys))
	for n, k := range keys {
		texts[n] = fmt.Sprintf("%s/%d/%d", k.Job, k.Instant, k.Trigger)
	}
	return queriesOf("fire", texts)
}

// runsQueries are the questions for runs, as queries of PathParts: run=ID.
func runsQueries(ids []string) []string { return queriesOf("run", ids) }

// queriesOf puts the values of one parameter into as few queries as the length limit allows.
func queriesOf(name string, values []string) (queries []string) {
	var query strings.Builder
	for _, v := range values {
		one := name + "=" + url.QueryEscape(v)
		if query.Len() > 0 && query.Len()+len(one) > longestQuery {
			queries = append(queries, query.String())
			query.Reset()
		}
		if query.Len() > 0 {
			query.WriteByte('&')
		}
		query.WriteString(one)
	}
	return append(queries, query.String())
}

// AnswerParts answers a question for parts: a list of runs if it names runs, else one of fires.
func AnswerParts(ctx context.Context, store history.Store, q url.Values) (any, error) {
	if q.Has("run") {
		return runsIn(ctx, store, q["run"]), nil
	}
	keys, err := parseParts(q)
	if err != nil {
		return nil, err
	}
	return firesIn(ctx, store, keys), nil
}

// parseParts reads the question of a peer for parts.
func parseParts(q url.Values) (keys []history.FireKey, err error) {
	for _, text := range q["fire"] {
		fields := strings.Split(text, "/")
		if len(fields) != 3 {
			return nil, &QueryError{"fire", text, "JOB/INSTANT/TRIGGER"}
		}
		instant, err1 := strconv.ParseInt(fields[1], 10, 64)
		trigger, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err1 != nil || err2 != nil || instant == math.MinInt64 || trigger < 0 {
			return nil, &QueryError{"fire", text, "JOB/INSTANT/TRIGGER"}
		}
		keys = append(keys, history.FireKey{Job: fields[0], Instant: instant, Trigger: trigger})
	}
	return keys, nil
}

// Literal is a pattern that matches one name.
func Literal(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`*?[]\`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
