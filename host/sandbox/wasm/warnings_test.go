package wasm

import "testing"

// TestWarnings: a module that has Go's HTTP client in it cannot use it.
func TestWarnings(t *testing.T) {
	t.Parallel()
	if w := Warnings([]byte("…net/http.(*Transport).RoundTrip…")); len(w) != 1 {
		t.Errorf("warnings %q, want one of net/http", w)
	}
	if w := Warnings([]byte("net/http")); len(w) != 0 {
		t.Errorf("warnings %q of a mere text", w)
	}
}
