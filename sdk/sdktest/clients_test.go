//go:build clients && !wasip1

package sdktest

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
)

// TestClients runs a guest with client libraries for PostgreSQL and Redis, as they are, against
// real servers. It is a module of its own, so that the product does not require them. The
// test in test/clients starts the servers and runs this one.
func TestClients(t *testing.T) {
	t.Parallel()
	h := &Host{Context: Context{JobParameter: os.Getenv("CLIENTS_URL")}}
	for target, server := range map[string]string{"tcp://db.example.com:5432": os.Getenv("CLIENTS_POSTGRES"), "tcp://cache.example.com:6379": os.Getenv("CLIENTS_REDIS")} {
		h.AllowNet(target, func() (net.Conn, error) { return net.Dial("tcp", server) })
	}
	p := program{buildClients(t, ".", "-buildmode=c-shared", "-ldflags=-s -w"), wazero.NewCompilationCache()}
	t.Logf("%d bytes", len(p.module))
	t.Cleanup(func() { p.cache.Close(t.Context()) })
	g := p.load(t, &h).instance(t, t.Output())
	h.begin()
	r := h.item(export(t, g, abi.ExportExecute))
	if r.Outcome != abi.OutcomeOK {
		t.Errorf("%s %s", r.Outcome, r.Message)
	}
	var got []string
	for _, line := range h.Logs() {
		got = append(got, line.String())
	}
	want := "INFO pgx city=Rome\nINFO pgx deadline=true closed=true\nINFO database/sql city=Rome\nINFO database/sql city=Oslo\n" +
		"INFO redis city=Rome population=2800000 visits=100 deadline=true"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}
