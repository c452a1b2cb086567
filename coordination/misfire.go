package coordination

import "time"

// MarkMisfire makes ElasticJob's misfire marks, for consoles and for the owner
// after a resharding. The host itself remembers what it missed.
func MarkMisfire(l Layout, items Items) Move {
	const name = "mark misfire"
	var ops []Op
	for _, i := range items {
		ops = append(ops, Create(l.itemMisfire(i), nil))
	}
	for part := range parts(ops, commitBudget) {
		rest := items[len(part):]
		return Move{Name: name, Commit: part,
			Then: func([]Node, []Result) (Move, error) { return MarkMisfire(l, rest), nil },
			Else: func(*OpError) (Move, error) {
				var read []Query
				for _, i := range items {
					read = append(read, Data(l.item(i)), Data(l.itemMisfire(i)))
				}
				return Move{Read: read, Then: func(n []Node, _ []Result) (Move, error) {
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
		Commit: []Op{Check(l.config(), AnyVersion), Ensure(l.systemTime()), Set(l.systemTime(), nil, AnyVersion)},
		Then: func(_ []Node, results []Result) (Move, error) {
			*out = results[2].Time
			return Done()
		},
		Else: func(e *OpError) (Move, error) {
			if e.Index == 0 {
				return Move{}, ErrRemoved
			}
			return Move{}, e
		},
	}
}
