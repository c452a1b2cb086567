package httpx

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
)

// Compression returns what compresses the answers of a handler for clients that take gzip, if they
// have a kilobyte or more of text. Event streams are left as they are: each event has to leave at once.
//
// The length of a compressed answer may reveal a secret that it contains beside a text that a
// stranger has chosen. So no answer may contain a secret that is used again: forms carry no token.
func Compression() (func(http.Handler) http.HandlerFunc, error) {
	return gzhttp.NewWrapper(gzhttp.EnableZstd(false), // whose encoders take megabytes each
		gzhttp.ContentTypes([]string{"text/html", "text/plain", "text/css", "text/javascript", "application/json", "application/problem+json", "application/yaml"}))
}
