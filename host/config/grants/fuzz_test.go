package grants

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

// Whatever a file holds, reading it ends, with a set that can be used or with problems
// that have places.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("grants: [&x {jobs: a}, *x]\n"))
	f.Add([]byte("grants:\n  - jobs: '*'\n    http: ['https://u@[::1]:99/%2e%2e/?#']\n"))
	f.Add([]byte("trust: [{jobs: a, keys: [b]}]\nkeys: {b: {file: x}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		none := func(string) ([]byte, error) { return nil, errors.New("cannot be read") }
		s, err := parse("/g.yaml", data, none)
		var e *Error
		if err != nil {
			if !errors.As(err, &e) || len(e.Problems) == 0 || s != nil {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, job := range []string{"a", "report", "sync-1"} {
			g := s.For(job, Module{})
			for _, h := range g.HTTP {
				if h.Port == 0 || !strings.HasPrefix(h.Path, "/") || h.Host == "" || climbs(h.Path) {
					t.Errorf("%+v", h)
				}
				// A grant covers itself.
				if !strings.HasPrefix(h.Host, "*.") {
					u, err := url.Parse(h.String())
					if err != nil {
						t.Fatalf("%s: %v", h.String(), err)
					}
					if _, err := g.AllowHTTP(h.methodsOf()[0], u); err != nil {
						t.Errorf("%s: %v", h.String(), err)
					}
				}
			}
			for _, n := range g.Net {
				if _, err := g.AllowNet(n.Scheme, n.Host, n.Port); err != nil {
					t.Errorf("%s: %v", n.String(), err)
				}
			}
		}
		s.Explain("", nil)
		s.Warnings([]string{"a"})
	})
}

// No path gets out of the one that is granted, however a server reads it.
func FuzzPath(f *testing.F) {
	for _, p := range []string{"/v1/../x", "/v1/%2e%2e/x", "/v1/%252e./x", "/v1/..%2fx", `/v1/..\x`, "/v1/a;b/..;c/x", "/v1/a"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") || !pathCovers("/v1/", path) {
			return
		}
		for range 2 {
			if !strings.HasPrefix(cleaned(path), "/v1") {
				t.Fatalf("%q leads to %q", path, cleaned(path))
			}
			plain, err := url.PathUnescape(path)
			if err != nil {
				return
			}
			path = plain
		}
	})
}

// cleaned takes \ for /, and leaves out what comes after a ; in a segment.
func cleaned(path string) string {
	var list []string
	for segment := range strings.SplitSeq(strings.ReplaceAll(path, `\`, "/"), "/") {
		segment, _, _ = strings.Cut(segment, ";")
		switch {
		case segment == ".." && len(list) > 0:
			list = list[:len(list)-1]
		case segment != "" && segment != "." && segment != "..":
			list = append(list, segment)
		}
	}
	return "/" + strings.Join(list, "/")
}
