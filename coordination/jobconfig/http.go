package jobconfig

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HTTPRequest is what a job of type HTTP sends for each item. URL, Headers and Body may have
// names in braces; see [HTTPNames].
type HTTPRequest struct {
	// URL is absolute. "http.uri", ElasticJob's key
	URL string
	// Method in capitals; empty is GET, or POST if there is a body. "http.method"
	Method string
	// Body is sent as it is. "http.data"
	Body string
	// ContentType of the body; empty is application/json if the body begins with { or [, and text/plain
	// else. "http.content.type"
	ContentType string
	// Headers are texts such as "Accept: text/plain". "wasm.http.headers", a JSON list
	Headers []string
	// Expect are the HTTP statuses that mean success, such as 200-299,304; empty is 200-299. "wasm.http.expect"
	Expect string
	// RetryAfter is the longest Retry-After of a 429 or 503 that is honoured; 0: none. "wasm.http.retryAfter"
	RetryAfter time.Duration
}

// ElasticJob's keys of a job of type HTTP.
const (
	PropHTTPURI         = "http.uri"
	PropHTTPMethod      = "http.method"
	PropHTTPData        = "http.data"
	PropHTTPContentType = "http.content.type"
	propHTTPHeaders     = "wasm.http.headers"
)

// Bounds of a request.
const (
	maxHTTPURL     = 8 << 10
	maxHTTPBody    = 64 << 10
	maxHTTPHeaders = 50
	maxHTTPHeader  = 4 << 10
)

// Defaults returns the request with defaults for missing values.
func (r HTTPRequest) Defaults() HTTPRequest {
	method := "GET"
	if r.Body != "" {
		method = "POST"
	}
	r.Method = cmp.Or(r.Method, method)
	if body := strings.TrimSpace(r.Body); body != "" && r.ContentType == "" {
		r.ContentType = "text/plain; charset=utf-8"
		if body[0] == '{' || body[0] == '[' {
			r.ContentType = "application/json"
		}
	}
	r.Expect = cmp.Or(r.Expect, "200-299")
	return r
}

// problems yields what is wrong with the request as a whole, by property.
func (r HTTPRequest) problems() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if r.URL == "" && !yield(PropHTTPURI, errors.New("is missing, expected a URL such as https://api.example.com/run?item={item}")) {
			return
		}
		if err := CheckHTTPHeaders(r.Headers); err != nil {
			yield(propHTTPHeaders, err)
		}
	}
}

// HTTPNames are the names that may be used in braces in a request's URL, headers and body.
func HTTPNames() []string {
	return []string{"job", "item", "total", "itemParameter", "jobParameter", "instant", "run"}
}

// named finds names in braces. Double braces, as in {{secret:NAME}}, are replaced by the host.
var named = regexp.MustCompile(`\{\{[^}]*\}\}|\{([A-Za-z]+)\}`)

// checkNames refuses unknown names in braces.
func checkNames(text string) error {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if m[1] != "" && !slices.Contains(HTTPNames(), m[1]) {
			return fmt.Errorf("found {%s}, expected {%s}", Clip(m[1]), strings.Join(HTTPNames(), "}, {"))
		}
	}
	if strings.Count(text, "{{") != strings.Count(text, "}}") {
		return errors.New("found {{ without }}, expected {{secret:NAME}}")
	}
	return nil
}

func httpURL(text string) (string, error) {
	if len(text) > maxHTTPURL {
		return "", fmt.Errorf("found %d bytes, expected at most %d", len(text), maxHTTPURL)
	}
	if err := checkNames(text); err != nil {
		return "", err
	}
	plain := named.ReplaceAllString(text, "x")
	u, err := url.Parse(plain)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		return "", fmt.Errorf("found %q, expected a URL such as https://api.example.com/run?item={item}", Clip(text))
	case u.User != nil:
		return "", errors.New("found a user in the URL, expected a header such as Authorization: Bearer {{secret:NAME}}")
	case strings.ContainsAny(text, " \t\r\n\x00") || u.Fragment != "":
		return "", fmt.Errorf("found %q, expected a URL without blanks and without #", Clip(text))
	case strings.Contains(text, "{{"):
		return "", errors.New("found a secret in the URL, expected it in a header")
	}
	return text, nil
}

var httpToken = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}$")

func httpMethod(text string) (string, error) {
	if !httpToken.MatchString(text) {
		return "", fmt.Errorf("found %q, expected a method such as GET or POST", Clip(text))
	}
	return strings.ToUpper(text), nil
}

func httpBody(text string) (string, error) {
	switch {
	case len(text) > maxHTTPBody:
		return "", fmt.Errorf("found %d bytes, expected at most %d", len(text), maxHTTPBody)
	case strings.ContainsRune(text, 0):
		return "", errors.New("found a NUL character, expected a text without one")
	}
	return text, nil
}

func httpLine(text string) (string, error) {
	if len(text) > maxHTTPHeader || strings.ContainsAny(text, "\r\n\x00") {
		return "", fmt.Errorf("found %q, expected one line of at most %d bytes", Clip(text), maxHTTPHeader)
	}
	return text, nil
}

// CheckHTTPHeaders refuses what are no headers of a request.
func CheckHTTPHeaders(headers []string) error {
	if len(headers) > maxHTTPHeaders {
		return fmt.Errorf("found %d headers, expected at most %d", len(headers), maxHTTPHeaders)
	}
	for _, h := range headers {
		name, value, ok := strings.Cut(h, ":")
		_, err := httpLine(value)
		if !ok || !httpToken.MatchString(strings.TrimSpace(name)) || err != nil {
			return fmt.Errorf("found %q, expected a header such as \"Accept: text/plain\"", Clip(h))
		}
		if err := checkNames(value); err != nil {
			return err
		}
	}
	return nil
}

// httpExpect reads statuses and ranges of them.
func httpExpect(text string) (string, error) {
	var parts []string
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(strings.TrimSpace(part), "-")
		from, err1 := strconv.Atoi(low)
		to, err2 := from, error(nil)
		if ranged {
			to, err2 = strconv.Atoi(high)
		}
		if err1 != nil || err2 != nil || from < 100 || to > 599 || from > to || len(parts) == 20 {
			return "", fmt.Errorf("found %q, expected statuses from 100 to 599 such as 200-299,304", Clip(text))
		}
		parts = append(parts, strings.TrimSpace(part))
	}
	return strings.Join(parts, ","), nil
}
