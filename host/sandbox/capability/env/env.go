// Package env gives a guest its environment variables, and the secrets that it may read.
package env

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/host/sandbox/capability"
)

// Functions returns the functions of job_v1_env. secret returns the present value of a granted secret.
func Functions(secret func(name string) (string, error)) map[string]capability.Function {
	return map[string]capability.Function{
		abi.ModuleEnv + ".get": func(_ context.Context, r *capability.Run, c *abi.Call) (int64, error) {
			name, err := nameOf(c)
			if err != nil {
				return 0, err
			}
			value, ok := r.Grant.Env[name]
			if !ok {
				return int64(abi.ErrNotFound), nil
			}
			return c.Give(value), nil
		},
		abi.ModuleEnv + ".secret": func(_ context.Context, r *capability.Run, c *abi.Call) (int64, error) {
			name, err := nameOf(c)
			if err != nil {
				return 0, err
			}
			s, ok := r.Grant.Secrets[name]
			if !ok {
				return 0, capability.Fail(abi.ErrDenied, "secret: %q is not granted to job %q", name, r.Info.Job)
			}
			if !s.Readable {
				return 0, capability.Fail(abi.ErrDenied, "secret: %q may not be read by job %q, only named in a header of a request, as {{secret:%s}}: its grant has no readable: true", name, r.Info.Job, name)
			}
			value, err := secret(name)
			if err != nil {
				return 0, capability.Fail(abi.ErrUnavailable, "secret: %q: %v", name, err)
			}
			return c.Give(value), nil
		},
	}
}

func nameOf(c *abi.Call) (string, error) {
	name := string(c.Texts[0][:min(len(c.Texts[0]), abi.MaxTarget+1)])
	if name == "" || len(name) > abi.MaxTarget || !utf8.ValidString(name) || strings.ContainsAny(name, "=\x00") {
		return "", capability.Fail(abi.ErrInvalid, "the name %.40q is not a name", name)
	}
	return name, nil
}
