package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/wasmjob/wasmjob/host/auth"
	"github.com/wasmjob/wasmjob/host/control/admin"
	"github.com/wasmjob/wasmjob/host/control/service"
	"github.com/wasmjob/wasmjob/host/engine"
)

const (
	// keyLife is how long a key of a request is remembered, maxKeys how many are.
	keyLife = 24 * time.Hour
	maxKeys = 10_000
)

// keys are the keys of carried-out requests, so that repeating one does nothing.
type keys struct {
	mu   sync.Mutex
	done map[key]*keyed
}

// key is a user's key for a request about a job.
type key struct{ who, job, name string }

// keyed is a request that was carried out, or is being.
type keyed struct {
	what  string // was asked for
	at    time.Time
	ended chan struct{}
	done  admin.Triggered
	err   error
}

func newKeys() *keys { return &keys{done: make(map[key]*keyed)} }

// once calls do unless that was done with the same key; then it waits for that call and returns its results. A
// refused request is done again; one that may have been done is not. what describes the request: a key is for
// one request. Without a name do is always called.
func (k *keys) once(ctx context.Context, key key, what string, do func() (admin.Triggered, error)) (admin.Triggered, error) {
	if key.name == "" {
		return do()
	}
	k.mu.Lock()
	if r := k.done[key]; r != nil && time.Since(r.at) < keyLife {
		k.mu.Unlock()
		if r.what != what {
			return admin.Triggered{}, &service.InputError{Where: "header.Idempotency-Key", Problem: fmt.Sprintf("found %q, which was sent with another body; expected a key of its own for each request", key.name)}
		}
		select {
		case <-r.ended:
			return r.done, r.err
		case <-ctx.Done():
			return admin.Triggered{}, ctx.Err()
		}
	}
	k.forget()
	r := &keyed{what: what, at: time.Now(), ended: make(chan struct{})}
	k.done[key] = r
	k.mu.Unlock()
	defer close(r.ended)
	if r.done, r.err = do(); r.err != nil && refused(r.err) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.done[key] == r {
			delete(k.done, key)
		}
	}
	return r.done, r.err
}

// refused reports whether the request certainly had no effect.
func refused(err error) bool {
	if errors.Is(err, engine.ErrNotLive) || errors.Is(err, engine.ErrDraining) {
		return true
	}
	var p *auth.Problem
	var e huma.StatusError
	code := http.StatusInternalServerError
	if errors.As(problem(err), &e) {
		code = e.GetStatus()
	}
	return errors.As(err, &p) || (code >= 400 && code < 500)
}

// forget removes old keys, and if there are too many the oldest. The caller holds k.mu.
func (k *keys) forget() {
	var oldest key
	for key, r := range k.done {
		if time.Since(r.at) >= keyLife {
			delete(k.done, key)
		} else if o := k.done[oldest]; o == nil || r.at.Before(o.at) {
			oldest = key
		}
	}
	if len(k.done) >= maxKeys {
		delete(k.done, oldest)
	}
}
