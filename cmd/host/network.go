package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/words"
)

// loopback is the address of a server that has no other.
const loopback = "127.0.0.1"

// resolveTimeout bounds the look-up of a ZooKeeper server's name when the
// server's address is chosen.
const resolveTimeout = 5 * time.Second

// network is what a server's address is chosen from.
type network struct {
	interfaces func() ([]netInterface, error)
	// route is the address of this machine from which packets go to a host
	// and port.
	route func(ctx context.Context, address string) (netip.Addr, error)
}

// netInterface is a network interface and its IPv4 addresses, in their order.
type netInterface struct {
	name      string
	up        bool
	addresses []netip.Addr
}

// machine is the network of this machine.
func machine() network { return network{interfaces: machineInterfaces, route: routeTo} }

func machineInterfaces() ([]netInterface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	var out []netInterface
	for i := range list {
		n := netInterface{name: list[i].Name, up: list[i].Flags&net.FlagUp != 0}
		addresses, err := list[i].Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() {
				n.addresses = append(n.addresses, prefix.Addr())
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// routeTo asks the system for the way to an address. Nothing is sent: a UDP
// socket that is connected only takes its local address.
func routeTo(ctx context.Context, address string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp4", address)
	if err != nil {
		return netip.Addr{}, err
	}
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr().Unmap(), errors.Join(err, c.Close())
}

// serverIP chooses the address that names this server; docs/cluster.md has the
// rule. doubt, if it is not empty, says why the rule could not be followed to
// the letter.
func (n network) serverIP(ctx context.Context, c *Config) (ip, doubt string, err error) {
	within := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if c.ServerIP != "" {
		if a, err := netip.ParseAddr(c.ServerIP); err == nil {
			if c.ServerInterface == "" {
				return a.String(), "", nil
			}
			within = netip.PrefixFrom(a, a.BitLen())
		} else if within, err = netip.ParsePrefix(c.ServerIP); err != nil {
			return "", "", fmt.Errorf("--server-ip: %q is neither an IPv4 address nor a network", c.ServerIP)
		}
	}
	all, err := n.interfaces()
	if err != nil {
		return "", "", fmt.Errorf("%w; say which address names this server with --server-ip", err)
	}
	if c.ServerIP != "" || c.ServerInterface != "" {
		for _, i := range all {
			if !i.up || (c.ServerInterface != "" && i.name != c.ServerInterface) {
				continue
			}
			for _, a := range i.addresses {
				if within.Contains(a) {
					return a.String(), "", nil
				}
			}
		}
		return "", "", noAddress(c, all)
	}
	if servers := c.backend().servers(); len(servers) > 0 {
		var problems []error
		for _, server := range servers {
			a, err := n.route(ctx, server)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			if a.Is4() && a.IsGlobalUnicast() {
				return a.String(), "", nil
			}
			problems = nil // it is on this machine, so any address will do
			break
		}
		if len(problems) > 0 {
			doubt = "no way to a ZooKeeper server is known: " + problems[0].Error()
			if n := len(problems) - 1; n > 0 {
				doubt += fmt.Sprintf(" (and %d more)", n)
			}
		}
	}
	for _, i := range all {
		for _, a := range i.addresses {
			if i.up && a.IsGlobalUnicast() {
				return a.String(), doubt, nil
			}
		}
	}
	return loopback, doubt, nil
}

// noAddress says what was wanted, and what there is.
func noAddress(c *Config, all []netInterface) error {
	var have, names []string
	for _, i := range all {
		names = append(names, i.name)
		for _, a := range i.addresses {
			text := i.name + " " + a.String()
			if !i.up {
				text += " (down)"
			}
			have = append(have, text)
		}
	}
	list := "this machine has no IPv4 address"
	if len(have) > 0 {
		list = "this machine has " + strings.Join(have, ", ")
	}
	switch {
	case c.ServerInterface == "":
		return fmt.Errorf("--server-ip: no address in %s; %s", c.ServerIP, list)
	case !slices.Contains(names, c.ServerInterface):
		return fmt.Errorf("--server-interface: there is no interface %q%s; %s", words.Clip(c.ServerInterface), words.Suggest(c.ServerInterface, names), list)
	case c.ServerIP != "":
		return fmt.Errorf("--server-interface: %s has no address in %s; %s", c.ServerInterface, c.ServerIP, list)
	}
	return fmt.Errorf("--server-interface: %s is down or has no IPv4 address; %s", c.ServerInterface, list)
}
