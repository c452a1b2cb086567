package offer_test

import (
	"testing"

	"github.com/wasmjob/wasmjob/host/config/grants"
)

// TestDevices: what is no file and no directory is not opened, whoever granted its directory.
func TestDevices(t *testing.T) {
	t.Parallel()
	for what, dir := range map[string]grants.Dir{
		"read only":  {Host: "/dev", Guest: "/out"},
		"written to": {Host: "/dev", Guest: "/out", Write: true, Bytes: 1 << 40, Files: 1 << 20},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(string) grants.Grant { return grants.Grant{Dirs: []grants.Dir{dir}} }, func(p *place, _ string) {
				writes := map[bool]string{false: "errno Read-only file system", true: "errno Operation not permitted"}[dir.Write]
				p.says([][2]string{
					{"cat /out/zero", "errno Operation not permitted"}, // it would have no end
					{"cat /out/null", "errno Operation not permitted"},
					{"put /out/null x", writes},
				}...)
			})
		})
	}
}
