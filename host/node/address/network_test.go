package address

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestServerIP(t *testing.T) {
	t.Parallel()
	addresses := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	usual := []netInterface{
		{"lo", true, addresses("127.0.0.1")},
		{"off0", false, addresses("10.9.9.9")},
		{"six0", true, nil},
		{"auto0", true, addresses("169.254.1.1")},
		{"eth0", true, addresses("192.168.7.8", "10.0.0.1")},
		{"eth1", true, addresses("10.0.0.2")},
		{"docker0", true, addresses("172.17.0.1")},
	}
	alone := usual[:3]
	routes := map[string]string{"near:2181": "10.0.0.2", "self:2181": "127.0.0.1", "second:2182": "172.17.0.1"}
	for _, c := range []struct {
		name         string
		config       Wanted
		all          []netInterface
		want, doubts string
		failure      []string
	}{
		{"by default", Wanted{}, usual, "192.168.7.8", "", nil},
		{"alone", Wanted{}, alone, "127.0.0.1", "", nil},
		{"named", Wanted{Address: "203.0.113.9"}, usual, "203.0.113.9", "", nil},
		{"a network", Wanted{Address: "10.0.0.0/8"}, usual, "10.0.0.1", "", nil},
		{"the loopback's network", Wanted{Address: "127.0.0.0/8"}, usual, "127.0.0.1", "", nil},
		{"a network elsewhere", Wanted{Address: "10.9.0.0/16"}, usual, "", "", []string{
			"--server-ip: no address in 10.9.0.0/16; this machine has lo 127.0.0.1, off0 10.9.9.9 (down), auto0 169.254.1.1, eth0 192.168.7.8, eth0 10.0.0.1,"}},
		{"an interface", Wanted{Iface: "eth1"}, usual, "10.0.0.2", "", nil},
		{"an interface's network", Wanted{Iface: "eth0", Address: "10.0.0.0/8"}, usual, "10.0.0.1", "", nil},
		{"an interface's address", Wanted{Iface: "eth0", Address: "10.0.0.1"}, usual, "10.0.0.1", "", nil},
		{"another interface's address", Wanted{Iface: "eth1", Address: "10.0.0.1"}, usual, "", "", []string{"eth1 has no address in 10.0.0.1; this machine has"}},
		{"no such interface", Wanted{Iface: "eht0"}, usual, "", "", []string{`there is no interface "eht0"; did you mean "eth0"?; this machine has lo`}},
		{"an interface that is down", Wanted{Iface: "off0"}, usual, "", "", []string{"off0 is down or has no IPv4 address"}},
		{"the way to ZooKeeper", Wanted{Servers: []string{"near:2181", "second:2182"}}, usual, "10.0.0.2", "", nil},
		{"the first that is known", Wanted{Servers: []string{"gone:2181", "second:2182"}}, usual, "172.17.0.1", "", nil},
		{"ZooKeeper here", Wanted{Servers: []string{"self:2181"}}, usual, "192.168.7.8", "", nil},
		{"ZooKeeper and nobody else here", Wanted{Servers: []string{"self:2181"}}, alone, "127.0.0.1", "", nil},
		{"ZooKeeper unknown", Wanted{Servers: []string{"gone:2181", "away:2181"}}, usual, "192.168.7.8", "no way to gone:2181", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := network{
				interfaces: func() ([]netInterface, error) { return c.all, nil },
				route: func(_ context.Context, address string) (netip.Addr, error) {
					if routes[address] == "" {
						return netip.Addr{}, errors.New("no way to " + address)
					}
					return netip.MustParseAddr(routes[address]), nil
				},
			}
			ip, doubt, err := n.choose(t.Context(), c.config)
			if ip != c.want || (doubt == "") != (c.doubts == "") || !strings.Contains(doubt, c.doubts) || (err == nil) != (c.failure == nil) {
				t.Errorf("got %q, doubt %q, error %v; want %q, %q", ip, doubt, err, c.want, c.doubts)
			}
			for _, text := range c.failure {
				if err != nil && !strings.Contains(err.Error(), text) {
					t.Errorf("%q is not in: %v", text, err)
				}
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	t.Parallel()
	ip, _, err := Choose(t.Context(), Wanted{Servers: []string{"127.0.0.1:2181"}})
	if a, perr := netip.ParseAddr(ip); err != nil || perr != nil || !a.Is4() {
		t.Errorf("%q, %v, %v", ip, err, perr)
	}
	if a, err := routeTo(t.Context(), "127.0.0.1:2181"); err != nil || a.String() != "127.0.0.1" {
		t.Errorf("the way to this machine is from %s, %v", a, err)
	}
}
