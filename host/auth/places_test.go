package auth

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// as is the context of a user with a role for all jobs.
func as(t *testing.T, name string, role Role) context.Context {
	return With(t.Context(), Principal{Name: name, Method: ByPassword, Bindings: []Binding{{role, []string{AllJobs}}}})
}

// TestPlaces: no one takes more than a share, and viewers leave the last places to operators.
func TestPlaces(t *testing.T) {
	t.Parallel()
	p := NewPlaces(PlacesOptions{What: "streams", All: 10, Each: 4, Reserved: 3, Retry: 30 * time.Second})
	var leaves []func()
	take := func(name string, role Role, want int, why string) {
		t.Helper()
		for n := range want + 1 {
			leave, err := p.Take(as(t, name, role))
			if err == nil {
				leaves = append(leaves, leave)
			}
			if n < want && err != nil {
				t.Fatalf("%s has %d: %v", name, n, err)
			}
			var no *Problem
			if n == want && (!errors.As(err, &no) || no.Status != 429 || no.Type != TooMany || no.Header.Get("Retry-After") != "30" || !strings.Contains(no.Detail, why)) {
				t.Fatalf("%s has %d and one more: %v", name, n, err)
			}
		}
	}
	take("ann", RoleViewer, 4, "4 streams of ann are open at this host, of at most 4 for one user or token")
	take("bob", RoleViewer, 3, "7 streams are open at this host, of at most 10, of which the last 3 are for operators")
	take("cal", RoleViewer, 0, "the last 3 are for operators")
	take("dan", RoleOperator, 3, "10 streams are open at this host, which is the most")
	take("eve", RoleAdmin, 0, "which is the most")
	leaves[0]() // ann's
	take("cal", RoleViewer, 0, "the last 3 are for operators")
	take("eve", RoleAdmin, 1, "which is the most")
	for _, leave := range leaves[1:] {
		leave()
	}
	if p.open != 0 || len(p.of) != 0 {
		t.Errorf("all have left: %d, %v", p.open, p.of)
	}
	take("dan", RoleOperator, 4, "for one user or token")
}

// TestPlacesWait: who may wait gets the place that another one gives back, and otherwise hears
// of the limit when the time is over, or at once when it does not want one any more.
func TestPlacesWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := NewPlaces(PlacesOptions{What: "answers", All: 2, Each: 1, Wait: 5 * time.Second})
		ann, err := p.Take(as(t, "ann", RoleViewer))
		if err != nil {
			t.Fatal(err)
		}
		bob, err := p.Take(as(t, "bob", RoleViewer))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := p.Take(as(t, "cal", RoleViewer)); err == nil || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %v, want a refusal after 5s", time.Since(began), err)
		}
		time.AfterFunc(2*time.Second, bob)
		began = time.Now()
		cal, err := p.Take(as(t, "cal", RoleViewer))
		if err != nil || time.Since(began) != 2*time.Second {
			t.Fatalf("after %v: %v, want bob's place after 2s", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(as(t, "dan", RoleViewer))
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		if _, err := p.Take(ctx); err == nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, want a refusal when the request ends, after 1s", time.Since(began), err)
		}
		ann()
		cal()
		if p.open != 0 || len(p.of) != 0 {
			t.Errorf("all have left: %d, %v", p.open, p.of)
		}
	})
}

// TestPlacesAtOnce: however many come at once, no more are let in than there is room for.
func TestPlacesAtOnce(t *testing.T) {
	t.Parallel()
	p := NewPlaces(PlacesOptions{What: "streams", All: 50, Each: 20, Reserved: 5})
	var all sync.WaitGroup
	for n := range 100 {
		ctx := as(t, strings.Repeat("x", 1+n%7), RoleViewer)
		all.Go(func() {
			for range 100 {
				leave, err := p.Take(ctx)
				if err != nil {
					continue
				}
				p.mu.Lock()
				if p.open > 45 || p.of[From(ctx).String()] > 20 {
					t.Errorf("%d, %v", p.open, p.of)
				}
				p.mu.Unlock()
				leave()
			}
		})
	}
	all.Wait()
	if p.open != 0 || len(p.of) != 0 {
		t.Errorf("all have left: %d, %v", p.open, p.of)
	}
}
