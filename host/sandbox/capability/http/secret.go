package http

import (
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/config/grants"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// The place of a secret in the value of a header.
const (
	secretBegin = "{{secret:"
	secretEnd   = "}}"
)

// reveal puts secrets into the headers.
func (in *Instance) reveal(h *head, granted *grants.HTTP) error {
	for i := range h.headers {
		value, err := in.expand(h, granted, h.headers[i].value)
		if err != nil {
			return err
		}
		h.headers[i].value = value
	}
	return nil
}

func (in *Instance) expand(h *head, granted *grants.HTTP, value string) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(value, secretBegin)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, secretEnd)
		if !closed {
			return "", invalid("a header has %s without %s", secretBegin, secretEnd)
		}
		if in.o.Secret == nil || !slices.Contains(granted.Secrets, name) {
			return "", capability.Fail(abi.ErrDenied, "http: the secret %q is not granted for %s", words.Clip(name), h.origin())
		}
		secret, err := in.o.Secret(name)
		if err != nil {
			return "", capability.Fail(abi.ErrUnavailable, "http: the secret %q: %v", name, err)
		}
		if secret == "" || strings.ContainsFunc(secret, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return "", capability.Fail(abi.ErrUnavailable, "http: the secret %q cannot be in a header: it is empty, or has a control character", name)
		}
		b.WriteString(secret)
		value = after
	}
}
