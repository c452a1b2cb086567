package store_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/embedded"
	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/host/alert/store"
)

// counted counts the requests of a session, and refuses them while a test wants that.
type counted struct {
	registry.Center
	reads   atomic.Int64
	refuses atomic.Bool
	// meanwhile, if not nil, is called by each request.
	meanwhile func()
}

var errRefused = errors.New("refused")

func (c *counted) Read(ctx context.Context, q ...registry.Query) ([]registry.Node, error) {
	c.reads.Add(1)
	if c.meanwhile != nil {
		c.meanwhile()
	}
	if c.refuses.Load() {
		return nil, errRefused
	}
	return c.Center.Read(ctx, q...)
}

// TestCopy: the board is read once for each change, however often it is asked for; what was read
// is shown while it cannot be read, with the reason.
func TestCopy(t *testing.T) {
	t.Parallel()
	server, err := embedded.Open(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	connect := func() registry.Center {
		c, err := server.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	other := connect()
	defer func() { _ = other.Close() }()
	b := store.Of(other, "ns")
	c := store.NewCopy("ns")
	if _, at, err := c.Read(t.Context()); !errors.Is(err, store.ErrUnread) || !at.IsZero() {
		t.Errorf("before there is a session: %v %v", at, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	session := &counted{Center: connect()}
	c.Begun(session)
	until := func(what string, is func(store.Stand) bool) {
		t.Helper()
		late := time.After(10 * time.Second)
		for {
			s, more := c.Stand()
			if is(s) {
				return
			}
			select {
			case <-more:
			case <-late:
				t.Fatalf("%s is not seen: %+v", what, s)
			}
		}
	}
	read := func() store.Content {
		t.Helper()
		content, at, err := c.Read(t.Context())
		if err != nil || at.IsZero() {
			t.Fatalf("%v %v", at, err)
		}
		return content
	}

	if err := errors.Join(b.Join(t.Context(), "h1", nil), b.Keep(t.Context(), "h1"), b.Write(t.Context(), []alert.Alert{{ID: "0000000000000001", Text: "x"}})); err != nil {
		t.Fatal(err)
	}
	change := func() int64 {
		t.Helper()
		n, err := other.Read(t.Context(), registry.Data(tree.AlertsOf("ns").Changes()))
		if err != nil {
			t.Fatal(err)
		}
		return n[0].Mzxid
	}
	last := change()
	until("who judges and sends", func(s store.Stand) bool {
		return s.Keeper == "h1" && slices.Equal(s.Judges, []string{"h1"}) && s.Change == last
	})
	session.refuses.Store(true)
	if _, at, err := c.Read(t.Context()); !errors.Is(err, errRefused) || errors.Is(err, store.ErrOutdated) || !at.IsZero() {
		t.Errorf("what was never read is not outdated: %v %v", at, err)
	}
	session.refuses.Store(false)
	if got := read(); len(got.Alerts) != 1 {
		t.Errorf("%+v", got)
	}
	once := session.reads.Load()
	for range 10 {
		read()
	}
	if n := session.reads.Load(); n != once {
		t.Errorf("%d requests for what has not changed", n-once)
	}
	made, err := b.Silence(t.Context(), alert.Silence{Jobs: "*", Until: time.Now().Add(time.Hour), By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	last = change()
	until("the silence", func(s store.Stand) bool { return s.Change == last })
	if got := read(); len(got.Silences) != 1 || got.Silences[0].ID != made.ID || session.reads.Load() == once {
		t.Errorf("%+v", got)
	}

	// What this host has changed is read before the watch shows it.
	once = session.reads.Load()
	c.Expire()
	if read(); session.reads.Load() == once {
		t.Error("after Expire it is not read again")
	}
	session.meanwhile = c.Expire // what is read may be of before
	c.Expire()
	read()
	session.meanwhile = nil
	once = session.reads.Load()
	if read(); session.reads.Load() == once {
		t.Error("what was changed while it was read is not read again")
	}
	session.refuses.Store(true)
	c.Expire()
	if got, at, err := c.Read(t.Context()); !errors.Is(err, errRefused) || errors.Is(err, store.ErrOutdated) || at.IsZero() || len(got.Silences) != 1 {
		t.Errorf("%+v %v %v", got, at, err)
	}
	if err := b.Write(t.Context(), []alert.Alert{{ID: "0000000000000002", Text: "y"}}); err != nil {
		t.Fatal(err)
	}
	last = change()
	until("another alert", func(s store.Stand) bool { return s.Change == last })
	if got, _, err := c.Read(t.Context()); !errors.Is(err, errRefused) || !errors.Is(err, store.ErrOutdated) || len(got.Alerts) != 1 {
		t.Errorf("of what has changed since it was read: %+v %v", got, err)
	}
	session.refuses.Store(false)
	read()

	// The session ends: what was read stays, until there is another.
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	var got store.Content
	var at time.Time
	err = nil
	for late := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(late); { // the end of the watch is not announced
		got, at, err = c.Read(t.Context())
	}
	if !errors.Is(err, store.ErrUnread) || errors.Is(err, store.ErrOutdated) || at.IsZero() || len(got.Silences) != 1 {
		t.Errorf("%+v %v %v", got, at, err)
	}
	if err := b.Unsilence(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	next := connect()
	defer func() { _ = next.Close() }()
	c.Begun(next)
	if got := read(); len(got.Alerts) != 2 || len(got.Silences) != 0 { // before the watch shows anything
		t.Errorf("%+v", got)
	}
}
