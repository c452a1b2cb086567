package words

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A host's messages about an input are bounded, however many problems it has: the texts are kept in statuses,
// events, histories and the registry, and the author of the input decides how many there are.
const (
	// MostProblems is how many problems of one input are kept; the others are counted.
	MostProblems = 50
	// MaxReason is the longest reason, in bytes.
	MaxReason = 1024
	// MaxReasons bounds the problems of one input together, in bytes.
	MaxReasons = 8 * MaxReason
)

// Few keeps the first [MostProblems] values that are added, and counts the others. The zero value is ready.
type Few[T any] struct {
	kept []T
	more int
}

// Full reports whether the next value is only counted, so that it need not be built.
func (f *Few[T]) Full() bool { return len(f.kept) >= MostProblems }

// Add keeps a thing, or counts it.
func (f *Few[T]) Add(thing T) {
	if f.Full() {
		f.more++
		return
	}
	f.kept = append(f.kept, thing)
}

// Count adds things that are only counted.
func (f *Few[T]) Count(n int) { f.more += n }

// Take adds what another one has.
func (f *Few[T]) Take(other Few[T]) {
	for _, thing := range other.kept {
		f.Add(thing)
	}
	f.more += other.more
}

// Kept are the things that were kept, in the order in which they were added. The caller may sort them.
func (f *Few[T]) Kept() []T { return f.kept }

// More is how many others there are.
func (f *Few[T]) More() int { return f.more }

// Len is how many things there are in all.
func (f *Few[T]) Len() int { return len(f.kept) + f.more }

// Problems collects the errors of one input. The zero value is ready.
type Problems struct{ few Few[error] }

// Add adds an error, or the errors that it joins; nil is none.
func (p *Problems) Add(err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			p.Add(e)
		}
		return
	}
	if n := Rest(err); n > 0 {
		p.few.Count(n)
		return
	}
	if !p.Full() && len(err.Error()) > MaxReason {
		err = cut{err}
	}
	p.few.Add(err)
}

// cut is an error whose text is cut.
type cut struct{ error }

func (c cut) Error() string { return Cut(c.error.Error(), MaxReason) }
func (c cut) Unwrap() error { return c.error }

// Addf is Add for an error that is made only if it is kept.
func (p *Problems) Addf(format string, args ...any) {
	if p.few.Full() {
		p.few.Count(1)
		return
	}
	p.Add(fmt.Errorf(format, args...))
}

// Count adds errors that are only counted.
func (p *Problems) Count(n int) { p.few.Count(n) }

// Full reports whether the next error is only counted.
func (p *Problems) Full() bool { return p.few.Full() }

// Len is how many errors there are in all.
func (p *Problems) Len() int { return p.few.Len() }

// Err joins the errors, the last of which says how many others there are; nil if there is none.
func (p *Problems) Err() error {
	if p.few.more == 0 {
		return errors.Join(p.few.kept...)
	}
	return errors.Join(append(p.few.kept[:len(p.few.kept):len(p.few.kept)], rest(p.few.more))...)
}

// rest is the error that stands for a number of others.
type rest int

func (r rest) Error() string { return More(int(r)) }

// Rest returns how many errors an error of [Problems] stands for; 0 for any other error.
func Rest(err error) int {
	if r, ok := err.(rest); ok {
		return int(r)
	}
	return 0
}

// Late is a text that is built when it is formatted.
type Late func() string

func (l Late) String() string { return l() }

// LateError is an error whose text is built when it is read.
type LateError func() string

func (l LateError) Error() string { return l() }

// Strings cuts texts, such as the problems of one input, one by one and together: at most [MostProblems] with
// at most [MaxReasons] bytes. The last one says how many are left out, including more left out before. It is
// idempotent.
func Strings(texts []string, more int) []string {
	var list []string
	size := 0
	for _, text := range texts[:min(len(texts), MostProblems)] {
		text = Cut(text, MaxReason)
		list, size = append(list, text), size+len(text)
	}
	more += len(texts) - len(list)
	if more == 0 && size <= MaxReasons {
		return list
	}
	for len(list) > 1 && (len(list) == MostProblems || size > MaxReasons-len("… and 9,223,372,036,854,775,807 more")) {
		last := len(list) - 1
		list, size, more = list[:last], size-len(list[last]), more+1
	}
	return append(list, More(more))
}

// More says how many values of a list are left out: "… and 519,990 more".
func More(n int) string { return "… and " + Thousands(n) + " more" }

// Some joins the first texts of a list, and says how many others there are. The texts are cut.
func Some(list []string, between string) string {
	const most, longest = 10, 80
	if len(list) <= most && !tooLong(list, longest) {
		return strings.Join(list, between)
	}
	var b strings.Builder
	for n, text := range list[:min(len(list), most)] {
		if n > 0 {
			b.WriteString(between)
		}
		b.WriteString(ClipTo(text, longest))
	}
	if more := len(list) - most; more > 0 {
		b.WriteString(between + More(more))
	}
	return b.String()
}

func tooLong(list []string, longest int) bool {
	for _, text := range list {
		if len(text) > longest {
			return true
		}
	}
	return false
}

// Thousands writes a number with commas between its thousands.
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Cut cuts text to at most most bytes, not inside a character, and says how many bytes are left out.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const room = len("… (18,446,744,073,709,551,615 more bytes)")
	end := max(most-room, 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "… (" + Thousands(len(s)-end) + " more bytes)"
}

// Reason cuts a reason to [MaxReason].
func Reason(s string) string { return Cut(s, MaxReason) }
