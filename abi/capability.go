package abi

import "context"

// ModuleIO, ModuleHTTP, ModuleNet, ModuleKV and ModuleEnv are the import modules of capabilities, which an
// operator grants job by job. A module that imports one of them without a grant for its job is refused before
// it runs.
const (
	// ModuleIO has the functions on handles: it is granted with every capability that returns handles.
	ModuleIO   = "job_v1_io"
	ModuleHTTP = "job_v1_http"
	ModuleNet  = "job_v1_net"
	ModuleKV   = "job_v1_kv"
	ModuleEnv  = "job_v1_env"
)

// IsCapability reports whether a name is that of an import module of a capability.
func IsCapability(module string) bool {
	switch module {
	case ModuleIO, ModuleHTTP, ModuleNet, ModuleKV, ModuleEnv:
		return true
	}
	return false
}

// Limits of the capabilities. A grant may set lower limits, and higher ones where it says so.
const (
	// MaxHead bounds the head of a request, and of a response, in bytes.
	MaxHead = 64 << 10
	// MaxTarget bounds the target of job_v1_net.dial, and a name of job_v1_env.
	MaxTarget = 1 << 10
	// MaxKey, MaxValue and MaxKeys bound the key/value state of an item: bytes of a
	// key, bytes of all keys and values together, and the number of keys.
	MaxKey   = 256
	MaxValue = 64 << 10
	MaxKeys  = 128
	// MaxHandles bounds the open handles of an invocation.
	MaxHandles = 256
)

// Call is a guest's call of a capability's function. Nothing may keep it after Outside.Call returns.
type Call struct {
	Function *Import
	// Numbers are the numeric parameters, Texts the texts and bytes, each in order. Texts alias the guest's
	// memory: do not modify them, and copy them to keep them.
	Numbers []int64
	Texts   [][]byte
	// Buf receives the answer of a function with a buffer and is as long as the guest's limit; nil if there is
	// no buffer.
	Buf []byte
}

// Give answers with a value: it returns the length, and writes the value if it fits.
func (c *Call) Give(value string) int64 {
	if len(value) <= len(c.Buf) {
		copy(c.Buf, value)
	}
	return int64(len(value))
}

// Outside carries out the calls of one invocation. It is used by one goroutine at a
// time.
type Outside interface {
	// Call returns the function's result: a Code, or the value that its row documents. Only io.wait blocks, and
	// it ends with ctx.
	Call(ctx context.Context, c *Call) int64
}

// CapabilityImports returns the table of the capabilities' imports, as [Imports] does
// for [Module].
func CapabilityImports() []Import {
	handle := Param{"handle", KindInt32}
	table := []Import{{
		Module: ModuleIO, Name: "read", Params: []Param{handle, {"buf", KindBuffer}}, Answer: AnswerCount,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrAgain, ErrUnavailable, ErrTimeout, ErrQuota, ErrTooLarge, ErrDenied, ErrCancelled},
		Does: "reads what has come, as many bytes as there are and fit; 0 is the end (or a limit of 0)",
		Cost: "bytes of the grant's quota",
	}, {
		Module: ModuleIO, Name: "write", Params: []Param{handle, {"data", KindBytes}}, Answer: AnswerCount,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrAgain, ErrUnavailable, ErrTimeout, ErrQuota, ErrTooLarge, ErrDenied, ErrCancelled},
		Does: "takes as many bytes as there is room for; of none it says whether a connection is made",
		Cost: "bytes of the grant's quota",
	}, {
		Module: ModuleIO, Name: "finish", Params: []Param{handle}, Answer: AnswerCode,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrAgain, ErrUnavailable, ErrTimeout, ErrQuota, ErrDenied, ErrCancelled},
		Does: "says that nothing more will be written: a request goes out whole, a connection is closed on this side",
	}, {
		Module: ModuleIO, Name: "close", Params: []Param{handle}, Answer: AnswerCode,
		During: PhaseRun, Codes: []Code{ErrInvalid},
		Does: "drops a handle, and what is not done; what was written to a connection is sent before, if the other side takes it within a second. All handles end with the invocation, at once",
	}, {
		Module: ModuleIO, Name: "wait", Params: []Param{{"timeout_ms", KindInt32}}, Answer: AnswerHandle,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrTimeout, ErrCancelled},
		Does: "waits until a call that was answered with ErrAgain may go on, and says for which handle; a negative timeout is none. ErrCancelled comes once, when the invocation begins to be cancelled; ErrInvalid if there is nothing to wait for",
	}, {
		Module: ModuleIO, Name: "error", Params: []Param{handle, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseRun, Codes: []Code{ErrNotFound},
		Does: "reads why the newest call for the handle failed; of handle 0, the newest of all calls",
	}, {
		Module: ModuleHTTP, Name: "open", Params: []Param{{"head", KindBytes}}, Answer: AnswerHandle,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrDenied, ErrTooLarge, ErrQuota, ErrCancelled},
		Does: "begins a request; head is a list: method, URL, and a name and a value for each header. io.write takes the body, io.finish ends it; io.read has the body of the response. Redirects are answered, not followed",
		Cost: "MaxHead, MaxHandles, requests of the grant's quota",
	}, {
		Module: ModuleHTTP, Name: "status", Params: []Param{handle}, Answer: AnswerCount,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrAgain, ErrUnavailable, ErrTimeout, ErrQuota, ErrTooLarge, ErrDenied, ErrCancelled},
		Does: "says the status code, once it has come; a request whose body has not ended begins with this call, and its body goes out in chunks, unless it has a Content-Length",
	}, {
		Module: ModuleHTTP, Name: "headers", Params: []Param{handle, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrAgain, ErrUnavailable, ErrTimeout, ErrQuota, ErrTooLarge, ErrDenied, ErrCancelled},
		Does: "reads the headers of the response, a key/value list with a pair for each value, sorted by name; it begins a request as status does",
	}, {
		Module: ModuleNet, Name: "dial", Params: []Param{{"target", KindText}}, Answer: AnswerHandle,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrDenied, ErrTooLarge, ErrQuota, ErrCancelled},
		Does: "begins a connection to tcp://HOST:PORT, or tls://HOST:PORT; of the latter the host checks the name in the certificate",
		Cost: "MaxTarget, MaxHandles, connections of the grant's quota",
	}, {
		Module: ModuleKV, Name: "get", Params: []Param{{"key", KindText}, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseItem, Codes: []Code{ErrInvalid, ErrDenied, ErrNotFound},
		Does: "reads a value of the item's state, as this invocation has left it, else as it was committed",
	}, {
		Module: ModuleKV, Name: "set", Params: []Param{{"key", KindText}, {"value", KindBytes}}, Answer: AnswerCode,
		During: PhaseItem, Codes: []Code{ErrInvalid, ErrDenied, ErrTooLarge, ErrQuota, ErrCancelled},
		Does: "stages a value; it becomes durable with the offset: if the invocation ends with StatusOK, or by offset_commit",
		Cost: "MaxKey, MaxKeys, MaxValue",
	}, {
		Module: ModuleKV, Name: "delete", Params: []Param{{"key", KindText}}, Answer: AnswerCode,
		During: PhaseItem, Codes: []Code{ErrInvalid, ErrDenied, ErrNotFound, ErrCancelled},
		Does: "stages that a key is gone",
	}, {
		Module: ModuleKV, Name: "list", Params: []Param{{"prefix", KindText}, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseItem, Codes: []Code{ErrInvalid, ErrDenied},
		Does: "reads the keys that begin with the prefix, a list in their order",
	}, {
		Module: ModuleKV, Name: "increment", Params: []Param{{"key", KindText}, {"by", KindInt64}}, Answer: AnswerValue,
		During: PhaseItem, Codes: []Code{ErrInvalid, ErrDenied, ErrTooLarge, ErrQuota, ErrCancelled},
		Does: "stages the sum of a counter, in decimal digits, and a number, and says it; a key that is not there counts as 0. ErrInvalid if the value is no counter, or the sum would be negative or over 2^63-1",
	}, {
		Module: ModuleEnv, Name: "get", Params: []Param{{"name", KindText}, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrDenied, ErrNotFound},
		Does: "reads a granted environment variable; WASI guests find the same in their environment",
	}, {
		Module: ModuleEnv, Name: "secret", Params: []Param{{"name", KindText}, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrDenied, ErrNotFound, ErrUnavailable},
		Does: "reads a secret that is granted as readable; the others are of use in headers of requests only, as {{secret:NAME}}",
	}}
	for i := range table {
		table[i].Type = table[i].signature()
	}
	return table
}
