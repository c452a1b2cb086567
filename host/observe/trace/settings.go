package trace

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// Settings say how the collector is reached.
type Settings struct {
	// Endpoint is the URL to which spans are sent; empty: nowhere.
	Endpoint string
	// Headers come with every request; they may have secrets.
	Headers map[string]string
	// Timeout bounds one request.
	Timeout time.Duration
	Gzip    bool
	// CA, Cert and Key are files in PEM for https; empty: the system's, and none.
	CA, Cert, Key string
	// Attributes describe this service in every span, besides what a Tracer knows.
	Attributes []Attribute
}

// Attribute is a key and its value.
type Attribute struct{ Key, Value string }

// tracesPath is where collectors take spans.
const tracesPath = "/v1/traces"

// ParseEndpoint reads the URL of a collector. Without a path it gets the usual one.
func ParseEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("%q is not the address of a collector; want http://HOST:PORT or https://HOST:PORT, as a rule with port 4318", text)
	}
	if u.User != nil {
		return "", fmt.Errorf("the address of the collector at %s has a user or a password; want a header in OTEL_EXPORTER_OTLP_HEADERS", u.Host)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q has more than a path; want http://HOST:PORT/PATH", text)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

// header is a field of a request: a token, and text without control characters.
var header = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~-]+: [^\\x00-\\x08\\x0a-\\x1f\\x7f]*$")

// environment reads OpenTelemetry's variables.
type environment struct {
	getenv   func(string) string
	problems []error
}

// of reads a variable of the exporter: that for traces alone, else that for all signals.
func (e *environment) of(name string) (value, from string) {
	for _, prefix := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		if v := e.getenv(prefix + name); v != "" {
			return v, prefix + name
		}
	}
	return "", ""
}

func (e *environment) problem(from, format string, args ...any) {
	e.problems = append(e.problems, fmt.Errorf("%s: %w", from, fmt.Errorf(format, args...)))
}

// Wanted reports whether OpenTelemetry's variables name a collector.
func Wanted(getenv func(string) string) bool {
	text, _ := (&environment{getenv: getenv}).of("ENDPOINT")
	return text != ""
}

// FromEnvironment reads OpenTelemetry's standard variables: OTEL_EXPORTER_OTLP_…, also with
// TRACES_, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, and OTEL_SDK_DISABLED and
// OTEL_TRACES_EXPORTER, which may say that nothing is to be sent. The error has all that is
// wrong with them, by variable.
func FromEnvironment(getenv func(string) string) (Settings, error) {
	e := &environment{getenv: getenv}
	s := Settings{Timeout: 10 * time.Second}
	if text, from := e.of("ENDPOINT"); text != "" {
		if !strings.Contains(from, "TRACES") { // it is that of all signals, each of which has a path below it
			text = strings.TrimSuffix(text, "/") + tracesPath
		}
		endpoint, err := ParseEndpoint(text)
		if err != nil {
			e.problem(from, "%w", err)
		}
		s.Endpoint = endpoint
	}
	if text, from := e.of("PROTOCOL"); text != "" && text != "http/protobuf" {
		e.problem(from, "%q is not spoken here; want http/protobuf, and the collector's port for it, as a rule 4318", text)
	}
	if text, from := e.of("HEADERS"); text != "" {
		s.Headers = make(map[string]string)
		for _, pair := range e.pairs(from, text) {
			if !header.MatchString(pair.Key + ": " + pair.Value) {
				e.problem(from, "%q is not the name of a header, or its value has control characters", pair.Key)
			}
			s.Headers[pair.Key] = pair.Value
		}
	}
	if text, from := e.of("TIMEOUT"); text != "" {
		ms, err := strconv.ParseUint(text, 10, 31)
		if err != nil || ms == 0 {
			e.problem(from, "%q is not a number of milliseconds", text)
		}
		s.Timeout = time.Duration(ms) * time.Millisecond
	}
	if text, from := e.of("COMPRESSION"); text != "" {
		s.Gzip = text == "gzip"
		if !s.Gzip && text != "none" {
			e.problem(from, "%q is neither gzip nor none", text)
		}
	}
	s.CA, _ = e.of("CERTIFICATE")
	s.Cert, _ = e.of("CLIENT_CERTIFICATE")
	s.Key, _ = e.of("CLIENT_KEY")
	const attributes, service = "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME"
	if text := getenv(attributes); text != "" {
		s.Attributes = e.pairs(attributes, text)
	}
	if text := getenv(service); text != "" {
		s.Attributes = slices.DeleteFunc(s.Attributes, func(a Attribute) bool { return a.Key == "service.name" })
		s.Attributes = append(s.Attributes, Attribute{"service.name", text})
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); {
	case exporter == "none", strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"):
		return Settings{Timeout: s.Timeout}, nil
	case exporter != "" && exporter != "otlp":
		e.problem("OTEL_TRACES_EXPORTER", "%q is neither otlp nor none", exporter)
	}
	return s, errors.Join(e.problems...)
}

// pairs reads key=value,key=value, with values in percent-encoding.
func (e *environment) pairs(from, text string) (list []Attribute) {
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		decoded, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || name == "" || err != nil {
			e.problem(from, "part %d of the list is not KEY=VALUE with a %% in it written as %%25", len(list)+1) // it may be a secret
			return nil
		}
		list = append(list, Attribute{name, decoded})
	}
	return list
}

// client makes the client, which follows no redirect: its headers are for the collector.
func (s Settings) client() (*http.Client, error) {
	config := tlsconfig.New()
	if s.CA != "" {
		pem, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s has no certificate in PEM", s.CA)
		}
	}
	if s.Cert != "" || s.Key != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, cmp.Or(s.Key, s.Cert))
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and …_KEY: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}
