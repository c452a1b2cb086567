//go:build !noui

package program

import (
	"github.com/wasmjob/wasmjob/host/control/console"
)

// pages are the console's.
func (s *system) pages() (pages, error) {
	c, err := console.New(console.Options{Service: s.service, Namespace: s.loaded.Namespace, Version: versionText(), Logger: s.log})
	if err != nil {
		return pages{}, err
	}
	return pages{Handler: c, login: c.Login, refused: c.Refused}, nil
}
