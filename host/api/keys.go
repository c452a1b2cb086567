package api

import (
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
	done map[string]*keyed
}

// keyed is a request that was carried out, or is being.
type keyed struct {
	at    time.Time
	ended chan struct{}
	err   error
}

func newKeys() *keys { return &keys{done: make(map[string]*keyed)} }

// once does something unless that was done with the same key; then it waits for it and
// returns its error. One that failed is done again.
func (k *keys) once(key string, given bool, do func() error) error {
	if !given {
		return do()
	}
	k.mu.Lock()
	if r := k.done[key]; r != nil && time.Since(r.at) < keyLife {
		k.mu.Unlock()
		<-r.ended
		return r.err
	}
	k.forget()
	r := &keyed{at: time.Now(), ended: make(chan struct{})}
	k.done[key] = r
	k.mu.Unlock()
	defer close(r.ended)
	if r.err = do(); r.err != nil {
		k.mu.Lock()
		delete(k.done, key)
		k.mu.Unlock()
	}
	return r.err
}

// forget removes old keys, and if there are too many the oldest. The caller holds k.mu.
func (k *keys) forget() {
	oldest := ""
	for key, r := range k.done {
		if time.Since(r.at) >= keyLife {
			delete(k.done, key)
		} else if oldest == "" || r.at.Before(k.done[oldest].at) {
			oldest = key
		}
	}
	if len(k.done) >= maxKeys {
		delete(k.done, oldest)
	}
}
