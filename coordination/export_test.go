package coordination

import (
	"fmt"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// Remembered is what a host carries from one view to the next, and what it
// knows of its share apart from the states of the items: two hosts of which it
// is the same do the same with the same answers. The number of rounds counts
// only in being that of the share or not. Left out are the configuration, which
// is read anew with each view unless it cannot be read, and what is watched
// besides where Java hosts are.
func Remembered(v View, s Share) string {
	return fmt.Sprint(v.divisionNode.Version, v.Division, v.OurTerm, v.Flagged(), v.FlagSeen, s.Items != nil, s.division, s.round == v.round, s.Guard, s.Pending, s.Owing, s.Round, s.Java)
}

// Decide is what a host does that finds nodes; see verdict.
func Decide(wanted, config, definition, superseded registry.Node, id string, mine []byte) string {
	f := findings{wanted: wanted, config: config, definition: definition, superseded: superseded}
	return map[verdict]string{verdictJoin: "join", verdictCreate: "create", verdictReturned: "returned", verdictStopped: "stopped",
		verdictRemoved: "removed", verdictVanished: "vanished", verdictUndone: "undone"}[f.decide(id, mine)]
}
