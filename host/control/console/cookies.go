package console

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/control/pages"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The cookies of the console. They hold no secret: the look of pages, and the result of the last form. The
// browser's script writes the zone.
const (
	cookieLang  = "wasmjob-lang"
	cookieTheme = pages.ThemeCookie
	cookieZone  = "wasmjob-zone"
	cookieFlash = "wasmjob-flash"
)

// keptYear is how long a choice is kept.
const keptYear = 365 * 24 * time.Hour

func cookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil {
		return ""
	}
	value, err := url.QueryUnescape(c.Value)
	if err != nil {
		return ""
	}
	return value
}

// preferences keeps the language and the theme, and goes back.
func preferences(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for name, cookie := range map[string]string{"lang": cookieLang, "theme": cookieTheme} {
		if q.Has(name) {
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: url.QueryEscape(words.ClipTo(q.Get(name), 16)), Path: "/", MaxAge: int(keptYear / time.Second), SameSite: http.SameSiteLaxMode})
		}
	}
	http.Redirect(w, r, local(q.Get("back"), "/"), http.StatusSeeOther)
}

// local returns path if it is a path of this site, otherwise the other one, so that no redirect leaves the
// site.
func local(path, otherwise string) string {
	u, err := url.Parse(path)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return otherwise
	}
	return path
}

// flash is what a form has done, shown once on the page after it.
type flash struct {
	// Kind is done or failed.
	Kind string `json:"k"`
	Text string `json:"t"`
	// Fires is the address of the fires that it made, empty for none.
	Fires string `json:"f,omitempty"`
}

// maxFlash bounds the text in bytes: a cookie has up to 4,096.
const maxFlash = 1500

func setFlash(w http.ResponseWriter, f flash) {
	f.Text = words.ClipTo(f.Text, maxFlash)
	b, err := json.Marshal(f)
	if err != nil { // texts always marshal
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieFlash, Value: base64.RawURLEncoding.EncodeToString(b), Path: "/", MaxAge: 60, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// readFlash is nil if there is none that can be read.
func readFlash(r *http.Request) *flash {
	b, err := base64.RawURLEncoding.DecodeString(cookieOf(r, cookieFlash))
	var f flash
	if err != nil || json.Unmarshal(b, &f) != nil || f.Text == "" {
		return nil
	}
	if f.Kind != "done" {
		f.Kind = "failed"
	}
	f.Fires = local(f.Fires, "")
	return &f
}

// dropFlash has the browser forget it.
func dropFlash(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{Name: cookieFlash, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}
