package inspect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/inspect"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/coordination/recipe/permit"
	"github.com/wasmjob/wasmjob/coordination/recipe/rate"
	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
)

// denying is a registry that does not permit to read a node.
type denying struct {
	registry.Center
	path string
}

func (d denying) Read(ctx context.Context, queries ...registry.Query) ([]registry.Node, error) {
	nodes, err := d.Center.Read(ctx, queries...)
	for k, q := range queries {
		if q.Path == d.path && err == nil {
			nodes[k] = registry.Node{}
			return nodes, &registry.UnreadableError{Denied: map[registry.Query]error{q: errors.New("not permitted")}}
		}
	}
	return nodes, err
}

// TestReadLimits: who runs under a key, who waits, and what a rate counts; a key's name is what the definition has.
func TestReadLimits(t *testing.T) {
	t.Parallel()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := server.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	now := time.Now()
	none, err := inspect.ReadLimits(t.Context(), r, "n", now)
	if err != nil || len(none.Permits)+len(none.Rates) > 0 {
		t.Fatalf("without any: %+v, %v", none, err)
	}

	key := tree.Limit("n", "db/é 1")
	who := permit.Holder{Host: "h1", Job: "import"}
	made, err := permit.Take(t.Context(), r, who, permit.Draw{Key: key, Count: 3, Max: 2})
	if err != nil {
		t.Fatal(err)
	}
	item := 4
	who.Item = &item
	w := rate.Window{Key: "api"}.Begin(jobconfig.Rate{Key: "api", Per: time.Minute, Max: 2}, rate.Owner{Host: "h1", Job: "import"}, 2, 1, now.UnixMilli())
	if _, err := r.Commit(t.Context(), registry.Set(made[key][0].Path, who.Data(), registry.AnyVersion), registry.Ensure(tree.Rates("n")),
		registry.Create(tree.Rate("n", "api"), w.Data()), registry.Create(key+"/strange", nil)); err != nil {
		t.Fatal(err)
	}

	l, err := inspect.ReadLimits(t.Context(), r, "n", now)
	if err != nil || len(l.Permits) != 1 || len(l.Rates) != 1 || l.More != 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	if p := l.Permits[0]; p.Key != "db/é 1" || p.Max != 2 || len(p.Tickets) != 3 || p.Tickets[0].Item == nil || *p.Tickets[0].Item != 4 || p.Tickets[1].Item != nil || p.Tickets[0].Since.IsZero() {
		t.Errorf("permits are %+v", p)
	}
	if w := l.Rates[0]; w.Key != "api" || w.Max != 2 || len(w.Begins) != 2 || len(w.Places) != 1 || w.Places[0].Job != "import" {
		t.Errorf("the rate is %+v", w)
	}
	hidden, err := inspect.ReadLimits(t.Context(), denying{r, tree.Rate("n", "api")}, "n", now)
	if err != nil || len(hidden.Permits) != 1 || len(hidden.Rates) != 0 || hidden.More != 1 {
		t.Errorf("a key that may not be read: %+v, %v", hidden, err)
	}
	hidden, err = inspect.ReadLimits(t.Context(), denying{r, made[key][1].Path}, "n", now)
	if err != nil || len(hidden.Permits) != 1 || len(hidden.Permits[0].Tickets) != 2 {
		t.Errorf("a ticket that may not be read: %+v, %v", hidden, err)
	}
	over, err := inspect.ReadLimits(t.Context(), r, "n", now.Add(time.Hour))
	if err != nil || len(over.Rates) != 0 {
		t.Errorf("after an hour the rates are %+v, %v", over.Rates, err)
	}
}
