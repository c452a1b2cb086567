package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/host/event"
)

// table plays a database that all hosts write: pages of three events.
type table struct{ events []event.Event }

func (t *table) Name() string { return "postgres://db/jobs" }

func (t *table) Events(_ context.Context, after string) (events []event.Event, next string, err error) {
	const page = 3
	from, _ := strconv.Atoi(after)
	events = t.events[from:min(from+page, len(t.events))]
	if from+page < len(t.events) {
		next = strconv.Itoa(from + page)
	}
	return events, next, nil
}

// renamed are the books with ids as hosts make them: one process has all that one book's host has been.
func renamed(t *testing.T, books []*book) []*book {
	t.Helper()
	ids := make(map[string]string)
	for n, b := range books {
		for _, e := range b.seen {
			if ip, token, ok := strings.Cut(e.e.Host, "@-@"); ok {
				ids[strconv.Quote(e.e.Host)] = strconv.Quote(fmt.Sprintf("%s@-@%d-%s", ip, 100+n, token))
			}
		}
	}
	var list []*book
	for n, b := range books {
		r := &book{name: b.name, id: b.id}
		for _, e := range b.seen {
			if e.e.Host == "" { // as hosts write it now
				e.e.Host = fmt.Sprintf("10.0.0.9@-@%d", 100+n)
				for _, o := range b.seen {
					if ip, _, ok := strings.Cut(o.e.Host, "@-@"); ok {
						e.e.Host = fmt.Sprintf("%s@-@%d", ip, 100+n)
					}
				}
			}
			line, err := json.Marshal(e.e)
			if err != nil {
				t.Fatal(err)
			}
			text := string(line)
			for old, now := range ids {
				text = strings.ReplaceAll(text, old, now)
			}
			var now event.Event
			if err := json.Unmarshal([]byte(text), &now); err != nil {
				t.Fatal(err)
			}
			r.seen = append(r.seen, entry{r, e.at, now})
		}
		list = append(list, r)
	}
	return list
}

// inDatabase judges the books as one database, inFiles as files.
func inDatabase(t *testing.T, o Options, books ...*book) *Report {
	t.Helper()
	var all table
	for _, b := range renamed(t, books) {
		for _, e := range b.seen {
			all.events = append(all.events, e.e)
		}
	}
	slices.SortStableFunc(all.events, func(a, b event.Event) int { return a.Time.Compare(b.Time) })
	r, err := Histories(t.Context(), o, []Database{&all, &all})
	if err != nil {
		t.Fatal(err)
	}
	if r.Events != int64(len(all.events)) || len(r.Files) != 1 || r.Files[0] != all.Name() {
		t.Errorf("%d events of %q, expected %d of one database", r.Events, r.Files, len(all.events))
	}
	for _, f := range r.Findings {
		for _, l := range f.Lines {
			if want := all.events[l.Line-1]; !want.Time.Equal(l.Time) {
				t.Errorf("%s is of %s, and shown as of %s", l.Place, want.Time, l.Time)
			}
		}
	}
	return r
}

func inFiles(t *testing.T, o Options, books ...*book) *Report {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for n, b := range renamed(t, books) {
		var text []byte
		for _, e := range b.seen {
			line, err := json.Marshal(e.e)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, line...), '\n')
		}
		names = append(names, filepath.Join(dir, fmt.Sprintf("%d.jsonl", n)))
		if err := os.WriteFile(names[n], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Files(t.Context(), o, names...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// verdict are the numbers of what is found, by invariant and class.
func verdict(r *Report) map[string]int {
	counts := make(map[string]int)
	for _, f := range r.Findings {
		counts[fmt.Sprintf("%d %s", f.Invariant, f.Class)]++
	}
	return counts
}
