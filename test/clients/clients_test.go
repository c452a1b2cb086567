// Package clients starts servers for a test of the SDK, whose module requires none of
// what starts them.
package clients

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/test/pgserver"
	"github.com/wasmjob/wasmjob/test/redisserver"
)

// TestClients has sdk/sdktest run a guest with client libraries for PostgreSQL and Redis.
func TestClients(t *testing.T) {
	t.Parallel()
	postgres, redis := pgserver.ForTest(t), redisserver.ForTest(t)
	if _, err := postgres.Query(t.Context(), "create table orders (id int, city text); insert into orders values (1, 'Rome'), (2, 'Oslo')"); err != nil {
		t.Fatal(err)
	}
	test := exec.CommandContext(t.Context(), "go", "test", "-count", "1", "-v", "-tags", "clients", "-run", "^TestClients$", "github.com/wasmjob/wasmjob/sdk/sdktest")
	test.Env = append(os.Environ(),
		fmt.Sprintf("CLIENTS_URL=postgres://%s:%s@db.example.com:5432/%s?sslmode=disable", pgserver.User, postgres.Password, pgserver.Database),
		fmt.Sprint("CLIENTS_POSTGRES=127.0.0.1:", postgres.Port), "CLIENTS_REDIS="+redis.Address())
	out, err := test.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestClients") {
		t.Errorf("%v\n%s", err, out)
	}
}
