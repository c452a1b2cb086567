package abi

// Import is a row of the tables of imports: a function that a guest may call. The host's binding, the SDK's
// border, the fake host of package sdktest, the inspection of modules and the table in docs/writing-jobs.md are
// generated from it, or tests compare them with it.
type Import struct {
	Module string
	Name   string
	Params []Param
	Answer Answer
	// During says when a guest may call it. At other times it does nothing, and
	// answers [ErrState] if it has a result.
	During Phase
	// Codes are the errors that it may return besides ErrState.
	Codes []Code
	// Does says what it is for, Cost which limits of an invocation it counts against.
	Does, Cost string
	// Type is the signature, made of Params and Answer.
	Type Signature
}

// Param is a parameter of an import.
type Param struct {
	Name string
	Kind Kind
}

// Kind says what a parameter means.
type Kind int

// The kinds. Texts, bytes and buffers are two parameters of type i32: a pointer, and a
// length or, of a buffer, a limit.
const (
	KindInt32  Kind = iota
	KindUint32      // a number of a field
	KindInt64
	KindText   // that the host reads
	KindBytes  // the same, which need not be UTF-8
	KindBuffer // that the host writes to; see Reading in the comment of this package
)

// Answer says what the result of an import means.
type Answer int

// The answers.
const (
	NoAnswer     Answer = iota
	AnswerCode          // i32: OK or another Code
	AnswerLength        // i32: the length of what is read, or a Code
	AnswerValue         // i64: a value that is not negative, or a Code
	AnswerFlag          // i32: 1 or 0
	AnswerCancel        // i32: a Cancel, or a Code
	AnswerCount         // i32: a number that is not negative, or a Code
	AnswerHandle        // i32: a handle > 0, or a Code
)

// Phase is what an instance is doing. Phases are bits of a set.
type Phase uint8

// The phases.
const (
	PhaseInit     Phase = 1 << iota // a start section or _initialize
	PhaseItem                       // an entry point for an item
	PhaseListener                   // a listener export

	PhaseRun = PhaseItem | PhaseListener
	PhaseAny = PhaseInit | PhaseRun
)

// Imports returns the table of the imports of [Module]. A row is never changed once it was released; new
// ones come last.
func Imports() []Import {
	table := []Import{{
		Name: "ctx_str", Params: []Param{{"field", KindUint32}, {"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseAny, Codes: []Code{ErrNotFound},
		Does: "reads a text of the context: CtxJobName to CtxSource; while it is initialised CtxPluginConfig and CtxHostInfo only",
	}, {
		Name: "ctx_int", Params: []Param{{"field", KindUint32}}, Answer: AnswerValue,
		During: PhaseRun, Codes: []Code{ErrNotFound},
		Does: "reads a number of the context: CtxTotalCount to CtxFetchDataCount",
	}, {
		Name: "log", Params: []Param{{"level", KindInt32}, {"msg", KindText}, {"kv", KindBytes}},
		During: PhaseAny,
		Does:   "logs a line; kv is a key/value list",
		Cost:   "MaxLogMessage, MaxLogBytes, LogLinesPerSecond, LogBurst: what is beyond them is cut or dropped",
	}, {
		Name: "log_enabled", Params: []Param{{"level", KindInt32}}, Answer: AnswerFlag,
		During: PhaseAny,
		Does:   "says whether lines of the level are logged; constant during an invocation",
	}, {
		Name: "set_error", Params: []Param{{"msg", KindText}},
		During: PhaseAny,
		Does:   "sets the reason, recorded if the invocation does not end with StatusOK; the last call wins",
		Cost:   "MaxError: what is longer is cut",
	}, {
		Name: "progress", Params: []Param{{"done", KindInt64}, {"total", KindInt64}},
		During: PhaseRun,
		Does:   "reports progress; a total <= 0 is unknown; the host keeps the latest",
	}, {
		Name: "metric", Params: []Param{{"kind", KindInt32}, {"name", KindText}, {"value", KindInt64}}, Answer: AnswerCode,
		During: PhaseRun, Codes: []Code{ErrInvalid, ErrQuota, ErrCancelled},
		Does: "reports a value of MetricCounter, MetricGauge or MetricHistogram; the host adds labels",
		Cost: "MaxMetricName, MaxMetricNames",
	}, {
		Name: "offset_get", Params: []Param{{"buf", KindBuffer}}, Answer: AnswerLength,
		During: PhaseItem, Codes: []Code{ErrNotFound},
		Does: "reads what this invocation has staged (in job_process: what job_fetch has staged for the batch), else the last committed offset",
	}, {
		Name: "offset_set", Params: []Param{{"offset", KindBytes}}, Answer: AnswerCode,
		During: PhaseItem, Codes: []Code{ErrTooLarge, ErrCancelled},
		Does: "stages the offset; it becomes durable only if the invocation ends with StatusOK, or by offset_commit",
		Cost: "MaxOffset",
	}, {
		Name: "offset_commit", Answer: AnswerCode,
		During: PhaseItem, Codes: []Code{ErrUnavailable, ErrConflict, ErrCancelled},
		Does: "makes the staged offset durable now; ErrConflict: the item is no longer owned by this host and is being cancelled",
		Cost: "a write to the registry; beyond the job's quota it waits for its turn",
	}, {
		Name: "cancelled", Answer: AnswerCancel,
		During: PhaseRun,
		Does:   "says whether the invocation is being cancelled, and why",
	}, {
		Name: "retry_at", Params: []Param{{"at", KindInt64}, {"flags", KindInt32}}, Answer: AnswerCode,
		During: PhaseItem, Codes: []Code{ErrInvalid},
		Does: "says that the item is not to run before a time, in Unix milliseconds, if the invocation ends with StatusRetry; the last call wins. With RetryPausesKey nothing of the job's rate key begins before it either. ErrInvalid: at is not positive or further away than MaxRetryAt, or a flag is unknown",
	}}
	for i := range table {
		table[i].Module, table[i].Type = Module, table[i].signature()
	}
	return table
}

func (f *Import) signature() Signature {
	var s Signature
	for _, p := range f.Params {
		switch p.Kind {
		case KindInt32, KindUint32:
			s.Params = append(s.Params, I32)
		case KindInt64:
			s.Params = append(s.Params, I64)
		case KindText, KindBytes, KindBuffer:
			s.Params = append(s.Params, I32, I32)
		}
	}
	switch f.Answer {
	case NoAnswer:
	case AnswerValue:
		s.Results = []ValueType{I64}
	default:
		s.Results = []ValueType{I32}
	}
	return s
}
