package tree

import (
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/wasmjob/wasmjob/coordination/jobconfig"
)

// Items is a set of sharding items, ascending. Its text form is ranges:
// "0-3,7".
type Items []int

// String returns the text form.
func (s Items) String() string { return RangesOf(s).String() }

// Contains reports whether the item is in the set.
func (s Items) Contains(item int) bool {
	_, ok := slices.BinarySearch(s, item)
	return ok
}

// MaxItems bounds what a range may expand to: the largest sharding total count.
const MaxItems = 1_000_000

// ParseItems reads the text form. The result is ascending and has no
// duplicates.
func ParseItems(text string) (Items, error) {
	r, err := ParseRanges(text)
	return r.Items(), err
}

// MarshalText and UnmarshalText make Items a string in JSON.
func (s Items) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the text form.
func (s *Items) UnmarshalText(text []byte) (err error) {
	*s, err = ParseItems(string(text))
	return err
}

// Range is the items from From to To, both included.
type Range struct{ From, To int }

// Ranges is a set of sharding items as ranges, ascending, with a gap between ranges. A set is immutable. A
// host's list of runs uses Ranges because it is written with every commit, and its cost depends on the ranges,
// not on the items.
type Ranges []Range

// RangesOf is the set of the items, which may be in any order.
func RangesOf(items Items) Ranges {
	if !slices.IsSorted(items) {
		items = slices.Sorted(slices.Values(items))
	}
	var r Ranges
	for _, i := range items {
		r = r.append(Range{i, i})
	}
	return r
}

// append adds a range that does not begin before the last one of r. It may write
// to r's array.
func (r Ranges) append(next Range) Ranges {
	if n := len(r) - 1; n >= 0 && next.From <= r[n].To+1 {
		r[n].To = max(r[n].To, next.To)
		return r
	}
	return append(r, next)
}

// ParseRanges reads the text form. The result is ascending. More than MaxItems items
// in all are an error.
func ParseRanges(text string) (Ranges, error) {
	if text == "" {
		return nil, nil
	}
	var parsed Ranges
	total := 0
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, okA := ItemNumber(from)
		b, okB := ItemNumber(to)
		if !okA || !okB || b < a || b >= MaxItems {
			return nil, fmt.Errorf("items %q: %q is not an item or a range such as 0-3 below %d", jobconfig.Clip(text), jobconfig.Clip(part), MaxItems)
		}
		if total += b - a + 1; total > MaxItems {
			return nil, fmt.Errorf("items %q: more than %d", jobconfig.Clip(text), MaxItems)
		}
		parsed = append(parsed, Range{a, b})
	}
	slices.SortFunc(parsed, func(a, b Range) int { return a.From - b.From })
	var r Ranges
	for _, next := range parsed {
		r = r.append(next)
	}
	return r, nil
}

// String returns the text form, which is that of Items.
func (r Ranges) String() string {
	var b strings.Builder
	for n, part := range r {
		if n > 0 {
			b.WriteByte(',')
		}
		b.WriteString(itoa(part.From))
		if part.To > part.From {
			b.WriteByte('-')
			b.WriteString(itoa(part.To))
		}
	}
	return b.String()
}

// MarshalText and UnmarshalText make Ranges a string in JSON.
func (r Ranges) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the text form.
func (r *Ranges) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRanges(string(text))
	return err
}

// Len is how many items are in the set.
func (r Ranges) Len() int {
	n := 0
	for _, part := range r {
		n += part.To - part.From + 1
	}
	return n
}

// Contains reports whether the item is in the set.
func (r Ranges) Contains(item int) bool {
	n := sort.Search(len(r), func(n int) bool { return r[n].To >= item })
	return n < len(r) && r[n].From <= item
}

// All yields the items, ascending.
func (r Ranges) All() iter.Seq[int] { return r.Since(0) }

// Since yields the items that are not below first, ascending.
func (r Ranges) Since(first int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := sort.Search(len(r), func(n int) bool { return r[n].To >= first }); n < len(r); n++ {
			for i := max(r[n].From, first); i <= r[n].To; i++ {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// slice returns the n-th item up to, not including, the m-th, counted from 0.
func (r Ranges) slice(n, m int) Ranges {
	var part Ranges
	for _, have := range r {
		size := have.To - have.From + 1
		if from, to := max(n, 0), min(m, size); from < to {
			part = append(part, Range{have.From + from, have.From + to - 1})
		}
		n, m = n-size, m-size
	}
	return part
}

// And returns the items that are in both sets.
func (r Ranges) And(o Ranges) Ranges { return r.Without(r.Without(o)) }

// Items are the items of the set.
func (r Ranges) Items() Items {
	if len(r) == 0 {
		return nil
	}
	items := make(Items, 0, r.Len())
	for _, part := range r {
		for i := part.From; i <= part.To; i++ {
			items = append(items, i)
		}
	}
	return items
}

// With is the set with the items of another one.
func (r Ranges) With(o Ranges) Ranges {
	switch {
	case len(o) == 0:
		return r
	case len(r) == 0:
		return o
	}
	all := make(Ranges, 0, len(r)+len(o))
	for len(r) > 0 || len(o) > 0 {
		if len(o) == 0 || (len(r) > 0 && r[0].From <= o[0].From) {
			all, r = all.append(r[0]), r[1:]
		} else {
			all, o = all.append(o[0]), o[1:]
		}
	}
	return all
}

// Without is the set without the items of another one.
func (r Ranges) Without(o Ranges) Ranges {
	var left Ranges
	for _, part := range r {
		for len(o) > 0 && o[0].To < part.From {
			o = o[1:]
		}
		for n := 0; n < len(o) && o[n].From <= part.To; n++ {
			if o[n].From > part.From {
				left = append(left, Range{part.From, o[n].From - 1})
			}
			part.From = max(part.From, o[n].To+1)
		}
		if part.From <= part.To {
			left = append(left, part)
		}
	}
	return left
}
