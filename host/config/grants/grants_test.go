package grants

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/test/schemas"
)

// publicKey is that of host/config/signature/testdata.
const publicKey = "RWQstpHh+qxJIJqtWqk9JviMjZ0Z/LgruMp5nGSBUnV5NkE/MBENguTM"

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

const full = `
keys:
  release: ` + publicKey + `
grants:
  - jobs: [report, "sync-*"]
    http:
      - url: https://API.example.com./v1/
        methods: [get, POST]
        private: true
        secrets: [API_TOKEN]
        ca: ca.pem
      - http://*.example.org:8080
    net:
      - {to: "tcp://db.internal:5432", private: true}
      - tls://[2001:DB8::1]:6380
    dirs:
      - {host: ./data, guest: /data}
      - {host: /srv/out, guest: /out, write: true, quota: 100MiB, files: 1000}
    kv: true
    secrets:
      API_TOKEN: {file: run/token}
      X: {env: NAME, readable: true}
      Y: {dir: /run/secrets}
    env: {TZ: Europe/Berlin}
    config: hello
    quotas: {requests: 10, inFlight: 2, connections: 3, received: 1MiB, sent: 2MiB, connect: 1s, firstByte: 2m}
  - jobs: "*"
    quotas: {requests: 1000}
    env: {TZ: UTC, LANG: C}
  - jobs: report
    digests: [` + digest + `]
    http: [https://only.example]
  - jobs: report
    signers: release
    kv: true
trust:
  - jobs: "pay-*"
    keys: [release]
`

// parse reads one file that is in memory; open reads those that it names.
func parse(name string, data []byte, open func(string) ([]byte, error)) (*Set, error) {
	r := &reader{open: open, contents: sha256.New()}
	r.note(name, data)
	r.parse(name, data)
	return r.set()
}

func parsed(t *testing.T, text string) *Set {
	t.Helper()
	s, err := parse("/etc/wasmjob/grants.yaml", []byte(text), readFile)
	if err != nil {
		t.Fatal(err)
	}
	schemas.New(t, Schema()).Check(t, text, nil)
	return s
}

func TestFullFile(t *testing.T) {
	t.Parallel()
	s := parsed(t, full)
	g := s.For("report", Module{})
	want := Grant{
		HTTP: []HTTP{
			{Scheme: "https", Host: "api.example.com", Port: 443, Path: "/v1/", Methods: []string{"GET", "POST"}, Private: true, Secrets: []string{"API_TOKEN"}, CA: "/etc/wasmjob/ca.pem", place: "grants.yaml:7"},
			{Scheme: "http", Host: "*.example.org", Port: 8080, Path: "/", place: "grants.yaml:12"},
		},
		Net: []Net{
			{Scheme: "tcp", Host: "db.internal", Port: 5432, Private: true, place: "grants.yaml:14"},
			{Scheme: "tls", Host: "2001:db8::1", Port: 6380, place: "grants.yaml:15"},
		},
		Dirs: []Dir{
			{Host: "/etc/wasmjob/data", Guest: "/data", place: "grants.yaml:17"},
			{Host: "/srv/out", Guest: "/out", Write: true, Bytes: 100 << 20, Files: 1000, place: "grants.yaml:18"},
		},
		KV: true,
		Secrets: map[string]Secret{
			"API_TOKEN": {File: "/etc/wasmjob/run/token"}, "X": {Env: "NAME", Readable: true}, "Y": {File: "/run/secrets/Y"},
		},
		Env:    map[string]string{"TZ": "Europe/Berlin", "LANG": "C"},
		Config: []byte("hello"),
		Quotas: Quotas{1000, 2, 3, 1 << 20, 2 << 20, time.Second, 2 * time.Minute},
	}
	got := *g
	got.job, got.sources, got.withheld = "", nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nexpected\n%+v", got, want)
	}
	if g := s.For("other", Module{}); len(g.HTTP) > 0 || g.Env["TZ"] != "UTC" || g.Quotas.Requests != 1000 || g.KV {
		t.Errorf("of another job: %+v", g)
	}
	if list := s.For("sync-x", Module{}).Modules(); !slices.Contains(list, abi.ModuleNet) {
		t.Errorf("of sync-x: %v", list)
	}
}

func TestConditions(t *testing.T) {
	t.Parallel()
	s := parsed(t, full)
	allows := func(m Module) bool {
		_, err := s.For("report", m).AllowHTTP("GET", mustURL(t, "https://only.example/x"))
		return err == nil
	}
	if allows(Module{}) || allows(Module{Digest: strings.Repeat("0", 64)}) || !allows(Module{Digest: digest}) {
		t.Error("the digest is not what decides")
	}
	_, err := s.For("report", Module{}).AllowHTTP("GET", mustURL(t, "https://only.example/x"))
	if want := `http: https://only.example is not granted to job "report": grants.yaml:30 has it, but is for modules with another digest`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	only := parsed(t, "keys: {release: "+publicKey+"}\ngrants: [{jobs: a, signers: [release], kv: true}]\n")
	if only.For("a", Module{}).KV || only.For("a", Module{Signer: "ci"}).KV || !only.For("a", Module{Signer: "release"}).KV {
		t.Error("the signer is not what decides")
	}
	if got := Difference([]string{"job_v1_kv"}, only.For("a", Module{})); len(got) != 1 || !strings.Contains(got[0], "signed by release") {
		t.Errorf("the difference: %q", got)
	}
}

func TestNothingIsGrantedByDefault(t *testing.T) {
	t.Parallel()
	var none *Set
	for _, s := range []*Set{none, parsed(t, "grants: []")} {
		g := s.For("a", Module{})
		if len(g.Modules()) > 0 || len(g.Dirs) > 0 || g.Config != nil {
			t.Errorf("%+v", g)
		}
		if _, err := g.AllowHTTP("GET", mustURL(t, "https://a.example")); err == nil {
			t.Error("a request is let through")
		}
		if s.TrustFor("a") != nil || len(s.Warnings(nil)) > 0 || len(s.Explain("", nil)) > 0 {
			t.Error("there is something")
		}
	}
}

func TestTrust(t *testing.T) {
	t.Parallel()
	k, err := signature.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := signature.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s := parsed(t, fmt.Sprintf("keys: {release: %s, ci: %s}\ntrust:\n  - {jobs: pay-test, keys: [ci, release]}\n  - {jobs: pay-*, keys: [release]}\n",
		k.Public(""), other.Public("")))
	module := []byte("a module")
	sign := func(p signature.Private, module string) []byte {
		sig, err := p.Sign([]byte(module), "m.wasm", time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	if n := len(s.TrustFor("pay-test")); n != 2 {
		t.Errorf("%d keys for pay-test", n)
	}
	if keys := s.TrustFor("pay-x"); len(keys) != 1 || keys[0].Name != "release" || s.TrustFor("report") != nil {
		t.Errorf("keys of pay-x: %v", keys)
	}
	for name, c := range map[string]struct {
		job    string
		sig    []byte
		signer string
		err    error
	}{
		"good":                        {"pay-x", sign(k, "a module"), "release", nil},
		"stripped":                    {"pay-x", nil, "", signature.ErrMissing},
		"of another file":             {"pay-x", sign(k, "another"), "", signature.ErrMismatch},
		"by another key":              {"pay-x", sign(other, "a module"), "", signature.ErrUnknownKey},
		"by a key for this job":       {"pay-test", sign(other, "a module"), "ci", nil},
		"not demanded":                {"report", nil, "", nil},
		"not demanded and good":       {"report", sign(other, "a module"), "ci", nil},
		"not demanded and of another": {"report", sign(other, "another"), "", nil},
		"not demanded and malformed":  {"report", []byte("x"), "", nil},
	} {
		signer, err := s.Signer(c.job, module, c.sig)
		if signer != c.signer || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", name, signer, err)
		}
	}
	if _, err := s.Signer("pay-x", []byte("changed"), sign(k, "a module")); !errors.Is(err, signature.ErrMismatch) || !strings.Contains(err.Error(), `grants.yaml:4 demands one by release for job "pay-x"`) {
		t.Errorf("changed after it was signed: %v", err)
	}
}

// TestTrustInProcess: the entry that decides about a job says whether its signed modules may
// run in the host's process, and no other does.
func TestTrustInProcess(t *testing.T) {
	t.Parallel()
	s := parsed(t, fmt.Sprintf("keys: {release: %s, ci: %[1]s}\ntrust:\n  - {jobs: pay-test, keys: [ci]}\n  - {jobs: pay-*, keys: [release], inProcess: true}\n  - {jobs: report, keys: [release], inProcess: false}\n", publicKey))
	for _, c := range []struct {
		job, signer string
		want        bool
	}{
		{"pay-x", "release", true}, {"pay-x", "ci", false}, {"pay-x", "", false},
		{"pay-test", "release", false}, {"pay-test", "ci", false}, // an entry before decides
		{"report", "release", false}, {"other", "release", false}, {"other", "", false},
	} {
		if got := s.InProcess(c.job, c.signer); got != c.want {
			t.Errorf("%s signed by %q: %t", c.job, c.signer, got)
		}
	}
	if (*Set)(nil).InProcess("pay-x", "release") {
		t.Error("no grants allow it")
	}
	for job, want := range map[string]string{"pay-x": "modules must be signed by release, and may run in the host's own process", "report": "modules must be signed by release"} {
		if lines := s.Explain(job, nil); len(lines) != 1 || lines[0].What != want {
			t.Errorf("%s: %+v", job, lines)
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	editor := schemas.New(t, Schema())
	entry := func(text string) string { return "grants:\n  - jobs: a\n    " + text }
	for text, want := range map[string]string{
		"":                               "the file is empty, expected the field grants",
		"# nothing\n":                    "the file is empty",
		"- a":                            "g.yaml:1:1: found a list, expected the fields grants, keys and trust",
		"grants: []\n---\ngrants: []":    "found 2 YAML documents, expected one",
		"grants:\n  - jobs: [a":          "not YAML: ",
		"grants:\n\t- jobs: a":           "not YAML: ",
		"grant: []":                      `g.yaml:1:1: unknown field "grant"; did you mean "grants"?`,
		"grants: 1":                      `g.yaml:1:9: grants: found "1", expected a list`,
		"grants:":                        `"grants" has no value, expected one`,
		"grants: []\ngrants: []":         `"grants" is given twice, first in line 1`,
		"grants: [x]":                    `found "x", expected a mapping`,
		"grants: [{kv: true}]":           "g.yaml:1:10: jobs: is missing",
		"grants: [{jobs: []}]":           "jobs: found an empty list",
		"grants: [{jobs: [{}]}]":         "jobs: found a mapping, expected a text",
		"grants: [{jobs: 'a/b'}]":        `jobs: found "a/b", expected one job's name or one pattern`,
		"grants: [{jobs: '[a'}]":         `jobs: found "[a"`,
		"grants: [&x {jobs: a}, *x]":     "found an alias (*)",
		"grants: [{<<: {jobs: a}}]":      "mappings cannot be merged",
		"grants: [!x {jobs: a}]":         "found the tag !x",
		entry("htp: []"):                 `g.yaml:3:5: unknown field "htp"; did you mean "http"?`,
		entry("kv: 1"):                   `g.yaml:3:9: kv: found "1", expected true or false`,
		entry("digests: abc"):            `digests: found "abc", expected the SHA-256`,
		entry("signers: me"):             `signers: there is no key "me"`,
		entry("http: [{methods: GET}]"):  "http.url: is missing",
		entry("http: [{url: []}]"):       "http.url: found a list, expected a URL",
		entry("http: [ftp://a]"):         `http.url: found "ftp://a", expected http:// or https://`,
		entry("http: [api.example.com]"): `expected http:// or https://`,
		entry("http: ['https://']"):      "expected a URL such as",
		entry("http: ['https://u:geheim@a.example']"):                                               `found "https://…@a.example", expected a URL without user and password`,
		entry("http: ['https://a.example/?x=1']"):                                                   "expected a URL without ? and #",
		entry("http: ['https://a.example/#']"):                                                      "expected a URL without ? and #",
		entry("http: ['https://a.example/v1/../x']"):                                                "expected a path without ..",
		entry("http: ['https://a.example/%2e%2E/x']"):                                               "expected a path without ..",
		entry("http: ['https://a.example/v1//x']"):                                                  "expected a path without ..",
		entry("http: ['https://a.example/*']"):                                                      "expected a path without ..",
		entry("http: ['https://a.example:0']"):                                                      "expected a port from 1 to 65535",
		entry("http: ['https://a.example:99999']"):                                                  "expected a port from 1 to 65535",
		entry("http: ['https://a.example:']"):                                                       "expected a port from 1 to 65535",
		entry("http: ['https://*']"):                                                                "expected the name of a host",
		entry("http: ['https://a.*.example']"):                                                      "expected the name of a host",
		entry("http: ['https://*.10.0.0.1']"):                                                       "expected the name of a host",
		entry("http: ['https://127.1']"):                                                            "expected the name of a host",
		entry("http: ['https://[fe80::1%25eth0]']"):                                                 "expected the name of a host",
		entry("http: ['https://münchen.example']"):                                                  "punycode",
		entry("http: [{url: https://a.example, x: 1}]"):                                             `http: unknown field "x", expected one of url, methods`,
		entry("http: [{url: https://a, methods: 'G T'}]"):                                           `http.methods: found "G T", expected a method`,
		entry("http: [{url: https://a, methods: [GET, PSOT]}]"):                                     `g.yaml:3:44: http.methods: found "PSOT", expected a method such as GET or POST; did you mean "POST"?`,
		entry("http: [{url: https://a, methods: connect}]"):                                         `http.methods: found "connect", expected a method such as GET or POST`,
		entry("http: [{url: https://a, methods: []}]"):                                              "http.methods: found an empty list",
		entry("http: [{url: https://a, secrets: [T]}]"):                                             `http.secrets: there is no secret "T"`,
		entry("http: [{url: http://a, ca: x}]"):                                                     "http.ca: is of use with an https URL only",
		entry("http: [{url: https://a, cert: x}]"):                                                  "found one of cert and key, expected both",
		entry("net: [db:5432]"):                                                                     "net.to: found \"db:5432\", expected tcp://HOST:PORT",
		entry("net: ['tcp://db']"):                                                                  "expected a port from 1 to 65535 after the host",
		entry("net: ['tcp://*.db:1']"):                                                              "expected the name of a host",
		entry("net: ['tcp://db:1/x']"):                                                              "expected tcp://HOST:PORT",
		entry("net: [{to: 'tcp://db:1', ca: x}]"):                                                   "net.ca: is of use with tls:// only",
		entry("net: [{private: true}]"):                                                             "net.to: is missing",
		entry("dirs: [{host: x}]"):                                                                  "dirs.guest: is missing",
		entry("dirs: [{host: x, guest: y}]"):                                                        `dirs.guest: found "y", expected an absolute path`,
		entry("dirs: [{host: x, guest: /a/../b}]"):                                                  `dirs.guest: found "/a/../b"`,
		entry("dirs: [{host: x, guest: /a, quota: 1MB}]"):                                           "dirs.quota: is of use with",
		entry("dirs: [{host: x, guest: /a, write: true, quota: 0}]"):                                `dirs.quota: found "0", expected a size`,
		entry("dirs: [{host: x, guest: /a, write: true, files: many}]"):                             `dirs.files: found "many", expected a whole number`,
		entry("dirs: [{host: x, guest: /a}, {host: y, guest: /a}]"):                                 "dirs.guest: /a is given twice",
		entry("secrets: {T: geheim}"):                                                               "secrets.T: found a text, expected {file: PATH}",
		entry("secrets: {T: {file: a, env: B}}"):                                                    "secrets.T: found 2 of file, dir and env, expected one",
		entry("secrets: {T: {readable: true}}"):                                                     "secrets.T: found 0 of file, dir and env",
		entry("secrets: {'T}': {file: a}}"):                                                         `secrets: found "T}", expected a name of letters`,
		entry("env: {A=B: c}"):                                                                      `env: found "A=B", expected the name of a variable`,
		entry("env: {A: []}"):                                                                       "env.A: found a list, expected a text",
		entry("config: {fil: x}"):                                                                   `config: unknown field "fil"; did you mean "file"?`,
		entry("config: {file: /does/not/exist}"):                                                    "config.file: /does/not/exist cannot be read: it does not exist",
		entry("config: []"):                                                                         "config: found a list, expected a mapping",
		entry("quotas: {requests: 0}"):                                                              `quotas.requests: found "0", expected a whole number from 1`,
		entry("quotas: {connect: 5}"):                                                               `quotas.connect: found "5", expected a duration from 1ms to 10m`,
		entry("env: {A: 1}\n  - jobs: [b, a]\n    env: {A: 2}"):                                     `g.yaml:4:5: the variable A of jobs "a" is given by g.yaml:2 as well`,
		"keys: {k: RWQ}":                                                                            "keys.k: found no public key of minisign",
		"keys: {k: {file: /does/not/exist}}":                                                        "keys.k.file: /does/not/exist cannot be read",
		"trust: [{jobs: a}]":                                                                        "trust.keys: is missing",
		"keys: {release: " + publicKey + "}\ntrust: [{jobs: a, keys: [relase]}]":                    `trust.keys: there is no key "relase"; did you mean "release"?`,
		"keys: {release: " + publicKey + "}\ntrust: [{jobs: a, keys: [release], inProcess: maybe}]": "trust.inProcess: ",
		"trust: [{jobs: a, keys: []}]":                                                              "trust.keys: found an empty list",
		"grants: [{jobs: a, http: [https://a/" + strings.Repeat("x", 200) + "#]}]":                  "…",
	} {
		_, err := parse("dir/g.yaml", []byte(text), readFile)
		editor.Check(t, text, err)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
			continue
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
	if editor.Refused < 20 {
		t.Errorf("the schema refuses %d of these files: it shows little", editor.Refused)
	}
}

// All problems of a file, in the order of their places.
func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parse("g.yaml", []byte("trust:\n  - {jobs: a, keys: [x]}\ngrants:\n  - {jobs: '', kv: maybe, http: [ftp://x, 'https://'], quotas: {sent: -1}}\n"), readFile)
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 6 || !slices.IsSortedFunc(e.Problems, func(a, b fields.Problem) int { return a.Line*1000 + a.Column - b.Line*1000 - b.Column }) {
		t.Errorf("%v", err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := Read(dir)
	if err == nil || !strings.Contains(err.Error(), "has no *.yaml") {
		t.Errorf("empty: %v", err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("20-b.yaml"), "grants: [{jobs: a, env: {X: second}, http: [{url: https://b, secrets: [T]}]}]")
	write(t, at("10-a.yml"), "keys: {k: {file: k.pub}}\ngrants: [{jobs: '*', env: {X: first}, secrets: {T: {file: t}}, config: {file: c}}]")
	write(t, at("k.pub"), "untrusted comment: x\n"+publicKey+"\n")
	write(t, at("c"), "configuration")
	write(t, at(".hidden.yaml"), "broken: [")
	write(t, at("notes.txt"), "broken: [")
	s, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	g := s.For("a", Module{})
	if g.Env["X"] != "first" || len(g.HTTP) != 1 || string(g.Config) != "configuration" || len(s.Files()) != 4 {
		t.Errorf("%+v, of %v", g, s.Files())
	}
	if warnings := s.Warnings([]string{"b"}); len(warnings) != 2 || !strings.Contains(warnings[0], `20-b.yaml:1: there is no job that matches "a"`) || !strings.Contains(warnings[1], "cannot be used now") {
		t.Errorf("%q", warnings)
	}
	if again, err := Read(dir); err != nil || !again.Same(s) {
		t.Errorf("read again: %v", err)
	}
	write(t, at("c"), "another")
	if again, err := Read(dir); err != nil || again.Same(s) {
		t.Errorf("with another configuration: %v", err)
	}
	write(t, at("30-c.yaml"), "keys: {k: "+publicKey+"}\ngrants: [{jobs: a, kv: tru}]")
	_, err = Read(dir)
	if err == nil || !strings.Contains(err.Error(), "30-c.yaml:2:24: kv") || !strings.Contains(err.Error(), "there is a key of this name in 10-a.yml:1 already") {
		t.Errorf("one broken: %v", err)
	}
	if _, err := Read(at("none.yaml")); err == nil || !strings.Contains(err.Error(), "none.yaml: cannot be read: it does not exist") {
		t.Errorf("none: %v", err)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAllowHTTP(t *testing.T) {
	t.Parallel()
	g := parsed(t, `grants:
  - jobs: report
    http:
      - {url: "https://api.example.com/v1/", methods: [GET, POST]}
      - {url: "https://api.example.com/v2/exact"}
      - {url: "https://*.wild.example", private: true}
      - {url: "http://[::1]:8080"}
      - {url: "http://10.0.0.1"}
`).For("report", Module{})
	for _, ok := range []string{
		"GET https://api.example.com/v1/x", "POST https://API.EXAMPLE.com.:443/v1/", "GET https://api.example.com/v1/a/b?q=1",
		"GET https://api.example.com/%761/x", "GET https://api.example.com/v1/a%2fb", "GET https://api.example.com/v1/100%25",
		"GET https://api.example.com/v1/...", "GET https://api.example.com/v1/a..b",
		"GET https://api.example.com/v2/exact", "HEAD https://api.example.com/v2/exact/x",
		"GET https://a.wild.example", "GET https://b.a.wild.example/x/../y",
		"GET http://[::1]:8080/", "GET http://[0:0::1]:8080/", "GET http://10.0.0.1/",
	} {
		method, text, _ := strings.Cut(ok, " ")
		if _, err := g.AllowHTTP(method, mustURL(t, text)); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for text, want := range map[string]string{
		"GET https://api.example.com":                       `http: https://api.example.com/ is not granted to job "report": grants.yaml:4 has https://api.example.com/v1/`,
		"GET https://api.example.com/v1":                    "has https://api.example.com/v1/",
		"GET https://api.example.com/v11/":                  "has https://api.example.com/v1/",
		"GET https://api.example.com/v2/exactly":            "",
		"GET https://api.example.com/v1/../admin":           ", and the path has . or .. in it",
		"GET https://api.example.com/v1/%2e%2E/admin":       ", and the path has . or .. in it",
		"GET https://api.example.com/v1/.%2e/admin":         ", and the path has . or .. in it",
		"GET https://api.example.com/v1/%252e%252e/admin":   ", and the path has . or .. in it",
		"GET https://api.example.com/v1/..%2fadmin":         ", and the path has . or .. in it",
		"GET https://api.example.com/v1/x%2f..%2f../admin":  ", and the path has . or .. in it",
		"GET https://api.example.com/v1/..%5cadmin":         ", and the path has . or .. in it",
		"GET https://api.example.com/v1/..;x/admin":         ", and the path has . or .. in it",
		"GET https://api.example.com/v1%2fx":                "has https://api.example.com/v1/",
		"GET https://api.example.com//v1/x":                 "has https://api.example.com/v1/",
		"DELETE https://api.example.com/v1/x":               `http: DELETE https://api.example.com/v1/x is not granted to job "report": grants.yaml:4 has GET, POST for https://api.example.com/v1/`,
		"POST https://api.example.com/v2/exact":             "grants.yaml:5 has GET, HEAD for https://api.example.com/v2/exact",
		"GET http://api.example.com/v1/":                    `http: http://api.example.com is not granted to job "report": grants.yaml:4 has https://api.example.com`,
		"GET https://api.example.com:8443/v1/":              `http: https://api.example.com:8443 is not granted`,
		"GET https://api.example.org/v1/":                   `http: https://api.example.org is not granted to job "report": grants.yaml:4 has https for api.example.com`,
		"GET https://wild.example":                          "grants.yaml:6 has https for *.wild.example",
		"GET https://evilwild.example":                      "is not granted",
		"GET https://elsewhere.net/token?secret":            `http: https://elsewhere.net is not granted to job "report": grants.yaml:4 has api.example.com, grants.yaml:6 has *.wild.example, grants.yaml:7 has ::1 and 1 more`,
		"GET http://[::1%25lo]:8080":                        `found the host "::1%lo"`,
		"GET http://[::2]:8080":                             "http://[::2]:8080 is not granted",
		"GET ftp://api.example.com/v1/":                     "expected a URL that begins with http",
		"GET https:api.example.com":                         "expected a URL that begins with http",
		"GET https://api.example.com:0/v1/":                 `found the port "0"`,
		"GET https://münchen.example/":                      "punycode",
		"GET https://api.example.com.evil.example/v1/x":     "is not granted",
		"GET https://api.example.com@evil.example/v1/x":     "https://evil.example is not granted",
		"GET https://evil.example/https://api.example.com/": "https://evil.example is not granted",
	} {
		method, at, _ := strings.Cut(text, " ")
		h, err := g.AllowHTTP(method, mustURL(t, at))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; expected %s", text, h, err, want)
		}
	}
	all := parsed(t, "grants:\n  - jobs: report\n    http: [{url: https://a.example, methods: ["+strings.Join(knownMethods[:], ", ")+"]}]\n").For("report", Module{})
	for _, method := range knownMethods {
		at := mustURL(t, "https://a.example/")
		if _, err := all.AllowHTTP(method, at); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		// Servers may take them for other methods, or for GET.
		for _, other := range []string{strings.ToLower(method), method[:1] + strings.ToLower(method[1:]), method + "X", " " + method, ""} {
			if _, err := all.AllowHTTP(other, at); err == nil || (other != "" && other != strings.ToUpper(other) && !strings.Contains(err.Error(), "names of methods are in upper case")) {
				t.Errorf("%q: %v", other, err)
			}
		}
	}
	_, err := (&Set{}).For("report", Module{}).AllowHTTP("GET", mustURL(t, "https://a.example"))
	if want := `http: https://a.example is not granted to job "report": the host grants nothing (--grants)`; err == nil || err.Error() != want {
		t.Errorf("without grants: %v", err)
	}
}

func TestAllowNet(t *testing.T) {
	t.Parallel()
	g := parsed(t, "grants:\n  - jobs: a\n    net: [\"tcp://db.internal:5432\", \"tls://[::1]:6380\"]\n").For("a", Module{})
	for _, c := range []struct {
		scheme, host string
		port         uint16
		want         string // empty: granted
	}{
		{"tcp", "DB.internal.", 5432, ""},
		{"tls", "0::1", 6380, ""},
		{"tls", "db.internal", 5432, `net: tls://db.internal:5432 is not granted to job "a": grants.yaml:3 has tcp://db.internal:5432`},
		{"tcp", "db.internal", 5433, "grants.yaml:3 has tcp://db.internal:5432"},
		{"tcp", "db2.internal", 5432, "grants.yaml:3 has tcp://db.internal:5432"},
		{"tcp", "elsewhere", 1, "grants.yaml:3 has tcp://db.internal:5432, tls://[::1]:6380"},
		{"tcp", "a b", 1, "found the host"},
		{"tcp", "*.internal", 5432, "found the host"},
	} {
		n, err := g.AllowNet(c.scheme, c.host, c.port)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) || (err == nil && n.Port != c.port) {
			t.Errorf("%+v: %v, %v", c, n, err)
		}
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	s := parsed(t, `keys: {k: `+publicKey+`}
grants:
  - jobs: a
    http: [{url: "https://api.example.com/v1/", methods: [GET, POST]}, "https://*.wild.example"]
    net: [tcp://db:5432]
    dirs: [{host: /x, guest: /data}, {host: /y, guest: /out, write: true}]
    kv: true
    secrets: {TOKEN: {file: /t}}
    env: {TZ: UTC}
  - {jobs: a, signers: k, secrets: {SIGNED: {file: /s}}}
`)
	all := []string{
		"job_v1", "env", "wasi_snapshot_preview1", "job_v1_io", "job_v1_http", "job_v1_net", "job_v1_kv", "job_v1_env",
		"http https://api.example.com/v1/", "http https://api.example.com/v1/deep/er", "http GET,POST https://api.example.com/v1/",
		"http https://x.wild.example/", "http https://*.wild.example/", "http https://*.y.wild.example/",
		"net tcp://db:5432", "dir /data", "dir /data ro", "dir /out rw", "kv", "secret TOKEN", "env TZ",
	}
	if got := Difference(all, s.For("a", Module{})); len(got) > 0 {
		t.Errorf("of what is granted: %q", got)
	}
	for want, text := range map[string]string{
		"http https://api.example.com/":        "http https://api.example.com/: grants.yaml:4 has https://api.example.com/v1/",
		"http PUT https://api.example.com/v1/": "http PUT https://api.example.com/v1/: grants.yaml:4 has GET, POST for https://api.example.com/v1/",
		"http https://api.example.org":         "http https://api.example.org: grants.yaml:4 has https for api.example.com",
		"http https://*.example.com/":          "http https://*.example.com/: ",
		"net tls://db:5432":                    "net tls://db:5432: grants.yaml:5 has tcp://db:5432",
		"dir /data rw":                         "dir /data rw: grants.yaml:6 has it to be read only",
		"dir /elsewhere":                       "dir /elsewhere: grants.yaml has no directory /elsewhere for it",
		"secret TOKENS":                        `secret TOKENS: grants.yaml has no secret TOKENS for it; did you mean "TOKEN"?`,
		"secret SIGNED":                        "secret SIGNED: grants.yaml:10 has it, but is for modules signed by k",
		"env LANG":                             "env LANG: grants.yaml has no variable LANG for it",
		"config":                               "config: grants.yaml has no configuration for it",
		"nonsense":                             `found "nonsense", expected a need that begins with http, net,`,
		"secrets TOKEN":                        `did you mean "secret"?`,
		"http ftp://x":                         "expected http:// or https://",
		"http GET,PSOT https://a":              `found "PSOT", expected a method such as GET or POST; did you mean "POST"?`,
		"http GET,https://a":                   "expected http:// or https://",
		"http a b c":                           `found "http a b c", expected http https://`,
		"dir data":                             `found "dir data", expected dir /data`,
		"dir /data wr":                         "expected dir /data",
		"kv all":                               `found "kv all", expected kv`,
		"":                                     `found "", expected a need`,
		"http https://api.example.com/v1/%2e%2e/adm": "expected a path without ..",
	} {
		got := Difference([]string{want}, s.For("a", Module{}))
		if len(got) != 1 || !strings.Contains(got[0], text) {
			t.Errorf("%s: %q, expected %s", want, got, text)
		}
	}
	// The functions for handles come with any capability, and are no want of their own beside one.
	for _, module := range []string{"job_v1_http", "job_v1_net", "job_v1_kv", "job_v1_env"} {
		if list := Compare([]string{"job_v1_io", module}, s.For("b", Module{})); len(list) != 1 || !strings.Contains(list[0].What, module) {
			t.Errorf("with %s: %v", module, list)
		}
	}
	if list := Compare([]string{"job_v1_io", "env", "job_v1"}, s.For("b", Module{})); len(list) != 1 || list[0].Missing == "" {
		t.Errorf("alone: %v", list)
	}
	got := Difference(all, s.For("b", Module{}))
	if len(got) != len(all)-4 || !slices.Contains(got, "http (the module imports job_v1_http): grants.yaml has no http for it") {
		t.Errorf("of nothing: %q", got)
	}
}

func TestFirst(t *testing.T) {
	t.Parallel()
	h, err := parseURL("https://a.example")
	if err != nil {
		t.Fatal(err)
	}
	s := parsed(t, "grants: [{jobs: x, env: {A: file}}]").First("the command line", Grant{HTTP: []HTTP{h}, Env: map[string]string{"A": "flag"}})
	g := s.For("x", Module{})
	if g.Env["A"] != "flag" {
		t.Errorf("%v", g.Env)
	}
	if _, err := g.AllowHTTP("GET", mustURL(t, "https://b.a.example")); err == nil || !strings.Contains(err.Error(), "the command line has https for a.example") {
		t.Error(err)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	s := parsed(t, full)
	var b strings.Builder
	for _, l := range s.Explain("report", &Module{}) {
		fmt.Fprintf(&b, "%s %s|%s|%s|%s\n", l.Place, strings.Join(l.Jobs, ","), l.Kind, l.What, l.Detail)
	}
	for _, want := range []string{
		"grants.yaml:5 report,sync-*|http|https://api.example.com/v1/|GET POST, private addresses, with the secrets API_TOKEN, own authorities\n",
		"|net|tls://[2001:db8::1]:6380|\n", "|dir|/out|from /srv/out, written to, up to 100MiB in 1000 files\n",
		"|secret|X|from the variable NAME, readable\n", "|env|TZ|Europe/Berlin\n", "|quota|requests 1000|\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s\nlacks %s", b.String(), want)
		}
	}
	if strings.Contains(b.String(), "only.example") || strings.Contains(b.String(), "trust") {
		t.Errorf("there is too much:\n%s", b.String())
	}
	if lines := s.Explain("pay-x", nil); lines[len(lines)-1].What != "modules must be signed by release" {
		t.Errorf("%+v", lines)
	}
	if n := len(s.Explain("", nil)); n < 15 {
		t.Errorf("%d lines in all", n)
	}
}

// TestOwners: who writes the grants of a host that is root's acts as root, so only root may. Other hosts leave them to
// whoever their operator has them written by.
func TestOwners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, key := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "k.pub")
	write(t, file, "keys: {k: {file: k.pub}}\ngrants: []")
	write(t, key, "untrusted comment: x\n"+publicKey+"\n")
	for _, name := range []string{dir, file, key} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
		_, err = Read(dir)
		if refused := err != nil && strings.Contains(err.Error(), name+": has mode 0777"); refused != (ownership.Self() == 0) {
			t.Errorf("%s can be written to by everybody: %v", name, err)
		}
		if err := os.Chmod(name, info.Mode()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(dir); err != nil {
		t.Error(err)
	}
}
