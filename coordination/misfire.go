package coordination

import (
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
)

// MarkMisfire makes ElasticJob's misfire marks, for consoles and for the owner
// after a resharding. The host itself remembers what it missed.
func MarkMisfire(l Layout, items Items) Move {
	const name = "mark misfire"
	var ops []registry.Op
	for _, i := range items {
		ops = append(ops, registry.Create(l.itemMisfire(i), nil))
	}
	for part := range parts(ops, commitBudget) {
		rest := items[len(part):]
		return Move{Name: name, Commit: part,
			Then: func([]registry.Node, []registry.Result) (Move, error) { return MarkMisfire(l, rest), nil },
			Else: func(*registry.OpError) (Move, error) {
				var read []registry.Query
				for _, i := range items {
					read = append(read, registry.Data(l.item(i)), registry.Data(l.itemMisfire(i)))
				}
				return Move{Read: read, Then: func(n []registry.Node, _ []registry.Result) (Move, error) {
					var left Items
					for k, i := range items {
						if n[2*k].Exists && !n[2*k+1].Exists {
							left = append(left, i)
						}
					}
					return MarkMisfire(l, left), nil
				}}, nil
			}}
	}
	return Move{Name: name}
}

// RegistryTime asks for the registry's clock.
func RegistryTime(l Layout, out *time.Time) Move {
	return Move{
		Name: "read registry time",
		// The check keeps a job that was removed from coming back by this.
		Commit: []registry.Op{registry.Check(l.config(), registry.AnyVersion), registry.Ensure(l.systemTime()), registry.Set(l.systemTime(), nil, registry.AnyVersion)},
		Then: func(_ []registry.Node, results []registry.Result) (Move, error) {
			*out = results[2].Time
			return Done()
		},
		Else: func(e *registry.OpError) (Move, error) {
			if e.Index == 0 {
				return Move{}, ErrRemoved
			}
			return Move{}, e
		},
	}
}
