package grants

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Need is a need that a job's definition declares.
type Need struct {
	kind string // http, net, dir, kv, secret, env, config
	http HTTP   // Methods: none is any
	net  Net
	dir  Dir // Guest and Write
	name string
	text string
}

// needKinds are the first words of needs, with the forms of what follows them.
var needKinds = [...]struct{ kind, form string }{
	{"http", "http https://api.example.com/v1/, http POST,PUT https://api.example.com/v1/"},
	{"net", "net tcp://db.internal:5432"},
	{"dir", "dir /data, dir /out rw"},
	{"kv", "kv"},
	{"secret", "secret API_TOKEN"},
	{"env", "env TZ"},
	{"config", "config"},
}

const (
	// MaxNeeds is how many needs a job may have.
	MaxNeeds = 100
	// maxNeed is the longest need, in bytes.
	maxNeed = 2048
)

// CheckNeeds reads the needs of a job. The error has what is wrong with each, or that there are too many.
func CheckNeeds(texts []string) error {
	if len(texts) > MaxNeeds {
		return fmt.Errorf("found %d needs, expected at most %d", len(texts), MaxNeeds)
	}
	var problems words.Problems
	for _, text := range texts {
		_, err := ParseNeed(text)
		problems.Add(err)
	}
	return problems.Err()
}

// ParseNeed reads a need:
//
//	http [METHOD,METHOD…] URL    requests to all that begins with the URL
//	net tcp://HOST:PORT          a connection; or tls://HOST:PORT
//	dir PATH [ro|rw]             a directory that the guest sees; ro without a word
//	kv                           key/value state
//	secret NAME, env NAME, config
//
// The error names what was found and what was expected.
func ParseNeed(text string) (Need, error) {
	if len(text) > maxNeed {
		return Need{}, fmt.Errorf("found %q, a text of %d bytes, expected at most %d", jobconfig.Clip(text), len(text), maxNeed)
	}
	parts := strings.Fields(text)
	var kinds []string
	form := ""
	for _, k := range needKinds {
		kinds = append(kinds, k.kind)
		if len(parts) > 0 && parts[0] == k.kind {
			form = k.form
		}
	}
	if form == "" {
		first := strings.Join(parts[:min(1, len(parts))], "")
		return Need{}, fmt.Errorf("found %q, expected a need that begins with %s%s", jobconfig.Clip(text), strings.Join(kinds, ", "), words.Suggest(first, kinds))
	}
	n := Need{kind: parts[0], text: strings.Join(parts, " ")}
	err := n.read(parts[1:])
	if errors.Is(err, errForm) {
		err = fmt.Errorf("found %q, expected %s", jobconfig.Clip(text), form)
	}
	return n, err
}

var errForm = errors.New("another form")

func (n *Need) read(rest []string) (err error) {
	last := ""
	if len(rest) > 0 {
		last = rest[len(rest)-1]
	}
	bad := len(rest) != 1
	switch n.kind {
	case "kv", "config":
		bad = len(rest) > 0
	case "http":
		if bad = len(rest) < 1 || len(rest) > 2; !bad {
			n.http, err = parseURL(last)
		}
		if len(rest) == 2 {
			n.http.Methods, err = parseMethods(rest[0], err)
		}
	case "net":
		if !bad {
			n.net, err = parseAddress(last)
		}
	case "dir":
		return n.readDir(rest)
	case "secret":
		n.name, bad = last, bad || !nameOf.MatchString(last)
	case "env":
		n.name, bad = last, bad || !isEnvName(last)
	}
	if bad {
		return errForm
	}
	return err
}

// parseMethods reads methods with commas between them. err is what is wrong with what follows
// them.
func parseMethods(text string, err error) (methods []string, _ error) {
	for name := range strings.SplitSeq(text, ",") {
		method, wrong := parseMethod(name)
		methods, err = append(methods, method), cmp.Or(wrong, err)
	}
	return methods, err
}

func (n *Need) readDir(rest []string) error {
	if len(rest) == 1 {
		rest = append(rest, "ro")
	}
	if len(rest) != 2 || !isGuestPath(rest[0]) || (rest[1] != "ro" && rest[1] != "rw") {
		return errForm
	}
	n.dir = Dir{Guest: rest[0], Write: rest[1] == "rw"}
	return nil
}

// Wants describes in words what importing from a module requires, as a need does; empty if it needs no grant.
func Wants(module string) string {
	switch module {
	case abi.ModuleIO:
		return "requests or connections"
	case abi.ModuleHTTP:
		return "http"
	case abi.ModuleNet:
		return "net"
	case abi.ModuleKV:
		return "kv"
	case abi.ModuleEnv:
		return "variables or secrets"
	}
	return ""
}

// Want is one thing that a job wants.
type Want struct {
	// What is a need, or what an import module requires, in words.
	What string `json:"what"`
	// Missing says why it is not granted; empty if it is.
	Missing string `json:"missing,omitempty"`
}

// Wanted is what a job wants of the grants.
type Wanted struct {
	Job   string `json:"job"`
	Wants []Want `json:"wants"`
}

// isModule reports whether a wanted text is an import module, not a need. AssemblyScript imports from env.
func isModule(s string) bool {
	return s == "env" || s == abi.ModuleWASI || (strings.HasPrefix(s, abi.Module) && !strings.Contains(s, " "))
}

// Compare says for each wanted thing whether it is granted: import modules, such as job_v1_http, and needs in
// the form of [ParseNeed]. An unreadable need is missing. Things that every job has, such as the import module
// job_v1, are left out.
func Compare(wanted []string, g *Grant) []Want {
	var list []Want
	others := slices.ContainsFunc(wanted, func(w string) bool { return w != abi.ModuleIO && isModule(w) && Wants(w) != "" })
	for _, w := range wanted {
		if isModule(w) {
			// ModuleIO comes with any other capability, which is listed.
			if kind := Wants(w); kind != "" && (w != abi.ModuleIO || !others) {
				list = append(list, Want{kind + " (the module imports " + w + ")", g.missingModule(w, kind)})
			}
			continue
		}
		n, err := ParseNeed(w)
		want := Want{What: w}
		if err != nil {
			want.Missing = err.Error()
		} else if reason := n.missing(g); reason != "" {
			want = Want{n.text, n.withheld(g, reason)}
		}
		list = append(list, want)
	}
	return list
}

// missingModule says why the grant does not open an import module; empty if it does.
func (g *Grant) missingModule(module, kind string) string {
	if slices.Contains(g.Modules(), module) {
		return ""
	}
	for _, h := range g.withheld {
		if slices.Contains(h.grant.Modules(), module) {
			return h.place + " has it, but " + h.reason
		}
	}
	return g.nothing(kind)
}

// Difference lists what is wanted and not granted, a line each, as [Compare] words it.
func Difference(wanted []string, g *Grant) []string {
	var missing []string
	for _, w := range Compare(wanted, g) {
		if w.Missing != "" {
			missing = append(missing, w.What+": "+w.Missing)
		}
	}
	return missing
}

// missing says what the grant lacks of the need; empty if nothing.
func (n *Need) missing(g *Grant) string {
	switch n.kind {
	case "http":
		if g.http(&n.http) == nil {
			return after(g.refuseHTTP(&n.http))
		}
	case "net":
		if g.net(&n.net) == nil {
			return after(g.refuseNet(&n.net))
		}
	case "dir":
		return n.missingDir(g)
	case "kv":
		return g.unless(g.KV, "kv", nil)
	case "secret":
		_, ok := g.Secrets[n.name]
		return g.unless(ok, "secret "+n.name, byName(g.Secrets))
	case "env":
		_, ok := g.Env[n.name]
		return g.unless(ok, "variable "+n.name, byName(g.Env))
	case "config":
		return g.unless(g.Config != nil, "configuration", nil)
	}
	return ""
}

// unless returns the message that nothing of a kind is granted, with a suggestion.
func (g *Grant) unless(there bool, what string, names []string) string {
	if there {
		return ""
	}
	_, name, _ := strings.Cut(what, " ")
	return g.nothing(what) + words.Suggest(name, names)
}

func (n *Need) missingDir(g *Grant) string {
	i := slices.IndexFunc(g.Dirs, func(d Dir) bool { return d.Guest == n.dir.Guest })
	if i < 0 {
		return g.nothing("directory " + n.dir.Guest)
	}
	if n.dir.Write && !g.Dirs[i].Write {
		return cmp.Or(g.Dirs[i].place, g.where()) + " has it to be read only, expected \"write: true\""
	}
	return ""
}

// after removes from a refusal what repeats the need.
func after(refusal error) string {
	_, reason, _ := strings.Cut(refusal.Error(), "granted to job ")
	_, reason, _ = strings.Cut(reason, "\": ")
	return reason
}

// withheld says which entry would grant the need if its condition were met.
func (n *Need) withheld(g *Grant, reason string) string {
	for _, w := range g.withheld {
		if n.missing(w.grant) == "" {
			return w.place + " has it, but " + w.reason
		}
	}
	return reason
}

// Words describes what the grant allows, in a few words each.
func (g *Grant) Words() []string {
	var list []string
	for _, l := range g.lines() {
		if l.Kind == "kv" {
			list = append(list, l.Kind)
			continue
		}
		list = append(list, l.Kind+" "+l.What)
	}
	return list
}

// lines are what the grant gives, in words.
func (g *Grant) lines() []Line {
	var lines []Line
	add := func(kind, what string, detail ...string) {
		detail = slices.DeleteFunc(detail, func(s string) bool { return s == "" })
		lines = append(lines, Line{Kind: kind, What: what, Detail: strings.Join(detail, ", ")})
	}
	when := func(is bool, text string) string {
		if is {
			return text
		}
		return ""
	}
	for i := range g.HTTP {
		h := &g.HTTP[i]
		add("http", h.String(), strings.Join(h.methodsOf(), " "), when(h.Private, "private addresses"),
			when(len(h.Secrets) > 0, "with the secrets "+strings.Join(h.Secrets, " ")), when(h.CA != "", "own authorities"), when(h.Cert != "", "client certificate"))
	}
	for i := range g.Net {
		n := &g.Net[i]
		add("net", n.String(), when(n.Private, "private addresses"), when(n.CA != "", "own authorities"), when(n.Cert != "", "client certificate"))
	}
	for _, d := range g.Dirs {
		add("dir", d.Guest, "from "+d.Host, when(!d.Write, "read only"),
			when(d.Write, fmt.Sprintf("written to, up to %s in %d files", jobconfig.ShowSize(d.Bytes), d.Files)))
	}
	if g.KV {
		add("kv", "key/value state")
	}
	for _, name := range byName(g.Secrets) {
		s := g.Secrets[name]
		add("secret", name, when(s.File != "", "from "+s.File), when(s.Env != "", "from the variable "+s.Env),
			when(s.Readable, "readable"), when(!s.Readable, "in headers only"))
	}
	for _, name := range byName(g.Env) {
		add("env", name, g.Env[name])
	}
	if g.Config != nil {
		add("config", words.Count(len(g.Config), "byte"))
	}
	if q := g.Quotas.lines(); len(q) > 0 {
		add("quota", strings.Join(q, ", "))
	}
	return lines
}

// lines are the quotas that are set.
func (q Quotas) lines() []string {
	var list []string
	add := func(set bool, name string, value any) {
		if set {
			list = append(list, fmt.Sprint(name, " ", value))
		}
	}
	add(q.Requests > 0, "requests", q.Requests)
	add(q.InFlight > 0, "inFlight", q.InFlight)
	add(q.Connections > 0, "connections", q.Connections)
	add(q.Received > 0, "received", jobconfig.ShowSize(q.Received))
	add(q.Sent > 0, "sent", jobconfig.ShowSize(q.Sent))
	add(q.Connect > 0, "connect", words.Duration(q.Connect))
	add(q.FirstByte > 0, "firstByte", words.Duration(q.FirstByte))
	return list
}
