package peers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Scheme begins the Authorization header of a request from host to host:
//
//	Wasmjob-Host TO SIGNATURE
//
// TO is the id of the host that is asked, and SIGNATURE the HMAC-SHA-256, in hex, of
// "METHOD URI TO" with the namespace's key. An id lives as long as a session, and so
// does a signature. Requests have no body.
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
	r.Header.Set("Authorization", Scheme+to+" "+hex.EncodeToString(sum(key, r.Method, r.URL.RequestURI(), to)))
	return nil
}

// Verify reports why a request is not one of a peer to this host; nil if it is.
func (p *Peers) Verify(r *http.Request) error {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), Scheme)
	if !ok {
		return fmt.Errorf("found no Authorization: %s", strings.TrimSpace(Scheme))
	}
	p.mu.Lock()
	key, id := p.key, p.id
	p.mu.Unlock()
	if key == nil {
		return errNoKey
	}
	to, text, _ := strings.Cut(given, " ")
	signature, err := hex.DecodeString(text)
	if err != nil || !hmac.Equal(signature, sum(key, r.Method, r.RequestURI, to)) {
		return errors.New("the signature is not that of a host of this namespace")
	}
	if to != id {
		return fmt.Errorf("the request is for host %s, this is %s: its address leads here", to, id)
	}
	return nil
}

func sum(key []byte, method, uri, to string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(h, "%s %s %s", method, uri, to) // a hash takes all
	return h.Sum(nil)
}
