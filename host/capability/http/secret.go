package http

import (
	"slices"
	"strings"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/capability"
	"github.com/wasmjob/wasmjob/host/grants"
	"github.com/wasmjob/wasmjob/host/words"
)

// The place of a secret in the value of a header.
const (
	secretBegin = "{{secret:"
	secretEnd   = "}}"
)

// secrets are those that are in the headers of a request, the longest first.
type secrets []placed

type placed struct{ value, place string }

// reveal puts secrets into the headers.
func (in *Instance) reveal(h *head, granted *grants.HTTP) (secrets, error) {
	var used secrets
	for i := range h.headers {
		value, err := in.expand(h, granted, h.headers[i].value, &used)
		if err != nil {
			return nil, err
		}
		h.headers[i].value = value
	}
	slices.SortFunc(used, func(a, b placed) int { return len(b.value) - len(a.value) })
	return used, nil
}

func (in *Instance) expand(h *head, granted *grants.HTTP, value string, used *secrets) (string, error) {
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
		*used = append(*used, placed{secret, secretBegin + name + secretEnd})
		value = after
	}
}

// redact puts the places of the secrets back into what came from the server, or from a
// library, in whichever case the letters are.
func (s secrets) redact(text string) string {
	for _, x := range s {
		for i := 0; i+len(x.value) <= len(text); i++ {
			if strings.EqualFold(text[i:i+len(x.value)], x.value) {
				text = text[:i] + x.place + text[i+len(x.value):]
				i += len(x.place) - 1
			}
		}
	}
	return text
}
