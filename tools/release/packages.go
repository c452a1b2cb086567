package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format
)

// packages writes the packages of Debian and of RPM.
func (m *made) packages(t target, program string) error {
	unit, err := m.unit()
	if err != nil {
		return err
	}
	var contents files.Contents
	add := func(source, destination, kind string, mode os.FileMode) {
		contents = append(contents, &files.Content{Source: source, Destination: destination, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: m.time}})
	}
	systemd := func(name string) string { return filepath.Join(m.tree, "deploy", "systemd", name) }
	add(program, "/usr/bin/wasmjob", files.TypeFile, 0o755)
	add(unit, "/usr/lib/systemd/system/wasmjob.service", files.TypeFile, 0o644)
	add(systemd("wasmjob.yaml"), "/etc/wasmjob/wasmjob.yaml", files.TypeConfigNoReplace, 0o644)
	add(systemd("wasmjob.service.d/zookeeper.conf"), "/usr/share/doc/wasmjob/examples/zookeeper.conf", files.TypeFile, 0o644)
	add(filepath.Join(m.tree, "README.md"), "/usr/share/doc/wasmjob/README.md", files.TypeFile, 0o644)
	add(filepath.Join(m.tree, "LICENSE"), "/usr/share/doc/wasmjob/copyright", files.TypeFile, 0o644)
	add(filepath.Join(m.files, "completions", "wasmjob.bash"), "/usr/share/bash-completion/completions/wasmjob", files.TypeFile, 0o644)
	add(filepath.Join(m.files, "completions", "_wasmjob"), "/usr/share/zsh/vendor-completions/_wasmjob", files.TypeFile, 0o644)
	add(filepath.Join(m.files, "completions", "wasmjob.fish"), "/usr/share/fish/vendor_completions.d/wasmjob.fish", files.TypeFile, 0o644)
	pages, err := filepath.Glob(filepath.Join(m.files, "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		add(page, "/usr/share/man/man1/"+filepath.Base(page), files.TypeFile, 0o644)
	}
	for format, needs := range map[string]string{"deb": "passwd", "rpm": "shadow-utils"} {
		if err := m.pack(t, format, needs, contents); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// unit writes the unit of a package, and returns its file: that of deploy/systemd with
// the program where packages have it, and with the user that the package makes.
func (m *made) unit() (string, error) {
	data, err := os.ReadFile(filepath.Join(m.tree, "deploy", "systemd", "wasmjob.service"))
	if err != nil {
		return "", err
	}
	text := string(data)
	for _, change := range [][2]string{
		{"ExecStart=/usr/local/bin/wasmjob ", "ExecStart=/usr/bin/wasmjob "},
		{"DynamicUser=yes\n", ""},
		{"# The user exists while the service runs; its directories stay:\n", "# The user and its directories are the package's:\n"},
	} {
		if strings.Count(text, change[0]) != 1 {
			return "", fmt.Errorf("deploy/systemd/wasmjob.service: %q is not in it once", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	name := filepath.Join(m.files, "wasmjob.service")
	return name, os.WriteFile(name, []byte(text), 0o644)
}

// pack writes one package.
func (m *made) pack(t target, format, needs string, contents files.Contents) (err error) {
	script := func(name string) string { return filepath.Join(m.tree, "deploy", "packages", name) }
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "wasmjob", Arch: t.processor, Platform: "linux", Version: m.number, Release: "1",
		Section: "admin", Priority: "optional", Maintainer: "The wasmjob project <wasmjob@users.noreply.github.com>",
		Description: "Distributed cron host whose jobs are WebAssembly modules\nRuns jobs on schedule, on one machine or shared among many, each in a sandbox.",
		Homepage:    "https://github.com/wasmjob/wasmjob", License: "Apache-2.0", MTime: m.time, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents, Depends: []string{needs},
			Scripts: nfpm.Scripts{PostInstall: script("postinstall"), PreRemove: script("preremove"), PostRemove: script("postremove")},
			Deb:     nfpm.Deb{Compression: "gzip"},
			RPM:     nfpm.RPM{BuildHost: "release", Compression: "gzip", Group: "System Environment/Daemons"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(m.out, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return packager.Package(info, f)
}
