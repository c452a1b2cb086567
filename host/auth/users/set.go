package users

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/auth/password"
)

// User is a person who signs in.
type User struct {
	Name     string
	Bindings []auth.Binding
	// Password is the zero hash of a user who has none.
	Password password.Hash
	// Certificates are the subjects of certificates that stand for the user.
	Certificates []string
}

// Credential changes with the user's password, and shows nothing of it.
func (u User) Credential() string {
	sum := sha256.Sum256([]byte("wasmjob credential " + u.Name + " " + u.Password.String()))
	return hex.EncodeToString(sum[:8])
}

// Token is a secret that a program sends with its requests.
type Token struct {
	Name string
	// ID stands in the token's text, so that it is found without a search by the secret.
	ID       string
	Bindings []auth.Binding
	Created  time.Time
	Expires  time.Time

	sum [sha256.Size]byte
}

// Provider is an OpenID Connect provider, and what its groups may do here.
type Provider struct {
	// Name is shown to people.
	Name, Issuer, ClientID string
	// ClientSecret is empty for a public client.
	ClientSecret string
	Scopes       []string
	// NameClaim and GroupsClaim are the claims that have the user's name and groups.
	NameClaim, GroupsClaim string
	Groups                 map[string][]auth.Binding
}

// Set has the users, tokens and provider of a users file. It is immutable.
type Set struct {
	users  map[string]User
	tokens map[string]Token // by id
	// subjects are the names of users by the subject of a certificate.
	subjects map[string]string
	provider *Provider
	// digest is that of the texts that were read.
	digest   [sha256.Size]byte
	files    []string
	warnings []string
}

// Empty is a set without users.
func Empty() *Set { return &Set{} }

// Same reports whether two sets were read from the same text.
func (s *Set) Same(other *Set) bool { return s.digest == other.digest }

// Warnings are about what is taken, but should not be so.
func (s *Set) Warnings() []string { return s.warnings }

// Users are all users, by name.
func (s *Set) Users() []User {
	var list []User
	for _, u := range s.users {
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b User) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Tokens are all tokens, by name.
func (s *Set) Tokens() []Token {
	var list []Token
	for _, t := range s.tokens {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Token) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// User finds a user.
func (s *Set) User(name string) (User, bool) {
	u, ok := s.users[name]
	return u, ok
}

// Passwords reports whether any user has a password.
func (s *Set) Passwords() bool {
	for _, u := range s.users {
		if !u.Password.Zero() {
			return true
		}
	}
	return false
}

// Provider is the OpenID Connect provider; nil: there is none.
func (s *Set) Provider() *Provider { return s.provider }

// Subject finds the user of a certificate's subject.
func (s *Set) Subject(subject string) (User, bool) {
	name, ok := s.subjects[subject]
	if !ok {
		return User{}, false
	}
	return s.User(name)
}

// TokenPrefix begins every token, so that scanners of secrets find those that were lost.
const TokenPrefix = "wjt_"

// Token finds the token with this text. The secret is compared in constant time, also
// for an id that is unknown.
func (s *Set) Token(text string) (Token, bool) {
	id, secret, _ := strings.Cut(strings.TrimPrefix(text, TokenPrefix), "_")
	t, known := s.tokens[id]
	sum := sha256.Sum256([]byte(secret))
	same := subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
	return t, known && same && strings.HasPrefix(text, TokenPrefix)
}

// Mapped are those of a provider's groups that have a role here, sorted.
func (p *Provider) Mapped(groups []string) []string {
	var list []string
	for _, g := range groups {
		if p.Groups[g] != nil && !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	slices.Sort(list)
	return list
}

// Bindings are those of all the groups together.
func (p *Provider) Bindings(groups []string) []auth.Binding {
	var list []auth.Binding
	for _, g := range groups {
		list = append(list, p.Groups[g]...)
	}
	return list
}
