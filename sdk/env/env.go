// Package env reads what the operator gave a job: environment variables, secrets and
// its configuration. The functions may be called by several goroutines. Their errors
// wrap an sdk.Errno.
package env

import (
	"fmt"

	"github.com/wasmjob/wasmjob/abi"
	"github.com/wasmjob/wasmjob/sdk/internal/border"
	"github.com/wasmjob/wasmjob/sdk/internal/handle"
)

// Get returns an environment variable that is granted to the job. The error is ErrNotFound without one of this name, or
// ErrDenied if no variables are granted. The variables are also in os.Getenv.
func Get(name string) (string, error) {
	return read("variable", name, func(buf []byte) int32 { return border.EnvGet(name, buf) })
}

// Secret returns a secret that is granted to the job as readable; other secrets can only be put into headers of requests
// (see package sdk/http). It returns the value at the begin of the fire. The error is ErrDenied if the secret is not
// granted or not readable, and ErrUnavailable if the host cannot read it now. The host removes secrets from the guest's
// log, but not from what the guest sends elsewhere.
func Secret(name string) (string, error) {
	return read("secret", name, func(buf []byte) int32 { return border.EnvSecret(name, buf) })
}

// Config returns the operator's configuration for the job, in any format; nil without one. It is the same as
// sdk.ShardingContext.PluginConfig, and also works in init functions.
func Config() []byte {
	config, _ := border.Whole(256, func(buf []byte) int32 { return border.CtxStr(abi.CtxPluginConfig, buf) })
	if len(config) == 0 {
		return nil
	}
	return config
}

func read(what, name string, from func(buf []byte) int32) (string, error) {
	value, code := border.Whole(256, from)
	if code < 0 {
		return "", fmt.Errorf("read %s %.256q: %w", what, name, handle.Fail(0, code))
	}
	return string(value), nil
}
