package definition

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/builtin"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/config/timetable"
	"github.com/wasmjob/wasmjob/host/config/yamlnode"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// job reads one document.
type job struct {
	*parser
	root *yaml.Node
	only bool // the file has no other
	// nodes are the fields' values, by name; those of a mapping such as retry
	// have its name before theirs.
	nodes map[string]*yaml.Node
	// bad are the fields with a problem: nothing else is said about them.
	bad map[string]bool
	// meant are fields with misspelt names or unreadable lines: they are not reported as missing.
	meant map[string]bool

	// under are the defaults of the job's folders, the nearest first; inherited says which values are theirs.
	under     []*Shared
	inherited map[string]inheritance
	// shared says that the document is a file of defaults; standIns are the fields that it does not set.
	shared   bool
	standIns []string

	c     jobconfig.Configuration
	guest jobconfig.Guest
	out   Definition
}

func newJob(p *parser, root *yaml.Node, only bool) *job {
	j := &job{parser: p, root: root, only: only, nodes: map[string]*yaml.Node{}, bad: map[string]bool{}, meant: map[string]bool{}, inherited: map[string]inheritance{}}
	for _, name := range p.lost[root] {
		j.meant[name] = true
	}
	return j
}

func (j *job) problem(n *yaml.Node, field, format string, args ...any) {
	j.bad[field] = true
	top, _, _ := strings.Cut(field, ".")
	if at := cmp.Or(j.inherited[field], j.inherited[top]); at != (inheritance{}) {
		n, format, args = j.root, format+" (it is from %s, line %d)", append(slices.Clone(args), at.file, at.line)
	}
	j.parser.problem(n, field, format, args...)
}

func (j *job) read() Definition {
	j.fields(j.root, "", j.known.fields)
	for _, mapping := range slices.Sorted(maps.Keys(j.known.below)) {
		n := j.value(mapping)
		if n == nil {
			continue
		}
		if names := j.known.below[mapping]; n.Kind == yaml.MappingNode {
			j.fields(n, mapping+".", names)
		} else {
			j.problem(n, mapping, "found %s, expected a mapping of %s", yamlnode.Describe(n), strings.Join(names, ", "))
		}
	}
	if j.shared {
		j.sharing()
	}
	j.inherit(j.under)
	j.defaults()
	for _, s := range j.known.settings {
		j.setting(s)
	}
	j.needs()
	j.module()
	j.limits()
	j.request()
	j.itemParameters()
	j.props()
	j.validate()
	j.out.Configuration = j.c
	j.out.Line = j.root.Line
	j.out.Inherited = j.origins()
	return j.out
}

// fields sorts the entries of a mapping by name.
func (j *job) fields(n *yaml.Node, prefix string, known []string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := j.target(n.Content[i]), j.target(n.Content[i+1])
		name := prefix + key.Value
		switch {
		case key.Kind != yaml.ScalarNode:
			j.problem(key, "", "found %s as the name of a field, expected a name", yamlnode.Describe(key))
		case key.Value == "<<" && yamlnode.IsPlain(key):
			j.problem(key, "", "mappings cannot be merged with <<, expected the fields themselves")
		case !isField(key.Value, known):
			message, meant := "", ""
			if !j.problems.Full() {
				message, meant = unknown(key.Value, known)
			}
			if !looksLikeField.MatchString(key.Value) {
				name = prefix + "…" // it may be a line of another kind of file
			}
			j.problem(key, name, "%s", message)
			j.meant[prefix+meant] = true
		case j.nodes[name] != nil:
			j.problem(key, name, "is given twice, first in line %d", j.nodes[name].Line)
		case value.Style&yaml.TaggedStyle != 0:
			j.nodes[name] = value
			j.problem(value, name, "found the tag %s, expected a value without one", jobconfig.Clip(value.Tag))
		case yamlnode.IsNull(value):
			j.nodes[name] = value
			j.problem(value, name, "found nothing, expected a value; leave the field out to have its default")
		default:
			j.nodes[name] = value
		}
	}
}

// looksLikeField matches unknown names that are safe to show.
var looksLikeField = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,39}$`)

// value returns a field's node, or nil if there is none that can be read.
func (j *job) value(field string) *yaml.Node {
	if j.bad[field] {
		return nil
	}
	return j.nodes[field]
}

// defaults are those of ElasticJob's builder, not those of an absent key in the
// registry, and of this host.
func (j *job) defaults() {
	c := &j.c
	c.MonitorExecution, c.Misfire = true, true
	c.MaxTimeDiffSeconds, c.ReconcileIntervalMinutes = -1, DefaultReconcileIntervalMinutes
	if j.nodes["jobName"] == nil {
		if j.only {
			c.JobName = j.base
		} else if !j.meant["jobName"] {
			j.problem(j.root, "jobName", "is missing, expected a name for each job of a file with several")
		}
	}
	if j.nodes["shardingTotalCount"] == nil && !j.meant["shardingTotalCount"] {
		j.problem(j.root, "shardingTotalCount", "is missing, expected the number of items; 1 for a job that is not divided")
	}
	j.guest = jobconfig.DefaultGuest()
	j.out.Module = j.base + ".wasm"
}

// setting reads one row of the table, unless it has a place of its own.
func (j *job) setting(s jobconfig.Setting) {
	parse := func(text string) error { return s.Parse(&j.c, &j.guest, text) }
	switch into := s.In(&j.c, &j.guest).(type) {
	case nil:
	case *bool:
		j.bool(s.Name, into)
	case *int:
		if s.Prop == "" { // Validate knows the bounds of ElasticJob's
			s.Min, s.Max = math.MinInt32, math.MaxInt32
		}
		j.ranged(s.Name, int(s.Min), int(s.Max), into)
	case *time.Duration:
		j.scalar(s.Name, jobconfig.DurationExample+", or 0", parse)
	case *[]string:
		if s.Type == jobconfig.Outcomes {
			j.outcomes(s.Name, into)
		} else {
			*into = j.list(s.Name, s.Example)
		}
	case *[]jobconfig.Schedule:
		*into = j.schedules(s.Name)
	case *[]jobconfig.After:
		*into = j.after(s.Name)
	case *labels.Set:
		*into = j.labels(s.Name)
	case *jobconfig.Arguments:
		*into = j.arguments(s.Name)
	case **string:
		if j.value(s.Name) != nil {
			*into = new(string)
			j.text(s.Name, *into)
		}
	default:
		if s.Type != jobconfig.ItemList {
			j.parsed(s.Name, parse)
		}
	}
}

// calendars checks what names calendars without their days.
func (j *job) calendars() {
	w := &j.guest.When
	for field, names := range map[string][]string{"calendars.include": w.Include, "calendars.exclude": w.Exclude} {
		n := j.value(field)
		if n == nil {
			continue
		}
		for _, name := range names {
			if err := calendar.CheckName(name); err != nil {
				j.problem(n, field, "%v", err)
			}
		}
		if !timetable.Has(j.c) {
			j.problem(n, field, "is given, but neither cron nor schedules nor at: the job has no instants")
		}
	}
	if n := j.value("calendars.onExcluded"); n != nil && len(w.Include)+len(w.Exclude) == 0 {
		j.problem(n, "calendars.onExcluded", "is given without calendars, expected names in include or exclude")
	}
	if most := len(w.Include) + len(w.Exclude); most > jobconfig.MaxCalendars {
		j.problem(j.nodes["calendars"], "calendars", "found %d calendars, expected at most %d", most, jobconfig.MaxCalendars)
	}
}

// schedules reads a list of mappings, each with the fields of one schedule.
func (j *job) schedules(field string) (list []jobconfig.Schedule) {
	n := j.value(field)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		j.problem(n, field, "found %s, expected a list of schedules, each with its cron", yamlnode.Describe(n))
		return nil
	}
	if len(n.Content) > jobconfig.MaxSchedules {
		j.problem(n, field, "found %d schedules, expected at most %d", len(n.Content), jobconfig.MaxSchedules)
		return nil
	}
	for _, item := range n.Content {
		item = j.target(item)
		if item.Kind != yaml.MappingNode {
			j.problem(item, field, "found %s, expected a mapping of cron, timeZone and jobParameter", yamlnode.Describe(item))
			continue
		}
		list = append(list, j.schedule(field, item))
	}
	return list
}

// schedule reads one of several schedules.
func (j *job) schedule(field string, n *yaml.Node) (s jobconfig.Schedule) {
	known := []string{"cron", "timeZone", "jobParameter"}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := j.target(n.Content[i]), j.target(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode || !isField(key.Value, known):
			j.problem(key, field, "found %s in a schedule, expected one of %s", yamlnode.Describe(key), strings.Join(known, ", "))
			continue
		case seen[key.Value]:
			j.problem(key, field, "%s is given twice in a schedule", key.Value)
			continue
		case value.Kind != yaml.ScalarNode || yamlnode.IsNull(value):
			j.problem(value, field, "found %s for %s, expected a text", yamlnode.Describe(value), key.Value)
		}
		seen[key.Value] = true
		switch text := value.Value; key.Value {
		case "cron":
			s.Cron = text
		case "timeZone":
			s.TimeZone = text
		default:
			s.JobParameter = &text
		}
	}
	if !seen["cron"] || strings.TrimSpace(s.Cron) == "" {
		j.problem(n, field, "found a schedule without a cron, expected one such as cron: \"0 0 9 ? * MON-FRI\"")
	}
	return s
}

// after reads a list of mappings, each of one job that this one comes after.
func (j *job) after(field string) (list []jobconfig.After) {
	n := j.value(field)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		j.problem(n, field, "found %s, expected a list of jobs, such as [{job: load, on: success, within: 2h}]", yamlnode.Describe(n))
		return nil
	}
	if len(n.Content) > jobconfig.MaxAfter {
		j.problem(n, field, "found %d jobs, expected at most %d", len(n.Content), jobconfig.MaxAfter)
		return nil
	}
	named := map[string]bool{}
	for _, item := range n.Content {
		item = j.target(item)
		if item.Kind != yaml.MappingNode {
			j.problem(item, field, "found %s, expected a mapping of job, on and within", yamlnode.Describe(item))
			continue
		}
		var a jobconfig.After
		j.texts(field, "an entry", item, map[string]*string{"job": &a.Job, "on": &a.On, "within": &a.Within}, nil)
		one, err := jobconfig.CheckAfter(a)
		switch {
		case err != nil:
			j.problem(item, field, "%v", err)
		case named[one.Job]:
			j.problem(item, field, "job %q is given twice", jobconfig.Clip(one.Job))
		default:
			named[one.Job] = true
			list = append(list, one)
		}
	}
	return list
}

// arguments reads a list of mappings, each of one argument.
func (j *job) arguments(field string) (list jobconfig.Arguments) {
	n := j.value(field)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		j.problem(n, field, "found %s, expected a list of arguments, such as [{name: day, type: date}]", yamlnode.Describe(n))
		return nil
	}
	if len(n.Content) > jobconfig.MaxArguments {
		j.problem(n, field, "found %d arguments, expected at most %d", len(n.Content), jobconfig.MaxArguments)
		return nil
	}
	for _, item := range n.Content {
		item = j.target(item)
		if item.Kind != yaml.MappingNode {
			j.problem(item, field, "found %s, expected a mapping of name, type, default, min, max, values and description", yamlnode.Describe(item))
			continue
		}
		var a jobconfig.Argument
		var standard string
		texts := map[string]*string{"name": &a.Name, "type": &a.Type, "default": &standard, "min": &a.Min, "max": &a.Max, "description": &a.Description}
		seen, ok := j.texts(field, "an argument", item, texts, map[string]*[]string{"values": &a.Values})
		if !ok {
			continue
		}
		if seen["default"] {
			a.Default = &standard
		}
		one, err := jobconfig.CheckArgument(a, list)
		if err != nil {
			j.problem(item, field, "%v", err)
			continue
		}
		list = append(list, one)
	}
	return list
}

// texts reads a mapping of texts and of lists of texts, each at most once. seen are those that it has; ok is false if
// there was a problem.
func (j *job) texts(field, what string, n *yaml.Node, into map[string]*string, lists map[string]*[]string) (seen map[string]bool, ok bool) {
	known := slices.Sorted(maps.Keys(into))
	known = append(known, slices.Sorted(maps.Keys(lists))...)
	seen, ok = map[string]bool{}, true
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := j.target(n.Content[i]), j.target(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode || !isField(key.Value, known):
			j.problem(key, field, "found %s in %s, expected one of %s", yamlnode.Describe(key), what, strings.Join(known, ", "))
			ok = false
			continue
		case seen[key.Value]:
			j.problem(key, field, "%s is given twice in %s", key.Value, what)
			ok = false
			continue
		case lists[key.Value] != nil:
			seen[key.Value] = true
			if value.Kind != yaml.SequenceNode {
				j.problem(value, field, "found %s for %s, expected a list of texts", yamlnode.Describe(value), key.Value)
				ok = false
				continue
			}
			for _, item := range value.Content {
				if item = j.target(item); item.Kind != yaml.ScalarNode || yamlnode.IsNull(item) {
					j.problem(item, field, "found %s in %s, expected a text", yamlnode.Describe(item), key.Value)
					ok = false
					continue
				}
				*lists[key.Value] = append(*lists[key.Value], item.Value)
			}
			continue
		case value.Kind != yaml.ScalarNode || yamlnode.IsNull(value):
			j.problem(value, field, "found %s for %s, expected a text", yamlnode.Describe(value), key.Value)
			ok = false
		}
		seen[key.Value] = true
		*into[key.Value] = value.Value
	}
	return seen, ok
}

// labels reads a mapping of names to values.
func (j *job) labels(field string) labels.Set {
	n := j.value(field)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		j.problem(n, field, "found %s, expected a mapping of names to values, such as {team: billing}", yamlnode.Describe(n))
		return nil
	}
	if most := labels.Max; len(n.Content) > 2*most {
		j.problem(n, field, "found %d labels, with those of the folder's defaults, expected at most %d", len(n.Content)/2, most)
		return nil
	}
	set := make(labels.Set)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := j.target(n.Content[i]), j.target(n.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode || yamlnode.IsNull(key):
			j.problem(key, field, "found %s, expected the name of a label", yamlnode.Describe(key))
			continue
		case value.Kind != yaml.ScalarNode || yamlnode.IsNull(value):
			j.problem(value, field, "found %s for label %s, expected a text", yamlnode.Describe(value), jobconfig.Clip(key.Value))
			continue
		}
		if _, twice := set[key.Value]; twice {
			j.problem(key, field, "label %q is given twice", jobconfig.Clip(key.Value))
			continue
		}
		if err := labels.Check(key.Value, value.Value); err != nil {
			j.problem(key, field, "%v", err)
			continue
		}
		set[key.Value] = value.Value
	}
	return set
}

// needs checks each of them at its place.
func (j *job) needs() {
	n := j.nodes["needs"]
	if n == nil || n.Kind != yaml.SequenceNode {
		return
	}
	if most := grants.MaxNeeds; len(n.Content) > most {
		j.problem(n, "needs", "found %d needs, expected at most %d", len(n.Content), most)
		return
	}
	for _, item := range n.Content {
		if item = j.target(item); item.Kind != yaml.ScalarNode || yamlnode.IsNull(item) {
			continue // that was said
		}
		if _, err := grants.ParseNeed(item.Value); err != nil {
			j.problem(item, "needs", "%v", err)
		}
	}
}

// module reads what is not part of the job's configuration.
func (j *job) module() {
	j.parsed("module", func(s string) error {
		j.out.Module = s
		return checkModule(s)
	})
	j.parsed("jobClass", func(s string) error {
		j.out.JobClass = s
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return fmt.Errorf("found %q, expected the name of a Java class", jobconfig.Clip(s))
		}
		return nil
	})
}

// limits finds what each field by itself does not show.
func (j *job) limits() {
	c, g := &j.c, &j.guest
	if j.nodes["timeout"] == nil {
		g.Timeout = time.Duration(j.ceilings.Of(c.JobName, ceiling.Timeout).Cap(int64(DefaultTimeout)))
	}
	j.overlap()
	r := &g.Retry
	if n := j.value("retry.maxBackoff"); n == nil {
		r.MaxBackoff = max(r.MaxBackoff, r.Backoff)
	} else if r.MaxBackoff < r.Backoff {
		j.problem(n, "retry.maxBackoff", "found %s, expected at least the first backoff, %s", r.MaxBackoff, r.Backoff)
	}
}

// request checks what a job of type HTTP sends, and that no other job has a request.
func (j *job) request() {
	if j.guest.Type != jobconfig.TypeHTTP {
		if n := j.value("http"); n != nil && !j.bad["type"] {
			j.problem(n, "http", "is the request of a job of type HTTP, expected type: HTTP; what a module may reach is granted by the operator (docs/grants.md)")
		}
		return
	}
	if n := j.value("module"); n != nil {
		j.problem(n, "module", "found a module, expected none: the host sends the request of a job of type HTTP")
	}
	j.out.Module = builtin.HTTP
	if j.nodes["http"] == nil && !j.meant["http"] {
		j.problem(j.root, "http", "is missing, expected a mapping of %s", strings.Join(j.known.below["http"], ", "))
	}
	if n := j.value("http.headers"); n != nil {
		j.problemsOf(n, "http.headers", jobconfig.CheckHTTPHeaders(j.guest.HTTP.Headers))
	}
}

// overlap sets misfire, which is for Java hosts, according to overlap. If a file sets both, Validate finds
// contradictions, except that misfire true only fits queue_one.
func (j *job) overlap() {
	n, overlap := j.value("overlap"), j.guest.Overlap
	switch {
	case n == nil || overlap == "":
	case j.nodes["misfire"] == nil:
		j.c.Misfire = overlap != jobconfig.OverlapSkip
	case j.c.Misfire && overlap != jobconfig.OverlapSkip && overlap != jobconfig.OverlapQueueOne:
		j.problem(n, "overlap", "found %s, but misfire is true, which means %s; leave misfire out", overlap, jobconfig.OverlapQueueOne)
	}
}

func checkModule(s string) error {
	switch {
	case strings.ContainsAny(s, `/\`):
		return fmt.Errorf("found %q, expected the name of a file in the same folder", jobconfig.Clip(s))
	case path.Ext(s) != ".wasm" || s == ".wasm" || strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("found %q, expected a file name that ends with .wasm", jobconfig.Clip(s))
	}
	return nil
}

// outcomes takes a list, or a text with commas.
func (j *job) outcomes(field string, into *[]string) {
	parse := func(s string) (err error) {
		*into, err = jobconfig.ParseRetryOn(s)
		return err
	}
	if n := j.value(field); n == nil || n.Kind != yaml.SequenceNode {
		j.parsed(field, parse)
		return
	}
	names := j.list(field, "") // it is one
	if n := j.value(field); n != nil {
		if err := parse(strings.Join(names, ",")); err != nil {
			j.problem(n, field, "%v", err)
		}
	}
}

// itemParameters takes "0=A,1=B" or a mapping of items to parameters.
func (j *job) itemParameters() {
	const field = "shardingItemParameters"
	n := j.value(field)
	if n == nil {
		return
	}
	total := j.c.ShardingTotalCount
	if total < 1 || j.bad["shardingTotalCount"] { // has a problem of its own
		total = math.MaxInt
	}
	if n.Kind != yaml.MappingNode {
		j.parsed(field, func(s string) error {
			j.c.ShardingItemParameters = s
			return jobconfig.CheckItemParameters(s, total)
		})
		return
	}
	parameters := map[int]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := j.target(n.Content[i]), j.target(n.Content[i+1])
		item, err := strconv.ParseInt(key.Value, 10, 32)
		switch {
		case key.Kind != yaml.ScalarNode || err != nil:
			j.problem(key, field, "found %s, expected the number of an item", yamlnode.Describe(key))
			continue
		case value.Kind != yaml.ScalarNode || yamlnode.IsNull(value) || value.Value == "" || strings.TrimSpace(value.Value) != value.Value || strings.ContainsAny(value.Value, ",="):
			j.problem(value, field, "found %s for item %d, expected a text that is not empty, without commas, equals signs and blanks around it", yamlnode.Describe(value), item)
			continue
		}
		entry := fmt.Sprintf("%d=%s", item, value.Value)
		if _, twice := parameters[int(item)]; twice {
			j.problem(key, field, "item %d has two parameters", item)
			continue
		}
		if err := jobconfig.CheckItemParameters(entry, total); err != nil {
			j.problemsOf(key, field, err)
			continue
		}
		parameters[int(item)] = value.Value
	}
	var entries []string
	for _, item := range slices.Sorted(maps.Keys(parameters)) {
		entries = append(entries, fmt.Sprintf("%d=%s", item, parameters[item]))
	}
	j.c.ShardingItemParameters = strings.Join(entries, ",")
}

// props takes the properties of the file and adds the guest's settings.
func (j *job) props() {
	props := map[string]string{}
	if n := j.value("props"); n != nil && n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			j.property(props, j.target(n.Content[i]), j.target(n.Content[i+1]))
		}
	} else if n != nil {
		j.problem(n, "props", "found %s, expected a mapping of names to texts", yamlnode.Describe(n))
	}
	if s, ok := props[jobconfig.PropStreamingProcess]; ok && j.nodes["streamingProcess"] == nil {
		j.guest.StreamingProcess = s == "true"
	}
	j.guest.Props(props)
	if len(props) > 0 {
		j.c.Props = props
	}
}

func (j *job) property(props map[string]string, key, value *yaml.Node) {
	name := key.Value
	field := "props." + jobconfig.Clip(name)
	switch {
	case key.Kind != yaml.ScalarNode || yamlnode.IsNull(key):
		j.problem(key, "props", "found %s, expected the name of a property", yamlnode.Describe(key))
		return
	case name == "<<" && yamlnode.IsPlain(key):
		j.problem(key, "props", "mappings cannot be merged with <<, expected the properties themselves")
		return
	case strings.HasPrefix(name, jobconfig.PropPrefix), j.guest.Type == jobconfig.TypeHTTP && j.known.props[name] != "":
		why := ""
		if !j.problems.Full() {
			why = ownProperty(name)
		}
		j.problem(key, field, "%s", why)
		return
	case value.Kind != yaml.ScalarNode || yamlnode.IsNull(value):
		j.problem(value, field, "found %s, expected a text", yamlnode.Describe(value))
		return
	}
	if _, twice := props[name]; twice {
		j.problem(key, field, "is given twice")
		return
	}
	props[name] = value.Value
	if name != jobconfig.PropStreamingProcess {
		return
	}
	on, ok := boolean(value.Value)
	switch {
	case !ok:
		j.problem(value, field, "found %s, expected true or false", yamlnode.Describe(value))
	case j.value("streamingProcess") != nil && on != j.guest.StreamingProcess:
		j.problem(value, field, "found %s, but streamingProcess says %v", yamlnode.Describe(value), j.guest.StreamingProcess)
	}
	props[name] = strconv.FormatBool(on)
}

// ownProperty says which field to use in place of a property of ours.
func ownProperty(name string) string {
	fields := propFields()
	if field, ok := fields[name]; ok {
		return "is written by this host, expected the field " + field
	}
	var known []string // what differs is what comes after the prefix
	for prop := range fields {
		known = append(known, strings.TrimPrefix(prop, jobconfig.PropPrefix))
	}
	slices.Sort(known)
	if near := nearest(strings.TrimPrefix(name, jobconfig.PropPrefix), known); near != "" {
		return "unknown property; did you mean the field " + fields[jobconfig.PropPrefix+near] + "?"
	}
	return "unknown property; names that begin with wasm. are this host's own"
}

// validate finds what the steps before did not look at.
func (j *job) validate() {
	fields := j.known.props
	for _, e := range jobconfig.FieldErrors(errors.Join(j.c.Validate(), j.ceilings.Check(j.c))) {
		field := e.Field
		if own, ok := fields[strings.TrimPrefix(field, "props.")]; ok {
			field = own
		}
		top, _, _ := strings.Cut(field, ".")
		absent := j.meant[field] && j.nodes[field] == nil
		if !j.bad[field] && !j.bad[top] && !absent {
			j.problem(cmp.Or(j.nodes[field], j.nodes[top], j.root), field, "%s", e.Problem)
		}
	}
	// The days of calendars are in files of their own: whoever has those checks them.
	for _, p := range Check(timetable.WithoutCalendars(j.c)) {
		if n := j.value(p.Field); n != nil {
			j.problem(n, p.Field, "%s", p.Problem)
		}
	}
	j.calendars()
}

func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	return []error{err}
}

// parsed reads a text and hands it on; every line of the error is a problem.
func (j *job) parsed(field string, parse func(string) error) { j.scalar(field, "a text", parse) }

func (j *job) scalar(field, expected string, parse func(string) error) {
	n := j.value(field)
	if n == nil {
		return
	}
	if n.Kind != yaml.ScalarNode {
		j.problem(n, field, "found %s, expected %s", yamlnode.Describe(n), expected)
		return
	}
	j.problemsOf(n, field, parse(n.Value))
}

// problemsOf notes each of the errors that one joins.
func (j *job) problemsOf(n *yaml.Node, field string, err error) {
	for _, err := range flatten(err) {
		if more := words.Rest(err); more > 0 {
			j.problems.Count(more)
			continue
		}
		j.problem(n, field, "%v", err)
	}
}

func (j *job) text(field string, into *string) {
	j.parsed(field, func(s string) error {
		*into = s
		return nil
	})
}

func (j *job) bool(field string, into *bool) {
	n := j.value(field)
	if n == nil {
		return
	}
	b, ok := boolean(n.Value)
	if n.Kind != yaml.ScalarNode || !ok {
		j.problem(n, field, "found %s, expected true or false", yamlnode.Describe(n))
		return
	}
	*into = b
}

// boolean reads the words of YAML 1.1 for true and false, as ElasticJob does.
func boolean(s string) (value, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	}
	return false, false
}

// decimal excludes numbers that YAML 1.1 reads as octal.
var decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

func (j *job) ranged(field string, lowest, highest int, into *int) {
	n := j.value(field)
	if n == nil {
		return
	}
	v, err := strconv.Atoi(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || (err != nil && !errors.Is(err, strconv.ErrRange)) || !decimal.MatchString(n.Value):
		j.problem(n, field, "found %s, expected a whole number", yamlnode.Describe(n))
	case err != nil || v < lowest || v > highest:
		j.problem(n, field, "found %s, expected a whole number from %d to %d", jobconfig.Clip(n.Value), lowest, highest)
	default:
		*into = v
	}
}

func (j *job) list(field, example string) []string {
	n := j.value(field)
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		j.problem(n, field, "found %s, expected a list of texts, such as %s", yamlnode.Describe(n), example)
		return nil
	}
	var texts []string
	for _, item := range n.Content {
		item = j.target(item)
		if item.Kind != yaml.ScalarNode || yamlnode.IsNull(item) {
			j.problem(item, field, "found %s, expected a text", yamlnode.Describe(item))
			continue
		}
		texts = append(texts, item.Value)
	}
	return texts
}
