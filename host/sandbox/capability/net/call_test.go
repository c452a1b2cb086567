package net

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
)

// TestCalls: each connection of a run whose trace is recorded is reported when it is over.
func TestCalls(t *testing.T) {
	n := listen(t, echo)
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := grants.Net{Scheme: "tcp", Host: "127.0.0.1", Port: uint16(dead.Addr().(*net.TCPAddr).Port), Private: true}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	g := begin(t, &grants.Grant{Net: []grants.Net{n, gone}})
	var mu sync.Mutex
	var list []abi.OutsideCall
	g.Run.Called = func(c abi.OutsideCall) {
		mu.Lock()
		defer mu.Unlock()
		list = append(list, c)
	}
	one := func() abi.OutsideCall {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(list) != 1 {
			t.Fatalf("%d calls: %+v", len(list), list)
		}
		c := list[0]
		list = nil
		if len(c.SpanID) != 16 || c.Took <= 0 || c.Connected > c.Took || c.Capability != "net" || c.Scheme != "tcp" {
			t.Errorf("%+v", c)
		}
		return c
	}

	h := g.Dial(targetOf(n))
	g.Write(h, []byte("seven b"))
	g.Finish(h)
	if _, code := g.ReadAll(h); code != 0 {
		t.Fatalf("read: %d: %s", code, g.Error(h))
	}
	g.CloseHandle(h)
	if c := one(); c.Target != strings.TrimPrefix(targetOf(n), "tcp://") || c.Sent != 7 || c.Received != 7 || c.Connected == 0 || c.Failure != "" {
		t.Errorf("%+v", c)
	}
	h = g.Dial(targetOf(n))
	if code := g.Connected(h); code != 0 {
		t.Fatalf("connected: %d: %s", code, g.Error(h))
	}
	g.CloseHandle(h) // as guests do when they are done
	if c := one(); c.Connected == 0 || c.Failure != "" {
		t.Errorf("%+v", c)
	}
	h = g.Dial(targetOf(gone))
	if code := g.Connected(h); code == 0 {
		t.Fatal("connected")
	}
	g.CloseHandle(h)
	if c := one(); c.Connected != 0 || !strings.Contains(c.Failure, "refused") {
		t.Errorf("%+v", c)
	}
	h = g.Dial(targetOf(n))
	if code := g.Connected(h); code != 0 {
		t.Fatalf("connected: %d: %s", code, g.Error(h))
	}
	g.Run.Close() // what is open ends with the run
	if c := one(); c.Connected == 0 || c.Failure != "" {
		t.Errorf("%+v", c)
	}
}
