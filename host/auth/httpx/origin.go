package httpx

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Site is where people reach the server, and what is between them and it. It is safe
// for concurrent use.
type Site struct {
	url     *url.URL // nil: none was named
	proxies []netip.Prefix
	names   []string
	// certificate is the server's at the moment; nil: there is no TLS.
	certificate func() *tls.Certificate
	cross       *http.CrossOriginProtection
}

// SiteOptions describe a site. The zero value is a server without TLS and proxy that is
// reached as localhost or by an IP address.
type SiteOptions struct {
	// URL is the address that people type, such as https://cron.example.com, empty if
	// they type this server's own.
	URL string
	// Proxies are the networks of proxies that end TLS: what they say of the client in
	// X-Forwarded-For and X-Forwarded-Proto is believed.
	Proxies []netip.Prefix
	// Names are further names that the server answers to, such as the machine's.
	Names []string
	// Certificate is the server's at the moment, whose names it answers to; nil: there
	// is no TLS.
	Certificate func() *tls.Certificate
}

// NewSite checks the options.
func NewSite(o SiteOptions) (*Site, error) {
	s := &Site{proxies: o.Proxies, names: o.Names, certificate: o.Certificate, cross: http.NewCrossOriginProtection()}
	if o.URL == "" {
		return s, nil
	}
	u, err := ParseURL(o.URL)
	if err != nil {
		return nil, err
	}
	s.url = u
	if err := s.cross.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return nil, fmt.Errorf("found %q: %w", words.Clip(o.URL), err)
	}
	return s, nil
}

// ParseURL reads the address of a site: scheme and host, and no path.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("found %q, expected an address such as https://cron.example.com", words.Clip(text))
	}
	web := u.Scheme == "https" || u.Scheme == "http"
	if !web || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("found %q, expected an address such as https://cron.example.com, without a path", words.Clip(text))
	}
	u.Path = ""
	u.Host = strings.ToLower(u.Host)
	return u, nil
}

// ParseNetworks reads networks and addresses with commas between them; of nothing, none.
func ParseNetworks(s string) (list []netip.Prefix, err error) {
	if s == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(s, ",") {
		text = strings.TrimSpace(text)
		p, err := netip.ParsePrefix(text)
		if ip, failed := netip.ParseAddr(text); failed == nil {
			p, err = ip.Prefix(ip.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a network; want one such as 10.0.0.0/8, an IP address, or several with commas between them", words.Clip(text))
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// CheckHost refuses a name in the Host header that is not the server's: a web page that
// points its own name at this address would be of the same origin otherwise (DNS
// rebinding). An IP address cannot be such a name.
func (s *Site) CheckHost(r *http.Request) error {
	name := hostname(r)
	if _, err := netip.ParseAddr(name); err == nil || s.answersTo(name) {
		return nil
	}
	return auth.NewProblem(auth.WrongHost, http.StatusForbidden,
		"this address does not answer to the name %q; use localhost, an IP address or the name that the host was given (--admin-url)", words.Clip(r.Host))
}

// hostname is the name or the IP address in the Host header, without port and brackets.
func hostname(r *http.Request) string {
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
}

func (s *Site) answersTo(name string) bool {
	if name == "localhost" || (s.url != nil && name == s.url.Hostname()) {
		return true
	}
	if slices.ContainsFunc(s.names, func(n string) bool { return strings.EqualFold(n, name) }) {
		return true
	}
	if s.certificate == nil || name == "" {
		return false
	}
	c := s.certificate()
	return c != nil && c.Leaf != nil && c.Leaf.VerifyHostname(name) == nil
}

// Hosts lets only requests through whose Host header is this server's.
func (s *Site) Hosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.CheckHost(r); err != nil {
			auth.Answer(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// CheckOrigin refuses what a browser sends for a page of another site, but for requests
// that only read. Programs that are no browser send neither header, and pass.
func (s *Site) CheckOrigin(r *http.Request) error {
	if err := s.cross.Check(r); err != nil || s.otherScheme(r) {
		return auth.NewProblem(auth.Forged, http.StatusForbidden,
			"a page of another site sent this request (Origin %q), and what changes something is taken from this site alone", words.Clip(r.Header.Get("Origin")))
	}
	return nil
}

// otherScheme reports whether the Origin of a request that changes something is this site's but
// for the scheme, and the browser does not say that it is the same site. The standard library's check
// knows no scheme of its own.
func (s *Site) otherScheme(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	origin := r.Header.Get("Origin")
	if reads || origin == "" || r.Header.Get("Sec-Fetch-Site") != "" || (s.url != nil && origin == s.url.String()) {
		return false
	}
	scheme, _, _ := strings.Cut(origin, "://")
	return (scheme == "https") != s.Secure(r)
}

// Here stands for the address of who came by a socket of this machine.
const Here = "here"

// Client is the address that the request came from, without the port: behind proxies
// that are believed, the first from the right that is none of them. By a socket it is Here.
func (s *Site) Client(r *http.Request) string {
	client, ok := peer(r)
	if !ok {
		return Here
	}
	if !s.IsProxy(client) {
		return client.String()
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break // what stands before it may be made up
		}
		client = next.Unmap().WithZone("")
		if !s.IsProxy(client) {
			break
		}
	}
	return client.String()
}

// peer is the other end of the connection.
func peer(r *http.Request) (netip.Addr, bool) {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	return a.Addr().Unmap().WithZone(""), err == nil
}

// IsProxy reports whether the address is that of a proxy that is believed.
func (s *Site) IsProxy(a netip.Addr) bool {
	return slices.ContainsFunc(s.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Secure reports whether the browser speaks TLS, to this server or to a proxy before it.
func (s *Site) Secure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	client, ok := peer(r)
	return ok && s.IsProxy(client) && r.Header.Get("X-Forwarded-Proto") == "https"
}

// Base is the address by which the browser reaches the server, such as
// https://cron.example.com. Call it after CheckHost.
func (s *Site) Base(r *http.Request) string {
	switch {
	case s.url != nil:
		return s.url.String()
	case s.Secure(r):
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
