package host

import (
	"fmt"
	"testing"
	"time"
)

// Jobs that wait to join do so in the order in which they are due, and who does not
// want to any more is not waited for.
func TestArrivals(t *testing.T) {
	a := newArrivals()
	var jobs []*job
	begin := time.Unix(0, 0)
	for n := range mostArrivals + 5 {
		j := new(job)
		j.name = fmt.Sprintf("job%03d", n)
		j.mail.wake = make(chan struct{}, 1)
		jobs = append(jobs, j)
		if going := a.enter(j, begin.Add(-time.Duration(n)*time.Minute)); going != (n < mostArrivals) {
			t.Fatalf("job %d goes: %v", n, going)
		}
	}
	late := jobs[mostArrivals:]
	a.leave(late[4]) // due first
	for k, want := range []*job{late[3], late[2], late[1], late[0]} {
		a.leave(jobs[k])
		select {
		case <-want.mail.wake:
		default:
			t.Fatalf("job %s was not woken", want.name)
		}
		if !a.enter(want, begin) {
			t.Fatalf("job %s may not join, and was woken", want.name)
		}
	}
	a.leave(late[0]) // twice is as good as once
	a.leave(late[0])
	if len(a.going) != mostArrivals-1 || len(a.waiting) != 0 {
		t.Errorf("%d go, %d wait", len(a.going), len(a.waiting))
	}
}

// A job that waits, and is due at another time by now, has its place by that.
func TestArrivalDueAtAnotherTime(t *testing.T) {
	a := newArrivals()
	var jobs []*job
	begin := time.Unix(0, 0)
	for n := range mostArrivals + 2 {
		j := new(job)
		j.name = fmt.Sprintf("job%03d", n)
		j.mail.wake = make(chan struct{}, 1)
		jobs = append(jobs, j)
		a.enter(j, begin.Add(time.Duration(n)*time.Minute))
	}
	first, second := jobs[mostArrivals], jobs[mostArrivals+1]
	a.enter(first, begin.Add(24*time.Hour))
	a.leave(jobs[0])
	if !a.going[second] || a.going[first] {
		t.Errorf("the one that is due later now went first")
	}
	a.leave(jobs[1])
	if !a.going[first] || len(a.waiting) != 0 || len(a.line) != 0 {
		t.Errorf("it goes: %v; %d wait, %d in the line", a.going[first], len(a.waiting), len(a.line))
	}
}
