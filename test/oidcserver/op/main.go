// Command op is an OpenID Connect provider for tests: that of github.com/zitadel/oidc,
// with users, groups and lifetimes as its settings say. It reads the settings, a JSON
// object, from its input, writes its issuer's address, and ends when its input does.
//
// It is a module of its own: the product does not require a provider.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
	"golang.org/x/text/language"
)

// settings are what the tests choose; test/oidcserver has the same.
type settings struct {
	Listen       string
	ClientID     string
	ClientSecret string
	Redirects    []string
	// TokenLife is the ID tokens'.
	TokenLife time.Duration
	// GroupsInToken has the groups in the ID token; else the provider gives them on request.
	GroupsInToken bool
	// Audiences are further ones of the ID token, beside the client.
	Audiences []string
	Users     []user
}

type user struct {
	Name, Password, Email string
	Verified              bool
	Groups                []string
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "op:", err)
		os.Exit(1)
	}
}

func run() error {
	var s settings
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.Listen)
	if err != nil {
		return err
	}
	issuer := "http://" + l.Addr().String()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	server := &http.Server{Handler: exampleop.SetupServer(issuer, newStore(s), log, false), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	fmt.Println(issuer)
	_, _ = io.Copy(io.Discard, os.Stdin) // until who started us is gone
	if err := server.Close(); err != nil {
		return err
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// people is the library's list of users.
type people map[string]*storage.User

func (p people) GetUserByID(id string) *storage.User         { return p[id] }
func (p people) GetUserByUsername(name string) *storage.User { return p["id-"+name] }
func (p people) ExampleClientID() string                     { return "" }

// store is the library's, with one client and with groups.
type store struct {
	*storage.Storage
	settings settings
	groups   map[string][]string // by the user's id
}

func newStore(s settings) *store {
	all, groups := people{}, map[string][]string{}
	for _, u := range s.Users {
		id := "id-" + u.Name
		all[id] = &storage.User{ID: id, Username: u.Name, Password: u.Password, Email: u.Email, EmailVerified: u.Verified, PreferredLanguage: language.English}
		groups[id] = u.Groups
	}
	return &store{storage.NewStorage(all), s, groups}
}

func (s *store) GetClientByClientID(_ context.Context, id string) (op.Client, error) {
	if id != s.settings.ClientID {
		return nil, errors.New("there is no such client")
	}
	return &client{storage.WebClient(id, s.settings.ClientSecret, s.settings.Redirects...), s.settings}, nil
}

func (s *store) AuthorizeClientIDSecret(_ context.Context, id, secret string) error {
	if id != s.settings.ClientID || secret != s.settings.ClientSecret {
		return errors.New("wrong secret")
	}
	return nil
}

// forSeveral is a sign-in whose ID token has further audiences. The library adds the client, and
// names it in azp.
type forSeveral struct {
	op.AuthRequest
	audiences []string
}

func (r *forSeveral) GetAudience() []string { return r.audiences }

func (s *store) AuthRequestByCode(ctx context.Context, code string) (op.AuthRequest, error) {
	r, err := s.Storage.AuthRequestByCode(ctx, code)
	if err != nil || len(s.settings.Audiences) == 0 {
		return r, err
	}
	return &forSeveral{r, s.settings.Audiences}, nil
}

// CreateAccessToken knows the library's own requests only.
func (s *store) CreateAccessToken(ctx context.Context, r op.TokenRequest) (string, time.Time, error) {
	if several, ok := r.(*forSeveral); ok {
		r = several.AuthRequest
	}
	return s.Storage.CreateAccessToken(ctx, r)
}

func (s *store) addGroups(info *oidc.UserInfo, subject string) {
	if info.Claims == nil {
		info.Claims = map[string]any{}
	}
	info.Claims["groups"] = s.groups[subject]
}

// SetUserinfoFromRequest fills the ID token.
func (s *store) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, r op.IDTokenRequest, scopes []string) error {
	if err := s.Storage.SetUserinfoFromRequest(ctx, info, r, scopes); err != nil {
		return err
	}
	if s.settings.GroupsInToken {
		s.addGroups(info, r.GetSubject())
	}
	return nil
}

// SetUserinfoFromToken fills what is given on request.
func (s *store) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	if err := s.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	s.addGroups(info, subject)
	return nil
}

// client is the library's, as the settings have it.
type client struct {
	*storage.Client
	settings settings
}

func (c *client) IDTokenLifetime() time.Duration       { return c.settings.TokenLife }
func (c *client) IDTokenUserinfoClaimsAssertion() bool { return c.settings.GroupsInToken }
func (c *client) AuthMethod() oidc.AuthMethod {
	if c.settings.ClientSecret == "" {
		return oidc.AuthMethodNone
	}
	return oidc.AuthMethodBasic
}
