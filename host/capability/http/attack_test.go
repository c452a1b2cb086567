package http

import (
	"fmt"
	"net"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/grants"
)

func TestGarbage(t *testing.T) {
	server := listen(t, func(c net.Conn) { fmt.Fprint(c, "220 mail.example.com ESMTP\r\n") })
	g := begin(t, Options{}, &grants.Grant{HTTP: []grants.HTTP{granted(t, server)}})
	h := g.Open("GET", server)
	g.Finish(h)
	want(t, g, g.Status(h), abi.ErrUnavailable, "malformed HTTP")
	want(t, g, g.Open("GET", server+"1"), abi.ErrInvalid, "port")
}
