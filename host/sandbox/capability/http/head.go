package http

import (
	"fmt"
	"net"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/internal/address"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// head is the first part of a request.
type head struct {
	method  string
	url     *url.URL // its host is in lower case, its default port is left out
	port    uint16
	headers []header // names as net/textproto writes them
	length  int64    // of Content-Length; -1: none
}

type header struct{ name, value string }

// origin names the server in messages.
func (h *head) origin() string { return h.url.Scheme + "://" + h.url.Host }

// address is the host and the port, for counts.
func (h *head) address() string {
	return net.JoinHostPort(h.url.Hostname(), strconv.Itoa(int(h.port)))
}

func invalid(format string, args ...any) error {
	return capability.Fail(abi.ErrInvalid, format, args...)
}

// parse reads a head: a list of method, URL, and a name and a value for each header. It refuses everything that
// servers or proxies might interpret differently from the check against the grant.
func parse(b []byte) (*head, error) {
	if len(b) > abi.MaxHead {
		return nil, capability.Fail(abi.ErrTooLarge, "the head has %d bytes, at most %d are allowed", len(b), abi.MaxHead)
	}
	list, err := abi.ParseList(b)
	if err != nil {
		return nil, invalid("the head: %v", err)
	}
	if len(list) < 2 || len(list)%2 != 0 {
		return nil, invalid("the head is a list of %d elements; it has a method, a URL, and a name and a value for each header", len(list))
	}
	h := &head{method: list[0], length: -1}
	if !isToken(h.method) {
		return nil, invalid("the method %q is no token", words.Clip(h.method))
	}
	if h.method == "CONNECT" {
		return nil, invalid("CONNECT makes tunnels, which are not requests: use job_v1_net")
	}
	if h.url, h.port, err = parseURL(list[1]); err != nil {
		return nil, err
	}
	for pair := range slices.Chunk(list[2:], 2) {
		if err := h.add(pair[0], pair[1]); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// add checks and adds a header.
func (h *head) add(name, value string) error {
	if !isToken(name) {
		return invalid("the header name %q is no token", words.Clip(name))
	}
	if strings.ContainsFunc(value, func(c rune) bool { return (c < ' ' && c != '\t') || c == 0x7f }) {
		return invalid("the value of the header %s has a control character", name)
	}
	name = textproto.CanonicalMIMEHeaderKey(name)
	if name == "Content-Length" {
		n, err := strconv.ParseUint(value, 10, 63)
		if err != nil || strings.TrimLeft(value, "0123456789") != "" {
			return invalid("Content-Length is %q, which is no number of bytes", words.Clip(value))
		}
		if h.length >= 0 {
			return invalid("Content-Length is there twice")
		}
		h.length = int64(n)
		return nil
	}
	// Servers that hand headers on as variables read X_Y as X-Y.
	if ofHost(textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))) {
		return invalid("the header %s is set by the host: leave it out", name)
	}
	h.headers = append(h.headers, header{name, value})
	return nil
}

// ofHost reports whether a header concerns the connection, or the length of the body: only the host sets those.
func ofHost(name string) bool {
	switch name {
	case "Content-Length", "Host", "Connection", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Expect", "Http2-Settings":
		return true
	}
	return strings.HasPrefix(name, "Proxy-")
}

// parseURL reads an absolute URL of an unambiguous form.
func parseURL(text string) (*url.URL, uint16, error) {
	for _, c := range []byte(text) {
		if c <= ' ' || c == 0x7f || c == '\\' {
			return nil, 0, invalid("the URL %q has the character %q: write it as %%%02X", words.Clip(text), c, c)
		}
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, 0, invalid("the URL %q: %v", words.Clip(text), cause(err))
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, 0, invalid("the URL %q begins with neither http:// nor https://", words.Clip(text))
	}
	_, rest, _ := strings.Cut(text, "://")
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	if u.User != nil || strings.Contains(authority, "@") {
		return nil, 0, invalid("the URL of %s has user info: use the header Authorization", u.Host)
	}
	if u.Opaque != "" || u.Host == "" {
		return nil, 0, invalid("the URL %q names no host", words.Clip(text))
	}
	port, err := portOf(u)
	if err != nil {
		return nil, 0, err
	}
	host, err := address.Host(u.Hostname())
	if err != nil {
		return nil, 0, invalid("the URL: %v", err)
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c > '~' }) {
		return nil, 0, invalid("the URL of %s is not in ASCII: write other characters as %%XX", host)
	}
	if err := checkPath(u.Path); err != nil {
		return nil, 0, err
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	u.Host = host
	if port != defaultPort(u.Scheme) {
		u.Host = host + ":" + strconv.Itoa(int(port))
	}
	if u.Path == "" {
		u.Path = "/"
	}
	u.Fragment, u.RawFragment = "", "" // servers do not get it
	return u, port, nil
}

func defaultPort(scheme string) uint16 {
	if scheme == "https" {
		return 443
	}
	return 80
}

func portOf(u *url.URL) (uint16, error) {
	if strings.HasSuffix(u.Host, ":") {
		return 0, invalid("the URL of %s has an empty port", u.Host)
	}
	if u.Port() == "" {
		return defaultPort(u.Scheme), nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 {
		return 0, invalid("the port %s is none", words.Clip(u.Port()))
	}
	return uint16(port), nil
}

// checkPath refuses paths that lead upwards, in every form that some server accepts: a grant for /a/ must not
// cover /a/../b.
func checkPath(path string) error {
	if path != "" && path[0] != '/' {
		return invalid("the path %q does not begin with a slash", words.Clip(path))
	}
	for range 3 { // some decode more than once
		for _, segment := range strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' }) {
			if plain, _, _ := strings.Cut(segment, ";"); plain == "." || plain == ".." {
				return invalid("the path %q has the segment %q: write where it leads", words.Clip(path), words.Clip(segment))
			}
		}
		decoded, err := url.PathUnescape(path)
		if err != nil || decoded == path {
			break
		}
		path = decoded
	}
	return nil
}

// isToken is RFC 9110, 5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		letter := (c|0x20 >= 'a' && c|0x20 <= 'z') || (c >= '0' && c <= '9')
		if !letter && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// cause is an error without the URL, which is in the message already.
func cause(err error) error {
	if u, ok := err.(*url.Error); ok {
		return fmt.Errorf("%s: %w", u.Op, u.Err)
	}
	return err
}
