package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/host/history"
)

// clause is a sentence about one item, before those of several items are put together.
type clause struct {
	kind    Kind
	time    time.Time
	took    time.Duration // what a group shows the most of
	key     string        // clauses of one kind and key are one sentence
	text    func(group) string
	events  []*event.Event
	changes []*history.Change
}

// fixed is the text of a clause that names no items.
func fixed(text string) func(group) string { return func(group) string { return text } }

// group are items of which the same is to be said.
type group struct {
	items       tree.Items
	first, last time.Time
	least, most time.Duration
}

func (g group) is(one, several string) string {
	if len(g.items) > 1 {
		return several
	}
	return one
}

func (g group) job() bool { return len(g.items) == 1 && g.items[0] < 0 }

// Items is "Item 3", or "Items 0-2,5".
func (g group) Items() string {
	if g.job() {
		return "The job"
	}
	return g.is("Item ", "Items ") + g.items.String()
}

// subject is Items inside a sentence.
func (g group) subject() string {
	if g.job() {
		return "the job"
	}
	return g.is("item ", "items ") + g.items.String()
}

func (g group) They() string { return g.is("It", "They") }
func (g group) they() string { return g.is("it", "they") }
func (g group) them() string { return g.is("it", "them") }

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

// common are the kinds of sentences that are said once, however many items they matter
// for.
var common = []Kind{KindHost, KindJob, KindShare, KindChange}

// compose puts the stories of items together that are alike, and makes sentences of them:
// the worst first.
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
			key.WriteString("\x00" + string(c.kind) + "\x00" + c.key)
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
			if repeated := said[s.Text] && slices.Contains(common, s.Kind); !repeated {
				out = append(out, s)
			}
			said[s.Text] = true
		}
	}
	return out
}

// sentences are those of stories that are alike.
func (tl *timeline) sentences(stories []story) []Sentence {
	var items tree.Items
	for _, s := range stories {
		items = append(items, s.item)
	}
	var out []Sentence
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
		sentence.Text = stories[0].clauses[i].text(g)
		out = append(out, sentence)
	}
	return out
}
