package api

import (
	"context"
	"sync"
	"time"
)

const (
	// keyLife is how long a key of a request is remembered, maxKeys how many are.
	keyLife = 24 * time.Hour
	maxKeys = 10_000
)

// keys are those of requests that were carried out, so that the same request once more
// does nothing.
type keys struct {
	mu   sync.Mutex
	done map[key]*keyed
}

// key is what somebody has called a request about a job.
type key struct{ who, job, name string }

// keyed is a request that was carried out, or is being.
type keyed struct {
	at    time.Time
	ended chan struct{}
	err   error
}

func newKeys() *keys { return &keys{done: make(map[key]*keyed)} }

// once does something unless that was done with the same key; then it waits for it and
// returns its error. One that failed is done again. Without a name it is always done.
func (k *keys) once(ctx context.Context, key key, do func() error) error {
	if key.name == "" {
		return do()
	}
	k.mu.Lock()
	if r := k.done[key]; r != nil && time.Since(r.at) < keyLife {
		k.mu.Unlock()
		select {
		case <-r.ended:
			return r.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.forget()
	r := &keyed{at: time.Now(), ended: make(chan struct{})}
	k.done[key] = r
	k.mu.Unlock()
	defer close(r.ended)
	if r.err = do(); r.err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.done[key] == r {
			delete(k.done, key)
		}
	}
	return r.err
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
