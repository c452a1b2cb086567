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

// Imports returns the functions of [Module], with the meaning of their
// parameters and results.
func Imports() []Function {
	return []Function{
		// ctx_str(field, buf, buf_limit) -> length or code. Fields CtxJobName to CtxSource.
		fn("ctx_str", []ValueType{I32, I32, I32}, []ValueType{I32}),
		// ctx_int(field) -> value >= 0 or code. Fields CtxTotalCount to CtxFetchDataCount.
		fn("ctx_int", []ValueType{I32}, []ValueType{I64}),
		// log(level, msg, msg_len, kv, kv_len). kv is a key/value list. Never fails.
		fn("log", []ValueType{I32, I32, I32, I32, I32}, nil),
		// log_enabled(level) -> 1 or 0; constant during an invocation.
		fn("log_enabled", []ValueType{I32}, []ValueType{I32}),
		// set_error(msg, msg_len): the reason, recorded if the invocation does
		// not end with StatusOK. The last call wins.
		fn("set_error", []ValueType{I32, I32}, nil),
		// progress(done, total): total <= 0 is unknown. The host keeps the latest.
		fn("progress", []ValueType{I64, I64}, nil),
		// metric(kind, name, name_len, value) -> code. The host adds labels.
		fn("metric", []ValueType{I32, I32, I32, I64}, []ValueType{I32}),
		// offset_get(buf, buf_limit) -> length or code: what this invocation has
		// staged (in job_process: what job_fetch has staged for the batch), else
		// the last committed offset, else ErrNotFound.
		fn("offset_get", []ValueType{I32, I32}, []ValueType{I32}),
		// offset_set(ptr, len) -> code: stages the offset. It becomes durable
		// only if the invocation ends with StatusOK, or by offset_commit.
		fn("offset_set", []ValueType{I32, I32}, []ValueType{I32}),
		// offset_commit() -> code: makes the staged offset durable now.
		// ErrConflict: the item is no longer ours and is being cancelled.
		fn("offset_commit", nil, []ValueType{I32}),
		// cancelled() -> Cancel.
		fn("cancelled", nil, []ValueType{I32}),
	}
}

// Exports returns the signatures of the guest functions that the host may
// look for. [MarkerPrefix] exports have the type of [Marker].
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
