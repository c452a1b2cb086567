package peers

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Scheme begins the Authorization header of a request from host to host:
//
//	Wasmjob-Host TO NONCE SIGNATURE
//
// TO is the id of the host that is asked, NONCE a text that was not used before, and
// SIGNATURE the HMAC-SHA-256, in hex, of "METHOD URI TO NONCE" with the namespace's key.
// An id lives as long as a session, and so does a signature; one that changes something
// is taken once. Requests have no body.
const Scheme = "Wasmjob-Host "

// errNoKey: this host has had no session yet.
var errNoKey = errors.New("this host does not know its peers' key yet: it has no session with the registry")

// Sign signs a request to a peer.
func (p *Peers) Sign(r *http.Request, to string) error {
	p.mu.Lock()
	key := p.key
	p.mu.Unlock()
	if key == nil {
		return errNoKey
	}
	nonce := rand.Text()
	r.Header.Set("Authorization", Scheme+to+" "+nonce+" "+hex.EncodeToString(sum(key, r.Method, r.URL.RequestURI(), to, nonce)))
	return nil
}

// Verify returns nil if a request is a peer's to this host, or why not.
func (p *Peers) Verify(r *http.Request) error {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), Scheme)
	if !ok {
		return fmt.Errorf("found no Authorization: %s", strings.TrimSpace(Scheme))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key, id := p.key, p.id
	if key == nil {
		return errNoKey
	}
	to, rest, _ := strings.Cut(given, " ")
	nonce, text, _ := strings.Cut(rest, " ")
	signature, err := hex.DecodeString(text)
	if err != nil || !hmac.Equal(signature, sum(key, r.Method, r.RequestURI, to, nonce)) {
		return errors.New("the signature is not that of a host of this namespace")
	}
	if to != id {
		return fmt.Errorf("the request is for host %s, this is %s: its address leads here", to, id)
	}
	switch {
	case r.Method == http.MethodGet:
		return nil
	case p.used[nonce]:
		return errors.New("the request was sent before")
	case len(p.used) >= maxUsed:
		p.Renew() // with another id
		return errors.New("this host has taken too many changes by that id: ask it again by its next one")
	}
	p.used[nonce] = true
	return nil
}

// maxUsed bounds how many nonces are remembered: one for each change that an operator
// makes by another host.
const maxUsed = 100_000

func sum(key []byte, method, uri, to, nonce string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(h, "%s %s %s %s", method, uri, to, nonce) // a hash takes all
	return h.Sum(nil)
}
