package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// clause is a sentence about one item, before those of several items are put together.
type clause struct {
	kind    Kind
	time    time.Time
	took    time.Duration // what a group shows the most of
	message message
	events  []*event.Event
	changes []*history.Change
}

// shows returns the clause for an event. Its time, host, reason and outcome are in the places at, host, reason and
// outcome.
func (tl *timeline) shows(kind Kind, row string, e *event.Event, more places) clause {
	in := places{"at": e.Time, "host": tl.name(e.Host), "reason": reasonOf(e), "outcome": outcome(e)}
	maps.Copy(in, more)
	return clause{kind: kind, time: e.Time, message: message{row, in}, events: []*event.Event{e}}
}

// reasonOf returns the value of a sentence for an event's reason.
func reasonOf(e *event.Event) any {
	if text := reasonText(e); text != "" {
		return report{text, e.Because, e.Cause}
	}
	return message{row: "no-reason"}
}

// reasonText is the first line of an event's reason, without a stop.
func reasonText(e *event.Event) string { return strings.TrimRight(words.FirstLine(e.Reason), ".") }

// outcome is what an attempt came to.
func outcome(e *event.Event) any {
	var o any = word{"outcome", string(e.Outcome)}
	if e.Outcome == "" {
		o = message{row: "no-outcome"}
	}
	if e.Reason == "" {
		return o
	}
	return message{"outcome-said", places{"outcome": o, "reason": reasonOf(e)}}
}

// group are items with the same story.
type group struct {
	items       tree.Items
	first, last time.Time
	least, most time.Duration
}

// row returns the key of the text for this number of items.
func (g group) row(key string) string {
	if len(g.items) > 1 {
		return key
	}
	if g.items[0] < 0 && table[key+".job"] != nil {
		return key + ".job"
	}
	if table[key+".one"] != nil {
		return key + ".one"
	}
	return key
}

// at writes a time in the job's zone, with the day if it is another than the fire's.
func (tl *timeline) at(t time.Time) string {
	t = t.In(tl.location)
	if y, m, d := t.Date(); !tl.fire.instant.IsZero() {
		if fy, fm, fd := tl.fire.instant.In(tl.location).Date(); y == fy && m == fm && d == fd {
			return t.Format("15:04:05")
		}
	}
	return t.Format("2006-01-02 15:04:05")
}

// name is the server's address, with what distinguishes its instances if several of
// them had the job.
func (tl *timeline) name(id string) string {
	server := tree.ServerOf(id)
	if tl.names[server] < 2 || server == id {
		return server
	}
	return fmt.Sprintf("%s (%s)", server, strings.TrimPrefix(id[len(server):], "@-@"))
}

// common are the kinds of sentences that appear once, for however many items they matter.
var common = []Kind{KindHost, KindJob, KindShare, KindChange}

// compose groups the stories that are alike, and makes sentences of them, the worst first.
func (tl *timeline) compose(stories []story) []Sentence {
	type set struct {
		stories []story
		rank    int
	}
	var order []string
	sets := make(map[string]*set)
	for _, s := range stories {
		var key strings.Builder
		key.WriteString(string(s.verdict))
		for _, c := range s.clauses {
			key.WriteString("\x00" + string(c.kind) + "\x00" + tl.write(en, c.message, group{items: tree.Items{0}}))
		}
		k := key.String()
		if s.item < 0 {
			k += "\x00" + strconv.Itoa(len(order)) // it stands alone
		}
		if sets[k] == nil {
			sets[k] = &set{rank: s.verdict.rank()}
			order = append(order, k)
		}
		sets[k].stories = append(sets[k].stories, s)
	}
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(sets[a].rank, sets[b].rank) })
	out := []Sentence{}
	said := make(map[string]bool)
	for _, k := range order {
		for _, s := range tl.sentences(sets[k].stories) {
			if repeated := said[s.english] && slices.Contains(common, s.Kind); !repeated {
				out = append(out, s.Sentence)
			}
			said[s.english] = true
		}
	}
	return out
}

// written is a sentence, and its English text, by which it is identified in any language.
type written struct {
	Sentence
	english string
}

// sentences are those of stories that are alike.
func (tl *timeline) sentences(stories []story) []written {
	var items tree.Items
	for _, s := range stories {
		items = append(items, s.item)
	}
	var out []written
	for i := range stories[0].clauses {
		g := group{items: items}
		sentence := Sentence{Time: stories[0].clauses[i].time, Kind: stories[0].clauses[i].kind}
		if items[0] >= 0 {
			sentence.Items = items
		}
		seen := make(map[*event.Event]bool)
		for k, s := range stories {
			c := s.clauses[i]
			if k == 0 || c.time.Before(g.first) {
				g.first = c.time
			}
			if k == 0 || c.time.After(g.last) {
				g.last = c.time
			}
			if k == 0 || c.took < g.least {
				g.least = c.took
			}
			g.most = max(g.most, c.took)
			for _, e := range c.events {
				if e != nil && !seen[e] && len(sentence.Events) < MostEvents {
					seen[e] = true
					sentence.Events = append(sentence.Events, *e)
				}
			}
		}
		for _, c := range stories[0].clauses[i].changes {
			sentence.Changes = append(sentence.Changes, *c)
		}
		sentence.Time = g.first
		m := stories[0].clauses[i].message
		sentence.Text = tl.write(tl.language, m, g)
		out = append(out, written{sentence, tl.write(en, m, g)})
	}
	return out
}
