// Package grants says what jobs may do outside their sandbox: it reads and checks the operator's files of
// grants, and matches them with jobs. It opens no other files.
package grants

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/wasmjob/wasmjob/abi"
)

// Grant is what one job may do: all entries that match it, merged. The zero value grants nothing. It is
// immutable.
type Grant struct {
	HTTP []HTTP
	Net  []Net
	Dirs []Dir
	// KV says that the job may keep key/value state.
	KV bool
	// Secrets by name.
	Secrets map[string]Secret
	// Env are the environment variables of the guest, Config is its configuration,
	// nil if the grants have none.
	Env    map[string]string
	Config []byte
	Quotas Quotas

	// job is the job, and sources the files of grants; for messages, like withheld: the entries whose
	// conditions the job's module does not meet.
	job      string
	sources  []string
	withheld []withheld
}

// withheld is an entry that applies only to other modules of the same job.
type withheld struct {
	place, reason string
	grant         *Grant
}

// HTTP is an address to which a job may send requests.
type HTTP struct {
	// Scheme is http or https. Host is exact and in lower case, or begins with "*.", which stands for one or
	// more labels. Port is never 0. Path is a prefix that begins with a slash and matches whole segments.
	Scheme, Host string
	Port         uint16
	Path         string
	// Methods are in upper case; empty: GET and HEAD.
	Methods []string
	// Private allows addresses of the host that are not public: loopback, private, link-local and so on.
	Private bool
	// Secrets are the names that may be used in headers of its requests.
	Secrets []string
	// CA, Cert and Key are the paths of PEM files: the accepted authorities for the server's certificate,
	// instead of the system's, and the client's own certificate.
	CA, Cert, Key string

	place string // FILE:LINE
}

// Net is an address to which a job may connect.
type Net struct {
	// Scheme is tcp, or tls, which the host terminates for the guest.
	Scheme, Host  string // Host as in HTTP, without "*."
	Port          uint16
	Private       bool
	CA, Cert, Key string

	place string // FILE:LINE
}

// Dir is a directory of the host that a guest sees.
type Dir struct {
	Host, Guest string // absolute, clean paths
	Write       bool
	// Bytes and Files bound the total content of a writable directory, over all its writers.
	Bytes, Files int64

	place string // FILE:LINE; empty for --mount
}

// Secret says where a secret comes from: either File or Env is set. It is read again for each fire.
type Secret struct {
	File, Env string
	// Readable lets the guest read it, besides using it in headers.
	Readable bool
}

// Quotas bound what one invocation may do. 0 stands for the default of [Quotas.Or].
type Quotas struct {
	Requests    int           // HTTP requests
	InFlight    int           // of them at once
	Connections int           // of job_v1_net
	Received    int64         // bytes, after decompression
	Sent        int64         // bytes
	Connect     time.Duration // to have a connection, with TLS
	FirstByte   time.Duration // from the end of a request to the head of its response
}

// Or returns the quotas with the defaults in the place of zeros.
func (q Quotas) Or() Quotas {
	return Quotas{
		Requests:    cmp.Or(q.Requests, 100),
		InFlight:    cmp.Or(q.InFlight, 16),
		Connections: cmp.Or(q.Connections, 16),
		Received:    cmp.Or(q.Received, 64<<20),
		Sent:        cmp.Or(q.Sent, 64<<20),
		Connect:     cmp.Or(q.Connect, 5*time.Second),
		FirstByte:   cmp.Or(q.FirstByte, 30*time.Second),
	}
}

// Modules are the import modules that the grant opens to a job's module.
func (g *Grant) Modules() []string {
	var list []string
	add := func(granted bool, module string) {
		if granted {
			list = append(list, module)
		}
	}
	add(len(g.HTTP) > 0, abi.ModuleHTTP)
	add(len(g.Net) > 0, abi.ModuleNet)
	add(g.KV, abi.ModuleKV)
	add(len(g.Env)+len(g.Secrets) > 0, abi.ModuleEnv)
	add(len(list) > 0, abi.ModuleIO)
	return list
}

// Nothing reports whether the grant allows nothing that a host has to carry out.
func (g *Grant) Nothing() bool {
	return len(g.Modules()) == 0 && !slices.ContainsFunc(g.Dirs, func(d Dir) bool { return d.Write })
}

// Key returns a text that two grants share only if they allow the same.
func (g *Grant) Key() string {
	b, _ := json.Marshal(g) // all of it is text and numbers, so there is no error
	return string(b)
}
