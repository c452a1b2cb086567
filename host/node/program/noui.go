//go:build noui

package program

// pages are none: this program was built without a console.
func (s *system) pages() (consolePages, error) { return consolePages{}, nil }
