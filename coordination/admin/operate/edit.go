package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/step"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Config is a job's configuration in the registry. Version is the transaction that wrote it; an edit names the
// version that it was made from. The node's own version would not do: it begins at 0 again when a removed job
// is restored.
type Config struct {
	jobconfig.Configuration
	Version int64

	node       int32         // the version of the node
	definition registry.Node // the definition file as it was last applied
}

// Definition is the definition file as it was last applied to the job; ok is false if none was.
func (c Config) Definition() (d jobconfig.Configuration, ok bool) {
	if !c.definition.Exists {
		return d, false
	}
	d, _, err := jobconfig.Parse(c.definition.Data)
	return d, err == nil
}

// StaleError refuses an edit that was made from an outdated version.
type StaleError struct {
	// Found is the version that the edit was made from, Now the current configuration.
	Found int64
	Now   Config
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("the configuration was changed since version %d, which the edit was made from: it is version %d now; look at it and edit that", e.Found, e.Now.Version)
}

// ReadConfig reads the configuration of a job.
func ReadConfig(ctx context.Context, r registry.Center, l tree.Layout) (c Config, err error) {
	err = step.Perform(ctx, r, "read the configuration", func(ctx context.Context, x *step.Exchange) error {
		c, err = readConfig(ctx, x, l)
		return err
	})
	return c, err
}

func readConfig(ctx context.Context, x *step.Exchange, l tree.Layout) (Config, error) {
	n, err := x.Read(ctx, registry.Data(l.Config()), registry.Data(l.Definition()))
	if err != nil {
		return Config{}, err
	}
	node := n.Data(l.Config())
	if !node.Exists {
		return Config{}, tree.ErrRemoved
	}
	c, _, err := jobconfig.Parse(node.Data)
	if err != nil {
		return Config{}, fmt.Errorf("the configuration in the registry cannot be read: %w", err)
	}
	return Config{c, node.Mzxid, node.Version, n.Data(l.Definition())}, nil
}

// Editable are the settings of a job that can be edited in the registry: all but those
// that belong to the definition file alone.
func Editable() []jobconfig.Setting {
	var c jobconfig.Configuration
	var g jobconfig.Guest
	return slices.DeleteFunc(jobconfig.Settings(), func(s jobconfig.Setting) bool {
		return s.In(&c, &g) == nil || (s.Key == "" && s.Prop == "") || s.Name == "jobName" || s.Name == "overwrite"
	})
}

// EditableNames are their names.
func EditableNames() (names []string) {
	for _, s := range Editable() {
		names = append(names, s.Name)
	}
	return names
}

// Edit returns the configuration with settings changed. edits are texts by their names in a definition file, as
// Text shows them. An empty text removes a property: the job then has the value of [jobconfig.DefaultGuest].
// The error joins a *jobconfig.FieldError for every problem, also for old problems that the edit does not
// repair: hosts reject such a configuration as a whole. The configuration that is returned with an error has
// the valid settings.
func Edit(c jobconfig.Configuration, edits map[string]string) (jobconfig.Configuration, error) {
	g, _ := c.Guest() // the validation says what cannot be read
	before := c
	c.Props = maps.Clone(c.Props)
	if c.Props == nil {
		c.Props = make(map[string]string)
	}
	var edited, gone []string // properties
	var problems words.Problems
	bad := func(name, problem string) {
		problems.Add(&jobconfig.FieldError{Field: words.Clip(name), Problem: problem})
	}
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		text := edits[name]
		i := slices.IndexFunc(Editable(), func(s jobconfig.Setting) bool { return s.Name == name })
		if i < 0 {
			bad(name, "is no setting that can be edited"+words.Suggest(name, EditableNames()))
			continue
		}
		setting := Editable()[i]
		switch {
		case text == "" && setting.Prop != "":
			gone = append(gone, setting.Prop)
		case text == Text(setting, before):
		case setting.Type == jobconfig.Boolean && text != "true" && text != "false":
			bad(name, fmt.Sprintf("found %q, expected true or false", jobconfig.Clip(text)))
		default:
			with, guest := c, g
			if err := parse(setting, &with, &guest, text); err != nil {
				bad(name, err.Error())
				continue
			}
			c, g, edited = with, guest, append(edited, setting.Prop)
		}
	}
	props := make(map[string]string)
	g.Props(props)
	for _, key := range edited {
		if value, written := props[key]; written {
			c.Props[key] = value
		} else {
			delete(c.Props, key)
		}
	}
	for _, key := range gone {
		delete(c.Props, key)
	}
	known := jobconfig.FieldErrors(before.Validate())
	for _, f := range jobconfig.FieldErrors(c.Validate()) {
		name := f.Field
		if slices.ContainsFunc(known, func(k *jobconfig.FieldError) bool { return *k == *f }) {
			f.Problem += "; it is so in the registry, and hosts take over no edit until it is repaired: give this setting a value as well, or none for its default"
		}
		for _, s := range Editable() {
			if s.Prop != "" && name == "props."+s.Prop {
				name = s.Name
			}
		}
		bad(name, f.Problem)
	}
	return c, problems.Err()
}

// parse reads a setting from a text. An empty text means no value where the document allows that.
func parse(s jobconfig.Setting, c *jobconfig.Configuration, g *jobconfig.Guest, text string) error {
	p, absent := s.In(c, g).(**string)
	switch {
	case !absent:
		return s.Parse(c, g, text)
	case text == "":
		*p = nil
	default:
		*p = &text
	}
	return nil
}

// Differences returns the settings that differ between two configurations, by name, as Text shows them.
func Differences(before, after jobconfig.Configuration) (was, is map[string]string) {
	was, is = make(map[string]string), make(map[string]string)
	for _, s := range Editable() {
		if a, b := Text(s, before), Text(s, after); a != b {
			was[s.Name], is[s.Name] = a, b
		}
	}
	return was, is
}

// EditConfig writes a job's configuration as edit changes it. edit may refuse, and is called again after a
// conflict. version is the one that the edit was made from, negative for any; if the registry has another one
// the error is a *StaleError. All hosts of the job adopt the change; a definition file with another value wins
// only if the file changes. The caller records the edit: hosts that see it do not.
func EditConfig(ctx context.Context, r registry.Center, l tree.Layout, version int64, edit func(jobconfig.Configuration) (jobconfig.Configuration, error)) (before, after Config, err error) {
	err = step.Perform(ctx, r, "edit the configuration", func(ctx context.Context, x *step.Exchange) error {
		for {
			if before, err = readConfig(ctx, x, l); err != nil {
				return err
			}
			if version >= 0 && version != before.Version {
				return &StaleError{version, before}
			}
			if after.Configuration, err = edit(before.Configuration); err != nil {
				return err
			}
			ops := []registry.Op{registry.Set(l.Config(), after.YAML(), before.node)}
			if before.definition.Exists {
				ops = append(ops, registry.Set(l.Definition(), before.definition.Data, before.definition.Version))
			}
			results, err := x.Commit(ctx, ops...)
			if step.ConflictOf(err) == nil {
				if err == nil {
					after.Version, after.node = results[0].Zxid, results[0].Version
				}
				return err
			}
		}
	})
	return before, after, err
}

// EditedOutside reports whether another program made the last change of the configuration; change is the number
// of that write. A recorded commit of ours that writes the configuration also writes the definition.
func EditedOutside(ctx context.Context, r registry.Center, l tree.Layout, change int64) (outside bool, err error) {
	err = step.Perform(ctx, r, "look who changed the configuration", func(ctx context.Context, x *step.Exchange) error {
		n, err := x.Read(ctx, registry.Data(l.Config()), registry.Data(l.Definition()))
		if err == nil {
			outside = n.Data(l.Config()).Mzxid == change && n.Data(l.Definition()).Mzxid != change
		}
		return err
	})
	return outside, err
}

// Text is the value of an editable setting, as Edit takes it; for a property that cannot be read, its raw text.
func Text(s jobconfig.Setting, c jobconfig.Configuration) string {
	g, err := c.Guest()
	if slices.ContainsFunc(jobconfig.FieldErrors(err), func(f *jobconfig.FieldError) bool { return f.Field == "props."+s.Prop }) {
		return c.Props[s.Prop]
	}
	switch p := s.In(&c, &g).(type) {
	case *string:
		return *p
	case *bool:
		return strconv.FormatBool(*p)
	case *int:
		return strconv.Itoa(*p)
	case **string:
		if *p != nil {
			return **p
		}
		return ""
	}
	return s.Text(g)
}
