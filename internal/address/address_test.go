package address_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/wasmjob/wasmjob/internal/address"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct{ address, why string }{
		{"8.8.8.8", ""}, {"93.184.216.34", ""}, {"100.63.255.255", ""}, {"100.128.0.0", ""}, {"172.15.255.255", ""}, {"172.32.0.0", ""},
		{"198.17.255.255", ""}, {"198.20.0.0", ""}, {"223.255.255.255", ""}, {"2606:4700:4700::1111", ""}, {"2a00:1450:4001:830::200e", ""},
		{"::ffff:8.8.8.8", ""}, {"64:ff9b::808:808", ""}, {"2002:808:808::1", ""},
		{"0.0.0.0", "unspecified"}, {"0.1.2.3", "unspecified"}, {"10.0.0.1", "private"}, {"100.64.0.1", "carrier"}, {"100.100.100.200", "carrier"},
		{"127.0.0.1", "loopback"}, {"127.255.255.254", "loopback"}, {"168.63.129.16", "metadata"}, {"169.254.169.254", "metadata"},
		{"172.16.0.1", "private"}, {"172.31.255.255", "private"}, {"192.0.0.192", "protocols"}, {"192.0.2.1", "documentation"},
		{"192.88.99.1", "6to4"}, {"192.168.1.1", "private"}, {"198.18.0.1", "benchmarks"}, {"198.51.100.1", "documentation"},
		{"203.0.113.1", "documentation"}, {"224.0.0.1", "multicast"}, {"239.255.255.255", "multicast"}, {"240.0.0.1", "reserved"}, {"255.255.255.255", "broadcast"},
		{"::", "unspecified"}, {"::1", "loopback"}, {"::127.0.0.1", "obsolete"}, {"::8.8.8.8", "obsolete"}, {"::ffff:127.0.0.1", "loopback"},
		{"::ffff:0:127.0.0.1", "not of the global"}, {"64:ff9b::7f00:1", "NAT64 for 127.0.0.1, loopback"}, {"64:ff9b::a9fe:a9fe", "NAT64 for 169.254.169.254"},
		{"64:ff9b:1::808:808", "local NAT64"}, {"2002:7f00:1::1", "6to4 for 127.0.0.1"}, {"2002:a00:1::1", "6to4 for 10.0.0.1"},
		{"2001:0:808:808::80ff:fffe", "Teredo for 127.0.0.1"}, {"2001:0:a00:1::f7f7:f7f7", "Teredo for 10.0.0.1"},
		{"100::1", "dropped"}, {"2001:2::1", "protocols"}, {"2001:20::1", "protocols"}, {"2001:db8::1", "documentation"}, {"3fff::1", "documentation"},
		{"fc00::1", "private"}, {"fd00:ec2::254", "metadata"}, {"fe80::1", "link-local"}, {"fe80::1%eth0", "interface"}, {"fec0::1", "private"},
		{"ff02::1", "multicast"}, {"4000::1", "not of the global"}, {"5f00::1", "not of the global"}, {"e000::1", "not of the global"},
	} {
		a := netip.MustParseAddr(c.address)
		err := address.Check(a, false)
		var refused *address.Refused
		if c.why == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.As(err, &refused) || !strings.Contains(refused.Why, c.why) || !strings.Contains(err.Error(), a.String()) {
			t.Errorf("%s: %v, want %s", a, err, c.why)
			continue
		}
		never := strings.Contains("unspecified multicast broadcast reserved obsolete", c.why)
		if err := address.Check(a, true); (err != nil) != never {
			t.Errorf("%s with private: %v", a, err)
		}
	}
	if err := address.Check(netip.Addr{}, true); err == nil {
		t.Error("no address at all is allowed")
	}
}

// TestControl has what a dialer may come with.
func TestControl(t *testing.T) {
	for _, c := range []struct {
		network, address string
		private          bool
		why              string
	}{
		{"tcp4", "8.8.8.8:443", false, ""}, {"tcp6", "[2606:4700::1]:443", false, ""}, {"tcp4", "127.0.0.1:443", true, ""},
		{"tcp4", "127.0.0.1:443", false, "loopback"}, {"tcp6", "[::ffff:127.0.0.1]:443", false, "loopback"}, {"tcp6", "[fe80::1%lo]:443", false, "interface"},
		{"tcp4", "8.8.8.8:80", false, "port 443"}, {"udp4", "8.8.8.8:443", false, "TCP"}, {"tcp4", "[2606:4700::1]:443", false, "TCP"},
		{"unix", "/run/docker.sock", true, "docker.sock"}, {"tcp4", "8.8.8.8", false, "8.8.8.8"},
	} {
		err := address.Control(c.private, 443)(t.Context(), c.network, c.address, nil)
		if (c.why == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s %s: %v, want %q", c.network, c.address, err, c.why)
		}
	}
}

func TestHost(t *testing.T) {
	for host, want := range map[string]string{
		"API.Example.com": "api.example.com", "localhost": "localhost", "xn--e1afmkfd.example": "xn--e1afmkfd.example", "a_b.internal": "a_b.internal",
		"127.0.0.1": "127.0.0.1", "::1": "::1", "0:0::1": "::1", "::FFFF:127.0.0.1": "::ffff:127.0.0.1", "1.example.com": "1.example.com",
		"2130706433": "", "0x7f.1": "", "0x7F000001": "", "0177.0.0.1": "", "127.1": "", "127.0.0.1.": "", "1.2.3.4.5": "", "0x": "", "a.0x1": "",
		"": "", ".": "", "a..b": "", "a.": "", ".a": "", "-a": "", "a-": "", "a b": "", "a/b": "", "a@b": "", "a:80": "", "a%41": "",
		"fe80::1%eth0": "", "ex\u0430mple.com": "", "\xff": "", strings.Repeat("a", 64) + ".com": "", strings.Repeat("a.", 127) + "com": "",
	} {
		got, err := address.Host(host)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", host, got, err, want)
		}
	}
}

// FuzzCheck holds the table against what net/netip knows.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add(netip.MustParseAddr("2001:0:808:808::80ff:fffe").AsSlice())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		plain := a.Unmap()
		special := !plain.IsGlobalUnicast() || plain.IsPrivate() || plain.IsLoopback() || plain.IsMulticast() || plain.IsLinkLocalUnicast() || plain.IsUnspecified()
		if err := address.Check(a, false); err == nil && special {
			t.Errorf("%s is allowed", a)
		}
	})
}
