package alert

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/internal/labels"
	"github.com/wasmjob/wasmjob/internal/text/times"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// Read reads the file. Its error has what is wrong, one line each.
func Read(path string) (*File, error) {
	data, info, err := fields.ReadFile(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	if err := ownership.Self().Check(path, info, ownership.Settings); err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse is Read for what stands in the file.
func Parse(name string, data []byte) (*File, error) {
	p := &parser{File: fields.File{Name: name}, routes: make(map[string]bool), out: &File{Hosts: Hosts{true, true, true, true}, Receivers: make(map[string]Receiver), Handlers: make(map[string]string), sum: sha256.Sum256(data)}}
	p.file(p.Root(data, "expected receivers and routes", "a mapping with receivers and routes"))
	if err := p.Problems.Sorted(); err != nil {
		return nil, err
	}
	return p.out, nil
}

// parser reads one file.
type parser struct {
	fields.File
	out    *File
	routes map[string]bool // by name
}

func (p *parser) file(root *yaml.Node) {
	if root == nil {
		return
	}
	found := p.Fields(root, "", fileFields)
	if n := found["receivers"]; n != nil {
		p.Pairs(n, "receivers", p.receiver)
	}
	if found["routes"] == nil {
		p.Problem(root, "routes", "is missing, expected a list of routes: without one no message is sent")
	}
	p.Each(found["routes"], "routes", p.route)
	if n := found["defaults"]; n != nil {
		e := entry{}
		p.rules(&e, n, "defaults", ruleFields)
		p.out.entries = append(p.out.entries, e)
	}
	p.Each(found["jobs"], "jobs", p.job)
	p.hosts(found["hosts"])
	if n := found["errorHandlers"]; n != nil {
		p.Pairs(n, "errorHandlers", p.handler)
	}
}

func (p *parser) job(n *yaml.Node) {
	e := entry{}
	found := p.rules(&e, n, "jobs", jobFields)
	e.jobs, e.labels = p.patterns(found["jobs"], "jobs.jobs"), p.selector(found["labels"], "jobs.labels")
	if len(e.jobs) == 0 && found["labels"] == nil {
		p.Problem(n, "jobs", "found neither jobs nor labels, expected a pattern of jobs, such as team-a-*, or conditions for labels, such as team=billing")
	}
	p.out.entries = append(p.out.entries, e)
}

// selector reads conditions for labels; a missing one has none.
func (p *parser) selector(n *yaml.Node, path string) labels.Selector {
	text, ok := p.Text(n, path)
	if !ok {
		return labels.Selector{}
	}
	s, err := labels.ParseSelector(text)
	switch {
	case err != nil:
		p.Problem(n, path, "%v", err)
	case s.Empty():
		p.Problem(n, path, "found no conditions, expected some such as %s", labels.Example)
	}
	return s
}

func (p *parser) handler(key, value *yaml.Node) {
	if !slices.Contains(handlers, key.Value) {
		p.Problem(key, "errorHandlers", "found %q, expected one of ElasticJob's error handlers %s", words.Clip(key.Value), strings.Join(handlers, ", "))
		return
	}
	route, ok := p.Text(value, fields.Join("errorHandlers", key.Value))
	if !ok {
		return
	}
	if !p.routes[route] {
		p.Problem(value, fields.Join("errorHandlers", key.Value), "found %q, expected the name of a route", words.Clip(route))
	}
	p.out.Handlers[key.Value] = route
}

func (p *parser) route(n *yaml.Node) {
	found := p.Fields(n, "routes", routeFields)
	r := Route{Group: []string{"job"}, Wait: DefaultWait, Repeat: DefaultRepeat, Resolved: true}
	if name, ok := p.Text(found["name"], "routes.name"); ok {
		r.Name = name
	}
	switch {
	case !isName(r.Name):
		p.Problem(n, "routes.name", "found %q, expected a name of letters, digits, - and _", words.Clip(r.Name))
	case p.routes[r.Name]:
		p.Problem(n, "routes.name", "%q is the name of two routes", r.Name)
	}
	p.routes[r.Name] = true
	r.Jobs = p.patterns(found["jobs"], "routes.jobs")
	r.Labels = p.selector(found["labels"], "routes.labels")
	p.Texts(found["rules"], "routes.rules", func(n *yaml.Node, text string) {
		if !slices.Contains(AllRules(), Rule(text)) {
			p.Problem(n, "routes.rules", "found the rule %q%s", words.Clip(text), words.Late(func() string { return suggest(text, AllRules()) }))
		}
		r.Rules = append(r.Rules, Rule(text))
	})
	if found["to"] == nil {
		p.Problem(n, "routes.to", "is missing, expected receivers")
	}
	to := make(map[string]bool)
	p.Texts(found["to"], "routes.to", func(n *yaml.Node, text string) {
		if _, known := p.out.Receivers[text]; !known {
			p.Problem(n, "routes.to", "found %q, expected the name of a receiver%s", words.Clip(text), words.Late(func() string { return words.Suggest(text, slices.Sorted(maps.Keys(p.out.Receivers))) }))
		}
		if to[text] {
			p.Problem(n, "routes.to", "%q is given twice", words.Clip(text))
		}
		r.To, to[text] = append(r.To, text), true
	})
	if v := found["group"]; v != nil {
		r.Group = nil
		p.Each(v, "routes.group", func(n *yaml.Node) {
			if n.Value != "job" && n.Value != "rule" {
				p.Problem(n, "routes.group", "found %s, expected job or rule", fields.Describe(n))
			}
			r.Group = append(r.Group, n.Value)
		})
	}
	if v := found["wait"]; v != nil {
		r.Wait = p.duration(v, "routes.wait", 0)
	}
	if v := found["repeat"]; v != nil {
		r.Repeat = p.duration(v, "routes.repeat", time.Minute)
	}
	if v := found["resolved"]; v != nil {
		r.Resolved = p.yes(v, "routes.resolved")
	}
	if v := found["continue"]; v != nil {
		r.Continue = p.yes(v, "routes.continue")
	}
	p.out.Routes = append(p.out.Routes, r)
}

func (p *parser) receiver(key, value *yaml.Node) {
	field := fields.Join("receivers", key.Value)
	if !isName(key.Value) {
		p.Problem(key, "receivers", "found %q, expected a name of letters, digits, - and _", words.Clip(key.Value))
	}
	r := Receiver{Name: key.Value}
	var names []string
	for _, k := range Kinds() {
		names = append(names, string(k))
	}
	kinds := p.Fields(value, field, receiverKinds)
	if value.Kind == yaml.MappingNode && len(kinds) != 1 && len(value.Content) <= 2*len(kinds) {
		p.Problem(value, field, "found %d kinds of receivers, expected one of %s", len(kinds), strings.Join(names, ", "))
	}
	for kind, n := range kinds {
		r.Kind = Kind(kind)
		p.receiverOf(&r, n, fields.Join(field, kind))
	}
	p.out.Receivers[key.Value] = r
}

func (p *parser) receiverOf(r *Receiver, n *yaml.Node, field string) {
	found := p.Fields(n, field, receiverFields[r.Kind])
	text := func(name string) string {
		s, _ := p.Text(found[name], fields.Join(field, name))
		return s
	}
	file := func(name string) string {
		if found[name] == nil {
			return ""
		}
		return p.Path(found[name], fields.Join(field, name))
	}
	r.URL, r.URLFile = text("url"), file("urlFile")
	r.SecretFile = firstOf(file("secretFile"), file("tokenFile"), file("passwordFile"))
	r.Chat = text("chat")
	switch r.Kind {
	case Email:
		p.email(r, n, field, found)
	case Telegram:
		if r.Chat == "" || r.SecretFile == "" {
			p.Problem(n, field, "expected chat and tokenFile: which chat, and the file with the bot's token")
		}
		p.address(found["url"], r.URL, field)
	default:
		if (r.URL == "") == (r.URLFile == "") {
			p.Problem(n, field, "expected url or urlFile, the file in which it stands alone")
		}
		p.address(found["url"], r.URL, field)
	}
}

// address checks a URL that stands in the file.
func (p *parser) address(n *yaml.Node, text, field string) {
	if n == nil {
		return
	}
	if problem := CheckURL(text); problem != "" {
		p.Problem(n, field+".url", "%s", problem)
	}
}

// CheckURL says what is wrong with the URL of a receiver, without showing it; empty if
// nothing is.
func CheckURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is no URL, expected one such as https://hooks.example.com/services/…"
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("found the scheme %q, expected https or http", words.Clip(u.Scheme))
	case u.Host == "" || u.User != nil:
		return "expected a host, and no user before it"
	}
	return ""
}

func (p *parser) email(r *Receiver, n *yaml.Node, field string, found map[string]*yaml.Node) {
	for _, name := range []string{"to", "from", "server"} {
		if found[name] == nil {
			p.Problem(n, field, "%s is missing, expected to, from and server", name)
		}
	}
	p.Texts(found["to"], field+".to", func(n *yaml.Node, text string) {
		r.To = append(r.To, p.mailbox(n, field+".to", text))
	})
	if v := found["from"]; v != nil {
		if text, ok := p.Text(v, field+".from"); ok {
			r.From = p.mailbox(v, field+".from", text)
		}
	}
	if v := found["server"]; v != nil {
		r.Server, _ = p.Text(v, field+".server")
		if host, port, err := net.SplitHostPort(r.Server); err != nil || host == "" || port == "" {
			p.Problem(v, field+".server", "found %s, expected HOST:PORT, such as smtp.example.com:587", fields.Describe(v))
		}
	}
	r.User, _ = p.Text(found["user"], field+".user")
	if v := found["plain"]; v != nil {
		r.Plain = p.yes(v, field+".plain")
	}
	switch {
	case (r.User == "") != (r.SecretFile == ""):
		p.Problem(n, field, "user and passwordFile go together")
	case r.Plain && r.User != "":
		p.Problem(n, field, "found a password for a connection without TLS (plain), expected none: anybody on the way could read it")
	}
}

// mailbox checks an address of e-mail.
func (p *parser) mailbox(n *yaml.Node, field, text string) string {
	a, err := mail.ParseAddress(text)
	if err != nil {
		p.Problem(n, field, "found %q, expected an address such as ops@example.com", words.Clip(text))
		return ""
	}
	return a.Address
}

// patterns takes patterns of jobs.
func (p *parser) patterns(n *yaml.Node, field string) (list []string) {
	p.Texts(n, field, func(n *yaml.Node, text string) {
		if err := ceiling.CheckPattern(text); err != nil {
			p.Problem(n, field, "%v", err)
		}
		list = append(list, text)
	})
	return list
}

// duration takes a duration, or off.
func (p *parser) duration(n *yaml.Node, field string, least time.Duration) time.Duration {
	if n.Value == off {
		return 0
	}
	d, err := times.Duration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < least || d > 366*24*time.Hour {
		p.Problem(n, field, "found %s, expected a duration such as 90s, 15m, 26h or 7d, at least %s, or off", fields.Describe(n), words.Duration(least))
	}
	return d
}

// number takes a whole number, or off.
func (p *parser) number(n *yaml.Node, field string, least, most int) int {
	if n.Value == off {
		return 0
	}
	i, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || i < least || i > most {
		p.Problem(n, field, "found %s, expected a number from %d to %d, or off", fields.Describe(n), least, most)
	}
	return i
}

// factor takes how many times something may be, or off.
func (p *parser) factor(n *yaml.Node, field string) float64 {
	if n.Value == off {
		return 0
	}
	k, err := strconv.ParseFloat(n.Value, 64)
	if ok := err == nil && k > 1 && k <= 1000; n.Kind != yaml.ScalarNode || !ok {
		p.Problem(n, field, "found %s, expected a number over 1, such as 3, or off", fields.Describe(n))
		return 0
	}
	return k
}

func (p *parser) yes(n *yaml.Node, field string) bool {
	if n.Kind == yaml.ScalarNode {
		switch n.Value {
		case "true", "on":
			return true
		case "false", off:
			return false
		}
	}
	p.Problem(n, field, "found %s, expected true or false", fields.Describe(n))
	return false
}

// isName reports whether a text can be the name of a route or a receiver.
func isName(s string) bool {
	bad := func(r rune) bool {
		letter := (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z')
		return !letter && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, bad)
}

func suggest(text string, rules []Rule) string {
	if text == "longerThanUsual" { // a setting of the file, and no rule of alerts
		return ": its alerts have the rule " + strconv.Quote(string(LongerThan))
	}
	var names []string
	for _, r := range rules {
		names = append(names, string(r))
	}
	if s := words.Suggest(text, names); s != "" {
		return s
	}
	return ", expected one of " + strings.Join(names, ", ")
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}
