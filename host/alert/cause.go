package alert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/coordination/tree"
	"github.com/wasmjob/wasmjob/internal/text/words"
)

// Cause groups alerts that probably have one cause: those of one rule about one job, or about one host. Lists
// and messages show it once, with the number of its alerts.
type Cause[T any] struct {
	// Alerts are at least one, oldest first.
	Alerts []T
	of     func(*T) *Alert
}

// Causes groups alerts by cause, in the order of the first of each. key divides them further; nil does not. The
// alerts of a cause are sorted by their begin.
func Causes[T any](list []T, of func(*T) *Alert, key func(*T) string) []Cause[T] {
	var causes []Cause[T]
	at := make(map[string]int)
	for i := range list {
		name := of(&list[i]).cause()
		if key != nil {
			name += "\x00" + key(&list[i])
		}
		n, known := at[name]
		if !known {
			n = len(causes)
			at[name], causes = n, append(causes, Cause[T]{of: of})
		}
		causes[n].Alerts = append(causes[n].Alerts, list[i])
	}
	for _, c := range causes {
		slices.SortStableFunc(c.Alerts, func(a, b T) int {
			x, y := of(&a), of(&b)
			return cmp.Or(x.Since.Compare(y.Since), strings.Compare(x.Job, y.Job), cmp.Compare(x.number(), y.number()), strings.Compare(x.Subject, y.Subject))
		})
	}
	return causes
}

// cause returns the key of the alert's cause.
func (a *Alert) cause() string {
	if a.OfHost || a.Job == "" {
		return strings.Join([]string{string(a.Rule), "", a.Server()}, "\x00")
	}
	return strings.Join([]string{string(a.Rule), a.Job, ""}, "\x00")
}

// Server is the address of the server that the alert is about, or on which it was found.
func (a *Alert) Server() string {
	server, _, _ := strings.Cut(a.Subject, " ")
	return cmp.Or(server, tree.ServerOf(a.Host))
}

// number is the item that the alert is about, -1 for none.
func (a *Alert) number() int {
	if a.Item == nil {
		return -1
	}
	return *a.Item
}

// First is the alert that began first.
func (c *Cause[T]) First() *Alert { return c.of(&c.Alerts[0]) }

// Count is how many alerts there are.
func (c *Cause[T]) Count() int { return len(c.Alerts) }

// Items are the items that the alerts are about, ascending.
func (c *Cause[T]) Items() tree.Items {
	var items tree.Items
	for i := range c.Alerts {
		if n := c.of(&c.Alerts[i]).number(); n >= 0 {
			items = append(items, n)
		}
	}
	slices.Sort(items)
	return slices.Compact(items)
}

// Job is the job that all alerts are about; empty if they are about several, or about none.
func (c *Cause[T]) Job() string {
	job := c.First().Job
	for i := range c.Alerts {
		if c.of(&c.Alerts[i]).Job != job {
			return ""
		}
	}
	return job
}

// Ended is when the last of the alerts was over; zero if one is not.
func (c *Cause[T]) Ended() time.Time {
	var last time.Time
	for i := range c.Alerts {
		at := c.of(&c.Alerts[i]).Resolved
		if at.IsZero() {
			return at
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// Text says in words what is wrong: of several alerts how many there are and about what, and what the first of them is.
func (c *Cause[T]) Text() string {
	first := c.First()
	if len(c.Alerts) == 1 {
		return first.Text
	}
	about := first.Server()
	items := c.Items()
	switch job := c.Job(); {
	case job != "" && len(items) > 0:
		about = words.Count(len(items), "item") + " of " + job + " (" + items.String() + ")"
	case job != "":
		about = job
	}
	return fmt.Sprintf("%d alerts about %s; the first: %s", len(c.Alerts), about, first.Text)
}

// itself is an alert as one of a list of its own kind.
func itself(a *Alert) *Alert { return a }
