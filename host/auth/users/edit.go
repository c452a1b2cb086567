package users

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/password"
	"github.com/wasmjob/wasmjob/host/config/fields"
	"github.com/wasmjob/wasmjob/host/config/filelock"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Edit changes the file, which is made if it does not exist, in a directory that is made
// as well. Two edits at a time do not lose each other's changes: the second one fails.
// What would not be read again is not written. The file is replaced as a whole, with the
// mode 0600.
func Edit(path string, change func(*Document) error) error {
	return filelock.Edit(path, func(path string) ([]byte, error) {
		data, _, err := fields.ReadFile(path, MaxSize)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s %w", path, err)
		}
		d, err := open(path, data)
		if err != nil {
			return nil, err
		}
		if err := change(d); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		text, err := d.text()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if _, err := Parse(path, text); err != nil {
			return nil, fmt.Errorf("nothing is changed: the file would not be taken:\n%w", err)
		}
		return text, nil
	})
}

// Document is a file that is being edited.
type Document struct {
	set *Set
	// document has root, a mapping, and the comments around it.
	document, root *yaml.Node
}

// open reads a file to edit it; of no bytes it is a new one.
func open(path string, data []byte) (*Document, error) {
	d := &Document{set: Empty(), document: &yaml.Node{Kind: yaml.DocumentNode, HeadComment: heading}}
	if len(bytes.TrimSpace(data)) == 0 {
		d.root = &yaml.Node{Kind: yaml.MappingNode}
		d.document.Content = []*yaml.Node{d.root}
		return d, nil
	}
	var err error
	if d.set, err = Parse(path, data); err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(data, d.document); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	d.root = d.document.Content[0] // Parse has found one mapping
	return d, nil
}

const heading = "# yaml-language-server: $schema=https://raw.githubusercontent.com/wasmjob/wasmjob/main/docs/users.schema.json\n# Who may do what on this host: 'wasmjob access user' and 'wasmjob access token' edit this file,\n# docs/access.md describes it. Hosts read it again when it changes."

func (d *Document) text() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(d.document); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// AddUser adds a user; the zero hash is no password.
func (d *Document) AddUser(name string, bindings []auth.Binding, hash password.Hash, certificates []string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, twice := d.set.User(name); twice {
		return fmt.Errorf("there is a user %q already; 'wasmjob access user passwd' changes the password, an editor the roles", name)
	}
	roles, err := rolesNode(bindings)
	if err != nil {
		return err
	}
	n := mapping("name", text(name))
	if !hash.Zero() {
		put(n, "password", text(hash.String()))
	}
	put(n, "roles", roles)
	if len(certificates) > 0 {
		put(n, "certificates", texts(certificates))
	}
	return d.add("users", n)
}

// SetPassword changes a user's password.
func (d *Document) SetPassword(name string, hash password.Hash) error {
	n, _, err := d.entry("users", "user", name)
	if err != nil {
		return err
	}
	put(n, "password", text(hash.String()))
	return nil
}

// RemoveUser takes a user out.
func (d *Document) RemoveUser(name string) error { return d.remove("users", "user", name) }

// RevokeToken takes a token out.
func (d *Document) RevokeToken(name string) error { return d.remove("tokens", "token", name) }

// AddToken adds a token, and returns its text, which is in no file.
func (d *Document) AddToken(name string, bindings []auth.Binding, created, expires time.Time) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	if slices.ContainsFunc(d.set.Tokens(), func(t Token) bool { return t.Name == name }) {
		return "", fmt.Errorf("there is a token %q already; 'wasmjob access token revoke' takes it out", name)
	}
	roles, err := rolesNode(bindings)
	if err != nil {
		return "", err
	}
	id, secret := rand.Text()[:12], rand.Text()
	sum := sha256.Sum256([]byte(secret))
	n := mapping("name", text(name))
	put(n, "id", text(id))
	put(n, "sha256", text(hex.EncodeToString(sum[:])))
	put(n, "roles", roles)
	put(n, "created", text(created.UTC().Format(time.RFC3339)))
	put(n, "expires", text(expires.UTC().Format(time.RFC3339)))
	return TokenPrefix + id + "_" + secret, d.add("tokens", n)
}

// list finds the list of a field; nil if the field is not there.
func (d *Document) list(field string) *yaml.Node {
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		if d.root.Content[i].Value == field {
			return d.root.Content[i+1]
		}
	}
	return nil
}

func (d *Document) add(field string, n *yaml.Node) error {
	list := d.list(field)
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode}
		put(d.root, field, list)
	}
	list.Style &^= yaml.FlowStyle // "users: []" grows in lines
	list.Content = append(list.Content, n)
	return nil
}

// entry finds what has the name in the list of a field.
func (d *Document) entry(field, kind, name string) (n *yaml.Node, at int, err error) {
	var names []string
	if list := d.list(field); list != nil {
		for at, n := range list.Content {
			found := value(n, "name")
			if found == name {
				return n, at, nil
			}
			names = append(names, found)
		}
	}
	if len(names) == 0 {
		return nil, 0, fmt.Errorf("there is no %s in it", kind)
	}
	return nil, 0, fmt.Errorf("there is no %s %q%s", kind, words.Clip(name), words.Suggest(name, names))
}

func (d *Document) remove(field, kind, name string) error {
	_, at, err := d.entry(field, kind, name)
	if err != nil {
		return err
	}
	list := d.list(field)
	list.Content = slices.Delete(list.Content, at, at+1)
	if len(list.Content) == 0 {
		list.Style |= yaml.FlowStyle // a list without entries is []
	}
	return nil
}

// rolesNode is a mapping of roles; a role that is given twice has the jobs of both.
func rolesNode(bindings []auth.Binding) (*yaml.Node, error) {
	if len(bindings) == 0 {
		return nil, fmt.Errorf("there is no role, expected at least one of %s, such as operator=etl-*", strings.Join(auth.Roles(), ", "))
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, role := range auth.Roles() {
		var jobs []string
		for _, b := range bindings {
			if err := b.Check(); err != nil {
				return nil, err
			}
			if string(b.Role) == role {
				jobs = append(jobs, b.Jobs...)
			}
		}
		if len(jobs) > 0 {
			put(n, role, texts(jobs))
		}
	}
	return n, nil
}

func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.ContainsAny(s, "*?[]{}") {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func texts(list []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, s := range list {
		n.Content = append(n.Content, text(s))
	}
	return n
}

func mapping(key string, v *yaml.Node) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	put(n, key, v)
	return n
}

// put sets a key of a mapping.
func put(n *yaml.Node, key string, v *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			n.Content[i+1] = v
			return
		}
	}
	n.Content = append(n.Content, text(key), v)
}

// value is the text of a mapping's key.
func value(n *yaml.Node, key string) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1].Value
		}
	}
	return ""
}
