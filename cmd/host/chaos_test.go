package main

import (
	"crypto/x509"
	"net"
	"strings"
	"testing"
)

// TestNameOfAll: hosts behind proxies need one name for all servers.
func TestNameOfAll(t *testing.T) {
	t.Parallel()
	leaf := func(names ...string) *x509.Certificate {
		c := &x509.Certificate{}
		for _, n := range names {
			if ip := net.ParseIP(n); ip != nil {
				c.IPAddresses = append(c.IPAddresses, ip)
			} else {
				c.DNSNames = append(c.DNSNames, n)
			}
		}
		return c
	}
	for _, c := range []struct {
		servers string
		leaves  []*x509.Certificate
		want    string
	}{
		{"zk1", []*x509.Certificate{leaf("zk1", "zk")}, "zk1"},
		{"zk1 zk2", []*x509.Certificate{leaf("zk1", "zk"), leaf("zk2", "zk")}, "zk"},
		{"zk1.test zk2.test", []*x509.Certificate{leaf("*.test"), leaf("*.test")}, "zk1.test"},
		{"10.0.0.1 10.0.0.2", []*x509.Certificate{leaf("10.0.0.1", "10.0.0.9"), leaf("10.0.0.2", "10.0.0.9")}, "10.0.0.9"},
		{"zk1 zk2", []*x509.Certificate{leaf("zk1"), leaf("zk2")}, ""},
		{"a.test a.prod", []*x509.Certificate{leaf("*.test"), leaf("*.prod")}, ""},
	} {
		servers := strings.Fields(c.servers)
		got, err := nameOfAll(servers, c.leaves)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.servers, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), strings.Join(servers, " and ")+" have no name in common") {
			t.Errorf("%s: %v", c.servers, err)
		}
	}
}
