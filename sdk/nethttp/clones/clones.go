// Package clones lets transports that a program, or a library of its, makes by Clone of
// http.DefaultTransport reach the network. It is imported for that effect alone:
//
//	import _ "github.com/wasmjob/wasmjob/sdk/nethttp/clones"
//
// Such a transport speaks HTTP itself, over connections of package sdk/net, so the job
// needs a grant of "net" for each address besides (the host speaks TLS). It has package
// sdk/nethttp with it.
package clones

import (
	"net/http"

	sdknet "github.com/wasmjob/wasmjob/sdk/net"
	_ "github.com/wasmjob/wasmjob/sdk/nethttp" // what is set here comes after what is set there
)

func init() {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t.DialContext, t.DialTLSContext = sdknet.DialContext, sdknet.DialTLSContext
	}
}
