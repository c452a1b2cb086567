package definition

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/schema"
)

// DefaultsFile is the name of a folder's file of defaults.
const DefaultsFile = "defaults.yaml"

// Shared is a file of defaults: jobs whose definitions are in its folder or below inherit the fields that they
// leave out. It is immutable.
type Shared struct {
	// File is its name, as messages and [Definition.Inherited] have it.
	File  string
	nodes map[string]*yaml.Node // by field, as those of a job
	order []string              // the fields, as they are written
}

// ParseShared reads a file of defaults: one document with the fields of a job, except those that each job must
// set itself. It checks each value as far as possible without a job. The error is an [*Error].
func ParseShared(file string, data []byte) (*Shared, error) {
	p := &parser{known: knownSettings(), base: strings.TrimSuffix(path.Base(file), path.Ext(file))}
	documents := p.documents(data)
	shared := &Shared{File: file}
	for n, root := range documents {
		if n > 0 {
			p.problem(root, "", "found another document, expected the defaults in one")
			break
		}
		j := newJob(p, root, true)
		j.shared = true
		j.read()
		for _, field := range j.standIns {
			delete(j.nodes, field)
		}
		shared.nodes = j.nodes
	}
	if err := p.err(file); err != nil {
		return nil, err
	}
	shared.order = slices.SortedFunc(maps.Keys(shared.nodes), func(a, b string) int {
		return shared.nodes[a].Line - shared.nodes[b].Line
	})
	return shared, nil
}

// SharedSchemaName is the name of the schema of a file of defaults; docs/defaults.schema.json is it.
const SharedSchemaName = "defaults"

// SharedSchema is the JSON Schema of a file of defaults, for editors: of what [ParseShared] reads.
func SharedSchema() []byte {
	fields := slices.DeleteFunc(jobconfig.Fields(), func(f schema.Field) bool { return own(f.Name) != "" })
	return schema.Document(SharedSchemaName, "wasmjob: what the definitions of a folder leave out", fields)
}

// own returns why a field cannot have a default.
func own(field string) string {
	switch field {
	case "jobName", "module", "jobClass", "at":
		return "is each job's own: it has no default"
	}
	return ""
}

// sharing completes a document of defaults to a job, so that its values can be checked.
func (j *job) sharing() {
	for _, field := range slices.Sorted(maps.Keys(j.nodes)) {
		if why := own(field); why != "" {
			j.problem(j.nodes[field], field, "%s", why)
		}
	}
	stand := func(field, value string) {
		if j.nodes[field] == nil {
			j.nodes[field] = &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: j.root.Line, Column: j.root.Column}
			j.standIns = append(j.standIns, field)
		}
	}
	stand("shardingTotalCount", strconv.Itoa(jobconfig.MaxShardingTotalCount))
	if j.nodes["schedules"] == nil {
		stand("cron", "0 0 0 1 1 ?")
	}
	if j.nodes["http"] != nil {
		stand("type", string(jobconfig.TypeHTTP))
	}
	if n := j.nodes["type"]; n != nil && n.Value == string(jobconfig.TypeHTTP) {
		stand("http.url", "http://localhost/")
		j.meant["http"] = true
	}
}

// inheritance says where an inherited value comes from.
type inheritance struct {
	file string
	line int
}

// inherit fills the fields that a job leaves out from its folders' defaults; list begins with the nearest
// folder. It skips a default that contradicts the job's own fields, or that does not apply to such a job.
func (j *job) inherit(list []*Shared) {
	if len(list) == 0 {
		return
	}
	stated := maps.Clone(j.nodes)
	states := func(fields ...string) bool {
		return slices.ContainsFunc(fields, func(f string) bool { return stated[f] != nil || j.meant[f] || j.bad[f] })
	}
	for _, shared := range list {
		for _, field := range shared.order {
			mapping, _, below := strings.Cut(field, ".")
			n := stated[mapping]
			switch {
			case states(field) || states(contradicts(field)...), j.inherited[field] != (inheritance{}): // a nearer folder has it
			case below && n != nil && (j.bad[mapping] || n.Kind != yaml.MappingNode):
			default:
				j.take(shared, field)
			}
		}
	}
	for _, field := range []string{"props", "labels"} {
		if n := j.nodes[field]; n != nil && n.Kind == yaml.MappingNode {
			j.complete(field, n, list)
		}
	}
	if j.nodes["cron"] == nil && j.nodes["schedules"] == nil && j.nodes["at"] == nil {
		for _, s := range jobconfig.InstantSettings() {
			j.leave(s.Name)
		}
	}
	of := ""
	if n := j.nodes["type"]; n != nil {
		of = n.Value
	}
	defer j.weigh()
	if of != string(jobconfig.TypeHTTP) {
		j.leave("http")
	}
	for _, s := range jobconfig.ByType() {
		if of != "" && of != string(s.Only) {
			j.leave(s.Name)
		}
	}
}

// weigh counts the bytes that a job inherits. If the jobs of a file inherit more than MaxInherited together,
// the file is refused.
func (j *job) weigh() {
	for field := range j.inherited {
		j.out.InheritedSize += textSize(j.nodes[field])
	}
	before := j.parser.inherited
	if j.parser.inherited += j.out.InheritedSize; j.parser.inherited <= MaxInherited {
		return
	}
	if before <= MaxInherited { // said once
		j.problem(j.root, "", "the jobs of this file have more than %d bytes from files of defaults, expected less: spread them over several files, or shorten the defaults", MaxInherited)
	}
	j.parser.inherited = MaxInherited + 1
	for field, n := range j.nodes { // the file is refused: do not check the large values for each of its jobs
		if textSize(n) > 1024 {
			j.leave(field)
			delete(j.nodes, field)
		}
	}
}

// textSize is how many bytes the texts of a node have.
func textSize(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	size := len(n.Value)
	for _, below := range n.Content {
		size += textSize(below)
	}
	return size
}

// take takes a field from a file of defaults.
func (j *job) take(from *Shared, field string) {
	n := *from.nodes[field]
	j.inherited[field] = inheritance{from.File, n.Line}
	n.Line, n.Column = j.root.Line, j.root.Column
	j.nodes[field] = &n
}

// leave drops the inherited value of a field or mapping.
func (j *job) leave(field string) {
	maps.DeleteFunc(j.inherited, func(name string, _ inheritance) bool {
		if name != field && !strings.HasPrefix(name, field+".") {
			return false
		}
		delete(j.nodes, name)
		return true
	})
}

// complete adds the entries of a mapping that a job, or its nearest folder, leaves out. Those of a nearer folder win.
func (j *job) complete(field string, own *yaml.Node, list []*Shared) {
	all := *own
	all.Content = slices.Clone(own.Content)
	has := func(name string) bool {
		for i := 0; i+1 < len(all.Content); i += 2 {
			if j.target(all.Content[i]).Value == name {
				return true
			}
		}
		return false
	}
	for _, shared := range list {
		n := shared.nodes[field]
		for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
			if !has(n.Content[i].Value) {
				j.out.InheritedSize += textSize(n.Content[i]) + textSize(n.Content[i+1])
				all.Content = append(all.Content, n.Content[i], n.Content[i+1])
			}
		}
	}
	j.nodes[field] = &all
}

// origins are the files of defaults, by setting.
func (j *job) origins() map[string]string {
	if len(j.inherited) == 0 {
		return nil
	}
	from := make(map[string]string, len(j.inherited))
	for field, at := range j.inherited {
		from[field] = at.file
	}
	return from
}

// contradicts returns the fields that conflict with a default of a field.
func contradicts(field string) []string {
	switch field {
	case "cron":
		return []string{"schedules", "at"}
	case "schedules":
		return []string{"cron", "at", "timeZone"}
	case "misfire":
		return []string{"overlap", "catchUp"}
	case "overlap", "catchUp":
		return []string{"misfire"}
	case "failover":
		return []string{"monitorExecution"}
	case "monitorExecution":
		return []string{"failover"}
	case "shardingItemParameters":
		return []string{"shardingTotalCount"}
	}
	return nil
}
