//go:build !noui

package program

import (
	"github.com/wasmjob/wasmjob/host/control/console"
)

// pages are the console's.
func (s *system) pages() (consolePages, error) {
	c, err := console.New(console.Options{Service: s.service, Namespace: s.loaded.Namespace, Version: versionText(), Logger: s.log})
	if err != nil {
		return consolePages{}, err
	}
	return consolePages{Handler: c, login: c.Login, refused: c.Refused}, nil
}
