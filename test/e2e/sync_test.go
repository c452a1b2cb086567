package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/event"
	"github.com/wasmjob/wasmjob/test/demo/server"
	"github.com/wasmjob/wasmjob/test/pgserver"
)

const (
	ordersOfACity = 1500
	cities        = 3
)

// held is an API of orders of which some requests are not answered before they are
// released: the item that has asked is in the middle of its work.
type held struct {
	server.Orders
	requests atomic.Int64
	// at are the numbers of these requests.
	at       map[int64]bool
	arrived  chan struct{} // gets one of each
	released chan struct{}
}

func (a *held) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if a.at[a.requests.Add(1)] {
		a.arrived <- struct{}{}
		select {
		case <-a.released:
		case <-r.Context().Done():
		}
	}
	a.Orders.ServeHTTP(rw, r)
}

// TestSyncIsExact kills the host again and again while sync copies orders into a real
// PostgreSQL: every order is there once, and the sums are right.
func TestSyncIsExact(t *testing.T) {
	t.Parallel()
	db := pgserver.ForTest(t)
	if _, err := db.Query(t.Context(), string(read(t, "../../plugins/examples/sync/schema.sql"))); err != nil {
		t.Fatal(err)
	}
	api := &held{Orders: server.Orders{Count: func() int64 { return ordersOfACity }},
		at: map[int64]bool{5: true, 20: true, 33: true}, arrived: make(chan struct{}), released: make(chan struct{})}
	s := httptest.NewServer(api)
	t.Cleanup(s.Close)

	p, _, _ := outside(t)
	p.put("out/db-password", []byte(db.Password+"\n"))
	here := strings.NewReplacer(webhook, s.URL, "127.0.0.1:9785", fmt.Sprintf("127.0.0.1:%d", db.Port))
	p.put("conf/grants.yaml", []byte(here.Replace(string(read(t, "../../plugins/grants.yaml")))))
	p.drop("sync.wasm", read(t, example(t, "sync")))
	definition := string(read(t, "../../plugins/examples/sync.yaml")) + "maxHostDeaths: 0\n" // none is held back
	p.drop("sync.yaml", []byte(here.Replace(definition)))
	flags := []string{"--data", p.path("data"), "--grants", p.path("conf", "grants.yaml")}

	h := p.start(flags...)
	h.of("sync", 0, owned())
	p.must("job", "run", "sync")
	for n := range len(api.at) {
		select {
		case <-api.arrived:
		case <-h.ended:
			t.Fatal("the host has ended")
		case <-time.After(patience):
			t.Fatalf("after %d kills nobody asks for orders", n)
		}
		h.kill()
		if before, err := db.Query(t.Context(), "select count(*) from orders"); err != nil || before == fmt.Sprint(cities*ordersOfACity) {
			t.Errorf("kill %d: %s orders are there already, %v", n, before, err)
		}
		h = p.start(flags...)
	}
	close(api.released)
	for at := range cities {
		h.of("sync", 0, kind(event.ItemCompleted), item(at), outcome(abi.OutcomeOK))
	}
	h.stop()

	var want []string
	for _, city := range []string{"Beijing", "Guangzhou", "Shanghai"} {
		cents := int64(0)
		for id := int64(1); id <= ordersOfACity; id++ {
			cents += server.OrderOf(city, id).Cents
		}
		want = append(want, fmt.Sprintf("%s|%d|%d|%d|%d|%d", city, ordersOfACity, ordersOfACity, cents, ordersOfACity, cents))
	}
	got, err := db.Query(t.Context(), `
		select o.city, count(*), count(distinct o.id), sum(o.cents), max(r.orders), max(r.cents)
		from orders o join revenue r on r.city = o.city group by o.city order by o.city`)
	if err != nil || got != strings.Join(want, "\n") {
		t.Errorf("the database has\n%s\nwant\n%s\n%v", got, strings.Join(want, "\n"), err)
	}
	position, err := db.Query(t.Context(), "select item, position from sync_progress order by item")
	if want := fmt.Sprintf("0|%[1]d\n1|%[1]d\n2|%[1]d", ordersOfACity); err != nil || position != want {
		t.Errorf("the positions are\n%s\n%v", position, err)
	}
}
