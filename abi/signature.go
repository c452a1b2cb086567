package abi

import "strings"

// ValueType is a WebAssembly value type, as the binary format encodes it
// (WebAssembly Core 2.0, section 5.3.1).
type ValueType byte

// The value types that the ABI uses.
const (
	I32 ValueType = 0x7f
	I64 ValueType = 0x7e
)

// String returns the name in the text format.
func (v ValueType) String() string {
	switch v {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case 0x7d:
		return "f32"
	case 0x7c:
		return "f64"
	case 0x7b:
		return "v128"
	case 0x70:
		return "funcref"
	case 0x6f:
		return "externref"
	}
	return "?"
}

// Signature is the type of a function.
type Signature struct {
	Params, Results []ValueType
}

// String returns the signature as "(i32,i32)->(i64)".
func (s Signature) String() string {
	var b strings.Builder
	list := func(types []ValueType) {
		b.WriteByte('(')
		for i, t := range types {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(t.String())
		}
		b.WriteByte(')')
	}
	list(s.Params)
	b.WriteString("->")
	list(s.Results)
	return b.String()
}

// Equal reports whether two signatures are the same.
func (s Signature) Equal(o Signature) bool {
	return string(s.Params) == string(o.Params) && string(s.Results) == string(o.Results)
}

// Function is a named function of the contract.
type Function struct {
	Name string
	Type Signature
}

func fn(name string, params, results []ValueType) Function {
	return Function{Name: name, Type: Signature{Params: params, Results: results}}
}

// Exports returns the signatures of the guest functions that a host may call. [MarkerPrefix] exports have the
// type of [Marker].
func Exports() []Function {
	status := []ValueType{I32}
	return []Function{
		fn(Marker, nil, nil),
		fn(ExportInitialize, nil, nil),
		fn(ExportStart, nil, nil),
		fn(ExportExecute, nil, status),
		fn(ExportFetch, nil, status),
		fn(ExportProcess, nil, status),
		fn(ExportBefore, nil, status),
		fn(ExportAfter, nil, status),
		fn(ExportBeforeOnce, nil, status),
		fn(ExportAfterOnce, nil, status),
	}
}
