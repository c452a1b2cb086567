package chaos

import (
	"context"
	"strings"
	"sync"
	"time"
)

const (
	// askEvery is how often servers are asked whether they serve, and askPatience
	// how long each may take to say so: one that is halted says nothing.
	askEvery    = 50 * time.Millisecond
	askPatience = 250 * time.Millisecond
)

// service watches when ZooKeeper does not serve: no server leads, or there is no
// majority.
type service struct {
	stop, done chan struct{}
	once       sync.Once
	gaps       []interval // valid when done is closed
}

// watchService watches from now on; what is wrong at the first look has been so
// since from. Somebody has to call end.
func (s *stage) watchService(from time.Time) *service {
	w := &service{stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // joined by end
		defer close(w.done)
		begin := from
		for first, ok := true, true; ; first = false {
			asked := time.Now()
			serves := s.serves()
			switch {
			case serves && !ok:
				w.gaps = append(w.gaps, interval{from: begin, to: time.Now()})
			case !serves && ok && !first:
				begin = asked
			}
			ok = serves
			select {
			case <-time.After(askEvery):
			case <-w.stop:
				if !ok {
					w.gaps = append(w.gaps, interval{from: begin, to: time.Now()})
				}
				return
			}
		}
	}()
	return w
}

// end ends the watch, and tells when ZooKeeper did not serve.
func (w *service) end() []interval {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	return w.gaps
}

// serves reports whether one of our servers leads a majority, by their own words.
func (s *stage) serves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), askPatience)
	defer cancel()
	answers := make([]string, s.own.Len())
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i], _ = s.own.Ask(ctx, i, "srvr") }) // no answer is one
	}
	all.Wait()
	return leads(answers)
}

// leads reports whether one of the servers leads, and a majority serves, by what
// all answered to "srvr".
func leads(answers []string) bool {
	serve, leader := 0, false
	for _, text := range answers {
		_, mode, _ := strings.Cut(text, "Mode: ")
		mode, _, _ = strings.Cut(mode, "\n")
		switch strings.TrimSpace(mode) {
		case "leader", "standalone":
			leader = true
			serve++
		case "follower":
			serve++
		}
	}
	return leader && serve > len(answers)/2
}
