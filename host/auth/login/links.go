package login

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/wasmjob/wasmjob/host/auth"
)

const (
	// linkLife is how long a login link can be used, maxLinks how many there are at once.
	linkLife = 5 * time.Minute
	maxLinks = 16
)

// links are the codes of login links that were not used yet. They are safe for
// concurrent use.
type links struct {
	now func() time.Time

	mu   sync.Mutex
	open []link // the oldest first
}

type link struct {
	code    auth.Secret
	user    string
	expires time.Time
}

// add makes a code for a user. The oldest one goes if there are too many.
func (l *links) add(user string) string {
	code := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= maxLinks {
		l.open = l.open[1:]
	}
	l.open = append(l.open, link{auth.NewSecret(code), user, l.now().Add(linkLife)})
	return code
}

// take uses a code up, and reports whether it could be used, and whose it is.
func (l *links) take(code string) (user string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	var left []link
	for _, one := range l.open {
		is := one.code.Is(code)
		fresh := now.Before(one.expires)
		if is && fresh {
			user, ok = one.user, true
		}
		if !is && fresh {
			left = append(left, one)
		}
	}
	l.open = left
	return user, ok
}
