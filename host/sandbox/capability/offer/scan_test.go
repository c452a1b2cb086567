package offer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
	"github.com/wasmjob/wasmjob/host/sandbox/plugin"
)

// A secret that goes into a header is nowhere in the memory of the guest that sent it, not
// even if the server says it back in a header. One that it may read is, or the search
// would find nothing.
func TestGuestNeverHasTheSecret(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-of-the-host"
	got := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		w.Header().Set("X-Echo", got)
		_, _ = w.Write([]byte("ok"))
	}))
	defer s.Close()
	port, err := strconv.ParseUint(s.URL[strings.LastIndex(s.URL, ":")+1:], 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &grants.Grant{
		HTTP:    []grants.HTTP{{Scheme: "http", Host: "127.0.0.1", Port: uint16(port), Path: "/", Private: true, Secrets: []string{"TOKEN"}}},
		Secrets: map[string]grants.Secret{"TOKEN": {File: file}, "OPEN": {File: file, Readable: true}},
	}
	code, err := os.ReadFile("testdata/scan/scan.wasm")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	rt, err := plugin.NewRuntime(ctx, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	m, err := rt.Open("scan.wasm", code)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	x, err := m.Executor(offer.Settings(plugin.Settings{JobName: "report", FreshPerItem: true}, g))
	if err != nil {
		t.Fatal(err)
	}
	x = offer.Wrap(x, g, "", dir.NewQuotas())
	defer x.Release()
	w, err := x.NewWorker(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	backwards := []byte(secret)
	slices.Reverse(backwards)
	run := func(url, name string) abi.Result {
		inv := &abi.Invocation{Host: &recorder{}}
		inv.Context.ShardingParameter, inv.Context.HasShardingParameter = url+"\x00"+name+"\x00"+string(backwards)+"\x00", true
		return w.Execute(ctx, inv)
	}
	if r := run(s.URL+"/", "TOKEN"); r.Outcome != abi.OutcomeOK || got != "Bearer "+secret {
		t.Errorf("%+v; the server got %q", r, got)
	}
	if r := run("", "OPEN"); r.Status != 70 {
		t.Errorf("a secret that was read is not found: %+v", r)
	}
}
