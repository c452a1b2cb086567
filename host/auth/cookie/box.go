package cookie

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
)

const (
	// minSecret is the shortest secret, in bytes.
	minSecret = 32
	// maxValue bounds the bytes of a cookie that are read; browsers keep 4096.
	maxValue = 4096
	prefix   = "wasmjob-"
	// hostPrefix makes browsers refuse the cookie from another host of the domain or from a page without TLS.
	hostPrefix = "__Host-"
)

// Keys has the id and the secret that the hosts of a cluster share.
type Keys struct {
	// Cluster is the cluster's id: letters, digits and underscores, at most 32.
	Cluster string
	// Secret has at least 32 bytes that only hosts of the cluster know.
	Secret []byte
}

var clusterID = regexp.MustCompile(`^[A-Za-z0-9_]{1,32}$`)

// Check returns what is wrong with the keys, or nil.
func (k Keys) Check() error {
	switch {
	case !clusterID.MatchString(k.Cluster):
		return fmt.Errorf("found the cluster's id %q, expected 1 to 32 letters, digits and underscores", k.Cluster)
	case len(k.Secret) < minSecret:
		return fmt.Errorf("the cluster's secret has %d bytes, expected at least %d", len(k.Secret), minSecret)
	}
	return nil
}

// Box makes and reads cookies. It is safe for concurrent use.
type Box struct {
	// Keys returns the present keys; ok is false while they are unknown, as before the first session with the
	// registry.
	Keys func() (keys Keys, ok bool)
	// Secure reports whether the browser that sent the request speaks TLS.
	Secure func(*http.Request) bool
	// Now is the clock.
	Now func() time.Time
}

var (
	errNone    = errors.New("there is no such cookie")
	errInvalid = errors.New("the cookie was not made by this cluster, or was changed")
	errExpired = errors.New("the cookie has expired")
	errTwice   = errors.New("there are two cookies of the same name")
)

// errForeign: the request has a cookie of another cluster instead of ours.
type errForeign struct{ theirs, ours string }

func (e errForeign) Error() string {
	return fmt.Sprintf("the cookie is of the cluster %q, and this is the cluster %q", e.theirs, e.ours)
}

// envelope is the content of a cookie.
type envelope struct {
	Expires int64           `json:"e"` // Unix seconds
	Data    json.RawMessage `json:"d"`
}

// keys returns the present keys; the error is a problem.
func (b *Box) keys() (Keys, error) {
	k, ok := b.Keys()
	if !ok {
		return k, auth.NewProblem(auth.NotNow, http.StatusServiceUnavailable,
			"there are no sessions before the host has reached its registry; a token is taken: Authorization: Bearer TOKEN")
	}
	return k, k.Check()
}

// derived returns the key for one purpose.
func (k Keys) derived(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k.Secret, nil, "wasmjob 1 "+purpose+" "+k.Cluster, 32)
}

// name returns the name of a kind's cookie.
func (k Keys) name(kind string, secure bool) string {
	name := prefix + kind + "-" + k.Cluster
	if secure {
		name = hostPrefix + name
	}
	return name
}

func (k Keys) aead(kind string) (cipher.AEAD, error) {
	key, err := k.derived(kind)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal makes the value of a cookie.
func (k Keys) seal(kind string, data any, expires time.Time) (string, error) {
	inner, err := json.Marshal(data)
	if err != nil {
		return "", err
	}
	plain, err := json.Marshal(envelope{expires.Unix(), inner})
	if err != nil {
		return "", err
	}
	aead, err := k.aead(kind)
	if err != nil {
		return "", err
	}
	value := base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, plain, []byte(kind+" "+k.Cluster)))
	if len(value) > maxValue {
		return "", fmt.Errorf("a cookie would have %d bytes, and browsers keep %d", len(value), maxValue)
	}
	return value, nil
}

// open reads the value of a cookie.
func (k Keys) open(kind, value string, now time.Time, into any) error {
	if len(value) > maxValue {
		return errInvalid
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return errInvalid
	}
	aead, err := k.aead(kind)
	if err != nil {
		return err
	}
	plain, err := aead.Open(nil, nil, sealed, []byte(kind+" "+k.Cluster))
	if err != nil {
		return errInvalid
	}
	var e envelope
	if err := json.Unmarshal(plain, &e); err != nil {
		return errInvalid
	}
	if now.Unix() >= e.Expires {
		return errExpired
	}
	if err := json.Unmarshal(e.Data, into); err != nil {
		return errInvalid
	}
	return nil
}

// Set adds a cookie of a kind to the answer, which expires after a while.
func (b *Box) Set(w http.ResponseWriter, r *http.Request, kind string, data any, life time.Duration) error {
	k, err := b.keys()
	if err != nil {
		return err
	}
	value, err := k.seal(kind, data, b.Now().Add(life))
	if err != nil {
		return err
	}
	http.SetCookie(w, b.cookie(r, k, kind, value, int(life/time.Second)))
	return nil
}

// Get reads the request's cookie of a kind.
func (b *Box) Get(r *http.Request, kind string, into any) error {
	k, err := b.keys()
	if err != nil {
		return err
	}
	return b.get(r, k, kind, into)
}

// Drop tells the browser to delete a cookie.
func (b *Box) Drop(w http.ResponseWriter, r *http.Request, kind string) {
	if k, err := b.keys(); err == nil {
		http.SetCookie(w, b.drop(r, k, kind))
	}
}

// cookie returns a cookie that scripts cannot read. Other sites' requests carry it only when they follow a
// link, such as a provider's answer to a sign-in.
func (b *Box) cookie(r *http.Request, k Keys, kind, value string, maxAge int) *http.Cookie {
	secure := b.Secure(r)
	return &http.Cookie{
		Name: k.name(kind, secure), Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	}
}

// drop returns a cookie that makes the browser delete one.
func (b *Box) drop(r *http.Request, k Keys, kind string) *http.Cookie {
	return b.cookie(r, k, kind, "", -1)
}

// get reads the request's cookie of a kind.
func (b *Box) get(r *http.Request, k Keys, kind string, into any) error {
	found := r.CookiesNamed(k.name(kind, b.Secure(r)))
	switch len(found) {
	case 0:
		return foreign(r, k, kind)
	case 1:
		return k.open(kind, found[0].Value, b.Now(), into)
	}
	return errTwice
}

// foreign is the error about a missing cookie.
func foreign(r *http.Request, k Keys, kind string) error {
	for _, c := range r.Cookies() {
		theirs, is := strings.CutPrefix(strings.TrimPrefix(c.Name, hostPrefix), prefix+kind+"-")
		if is && theirs != k.Cluster && clusterID.MatchString(theirs) {
			return errForeign{theirs, k.Cluster}
		}
	}
	return errNone
}
