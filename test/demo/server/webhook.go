// Package server has the servers that the examples talk to: a webhook that wants a
// token, and an API whose orders come in pages. They are as strict as real ones, and
// keep everything in memory.
package server

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// maxMessage is how long a message may be.
const maxMessage = 64 << 10

// Message is what the webhook gets.
type Message struct {
	Report string   `json:"report"`
	Text   []string `json:"text"`
	// Key is the Idempotency-Key.
	Key string `json:"-"`
}

// Webhook answers POST requests. It takes one message of each Idempotency-Key.
type Webhook struct {
	// Token is what requests have to show: Authorization: Bearer TOKEN.
	Token string
	// Busy has each so-manieth new message refused with 503 at first; 0 is none.
	Busy int
	// Report gets each message that is taken, and what else happens, as a line.
	Report func(line string)

	mu       sync.Mutex
	seen     map[string]bool // taken, by key
	arrived  int             // keys that are new
	refused  map[string]bool // with 503, by key
	messages []Message
}

// Messages are those that were taken so far.
func (w *Webhook) Messages() []Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Message(nil), w.messages...)
}

// ServeHTTP implements http.Handler.
func (w *Webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(rw, "POST a message", http.StatusMethodNotAllowed)
		return
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+w.Token)) != 1 {
		http.Error(rw, "the token is wrong", http.StatusUnauthorized)
		return
	}
	m := Message{Key: r.Header.Get("Idempotency-Key")}
	if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxMessage)).Decode(&m); err != nil || m.Key == "" {
		http.Error(rw, fmt.Sprintf("a JSON message and an Idempotency-Key are expected: %v", err), http.StatusBadRequest)
		return
	}
	status, line := w.take(m)
	if w.Report != nil {
		w.Report(line)
	}
	rw.WriteHeader(status)
	fmt.Fprintln(rw, line)
}

// take decides about a message.
func (w *Webhook) take(m Message) (status int, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen, w.refused = make(map[string]bool), make(map[string]bool)
	}
	if w.seen[m.Key] {
		return http.StatusOK, fmt.Sprintf("%s was taken before", m.Key)
	}
	if !w.refused[m.Key] {
		w.arrived++
		if w.Busy > 0 && w.arrived%w.Busy == 0 {
			w.refused[m.Key] = true
			return http.StatusServiceUnavailable, "busy, try again"
		}
	}
	w.seen[m.Key] = true
	w.messages = append(w.messages, m)
	return http.StatusOK, fmt.Sprintf("%s %q", m.Report, m.Text)
}
