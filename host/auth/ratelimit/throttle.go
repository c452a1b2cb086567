// Package ratelimit slows down who tries passwords, without locking out anybody else.
package ratelimit

import (
	"container/list"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// rate is how many tries there may be at once, and after which time there is one more.
type rate struct {
	burst int
	every time.Duration
}

const (
	// maxEntries bounds each table: about 1 MB.
	maxEntries = 8192
	// networkBits is what counts as one address of IPv6: providers give that to a home.
	networkBits = 64
)

// Throttle counts tries to sign in. A try is counted for its address, for its account,
// and for both together. An account that has signed in from an address before is only
// counted for both together there: so a storm on an account, or from an address, does not
// keep the ones out that are known. It is safe for concurrent use, and bounded in memory:
// what was used least recently is forgotten.
type Throttle struct {
	now func() time.Time

	mu                         sync.Mutex
	pairs, addresses, accounts table
	// known are the pairs of account and address that have signed in.
	known table
}

// New makes a throttle with a clock.
func New(now func() time.Time) *Throttle {
	return &Throttle{
		now:       now,
		pairs:     newTable(rate{5, 15 * time.Second}),
		addresses: newTable(rate{20, 3 * time.Second}),
		accounts:  newTable(rate{50, 5 * time.Second}),
		known:     newTable(rate{}),
	}
}

// Try counts a try, of no account's if account is empty. If there were too many it returns
// how long to wait, and the try must not be made. known says that the account has signed
// in from the address before.
func (t *Throttle) Try(account, address string) (wait time.Duration, known bool) {
	address = network(address)
	pair := keyOf(account, address)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	known = t.known.has(pair)
	var buckets []*bucket
	if account != "" {
		buckets = append(buckets, t.pairs.bucket(pair, now))
	}
	if account != "" && !known {
		buckets = append(buckets, t.accounts.bucket(keyOf(account), now))
	}
	if !known {
		buckets = append(buckets, t.addresses.bucket(keyOf(address), now))
	}
	for _, b := range buckets {
		wait = max(wait, b.wait(now))
	}
	if wait > 0 {
		return wait, known
	}
	for _, b := range buckets {
		b.level--
	}
	return 0, known
}

// Succeeded gives a try back that was good.
func (t *Throttle) Succeeded(account, address string) {
	address = network(address)
	pair := keyOf(account, address)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if !t.known.has(pair) {
		t.addresses.bucket(keyOf(address), now).back()
	}
	if account == "" {
		return
	}
	if !t.known.has(pair) {
		t.accounts.bucket(keyOf(account), now).back()
	}
	t.pairs.forget(pair)
	t.known.bucket(pair, now)
}

// Size is how many entries are kept.
func (t *Throttle) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pairs.at) + len(t.addresses.at) + len(t.accounts.at) + len(t.known.at)
}

// network is what counts as one address.
func network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || !a.Is6() {
		return address
	}
	p, err := a.Prefix(networkBits)
	if err != nil {
		return address
	}
	return p.String()
}

// key has one length, whatever somebody types as a name.
type key [16]byte

func keyOf(texts ...string) key {
	h := sha256.New()
	for _, s := range texts {
		sum := sha256.Sum256([]byte(s))
		h.Write(sum[:]) // it takes all
	}
	return key(h.Sum(nil)[:16])
}

// bucket holds tries; one comes back at a time.
type bucket struct {
	rate
	level float64
	last  time.Time
	key   key
	left  int // what was left out since the last try
}

// wait fills the bucket up to now, and returns how long it lasts until there is a try in it.
func (b *bucket) wait(now time.Time) time.Duration {
	if passed := now.Sub(b.last); passed > 0 {
		b.level = min(float64(b.burst), b.level+float64(passed)/float64(b.every))
	}
	b.last = now
	if b.level >= 1 {
		return 0
	}
	return time.Duration((1 - b.level) * float64(b.every))
}

// back puts a try back.
func (b *bucket) back() { b.level = min(float64(b.burst), b.level+1) }

// table keeps buckets, the one that was used last in front.
type table struct {
	rate  rate
	at    map[key]*list.Element
	order *list.List
}

func newTable(r rate) table {
	return table{rate: r, at: make(map[key]*list.Element), order: list.New()}
}

func (t *table) has(k key) bool { return t.at[k] != nil }

// bucket finds a bucket, or makes a full one.
func (t *table) bucket(k key, now time.Time) *bucket {
	if e := t.at[k]; e != nil {
		t.order.MoveToFront(e)
		return e.Value.(*bucket)
	}
	for len(t.at) >= maxEntries {
		t.forget(t.order.Back().Value.(*bucket).key)
	}
	b := &bucket{rate: t.rate, level: float64(t.rate.burst), last: now, key: k}
	t.at[k] = t.order.PushFront(b)
	return b
}

func (t *table) forget(k key) {
	if e := t.at[k]; e != nil {
		t.order.Remove(e)
		delete(t.at, k)
	}
}
