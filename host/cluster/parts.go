package cluster

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/history"
)

// A fire is one record over all hosts, and each host's store has its own part. Parts
// begin at different times, so that those of one fire may be on different pages. So each
// fire that is found is asked for at all other hosts by its key. It is shown where the
// first of its parts began that the filter finds, and only there.

// wholeFires puts fires together.
func wholeFires(ctx context.Context, m *paging[history.Fire], found []placed[history.Fire]) []history.Fire {
	parts := make(map[history.FireKey][]placed[history.Fire])
	for _, f := range askParts(ctx, m, found) {
		parts[f.record.Key()] = append(parts[f.record.Key()], f)
	}
	for _, f := range found { // of a host that has stopped answering since
		if f.source.err != nil {
			parts[f.record.Key()] = append(parts[f.record.Key()], f)
		}
	}
	of := m.filter // of the whole fire; its parts are within the times
	of.From, of.To = time.Time{}, time.Time{}
	var fires []history.Fire
	for _, f := range found {
		sum, first := f.record, true
		for _, p := range parts[f.record.Key()] {
			if p.source == f.source || !p.record.Same(&f.record) {
				continue
			}
			if m.filter.MatchFire(&p.record) && earlier(p, f) {
				first = false
			}
			sum = history.Join(sum, p.record)
		}
		if first && of.MatchFire(&sum) {
			fires = append(fires, sum)
		}
	}
	return fires
}

func earlier(p, q placed[history.Fire]) bool {
	if p.record.Begun.Equal(q.record.Begun) {
		return p.source.name < q.source.name
	}
	return p.record.Begun.Before(q.record.Begun)
}

// askParts asks all hosts for their parts of fires.
func askParts(ctx context.Context, m *paging[history.Fire], found []placed[history.Fire]) []placed[history.Fire] {
	var keys []history.FireKey
	known := make(map[history.FireKey]bool)
	for _, f := range found {
		if key := f.record.Key(); !known[key] {
			known[key] = true
			keys = append(keys, key)
		}
	}
	answers := make([][]history.Fire, len(m.sources))
	var asked sync.WaitGroup
	for n, s := range m.sources {
		if s.err != nil {
			continue
		}
		asked.Go(func() {
			if s.peer == nil {
				answers[n] = Parts(ctx, m.h.Store, keys)
				return
			}
			for _, query := range partsQueries(keys) {
				var fires []history.Fire
				if s.err = m.get(ctx, s, PathParts+"?"+query, &fires); s.err != nil {
					answers[n] = nil
					return
				}
				answers[n] = append(answers[n], fires...)
			}
		})
	}
	asked.Wait()
	var all []placed[history.Fire]
	for n, fires := range answers {
		for _, f := range fires {
			all = append(all, placed[history.Fire]{f, m.sources[n]})
		}
	}
	return all
}

// Parts are what a store has of fires. What it does not know is left out.
func Parts(ctx context.Context, store history.Store, keys []history.FireKey) []history.Fire {
	fires := []history.Fire{}
	direct, quick := store.(interface {
		FireOf(ctx context.Context, key history.FireKey) (history.Fire, bool)
	})
	for _, key := range keys {
		if quick {
			if f, ok := direct.FireOf(ctx, key); ok {
				fires = append(fires, f)
			}
			continue
		}
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

// longestQuery bounds the query of one question for parts, in bytes.
const longestQuery = 6 << 10

// partsQueries are the questions for the fires, as queries of PathParts:
// fire=JOB/INSTANT/TRIGGER, the instant in milliseconds of Unix.
func partsQueries(keys []history.FireKey) (queries []string) {
	var query strings.Builder
	for _, k := range keys {
		one := "fire=" + url.QueryEscape(fmt.Sprintf("%s/%d/%d", k.Job, k.Instant, k.Trigger))
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

// ParseParts reads the question of a peer for parts.
func ParseParts(q url.Values) (keys []history.FireKey, err error) {
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
