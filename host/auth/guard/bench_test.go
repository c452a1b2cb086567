package guard

import (
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/auth/signedout"
	"github.com/wasmjob/wasmjob/host/history"
)

// What finding out who sent a request costs.
func BenchmarkIdentify(b *testing.B) {
	g, err := New(Options{Token: "the-host's-own-token", Keys: keys, Revoked: signedout.New("ns", time.Now, zap.NewNop()), Changed: func(history.Change) {}, Logger: zap.NewNop()})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", g.Login.Link(""), nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	g.Login.Handler().ServeHTTP(w, r)
	session, token := httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/", nil)
	session.Host = "localhost"
	session.AddCookie(w.Result().Cookies()[0])
	token.Header.Set("Authorization", "Bearer the-host's-own-token")
	b.Run("session", func(b *testing.B) {
		for b.Loop() {
			if _, err := g.Guard.Identify(session); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("token", func(b *testing.B) {
		for b.Loop() {
			if _, err := g.Guard.Identify(token); err != nil {
				b.Fatal(err)
			}
		}
	})
}
