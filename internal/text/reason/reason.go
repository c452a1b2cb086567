package reason

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/internal/text/i18n"
)

// Coded is a code with its arguments.
type Coded struct {
	// Code names the reason. The set may grow.
	Code Code `json:"code"`
	// Args are the arguments by the names of their places, as in the English text. The place {reason} has no
	// argument if the reason in it follows in [Codes].
	Args map[string]string `json:"args,omitempty"`
}

// Codes are a reason, and after it the one in its place {reason}, and so on.
type Codes []Coded

// Has reports whether the reason, or one nested in it, has one of the codes.
func (c Codes) Has(codes ...Code) bool {
	return slices.ContainsFunc(c, func(one Coded) bool { return slices.Contains(codes, one.Code) })
}

// Arg returns the first argument of a name; empty if there is none.
func (c Codes) Arg(name string) string {
	for _, one := range c {
		if value, given := one.Args[name]; given {
			return value
		}
	}
	return ""
}

// Map returns the codes with each argument changed.
func (c Codes) Map(change func(string) string) Codes {
	c = slices.Clone(c)
	for i := range c {
		c[i].Args = maps.Clone(c[i].Args)
		for name, value := range c[i].Args {
			c[i].Args[name] = change(value)
		}
	}
	return c
}

// Text writes the reason in a language. value words an argument, by its name; "reason" is for a text without a
// code. It returns "" if a code is not in the table, or lacks an argument.
func (c Codes) Text(in i18n.Language, value func(name, arg string) string) string {
	if len(c) == 0 || rows[c[0].Code] == nil {
		return ""
	}
	text := rows[c[0].Code].en
	if in == i18n.Chinese {
		text = rows[c[0].Code].zh
	}
	whole := true
	text = i18n.Fill(text, func(name string) string {
		arg, given := c[0].Args[name]
		if !given && name == place {
			inner := c[1:].Text(in, value)
			whole = whole && inner != ""
			return inner
		}
		whole = whole && given
		return value(name, arg)
	})
	if !whole {
		return ""
	}
	return text
}

// place is the name of the place for a nested reason.
const place = "reason"

// Reason says why something is so: a text, and its codes if it has some. The zero value is no reason. It is
// also an error, which wraps the first error among its arguments.
type Reason struct {
	text  string
	codes *Codes // so that errors can be compared
	cause error
}

// New returns the reason of a code. The arguments fill its places, in the order in which the English text first
// names them: a Reason, an error, a time, or any value that fmt.Sprint can print.
func New(code Code, args ...any) Reason {
	r := rows[code]
	if r == nil {
		return Free(fmt.Sprint(append([]any{code}, args...)...))
	}
	one, inner, cause := Coded{Code: code}, Codes(nil), error(nil)
	texts := make(map[string]string, len(args))
	for i, name := range names(r.en)[:min(len(args), len(names(r.en)))] {
		text, codes := argument(args[i])
		if err, is := args[i].(error); is && cause == nil {
			cause = err
		}
		if texts[name] = text; name == place && len(codes) > 0 {
			inner = codes
			continue
		}
		if one.Args == nil {
			one.Args = make(map[string]string)
		}
		one.Args[name] = text
	}
	codes := append(Codes{one}, inner...)
	return Reason{i18n.Fill(r.en, func(name string) string { return texts[name] }), &codes, cause}
}

// argument returns the text and the codes of an argument.
func argument(arg any) (text string, codes Codes) {
	switch v := arg.(type) {
	case error:
		r := Of(v)
		return r.text, r.Codes()
	case time.Time:
		return v.Format(time.RFC3339), nil
	}
	return fmt.Sprint(arg), nil
}

// Free is a reason without a code, such as the text of an error.
func Free(text string) Reason { return Reason{text: text} }

// Of returns the reason of an error; zero for nil. It has codes if the error is a Reason, or is nothing but a
// wrapped one.
func Of(err error) Reason {
	if err == nil {
		return Reason{}
	}
	if r := (Reason{}); errors.As(err, &r) && r.text == err.Error() {
		return r
	}
	return Reason{text: err.Error(), cause: err}
}

// Read returns the reason of a text that another host wrote into the registry, with its codes if the table has
// them.
func Read(text string) Reason {
	codes := Parse(text)
	return Reason{text: text, codes: &codes}
}

// Count is a reason that counts instants.
func Count(n int) Reason {
	if n == 1 {
		return New(Instant, n)
	}
	return New(Instants, n)
}

// IsZero reports that there is no reason.
func (r Reason) IsZero() bool { return r.text == "" }

// String is the English text.
func (r Reason) String() string { return r.text }

// Error is the English text.
func (r Reason) Error() string { return r.text }

// Unwrap is the error that the reason wraps.
func (r Reason) Unwrap() error { return r.cause }

// Codes are those of the reason; nil if it has none.
func (r Reason) Codes() Codes {
	if r.codes == nil {
		return nil
	}
	return *r.codes
}

// names returns the places of a text, each once, in their order.
func names(text string) []string {
	var list []string
	i18n.Fill(text, func(name string) string {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
		return ""
	})
	return list
}

// Parse reads the codes of a text; nil if the table has no such text. It is for records of hosts that wrote no
// codes.
func Parse(text string) Codes {
	for i := range table {
		found, fits := match(table[i].en, text)
		for _, old := range table[i].old {
			if !fits {
				found, fits = match(old, text)
			}
		}
		if !fits {
			continue
		}
		var inner Codes
		if said, has := found[place]; has {
			if inner = Parse(said); inner != nil {
				delete(found, place)
			}
		}
		if len(found) == 0 {
			found = nil
		}
		return append(Codes{{table[i].code, found}}, inner...)
	}
	return nil
}

// match reads the values in the places of a text that was made from a pattern.
func match(pattern, text string) (found map[string]string, ok bool) {
	found = make(map[string]string)
	for {
		fixed, rest, more := strings.Cut(pattern, "{")
		if text, ok = strings.CutPrefix(text, fixed); !ok {
			return nil, false
		}
		if !more {
			return found, text == ""
		}
		place, after, _ := strings.Cut(rest, "}")
		next, _, _ := strings.Cut(after, "{")
		n := len(text)
		if next != "" {
			n = strings.Index(text, next)
		}
		if n <= 0 {
			return nil, false
		}
		found[place], text, pattern = text[:n], text[n:], after
	}
}
