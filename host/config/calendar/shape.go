package calendar

import "github.com/wasmjob/wasmjob/internal/schema"

// SchemaName is the name of the schema of a calendar; docs/calendar.schema.json is it.
const SchemaName = "calendar"

// Schema is the JSON Schema of a file NAME.calendar.yaml, for editors: of what the reader reads.
func Schema() []byte {
	return schema.Document(SchemaName, "wasmjob: the days of a calendar", fileFields)
}

var fileFields = schema.Object{
	{Name: "days", Help: "Days, such as 2026-12-24", Is: schema.Texts(schema.Text())},
	{Name: "ranges", Help: "Days from one to another, both included", Is: schema.List(rangeFields.Shape())},
	{Name: "weekdays", Help: "Days of the week, such as SAT", Is: schema.Texts(schema.Text())},
	{Name: "yearly", Help: "Days of each year, such as 12-25", Is: schema.Texts(schema.Text())},
	{Name: "description", Help: "What the calendar is, for people", Is: schema.Text()},
}

var rangeFields = schema.Object{
	{Name: "from", Help: "The first day", Required: true, Is: schema.Text()},
	{Name: "to", Help: "The last day", Required: true, Is: schema.Text()},
}
