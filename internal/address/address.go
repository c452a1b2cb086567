// Package address decides which network addresses are public. Guests reach other addresses only if an operator
// grants it. Pure.
package address

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// Refused is the error for an address that must not be dialled.
type Refused struct {
	Address netip.Addr
	Why     string
	// Never says that no grant can allow it.
	Never bool
}

func (r *Refused) Error() string {
	if r.Never {
		return fmt.Sprintf("the address %s is not allowed: %s", r.Address, r.Why)
	}
	return fmt.Sprintf("the address %s is not public: %s; a grant allows it with private: true", r.Address, r.Why)
}

// Check returns a *Refused unless the address is public, or private is set and may allow it. An address that
// embeds another one (v4-mapped, NAT64, 6to4, Teredo) is judged by the embedded one.
func Check(a netip.Addr, private bool) error {
	why, never := judge(a.Unmap())
	if why == "" || (private && !never) {
		return nil
	}
	return &Refused{a, why, never}
}

// Control returns a check for net.Dialer.ControlContext. It is called for each address of a name, after the
// name was resolved and just before the connection, so no later answer of a name server matters.
func Control(private bool, port uint16) func(ctx context.Context, network, address string, c syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the address %q: %w", address, err)
		}
		fits := (network == "tcp4" && at.Addr().Is4()) || (network == "tcp6" && at.Addr().Is6())
		if !fits || at.Port() != port {
			return fmt.Errorf("the address %s is not port %d of TCP, but of %s", at, port, network)
		}
		return Check(at.Addr(), private)
	}
}

// block is a part of the address space that is not public.
type block struct {
	prefix netip.Prefix
	why    string
	never  bool
}

// The tables follow IANA's special-purpose registries. Every IPv6 address outside 2000::/3 is refused.
var (
	table4 = []block{
		{prefix("0.0.0.0/8"), "unspecified", true},
		{prefix("10.0.0.0/8"), "private", false},
		{prefix("100.64.0.0/10"), "shared, behind a carrier's NAT", false},
		{prefix("127.0.0.0/8"), "loopback", false},
		{prefix("168.63.129.16/32"), "metadata of a cloud", false},
		{prefix("169.254.0.0/16"), "link-local, with the metadata of clouds", false},
		{prefix("172.16.0.0/12"), "private", false},
		{prefix("192.0.0.0/24"), "for protocols", false},
		{prefix("192.0.2.0/24"), "for documentation", false},
		{prefix("192.88.99.0/24"), "relays of 6to4", false},
		{prefix("192.168.0.0/16"), "private", false},
		{prefix("198.18.0.0/15"), "for benchmarks", false},
		{prefix("198.51.100.0/24"), "for documentation", false},
		{prefix("203.0.113.0/24"), "for documentation", false},
		{prefix("224.0.0.0/4"), "multicast", true},
		{prefix("255.255.255.255/32"), "broadcast", true},
		{prefix("240.0.0.0/4"), "reserved", true},
	}
	table6 = []block{
		{prefix("::/128"), "unspecified", true},
		{prefix("::1/128"), "loopback", false},
		{prefix("::/96"), "an IPv4 address in an obsolete form", true},
		{prefix("64:ff9b:1::/48"), "a local NAT64", false},
		{prefix("100::/64"), "dropped by routers", false},
		{prefix("2001::/23"), "for protocols", false},
		{prefix("2001:db8::/32"), "for documentation", false},
		{prefix("3fff::/20"), "for documentation", false},
		{prefix("fc00::/7"), "private, with the metadata of clouds", false},
		{prefix("fe80::/10"), "link-local", false},
		{prefix("fec0::/10"), "private", false},
		{prefix("ff00::/8"), "multicast", true},
	}
	global = prefix("2000::/3")
	nat64  = prefix("64:ff9b::/96")
	sixTo4 = prefix("2002::/16")
	teredo = prefix("2001::/32")
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// judge says why an address is not public; "" if it is.
func judge(a netip.Addr) (why string, never bool) {
	if !a.IsValid() {
		return "invalid", true
	}
	if a.Is4() {
		return find(table4, a)
	}
	if a.Zone() != "" {
		return "of one interface, " + a.Zone(), false
	}
	if of, meant := embedded(a); of != "" {
		for _, m := range meant {
			if why, never = judge(m); why != "" {
				return fmt.Sprintf("%s for %s, %s", of, m, why), never
			}
		}
		return "", false
	}
	if why, never = find(table6, a); why != "" || global.Contains(a) {
		return why, never
	}
	return "not of the global unicast addresses", false
}

func find(table []block, a netip.Addr) (why string, never bool) {
	i := slices.IndexFunc(table, func(b block) bool { return b.prefix.Contains(a) })
	if i < 0 {
		return "", false
	}
	return table[i].why, table[i].never
}

// embedded returns the IPv4 addresses to which an IPv6 address leads.
func embedded(a netip.Addr) (of string, meant []netip.Addr) {
	b := a.As16()
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte(b[i : i+4])) }
	switch {
	case nat64.Contains(a):
		return "NAT64", []netip.Addr{at(12)}
	case sixTo4.Contains(a):
		return "6to4", []netip.Addr{at(2)}
	case teredo.Contains(a):
		var client [4]byte // its bits are inverted
		binary.BigEndian.PutUint32(client[:], ^binary.BigEndian.Uint32(b[12:]))
		return "Teredo", []netip.Addr{at(4), netip.AddrFrom4(client)}
	}
	return "", nil
}
