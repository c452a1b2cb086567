// Package builtin has the modules that are part of the host: the one for jobs of type HTTP.
package builtin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

//go:embed http/http.wasm
var httpModule string

// HTTP is the name of the module of jobs of type HTTP. No file in a plugins directory can have it.
const HTTP = "(built in) http.wasm"

// Module returns a module by its name, and reports whether there is one.
func Module(name string) ([]byte, bool) {
	if name != HTTP {
		return nil, false
	}
	return []byte(httpModule), true
}

// Digest is the SHA-256 of a module in hexadecimal digits; empty if there is none of the name.
func Digest(name string) string {
	module, ok := Module(name)
	if !ok {
		return ""
	}
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

// Request is the plugin config by which the module of HTTP sends a request.
func Request(r jobconfig.HTTPRequest) []byte {
	r = r.Defaults()
	list := []string{r.Method, r.URL, r.ContentType, r.Body, r.Expect, strconv.FormatInt(r.RetryAfter.Milliseconds(), 10)}
	for _, h := range r.Headers {
		name, value, _ := strings.Cut(h, ":")
		list = append(list, strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return abi.AppendList(nil, list...)
}
