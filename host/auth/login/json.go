package login

import (
	"encoding/json"
	"net/http"
)

// showJSON shows a login page where there is no console.
func showJSON(w http.ResponseWriter, _ *http.Request, p Page) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status())
	_ = json.NewEncoder(w).Encode(p) // the client is gone if that fails
}
