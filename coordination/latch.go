package coordination

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Line is a host's place in one of ElasticJob's latches, in which Java hosts
// queue before they elect or take over: what they do there is several requests,
// and who does the same beside them would be undone. The zero Line stands
// nowhere. It belongs to one host and one latch.
type Line struct {
	// Standing is set while the registry may hold a node of this host in the
	// latch.
	Standing bool
	// Behind is the node that must go before it is this host's turn; empty if
	// the host does not wait. Watch it, and try again when it is gone.
	Behind string
	// Around is set by a host that has waited too long for Behind: it goes
	// ahead. Nothing of ours relies on the latch alone, see doc.go.
	Around bool
}

// Waiting asks for the node that the host waits for; false if it waits for
// none.
func (l Line) Waiting() (registry.Query, bool) { return registry.Data(l.Behind), l.Behind != "" }

// latchName is the name of a host's node in a latch, up to the number that the
// registry gives it. It is the same whenever the host stands in the line, so
// that a node is found again whose creation is not known. It has the form
// of Curator's: _c_{uuid}-latch-.
func latchName(self string) string {
	h := sha256.Sum256([]byte(self))
	return fmt.Sprintf("_c_%x-%x-%x-%x-%x-latch-", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// inLine calls turn once it is this host's turn in the latch, with the ops that
// leave the line, which belong in the commit for which the host stood there, and
// with what was asked for in read, as it was while it was this host's turn.
// While it is another's turn the exchange ends with line.Behind set. Standing
// again, later, keeps the place.
func inLine(l Layout, self, latch string, line *Line, read []registry.Query, turn func(leave []registry.Op, n []registry.Node) (Move, error)) Move {
	line.Behind = ""
	look := Move{Name: "stand in line", Read: append([]registry.Query{registry.Children(latch)}, read...)}
	stand := func() (Move, error) {
		line.Standing = true // perhaps
		again := func() (Move, error) { return look, nil }
		return Move{
			Name: "stand in line",
			// The server reaps a latch in which no host stands.
			Commit:  []registry.Op{registry.Check(l.config(), registry.AnyVersion), registry.Ensure(latch), registry.CreateSequential(latch+"/"+latchName(self), nil)},
			Then:    func([]registry.Node, []registry.Result) (Move, error) { return again() },
			Unknown: again,
			Else: func(e *registry.OpError) (Move, error) {
				if e.Index == 0 {
					line.Standing = false
					return Done() // the job was removed
				}
				return again()
			},
		}, nil
	}
	look.Then = func(n []registry.Node, _ []registry.Result) (Move, error) {
		mine, behind := placeInLine(n[0].Names, self)
		switch {
		case len(mine) == 0:
			return stand()
		case behind != "" && !line.Around:
			line.Behind = latch + "/" + behind
			return Done()
		}
		return turn(leaving(latch, mine), n[1:])
	}
	if !line.Standing {
		m, _ := stand()
		return m
	}
	return look
}

func leaving(latch string, nodes []string) []registry.Op {
	var ops []registry.Op
	for _, name := range nodes {
		ops = append(ops, registry.Delete(latch+"/"+name, registry.AnyVersion))
	}
	return ops
}

// placeInLine finds this host's nodes in a latch, and the node before the first
// of them; that is empty if there is none.
func placeInLine(names []string, self string) (mine []string, behind string) {
	const word = "latch-"
	number := func(name string) string {
		if k := strings.LastIndex(name, word); k >= 0 {
			return name[k+len(word):]
		}
		return name
	}
	sorted := slices.Clone(names)
	slices.SortStableFunc(sorted, func(a, b string) int { return strings.Compare(number(a), number(b)) })
	for k, name := range sorted {
		if !strings.HasPrefix(name, latchName(self)) {
			continue
		}
		if len(mine) == 0 && k > 0 {
			behind = sorted[k-1]
		}
		mine = append(mine, name)
	}
	return mine, behind
}

// leaveLine takes the host out of a latch.
func leaveLine(self, latch string, line *Line) Move {
	return Move{Name: "leave the line", Read: []registry.Query{registry.Children(latch)}, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
		mine, _ := placeInLine(n[0].Names, self)
		if len(mine) == 0 {
			*line = Line{}
			return Done()
		}
		again := func() (Move, error) { return leaveLine(self, latch, line), nil }
		return Move{Commit: leaving(latch, mine),
			Then:    func([]registry.Node, []registry.Result) (Move, error) { *line = Line{}; return Done() },
			Else:    func(*registry.OpError) (Move, error) { return again() },
			Unknown: again}, nil
	}}
}
