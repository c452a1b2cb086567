package alert

import (
	"context"
	"errors"
	"os"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/wasmjob/wasmjob/host/config/filewatch"
)

// Live is the file in force. It is safe for concurrent use.
type Live struct {
	path string
	log  *zap.Logger
	file atomic.Pointer[File]
	// problem is why the newest file is not in force, empty if it is.
	problem atomic.Pointer[string]
	changed chan struct{} // size 1
}

// Open reads the file.
func Open(path string, log *zap.Logger) (*Live, error) {
	f, err := Read(path)
	if err != nil {
		return nil, err
	}
	l := &Live{path: path, log: log, changed: make(chan struct{}, 1)}
	l.file.Store(f)
	return l, nil
}

// File is what is in force now.
func (l *Live) File() *File { return l.file.Load() }

// Changed has news whenever another file is in force.
func (l *Live) Changed() <-chan struct{} { return l.changed }

// Problem says why the newest file is not in force; empty: it is.
func (l *Live) Problem() string {
	if p := l.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Watch reads the file again whenever it changes, until ctx ends. If the file has a mistake or was removed, the
// previous one stays in force, and the log says so. The error says that changes cannot be detected.
func (l *Live) Watch(ctx context.Context) error {
	return filewatch.Files(ctx, func() []string { return []string{l.path} }, l.look)
}

// look reads the file and applies it, or says why not. Only Watch calls it.
func (l *Live) look() {
	f, err := Read(l.path)
	if errors.Is(err, os.ErrNotExist) {
		err = errors.New(l.path + " was removed, and its rules stay in force")
	}
	if err != nil {
		if text := err.Error(); text != l.Problem() {
			l.problem.Store(&text)
			l.log.Error("the file of alerts is not taken; the one before stays in force", zap.Error(err))
		}
		return
	}
	l.problem.Store(nil)
	if f.sum == l.File().sum {
		return
	}
	l.file.Store(f)
	l.log.Info("alerts read again", zap.String("file", l.path), zap.Int("routes", len(f.Routes)), zap.Int("receivers", len(f.Receivers)))
	select {
	case l.changed <- struct{}{}:
	default:
	}
}
