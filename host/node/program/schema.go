package program

import (
	"maps"
	"slices"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/auth/users"
	"github.com/wasmjob/wasmjob/host/config/calendar"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/definition"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/internal/schema"
)

// hostSchema is the name of the schema of a file of settings; docs/host.schema.json is it.
const hostSchema = "host"

// schemas are the JSON Schemas of all files that people write, by kind.
func schemas() map[string][]byte {
	return map[string][]byte{
		jobconfig.SchemaName: jobconfig.Schema(), grants.SchemaName: grants.Schema(), alert.SchemaName: alert.Schema(),
		users.SchemaName: users.Schema(), definition.SharedSchemaName: definition.SharedSchema(), hostSchema: schemaOfSettings(), calendar.SchemaName: calendar.Schema(),
	}
}

func schemaKinds() []string { return slices.Sorted(maps.Keys(schemas())) }

// schemaOfSettings is the JSON Schema of the file that --config names, for editors: of what the reader reads.
func schemaOfSettings() []byte {
	return schema.Document(hostSchema, "wasmjob: the settings of a host", fileFields(settings(defaults{})))
}

// fileFields are the fields of the file. A setting that has no value there has its default.
func fileFields(list []setting) schema.Object {
	nothing := schema.Shape{"type": "null"}
	var object schema.Object
	for _, s := range list {
		is := s.is
		if is == nil {
			is = schema.Text()
		}
		object = append(object, schema.Field{Name: s.key, Help: sentence(s), Is: schema.Any(is, nothing)})
	}
	return append(object,
		schema.Field{Name: mountsKey, Help: "directories that the guests of a job may read, by the job's name", Is: schema.Any(schema.Map(schema.List(mountFields().Shape())), nothing)},
		schema.Field{Name: ceilingsKey, Help: "what jobs may have at most; of the entries that match a job, the first that sets a ceiling counts", Is: schema.Any(schema.List(ceilingFields().Shape()), nothing)})
}

// sentence is the help of a setting, with its default.
func sentence(s setting) string {
	if s.standard == "" {
		return s.help
	}
	return s.help + ". Default: " + s.standard
}

func mountFields() schema.Object {
	return schema.Object{
		{Name: mountHost, Help: "Directory of the host", Required: true, Is: schema.Text()},
		{Name: mountGuest, Help: "Absolute path at which guests see it", Required: true, Is: schema.Text()},
	}
}

func ceilingFields() schema.Object {
	object := schema.Object{{Name: ceilingJobs, Help: "A job's name, or a pattern such as team-a-*", Required: true, Is: schema.Text()}}
	for _, n := range ceiling.Names() {
		object = append(object, schema.Field{Name: string(n), Help: "A ceiling, or off", Is: schema.Text()})
	}
	return object
}
