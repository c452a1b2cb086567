package http

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability/capabilitytest"
)

// echoed is a secret that servers send back. Its letters are as net/http wants them in the name
// of a header.
const echoed = "s3cr3t-T0k3n-4f9aB2c7D1"

// shows reports whether a text has eight bytes of the secret after each other, in letters of any
// case, as they are, in base64, or in a URL.
func shows(text string) string {
	text = strings.ToLower(text)
	for _, form := range []string{echoed, base64.StdEncoding.EncodeToString([]byte(echoed)), url.QueryEscape(echoed)} {
		for i := 0; i+8 <= len(form); i++ {
			if part := strings.ToLower(form[i : i+8]); strings.Contains(text, part) {
				return part
			}
		}
	}
	return ""
}

// hostile asks a server for something, with the secret in a header, and returns all that there is
// to read of it: by the guest, but for the body, and of the call in the trace and the counts.
func hostile(t *testing.T, rule grants.HTTP, times int) string {
	t.Helper()
	rule.Host, rule.Secrets = "api.test", []string{"TOKEN"}
	here := &capabilitytest.Names{Lookup: func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} }}
	g := begin(t, Options{resolver: here.Resolver(), Secret: func(string) (string, error) { return echoed, nil }}, &grants.Grant{HTTP: []grants.HTTP{rule}})
	g.Run.Redact = grants.NewRedactor(grants.Named{Name: "TOKEN", Value: echoed}).Redact
	reported := record(g)
	var said strings.Builder
	for range times {
		h := g.Open("GET", rule.String(), "Authorization", "Bearer {{secret:TOKEN}}")
		g.Finish(h)
		if g.Status(h) > 0 {
			fmt.Fprintln(&said, g.Headers(h))
			for b := make([]byte, 4096); g.Read(h, b) > 0; {
			}
		}
		fmt.Fprintln(&said, g.Error(h), g.Error(0))
		g.CloseHandle(h)
		call, span := reported.next(t)
		text, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&said, span, string(text))
	}
	text, err := json.Marshal(g.Run.Usage.All())
	if err != nil {
		t.Fatal(err)
	}
	return said.String() + string(text)
}

// TestEchoes has servers that send the secret back wherever a response has room for it.
//
// It kills the mutant "secret in an error of a request".
// It kills the mutant "secret in the trace of a request".
func TestEchoes(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Name, z.Comment = echoed, echoed
	if _, err := z.Write([]byte(echoed)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunked = ok + "Transfer-Encoding: chunked\r\n"
	forms := map[string]string{"plain": echoed, "Bearer": "Bearer " + echoed, "base64": base64.StdEncoding.EncodeToString([]byte("user:" + echoed)),
		"percent": url.QueryEscape(echoed + "/ "), "upper": strings.ToUpper(echoed), "begin": echoed[:11], "end": echoed[9:],
		"at the bound": strings.Repeat("x", maxReason-60) + strings.Repeat(" "+echoed, 5), "with a quote": `"` + echoed + `\`}
	for place, response := range map[string]string{
		"all of it":                 "SECRET",
		"first line":                "SECRET\r\n\r\n",
		"protocol":                  "HTTP/SECRET 200 OK\r\n\r\n",
		"status code":               "HTTP/1.1 SECRET OK\r\n\r\n",
		"reason phrase":             "HTTP/1.1 401 SECRET\r\nContent-Length: 0\r\n\r\n",
		"name":                      ok + "X-SECRET: y\r\nContent-Length: 0\r\n\r\n",
		"name that is none":         ok + "X SECRET y\r\nContent-Length: 0\r\n\r\n",
		"name with a blank":         ok + "X SECRET : y\r\nContent-Length: 0\r\n\r\n",
		"value":                     ok + "X: SECRET\r\nContent-Length: 0\r\n\r\n",
		"value that is folded":      ok + "X: y\r\n SECRET\r\nContent-Length: 0\r\n\r\n",
		"first header that is none": ok + " SECRET: y\r\n\r\n",
		"value with a control":      ok + "X: \x01SECRET\x00\r\nContent-Length: 0\r\n\r\n",
		"location":                  "HTTP/1.1 302 Found\r\nLocation: https://SECRET.example.com/?SECRET#SECRET\r\nContent-Length: 0\r\n\r\n",
		"cookie":                    ok + "Set-Cookie: SECRET=SECRET; Path=/SECRET\r\nContent-Length: 0\r\n\r\n",
		"challenge":                 "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"SECRET\"\r\nContent-Length: 0\r\n\r\n",
		"length":                    ok + "Content-Length: SECRET\r\n\r\n",
		"two lengths":               ok + "Content-Length: 1\r\nContent-Length: SECRET\r\n\r\n",
		"transfer encoding":         ok + "Transfer-Encoding: SECRET\r\n\r\n",
		"size of a chunk":           chunked + "\r\nSECRET\r\n",
		"extension of a chunk":      chunked + "\r\n2;SECRET=\"SECRET\"\r\nok\r\n0\r\n\r\n",
		"end of a chunk":            chunked + "\r\n2\r\nokSECRET\r\n0\r\n\r\n",
		"trailer":                   chunked + "Trailer: X-SECRET\r\n\r\n0\r\nX-SECRET: SECRET\r\n\r\n",
		"trailer that is none":      chunked + "Trailer: X\r\n\r\n0\r\nSECRET\r\n\r\n",
		"trailer that may not be":   chunked + "Trailer: Content-Length, SECRET, SECRET x\r\n\r\n0\r\n\r\n",
		"informational":             "HTTP/1.1 103 SECRET\r\nLink: SECRET\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n",
		"many informational":        strings.Repeat("HTTP/1.1 103 SECRET\r\nLink: SECRET\r\n\r\n", 20),
		"another protocol":          "HTTP/1.1 101 SECRET\r\nConnection: Upgrade\r\nUpgrade: SECRET\r\n\r\nSECRET",
		"content encoding":          ok + "Content-Encoding: SECRET\r\nContent-Length: 0\r\n\r\n",
		"compressed, and is not":    ok + "Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\nSECRET",
		"compressed":                ok + "Content-Encoding: gzip\r\n\r\n" + zipped.String(),
		"body":                      ok + "Content-Length: 1000\r\n\r\nSECRET",
		"second response":           ok + "Content-Length: 0\r\n\r\nHTTP/1.1 200 SECRET\r\nX: SECRET\r\nContent-Length: 0\r\n\r\n",
		"after the response":        ok + "Content-Length: 0\r\n\r\nSECRET",
	} {
		for form, secret := range forms {
			text := strings.ReplaceAll(response, "SECRET", secret)
			server := listen(t, func(c net.Conn) {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					fmt.Fprint(c, text)
				}
			})
			said := hostile(t, granted(t, server), 2)
			if part := shows(said); part != "" {
				t.Errorf("%s, %s: %q is in %q", place, form, part, said)
			}
			if form == "plain" && strings.HasPrefix(place, "first line") && !strings.Contains(said, "[secret TOKEN]") {
				t.Errorf("%s: the error does not say what came: %q", place, said)
			}
		}
	}
}

// certified is the certificate of a server that has the secret in all of its names.
func certified(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := pkix.Name{CommonName: echoed, Organization: []string{echoed}}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: name,
		DNSNames: []string{echoed + ".example.com"}, NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{Subject: name}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestEchoesOfTLS has servers that have the secret in their certificate, and that answer with it
// in the place of TLS.
func TestEchoesOfTLS(t *testing.T) {
	t.Parallel()
	config := &tls.Config{Certificates: []tls.Certificate{certified(t)}}
	for place, x := range map[string]struct {
		reason string
		answer func(net.Conn)
	}{
		"certificate": {"certificate is valid for [secret TOKEN]", func(c net.Conn) { _ = tls.Server(c, config).HandshakeContext(t.Context()) }},
		"no TLS":      {"TLS", func(c net.Conn) { fmt.Fprint(c, echoed) }},
		"HTTP":        {"TLS", func(c net.Conn) { fmt.Fprintf(c, "HTTP/1.1 400 %s\r\nX: %s\r\n\r\n", echoed, echoed) }},
	} {
		server := listen(t, func(c net.Conn) { defer c.Close(); x.answer(c) })
		said := hostile(t, granted(t, "https"+strings.TrimPrefix(server, "http")), 1)
		if part := shows(said); part != "" || !strings.Contains(said, x.reason) {
			t.Errorf("%s: %q is in %q", place, part, said)
		}
	}
}
