package grants

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/signature"
	"github.com/wasmjob/wasmjob/host/config/yamlnode"
	"github.com/wasmjob/wasmjob/internal/address"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Default quotas of a writable directory.
const (
	DefaultDirBytes = 1 << 30
	DefaultDirFiles = 10_000
)

// parse reads one file into the set.
func (r *reader) parse(name string, data []byte) {
	if r.named == nil {
		r.named, r.given, r.gives = map[string]string{}, map[string]bool{}, map[string]string{}
	}
	f := &file{reader: r, File: fields.File{Name: name}}
	r.out.sources = append(r.out.sources, base(name))
	root := f.Root(data, `expected the field grants; "grants: []" grants nothing`, "the fields grants, keys and trust")
	found := f.Fields(root, "", fileFields)
	f.Pairs(found["keys"], "keys", f.key)
	f.Each(found["grants"], "grants", f.entry)
	f.Each(found["trust"], "trust", f.trust)
	r.problems.Take(f.Problems)
}

// nameOf matches valid names of keys and secrets: {{secret:NAME}} must be able to end.
var nameOf = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,127}$`)

const goodName = "expected a name of letters, digits, _, . and -"

// key reads a public key, or where it is.
func (f *file) key(name, n *yaml.Node) {
	field := fields.Join("keys", name.Value)
	if !nameOf.MatchString(name.Value) {
		f.Problem(name, "keys", "found %s, "+goodName, yamlnode.Describe(name))
		return
	}
	if place, twice := f.named[name.Value]; twice {
		f.Problem(name, field, "there is a key of this name in %s already", place)
		return
	}
	f.named[name.Value] = f.place(name)
	text, ok := f.textOrFile(n, field)
	if !ok {
		return
	}
	k, err := signature.ParseKey(name.Value, string(text))
	if err != nil {
		f.Problem(n, field, "found %v", err)
		return
	}
	f.out.keys = append(f.out.keys, k)
}

// textOrFile takes a text, or {file: PATH} with it.
func (f *file) textOrFile(n *yaml.Node, field string) ([]byte, bool) {
	if n == nil {
		return nil, false
	}
	if n.Kind == yaml.ScalarNode {
		return []byte(n.Value), true
	}
	found := f.Fields(n, field, textFileFields)
	if n.Kind != yaml.MappingNode || found["file"] == nil {
		if n.Kind == yaml.MappingNode {
			f.Problem(n, field, "expected a text, or {file: PATH}")
		}
		return nil, false
	}
	name := f.path(found["file"], field+".file")
	if name == "" {
		return nil, false
	}
	data, err := f.read(name)
	if err != nil {
		f.Problem(found["file"], field+".file", "%s %v", jobconfig.Clip(found["file"].Value), err)
		return nil, false
	}
	return data, true
}

func (f *file) trust(n *yaml.Node) {
	found := f.Fields(n, "trust", trustFields)
	if n.Kind != yaml.MappingNode {
		return
	}
	t := trust{place: f.place(n), jobs: f.jobs(n, found["jobs"], "trust.jobs")}
	if found["keys"] == nil {
		f.Problem(n, "trust.keys", "is missing, expected names of keys; one of them must have signed the modules")
	} else {
		t.keys = f.names(found["keys"], "trust.keys", "key")
	}
	if found["inProcess"] != nil {
		t.inProcess = f.bool(found["inProcess"], "trust.inProcess")
	}
	f.out.trust = append(f.out.trust, t)
}

// jobs reads names and patterns of jobs.
func (f *file) jobs(entry, n *yaml.Node, field string) (patterns []string) {
	if n == nil {
		f.Problem(entry, field, "is missing, expected the names of jobs, or patterns such as sync-*")
		return nil
	}
	f.Texts(n, field, func(n *yaml.Node, text string) {
		if err := ceiling.CheckPattern(text); err != nil {
			f.Problem(n, field, "%v", err)
			return
		}
		patterns = append(patterns, text)
	})
	return patterns
}

// names reads names that another place gives.
func (f *file) names(n *yaml.Node, field, kind string) (names []string) {
	f.Texts(n, field, func(n *yaml.Node, text string) {
		names = append(names, text)
		f.uses = append(f.uses, use{fields.Problem{File: f.Name, Line: n.Line, Column: n.Column, Field: field}, kind, text})
	})
	return names
}

// checkUses finds names that are used but not defined.
func (r *reader) checkUses() {
	names := map[string][]string{"key": byName(r.named), "secret": byName(r.given)}
	for _, u := range r.uses {
		_, known := r.named[u.name]
		if u.kind == "secret" {
			known = r.given[u.name]
		}
		if known {
			continue
		}
		if !r.problems.Full() {
			u.problem.Message = fmt.Sprintf("there is no %s %q%s", u.kind, jobconfig.Clip(u.name), words.Suggest(u.name, names[u.kind]))
		}
		r.problems.Add(u.problem)
	}
}

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (f *file) entry(n *yaml.Node) {
	found := f.Fields(n, "", entryFields)
	if n.Kind != yaml.MappingNode {
		return
	}
	f.guests = map[string]bool{}
	e := entry{place: f.place(n), jobs: f.jobs(n, found["jobs"], "jobs")}
	f.Texts(found["digests"], "digests", func(n *yaml.Node, text string) {
		text = strings.TrimPrefix(strings.ToLower(text), "sha256:")
		if !sha256Hex.MatchString(text) {
			f.Problem(n, "digests", "found %s, expected the SHA-256 of a module, 64 hexadecimal digits, as wasmjob module inspect shows it", yamlnode.Describe(n))
			return
		}
		e.digests = append(e.digests, text)
	})
	e.signers = f.names(found["signers"], "signers", "key")
	before := len(f.out.warnings)
	g := &e.grant
	g.KV = f.bool(found["kv"], "kv")
	f.Pairs(found["secrets"], "secrets", func(name, n *yaml.Node) { f.secret(g, name, n) })
	f.Pairs(found["env"], "env", func(name, n *yaml.Node) { f.variable(g, name, n) })
	f.Each(found["http"], "http", func(n *yaml.Node) { f.http(g, n) })
	f.Each(found["net"], "net", func(n *yaml.Node) { f.net(g, n) })
	f.Each(found["dirs"], "dirs", func(n *yaml.Node) { f.directory(g, n) })
	if text, ok := f.textOrFile(found["config"], "config"); ok {
		g.Config = append([]byte{}, text...) // empty is not absent
	}
	f.quotas(g, found["quotas"])
	f.onlyOnce(n, &e)
	for i := range f.out.warnings[before:] {
		f.out.warnings[before+i].jobs = e.jobs
	}
	f.out.entries = append(f.out.entries, e)
}

// maxPairs bounds what onlyOnce compares, over all files.
const maxPairs = 200_000

// onlyOnce finds what another entry for exactly the same pattern sets as well, where only one can apply. It
// does not compare overlapping patterns; there the first applies.
func (f *file) onlyOnce(n *yaml.Node, e *entry) {
	if len(e.digests)+len(e.signers) > 0 {
		return
	}
	var things []string
	for _, name := range byName(e.grant.Secrets) {
		things = append(things, "secret "+name)
	}
	for _, name := range byName(e.grant.Env) {
		things = append(things, "variable "+name)
	}
	for _, d := range e.grant.Dirs {
		things = append(things, "guest directory "+d.Guest)
	}
	if e.grant.Config != nil {
		things = append(things, "configuration")
	}
	if f.pairs += len(e.jobs) * len(things); f.pairs > maxPairs {
		f.Problem(n, "", "found more than %d pairs of a pattern of jobs and a secret, variable or directory, expected fewer: a pattern can stand for many jobs", maxPairs)
		return
	}
	for _, pattern := range e.jobs {
		for _, thing := range things {
			key := pattern + "\x00" + thing
			if other, twice := f.gives[key]; twice && other != e.place {
				f.Problem(n, "", "the %s of jobs %q is given by %s as well, expected one of the two", thing, pattern, other)
			}
			f.gives[key] = e.place
		}
	}
}

func (f *file) secret(g *Grant, name, n *yaml.Node) {
	field := fields.Join("secrets", name.Value)
	f.given[name.Value] = true
	if !nameOf.MatchString(name.Value) {
		f.Problem(name, "secrets", "found %s, "+goodName, yamlnode.Describe(name))
		return
	}
	if n.Kind == yaml.ScalarNode { // the value may be secret
		f.Problem(n, field, "found a text, expected {file: PATH}, {dir: PATH} or {env: NAME}: secrets themselves do not stand in this file")
		return
	}
	found := f.Fields(n, field, secretFields)
	if n.Kind != yaml.MappingNode {
		return
	}
	var s Secret
	sources := 0
	for _, source := range []string{"file", "dir", "env"} {
		v := found[source]
		if v == nil {
			continue
		}
		sources++
		switch source {
		case "file":
			s.File = f.path(v, field+".file")
		case "dir":
			if dir := f.path(v, field+".dir"); dir != "" {
				s.File = filepath.Join(dir, name.Value)
			}
		case "env":
			s.Env = f.envName(v, field+".env")
		}
	}
	if sources != 1 {
		f.Problem(n, field, "found %d of file, dir and env, expected one", sources)
	}
	s.Readable = f.bool(found["readable"], field+".readable")
	f.there(n, s.File, "file")
	if g.Secrets == nil {
		g.Secrets = map[string]Secret{}
	}
	g.Secrets[name.Value] = s
}

// there warns of a missing file: only a warning, because the file may be created later, or on another machine.
func (f *file) there(n *yaml.Node, name, what string) {
	if name == "" {
		return
	}
	if _, err := os.Stat(name); err != nil {
		f.warn(n, "the %s %s cannot be used now: %s", what, name, reason(err))
	}
}

// public warns of an unreachable host: its address is not public, or its name is this machine's, and the entry
// does not allow that.
func (f *file) public(n *yaml.Node, what, host string, private bool) {
	a, err := netip.ParseAddr(host)
	if host == "localhost" {
		a, err = netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	if err != nil {
		return // a name, which may resolve to any address by then
	}
	if err := address.Check(a, private); err != nil {
		f.warn(n, "%s is refused when it is used: %v", what, err)
	}
}

// maxWarnings is how many warnings the files have at most; the others are counted.
const maxWarnings = 1000

// warn adds a warning, whose jobs the entry knows.
func (f *file) warn(n *yaml.Node, format string, args ...any) {
	if len(f.out.warnings) == maxWarnings {
		f.out.more++
		return
	}
	f.out.warnings = append(f.out.warnings, warning{text: f.place(n) + ": " + fmt.Sprintf(format, args...)})
}

func (f *file) envName(n *yaml.Node, field string) string {
	text, ok := f.Text(n, field)
	if ok && !isEnvName(text) {
		f.Problem(n, field, "found %s, expected the name of a variable", yamlnode.Describe(n))
		return ""
	}
	return text
}

func isEnvName(s string) bool { return s != "" && !strings.ContainsAny(s, "=\x00") }

func (f *file) variable(g *Grant, name, n *yaml.Node) {
	if !isEnvName(name.Value) {
		f.Problem(name, "env", "found %s, expected the name of a variable", yamlnode.Describe(name))
		return
	}
	value, ok := f.Text(n, fields.Join("env", name.Value))
	if ok && strings.ContainsRune(value, 0) {
		f.Problem(n, fields.Join("env", name.Value), "found a text with a NUL character, expected one without")
	}
	if g.Env == nil {
		g.Env = map[string]string{}
	}
	g.Env[name.Value] = value
}

// http takes a URL, or a mapping with one.
func (f *file) http(g *Grant, n *yaml.Node) {
	found := map[string]*yaml.Node{"url": n}
	if n.Kind != yaml.ScalarNode {
		found = f.Fields(n, "http", httpFields)
		if n.Kind != yaml.MappingNode {
			return
		}
	}
	text := found["url"]
	if text == nil {
		f.Problem(n, "http.url", "is missing, expected a URL such as https://api.example.com/v1/")
		return
	}
	h, err := parseURL(text.Value)
	if text.Kind != yaml.ScalarNode {
		err = fmt.Errorf("found %s, expected a URL such as https://api.example.com/v1/", yamlnode.Describe(text))
	}
	if err != nil {
		f.Problem(text, "http.url", "%v", err)
		return
	}
	h.place = f.place(n)
	h.Private = f.bool(found["private"], "http.private")
	f.public(n, h.String(), h.Host, h.Private)
	f.Texts(found["methods"], "http.methods", func(n *yaml.Node, text string) {
		method, err := parseMethod(text)
		if err != nil {
			f.Problem(n, "http.methods", "%v", err)
			return
		}
		h.Methods = append(h.Methods, method)
	})
	h.Secrets = f.names(found["secrets"], "http.secrets", "secret")
	h.CA, h.Cert, h.Key = f.tls(n, "http", found, h.Scheme == "https", "an https URL")
	g.HTTP = append(g.HTTP, h)
}

// knownMethods are the valid methods of requests, without CONNECT, which changes what a request is: those of
// RFC 9110, PATCH, QUERY, WebDAV with its extensions, and that of caches.
var knownMethods = [...]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "MKCALENDAR", "ACL", "LINK", "UNLINK", "PURGE"}

// parseMethod reads the name of a method, in letters of any case.
func parseMethod(text string) (string, error) {
	method := strings.ToUpper(text)
	if slices.Contains(knownMethods[:], method) {
		return method, nil
	}
	return "", words.LateError(func() string {
		return fmt.Sprintf("found %q, expected a method such as GET or POST%s", jobconfig.Clip(text), words.Suggest(method, knownMethods[:]))
	})
}

// tls reads the files of a connection.
func (f *file) tls(n *yaml.Node, field string, found map[string]*yaml.Node, may bool, where string) (ca, cert, key string) {
	paths := make(map[string]string)
	for _, name := range []string{"ca", "cert", "key"} {
		if v := found[name]; v != nil {
			paths[name] = f.path(v, field+"."+name)
			f.there(v, paths[name], "file")
			if !may {
				f.Problem(v, field+"."+name, "is of use with %s only", where)
			}
		}
	}
	if (found["cert"] == nil) != (found["key"] == nil) {
		f.Problem(n, field, "found one of cert and key, expected both: the certificate and its private key")
	}
	return paths["ca"], paths["cert"], paths["key"]
}

// net takes an address, or a mapping with one.
func (f *file) net(g *Grant, n *yaml.Node) {
	found := map[string]*yaml.Node{"to": n}
	if n.Kind != yaml.ScalarNode {
		found = f.Fields(n, "net", netFields)
		if n.Kind != yaml.MappingNode {
			return
		}
	}
	to := found["to"]
	if to == nil {
		f.Problem(n, "net.to", "is missing, expected an address such as tcp://db.internal:5432")
		return
	}
	t, err := parseAddress(to.Value)
	if to.Kind != yaml.ScalarNode {
		err = fmt.Errorf("found %s, expected an address such as tcp://db.internal:5432", yamlnode.Describe(to))
	}
	if err != nil {
		f.Problem(to, "net.to", "%v", err)
		return
	}
	t.place = f.place(n)
	t.Private = f.bool(found["private"], "net.private")
	f.public(n, t.String(), t.Host, t.Private)
	t.CA, t.Cert, t.Key = f.tls(n, "net", found, t.Scheme == "tls", "tls://")
	g.Net = append(g.Net, t)
}

func (f *file) directory(g *Grant, n *yaml.Node) {
	found := f.Fields(n, "dirs", dirFields)
	if n.Kind != yaml.MappingNode {
		return
	}
	for _, name := range []string{"host", "guest"} {
		if found[name] == nil {
			f.Problem(n, "dirs."+name, "is missing, expected a directory of the %s", name)
		}
	}
	d := Dir{
		Host: f.path(found["host"], "dirs.host"), Guest: f.guestPath(found["guest"]), Write: f.bool(found["write"], "dirs.write"),
		Bytes: f.size(found["quota"], "dirs.quota", mostDirBytes), Files: f.number(found["files"], "dirs.files", mostDirFiles), place: f.place(n),
	}
	if d.Write {
		d.Bytes, d.Files = cmp.Or(d.Bytes, DefaultDirBytes), cmp.Or(d.Files, DefaultDirFiles)
	} else {
		for _, name := range []string{"quota", "files"} {
			if found[name] != nil {
				f.Problem(found[name], "dirs."+name, "is of use with \"write: true\" only")
			}
		}
	}
	f.there(n, d.Host, "directory")
	g.Dirs = append(g.Dirs, d)
}

// guestPath reads where a guest sees a directory, each in a place of its own.
func (f *file) guestPath(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	text, ok := f.Text(n, "dirs.guest")
	if ok && !isGuestPath(text) {
		f.Problem(n, "dirs.guest", "found %s, expected an absolute path without . and .., such as /data", yamlnode.Describe(n))
	}
	if f.guests[text] {
		f.Problem(n, "dirs.guest", "%s is given twice, expected one directory of the host for it", jobconfig.Clip(text))
	}
	f.guests[text] = true
	return text
}

func isGuestPath(s string) bool {
	return path.IsAbs(s) && path.Clean(s) == s && !strings.ContainsRune(s, 0)
}

func (f *file) quotas(g *Grant, n *yaml.Node) {
	if n == nil {
		return
	}
	q := f.Fields(n, "quotas", quotaFields)
	g.Quotas = Quotas{
		Requests:    int(f.number(q["requests"], "quotas.requests", mostRequests)),
		InFlight:    int(f.number(q["inFlight"], "quotas.inFlight", abi.MaxHandles)),
		Connections: int(f.number(q["connections"], "quotas.connections", abi.MaxHandles)),
		Received:    f.size(q["received"], "quotas.received", mostTraffic),
		Sent:        f.size(q["sent"], "quotas.sent", mostTraffic),
		Connect:     f.duration(q["connect"], "quotas.connect", time.Millisecond, 10*time.Minute),
		FirstByte:   f.duration(q["firstByte"], "quotas.firstByte", time.Millisecond, 24*time.Hour),
	}
}

// parseURL reads scheme, host, port and path.
func parseURL(text string) (HTTP, error) {
	u, err := url.Parse(text)
	if err != nil {
		u = &url.URL{}
	}
	h, expected := grantOf(u)
	if strings.Contains(text, "#") {
		expected = cmp.Or(expected, "a URL without ? and #")
	}
	if expected != "" {
		return HTTP{}, fmt.Errorf("found %q, expected %s", jobconfig.Clip(hidden(text)), expected)
	}
	return h, nil
}

// grantOf reads the parts of a URL. expected says what a valid one would have in place of a wrong part; empty
// if all is well.
func grantOf(u *url.URL) (h HTTP, expected string) {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return h, "http:// or https://, as in https://api.example.com/v1/"
	case u.User != nil:
		return h, "a URL without user and password: they are secrets, for a header"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return h, "a URL without ? and #"
	case u.Opaque != "" || u.Host == "":
		return h, "a URL such as https://api.example.com/v1/"
	}
	h.Scheme, h.Path = u.Scheme, cmp.Or(u.EscapedPath(), "/")
	rest, wild := strings.CutPrefix(u.Hostname(), "*.")
	host, err := cleanHost(rest)
	if err != nil || (wild && isIP(host)) {
		return h, errHost(err).Error()
	}
	if h.Host = host; wild {
		h.Host = "*." + host
	}
	if h.Port, err = portOf(u.Port(), defaultPort(u.Scheme)); err != nil || strings.HasSuffix(u.Host, ":") {
		return h, "a port from 1 to 65535, or none"
	}
	if climbs(h.Path) || strings.Contains(h.Path, "//") || strings.Contains(h.Path, "*") {
		return h, "a path without .., // and *; it stands for all paths that begin so"
	}
	return h, ""
}

// hidden leaves out what may be a password.
func hidden(text string) string {
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		authority, _, _ := strings.Cut(rest, "/")
		if i := strings.LastIndexByte(authority, '@'); i >= 0 {
			return scheme + "://…" + rest[i:]
		}
	}
	return text
}

// parseAddress reads tcp://HOST:PORT and tls://HOST:PORT.
func parseAddress(text string) (Net, error) {
	n, expected := Net{}, "tcp://HOST:PORT or tls://HOST:PORT"
	scheme, rest, _ := strings.Cut(text, "://")
	u, err := url.Parse(text)
	if err == nil && (scheme == "tcp" || scheme == "tls") && !strings.ContainsAny(rest, "/?#@") {
		n.Scheme = scheme
		if n.Port, err = portOf(u.Port(), 0); err != nil {
			expected = "a port from 1 to 65535 after the host"
		} else if n.Host, err = cleanHost(u.Hostname()); err != nil {
			expected = errHost(err).Error()
		} else {
			return n, nil
		}
	}
	return Net{}, fmt.Errorf("found %q, expected %s", jobconfig.Clip(hidden(text)), expected)
}
