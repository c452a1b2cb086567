package offer_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/experimental/sys"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/dir"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/offer"
)

// careless is an executor whose guests leave open whatever they have opened.
type careless struct {
	abi.Executor
	abi.Worker
	t     *testing.T
	table map[string]*abi.Import
}

func (x careless) NewWorker(context.Context) (abi.Worker, error) { return x, nil }
func (careless) Close() error                                    { return nil }
func (careless) Retain() bool                                    { return true }
func (careless) Release()                                        {}
func (x careless) Execute(ctx context.Context, inv *abi.Invocation) abi.Result {
	call := func(name string, numbers []int64, texts ...[]byte) {
		if v := inv.Outside.Call(ctx, &abi.Call{Function: x.table[name], Numbers: numbers, Texts: texts}); v < 0 && name != abi.ModuleIO+".wait" {
			x.t.Errorf("%s: %d", name, v)
		}
	}
	for n := range 3 {
		call(abi.ModuleDir+".open", []int64{0, int64(sys.O_RDWR | sys.O_CREAT), 0o666}, []byte(fmt.Sprint(n)))
		call(abi.ModuleHTTP+".open", nil, abi.AppendList(nil, "POST", "http://127.0.0.1:1/"))
		call(abi.ModuleNet+".dial", nil, []byte("tcp://127.0.0.1:1"))
	}
	call(abi.ModuleIO+".wait", []int64{0})
	return abi.Result{Outcome: abi.OutcomeOK}
}

// After many runs that leave all open, nothing is.
func TestNothingStaysOpen(t *testing.T) { // not beside others, which open files
	g := &grants.Grant{
		HTTP: []grants.HTTP{{Scheme: "http", Host: "127.0.0.1", Port: 1, Path: "/", Methods: []string{"POST"}, Private: true}},
		Net:  []grants.Net{{Scheme: "tcp", Host: "127.0.0.1", Port: 1, Private: true}},
		Dirs: []grants.Dir{{Host: t.TempDir(), Guest: "/out", Write: true, Files: 10}},
	}
	x := careless{t: t, table: map[string]*abi.Import{}}
	for _, f := range append(abi.CapabilityImports(), abi.DirectoryFunctions()...) {
		x.table[f.Module+"."+f.Name] = &f
	}
	wrapped := offer.Wrap(x, g, "", dir.NewQuotas())
	w, err := wrapped.NewWorker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	inv := &abi.Invocation{Host: &recorder{}}
	w.Execute(t.Context(), inv)
	files, goroutines := open(), runtime.NumGoroutine()
	for range 1000 {
		w.Execute(t.Context(), inv)
	}
	if n := open(); n > files {
		t.Errorf("%d files are open, %d after the first run", n, files)
	}
	w.Close()
	wrapped.Release()
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond) // those of net/http end a little later
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d after the first run", n, goroutines)
	}
}
