package api

import (
	"path"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wasmjob/wasmjob/host/control/admin"
)

// schemas are those of the description.
func schemas() huma.Registry {
	r := huma.NewMapRegistry("#/components/schemas/", schemaName)
	r.RegisterTypeAlias(reflect.TypeFor[admin.Bytes](), reflect.TypeFor[bytesSchema]())
	return r
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// bytesSchema describes [admin.Bytes].
type bytesSchema struct{}

// Schema implements [huma.SchemaProvider].
func (bytesSchema) Schema(huma.Registry) *huma.Schema {
	base64 := &huma.Schema{Type: huma.TypeString, ContentEncoding: "base64"}
	object := &huma.Schema{
		Type: huma.TypeObject, Properties: map[string]*huma.Schema{"base64": base64}, Required: []string{"base64"}, AdditionalProperties: false,
		Description: "Bytes that are not UTF-8, in base64.",
	}
	for _, s := range []*huma.Schema{base64, object} {
		s.PrecomputeMessages()
	}
	s := &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, object}}
	s.OneOf[0].PrecomputeMessages()
	s.PrecomputeMessages()
	return s
}

// schemaName names a type in the description: history.Page[cluster.Job] is PageJob. Types of a single host have
// a prefix, since the cluster has types of the same names.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch path.Base(t.PkgPath()) {
	case "engine":
		return "Host" + name
	case "admin", "report", "server": // one package once; programs are generated from these names
		return "Registry" + name
	}
	return name
}
