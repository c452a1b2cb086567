package tap

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestTap lets a client do one of each, and looks at what was heard.
func TestTap(t *testing.T) {
	t.Parallel()
	servers, err := zkserver.Start(t.Context(), zkserver.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	r := Recorder{Detailed: true}
	p, err := r.Open("it", servers.Connect())
	if err != nil {
		t.Fatal(err)
	}
	c, events, err := zk.Connect([]string{p.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	if ok := zk.FLWRuok([]string{p.Addr()}, 10*time.Second); !ok[0] {
		t.Error("a command has no answer through the tap")
	}
	mark := r.Mark()
	_, err = c.Create("/a", []byte("data"), 0, zk.WorldACL(zk.PermAll))
	must(err)
	_, _, err = c.Get("/a")
	must(err)
	_, err = c.Multi(&zk.CheckVersionRequest{Path: "/a", Version: 0},
		&zk.CreateRequest{Path: "/a/b", Data: []byte("x"), Acl: zk.DigestACL(zk.PermAll, "u", "p"), Flags: zk.FlagEphemeral},
		&zk.SetDataRequest{Path: "/a", Data: nil, Version: -1}, &zk.DeleteRequest{Path: "/a/b", Version: -1})
	must(err)
	if err := c.Delete("/nobody", -1); err != zk.ErrNoNode {
		t.Errorf("delete of an absent node: %v, want %v", err, zk.ErrNoNode)
	}
	c.Close()
	must(r.Close())
	var got []Op
	for _, o := range r.Ops(mark, func(o *Op) bool { return o.Code != Ping && o.Code != Close }) {
		if o.Client != "it" || o.Answered.Before(o.Sent) || o.Size == 0 {
			t.Errorf("%+v is not whole", o)
		}
		if o.Code == Multi {
			if want := []string{"check /a", "create /a/b", "set /a", "delete /a/b"}; !slices.Equal(o.Details, want) {
				t.Errorf("the multi's parts: %v, want %v", o.Details, want)
			}
		}
		got = append(got, Op{Code: o.Code, Path: o.Path, Parts: o.Parts, Err: o.Err})
	}
	want := []Op{{Code: Create, Path: "/a", Parts: 1}, {Code: GetData, Path: "/a", Parts: 1},
		{Code: Multi, Path: "/a", Parts: 4}, {Code: Delete, Path: "/nobody", Parts: 1, Err: -101}}
	if len(got) != len(want) {
		t.Fatalf("heard %+v, want %+v", got, want)
	}
	for i, o := range got {
		if !reflect.DeepEqual(o, want[i]) {
			t.Errorf("heard %+v, want %+v", o, want[i])
		}
	}
	if n := len(r.Ops(0, func(o *Op) bool { return o.Code == Connect && !o.Answered.IsZero() })); n != 1 {
		t.Errorf("heard %d connections, want 1", n)
	}
}
