package zookeeper_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/zkserver"
)

// TestServersThatWantSASL: servers that take only sessions which authenticated by
// SASL are refused with words, not asked again and again; beside SASL digest will do.
func TestServersThatWantSASL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		java        []string
		extra       map[string]string
		credentials string
		taken       bool
	}{
		"SASL only":              {java: []string{"-Dzookeeper.sessionRequireClientSASLAuth=true"}},
		"SASL only, and digest":  {java: []string{"-Dzookeeper.sessionRequireClientSASLAuth=true"}, credentials: "host:secret"},
		"one of both, and none":  {extra: map[string]string{"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest,sasl"}},
		"one of both, by digest": {extra: map[string]string{"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest,sasl"}, credentials: "host:secret", taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extra := map[string]string{"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
			for k, v := range tc.extra {
				extra[k] = v
			}
			e, err := zkserver.Start(t.Context(), zkserver.Options{JavaArgs: tc.java, Extra: extra})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			rc, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: e.Connect(), Credentials: tc.credentials})
			if tc.taken {
				if err != nil {
					t.Fatal(err)
				}
				commit(t, rc, registry.Ensure("/taken"))
				_ = rc.Close()
				return
			}
			if !errors.Is(err, zookeeper.ErrNoAuth) || !strings.Contains(err.Error(), "speaks digest only") {
				t.Errorf("dial: %v", err)
			}
			if rc != nil {
				_ = rc.Close()
			}
		})
	}
}
