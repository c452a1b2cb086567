package migrate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/schema"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// File is the base name of the job's files, without an extension: the job's name. Characters that are invalid
// in the path of a Go package are removed, and a part of a checksum then keeps names apart.
func (j Job) File() string {
	kept := strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, j.Name)
	short := strings.TrimLeft(kept, "._-") // go build ./... ignores such folders
	if short == j.Name {
		return j.Name
	}
	sum := sha256.Sum256([]byte(j.Name))
	return cmp.Or(strings.TrimRight(short, "_"), "job") + "-" + hex.EncodeToString(sum[:4])
}

// field is a field of a definition.
type field struct {
	name  string
	value *yaml.Node
}

// Definition is the job's definition file, with the notes as comments. The text is checked as a host checks a
// file: an invalid field is left out, with a note. The second result is all notes. The error says that no
// definition can describe the job.
func (j Job) Definition() ([]byte, []string, error) {
	fields, notes := j.fields(), slices.Clone(j.Notes)
	for {
		text, err := j.render(fields, notes)
		if err != nil {
			return nil, notes, err
		}
		_, err = definition.Parse(j.File()+".yaml", text)
		var wrong *definition.Error
		switch {
		case err == nil:
			return append([]byte(schema.Line(jobconfig.SchemaName)+"\n"), text...), notes, nil
		case !errors.As(err, &wrong):
			return nil, notes, err
		}
		before := len(fields)
		for _, p := range wrong.Problems {
			top, _, _ := strings.Cut(p.Field, ".")
			i := slices.IndexFunc(fields, func(f field) bool { return f.name == top })
			if i < 0 || top == "shardingTotalCount" || top == "jobName" {
				continue
			}
			notes = append(notes, fmt.Sprintf("%s is left out: %s", top, p.Message))
			if v := fields[i].value; v.Kind == yaml.ScalarNode {
				notes[len(notes)-1] += fmt.Sprintf("; it was %q", v.Value)
			}
			fields = slices.Delete(fields, i, i+1)
		}
		if len(fields) == before {
			return nil, notes, fmt.Errorf("job %q cannot be defined in a file: %w", j.Name, err)
		}
	}
}

// fields are the settings that differ from the defaults of a definition.
func (j Job) fields() []field {
	var list fieldList
	c := j.Configuration
	list.node("jobName", textNode(c.JobName))
	list.text("description", c.Description)
	list.text("cron", c.Cron)
	list.text("timeZone", c.TimeZone)
	list.number("shardingTotalCount", c.ShardingTotalCount, -1)
	list.text("shardingItemParameters", c.ShardingItemParameters)
	list.text("jobParameter", c.JobParameter)
	list.text("jobShardingStrategyType", c.JobShardingStrategyType)
	list.boolean("failover", c.Failover, false)
	list.boolean("misfire", c.Misfire, true)
	list.boolean("monitorExecution", c.MonitorExecution, true)
	list.number("maxTimeDiffSeconds", c.MaxTimeDiffSeconds, -1)
	list.number("reconcileIntervalMinutes", c.ReconcileIntervalMinutes, definition.DefaultReconcileIntervalMinutes)
	list.text("jobErrorHandlerType", c.JobErrorHandlerType)
	list.boolean("disabled", c.Disabled, false)
	list.boolean("overwrite", c.Overwrite, false)
	if c.Label != nil {
		list.node("label", textNode(*c.Label))
	}
	list.boolean("staticSharding", c.StaticSharding, false)
	list.text("jobClass", j.Class)
	j.guestFields(&list)
	g, _ := c.Guest() // what cannot be read has its default, and a note by Read
	http := g.Type == jobconfig.TypeHTTP
	props := mapNode()
	for _, key := range slices.Sorted(maps.Keys(c.Props)) {
		if key != jobconfig.PropStreamingProcess && !strings.HasPrefix(key, jobconfig.PropPrefix) && (!http || !strings.HasPrefix(key, "http.")) {
			put(props, key, textNode(c.Props[key]))
		}
	}
	if len(props.Content) > 0 {
		list.node("props", props)
	}
	return list
}

// guestFields adds what a module is run with.
func (j Job) guestFields(list *fieldList) {
	c := j.Configuration
	g, _ := c.Guest() // what cannot be read has its default, and a note by Read
	d := jobconfig.DefaultGuest()
	d.Retry.MaxBackoff = max(d.Retry.MaxBackoff, g.Retry.Backoff) // a longer first pause raises it by itself
	kind := cmp.Or(string(g.Type), string(j.Kind))
	if kind == string(KindDataflow) || kind == string(KindScript) || g.Type != "" {
		list.add("type", "!!str", kind)
	}
	below := make(map[string]*yaml.Node) // mappings such as retry
	for _, setting := range jobconfig.Settings() {
		// The registry's default for timeout is no limit, unlike that of a definition.
		if setting.Prop == "" || setting.Name == "type" || (setting.Name != "timeout" && setting.Text(g) == setting.Text(d)) {
			continue
		}
		value := valueNode(setting.In(&c, &g))
		if mapping, name, ok := strings.Cut(setting.Name, "."); ok {
			if below[mapping] == nil {
				below[mapping] = mapNode()
			}
			put(below[mapping], name, value)
		} else {
			list.node(setting.Name, value)
		}
	}
	for _, mapping := range slices.Sorted(maps.Keys(below)) {
		list.node(mapping, below[mapping])
	}
}

// fieldList is a definition that is being written.
type fieldList []field

func (l *fieldList) node(name string, value *yaml.Node) { *l = append(*l, field{name, value}) }

func (l *fieldList) add(name, tag, value string) {
	l.node(name, &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value})
}

func (l *fieldList) text(name, value string) {
	if value != "" {
		l.node(name, textNode(value))
	}
}

func (l *fieldList) number(name string, value, standard int) {
	if value != standard {
		l.add(name, "!!int", strconv.Itoa(value))
	}
}

func (l *fieldList) boolean(name string, value, standard bool) {
	if value != standard {
		l.add(name, "!!bool", strconv.FormatBool(value))
	}
}

// valueNode is the value of a guest's setting, as a definition has it; see
// [jobconfig.Setting.In].
func valueNode(value any) *yaml.Node {
	switch p := value.(type) {
	case *string:
		return textNode(*p)
	case *[]jobconfig.Schedule:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range *p {
			one := mapNode()
			put(one, "cron", textNode(s.Cron))
			if s.TimeZone != "" {
				put(one, "timeZone", textNode(s.TimeZone))
			}
			if s.JobParameter != nil {
				put(one, "jobParameter", textNode(*s.JobParameter))
			}
			list.Content = append(list.Content, one)
		}
		return list
	case *[]jobconfig.After:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, a := range *p {
			one := mapNode()
			put(one, "job", textNode(a.Job))
			if a.On != "" {
				put(one, "on", textNode(a.On))
			}
			if a.Within != "" {
				put(one, "within", textNode(a.Within))
			}
			list.Content = append(list.Content, one)
		}
		return list
	case *labels.Set:
		set := mapNode()
		for _, name := range slices.Sorted(maps.Keys(*p)) {
			put(set, name, textNode((*p)[name]))
		}
		return set
	case *jobconfig.Arguments:
		return argumentsNode(*p)
	case *bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(*p)}
	case *int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(*p)}
	case *int64:
		return textNode(jobconfig.ShowSize(*p))
	case *time.Duration:
		if *p == 0 {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: "0"}
		}
		return textNode(words.Duration(*p))
	case *[]string:
		return listNode(*p)
	case *jobconfig.Isolation:
		return textNode(string(*p))
	case *jobconfig.Overlap:
		return textNode(string(*p))
	case *jobconfig.CatchUp:
		return textNode(string(*p))
	}
	return mapNode() // a type of setting that is not here: a test has one of each
}

func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	if strings.ContainsAny(s, "\n") || !unharmed(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func listNode(list []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, s := range list {
		n.Content = append(n.Content, textNode(s))
	}
	return n
}

func mapNode() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode} }

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, textNode(key), value)
}

func (j Job) render(fields []field, notes []string) ([]byte, error) {
	var b bytes.Buffer
	for _, n := range notes {
		b.WriteString("# " + comment(n) + "\n")
	}
	root := mapNode()
	for _, f := range fields {
		put(root, f.name, f.value)
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, fmt.Errorf("job %q: %w", j.Name, err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("job %q: %w", j.Name, err)
	}
	return escaped(b.Bytes()), nil
}

// comment escapes a text for a comment in one line: control characters affect an editor as they do a terminal.
func comment(s string) string {
	return words.Printable(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		return r
	}, s))
}

// unharmed reports whether a text has only characters that a terminal, and an editor, show.
func unharmed(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !words.Harmless(r) })
}

// escaped is YAML whose characters that are not harmless are escaped. They stand in double quotes, by textNode.
func escaped(text []byte) []byte {
	if unharmed(string(text)) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case words.Harmless(r):
			b.WriteRune(r)
		case r > 0xFFFF: // YAML has no pairs
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

func argumentsNode(arguments jobconfig.Arguments) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, a := range arguments {
		one := mapNode()
		put(one, "name", textNode(a.Name))
		put(one, "type", textNode(a.Type))
		if a.Default != nil {
			put(one, "default", textNode(*a.Default))
		}
		for _, field := range []struct{ name, value string }{{"min", a.Min}, {"max", a.Max}, {"description", a.Description}} {
			if field.value != "" {
				put(one, field.name, textNode(field.value))
			}
		}
		if len(a.Values) > 0 {
			put(one, "values", listNode(a.Values))
		}
		list.Content = append(list.Content, one)
	}
	return list
}
