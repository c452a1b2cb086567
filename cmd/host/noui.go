//go:build noui

package main

// pages are none: this program was built without a console.
func (s *system) pages() (pages, error) { return pages{}, nil }
