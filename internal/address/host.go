package address

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Host checks the host of a URL or a target, without brackets, and returns it in lower case: a name
// in ASCII, or an address in the usual form. Forms that some resolvers take for
// addresses, such as 0x7f.1 or 2130706433, are refused.
func Host(name string) (string, error) {
	if len(name) > 1000 {
		return "", fmt.Errorf("the host has %d bytes", len(name))
	}
	for _, c := range name {
		if c > 0x7e {
			return "", fmt.Errorf("the host %q is not in ASCII: write it in punycode (xn--...)", name)
		}
	}
	if a, err := netip.ParseAddr(name); err == nil {
		if a.Zone() != "" {
			return "", fmt.Errorf("the host %q names a network interface", name)
		}
		return a.String(), nil
	}
	name = strings.ToLower(name)
	labels := strings.Split(name, ".")
	if len(name) > 253 || slices.ContainsFunc(labels, func(l string) bool { return !isLabel(l) }) {
		return "", fmt.Errorf("the host %q is no name of a host", name)
	}
	if isNumber(labels[len(labels)-1]) {
		return "", fmt.Errorf("the host %q is neither a name nor an address in the usual form", name)
	}
	return name, nil
}

// isNumber reports whether some resolvers read a name with this last label as an address.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

func isLabel(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for _, c := range []byte(l) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
