package tree

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestItemsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Items{
		"": nil, "0": {0}, "0-3,7": {0, 1, 2, 3, 7}, "5,1-2,2": {1, 2, 5}, "7,6": {6, 7}, "999999": {999999},
	} {
		got, err := ParseItems(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ParseItems(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{",", "1,", "-1", "1-", "3-1", "a", "1 ", "+1", "01", "0x1", "1-2-3", "1000000", "0-1000000", "99999999999999999999",
		"0-999999,0-999999"} {
		if got, err := ParseItems(text); err == nil {
			t.Errorf("ParseItems(%q) = %d items, want an error", text, len(got))
		}
	}
}

func TestItemsTextIsReadAgain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		items := someItems(r, 60)
		text := items.String()
		got, err := ParseItems(text)
		if err != nil || !slices.Equal(got, items) {
			t.Fatalf("%v as %q is read as %v, %v", items, text, got, err)
		}
		for i := range 60 {
			if items.Contains(i) != slices.Contains(items, i) {
				t.Fatalf("%v.Contains(%d) = %v", items, i, items.Contains(i))
			}
		}
	}
}

// someItems are random ones below n, ascending.
func someItems(r *rand.Rand, n int) Items {
	var items Items
	for i := range n {
		if r.IntN(3) > 0 {
			items = append(items, i)
		}
	}
	return items
}

// TestRangesAgainstModel compares Ranges with lists of items.
func TestRangesAgainstModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		a, b := someItems(r, 12), someItems(r, 12)
		in, of := RangesOf(a), RangesOf(b)
		first := r.IntN(13)
		both := Items(slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b)))))
		rest := slices.DeleteFunc(slices.Clone(a), b.Contains)
		since := slices.DeleteFunc(slices.Clone(a), func(i int) bool { return i < first })
		for what, got := range map[string]struct{ got, want Items }{
			"with": {in.With(of).Items(), both}, "without": {in.Without(of).Items(), rest}, "since": {slices.Collect(in.Since(first)), since}, "items": {in.Items(), a},
			"and": {in.And(of).Items(), slices.DeleteFunc(slices.Clone(a), func(i int) bool { return !b.Contains(i) })},
		} {
			if !slices.Equal(got.got, got.want) {
				t.Fatalf("%v, %v, %d: %s is %v, want %v", a, b, first, what, got.got, got.want)
			}
		}
		if in.With(of).String() != both.String() || in.Without(of).Len() != len(rest) {
			t.Fatalf("%v and %v: %v, %v", a, b, in.With(of), in.Without(of))
		}
		for i := range 13 {
			if in.Contains(i) != a.Contains(i) {
				t.Fatalf("%v.Contains(%d) = %v", in, i, in.Contains(i))
			}
		}
	}
}

func FuzzParseItems(f *testing.F) {
	f.Add("0-3,7")
	f.Add("1,1-1,")
	f.Fuzz(func(t *testing.T, text string) {
		items, err := ParseItems(text)
		if err != nil {
			return
		}
		again, err := ParseItems(items.String())
		if err != nil || !slices.Equal(items, again) {
			t.Errorf("%q is %v, and then %v, %v", text, items, again, err)
		}
		if !slices.IsSorted(items) || len(slices.Compact(slices.Clone(items))) != len(items) {
			t.Errorf("%q is %v", text, items)
		}
	})
}
