package users

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/password"
	"github.com/wasmjob/wasmjob/host/config/ceiling"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/ownership"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// MaxSize is the largest file, in bytes.
const MaxSize = 1 << 20

// maxSecret is the largest file with a client's secret, in bytes.
const maxSecret = 4 << 10

const (
	defaultNameClaim   = "email"
	defaultGroupsClaim = "groups"
)

// Read reads a file. One that does not exist is an empty set. Any other mistake refuses
// the whole file: the error has the first of them, with their places, and how many others there are.
func Read(name string) (*Set, error) { return read(name, anybody) }

// read reads a file, and those that it names, if check finds nothing wrong with their owners.
func read(name string, check owners) (*Set, error) {
	data, info, err := fields.ReadFile(name, MaxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return Empty(), nil
	}
	if err != nil {
		return nil, fields.Problems{{File: name, Message: err.Error()}}
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return nil, fields.Problems{{File: name, Message: fmt.Sprintf("its mode is %04o, so that others can write to it and make themselves users, expected 0600", mode)}}
	}
	if err := check(name, info); err != nil {
		return nil, err
	}
	s, err := parse(name, data, secretOf(check))
	if err == nil && info.Mode().Perm()&0o004 != 0 {
		s.warnings = append(s.warnings, fmt.Sprintf("%s can be read by everybody on this machine (mode %04o, expected 0600): the hashes of passwords are in it", name, info.Mode().Perm()))
	}
	return s, err
}

// Parse reads a file that is in memory already; files that it names are read.
func Parse(name string, data []byte) (*Set, error) {
	return parse(name, data, secretOf(anybody))
}

// owners says what is wrong with the owner of a file.
type owners func(name string, info fs.FileInfo) error

// anybody is for commands: root may look at the files of a host that another user runs.
func anybody(string, fs.FileInfo) error { return nil }

// trusted is for a host that the user runs.
func trusted(u ownership.User) owners {
	return func(name string, info fs.FileInfo) error { return u.Check(name, info, ownership.Secret) }
}

func secretOf(check owners) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		data, info, err := fields.ReadFile(name, maxSecret)
		if err != nil {
			return nil, err
		}
		if info.Mode().Perm()&0o007 != 0 {
			return nil, fmt.Errorf("can be used by everybody on this machine (mode %04o), expected 0600", info.Mode().Perm())
		}
		return data, check(name, info)
	}
}

func parse(name string, data []byte, open func(string) ([]byte, error)) (*Set, error) {
	r := &reader{
		File: fields.File{Name: name}, open: open, tokenNames: map[string]bool{},
		out: &Set{users: map[string]User{}, tokens: map[string]Token{}, subjects: map[string]string{}, digest: sha256.Sum256(data)},
	}
	root := r.Root(data, "expected users, tokens or oidc; \"users: []\" has no users in it", "the fields users, tokens and oidc")
	f := r.Fields(root, "", fileFields)
	r.Each(f["users"], "users", r.user)
	r.Each(f["tokens"], "tokens", r.token)
	if n := f["oidc"]; n != nil {
		r.provider(n)
	}
	if err := r.Problems.Sorted(); err != nil {
		return nil, err
	}
	return r.out, nil
}

// reader makes a set of one file.
type reader struct {
	fields.File
	open func(name string) ([]byte, error)
	out  *Set
	// tokenNames are those that were given so far.
	tokenNames map[string]bool
}

var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$`)

// CheckName checks the name of a user or a token.
func CheckName(name string) error {
	if !goodName.MatchString(name) {
		return fmt.Errorf("found the name %q, expected at most 64 letters, digits and . _ @ + -, a letter or digit first", words.Clip(name))
	}
	return nil
}

// name reads a name; ok is false if it is missing or no name.
func (r *reader) name(entry, n *yaml.Node, field string) (name string, ok bool) {
	if n == nil {
		r.Problem(entry, field, "is missing, expected a name")
		return "", false
	}
	if name, ok = r.Text(n, field); !ok {
		return "", false
	}
	if err := CheckName(name); err != nil {
		r.Problem(n, field, "%v", err)
		return "", false
	}
	return name, true
}

func (r *reader) user(n *yaml.Node) {
	f := r.Fields(n, "users", userFields)
	name, ok := r.name(n, f["name"], "users.name")
	if !ok {
		return
	}
	if _, twice := r.out.users[name]; twice {
		r.Problem(f["name"], "users.name", "there is a user %q already", name)
		return
	}
	u := User{Name: name, Bindings: r.roles(n, f["roles"], "users.roles")}
	if text, ok := r.Text(f["password"], "users.password"); ok {
		var err error
		if u.Password, err = password.Parse(text); err != nil {
			r.Problem(f["password"], "users.password", "%v", err)
		}
	}
	r.Texts(f["certificates"], "users.certificates", func(n *yaml.Node, subject string) {
		if owner, twice := r.out.subjects[subject]; twice {
			r.Problem(n, "users.certificates", "the subject %q is the user %q's already", words.Clip(subject), owner)
			return
		}
		if subject == "" {
			r.Problem(n, "users.certificates", "found an empty subject, expected one such as CN=ann,O=Example")
			return
		}
		r.out.subjects[subject] = name
		u.Certificates = append(u.Certificates, subject)
	})
	r.out.users[name] = u
}

// roles reads a mapping of roles to patterns of jobs.
func (r *reader) roles(entry, n *yaml.Node, field string) (list []auth.Binding) {
	if n == nil {
		r.Problem(entry, field, "is missing, expected roles with the jobs that they are for, such as {operator: etl-*}")
		return nil
	}
	r.Pairs(n, field, func(key, value *yaml.Node) {
		if err := auth.CheckRole(key.Value); err != nil {
			r.Problem(key, field, "%v", err)
			return
		}
		b := auth.Binding{Role: auth.Role(key.Value)}
		r.Texts(value, fields.Join(field, key.Value), func(n *yaml.Node, text string) {
			if err := ceiling.CheckPattern(text); err != nil {
				r.Problem(n, fields.Join(field, key.Value), "%v", err)
				return
			}
			b.Jobs = append(b.Jobs, text)
		})
		if len(b.Jobs) > 0 {
			list = append(list, b)
		}
	})
	return list
}

var tokenID = regexp.MustCompile(`^[A-Za-z0-9]{8,32}$`)

func (r *reader) token(n *yaml.Node) {
	f := r.Fields(n, "tokens", tokenFields)
	name, ok := r.name(n, f["name"], "tokens.name")
	if !ok {
		return
	}
	if r.tokenNames[name] {
		r.Problem(f["name"], "tokens.name", "there is a token %q already", name)
		return
	}
	r.tokenNames[name] = true
	t := Token{Name: name, Bindings: r.roles(n, f["roles"], "tokens.roles"), Created: r.Time(f["created"], "tokens.created"), Expires: r.Time(f["expires"], "tokens.expires")}
	for _, field := range []string{"id", "sha256", "expires"} {
		if f[field] == nil {
			r.Problem(n, "tokens."+field, "is missing; 'wasmjob access token create' writes entries with all fields")
			return
		}
	}
	if id, ok := r.Text(f["id"], "tokens.id"); ok {
		t.ID = id
	}
	if _, twice := r.out.tokens[t.ID]; twice || !tokenID.MatchString(t.ID) {
		r.Problem(f["id"], "tokens.id", "found %q, expected 8 to 32 letters and digits that no other token has", words.Clip(t.ID))
		return
	}
	text, _ := r.Text(f["sha256"], "tokens.sha256")
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != len(t.sum) {
		r.Problem(f["sha256"], "tokens.sha256", "found no sum, expected %d digits of a hexadecimal number", 2*len(t.sum))
		return
	}
	t.sum = [sha256.Size]byte(sum)
	r.out.tokens[t.ID] = t
}

// provider reads the section oidc.
func (r *reader) provider(n *yaml.Node) {
	f := r.Fields(n, "oidc", providerFields)
	text := func(field, standard string) string {
		v, ok := r.Text(f[field], "oidc."+field)
		if !ok || v == "" {
			return standard
		}
		return v
	}
	p := &Provider{
		Issuer: text("issuer", ""), ClientID: text("clientId", ""),
		NameClaim: text("nameClaim", defaultNameClaim), GroupsClaim: text("groupsClaim", defaultGroupsClaim),
		Groups: map[string][]auth.Binding{},
	}
	for _, field := range []string{"issuer", "clientId", "groups"} {
		if f[field] == nil {
			r.Problem(n, "oidc."+field, "is missing")
		}
	}
	if f["issuer"] != nil {
		u, err := checkIssuer(p.Issuer)
		if err != nil {
			r.Problem(f["issuer"], "oidc.issuer", "%v", err)
			return
		}
		p.Name = text("name", u.Host)
	}
	r.Texts(f["scopes"], "oidc.scopes", func(n *yaml.Node, scope string) {
		if scope == "" || strings.ContainsAny(scope, " \"\\") {
			r.Problem(n, "oidc.scopes", "found %q, expected a scope such as groups", words.Clip(scope))
		}
		p.Scopes = append(p.Scopes, scope)
	})
	if name := r.Path(f["clientSecretFile"], "oidc.clientSecretFile"); name != "" {
		r.out.files = append(r.out.files, name)
		data, err := r.open(name)
		if err != nil {
			r.Problem(f["clientSecretFile"], "oidc.clientSecretFile", "%s %v", words.Clip(name), err)
		}
		p.ClientSecret = strings.TrimSpace(string(data))
		r.out.digest = sha256.Sum256(slices.Concat(r.out.digest[:], data))
	}
	r.Pairs(f["groups"], "oidc.groups", func(key, value *yaml.Node) {
		p.Groups[key.Value] = r.roles(key, value, fields.Join("oidc.groups", key.Value))
	})
	r.out.provider = p
}

// checkIssuer wants TLS, but for a provider on this machine.
func checkIssuer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("found %q, expected the provider's address, such as https://sso.example.com/realms/ops", words.Clip(text))
	}
	ip, err := netip.ParseAddr(u.Hostname())
	here := u.Hostname() == "localhost" || (err == nil && ip.IsLoopback())
	if u.Scheme != "https" && (u.Scheme != "http" || !here) {
		return nil, fmt.Errorf("found %q, expected an address that begins with https://", words.Clip(text))
	}
	return u, nil
}
