package grants

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

var (
	errNotASCII = errors.New("a host in ASCII: names with other letters in punycode, such as xn--mnchen-3ya.example")
	errBadHost  = errors.New("the name of a host, its IP address, or *.HOST in a URL")
	errPort     = errors.New("no port")
)

// errHost returns the expectation for a host that is invalid.
func errHost(err error) error { return cmp.Or(err, errBadHost) }

// cleanHost is the form in which hosts are compared: lower case, no dot at the end,
// IP addresses as netip writes them.
func cleanHost(host string) (string, error) {
	if strings.ContainsFunc(host, func(r rune) bool { return r > 0x7F }) {
		return "", errNotASCII
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return "", errBadHost
		}
		return ip.String(), nil
	}
	if host == "" || len(host) > 253 {
		return "", errBadHost
	}
	labels := strings.Split(host, ".")
	// 127.1 and 0x7f000001 are addresses to some resolvers.
	if last := labels[len(labels)-1]; slices.ContainsFunc(labels, isBadLabel) || (last[0] >= '0' && last[0] <= '9') {
		return "", errBadHost
	}
	return host, nil
}

// isBadLabel is about the part of a host between two dots.
func isBadLabel(label string) bool {
	strange := strings.ContainsFunc(label, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
	return label == "" || len(label) > 63 || strange || strings.HasPrefix(label, "-")
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

// portOf reads a port; without one it is the other. It is never 0.
func portOf(text string, otherwise uint16) (uint16, error) {
	if text == "" && otherwise != 0 {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, errPort
	}
	return uint16(n), nil
}

// hostCovers reports whether a granted host covers a host.
func hostCovers(granted, host string) bool {
	if rest, wild := strings.CutPrefix(granted, "*."); wild {
		return strings.HasSuffix(host, "."+rest) && host != "."+rest
	}
	return granted == host
}

// climbs reports whether a server might interpret an escaped path as leading outside its prefix: by ".." as a
// segment, however often it is encoded, with any separator.
func climbs(escaped string) bool {
	for range 3 {
		for segment := range strings.FieldsFuncSeq(escaped, func(r rune) bool { return r == '/' || r == '\\' }) {
			segment, _, _ = strings.Cut(segment, ";")
			if segment == ".." || segment == "." {
				return true
			}
		}
		plain, err := url.PathUnescape(escaped)
		if err != nil {
			// A server may accept what this does not decode: 100%25 is 100%.
			return strings.Contains(strings.ToLower(escaped), "%2e")
		}
		if plain == escaped {
			return false
		}
		escaped = plain
	}
	return true // encoded more than twice
}

// pathCovers reports whether an escaped path is within the path of a grant: segment by
// segment, as far as that goes.
func pathCovers(granted, escaped string) bool {
	if granted == "/" {
		return true
	}
	if climbs(escaped) {
		return false
	}
	below := strings.HasSuffix(granted, "/")
	want, have := segments(strings.TrimSuffix(granted, "/")), segments(escaped)
	if len(have) < len(want) || (below && len(have) == len(want)) {
		return false
	}
	for i := range want {
		if want[i] != have[i] {
			return false
		}
	}
	return true
}

// segments splits a path that begins with a slash. A segment with an encoded slash stays as it is, so that it
// matches no other.
func segments(escaped string) []string {
	list := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	for i, s := range list {
		if plain, err := url.PathUnescape(s); err == nil && !strings.ContainsAny(plain, `/\`) {
			list[i] = plain
		}
	}
	return list
}

// methodsOf are those that the grant lets through.
func (h *HTTP) methodsOf() []string {
	if len(h.Methods) == 0 {
		return []string{"GET", "HEAD"}
	}
	return h.Methods
}

// origin is scheme, host and port.
func origin(scheme, host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if (scheme == "http" || scheme == "https") && port == defaultPort(scheme) {
		return scheme + "://" + host
	}
	return fmt.Sprintf("%s://%s:%d", scheme, host, port)
}

func (h *HTTP) String() string { return origin(h.Scheme, h.Host, h.Port) + h.Path }

func (n *Net) String() string { return origin(n.Scheme, n.Host, n.Port) }

// AllowHTTP returns the first grant that lets the job send the request; the address that the host's name leads
// to is checked when it is dialled. The method is compared as it is sent: names of methods are case-sensitive.
// The error says for the job's author what is missing.
func (g *Grant) AllowHTTP(method string, u *url.URL) (*HTTP, error) {
	if u.Opaque != "" || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("http: expected a URL that begins with http:// or https:// and a host")
	}
	host, err := cleanHost(u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("http: found the host %q, expected %w", jobconfig.Clip(u.Hostname()), err)
	}
	port, err := portOf(u.Port(), defaultPort(u.Scheme))
	if err != nil {
		return nil, fmt.Errorf("http: found the port %q, expected one from 1 to 65535", jobconfig.Clip(u.Port()))
	}
	path := cmp.Or(u.EscapedPath(), "/")
	want := HTTP{Scheme: u.Scheme, Host: host, Port: port, Path: path, Methods: []string{method}}
	if h := g.http(&want); h != nil {
		return h, nil
	}
	return nil, g.refuseHTTP(&want)
}

// http returns the first grant that covers what is wanted; nil if none does.
func (g *Grant) http(want *HTTP) *HTTP {
	for i := range g.HTTP {
		h := &g.HTTP[i]
		if h.near(want) == covered {
			return h
		}
	}
	return nil
}

// nearness says how much a grant has in common with a request.
type nearness int

const (
	otherHost nearness = iota
	otherScheme
	otherPort
	otherPath
	otherMethod
	covered
)

// near compares with a request or a need; a need without methods matches any.
func (h *HTTP) near(want *HTTP) nearness {
	switch {
	case !hostCovers(h.Host, want.Host):
		return otherHost
	case h.Scheme != want.Scheme:
		return otherScheme
	case h.Port != want.Port:
		return otherPort
	case !pathCovers(h.Path, want.Path):
		return otherPath
	case slices.ContainsFunc(want.Methods, func(m string) bool { return !slices.Contains(h.methodsOf(), m) }):
		return otherMethod
	}
	return covered
}

// refuseHTTP returns the error for a request that is not granted, with the nearest granted one.
func (g *Grant) refuseHTTP(want *HTTP) error {
	var best *HTTP
	how := nearness(-1)
	for i := range g.HTTP {
		if n := g.HTTP[i].near(want); n > how {
			best, how = &g.HTTP[i], n
		}
	}
	what := origin(want.Scheme, want.Host, want.Port)
	has := ""
	switch how {
	case otherMethod:
		what = words.Some(want.Methods, ", ") + " " + what + jobconfig.Clip(want.Path)
		has = fmt.Sprintf("%s has %s for %s", best.place, words.Some(best.methodsOf(), ", "), best)
		if slices.ContainsFunc(want.Methods, func(m string) bool { return m != strings.ToUpper(m) }) {
			has += ", and names of methods are in upper case"
		}
	case otherPath:
		what += jobconfig.Clip(want.Path)
		has = fmt.Sprintf("%s has %s", best.place, best)
		if climbs(want.Path) {
			has += ", and the path has . or .. in it"
		}
	case otherPort, otherScheme:
		has = fmt.Sprintf("%s has %s", best.place, origin(best.Scheme, best.Host, best.Port))
	default:
		var hosts []string
		for i := range g.HTTP {
			hosts = append(hosts, g.HTTP[i].Host)
		}
		near := nearestHost(want.Host, hosts)
		if i := slices.Index(hosts, near); i >= 0 {
			has = fmt.Sprintf("%s has %s for %s", g.HTTP[i].place, g.HTTP[i].Scheme, near)
		} else if len(hosts) > 0 {
			has = several(hosts, func(i int) string { return g.HTTP[i].place })
		}
	}
	for _, w := range g.withheld {
		if w.grant.http(want) != nil {
			has = w.place + " has it, but " + w.reason
		}
	}
	return fmt.Errorf("http: %s is not granted to job %q: %s", what, g.job, cmp.Or(has, g.nothing("http")))
}

// nearestHost returns the host that was probably meant: a typing error, or another host of the same domain.
func nearestHost(host string, hosts []string) string {
	if near := words.Nearest(host, hosts); near != "" {
		return near
	}
	_, domain, _ := strings.Cut(host, ".")
	for _, h := range hosts {
		if strings.Contains(domain, ".") && strings.HasSuffix(h, domain) {
			return h
		}
	}
	return ""
}

// several names a few of the things that are granted, once each, with the places of their
// entries.
func several(list []string, place func(i int) string) string {
	const most = 3
	named := make(map[string]bool)
	text, at := "", ""
	for i, s := range list {
		if named[s] {
			continue
		}
		if named[s] = true; len(named) > most {
			continue
		}
		if text != "" {
			text += ", "
		}
		if p := place(i); p != at {
			text, at = text+p+" has ", p
		}
		text += s
	}
	if more := len(named) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// where names the files of grants.
func (g *Grant) where() string {
	switch len(g.sources) {
	case 0:
		return "the host"
	case 1:
		return g.sources[0]
	}
	return "the grants"
}

// nothing says that there is nothing of a kind.
func (g *Grant) nothing(kind string) string {
	if len(g.sources) == 0 {
		return "the host grants nothing (--grants)"
	}
	return g.where() + " has no " + kind + " for it"
}

// AllowNet returns the grant that lets the job connect. The error says what is missing.
func (g *Grant) AllowNet(scheme, host string, port uint16) (*Net, error) {
	clean, err := cleanHost(host)
	if err != nil {
		return nil, fmt.Errorf("net: found the host %q, expected %w", jobconfig.Clip(host), err)
	}
	want := Net{Scheme: scheme, Host: clean, Port: port}
	if n := g.net(&want); n != nil {
		return n, nil
	}
	return nil, g.refuseNet(&want)
}

func (g *Grant) net(want *Net) *Net {
	for i := range g.Net {
		if n := &g.Net[i]; n.Scheme == want.Scheme && n.Host == want.Host && n.Port == want.Port {
			return n
		}
	}
	return nil
}

func (g *Grant) refuseNet(want *Net) error {
	has := ""
	var addresses, hosts []string
	for i := range g.Net {
		n := &g.Net[i]
		addresses, hosts = append(addresses, n.String()), append(hosts, n.Host)
		if n.Host == want.Host && has == "" {
			has = n.place + " has " + n.String()
		}
	}
	if i := slices.Index(hosts, nearestHost(want.Host, hosts)); has == "" && i >= 0 {
		has = g.Net[i].place + " has " + addresses[i]
	}
	if has == "" && len(addresses) > 0 {
		has = several(addresses, func(i int) string { return g.Net[i].place })
	}
	for _, w := range g.withheld {
		if w.grant.net(want) != nil {
			has = w.place + " has it, but " + w.reason
		}
	}
	return fmt.Errorf("net: %s is not granted to job %q: %s", want, g.job, cmp.Or(has, g.nothing("net")))
}
