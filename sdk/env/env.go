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

// Get returns an environment variable that is granted to the job. The error is
// ErrNotFound if there is none with the name, or ErrDenied if the job has none at all.
// os.Getenv finds the same.
func Get(name string) (string, error) {
	return read("variable", name, func(buf []byte) int32 { return border.EnvGet(name, buf) })
}

// Secret returns a secret that is granted to the job as readable; the others are of use
// in headers of requests only (see package sdk/http). It is what it was when the fire
// began. The error is ErrDenied if it is not granted or not readable, and ErrUnavailable
// if the host cannot read it now. The host removes secrets from what the guest logs, but not from what it sends elsewhere.
func Secret(name string) (string, error) {
	return read("secret", name, func(buf []byte) int32 { return border.EnvSecret(name, buf) })
}

// Config returns the job's configuration, which is the operator's and of any form; nil
// if there is none. It is the same as sdk.ShardingContext.PluginConfig, and is there in
// init functions, too.
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
