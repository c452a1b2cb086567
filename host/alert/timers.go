package alert

import (
	"container/heap"
	"time"
)

// timer is when to check a job. It is ignored if the job's plan has changed since.
type timer struct {
	at  time.Time
	job string
}

// timers are a heap by time.
type timers struct{ list timerHeap }

type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, k int) bool { return h[i].at.Before(h[k].at) }
func (h timerHeap) Swap(i, k int)      { h[i], h[k] = h[k], h[i] }
func (h *timerHeap) Push(x any) {
	if t, ok := x.(timer); ok {
		*h = append(*h, t)
	}
}
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}

func (t *timers) add(one timer) { heap.Push(&t.list, one) }

// next is when the first is due; zero if there is none.
func (t *timers) next() time.Time {
	if len(t.list) == 0 {
		return time.Time{}
	}
	return t.list[0].at
}

// due takes the first out, if it is due.
func (t *timers) due(now time.Time) (timer, bool) {
	if len(t.list) == 0 || now.Before(t.list[0].at) {
		return timer{}, false
	}
	one, ok := heap.Pop(&t.list).(timer)
	return one, ok
}
