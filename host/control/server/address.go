package server

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Address is where a server listens: a TCP address or a Unix socket.
type Address struct {
	// Network is "tcp" or "unix". Name is the address for package net: HOST:PORT, or a path.
	Network, Name string
}

// ParseAddress reads "IP:PORT", "localhost:PORT", ":PORT" (all interfaces), "unix:PATH" or an absolute path.
// Other host names are refused, because what they resolve to may change.
func ParseAddress(s string) (Address, error) {
	path, isUnix := strings.CutPrefix(s, "unix:")
	switch {
	case isUnix || strings.HasPrefix(s, "/"):
		if path == "" {
			return Address{}, fmt.Errorf("admin address %q has no path", s)
		}
		// The kernel's limit, including the NUL, is 104 on some systems.
		if len(path) > 103 {
			return Address{}, fmt.Errorf("admin address %q: a socket's path has at most 103 bytes, this has %d", s, len(path))
		}
		return Address{Network: "unix", Name: path}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Address{}, fmt.Errorf("admin address %q: want IP:PORT, localhost:PORT, :PORT, unix:PATH or an absolute path", s)
	}
	if host != "" && host != "localhost" {
		if _, err := netip.ParseAddr(host); err != nil {
			return Address{}, fmt.Errorf("admin address %q: %q is not an IP address and not localhost", s, host)
		}
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return Address{}, fmt.Errorf("admin address %q: %q is not a port", s, port)
	}
	return Address{Network: "tcp", Name: s}, nil
}

// String returns the address as ParseAddress reads it.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Name
	}
	return a.Name
}

// Local reports whether only this machine can reach the address.
func (a Address) Local() bool {
	if a.Network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(a.Name)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || (err == nil && ip.Unmap().IsLoopback())
}

// Reachable is the address that a client on this machine dials.
func (a Address) Reachable() Address {
	host, port, err := net.SplitHostPort(a.Name)
	if a.Network != "tcp" || err != nil {
		return a
	}
	if ip, err := netip.ParseAddr(host); host == "" || (err == nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return Address{Network: "tcp", Name: net.JoinHostPort(host, port)}
}

// URL returns where other machines reach a server that listens there: if it listens on all interfaces, serverIP
// is the host. Empty for a socket.
func (a Address) URL(serverIP string) string {
	host, port, err := net.SplitHostPort(a.Name)
	if a.Network != "tcp" || err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); host == "" || (err == nil && ip.IsUnspecified()) {
		host = serverIP
	}
	return "http://" + net.JoinHostPort(host, port)
}
