package ratelimit

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"
)

type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.t }
func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// tries counts how many of n tries are let through.
func tries(t *Throttle, n int, account, address string) (through int) {
	for range n {
		if wait, _ := t.Try(account, address); wait == 0 {
			through++
		}
	}
	return through
}

func TestAccountAtOneAddress(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	th := New(c.now)
	if n := tries(th, 100, "ann", "192.0.2.1"); n != 5 {
		t.Errorf("%d tries at once", n)
	}
	wait, _ := th.Try("ann", "192.0.2.1")
	if wait <= 0 || wait > 15*time.Second {
		t.Errorf("wait %s", wait)
	}
	c.pass(wait)
	if wait, _ := th.Try("ann", "192.0.2.1"); wait != 0 {
		t.Errorf("after the wait: %s", wait)
	}
	c.pass(time.Hour)
	if n := tries(th, 100, "ann", "192.0.2.1"); n != 5 {
		t.Errorf("%d tries after an hour", n)
	}
}

// TestManyAccountsFromOneAddress: names do not help who tries from one place.
func TestManyAccountsFromOneAddress(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	th, through := New(c.now), 0
	for i := range 1000 {
		through += tries(th, 1, fmt.Sprint("user", i), "192.0.2.1")
	}
	if through != 20 {
		t.Errorf("%d tries", through)
	}
	// All addresses of a network of IPv6 are one.
	through = 0
	for i := range 1000 {
		through += tries(th, 1, fmt.Sprint("user", i), fmt.Sprintf("2001:db8::%x", i+1))
	}
	if through != 20 {
		t.Errorf("%d tries by IPv6", through)
	}
}

// TestStorm: a storm on an account from everywhere neither keeps that account out where it
// is known, nor any other account.
func TestStorm(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	th := New(c.now)
	if wait, known := th.Try("ann", "198.51.100.7"); wait != 0 || known {
		t.Fatal(wait, known)
	}
	th.Succeeded("ann", "198.51.100.7")
	through, at := 0, netip.MustParseAddr("10.0.0.0")
	for range 5000 {
		at = at.Next()
		through += tries(th, 3, "ann", at.String())
	}
	if through != 50 {
		t.Errorf("%d of the storm's tries get through", through)
	}
	if wait, known := th.Try("ann", "198.51.100.7"); wait != 0 || !known {
		t.Errorf("ann at home: wait %s, known %t", wait, known)
	}
	if wait, _ := th.Try("bob", "203.0.113.9"); wait != 0 {
		t.Errorf("bob: %s", wait)
	}
	if wait, _ := th.Try("ann", "203.0.113.9"); wait == 0 {
		t.Error("ann at a new place is not held up by the storm: then neither is the storm")
	}
	// From the storm's own address, who is known there still gets in.
	th.Succeeded("eve", "192.0.2.1")
	for i := range 100 {
		th.Try(fmt.Sprint("user", i), "192.0.2.1")
	}
	if wait, _ := th.Try("eve", "192.0.2.1"); wait != 0 {
		t.Errorf("eve: %s", wait)
	}
}

// TestBounded: a storm of names and addresses takes no more memory than the tables have.
func TestBounded(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	th := New(c.now)
	at := netip.MustParseAddr("10.0.0.0")
	var all sync.WaitGroup
	for g := range 4 {
		start := at
		for range g * 50_000 {
			start = start.Next()
		}
		all.Go(func() {
			a := start
			for i := range 50_000 {
				a = a.Next()
				th.Try(fmt.Sprintf("user %d %d", g, i), a.String())
				th.Succeeded(fmt.Sprintf("user %d %d", g, i), a.String())
			}
		})
	}
	all.Wait()
	if n := th.Size(); n > 4*maxEntries {
		t.Errorf("%d entries", n)
	}
}

// TestClockSetBack: a clock that is set back gives no tries and takes none.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	th := New(c.now)
	tries(th, 5, "ann", "192.0.2.1")
	c.pass(-time.Hour)
	if wait, _ := th.Try("ann", "192.0.2.1"); wait <= 0 || wait > 15*time.Second {
		t.Errorf("wait %s", wait)
	}
}

// TestWithoutAccount: tries of no account's are counted for their address.
func TestWithoutAccount(t *testing.T) {
	t.Parallel()
	c := &clock{t: time.Unix(1e9, 0)}
	th := New(c.now)
	for range 100 {
		if wait, known := th.Try("", "192.0.2.1"); wait != 0 || known {
			t.Fatal(wait, known)
		}
		th.Succeeded("", "192.0.2.1")
	}
	if n := tries(th, 100, "", "192.0.2.1"); n != 20 {
		t.Errorf("%d tries", n)
	}
	if n := tries(th, 100, "", "192.0.2.2"); n != 20 {
		t.Errorf("%d tries from elsewhere", n)
	}
}
