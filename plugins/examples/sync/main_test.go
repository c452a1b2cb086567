package main

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/sdktest"
	"github.com/wasmjob/wasmjob/test/demo/server"
	"github.com/wasmjob/wasmjob/test/pgserver"

	_ "embed"
)

//go:embed schema.sql
var schema string

const api = "https://shop.example.com/orders"

// world is a database and an API.
type world struct {
	*testing.T
	db    *pgserver.Server
	count int64 // orders of each city
	// before is called before a request is answered.
	before func(r *http.Request)
}

// ServeHTTP implements http.Handler.
func (w *world) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if w.before != nil {
		w.before(r)
	}
	orders := server.Orders{Count: func() int64 { return w.count }}
	orders.ServeHTTP(rw, r)
}

// host is a host of an item that copies a city, with a fence.
func (w *world) host(city string, fence int64) *sdktest.Host {
	w.Setenv("DATABASE_URL", w.db.URL()) // what os.Getenv finds in a native test
	h := &sdktest.Host{Secrets: map[string]string{"DB_PASSWORD": w.db.Password}}
	h.Context.JobName, h.Context.JobParameter, h.Context.ShardingParameter, h.Context.Fence = city, api, city, fence
	h.AllowHTTP(api, w)
	target := fmt.Sprintf("127.0.0.1:%d", w.db.Port)
	h.AllowNet("tcp://"+target, func() (net.Conn, error) { return net.Dial("tcp", target) })
	return h
}

func (w *world) run(h *sdktest.Host, want abi.Outcome, text string) {
	w.Helper()
	if r := h.Run(run); r.Outcome != want || !strings.Contains(r.Message, text) {
		w.Errorf("%s %q, want %s %q", r.Outcome, r.Message, want, text)
	}
}

func (w *world) query(sql string) string {
	w.Helper()
	rows, err := w.db.Query(w.Context(), sql)
	if err != nil {
		w.Fatal(err)
	}
	return rows
}

// has says that the database has the first orders of a city, each once.
func (w *world) has(city string, orders int64) {
	w.Helper()
	cents := int64(0)
	for id := int64(1); id <= orders; id++ {
		cents += server.OrderOf(city, id).Cents
	}
	want := fmt.Sprintf("%[1]d|%[1]d|%[2]d\n%[1]d|%[2]d\n%[1]d", orders, cents, orders)
	got := w.query(fmt.Sprintf(`
		select count(*), coalesce(max(id), 0), coalesce(sum(cents), 0) from orders where city = '%[1]s';
		select orders, cents from revenue where city = '%[1]s';
		select position from sync_progress where job = '%[1]s'`, city))
	if got != want {
		w.Errorf("%s has\n%s\nwant\n%s", city, got, want)
	}
}

// TestSync copies orders into a real PostgreSQL.
func TestSync(t *testing.T) {
	db := pgserver.ForTest(t)
	if _, err := db.Query(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(w *world){
		"new orders":            newOrders,
		"offset is behind":      offsetIsBehind,
		"older fence":           olderFence,
		"fence between pages":   fenceBetweenPages,
		"commit is refused":     commitIsRefused,
		"what cannot be copied": notCopied,
	} {
		t.Run(name, func(t *testing.T) { test(&world{T: t, db: db, count: 250}) })
	}
}

func newOrders(w *world) {
	h := w.host("Rome", 1)
	w.run(h, abi.OutcomeOK, "")
	w.has("Rome", 250)
	w.count = 330
	w.run(h, abi.OutcomeOK, "")
	w.has("Rome", 330)
	if string(h.Offset) != "330" {
		w.Errorf("the offset is %q", h.Offset)
	}
}

// offsetIsBehind: a host died between the commit of the database and that of the offset.
func offsetIsBehind(w *world) {
	h := w.host("Oslo", 1)
	w.run(h, abi.OutcomeOK, "")
	w.count = 400
	h.Offset = []byte("100")
	h.Context.Fence = 2
	w.run(h, abi.OutcomeOK, "")
	w.has("Oslo", 400)
	if logs := fmt.Sprint(h.Logs()); !strings.Contains(logs, "a run ended between the two commits") {
		w.Error(logs)
	}
}

func olderFence(w *world) {
	w.run(w.host("Lima", 7), abi.OutcomeOK, "")
	w.count = 400
	w.run(w.host("Lima", 6), abi.OutcomeFail, "fence 6 is not the highest any more")
	w.has("Lima", 250)
}

// fenceBetweenPages: another run begins while this one waits for its second page.
func fenceBetweenPages(w *world) {
	w.before = func(r *http.Request) {
		if r.FormValue("after") == "100" {
			w.query("update sync_progress set fence = 8 where job = 'Bern'")
		}
	}
	w.run(w.host("Bern", 7), abi.OutcomeFail, "fence 7 is not the highest any more")
	w.has("Bern", 100)
	w.before = nil
	w.run(w.host("Bern", 8), abi.OutcomeOK, "")
	w.has("Bern", 250)
}

// commitIsRefused: the item is lost after a page was written.
func commitIsRefused(w *world) {
	h := w.host("Kyiv", 1)
	h.OnCommit = func([]byte) abi.Code { return abi.ErrConflict }
	if r := h.Run(run); r.Outcome == abi.OutcomeOK {
		w.Error("the run ended well")
	}
	w.has("Kyiv", 100)
	w.run(w.host("Kyiv", 2), abi.OutcomeOK, "")
	w.has("Kyiv", 250)
}

func notCopied(w *world) {
	h := w.host("Cairo", 1)
	h.AllowHTTP(api, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, `{"orders":[{"id":1,"city":"Cairo"},{"id":3,"city":"Cairo"}],"last":3}`)
	}))
	w.run(h, abi.OutcomeFail, `got number 3 of "Cairo", expected 2 of "Cairo"`)
	h.AllowHTTP(api, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }))
	w.run(h, abi.OutcomeRetry, "orders: status 503")
	h.Secrets = nil
	w.run(h, abi.OutcomeFail, "DB_PASSWORD")
	h = w.host("Cairo", 1)
	h.Secrets["DB_PASSWORD"] = "wrong"
	w.run(h, abi.OutcomeRetry, "password authentication failed")
	w.Setenv("DATABASE_URL", "postgres://wasmjob@elsewhere:5432/postgres?sslmode=disable")
	w.run(h, abi.OutcomeFail, "not granted")
	w.Setenv("DATABASE_URL", "")
	w.run(h, abi.OutcomeFail, "no database: grant this job env DATABASE_URL")
	h.Context.JobParameter = ""
	w.run(h, abi.OutcomeFail, "expected the API's address")
}
