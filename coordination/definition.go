package coordination

import (
	"context"
	"fmt"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// Applied is the result of applying a definition.
type Applied struct {
	Configuration, Before jobconfig.Configuration // what the registry has now, and had before
	// Created is true if the job was not in the registry before.
	Created bool
	// Changed are the fields that the definition file changed; Kept are those
	// where the registry differs from the file and stays.
	Changed, Kept []string
	// Superseded: this definition was applied before, has been replaced by a newer one since, and differs from
	// what is in force. Nothing of it was applied, and the host's file is out of date.
	Superseded bool

	stepped bool // a step of joining took effect, and another one follows
}

// definitions are the nodes that a definition file is applied to: the
// configuration in force, the definition as it was last applied, and the list of
// those before it.
type definitions struct {
	layout                   tree.Layout
	config, last, superseded registry.Node
	// before are the definitions that are superseded by the one that creates the job.
	before tree.Superseded
}

// apply decides the registry's new configuration: a field that was changed in the file since it was last
// applied is applied; one that was changed only in the registry stays. former is as in Joining.
func (d definitions) apply(mine jobconfig.Configuration, former string, accept func(jobconfig.Configuration) error) ([]registry.Op, Applied, error) {
	l, yaml := d.layout, mine.YAML()
	if accept == nil {
		accept = func(jobconfig.Configuration) error { return nil }
	}
	if !d.config.Exists {
		return d.create(mine, accept)
	}
	list := tree.ParseSuperseded(d.superseded.Data)
	outdated := d.last.Exists && string(d.last.Data) != string(yaml) && tree.Digest(d.last.Data) != former && list.Contains(yaml)
	stays := "overwrite is false"
	if outdated && mine.Overwrite {
		mine.Overwrite, stays = false, "the definition file was superseded by a newer one"
	}
	theirs, _, err := jobconfig.Parse(d.config.Data)
	if err != nil {
		if !mine.Overwrite {
			return nil, Applied{}, fmt.Errorf("the job's configuration in the registry (node %s) cannot be read, and %s: %w", l.Config(), stays, err)
		}
		theirs = jobconfig.Configuration{JobName: mine.JobName}
	}
	base, _, baseErr := jobconfig.Parse(d.last.Data)
	hasBase := d.last.Exists && baseErr == nil && !outdated
	result, changed, kept := jobconfig.Merge(base, hasBase, mine, theirs)
	if outdated {
		result = theirs
	}
	invalid := result.Validate()
	if invalid == nil {
		invalid = accept(result)
	}
	if invalid != nil {
		return nil, Applied{}, fmt.Errorf("the job's configuration in the registry (node %s), with what the definition changes in it, is refused: %w", l.Config(), invalid)
	}
	if outdated {
		differs := slices.Sorted(slices.Values(slices.Concat(kept, changed)))
		return nil, Applied{Configuration: result, Kept: differs, Superseded: len(differs) > 0}, nil
	}
	var ops []registry.Op
	write := (string(result.YAML()) != string(d.config.Data) && len(changed) > 0) || err != nil
	if write {
		ops = append(ops, registry.Set(l.Config(), result.YAML(), d.config.Version))
	}
	return append(ops, d.remember(yaml, list, write)...), Applied{Configuration: result, Before: theirs, Changed: changed, Kept: kept}, nil
}

// create makes the configuration of a job that has none.
func (d definitions) create(mine jobconfig.Configuration, accept func(jobconfig.Configuration) error) ([]registry.Op, Applied, error) {
	if beyond := accept(mine); beyond != nil {
		return nil, Applied{}, fmt.Errorf("the job's definition is refused: %w", beyond)
	}
	yaml := mine.YAML()
	ops := []registry.Op{registry.Create(d.layout.Config(), yaml), step.Put(d.last, yaml)}
	if d.superseded.Exists || len(d.before) > 0 {
		ops = append(ops, step.Put(d.superseded, d.before.Data()))
	}
	return ops, Applied{Configuration: mine, Created: true}, nil
}

// remember records the definition that is applied now, and adds to list the one that it supersedes; again, if
// the configuration is written: see operate.EditedOutside.
func (d definitions) remember(yaml []byte, list tree.Superseded, again bool) []registry.Op {
	if !again && d.last.Exists && string(d.last.Data) == string(yaml) {
		return nil
	}
	if !d.last.Exists || string(d.last.Data) == string(yaml) {
		return []registry.Op{step.Put(d.last, yaml)}
	}
	return []registry.Op{step.Put(d.last, yaml), step.Put(d.superseded, list.Replace(d.last.Data, yaml).Data())}
}

// ApplyDefinition applies a changed definition file to the registry. former, accept and said are as in Joining.
// If it changes the field disabled, said is the word for the whole job. It returns tree.ErrRemoved for a job
// that is not in the registry.
func ApplyDefinition(ctx context.Context, r registry.Center, l tree.Layout, mine jobconfig.Configuration, former string, accept func(jobconfig.Configuration) error, said tree.Word) (applied Applied, err error) {
	err = step.Perform(ctx, r, "apply definition", func(ctx context.Context, x *step.Exchange) error {
		for {
			n, err := x.Read(ctx, wantedQueries(l)...)
			if err != nil {
				return err
			}
			d := definitions{layout: l, config: n.Data(l.Config()), last: n.Data(l.Definition()), superseded: n.Data(l.Superseded())}
			if !d.config.Exists {
				return tree.ErrRemoved
			}
			var ops []registry.Op
			var known []string
			carries := false
			if ops, applied, err = d.apply(mine, former, accept); err != nil || len(ops) == 0 {
				return err
			}
			if carries = slices.Contains(applied.Changed, "disabled"); carries {
				w := tree.ParseWanted(n.Data(l.Wanted()).Data)
				var more []registry.Op
				if more, w.Disabled, known, err = carried(ctx, x, l, applied.Configuration.Disabled, said, w.Disabled); err != nil {
					return err
				}
				ops = append(append(ops, more...), registry.Ensure(l.Sibling()), step.Put(n.Data(l.Wanted()), w.Data()))
			}
			_, err = x.Commit(ctx, ops...)
			if err == nil && carries {
				return SwitchLate(ctx, x, l, known)
			}
			if step.ConflictOf(err) == nil {
				return err
			}
		}
	})
	return applied, err
}
