package permit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Ticket is a node in the line of a key.
type Ticket struct {
	// Path of the node.
	Path string
	// Max is the maximum of the job that made it.
	Max int
	// number orders the tickets. It begins again below 0 after two billion.
	number int32
}

// compare orders two tickets of a line.
func (t Ticket) compare(o Ticket) int {
	return cmp.Or(cmp.Compare(t.number-o.number, 0), strings.Compare(t.Path, o.Path))
}

// Parse reads the line of a key from the names of its children, in the line's order. It skips a node that is no
// ticket but an external edit.
func Parse(key string, names []string) []Ticket {
	var line []Ticket
	for _, name := range names {
		if t, ok := parse(key, name); ok {
			line = append(line, t)
		}
	}
	slices.SortFunc(line, Ticket.compare)
	return line
}

func parse(key, name string) (t Ticket, ok bool) {
	most, number, _ := strings.Cut(name, "-")
	limit, err := strconv.Atoi(most)
	if err != nil || limit < 1 {
		return t, false
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return Ticket{key + "/" + name, limit, int32(n)}, err == nil
}

// Place is where a ticket stands.
type Place struct {
	// Before is how many tickets stand before it, Max the smallest maximum among it and them.
	Before, Max int
	// Ahead is the ticket just before it; its path is empty if there is none.
	Ahead Ticket
	// waits is set if Ahead waits as well.
	waits bool
}

// Granted reports whether an item may run with the ticket.
func (p Place) Granted() bool { return p.Before < p.Max }

// Places returns the places of own tickets of a line, in the line's order. A ticket that is gone has none. most
// is an additional maximum.
func Places(line []Ticket, own []Ticket, most int) map[string]Place {
	places := make(map[string]Place, len(own))
	smallest := math.MaxInt
	var ahead Ticket
	waits := false
	for before, t := range line {
		smallest = min(smallest, t.Max)
		p := Place{Before: before, Max: min(smallest, most), Ahead: ahead, waits: waits}
		if slices.ContainsFunc(own, func(o Ticket) bool { return o.Path == t.Path }) {
			places[t.Path] = p
		}
		ahead, waits = t, before >= smallest // as its own host sees it
	}
	return places
}

// Watch returns the query to watch while a ticket waits: the ticket before it, if that waits too, otherwise the
// whole line of the key.
func (p Place) Watch(key string) registry.Query {
	if p.waits {
		return registry.Data(p.Ahead.Path)
	}
	return registry.Children(key)
}

// Moved reports whether a snapshot of [Place.Watch] shows a reason to read the line: the ticket before is
// gone, or an item has begun with it.
func Moved(n registry.Node) bool { return n.Children || !n.Exists || n.Version > 0 }

// Holder is the owner of a ticket, as the ticket's data has it.
type Holder struct {
	// Host is an instance id, Job a job's name.
	Host string `json:"host"`
	Job  string `json:"job"`
	// Item is nil while the ticket waits.
	Item *int `json:"item,omitempty"`
}

// Data is the holder as a ticket has it.
func (h Holder) Data() []byte {
	data, _ := json.Marshal(h) // texts and a number always have a JSON form
	return data
}

// ParseHolder reads the data of a ticket; ok is false if it cannot be read.
func ParseHolder(data []byte) (h Holder, ok bool) {
	return h, json.Unmarshal(data, &h) == nil
}

// Draw is a host's request for tickets.
type Draw struct {
	// Key is the path of the limit's node; see [tree.Limit].
	Key string
	// Count is how many tickets, Max the maximum of the job.
	Count, Max int
}

// Take creates tickets in one commit. Each ends with the session. After an error some may exist: see [Own].
func Take(ctx context.Context, r registry.Center, who Holder, draws ...Draw) (made map[string][]Ticket, err error) {
	err = step.Perform(ctx, r, "draw tickets", func(ctx context.Context, x *step.Exchange) error {
		made, err = take(ctx, x, who, draws)
		return err
	})
	return made, err
}

func take(ctx context.Context, x *step.Exchange, who Holder, draws []Draw) (map[string][]Ticket, error) {
	var ops []registry.Op
	var keys []string // of ops
	for _, d := range draws {
		for range d.Count {
			ops = append(ops, registry.CreateSequential(fmt.Sprintf("%s/%d-", d.Key, d.Max), who.Data()))
			keys = append(keys, d.Key)
		}
	}
	made := make(map[string][]Ticket)
	for len(ops) > 0 {
		part := step.FirstPart(ops)
		results, err := x.Commit(ctx, part...)
		if step.ConflictOf(err) != nil { // the node of a key is missing
			var ensure []registry.Op
			for _, key := range slices.Compact(slices.Clone(keys[:len(part)])) {
				ensure = append(ensure, registry.Ensure(key))
			}
			if _, err := x.Commit(ctx, ensure...); err != nil {
				return made, err
			}
			continue
		}
		if err != nil {
			return made, err
		}
		for k, result := range results {
			name := strings.TrimPrefix(result.Path, keys[k]+"/")
			if t, ok := parse(keys[k], name); ok {
				made[keys[k]] = append(made[keys[k]], t)
			}
		}
		ops, keys = ops[len(part):], keys[len(part):]
	}
	return made, nil
}

// Lines reads the lines of some keys in one request.
func Lines(ctx context.Context, r registry.Center, keys ...string) (lines map[string][]Ticket, err error) {
	lines = make(map[string][]Ticket, len(keys))
	err = step.Perform(ctx, r, "read who runs under a limit", func(ctx context.Context, x *step.Exchange) error {
		read := make([]registry.Query, len(keys))
		for k, key := range keys {
			read[k] = registry.Children(key)
		}
		n, err := x.Read(ctx, read...)
		for _, key := range keys {
			lines[key] = Parse(key, n.Children(key))
		}
		return err
	})
	return lines, err
}

// Own finds tickets that a commit of unknown outcome may have created for a job of this session's host. mine
// reports whether a holder is this host and job; known are the paths of known tickets.
func Own(ctx context.Context, r registry.Center, key string, mine func(Holder) bool, known map[string]bool) (found []Ticket, err error) {
	err = step.Perform(ctx, r, "look for tickets", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Children(key))
		if err != nil {
			return err
		}
		line := Parse(key, n.Children(key))
		var read []registry.Query
		for _, t := range line {
			if !known[t.Path] {
				read = append(read, registry.Data(t.Path))
			}
		}
		held, err := x.Read(ctx, read...)
		for _, t := range line {
			node := held.Data(t.Path)
			if who, ok := ParseHolder(node.Data); node.Exists && ok && mine(who) {
				found = append(found, t)
			}
		}
		return err
	})
	return found, err
}

// Return deletes tickets. A ticket that is gone already or named twice is no error.
func Return(ctx context.Context, r registry.Center, paths ...string) error {
	paths = slices.Clone(paths)
	slices.Sort(paths)
	paths = slices.Compact(paths)
	return step.Perform(ctx, r, "return tickets", func(ctx context.Context, x *step.Exchange) error {
		ops := make([]registry.Op, len(paths))
		for k, path := range paths {
			ops[k] = registry.Delete(path, registry.AnyVersion)
		}
		for len(ops) > 0 {
			part := step.FirstPart(ops)
			_, err := x.Commit(ctx, part...)
			if step.Contested(err) {
				if ops, err = there(ctx, x, ops); err == nil {
					continue
				}
			}
			if err != nil { // a second call finds those that are gone
				return err
			}
			ops = ops[len(part):]
		}
		return nil
	})
}

// there returns the ops whose nodes exist.
func there(ctx context.Context, x *step.Exchange, ops []registry.Op) ([]registry.Op, error) {
	read := make([]registry.Query, len(ops))
	for k, op := range ops {
		read[k] = registry.Data(op.Path)
	}
	n, err := x.Read(ctx, read...)
	return slices.DeleteFunc(ops, func(op registry.Op) bool { return !n.Data(op.Path).Exists }), err
}

// Key is the path of a limit's node.
func Key(l tree.Layout, key string) string { return tree.Limit(l.Namespace, key) }
