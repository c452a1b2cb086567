package net

import (
	"io"
	"net"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
)

// After a quota has ended a connection nothing more is sent, however little.
func TestNothingIsSentAfterTheQuota(t *testing.T) {
	for range 20 {
		came := make(chan string)
		n := listen(t, func(c net.Conn) {
			all, _ := io.ReadAll(c)
			came <- string(all)
		})
		g := begin(t, &grants.Grant{Net: []grants.Net{n}, Quotas: grants.Quotas{Sent: 1000}})
		h := g.Dial(targetOf(n))
		if code := g.Connected(h); code != 0 {
			t.Fatal(g.Error(h))
		}
		g.Write(h, []byte("yes"))
		want(t, g, g.Write(h, make([]byte, 1000)), abi.ErrQuota, "may send 1000 bytes")
		if code := g.Write(h, []byte("no")); abi.Code(code) != abi.ErrQuota {
			t.Errorf("%d after the quota", code)
		}
		g.Run.Close()
		if s := <-came; s != "yes" && s != "" {
			t.Errorf("the server got %q", s)
		}
	}
}
