// Package address chooses the address that names a server to operators and to other
// hosts; docs/server-address.md has the rule.
package address

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/words"
)

// loopback is the address of a server that has no other.
const loopback = "127.0.0.1"

// resolveTimeout bounds the look-up of a ZooKeeper server's name when the
// server's address is chosen.
const resolveTimeout = 5 * time.Second

// Wanted has the settings of the address. address is an address, or the network to choose it from; iface is the
// interface that has it. If both are empty, it is the one from which the first server is reached, if there are
// any.
type Wanted struct {
	Address, Iface string
	Servers        []string
}

// network is where a server's address is chosen from.
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

// Choose chooses the address that names this server.
func Choose(ctx context.Context, c Wanted) (ip, doubt string, err error) {
	return machine().choose(ctx, c)
}

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

// choose chooses the address that names this server; docs/server-address.md has the rule. doubt, if it is not
// empty, says where the choice departs from the rule, and why.
func (n network) choose(ctx context.Context, c Wanted) (ip, doubt string, err error) {
	if a, err := netip.ParseAddr(c.Address); err == nil && c.Iface == "" {
		return a.String(), "", nil
	}
	within, err := c.within()
	if err != nil {
		return "", "", err
	}
	all, err := n.interfaces()
	if err != nil {
		return "", "", fmt.Errorf("%w; say which address names this server with --server-ip", err)
	}
	if c.Address != "" || c.Iface != "" {
		if ip := first(all, c.Iface, within.Contains); ip != "" {
			return ip, "", nil
		}
		return "", "", noAddress(c, all)
	}
	ip, doubt = n.toServers(ctx, c.Servers)
	if ip == "" {
		ip = cmp.Or(first(all, "", netip.Addr.IsGlobalUnicast), loopback)
	}
	return ip, doubt, nil
}

// within returns the network to choose the address from: for a given address, a network of that one only.
func (c Wanted) within() (netip.Prefix, error) {
	if c.Address == "" {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0), nil
	}
	if a, err := netip.ParseAddr(c.Address); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	network, err := netip.ParsePrefix(c.Address)
	if err != nil {
		err = fmt.Errorf("--server-ip: %q is neither an IPv4 address nor a network", c.Address)
	}
	return network, err
}

// first returns the first address that fits, of the interfaces that are up or of the named one; empty if there
// is none.
func first(all []netInterface, name string, fits func(netip.Addr) bool) string {
	for _, i := range all {
		if !i.up || (name != "" && i.name != name) {
			continue
		}
		if at := slices.IndexFunc(i.addresses, fits); at >= 0 {
			return i.addresses[at].String()
		}
	}
	return ""
}

// toServers returns the local address of the route to the first reachable server. It is empty if the server is
// on this machine, where any address will do, or if no route exists, as doubt says.
func (n network) toServers(ctx context.Context, servers []string) (ip, doubt string) {
	var problems []error
	for _, server := range servers {
		a, err := n.route(ctx, server)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if a.Is4() && a.IsGlobalUnicast() {
			return a.String(), ""
		}
		return "", ""
	}
	if len(problems) == 0 {
		return "", ""
	}
	doubt = "no way to a ZooKeeper server is known: " + problems[0].Error()
	if n := len(problems) - 1; n > 0 {
		doubt += fmt.Sprintf(" (and %d more)", n)
	}
	return "", doubt
}

// noAddress is the error that names the wanted address and the machine's addresses.
func noAddress(c Wanted, all []netInterface) error {
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
	case c.Iface == "":
		return fmt.Errorf("--server-ip: no address in %s; %s", c.Address, list)
	case !slices.Contains(names, c.Iface):
		return fmt.Errorf("--server-interface: there is no interface %q%s; %s", words.Clip(c.Iface), words.Suggest(c.Iface, names), list)
	case c.Address != "":
		return fmt.Errorf("--server-interface: %s has no address in %s; %s", c.Iface, c.Address, list)
	}
	return fmt.Errorf("--server-interface: %s is down or has no IPv4 address; %s", c.Iface, list)
}
