package grants

import (
	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/internal/schema"
)

// SchemaName is the name of the schema of a file of grants; docs/grants.schema.json is it.
const SchemaName = "grants"

// The most that an entry may give.
const (
	mostRequests = 1_000_000
	mostTraffic  = 1 << 40 // bytes
	mostDirBytes = 1 << 50
	mostDirFiles = 1 << 40
)

// Schema is the JSON Schema of a file of grants, for editors: of what the reader reads.
func Schema() []byte {
	return schema.Document(SchemaName, "wasmjob: what jobs may do outside of their sandbox", fileFields)
}

var fileFields = schema.Object{
	{Name: "grants", Help: "Entries: what the jobs of a pattern may do; \"grants: []\" grants nothing", Is: schema.List(entryFields.Shape())},
	{Name: "keys", Help: "Public keys by name, as minisign writes them", Is: schema.Map(textOrFile())},
	{Name: "trust", Help: "Whose keys must have signed the modules of which jobs", Is: schema.List(trustFields.Shape())},
}

// textOrFile is a text, or the file with it.
func textOrFile() schema.Shape { return schema.Any(schema.Text(), textFileFields.Shape()) }

var textFileFields = schema.Object{{Name: "file", Help: "File with the text", Required: true, Is: schema.Text()}}

var trustFields = schema.Object{
	{Name: "jobs", Help: "Names of jobs, or patterns such as pay-*", Required: true, Is: schema.Texts(schema.Text())},
	{Name: "keys", Help: "Names of keys; one of them must have signed the module", Required: true, Is: schema.Texts(schema.Text())},
	{Name: "inProcess", Help: "Whether the jobs may run in the host's own process", Is: schema.Boolean()},
}

var entryFields = schema.Object{
	{Name: "jobs", Help: "Names of jobs, or patterns such as sync-*", Required: true, Is: schema.Texts(schema.Text())},
	{Name: "digests", Help: "SHA-256 of the modules that the entry is for; without any it is for all", Is: schema.Texts(schema.Text())},
	{Name: "signers", Help: "Names of keys; the entry is for modules that one of them has signed", Is: schema.Texts(schema.Text())},
	{Name: "http", Help: "URLs to which requests may go; a path stands for all that begins with it", Is: schema.List(schema.Any(schema.Text(), httpFields.Shape()))},
	{Name: "net", Help: "Addresses to which connections may go: tcp://HOST:PORT, tls://HOST:PORT", Is: schema.List(schema.Any(schema.Text(), netFields.Shape()))},
	{Name: "dirs", Help: "Directories of the host that guests see", Is: schema.List(dirFields.Shape())},
	{Name: "kv", Help: "Whether items may keep keys and values", Is: schema.Boolean()},
	{Name: "secrets", Help: "Secrets by name, each in a file, a directory or a variable of the host", Is: schema.Map(secretFields.Shape())},
	{Name: "env", Help: "Variables of the guest's environment", Is: schema.Map(schema.Text())},
	{Name: "config", Help: "The text that the guest reads as its configuration", Is: textOrFile()},
	{Name: "quotas", Help: "What one run of an item may do", Is: quotaFields.Shape()},
}

var secretFields = schema.Object{
	{Name: "file", Help: "File with the secret", Is: schema.Text()},
	{Name: "dir", Help: "Directory with a file of the secret's name", Is: schema.Text()},
	{Name: "env", Help: "Variable of the host with the secret", Is: schema.Text()},
	{Name: "readable", Help: "Whether the guest may read it; else the host puts it into requests", Is: schema.Boolean()},
}

var httpFields = append(schema.Object{
	{Name: "url", Help: "Scheme, host, port and the begin of the path", Required: true, Is: schema.Text()},
	{Name: "methods", Help: "Methods, such as GET; without any all", Is: schema.Texts(schema.Text())},
	{Name: "private", Help: "Whether the host may have an address that is not public", Is: schema.Boolean()},
	{Name: "secrets", Help: "Names of secrets that may go there", Is: schema.Texts(schema.Text())},
}, tlsFields...)

var netFields = append(schema.Object{
	{Name: "to", Help: "tcp://HOST:PORT or tls://HOST:PORT", Required: true, Is: schema.Text()},
	{Name: "private", Help: "Whether the host may have an address that is not public", Is: schema.Boolean()},
}, tlsFields...)

var tlsFields = schema.Object{
	{Name: "ca", Help: "File with the authorities of the server's certificate, PEM", Is: schema.Text()},
	{Name: "cert", Help: "File with the host's certificate, PEM", Is: schema.Text()},
	{Name: "key", Help: "File with the key of that certificate, PEM", Is: schema.Text()},
}

var dirFields = schema.Object{
	{Name: "host", Help: "Directory of the host", Required: true, Is: schema.Text()},
	{Name: "guest", Help: "Absolute path at which guests see it", Required: true, Is: schema.Text()},
	{Name: "write", Help: "Whether guests may write there", Is: schema.Boolean()},
	{Name: "quota", Help: "Most that may be in it, in bytes, such as 100MiB", Is: schema.Size(mostDirBytes)},
	{Name: "files", Help: "Most files that may be in it", Is: schema.Integer(1, mostDirFiles)},
}

var quotaFields = schema.Object{
	{Name: "requests", Help: "Requests of a run", Is: schema.Integer(1, mostRequests)},
	{Name: "inFlight", Help: "Requests of a run at once", Is: schema.Integer(1, abi.MaxHandles)},
	{Name: "connections", Help: "Connections of a run at once", Is: schema.Integer(1, abi.MaxHandles)},
	{Name: "received", Help: "Bytes that a run receives, such as 1MiB", Is: schema.Size(mostTraffic)},
	{Name: "sent", Help: "Bytes that a run sends, such as 1MiB", Is: schema.Size(mostTraffic)},
	{Name: "connect", Help: "How long to connect may take, such as 5s", Is: schema.Duration()},
	{Name: "firstByte", Help: "How long the first byte of an answer may take, such as 30s", Is: schema.Duration()},
}
