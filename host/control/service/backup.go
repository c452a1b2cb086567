package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/admin/backup"
	"github.com/wasmjob/wasmjob/host/control/report"
	"github.com/wasmjob/wasmjob/host/engine"
	"github.com/wasmjob/wasmjob/host/event/operation"
	"github.com/wasmjob/wasmjob/host/history"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Backup reads what the namespace keeps in the registry, and the host's files with users, grants and alerts. It
// contains offsets, states and password hashes, so it needs the right to administer all jobs.
func (s *Service) Backup(ctx context.Context, why Reason) (b *backup.Backup, err error) {
	c := &history.Change{Why: why}
	err = s.change(ctx, operation.Backup, c, func() error {
		center := s.o.Session()
		if center == nil {
			return engine.ErrNotLive
		}
		b = &backup.Backup{}
		if s.o.About != nil {
			about := s.o.About()
			b.Header = backup.Header{Version: about.Version, Registry: about.Registry, History: about.History, Plugins: about.Plugins}
			if b.Files, err = filesOf(about); err != nil {
				return err
			}
		}
		b.Time, b.Namespace = time.Now().UTC(), s.o.Namespace
		if b.Nodes, b.Number, b.Sessions, err = backup.Read(ctx, center, s.o.Namespace); err != nil {
			return err
		}
		c.After = fmt.Sprintf("%s, %s", words.Count(len(b.Nodes), "node"), words.Count(len(b.Files), "file"))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// mostFile is the size in bytes of the largest file that is taken into a backup.
const mostFile = 16 << 20

// filesOf reads the files of a host: what it has no file for, or what is not there, is left out.
func filesOf(a report.About) (files []backup.File, err error) {
	for _, f := range []struct{ kind, path string }{{"users", a.Users}, {"grants", a.Grants}, {"alerts", a.Alerts}} {
		info, err := os.Stat(f.path)
		switch {
		case f.path == "" || os.IsNotExist(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("read the file of %s: %w", f.kind, err)
		}
		if !info.IsDir() {
			file, err := readFile(f.path)
			if err != nil {
				return nil, fmt.Errorf("read the file of %s: %w", f.kind, err)
			}
			files = append(files, backup.File{Kind: f.kind, Name: filepath.Base(f.path), Data: file})
			continue
		}
		list, err := os.ReadDir(f.path)
		for _, d := range list {
			if ext := filepath.Ext(d.Name()); d.IsDir() || strings.HasPrefix(d.Name(), ".") || (ext != ".yaml" && ext != ".yml") {
				continue
			}
			file, readErr := readFile(filepath.Join(f.path, d.Name()))
			err = errors.Join(err, readErr)
			files = append(files, backup.File{Kind: f.kind, Name: d.Name(), Directory: true, Data: file})
		}
		if err != nil {
			return nil, fmt.Errorf("read the directory of %s: %w", f.kind, err)
		}
	}
	return files, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostFile {
		return nil, &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("found no file of %s at most", words.Size(mostFile))}
	}
	return os.ReadFile(path)
}
