//go:build !wasip1

package sdktest

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/test/pgserver"
	"github.com/wasmjob/wasmjob/test/redisserver"
)

// TestClients runs a guest with client libraries for PostgreSQL and Redis, as they are, against
// real servers. It is a module of its own, so that the product does not require them.
func TestClients(t *testing.T) {
	t.Parallel()
	postgres, redis := pgserver.ForTest(t), redisserver.ForTest(t)
	if _, err := postgres.Query(t.Context(), "create table orders (id int, city text); insert into orders values (1, 'Rome'), (2, 'Oslo')"); err != nil {
		t.Fatal(err)
	}
	h := &Host{Context: Context{JobParameter: fmt.Sprintf("postgres://%s:%s@db.example.com:5432/%s?sslmode=disable", pgserver.User, postgres.Password, pgserver.Database)}}
	for target, server := range map[string]string{"tcp://db.example.com:5432": fmt.Sprint("127.0.0.1:", postgres.Port), "tcp://cache.example.com:6379": redis.Address()} {
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
